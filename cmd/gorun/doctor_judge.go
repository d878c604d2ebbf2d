package main

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// finding is one thing that is wrong, and what mends it.
type finding struct {
	hosts       []string
	wrong, mend string
}

const (
	skewMax    = time.Second
	memlockMin = 1 << 30 // bytes; a rank registers what it sends
)

// judge finds what is wrong. Hosts with the same trouble share a finding.
func judge(here *visit, visits []*visit, links []link, gorun string) (all []finding) {
	add := func(host, mend, wrong string, args ...any) {
		wrong = fmt.Sprintf(wrong, args...)
		i := slices.IndexFunc(all, func(f finding) bool { return f.wrong == wrong && f.mend == mend })
		if i < 0 {
			all = append(all, finding{[]string{host}, wrong, mend})
			return
		}
		all[i].hosts = append(all[i].hosts, host)
	}
	rdma := false
	for _, v := range append([]*visit{here}, visits...) {
		rdma = rdma || v.err == nil && len(v.facts.RDMA.Devices) > 0
	}
	for _, v := range append([]*visit{here}, visits...) {
		if v.err != nil {
			wrong, mend := unreached(v, gorun)
			add(v.name, mend, "%s", wrong)
			continue
		}
		judgeFacts(v.name, v.facts, rdma, add)
		if v == here {
			continue
		}
		if v.facts.Gorun != here.facts.Gorun {
			add(v.name, fmt.Sprintf("scp %s HOST:%s", gorun, gorun), "gorun is %s there, and %s here", v.facts.Gorun,
				here.facts.Gorun)
		}
		if v.facts.Arch != here.facts.Arch || v.facts.System != here.facts.System {
			add(v.name, fmt.Sprintf("GOOS=%s GOARCH=%s go build, for the program and for gorun there", v.facts.System,
				v.facts.Arch), "it is %s/%s, and this host %s/%s", v.facts.System, v.facts.Arch, here.facts.System,
				here.facts.Arch)
		}
		if v.skew.Abs() > skewMax {
			add(v.name, "timedatectl set-ntp true (or chronyc makestep)", "its clock differs from this one's by %v",
				v.skew.Round(time.Millisecond))
		}
	}
	for _, l := range links {
		if l.err != nil {
			add(l.from, "open the ports to the hosts of the job: GORUN_TCP_PORTS=40000-40999, and there "+
				"firewall-cmd --permanent --add-port=40000-40999/tcp && firewall-cmd --reload; "+
				"GORUN_TCP_IF chooses the network",
				"it cannot connect to %s: %v", l.to, l.err)
		}
	}
	return all
}

// judgeFacts looks at one host. rdma: some host has a device.
func judgeFacts(host string, f facts, rdma bool, add func(host, mend, wrong string, args ...any)) {
	if f.System == "linux" && !strings.HasPrefix(f.Readv, "yes") {
		add(host, "sysctl -w kernel.yama.ptrace_scope=0; in a container: --cap-add=SYS_PTRACE",
			"ranks cannot read each other's memory (%s)", f.Readv)
	}
	if f.Error != "" {
		add(host, "unset it, or see gorun info", "a setting is wrong: %s", f.Error)
	}
	if !slices.ContainsFunc(f.Interfaces, func(i netFacts) bool { return !i.Loopback && len(i.Addresses) > 0 }) {
		add(host, "ip link; ip addr", "no interface but loopback is up and has an address")
	}
	if !rdma {
		return
	}
	if len(f.RDMA.Devices) == 0 {
		add(host, "lspci | grep -i -e mellanox -e infiniband; modprobe mlx5_ib",
			"it has no RDMA device, and another host has")
		return
	}
	if !f.RDMA.Verbs {
		add(host, "CGO_ENABLED=1 go build -tags verbs, for the program and for gorun",
			"it has an RDMA device, and gorun was built without verbs")
	}
	if f.Memlock >= 0 && f.Memlock < memlockMin {
		add(host, "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf, then log in again; "+
			"for a service LimitMEMLOCK=infinity", "a process may lock %d KiB only, and RDMA locks what is sent",
			f.Memlock>>10)
	}
	for _, d := range f.RDMA.Devices {
		active := false
		for _, p := range d.Ports {
			active = active || p.State == "ACTIVE"
		}
		if !active {
			add(host, "ibstat "+d.Name+"; ip link set DEV up; with InfiniBand: is opensm running?",
				"no port of the RDMA device %s is active", d.Name)
		}
	}
}

// unreached says why a host was not reached, by what the remote shell has said.
func unreached(v *visit, gorun string) (wrong, mend string) {
	code := -1
	var exit *exec.ExitError
	switch {
	case v.cmd != nil && v.cmd.ProcessState != nil:
		code = v.cmd.ProcessState.ExitCode()
	case errors.As(v.err, &exit):
		code = exit.ExitCode()
	}
	for _, c := range []struct{ says, mend string }{
		{"Permission denied", "ssh-copy-id " + v.name},
		{"Host key verification failed", "ssh-keyscan " + v.name + " >>~/.ssh/known_hosts (compare the key first)"},
		{"Could not resolve hostname", "correct the name, or add it to /etc/hosts or DNS"},
		{"Connection refused", "on " + v.name + ": systemctl start ssh"},
		{"timed out", "ping " + v.name + ": is it up, and is port 22 open?"},
		{"No route to host", "ping " + v.name + ": is it up, and on this network?"},
		{"executable file not found", "apt-get install openssh-client, or name another shell with --launch-agent"},
	} {
		if strings.Contains(v.stderr+fmt.Sprint(v.err), c.says) {
			return "it is not reached: " + firstLine(v.stderr, v.err), c.mend
		}
	}
	if code == 127 || code == 126 || strings.Contains(v.stderr, "No such file or directory") {
		return "gorun is not there as " + gorun + ": " + firstLine(v.stderr, v.err),
			fmt.Sprintf("scp %s HOST:%s, or --gorun PATH", gorun, gorun)
	}
	return "it is not reached: " + firstLine(v.stderr, v.err), "try it by hand: ssh " + v.name + " " + gorun + " info"
}

func firstLine(text string, err error) string {
	line, _, _ := strings.Cut(text, "\n")
	if line = strings.TrimSpace(line); line == "" {
		return err.Error()
	}
	return fmt.Sprintf("%.200s", line)
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/topology"
)

// healthy is a host on which nothing is wrong.
func healthy(name string) *visit {
	return &visit{name: name, facts: facts{Gorun: "v1", System: "linux", Arch: "amd64", Readv: "yes", Memlock: -1,
		Interfaces: []netFacts{{Name: "eth0", Addresses: []string{"10.0.0.1/24"}}}}}
}

// Each trouble is found, alone, and with what mends it.
func TestDoctorJudges(t *testing.T) {
	device := topology.Device{Name: "mlx5_0", Ports: []topology.Port{{Number: 1, State: "ACTIVE"}}}
	for _, c := range []struct {
		what, wrong, mend string
		spoil             func(here, v *visit) []link
	}{
		{"nothing", "", "", func(_, _ *visit) []link { return []link{{"a", "b", nil}} }},
		{"version", "gorun is v2 there, and v1 here", "scp", func(_, v *visit) []link {
			v.facts.Gorun = "v2"
			return nil
		}},
		{"system", "linux/arm64", "GOARCH=arm64", func(_, v *visit) []link {
			v.facts.Arch = "arm64"
			return nil
		}},
		{"clock", "clock differs", "timedatectl", func(_, v *visit) []link { v.skew = -2 * time.Second; return nil }},
		{"Yama", "read each other's memory", "ptrace_scope", func(_, v *visit) []link {
			v.facts.Readv = "no: EPERM"
			return nil
		}},
		{"setting", "setting is wrong", "gorun info", func(_, v *visit) []link {
			v.facts.Error = "GORUN_SPIN=x"
			return nil
		}},
		{"network", "no interface", "ip addr", func(_, v *visit) []link {
			v.facts.Interfaces = nil
			return nil
		}},
		{"port", "cannot connect to b", "GORUN_TCP_PORTS", func(_, _ *visit) []link {
			return []link{{"a", "b", errors.New("no")}}
		}},
		{"one has RDMA", "no RDMA device", "lspci", func(here, _ *visit) []link {
			here.facts.RDMA = rdmaFacts{Devices: []topology.Device{device}, Verbs: true}
			return nil
		}},
		{"key", "Permission denied", "ssh-copy-id a", func(_, v *visit) []link {
			v.err, v.stderr = errors.New("exit status 255"), "root@a: Permission denied (publickey)."
			return nil
		}},
		{"no gorun", "gorun is not there as /opt/gorun", "scp /opt/gorun", func(_, v *visit) []link {
			v.err, v.stderr = errors.New("exit status 127"), "sh: /opt/gorun: No such file or directory"
			return nil
		}},
	} {
		here, v := healthy("localhost"), healthy("a")
		links := c.spoil(here, v)
		all := judge(here, []*visit{v}, links, "/opt/gorun")
		switch {
		case c.wrong == "" && len(all) == 0:
		case len(all) != 1 || !strings.Contains(all[0].wrong, c.wrong) || !strings.Contains(all[0].mend, c.mend):
			t.Errorf("%s: %+v, want one finding with %q and %q", c.what, all, c.wrong, c.mend)
		}
	}
	// RDMA needs more.
	here := healthy("localhost")
	here.facts.RDMA = rdmaFacts{Devices: []topology.Device{{Name: "mlx5_0", Ports: []topology.Port{{State: "DOWN"}}}}}
	here.facts.Memlock = 64 << 10
	if all := judge(here, nil, nil, ""); len(all) != 3 {
		t.Errorf("%+v, want verbs, memlock and the port", all)
	}
	// Hosts with the same trouble share a finding.
	a, b := healthy("a"), healthy("b")
	a.facts.Gorun, b.facts.Gorun = "v2", "v2"
	if all := judge(healthy("localhost"), []*visit{a, b}, nil, ""); len(all) != 1 || len(all[0].hosts) != 2 {
		t.Errorf("%+v", all)
	}
}

// What a host says is not believed before it has been looked at.
func FuzzHello(f *testing.F) {
	good, err := json.Marshal(greeting{Facts: healthy("a").facts, Port: 4000, Token: strings.Repeat("T", 26)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"facts":{"interfaces":[{"addresses":["x","::1/128","10.0.0.1/99"]}]},"port":-1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		v := &visit{name: "a", out: make(chan []byte, 1)}
		v.out <- line
		var h greeting
		if v.hear(&h) != nil || h.check() != nil {
			return
		}
		v.facts, v.port, v.token = h.Facts, h.Port, h.Token
		judge(healthy("localhost"), []*visit{v}, nil, "gorun")
		printVisits(&strings.Builder{}, healthy("localhost"), []*visit{v})
	})
}

// Hosts behind a remote shell, which is a script here: good ones, and each way in which one can fail.
func TestDoctor(t *testing.T) {
	t.Parallel()
	shell := filepath.Join(t.TempDir(), "shell")
	script := `#!/bin/sh
host=$1; shift
case $host in
refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255 ;;
chatty) echo "Welcome to chatty"; exec "$@" ;;
silent) exec cat >/dev/null ;;
none) exec /nowhere/gorun ;;
*) exec "$@" ;;
esac
`
	if err := os.WriteFile(shell, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	doctor := func(hosts string) *job {
		j := prepare(t)
		j.cmd.Args = []string{j.cmd.Args[0], "doctor", "-H", hosts, "--launch-agent", shell}
		return j.start()
	}
	j := doctor("refused,chatty,none,a,b")
	j.wait(1)
	for _, want := range []string{"wrong on refused: it is not reached: ssh: connect", "systemctl start ssh",
		"wrong on chatty: it is not reached: it said \"Welcome", "wrong on none: gorun is not there"} {
		if !strings.Contains(j.out.String(), want) {
			t.Errorf("no %q in\n%s", want, j.out.String())
		}
	}
	// Of this machine itself anything may be wrong, such as that it has no network.
	if strings.Contains(j.out.String(), "wrong on a") && !strings.Contains(j.out.String(), "wrong on localhost") {
		t.Errorf("a host that is this one has other troubles:\n%s", j.out.String())
	}
	j = prepare(t) // sh has the path, whatever is in it
	j.cmd.Args = []string{j.cmd.Args[0], "doctor", "-H", "a", "--launch-agent", shell, "--gorun", "/nowhere/it's $x"}
	j.start().wait(1)
	if want := "gorun is not there as /nowhere/it's $x: "; !strings.Contains(j.out.String(), want) {
		t.Errorf("no %q in\n%s", want, j.out.String())
	}
	j = prepare(t)
	j.cmd.Args = []string{j.cmd.Args[0], "doctor", "-H", "n[1-"}
	j.start().wait(2).says("-H, column")
	proc.Eventually(t, "the end of all", func() bool { return len(j.processes()) == 0 })
}

// A remote shell that leaves processes behind holds up no visit, and one that floods takes no memory.
func TestVisitOfBadShell(t *testing.T) {
	step, dial := stepLimit, dialLimit
	stepLimit, dialLimit = 100*time.Millisecond, 100*time.Millisecond
	defer func() { stepLimit, dialLimit = step, dial }()
	dir := t.TempDir()
	for name, script := range map[string]string{
		"leaves": "sleep 20 & echo $! >" + dir + "/pid; wait",
		"floods": "exec yes >&2",
	} {
		shell := filepath.Join(dir, name)
		if err := os.WriteFile(shell, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		v := visitHost([]string{shell}, "a", "/nowhere/gorun")
		if v.err == nil || len(v.stderr) > complaintMax {
			t.Errorf("%s: %v, and %d bytes", name, v.err, len(v.stderr))
		}
	}
	text, _ := os.ReadFile(dir + "/pid") // on a busy machine the shell may not have come so far
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// What gorun runs of itself is not the whole suite where it is a test.
func TestProbeInTest(t *testing.T) {
	if answer := probeReadv(); !strings.HasPrefix(answer, "yes") && !strings.HasPrefix(answer, "no: ") {
		t.Errorf("%.200q", answer)
	}
}

func TestDialAny(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	here := &visit{ln: ln, port: ln.Addr().(*net.TCPAddr).Port, token: strings.Repeat("T", 26)}
	defer here.close()
	go serveToken(ln, here.token)
	addr := fmt.Sprintf("127.0.0.1:%d", here.port)
	if err := dialAny([]string{"127.0.0.1:1", addr}, here.token); err != nil {
		t.Error(err)
	}
	if err := dialAny([]string{addr}, strings.Repeat("X", len(here.token))); err == nil ||
		!strings.Contains(err.Error(), "another process") {
		t.Errorf("%v", err)
	}
}

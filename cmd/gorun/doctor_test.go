package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// healthy is a host on which nothing is wrong.
func healthy(name string) *visit {
	g := greeting{Token: strings.Repeat("T", 26), Addresses: [][]byte{published()},
		Facts: facts{Gorun: "v1", System: "linux", Arch: "amd64", Readv: "yes", Memlock: -1, Files: -1, Processes: -1,
			CPUs:       cpuFacts{Usable: 4},
			Interfaces: []netFacts{{Name: "eth0", MTU: 1500, Carrier: true, Addresses: []string{"10.0.0.1/24"}}}}}
	return &visit{Name: name, Gorun: "installed", Facts: &g.Facts, greeting: g}
}

// published is what a rank publishes that is reached at 10.0.0.1.
func published() []byte {
	b := append([]byte{1, 1}, make([]byte, 16)...)
	return append(b, 0, 10, 0, 0, 1, 0x9c, 0x40)
}

// unreached is a host to which there was no way.
func unreached(name, why string) *visit {
	v := healthy(name)
	v.lost(errors.New(why))
	return v
}

// via is a link on which these attempts were made.
func via(from, to *visit, all ...attempt) []link { return []link{{from, to, [][]attempt{all}}} }

// Each trouble is found, alone, and with what mends it.
func TestDoctorJudges(t *testing.T) {
	device := topology.Device{Name: "mlx5_0", Ports: []topology.Port{{Number: 1, State: "ACTIVE"}}}
	good := attempt{To: "10.0.0.1:40000"}
	silent := attempt{"10.1.0.1:40000", tcp.Silent, "i/o timeout"}
	for _, c := range []struct {
		what, wrong, mend string
		spoil             func(e *exam, a, b *visit)
	}{
		{"nothing", "", "", func(e *exam, a, b *visit) { e.links = via(a, b, good) }},
		{"architecture", "it is linux/arm64", "leave HOST out", func(_ *exam, a, _ *visit) { a.Facts.Arch = "arm64" }},
		{"clock", "clock differs", "timedatectl", func(_ *exam, a, _ *visit) { a.Skew = -2 * time.Second }},
		{"Yama", "read each other's memory", "ptrace_scope", func(_ *exam, a, _ *visit) { a.Facts.Readv = "no: EPERM" }},
		{"files", "may have 100 files open", "nofile", func(_ *exam, a, _ *visit) { a.Facts.Files, a.Slots = 100, 64 }},
		{"processes", "may have 100 threads", "nproc", func(_ *exam, a, _ *visit) { a.Facts.Processes, a.Slots = 100, 64 }},
		{"few ports", "has 2 ports, and it is for 3 ranks", "a port for each rank", func(e *exam, a, _ *visit) {
			e.ports, a.Slots = "40000-40001", 3
		}},
		{"MTU", "have 1500 bytes at most, and those of other hosts 9000", "mtu 9000", func(_ *exam, _, b *visit) {
			b.Facts.Interfaces[0].MTU = 9000
		}},
		{"network", "no interface", "ip addr", func(_ *exam, a, _ *visit) { a.Facts.Interfaces = nil }},
		{"no port", "ranks cannot listen there", "GORUN_TCP_PORTS", func(_ *exam, a, _ *visit) {
			a.greeting.Addresses, a.greeting.Blocked = nil, "all 2 ports are taken"
		}},
		{"firewall", "cannot connect to b: no answer", "export GORUN_TCP_PORTS", func(e *exam, a, b *visit) {
			e.links = via(a, b, silent)
		}},
		{"firewall at ports that are set", "cannot connect to b: no answer", "on b: firewall-cmd --permanent " +
			"--add-port=40000-40999/tcp", func(e *exam, a, b *visit) {
			e.ports, e.links = "40000-40999", via(a, b, silent)
		}},
		{"firewall in one direction", "connected by it, later: no answer", "GORUN_TCP_PORTS", func(e *exam, a, b *visit) {
			e.links = append(via(a, b, silent), via(b, a, good)...)
		}},
		{"part of the range", "cannot connect to b: no answer", "GORUN_TCP_PORTS", func(e *exam, a, b *visit) {
			e.links = []link{{a, b, [][]attempt{{good}, {silent}}}}
		}},
		{"first address", "first try an address of b in vain", "GORUN_TCP_IF", func(e *exam, a, b *visit) {
			e.links = via(a, b, silent, good)
		}},
		{"an address that cannot be dialled from there", "", "", func(e *exam, a, b *visit) {
			e.links = via(a, b, attempt{"[fd00::1]:40000", tcp.NoRoute, "network is unreachable"}, good)
		}},
		{"MTU on the way", "short frames arrive", "mtu 1500", func(e *exam, a, b *visit) {
			e.links = via(a, b, attempt{"10.0.0.1:1", tcp.Stuck, "i/o timeout"})
		}},
		{"cable", "no cable is connected to eth0", "plug in", func(e *exam, a, b *visit) {
			b.Facts.Interfaces[0].Carrier = false
			e.links = append(via(a, b, attempt{"10.0.0.1:1", tcp.Unreachable, "no route to host"}), via(b, a, silent)...)
		}},
		{"two names", "several names", "name it once", func(e *exam, a, b *visit) {
			e.aliasesFail, a.greeting.Host, b.greeting.Host = true, "x", "x"
		}},
		{"a transport", "do without the transport tcp, which does not open", "gorun info", func(_ *exam, _, b *visit) {
			b.Facts.Transports = []transportFacts{{"shm", ""}, {"verbs", "built without"}, {"tcp", "no ports"}}
		}},
		{"one has RDMA", "no RDMA device", "lspci", func(_ *exam, _, b *visit) {
			b.Facts.RDMA = rdmaFacts{Devices: []topology.Device{device}, Verbs: true}
		}},
	} {
		a, b := healthy("a"), healthy("b")
		e := &exam{local: healthy("login"), visits: []*visit{a, b}, shell: reach.SSH, path: "/opt/gorun"}
		c.spoil(e, a, b)
		all := e.diagnose()
		switch {
		case c.wrong == "" && len(all) == 0:
		case len(all) != 1 || !strings.Contains(all[0].Wrong, c.wrong) || !strings.Contains(all[0].Mend, c.mend):
			t.Errorf("%s: %+v, want one finding with %q and %q", c.what, all, c.wrong, c.mend)
		}
	}
	// RDMA needs more.
	a := healthy("a")
	a.Facts.RDMA = rdmaFacts{Devices: []topology.Device{{Name: "mlx5_0", Ports: []topology.Port{{State: "DOWN"}}}}}
	a.Facts.Memlock = 64 << 10
	if all := (&exam{local: a, visits: []*visit{a}}).diagnose(); len(all) != 3 {
		t.Errorf("%+v, want verbs, memlock and the port", all)
	}
}

// The cause of a host that is not reached is the right one.
func TestDoctorBlames(t *testing.T) {
	for _, c := range []struct{ says, wrong, mend string }{
		{"ssh: root@a: Permission denied (publickey).", "log in", "ssh-copy-id HOST"},
		{"ssh: sh: 9: exec: /home/u/.cache/gorun/12: Permission denied; exit status 126", "no program can be run",
			"noexec"},
		{"ssh: @@@@@@@@@@@; @    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @; @@@@@@@@@@@; " +
			"Host key verification failed.", "host key is another one", "ssh-keygen -R HOST"},
		{"ssh: Host key verification failed.", "not known here", "ssh-keyscan HOST"},
		{"ssh: Can't open user config file /nonexistent: No such file or directory", "configured",
			"ssh -F /nonexistent HOST true"},
		{"it has no gorun of this build at /opt/gorun, and this one does not run there: it is for Linux x86_64, and the " +
			"host is Linux aarch64; install one", "architecture", "leave HOST out"},
		{"it has no gorun of this build at /opt/gorun, and this one is not copied: it is dynamically linked (/lib/ld.so)",
			"cannot be copied", "CGO_ENABLED=0"},
		{"ssh: connect to host a port 22: No route to host", "no machine answers", "ping HOST"},
		{"ssh: connect to host a port 22: Connection refused", "nothing listens", "systemctl"},
		{"ssh: Could not resolve hostname a: Temporary failure in name resolution", "name is not known", "correct the name"},
		{"ssh: Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures", "log in", "IdentitiesOnly"},
		{"ssh: Bad owner or permissions on /home/u/.ssh/config", "others could write", "chmod go-w"},
		{"error: dial tcp: lookup a on 10.0.0.10:53: no such host", "name is not known", "correct the name"},
		{"ssh: mktemp: cannot create: Permission denied; exit status 1", "does not come there", "by hand"},
		{"something else", "does not come there", "by hand: ssh -F /nonexistent HOST true"},
	} {
		v := unreached("a", c.says)
		e := &exam{local: healthy("login"), visits: []*visit{v}, path: "/opt/gorun",
			shell: []string{"ssh", "-F", "/nonexistent"}}
		all := e.diagnose()
		if len(all) != 1 || !strings.Contains(all[0].Wrong, c.wrong) || !strings.Contains(all[0].Mend, c.mend) {
			t.Errorf("%s: %+v, want %q and %q", c.says, all, c.wrong, c.mend)
		}
		if strings.Contains(all[0].Details["a"], "@@@") {
			t.Errorf("the banner is in %q", all[0].Details["a"])
		}
	}
}

// A hundred hosts with one trouble are one finding, and a line or two of text.
func TestDoctorMerges(t *testing.T) {
	var visits []*visit
	for i := range 100 {
		name := fmt.Sprintf("n%03d", i+1)
		if i < 50 {
			visits = append(visits, unreached(name, "ssh: "+name+": Permission denied (publickey)."))
			continue
		}
		visits = append(visits, healthy(name))
	}
	e := &exam{local: healthy("login"), visits: visits, shell: reach.SSH, path: "/opt/gorun"}
	silent := attempt{"10.0.0.1:40000", tcp.Silent, "i/o timeout"}
	slices.Reverse(visits)
	for i, from := range visits {
		for k, to := range visits {
			silent.To = fmt.Sprintf("10.0.0.%d:%d", k, 40000+i) // they differ
			if from != to && from.err == nil && to.err == nil {
				e.links = append(e.links, via(from, to, silent)...)
			}
		}
	}
	slices.Reverse(visits)
	r := report{Hosts: visits, Findings: e.diagnose()}
	if len(r.Findings) != 2 || r.Findings[0].Kind != "reach" || len(r.Findings[0].Hosts) != 50 ||
		len(r.Findings[1].Hosts) != 50 {
		t.Fatalf("%d findings, the first is %+v", len(r.Findings), r.Findings[0])
	}
	var b strings.Builder
	r.print(&b)
	for _, want := range []string{"wrong on n[001-050]: it does not let", "  mend: ssh-copy-id HOST\n",
		"wrong on n[051-100]: ranks there cannot connect to each other: no answer", "\n  n[051-100]  installed"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), "\n"); n > 16 {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
	// One that nobody reaches is named as such.
	e.all, e.links, e.visits = nil, nil, visits[50:60]
	for _, from := range e.visits[1:] {
		e.links = append(e.links, via(from, e.visits[0], silent)...)
	}
	if all := e.diagnose(); len(all) != 1 || place.Fold(all[0].Hosts) != "n[052-060]" ||
		!strings.Contains(all[0].Wrong, "cannot connect to n051") {
		t.Errorf("%+v", all)
	}
}

// What a host says is not believed before it has been looked at.
func FuzzHello(f *testing.F) {
	good, err := json.Marshal(healthy("a").greeting)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"facts":{"gorun":"v1","interfaces":[{"addresses":["x","::1/128","10.0.0.1/99"]}]},` +
		`"token":"TTTTTTTTTTTTTTTTTTTTTTTTTT","addresses":["AA=="]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		v := &visit{Name: "a", out: make(chan []byte, 1)}
		v.out <- line
		if v.hear(&v.greeting) != nil || v.greeting.check() != nil {
			return
		}
		v.Facts = &v.greeting.Facts
		e := exam{local: healthy("localhost"), visits: []*visit{v, healthy("b")}}
		r := report{Hosts: e.visits, Findings: e.diagnose()}
		r.print(&strings.Builder{})
	})
}

// Hosts behind a remote shell, which is a script here: good ones, and each way in which one can fail.
func TestDoctor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shell := filepath.Join(dir, "shell")
	// The host "other" has another program where gorun should be, "foreign" is of another architecture as well.
	script := `#!/bin/sh
host=$1; shift
change() { sed -u "s|^run '.*|run ` + dir + `/other|; /^}\$/q"; } # of the script; byte by byte, so not of what follows it
export XDG_CACHE_HOME=` + dir + `/cache-$host
case $host in
refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255 ;;
chatty) echo "Welcome to chatty"; exec "$@" ;;
localhost) echo "a shell for this host" >&2; exit 1 ;;
other) { change; cat; } | "$@" ;;
foreign) { echo 'uname() { echo Linux riscv65; }'; change; cat; } | "$@" ;;
*) exec "$@" ;;
esac
`
	for name, text := range map[string]string{"shell": script, "other": "#!/bin/sh\nexit 93\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	doctor := func(code int, args ...string) string {
		t.Helper()
		j := prepare(t)
		j.cmd.Args = append([]string{j.cmd.Args[0], "doctor", "--launch-agent", shell, "--launcher", "exec"}, args...)
		j.cmd.Env = append(j.cmd.Env, "GORUN_TCP_PORTS=40000-40999")
		j.start().wait(code)
		proc.Eventually(t, "the end of all", func() bool { return len(j.processes()) == 0 })
		return j.out.String()
	}
	out := doctor(1, "-H", "refused,chatty,a,b,foreign")
	for _, want := range []string{"wrong on refused: nothing listens there", "systemctl start ssh"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	me, err := reach.Me()
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal([]byte(doctor(1, "-H", "refused,localhost,other,foreign,a", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.OK || r.Build != me.Build || len(r.Hosts) != 5 || (r.NotCopied == "") != (me.Copied() == nil) {
		t.Errorf("%+v", r)
	}
	for i, want := range []string{"", "here", "copied", "", "installed"} {
		if me.Copied() != nil && want == "copied" {
			want = ""
		}
		if h := r.Hosts[i]; h.Gorun != want || (h.Gorun == "") == (h.Error == "") {
			t.Errorf("%s: gorun is %q there, want %q (%s)", h.Name, h.Gorun, want, h.Error)
		}
	}
	for _, f := range r.Findings {
		switch {
		case f.Kind == "reach" && slices.Contains(f.Hosts, "foreign"):
			if me.Copied() == nil && !strings.Contains(f.Wrong, "architecture") {
				t.Errorf("%+v", f)
			}
		case f.Kind == "ports" || f.Kind == "path" || f.Kind == "clock":
			t.Errorf("%+v between what is one host", f)
		}
	}
	j := prepare(t)
	j.cmd.Args = []string{j.cmd.Args[0], "doctor", "-H", "n[1-"}
	j.start().wait(2).says("-H, column")
}

// The settings that Init refuses are refused by info, by doctor, and before a job is started.
func TestSettingsThatInitRefuses(t *testing.T) {
	t.Parallel()
	for _, kv := range []string{"GORUN_COLL=allreduce:rang", "GORUN_TRANSPORTS=shn", "GORUN_TCP_PORTS=99999-1",
		"GORUN_TCP_IF=eth*0"} {
		_, _, want := join.Settings([]string{kv})
		if want == nil {
			t.Fatalf("%s is accepted", kv)
		}
		for _, args := range [][]string{{"info"}, {"info", "--json"}, {"doctor"}, {"-n", "1", "true"}} {
			j := prepare(t)
			j.cmd.Args = append([]string{j.cmd.Args[0]}, args...)
			j.cmd.Env = append(j.cmd.Env, kv)
			j.start().wait(2).says(want.Error())
		}
	}
}

// A remote shell that leaves processes behind holds up no visit, and one that floods takes no memory.
func TestVisitOfBadShell(t *testing.T) {
	me, err := reach.Me()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"leaves": "sleep 20 & wait",
		"floods": "exec yes >&2",
		"silent": "exec cat >/dev/null",
	} {
		shell := filepath.Join(dir, name)
		if err := os.WriteFile(shell, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		v := visitHost(ctx, reach.Shell{Words: []string{shell}, Self: me.For(reach.Examine)}, place.Host{Name: "a"}, nil)
		cancel()
		if v.err == nil || len(v.Error) > 1000 {
			t.Errorf("%s: %v, and %d bytes", name, v.err, len(v.Error))
		}
		v.close()
	}
}

// What gorun runs of itself is not the whole suite where it is a test.
func TestProbeInTest(t *testing.T) {
	if answer := probeReadv(); !strings.HasPrefix(answer, "yes") && !strings.HasPrefix(answer, "no: ") {
		t.Errorf("%.200q", answer)
	}
}

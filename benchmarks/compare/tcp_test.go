package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func TestMain(m *testing.M) { os.Exit(proc.Main(m)) }

// withTheSocket is two rounds of three sizes; the socket is better than every peer, and does not count as one.
func withTheSocket() (*result, measurement) {
	m, _ := find(plan(false, 0), "tcp-latency")
	r := &result{Name: m.name, Rounds: 2, Library: m.libraries}
	s := samples{Ranks: 2, Commands: []string{"a", "b", "c", "d"}, Failed: make([]string, 4),
		Rounds: make([][][]line, 4)}
	for i, values := range [][]float64{{9, 11}, {12, 12}, {20, 40}, {7, 9}} {
		for _, v := range values {
			lines := []line{{1, []float64{v}}, {65536, []float64{2 * v}}, {131072, []float64{v}}}
			s.Rounds[i] = append(s.Rounds[i], lines)
		}
	}
	for i := range s.Rounds[0] {
		s.Rounds[0][i][1].Values[0] *= 1.1
	}
	r.Runs = []samples{s}
	return r, m
}

func TestTableWithTheSocket(t *testing.T) {
	r, m := withTheSocket()
	want := `## one way (µs), lower is better

| bytes | gorun | Open MPI | MPICH | bare socket | ratio | to the socket |
|-:|-:|-:|-:|-:|-:|-:|
| 1 | 10.00 · 20% | 12.00 · 0% | 30.00 · 67% | 8.00 · 25% | 0.83 | 1.25 |
| 65536 | 22.00 · 20% | 24.00 · 0% | 60.00 · 67% | 16.00 · 25% | 0.92 | 1.38 |
| 131072 | 10.00 · 20% | 12.00 · 0% | 30.00 · 67% | 8.00 · 25% | 0.83 | 1.25 |

`
	if got := r.table(m, m.columns[0]); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if page := r.page(m); !strings.Contains(page, "Ratios are ours / the best peer,") ||
		!strings.Contains(page, "the same to the bare socket, which is no peer but the limit.") {
		t.Errorf("the page does not say what the ratios are:\n%s", page)
	}
	text := index([]*result{r}, "")
	for _, want := range []string{
		"| one way, lower is better | 0.83 at 1 to 0.92 at 65536 bytes | 1.25 at 1 to 1.38 at 65536 bytes | " +
			"0 of 3, 0 % | 3 of 3, 100 % |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the index has no %q:\n%s", want, text)
		}
	}
}

// A socket that could not be measured is nothing to compare with, and ours that could not has no ratios.
func TestTableWithoutTheSocket(t *testing.T) {
	r, m := withTheSocket()
	r.Runs[0].Rounds[3], r.Runs[0].Failed[3] = nil, "did not end within 20s"
	if got, want := r.table(m, m.columns[0]), "| failed | 0.83 | – |\n"; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant a line that ends in\n%s", got, want)
	}
	r, m = withTheSocket()
	r.Runs[0].Rounds[0], r.Runs[0].Failed[0] = nil, "did not end within 20s"
	got := r.table(m, m.columns[0])
	if strings.Count(got, " | failed | ") != 3 || strings.Count(got, " | – | – |\n") != 3 {
		t.Errorf("ours has no number at three sizes:\n%s", got)
	}
}

func TestTLSIsComparedWithPlain(t *testing.T) {
	m, _ := find(plan(false, 0), "tcp-tls-bw")
	page := invented(m).page(m)
	for _, want := range []string{"| gorun, TLS | gorun, plain | ratio | near | gauge (ns) |\n",
		"Ratios are ours / plain,",
		"| 2.00 | 2.00 | 40–210 |\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
}

// What is not worth its time in the quick set is left out of it.
func TestQuickBetweenHosts(t *testing.T) {
	var hosts []string
	for _, m := range plan(true, 0) {
		if m.hosts {
			hosts = append(hosts, m.name)
		}
	}
	if !reflect.DeepEqual(hosts, []string{"tcp-latency"}) {
		t.Errorf("between hosts, quick: %v", hosts)
	}
}

func TestFiveRoundsBetweenHostsTakeSevenMinutes(t *testing.T) {
	sum := 0.0
	for _, m := range tcpPlan() {
		sum += 5 * m.seconds
	}
	if sum > 7*60 {
		t.Errorf("planned for %v s", sum)
	}
}

func TestCommandsBetweenHosts(t *testing.T) {
	local := []library{{name: gorun, dir: "/d/gorun"}, {name: openMPI, dir: "/d/o"}, {name: mpich, dir: "/d/m"}}
	pair := librariesOnHosts(local, library{name: bareSocket, dir: "/d/s"}, "/d/hosts")
	m, a := measurement{program: "bw"}, arguments{args: "-m 8:8", peerArgs: "-i 5"}
	var shown, run []string
	for _, l := range pair {
		shown = append(shown, l.name+": "+l.shown(m, a, false))
		run = append(run, strings.Join(l.launch(2, filepath.Join(l.dir, m.program)), " "))
	}
	if want := []string{
		"gorun: hostrun -hosts 2 -pin -- bw -m 8:8 -i 5",
		"Open MPI: hostrun -hosts 2 -mpi openmpi -- bw -m 8:8 -i 5",
		"MPICH: hostrun -hosts 2 -mpi mpich -- bw -m 8:8 -i 5",
		"bare socket: hostrun -hosts 2 -pin -- socket bw 10.77.0.1:7071 -m 8:8 -i 5",
		"gorun, plain: hostrun -hosts 2 -pin -- bw -m 8:8 -i 5",
		"gorun, TLS: hostrun -hosts 2 -pin -x GORUN_TCP_TLS=1 -- bw -m 8:8 -i 5",
	}; !reflect.DeepEqual(shown, want) {
		t.Errorf("shown:\n%s", strings.Join(shown, "\n"))
	}
	for i, want := range []string{
		"/d/gorun/hostrun -base /d/hosts -pin -- /d/gorun/bw",
		"/d/gorun/hostrun -base /d/hosts -mpi openmpi -- /d/o/bw",
		"/d/gorun/hostrun -base /d/hosts -mpi mpich -- /d/m/bw",
		"/d/gorun/hostrun -base /d/hosts -pin -- /d/s/socket bw 10.77.0.1:7071",
	} {
		if run[i] != want {
			t.Errorf("%s, want %s", run[i], want)
		}
	}
	ranks := 4 * runtime.NumCPU() // more than cores: several on each host
	for i, want := range []string{"-pin ", "-mpi openmpi ", "-mpi mpich "} {
		want = fmt.Sprintf("/d/hosts %s-ppn %d -- ", want, ranks/2)
		if got := strings.Join(pair[i].launch(ranks, "p"), " "); !strings.Contains(got, want) {
			t.Errorf("%d ranks: %s, want %s", ranks, got, want)
		}
	}
}

// TestNoHosts checks that where there can be none, the measurements are left out with the reason, and they are tried
// once. Where they fail, that is an error.
func TestNoHosts(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	m, _ := find(plan(false, 0), "tcp-idle")
	for code, unavailable := range map[int]bool{77: true, 1: false} {
		writeScript(t, hostsScript,
			fmt.Sprintf("echo asked >>asked\necho 'hosts: only root can make hosts' >&2\nexit %d\n", code))
		os.Remove("asked")
		bed := newTestbed(context.Background(), dir, make([]library, 3))
		for range 2 {
			_, err := bed.libraries(m)
			if errors.Is(err, errUnavailable) != unavailable || err == nil ||
				!strings.HasSuffix(err.Error(), ": only root can make hosts") {
				t.Errorf("exit code %d: %v", code, err)
			}
		}
		bed.close()
		if asked, _ := os.ReadFile("asked"); string(asked) != "asked\n" {
			t.Errorf("exit code %d: asked %q", code, asked)
		}
	}
	here, _ := find(plan(false, 0), "idle")
	bed := testbed{local: []library{{name: mpich}, {name: gorun}, {name: openMPI}}}
	if got, err := bed.libraries(here); err != nil || len(got) != 3 || got[0].name != gorun || got[2].name != mpich {
		t.Errorf("what needs no hosts: %v, %v", got, err)
	}
}

// TestRunsOnHosts has a rank on each host; what a run leaves behind there is ended, the hosts stay for the next
// one and are gone at the end.
func TestRunsOnHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: making hosts and ending what runs on them takes seconds")
	}
	proc.RequireProgram(t, "taskset", "util-linux")
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	text := "#!/bin/sh\nsetsid sleep 1000 >/dev/null 2>&1 & \necho $! $PMI_ID $(hostname) $GORUN_TCP_TLS >>" + ran +
		"\n[ $PMI_ID = 1 ] || echo 2 0.5 7\n"
	if err := errors.Join(os.Symlink(proc.Build(t, "internal/testkit/netns/hostrun"), filepath.Join(dir, "hostrun")),
		os.WriteFile(filepath.Join(dir, "bw"), []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	becomeSubreaper()
	bed := newTestbed(context.Background(), dir,
		[]library{{name: gorun, dir: dir}, {name: openMPI, dir: dir}, {name: mpich, dir: dir}})
	t.Cleanup(bed.close)
	m := measurement{name: "tcp-tls-bw", program: "bw", hosts: true, libraries: []string{gorunTLS, gorunPlain},
		limit: time.Minute, runs: []arguments{{ranks: 2}}}
	libraries, err := bed.libraries(m)
	if errors.Is(err, errUnavailable) && (os.Getuid() != 0 || !proc.Installed("iproute2")) { // as hosts.Up
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := descendants()
	r := newResult(&m, libraries, machine{}, settings{rounds: 2})
	r.Rounds = 2
	r.measure(context.Background(), &m, libraries, &session{estimate: newEstimate(nil, 2)})
	for i := range libraries {
		if len(r.Runs[0].Rounds[i]) != 2 || r.Runs[0].Failed[i] != "" {
			t.Errorf("%s: %d rounds, %s", libraries[i].name, len(r.Runs[0].Rounds[i]), r.Runs[0].Failed[i])
		}
	}
	said, _ := os.ReadFile(ran)
	for _, want := range []string{" 0 h1 1\n", " 1 h2 1\n", " 0 h1\n", " 1 h2\n"} {
		if strings.Count(string(said), want) != 2 {
			t.Errorf("ranks: %q has not twice %q", said, want)
		}
	}
	if after := descendants(); !reflect.DeepEqual(after, before) {
		t.Errorf("processes before %v, after %v", before, after)
	}
	bed.close()
	for until := time.Now().Add(time.Minute); len(descendants()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the hosts are not gone: %v", descendants())
		}
	}
}

// bare builds the bare socket.
func bare(t *testing.T) (program string) {
	proc.RequireProgram(t, "cc", "gcc")
	t.Chdir("../..")
	l := library{dir: t.TempDir()}
	if why := l.compileOne(context.Background(), "cc", "socket"); why != "" {
		t.Fatal(why)
	}
	return filepath.Join(l.dir, "socket")
}

func freeAddress(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// side is one rank of the bare socket.
func side(t *testing.T, program, rank string, args ...string) (*exec.Cmd, *strings.Builder) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd, out := exec.CommandContext(ctx, program, args...), new(strings.Builder)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "PMI_ID="+rank), out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// TestBareSocket checks that what the program prints is a benchmark's, on the first rank only, for every size.
func TestBareSocket(t *testing.T) {
	program := bare(t)
	all := map[string]int{"latency": 1, "bw": 1, "mbw_mr": 2}
	if testing.Short() { // two ranks that spin on a busy machine take seconds
		all = map[string]int{"latency": 1}
	}
	for what, values := range all {
		args := []string{what, freeAddress(t), "-m", "1:262144", "-i", "3", "-x", "1", "-W", "5"}
		zero, said := side(t, program, "0", args...)
		one, nothing := side(t, program, "1", args...)
		if err := errors.Join(zero.Wait(), one.Wait()); err != nil || nothing.Len() > 0 {
			t.Fatalf("%s: %v: %s%s", what, err, said, nothing)
		}
		lines, err := parse(said.String())
		if err != nil || len(lines) != 19 {
			t.Fatalf("%s: %d lines, %v:\n%s", what, len(lines), err, said)
		}
		for i, l := range lines {
			if l.Key != 1<<i || len(l.Values) != values || l.Values[0] < 0 {
				t.Errorf("%s: line %d is %v", what, i, l)
			}
		}
	}
}

// TestBareSocketComplains checks that the program does not spin for ever on a rank that has gone, and says what is
// wrong with arguments.
func TestBareSocketComplains(t *testing.T) {
	program, address := bare(t), freeAddress(t)
	zero, said := side(t, program, "0", "latency", address)
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			defer c.Close()
			c.(*net.TCPConn).CloseWrite() // an end, not a reset
			break
		}
		if time.Now().After(until) {
			t.Fatal("it does not listen")
		}
	}
	err := zero.Wait()
	if zero.ProcessState.ExitCode() != 2 || !strings.Contains(said.String(), "the other rank has gone") {
		t.Errorf("the other one has gone: %v: %s", err, said)
	}
	for want, args := range map[string][]string{
		"wanted ADDRESS:PORT":        {"latency", "h1"},
		"wanted latency, bw or":      {"ring", address},
		"an empty message":           {"bw", address, "-m", "0:8"},
		"not a number in range: x":   {"bw", address, "-i", "x"},
		"wanted latency|bw|mbw_mr A": {"bw"},
	} {
		cmd, said := side(t, program, "0", args...)
		if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), want) {
			t.Errorf("%q: %v, %s; want %q", args, err, said, want)
		}
	}
	cmd, said := side(t, program, "2", "bw", address)
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "PMI_ID must be 0 or 1, and is: 2") {
		t.Errorf("rank 2: %v, %s", err, said)
	}
}

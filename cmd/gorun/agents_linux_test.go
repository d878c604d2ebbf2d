package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/launcher"
)

// way is one way to agents, under which all promises of a job on several hosts are tested.
type way struct {
	flags []string     // of gorun
	a, b  string       // two hosts
	on    func(j *job) // changes how gorun is started
	// oneHost: the hosts are one, and see each other's processes.
	oneHost bool
}

// ways are those of this machine. The remote shell is one that stays here.
func ways(t *testing.T) map[string]*way {
	shell := filepath.Join(t.TempDir(), "shell")
	script := "#!/bin/sh\nshift\necho a word of the login shell\nexec \"$@\"\n"
	if err := os.WriteFile(shell, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return map[string]*way{
		"exec":  {flags: []string{"--launcher", "exec"}, a: "a", b: "b", oneHost: true},
		"chain": {flags: []string{"--launcher", "exec", "--tree-width", "1"}, a: "a", b: "b", oneHost: true},
		"shell": {flags: []string{"--launcher", "exec", "--launch-agent", shell}, a: "a", b: "b", oneHost: true},
		"srun":  {on: inAllocation(t), a: "a", b: "b", oneHost: true},
	}
}

// inAllocation has gorun run in a Slurm allocation whose srun is this program.
func inAllocation(t *testing.T) func(j *job) {
	bin := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, bin+"/srun")
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(j *job) {
		j.cmd.Env = append(j.cmd.Env, "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=a,b", "PATH="+bin+":"+os.Getenv("PATH"))
	}
}

// prepare makes a job of n ranks on each of the two hosts.
func (w *way) prepare(t *testing.T, n int, args ...string) *job {
	t.Helper()
	hosts := fmt.Sprintf("%s:%d,%s:%d", w.a, n, w.b, n)
	j := prepare(t, append(append([]string{"-H", hosts, "--bind-to", "none"}, w.flags...), args...)...)
	if w.on != nil {
		w.on(j)
	}
	return j
}

func (w *way) start(t *testing.T, n int, args ...string) *job {
	t.Helper()
	return w.prepare(t, n, args...).start()
}

// gone waits for what may end a moment after gorun.
func (j *job) gone() {
	j.t.Helper()
	proc.Eventually(j.t, "all processes to be gone", func() bool {
		return len(j.processes()) == 0 && len(j.cleaners()) == 0 && len(j.agents()) == 0
	})
}

// tell sends a signal to gorun, which may have been started by another program.
func (j *job) tell(s syscall.Signal) {
	j.t.Helper()
	var found []proc.Info
	proc.Eventually(j.t, "gorun alone", func() bool { // a child of it looks the same before its exec
		found = proc.List(func(p proc.Info) bool {
			args := p.Args()
			return len(args) > 3 && args[0] == j.gorun && slices.Contains(p.Env(), markVar+"="+j.mark)
		})
		return len(found) == 1
	})
	syscall.Kill(found[0].PID, s)
}

// agents finds the job's agents by their path, and the shells that wait for them.
func (j *job) agents() []proc.Info {
	return proc.List(func(p proc.Info) bool {
		args := p.Args() // once: there are none after its end
		return len(args) > 2 && args[0] == j.gorun && args[1] == reach.Word
	})
}

// Jobs on several hosts keep what those of one host promise, whatever way the agents come.
func TestAgents(t *testing.T) {
	t.Parallel()
	for name, w := range ways(t) {
		if testing.Short() && name != "chain" {
			// That has gorun reach a host, and an agent another. TestHostsThatDoNotAnswer has a shell, and TestSlurm of
			// internal/e2e has srun.
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, w)
		})
	}
}

// conform is the suite. Each part is one promise.
func conform(t *testing.T, w *way) {
	for name, part := range map[string]func(*testing.T, *way){
		"ranks": testRanksOnHosts, "wire-up": testWireUp, "failures": testFailuresOnHosts,
		"signals": testSignalsOnHosts, "input": testInputOnHosts, "output": testOutputOnHosts,
		"killed": testKilledOnHosts, "build": testBuildOnHosts, "options": testOptionsOnHosts,
		"recovery": testRecovery, "report": testReportOnHosts,
	} {
		t.Run(name, func(t *testing.T) {
			if w.oneHost { // an ssh takes a processor
				t.Parallel()
			}
			part(t, w)
		})
	}
}

func testRanksOnHosts(t *testing.T, w *way) {
	w.start(t, 2, "RANK", "env=PMI_RANK").wait(0).printsLines("PMI_RANK=0", "PMI_RANK=1", "PMI_RANK=2", "PMI_RANK=3")
	w.start(t, 2, "-l", "RANK", "env=GORUN_LOCAL_RANK").wait(0).printsLines("[0] GORUN_LOCAL_RANK=0",
		"[1] GORUN_LOCAL_RANK=1", "[2] GORUN_LOCAL_RANK=0", "[3] GORUN_LOCAL_RANK=1")
	w.start(t, 2, "-l", "--map-by", "node", "RANK", "env=GORUN_LOCAL_RANK").wait(0).printsLines(
		"[0] GORUN_LOCAL_RANK=0", "[1] GORUN_LOCAL_RANK=0", "[2] GORUN_LOCAL_RANK=1", "[3] GORUN_LOCAL_RANK=1")
	w.start(t, 1, "-n", "1", "RANK", "print=x", ":", "-n", "1", "RANK", "env=GORUN_LOCAL_SIZE").wait(0).
		printsLines("x", "GORUN_LOCAL_SIZE=1")
	j := w.prepare(t, 1, "-x", "MINE=1", "RANK", "env=MINE", "env=SSH_CONNECTION", "env=HOME")
	j.cmd.Env = append(j.cmd.Env, "SSH_CONNECTION=of gorun", "HOME=/mine")
	j.start().wait(0)
	out := j.out.String()
	if strings.Count(out, "MINE=1\n") != 2 || strings.Count(out, "HOME=/mine\n") != 2 {
		t.Errorf("the environment is\n%s", out)
	}
	j = w.prepare(t, 1, "-x", "MINE=\xfe", "RANK", "print=\xff\xe9 '\"<", "env=MINE", "env=THEIRS") // no UTF-8
	j.cmd.Env = append(j.cmd.Env, "THEIRS=\xfd")
	j.start().wait(0)
	for _, want := range []string{"\xff\xe9 '\"<\n", "MINE=\xfe\n", "THEIRS=\xfd\n"} {
		if strings.Count(j.out.String(), want) != 2 {
			t.Errorf("no %q twice in %q", want, j.out.String())
		}
	}
	dir := t.TempDir()
	w.start(t, 1, "--wdir", dir, "RANK", "pwd").wait(0).prints(dir + "\n" + dir + "\n")
	w.start(t, 1, "--output-dir", dir, "RANK", "print=x").wait(0).prints("")
	for rank := range 2 {
		if text, err := os.ReadFile(fmt.Sprintf("%s/rank.%d.out", dir, rank)); err != nil || string(text) != "x\n" {
			t.Errorf("rank %d wrote %q (%v)", rank, text, err)
		}
	}
}

// What a rank has put is known on all hosts after the fence, several times.
func testWireUp(t *testing.T, w *way) {
	w.start(t, 3, "RANK", "join", "exchange=100", "finalize").wait(0).prints(strings.Repeat("600\n", 6))
	w.start(t, 3, "--map-by", "node", "RANK", "join", "fence", "exchange=7", "fence", "finalize").wait(0).
		prints(strings.Repeat("42\n", 6))
}

// Options that say something of ranks say it of those of all hosts.
func testOptionsOnHosts(t *testing.T, w *way) {
	stamp := `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d) `
	j := w.start(t, 1, "--timestamp", "-l", "RANK", "print=one", "prompt=two").wait(0)
	for rank := range 2 {
		want := fmt.Sprintf(`(?m)^%[1]s\[%[2]d\] one\n(.*\n)*?%[1]s\[%[2]d\] two$`, stamp, rank)
		if !regexp.MustCompile(want).MatchString(j.out.String()) {
			t.Errorf("no %s in\n%s", want, j.out.String())
		}
	}
	w.start(t, 2, "--print-all-exitcodes", "RANK", "2:exit=0", "join", "finalize").wait(0).
		says("rank 0 (pid ", "rank 1 (pid ", "rank 2 (pid ", "rank 3 (pid ", "on host "+w.b+") exited with code 0")
	w.start(t, 1, "--print-all-exitcodes", "RANK", "deaf", "join", "fence", "1:kill=9", "sleep").wait(137).
		says("on host "+w.a+") was killed by signal 9 (killed)\n",
			"on host "+w.b+") was killed by signal 9 (killed); the job is stopped\n")
	w.start(t, 1, "--display-map", "--report-bindings", "RANK", "exit=0").wait(0).
		says("host "+w.a+" has rank 0", "host "+w.b+" has rank 1", "rank 0 on host "+w.a, "rank 1 on host "+w.b)
	j = w.start(t, 1, "--preload", "-x", "HOSTNAME=mine", "-x", "TMPDIR=/mine", "RANK", "exe", "env=HOSTNAME",
		"env=TMPDIR").wait(0)
	for _, want := range []string{"/memfd:program (deleted)\n", "HOSTNAME=mine\n", "TMPDIR=/mine\n"} {
		if n := strings.Count(j.out.String(), want); n != 2 {
			t.Errorf("%d times %q in\n%s", n, want, j.out.String())
		}
	}
}

// With --enable-recovery a rank that fails, before the wire-up, in it or after it, does not end the job. The others are
// not kept waiting for it.
func testRecovery(t *testing.T, w *way) {
	const on = " the job goes on without it"
	for _, c := range []struct {
		words string
		code  int
		n     int // how many ranks come to their end
		says  string
	}{
		{"3:kill=9 join fence fence finalize print=on", 137, 3, "was killed by signal 9 (killed);" + on},
		{"join 0:exit=4 fence fence finalize print=on", 4, 3, "exited with code 4;" + on},
		{"join fence 1:exit=0 fence finalize print=on", 1, 3, "exited with code 0 without calling Finalize;" + on},
		{"join fence 2:exit=5 3:exit=5 fence finalize print=on", 5, 2, "exited with code 5;" + on},
		{"2:exit=5 3:exit=5 join fence fence finalize print=on", 5, 2, "exited with code 5;" + on},
		{"join fence 3:orphan 2:sleep fence finalize print=on", 1, 2, ";" + on},
		{"join fence 1:abort=7 fence", 7, 0, ": the test wants it\n"},
		{"exit=3", 3, 0, "exited with code 3;" + on},
	} {
		if strings.Contains(c.words, "orphan") && w.oneHost {
			// The cleaner of the agent that is killed finds the ranks of the other there too. TestAgentsOverSSH has hosts,
			// and TestRecoveryOfTheStart of internal/e2e loses one in the short form.
			continue
		}
		t.Run(c.words, func(t *testing.T) {
			j := w.start(t, 2, append([]string{"--enable-recovery", "RANK"}, strings.Fields(c.words)...)...)
			j.end(c.code)
			j.gone()
			j.says(c.says)
			if n := strings.Count(j.out.String(), "on\n"); n != c.n {
				t.Errorf("%d ranks have come to their end, want %d", n, c.n)
			}
		})
	}
}

func testFailuresOnHosts(t *testing.T, w *way) {
	for _, c := range []struct {
		words string
		code  int
		say   string
	}{
		{"join fence 3:exit=3 sleep", 3, "on host " + w.b + ") exited with code 3; the job is stopped"},
		{"join fence 0:kill=9 sleep", 137, "on host " + w.a + ") was killed by signal 9 (killed); the job is stopped"},
		{"join fence 0:exit=0 sleep", 1, "exited with code 0 without calling Finalize"},
		{"join fence 2:abort=7 sleep", 7, "on " + w.b + ": the test wants it"},
		{"1:exit=5 sleep", 5, "rank 1 "},
		{"join 2:exit=4 fence finalize", 4, "rank 2 "},
		{"join fence deaf child daemon 2:exit=3 sleep", 3, "rank 2 "},
		{"join fence 1:orphan sleep", 1, "host " + w.a + " is lost: its agent is gone: "},
		{"join fence finalize 3:orphan child deaf sleep", 1, "host " + w.b + " is lost: its agent is gone: "},
	} {
		t.Run(c.words, func(t *testing.T) {
			if w.oneHost {
				t.Parallel()
			}
			j := w.start(t, 2, append([]string{"RANK"}, strings.Fields(c.words)...)...)
			if strings.Contains(c.words, "orphan") { // the cleaner of that host ends a moment later
				defer func() { proc.Eventually(t, "the end", func() bool { return len(j.cleaners()) == 0 }) }()
				j.cmd.Wait()
				code := j.cmd.ProcessState.ExitCode()
				j.gone()
				// The cleaner of the agent that is killed finds the ranks of the other there too.
				if code == 137 && w.oneHost {
					return
				}
				if code != c.code {
					t.Errorf("exit code %d", code)
				}
			} else {
				j.wait(c.code).took(j.started)
			}
			j.says(c.say)
			j.oneCause()
		})
	}
	w.start(t, 1, "--wdir", "/no/such", "RANK", "sleep").wait(launcher.CodeUsage).says("--wdir /no/such: no such file")
	w.start(t, 1, "-x", "PATH=/", "sh", "-c", "exit 9").wait(9)
	gone := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(gone, []byte("#!/no/such\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.start(t, 1, "RANK", "sleep", ":", gone).wait(127).says("cannot be started: " + gone)
	limit := map[bool]string{true: "3s", false: "20s"}[w.oneHost]
	j := w.start(t, 1, "--timeout", limit, "RANK", "sleep").wait(124)
	j.says("the job did not end within "+limit, "ranks 0, 1 on 2 hosts: not in the job")
}

func testSignalsOnHosts(t *testing.T, w *way) {
	j := w.start(t, 2, "--kill-delay", "1m", "RANK", "tell", "exit=0").ready(4)
	j.tell(syscall.SIGUSR1)
	j.wait(0)
	if n := strings.Count(j.out.String(), "got user defined signal 1\n"); n != 4 {
		t.Errorf("%d ranks got the signal:\n%s", n, j.out.String())
	}
	j = w.start(t, 2, "--kill-delay", "1m", "RANK", "tell", "exit=0").ready(4)
	j.tell(syscall.SIGINT)
	j.wait(130)
	if n := strings.Count(j.out.String(), "got interrupt\n"); n != 4 {
		t.Errorf("%d ranks got the signal:\n%s", n, j.out.String())
	}
	j = w.start(t, 2, "--kill-delay", "1h", "RANK", "deaf", "sleep").ready(4)
	j.tell(syscall.SIGINT)
	proc.Eventually(t, "the first to be answered", func() bool {
		return strings.Contains(j.err.String(), "another Ctrl-C")
	})
	j.tell(syscall.SIGINT)
	j.wait(130)
	j = w.start(t, 1, "RANK", "sleep").ready(2)
	j.tell(syscall.SIGTSTP)
	stopped := func(yes bool) func() bool {
		return func() bool {
			n := 0
			for _, p := range j.processes() {
				if slices.Contains(p.Args(), "sleep") && (p.State == "T") == yes {
					n++
				}
			}
			return n >= 2
		}
	}
	proc.Eventually(t, "the ranks to stop", stopped(true))
	j.tell(syscall.SIGCONT)
	j.cmd.Process.Signal(syscall.SIGCONT) // nsenter stops with what it has started
	proc.Eventually(t, "the ranks to go on", stopped(false))
	j.tell(syscall.SIGTERM)
	j.wait(143)
}

func testInputOnHosts(t *testing.T, w *way) {
	text := strings.Repeat("a line of the input\n", 100_000)
	for to, copies := range map[string]int{"0": 1, "1": 1, "all": 2, "none": 0} {
		j := w.prepare(t, 1, "--stdin", to, "-l", "RANK", "cat")
		j.cmd.Stdin = strings.NewReader(text)
		j.start().wait(0)
		for rank := range 2 {
			want := 0
			if to == "all" || to == fmt.Sprint(rank) {
				want = 100_000
			}
			if n := strings.Count(j.out.String(), fmt.Sprintf("[%d] a line of the input\n", rank)); n != want {
				t.Errorf("--stdin %s: rank %d has %d lines, want %d", to, rank, n, want)
			}
		}
		if n := strings.Count(j.out.String(), "\n"); n != copies*100_000 {
			t.Errorf("--stdin %s: %d lines", to, n)
		}
	}
	// A rank that does not read keeps no other from its input, and not the job from its end.
	j := w.prepare(t, 1, "--stdin", "all", "RANK", "1:exit=0", "cat")
	j.cmd.Stdin = strings.NewReader(text)
	j.start().wait(0).prints(text)
}

func testOutputOnHosts(t *testing.T, w *way) {
	lines := 2000
	if testing.Short() {
		lines = 200
	}
	j := w.start(t, 4, "-l", "RANK", fmt.Sprintf("flood=%d", 2*lines)).wait(0)
	for _, text := range []string{j.out.String(), j.err.String()} {
		n := 0
		for l := range strings.Lines(text) {
			if strings.HasPrefix(l, "gorun: ") {
				continue
			}
			n++
			if !strings.HasSuffix(l, " end\n") || strings.Count(l, " ") != 4 {
				t.Fatalf("a torn line: %q", l)
			}
		}
		if n != 8*lines {
			t.Errorf("%d lines, want %d", n, 8*lines)
		}
	}
	j = w.start(t, 1, "RANK", "prompt=name?", "sleep") // a line without end is seen
	proc.Eventually(t, "the prompt", func() bool { return strings.Count(j.out.String(), "name?") == 2 })
	j.tell(syscall.SIGTERM)
	j.wait(143)
	// Exits, signals and pings do not wait behind output that the reader does not take.
	j = w.prepare(t, 2, "RANK", "3:tell", "pour")
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j.cmd.Stdout = out
	j.start()
	out.Close()
	for rank := range 4 {
		proc.Eventually(t, "the ranks", func() bool { return len(proc.List(j.isRank(fmt.Sprint(rank)))) > 0 })
	}
	time.Sleep(300 * time.Millisecond) // all is full
	j.tell(syscall.SIGTERM)
	j.wait(143)
}

// After kill -9 of gorun nothing is left, whatever the ranks do about signals.
func testKilledOnHosts(t *testing.T, w *way) {
	j := w.start(t, 2, "RANK", "deaf", "child", "daemon", "sleep").ready(4)
	proc.Eventually(t, "the ranks' children", func() bool { return len(j.processes()) >= 4+8 })
	at := time.Now()
	j.tell(syscall.SIGKILL)
	j.cmd.Wait()
	j.gone()
	j.took(at)
}

func testBuildOnHosts(t *testing.T, w *way) {
	j := w.prepare(t, 2, module(t, hello), "-n", "7")
	j.cmd.Env = append(j.cmd.Env, "GOFLAGS=")
	j.start().wait(0).prints(strings.Repeat("built [-n 7]\n", 4))
}

// The report of ranks on two hosts has the calls of all ranks, and each message ends after it has begun, by the clock
// of rank 0.
func testReportOnHosts(t *testing.T, w *way) {
	dir := filepath.Join(t.TempDir(), "report")
	w.start(t, 2, "--report", dir, proc.Build(t, "examples/ring")).wait(0).
		prints("the token went round 4 ranks and is now 6\n")
	read := func(name string, v any) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = json.Unmarshal(text, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var r struct {
		Ranks []struct {
			Host  string
			Calls int
		}
		Matrix     []struct{ From, To, Messages, Bytes int }
		Transports []struct{ Pairs, Messages, Bytes int }
		Timeline   struct{ Arrows, Strange, Unkept int }
	}
	read("report.json", &r)
	if len(r.Ranks) != 4 || len(r.Matrix) != 4 || r.Timeline.Arrows != 4 || r.Timeline.Strange != 0 {
		t.Fatalf("the report has %+v", r)
	}
	pairs, messages, bytes := 0, 0, 0
	for _, row := range r.Transports {
		pairs, messages, bytes = pairs+row.Pairs, messages+row.Messages, bytes+row.Bytes
	}
	if pairs != 4 || messages != 4 || bytes != 4*8 {
		t.Errorf("by transport there are %+v", r.Transports)
	}
	for rank, row := range r.Ranks {
		if m := r.Matrix[rank]; row.Calls != 3 || m.From != rank || m.To != (rank+1)%4 || m.Messages != 1 || m.Bytes != 8 {
			t.Errorf("rank %d has %d calls and sends %+v", rank, row.Calls, m)
		}
		if !w.oneHost && row.Host != []string{w.a, w.b}[rank/2] {
			t.Errorf("rank %d was on %s", rank, row.Host)
		}
	}
	var trace struct {
		TraceEvents []struct {
			Ph string
			ID int
			Ts float64
		}
	}
	read("trace.json", &trace)
	began, ended := map[int]float64{}, 0
	for _, e := range trace.TraceEvents {
		switch e.Ph {
		case "s":
			began[e.ID] = e.Ts
		case "f":
			if ended++; e.Ts < began[e.ID] {
				t.Errorf("message %d goes back from %v to %v", e.ID, began[e.ID], e.Ts)
			}
		}
	}
	if len(began) != 4 || ended != 4 {
		t.Errorf("%d messages begin and %d end in the trace", len(began), ended)
	}
	if page, err := os.Stat(filepath.Join(dir, "report.html")); err != nil || page.Size() == 0 {
		t.Errorf("there is no page: %v", err)
	}
}

// The debugger of a rank on another host is found there, and opens the program that has been sent there.
func TestDebugOnHosts(t *testing.T) {
	t.Parallel()
	dir, w := falseDebugger(t), ways(t)["exec"]
	j := w.prepare(t, 1, "--debug", "1", module(t, hello), "a")
	j.cmd.Env = append(j.cmd.Env, "GOFLAGS=", "PATH="+dir+":"+os.Getenv("PATH"))
	j.start().wait(0).printsLines("built [a]", "dlv exec --headless --listen=127.0.0.1:0 -- with 24h", "built [a]")
	j = w.prepare(t, 1, "--debug", "1", "/bin/true")
	j.cmd.Env = append(j.cmd.Env, "PATH=/nowhere", "HOME=/nowhere", "GOPATH=", "GOBIN=")
	j.start().wait(127).says("host b: --debug 1: dlv is not in PATH")
}

// A host that is not to be had ends the job, with a word of what is wrong.
func TestHostsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shell := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	late, once := filepath.Join(dir, "has-come"), filepath.Join(dir, "once")
	for _, c := range []struct {
		name, script string
		code         int
		says         string
	}{
		{"refused", "echo b: refused >&2; exit 255", 126, "host b cannot be used: "},
		{"denied", "echo Permission denied >&2; exit 255", 126, "Permission denied"},
		{"unknown", "echo ssh: b: Name or service not known >&2; exit 255", 126,
			"b: Name or service not known; if its name is still to come, say with --host-timeout how long to wait\n"},
		{"no shell there", "exit 127", 126, "exit status 127"},
		{"no account", "echo This account is currently not available.; exit 1", 126,
			"host b cannot be used: " + dir + "/no-account: This account is currently not available.; exit status 1\n"},
		{"silent", "exec sleep 1000", 126, "it did not answer in time"},
		{"cut off", "test -e " + once + " && exec sleep 1000; : >" + once + "; echo No route to host >&2; exit 255", 126,
			"host b cannot be used: " + dir + "/cut-off: No route to host; "},
		{"noise", "exec yes", 126, "it prints more than"},
		{"another protocol", "echo gorun-agent 2; exec sleep 1000", 126, "no agent of this build"},
		{"not frames", "echo gorun-agent 1; exec yes", 1, "host b is lost: a frame"},
		{"leaves early", "echo gorun-agent 1; " + say(frames.Finished, "") + "; exec sleep 1000", 1,
			"host b is lost: its agent has left before the job has ended"},
		{"falls silent", "echo gorun-agent 1; exec sleep 1000", 1, "host b is lost: it has not been heard for 1s"},
		{"starts nothing", "echo gorun-agent 1; " + say(frames.AllStarted, "") + "; sleep 0.2", 126,
			"its agent has not started rank 1"},
		{"late", "test -e " + late + ` || { : >` + late + `; exit 255; }; shift; exec "$@"`, 0,
			"host b does not answer yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			words := shell(strings.ReplaceAll(c.name, " ", "-"),
				"if [ $1 = a ]; then shift; exec \"$@\"; fi\n"+c.script)
			orders := []string{"RANK", "sleep"}
			if c.code == 0 {
				orders = []string{"RANK", "exit=0"}
			}
			flags := []string{"-n", "2", "-H", "a,b", "--launcher", "exec", "--launch-agent", words}
			if c.name != "denied" && c.name != "unknown" && c.name != "no account" {
				flags = append(flags, "--host-timeout", map[bool]string{true: "1m", false: "1s"}[c.code == 0])
			}
			if c.name == "falls silent" {
				flags = append(flags, "-x", "GORUN_PEER_TIMEOUT=1s")
			}
			j := start(t, append(flags, orders...)...).wait(c.code)
			j.says(c.says)
			j.gone()
		})
	}
	start(t, "-n", "2", "-H", "a,b", "--launch-agent", "/no/such", "RANK", "sleep").wait(126).says("/no/such")
	start(t, "--launcher", "rsh", "RANK").wait(2).says("--launcher rsh: use ssh")
	start(t, "--launch-agent", " ", "RANK").wait(2).says("no command is named")
}

// Two names that lead to one host end the job, at whichever level of the tree the agents are: the ranks would be bound
// to the same CPUs.
func TestTwoNamesOfOneHost(t *testing.T) {
	t.Parallel()
	shell := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(shell, []byte("#!/bin/sh\nshift\nexec \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for width, hosts := range []string{"a,b", "a,b", "h[1-7]"} {
		j := start(t, "-H", hosts, "--launch-agent", shell, "--tree-width", fmt.Sprint(max(width, 1)), "RANK", "exit=0")
		j.wait(126).says(" of the list are one host, which calls itself ", "name it once, with all its slots")
		j.gone()
	}
}

// The same over ssh, where one of the names is an address.
func TestTwoNamesOverSSH(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: two hosts with sshd; TestTwoNamesOfOneHost has a shell that stays here")
	}
	h := upSSH(t, 2)
	for hosts, says := range map[string]string{
		"h2,10.77.0.2": "h2 and 10.77.0.2 of the list are one host, which calls itself h2",
		"h1,10.77.0.1": "h1 and 10.77.0.1 of the list are one host, which calls itself h1",
		"H2,root@h2":   "H2 and root@h2 of the list are one host, which calls itself h2",
	} {
		j := prepare(t, "-H", hosts, "--launch-agent", h.shell, "RANK", "sleep")
		h.move(j)
		j.start().wait(126).says(says)
		h.nothingLeft(t)
	}
}

// Where gorun was stopped for so long that the agents have ended their ranks, no host is blamed.
func TestGorunIsStopped(t *testing.T) {
	t.Parallel()
	j := start(t, "--launcher", "exec", "-H", "a,b", "-x", "GORUN_PEER_TIMEOUT=1s", "RANK", "sleep").ready(2)
	j.tell(syscall.SIGSTOP)
	proc.Eventually(t, "the agents to leave", func() bool { return len(j.agents()) == 0 })
	j.tell(syscall.SIGCONT)
	j.wait(1).says("gorun itself was stopped for ", ", and agents end their ranks when they have not heard it for 1s")
	j.gone()
	// An agent that leaves says why.
	j = start(t, "--launcher", "exec", "-H", "a,b", "RANK", "sleep").ready(2)
	agents := j.agents()
	syscall.Kill(agents[0].PID, syscall.SIGTERM)
	j.wait(143).says("gorun: the agent on host ", " was stopped by signal 15 (terminated)")
	j.gone()
	// All of them are told to end, as by the end of a Slurm step, and their ranks: that is one cause.
	j = start(t, "--launcher", "exec", "-H", "a,b", "RANK", "sleep").ready(2)
	for _, p := range append(j.agents(), j.processes()...) {
		if p.PID != j.cmd.Process.Pid {
			syscall.Kill(p.PID, syscall.SIGTERM)
		}
	}
	j.wait(143).oneCause()
	if n := strings.Count(j.err.String(), "signal 15"); n != 1 {
		t.Errorf("signal 15 is said %d times:\n%s", n, j.err.String())
	}
	j.gone()
}

// Where all other hosts fall silent together none of them is blamed.
func TestGorunIsCutOff(t *testing.T) {
	t.Parallel()
	shell := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(shell, []byte("#!/bin/sh\necho gorun-agent 1; exec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	j := start(t, "-H", "localhost,b,c", "--launch-agent", shell, "-x", "GORUN_PEER_TIMEOUT=1s", "RANK", "sleep")
	j.wait(1).says("the 2 other hosts (b,c) fell silent together: this host, ", " is cut off from them")
	j.gone()
}

// say is a command of sh that writes a frame, as an agent would.
func say(k frames.Kind, body string) string {
	return fmt.Sprintf(`printf '\%03o\0\0\0\%03o%%s' '%s'`, len(body), k, body)
}

// finishing starts a job whose agent is a script. Its rank ends, the order to finish comes, and the script goes on.
func finishing(t *testing.T, then string) *job {
	t.Helper()
	dir := t.TempDir()
	words, finish := filepath.Join(dir, "shell"), filepath.Join(dir, "finish")
	script := "#!/bin/sh\necho gorun-agent 1\n" + say(frames.Started, `{"Rank":0,"Pid":7}`) + "\n" +
		say(frames.AllStarted, "") + "\n" + say(frames.Exited, `{"Rank":0,"Pid":7}`) + `
grep -qa '"Finish":true' && : >` + finish + "\n" + then + "exec sleep 1000\n"
	if err := os.WriteFile(words, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	j := start(t, "-n", "1", "-H", "b", "--launch-agent", words, "RANK", "exit=0")
	proc.Eventually(t, "the order to finish", func() bool {
		_, err := os.Stat(finish)
		return err == nil
	})
	return j
}

// An agent that does not end when the job has is left, where the user wants the end.
func TestAgentThatStays(t *testing.T) {
	t.Parallel()
	j := finishing(t, "")
	j.tell(syscall.SIGTERM)
	j.wait(143).says("host b: its agent does not end, and is left")
}

// A signal that comes while only the ends of agents are awaited is no reason to take one that ends for lost.
func TestSignalAtTheEnd(t *testing.T) {
	t.Parallel()
	j := finishing(t, "grep -qa '\"Signal\":10'\n"+say(frames.Finished, "")+"\n")
	j.tell(syscall.SIGUSR1)
	j.wait(0)
}

// The same over ssh between hosts that share nothing but the network and files.
func TestAgentsOverSSH(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: three hosts with sshd; TestAgents covers the same with agents on one host")
	}
	w, _ := overSSH(t)
	conform(t, w)
}

// MPICH's programs run on three hosts, unmodified, also where an agent is between gorun and another: what their ranks
// put has names of MPICH's own, and goes up to gorun and down again. Their library is kept from what hangs in
// MPI_Finalize under any launcher.
func TestMPICHOverSSH(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: three hosts with sshd; TestMPICH covers the same programs on one host")
	}
	prog := mpichProgram(t)
	library := mpichCompiled(t, "ucxclose.so", "-shared", "-fPIC", "testdata/ucxclose.c")
	h := upSSH(t, 3)
	for _, width := range []string{"1", "32"} {
		for _, by := range []string{"slot", "node"} {
			run := func(what string) *job {
				j := prepare(t, "-H", "h1:1,h2:2,h3:2", "--map-by", by, "--tree-width", width, "--bind-to", "none",
					"--launch-agent", h.shell, "--host-timeout", "2m", "-x", "LD_PRELOAD="+library, prog, what)
				h.move(j)
				return j.start()
			}
			j := run("hosts").wait(0)
			for _, want := range []string{"ring 5\n", "hosts 3\n", "hello from 4 of 5\n"} {
				if !strings.Contains(j.out.String(), want) {
					t.Errorf("width %s, by %s: no %q in\n%s", width, by, want, j.out.String())
				}
			}
			run("abort").wait(7).says("called Abort with code 7")
			run("exit").wait(5).says("exited with code 5")
			h.nothingLeft(t)
		}
	}
}

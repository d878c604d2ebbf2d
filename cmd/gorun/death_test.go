package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func TestGoodEnd(t *testing.T) {
	t.Parallel()
	start(t, "-n", "3", "RANK", "join", "fence", "finalize").wait(0)
	start(t, "-n", "3", "RANK", "exit=0").wait(0) // never joined, so need not call Finalize
	start(t, "-n", "1", "RANK", "join", "fence", "finalize").wait(0)
}

// Each way to fail: the code, the message, and no process left.
func TestOneRankFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		words string
		code  int
		say   string // a regular expression
	}{
		{"exit code", "join fence 2:exit=3 sleep", 3,
			`rank 2 \(pid \d+ on host \S+\) exited with code 3; the job is stopped`},
		{"signal", "join fence 2:kill=9 sleep", 137,
			`rank 2 \(pid \d+ on host \S+\) was killed by signal 9 \(killed\); the job is stopped`},
		{"no finalize", "join fence 0:exit=0 sleep", 1, `rank 0 .* exited with code 0 without calling Finalize`},
		{"abort", "join fence 1:abort=7 sleep", 7,
			`rank 1 on \S+: the test wants it$`},
		{"abort 0", "join fence 1:abort=0 sleep", 1, `rank 1 on \S+: the test wants it$`},
		{"before joining", "1:exit=5 sleep", 5, `rank 1 .* exited with code 5`},
		{"others in a barrier", "join 2:exit=4 fence finalize", 4, `rank 2 .* exited with code 4`},
		{"others deaf", "join fence deaf 2:exit=3 sleep", 3, `rank 2`},
		{"with children", "child daemon join fence 2:kill=9 sleep", 137, `rank 2`},
		{"after finalize", "join fence finalize 1:exit=6 sleep", 6, `rank 1 .* exited with code 6`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := start(t, append([]string{"-n", "3", "--bind-to", "none", "RANK"}, strings.Fields(c.words)...)...)
			j.wait(c.code).took(j.started) // start included
			lines := strings.Split(strings.TrimSpace(j.err.String()), "\n")
			if last := lines[len(lines)-1]; !regexp.MustCompile(`^(gorun: )?` + c.say).MatchString(last) {
				t.Errorf("want %s in the last line, got:\n%s", c.say, j.err.String())
			}
			j.oneCause()
		})
	}
}

// oneCause expects that gorun has named one rank or host as the cause.
func (j *job) oneCause() {
	j.t.Helper()
	said := j.err.String()
	if n := strings.Count(said, "the job is stopped") + strings.Count(said, ": the test wants it\n"); n != 1 {
		j.t.Errorf("%d causes were named:\n%s", n, said)
	}
}

// A program that has no handler, as those in C.
func TestSegmentationFault(t *testing.T) {
	t.Parallel()
	start(t, "-n", "2", "sh", "-c", `ulimit -c 0; test $PMI_RANK = 0 && kill -SEGV $$; exec sleep 1000`).wait(139).
		says("was killed by signal 11 (segmentation fault)")
}

// A rank's death ends all, even if the ranks ignore SIGTERM; within a second on a machine that is not busy.
func TestGoneAfterADeath(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "4", "RANK", "join", "deaf", "child", "sleep").ready(4)
	var victim int
	proc.Eventually(t, "rank 2", func() bool { victim = j.pidOf(2); return victim > 0 })
	died := time.Now()
	syscall.Kill(victim, syscall.SIGKILL)
	j.wait(137).took(died).says(fmt.Sprintf("rank 2 (pid %d", victim))
}

// pidOf finds a rank by its environment.
func (j *job) pidOf(rank int) int {
	for _, p := range j.processes() {
		if slices.Contains(p.Env(), fmt.Sprintf("PMI_RANK=%d", rank)) && !strings.Contains(p.String(), "sleep 1000") {
			return p.PID
		}
	}
	return 0
}

// The code is that of the rank that failed first, whatever the others do about it.
func TestFirstFailureCounts(t *testing.T) {
	t.Parallel()
	start(t, "-n", "3", "RANK", "join", "2:exit=3", "fence", "exit=9").wait(3).says("rank 2")
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "3", "--kill-delay", "1m", "RANK", "tell", "exit=0").ready(3)
	j.cmd.Process.Signal(syscall.SIGINT)
	j.wait(130)
	if n := strings.Count(j.out.String(), "got interrupt\n"); n != 3 {
		t.Errorf("%d ranks got the signal:\n%s", n, j.out.String())
	}
}

func TestInterruptDeaf(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "2", "--kill-delay", "300ms", "RANK", "deaf", "child", "sleep").ready(2)
	at := time.Now()
	j.cmd.Process.Signal(syscall.SIGINT)
	j.wait(130).took(at).says("another Ctrl-C")
	if took := time.Since(at); took < 300*time.Millisecond {
		t.Errorf("the ranks were killed after %v, before their time", took)
	}
}

func TestInterruptTwice(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "2", "--kill-delay", "1h", "RANK", "deaf", "sleep").ready(2)
	j.cmd.Process.Signal(syscall.SIGINT)
	proc.Eventually(t, "the first to be answered",
		func() bool { return strings.Contains(j.err.String(), "another Ctrl-C") })
	at := time.Now()
	j.cmd.Process.Signal(syscall.SIGINT)
	j.wait(130).took(at)
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "2", "--kill-delay", "1m", "RANK", "tell", "exit=0").ready(2)
	j.cmd.Process.Signal(syscall.SIGTERM)
	j.wait(143).says("stopped by signal 15")
	if n := strings.Count(j.out.String(), "got terminated\n"); n != 2 {
		t.Errorf("%d ranks got the signal", n)
	}
}

func TestUserSignal(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "2", "RANK", "tell", "exit=0").ready(2)
	j.cmd.Process.Signal(syscall.SIGUSR1)
	j.wait(0)
	if n := strings.Count(j.out.String(), "got user defined signal 1\n"); n != 2 {
		t.Errorf("%d ranks got the signal", n)
	}
}

// A SIGKILL cannot be caught: the ranks go by the parent-death signal, their children by the cleaner.
func TestKillGorun(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the parent-death signal is Linux's")
	}
	j := start(t, "-n", "3", "RANK", "deaf", "child", "sleep").ready(3)
	// It is not there from the first moment.
	proc.Eventually(t, "the cleaner", func() bool { return len(j.cleaners()) == 1 })
	// Between fork and exec a process looks like its parent, and during exec it has no arguments.
	proc.Eventually(t, "gorun, 3 ranks and 3 children", func() bool { return len(j.processes()) == 3+3+1 })
	j.cmd.Process.Kill()
	at := time.Now()
	j.cmd.Wait()
	proc.Eventually(t, "all to be gone", func() bool { return len(j.processes()) == 0 })
	j.took(at)
	proc.Eventually(t, "the cleaner to be gone", func() bool { return len(j.cleaners()) == 0 })
}

// The same without the cleaner: the parent-death signal alone.
func TestKillGorunWithoutCleaner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the parent-death signal is Linux's")
	}
	j := start(t, "-n", "3", "RANK", "deaf", "sleep").ready(3)
	proc.Eventually(t, "the cleaner", func() bool { return len(j.cleaners()) == 1 })
	for _, p := range j.cleaners() {
		syscall.Kill(p.PID, syscall.SIGKILL)
	}
	j.cmd.Process.Kill()
	at := time.Now()
	j.cmd.Wait()
	proc.Eventually(t, "all to be gone", func() bool { return len(j.processes()) == 0 })
	j.took(at)
}

// cleaners finds the job's cleaner by its name: it has nothing of the job's environment.
func (j *job) cleaners() []proc.Info {
	return proc.List(func(p proc.Info) bool { return slices.Equal(p.Args(), []string{j.gorun, cleanerWord}) })
}

// What ranks leave behind after a good end is killed too, in any session, and delays nothing.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "2", "RANK", "child", "daemon", "print=bye")
	j.wait(0).took(j.started)
	if n := strings.Count(j.out.String(), "bye\n"); n != 2 {
		t.Errorf("output %q", j.out.String())
	}
}

// The last lines of what a wrapper left running in its group are waited for.
func TestLateOutput(t *testing.T) {
	t.Parallel()
	// It is waited for half a second only, in which a slow machine may not get that far.
	for range 10 {
		j := start(t, "-n", "2", "sh", "-c", "(sleep 0.1; echo late) & echo early").wait(0)
		if strings.Count(j.out.String(), "early\n") != 2 {
			t.Errorf("output %q", j.out.String())
		}
		if strings.Count(j.out.String(), "late\n") == 2 {
			return
		}
	}
	t.Error("the last lines never came")
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	// On a slow machine the ranks may not have been started by then.
	for i, limit := range []string{"700ms", "3s", "10s", "10s", "10s"} {
		j := start(t, "-n", "3", "--timeout", limit, "RANK", "sleep")
		j.wait(124).took(j.started).says("did not end within " + limit + ": asking every rank what it does")
		if strings.Contains(j.err.String(), "\n  ranks 0-2: not in the job") {
			break
		}
		if i == 4 {
			t.Errorf("no line for the ranks in\n%s", clip(j.err.String()))
		}
	}
	j := start(t, "-n", "2", "--timeout", "300ms", "RANK", "deaf", "child", "sleep")
	j.wait(124).took(j.started)
	start(t, "-n", "2", "--timeout", "1h", "RANK", "exit=0").wait(0)
}

// SIGQUIT to gorun asks each rank what it does. The cause follows the answers.
func TestQuit(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "3", "RANK", "sleep").ready(3)
	j.cmd.Process.Signal(syscall.SIGQUIT)
	j.wait(128 + 3)
	j.says("\n  ranks 0-2: not in the job")
	if said := j.err.String(); !strings.HasSuffix(said, "\ngorun: the job was stopped by signal 3 (quit)\n") ||
		strings.Contains(said, "goroutine ") {
		t.Errorf("gorun said\n%s", clip(said))
	}
}

// The end that is the cause is in the last line, and in no other.
func TestAllExitCodes(t *testing.T) {
	t.Parallel()
	for what, last := range map[string]string{
		"1:exit=3": ") exited with code 3; the job is stopped\n",
		"1:kill=9": ") was killed by signal 9 (killed); the job is stopped\n",
	} {
		j := start(t, "-n", "3", "--print-all-exitcodes", "RANK", "join", "fence", what, "sleep")
		j.end(map[bool]int{true: 3, false: 137}[what == "1:exit=3"])
		said := j.err.String()
		for r := range 3 {
			if n := strings.Count(said, fmt.Sprintf("gorun: rank %d (pid ", r)); n != 1 {
				t.Errorf("%s: gorun said %d times how rank %d has ended:\n%s", what, n, r, clip(said))
			}
		}
		if !strings.HasSuffix(said, last) {
			t.Errorf("%s: the last line is not %q:\n%s", what, last, clip(said))
		}
	}
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	notProgram := dir + "/noexec"
	os.WriteFile(notProgram, []byte("#!/no/such/interpreter\n"), 0o755)
	os.WriteFile(dir+"/plain", []byte("hi\n"), 0o644)
	start(t, "-n", "2", dir+"/nosuch").wait(127).says(dir + "/nosuch")
	start(t, "-n", "2", "no-such-program-anywhere").wait(127).says("no-such-program-anywhere", "PATH")
	start(t, "-n", "2", notProgram).wait(127).says("rank 0 cannot be started")
	start(t, "-n", "2", dir+"/plain").wait(126).says("not executable")
	start(t, "-n", "2", dir).wait(2).says("folder without Go files")
	start(t, "-n", "2", "--wdir", dir+"/x", "RANK").wait(2).says("--wdir", dir+"/x")
	// The first program's ranks run already when the second turns out bad.
	start(t, "-n", "2", "RANK", "sleep", ":", "-n", "1", notProgram).wait(127).says("rank 2 cannot be started")
}

// Nonsense on a control socket is reported as such, and not as the end of the rank.
func TestGarbageOnControlSocket(t *testing.T) {
	t.Parallel()
	start(t, "-n", "2", "sh", "-c", "echo hello >&$PMI_FD; exit 0").wait(0).says("spoke no PMI-1")
}

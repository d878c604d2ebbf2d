package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// unread is a job whose standard output is a pipe that no process reads; with both, so is its standard error.
func unread(t *testing.T, both bool, args ...string) (*job, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	j := prepare(t, args...)
	j.cmd.Stdout = w
	if both {
		j.cmd.Stderr = w
	}
	j.start()
	w.Close()
	return j, r
}

// filled is how many bytes are in the pipe.
func filled(t *testing.T, r *os.File) (n int) {
	t.Helper()
	conn, err := r.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	conn.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

// full waits until the pipe takes no more: what is in it stays the same for a while.
func full(t *testing.T, r *os.File) {
	t.Helper()
	last, since := -1, time.Now()
	proc.Eventually(t, "a full pipe", func() bool {
		now := filled(t, r)
		if now != last {
			last, since = now, time.Now()
		}
		return now > much && time.Since(since) > 300*time.Millisecond
	})
}

// much is half of what a pipe holds.
const much = 1 << 15

// limits are values of --timeout and --kill-delay for a test to try in turn, until the machine is not too slow.
var limits = []string{"500ms", "5s", "60s"}

// A reader that does not read gorun's output disables nothing: not Ctrl-C, not the end of a job with a failed rank, not
// --timeout.
func TestOutputIsNotRead(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		where := map[bool]string{false: "stdout", true: "stdout and stderr"}[both]
		t.Run(where+", Ctrl-C", func(t *testing.T) {
			t.Parallel()
			j, r := unread(t, both, "-n", "3", "--kill-delay", "300ms", "RANK", "deaf", "pour")
			full(t, r)
			j.cmd.Process.Signal(syscall.SIGINT)
			j.wait(130)
		})
		t.Run(where+", Ctrl-C twice", func(t *testing.T) {
			t.Parallel()
			j, r := unread(t, both, "-n", "3", "--kill-delay", "1h", "RANK", "deaf", "pour")
			full(t, r)
			proc.Eventually(t, "the end of gorun", func() bool { // two signals that come at once are one
				j.cmd.Process.Signal(syscall.SIGINT)
				_, alive := proc.Lookup(j.cmd.Process.Pid)
				return !alive
			})
			j.wait(130)
		})
		t.Run(where+", a failed rank", func(t *testing.T) {
			t.Parallel()
			j, r := unread(t, both, "-n", "3", "RANK", "join", "fence", "deaf", "2:child", "pour")
			full(t, r)
			var victim int
			proc.Eventually(t, "rank 2", func() bool { victim = j.pidOf(2); return victim > 0 })
			syscall.Kill(victim, syscall.SIGKILL)
			j.wait(137)
			if !both {
				j.says("rank 2", "was killed by signal 9")
			}
		})
		t.Run(where+", --timeout", func(t *testing.T) {
			t.Parallel()
			for _, limit := range limits {
				j, r := unread(t, both, "-n", "3", "--timeout", limit, "RANK", "deaf", "pour")
				j.wait(124)
				if filled(t, r) > much {
					return
				}
			}
			t.Error("the ranks have not filled the pipe")
		})
	}
}

// The reader takes its time: all output comes, whether or not the ranks have ended, and the job has succeeded.
func TestOutputIsReadLate(t *testing.T) {
	t.Parallel()
	for _, lines := range []int{3000, 20000} { // of both ranks: more than the pipe, and than all buffers, holds
		j, r := unread(t, false, "-n", "2", "RANK", fmt.Sprintf("flood=%d", lines))
		full(t, r)
		if lines == 3000 {
			proc.Eventually(t, "the end of the ranks", func() bool { return len(j.processes()) == 1 })
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		j.wait(0)
		if n := strings.Count(string(text), " end\n"); n != lines {
			t.Errorf("%d of %d lines came", n, lines)
		}
	}
}

// The ranks have ended, and gorun waits for the reader of their output: it can be stopped.
func TestStoppedWhileOutputIsNotRead(t *testing.T) {
	t.Parallel()
	prompt := "prompt=" + strings.Repeat("x", 100000)
	t.Run("Ctrl-C", func(t *testing.T) {
		t.Parallel()
		j, r := unread(t, false, "-n", "2", "RANK", prompt)
		full(t, r)
		proc.Eventually(t, "the end of the ranks", func() bool { return len(j.processes()) == 1 })
		j.cmd.Process.Signal(syscall.SIGINT)
		j.wait(130)
	})
	t.Run("--timeout", func(t *testing.T) {
		t.Parallel()
		for _, limit := range limits {
			j, _ := unread(t, false, "--timeout", limit, "-n", "2", "RANK", prompt)
			if j.wait(124); strings.Contains(j.err.String(), "its output is not read") {
				return
			}
		}
		t.Error("the ranks have never ended before the job's time")
	})
}

// gorun ... | head -1: the ranks are told to end, and those that do not are killed. The exit code is the shell's for
// SIGPIPE.
func TestReaderGoesAway(t *testing.T) {
	t.Parallel()
	told := filepath.Join(t.TempDir(), "told")
	for _, limit := range limits {
		j, r := unread(t, false, "-n", "3", "--kill-delay", limit, "RANK", "0:tell="+told, "0:exit=0", "1:deaf", "pour")
		for in := bufio.NewReader(r); ; {
			l, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if l == "ready\n" {
				break
			}
		}
		r.Close()
		j.wait(128 + int(syscall.SIGPIPE))
		if got := dropMessages(j.err.String()); got != "" {
			t.Errorf("what died of SIGPIPE is silent: %s", got)
		}
		if b, err := os.ReadFile(told); string(b) == "terminated" {
			return
		} else if len(b) > 0 {
			t.Errorf("rank 0 was told %q (%v)", b, err)
		}
	}
	t.Error("rank 0 was not told")
}

// A write to a full disk fails, and so does the job, at once.
func TestOutputCannotBeWritten(t *testing.T) {
	t.Parallel()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer f.Close()
	for _, more := range []string{"exit=0", "deaf", "sleep"} {
		j := prepare(t, "-n", "2", "RANK", "print=hello", more)
		j.cmd.Stdout = f
		j.start().wait(1).says("the output of the ranks could not be written", "no space left on device")
	}
}

// Another process may set the terminal or pipe that it shares with gorun to non-blocking: nothing is lost.
func TestOutputBecomesNonblocking(t *testing.T) {
	t.Parallel()
	const lines = 4000
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j := prepare(t, "-n", "2", "RANK", "0:print=first", "0:line", fmt.Sprintf("0:flood=%d", lines))
	j.cmd.Stdout = w
	in, err := j.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	j.start()
	out := bufio.NewReader(r)
	if l, err := out.ReadString('\n'); l != "first\n" {
		t.Fatalf("%q, %v", l, err)
	}
	unix.SetNonblock(int(w.Fd()), true)
	w.Close()
	fmt.Fprintln(in, "go")
	full(t, r)
	for n := 0; n < lines/2; {
		l, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d of %d lines: %v", n, lines/2, err)
		}
		n += strings.Count(l, " end\n")
	}
	j.wait(0)
}

// A rank that has written many requests to its control socket, has read no reply, and has left the socket to a process
// that reads none either: what it has said counts, and no other rank waits for it.
func TestControlSocketIsNotRead(t *testing.T) {
	t.Parallel()
	start(t, "-n", "3", "sh", "-c", `{
			printf 'cmd=init pmi_version=1\n'
			yes cmd=get_maxes | head -n 4000
			printf 'cmd=finalize\n'
		} >&$PMI_FD
		sleep 1000 &`).wait(0)
}

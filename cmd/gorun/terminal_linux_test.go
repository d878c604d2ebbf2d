package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// terminal is a pseudo-terminal; what is written to keys was typed.
type terminal struct {
	keys  *os.File
	slave *os.File
	shown proc.Buffer
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	keys := os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { keys.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	term := &terminal{keys: keys, slave: slave}
	go io.Copy(&term.shown, keys)
	return term
}

// onTerminal starts gorun as the foreground job of the terminal.
func onTerminal(t *testing.T, term *terminal, args ...string) *job {
	t.Helper()
	j := prepare(t, args...)
	j.cmd.Stdin, j.cmd.Stdout, j.cmd.Stderr = term.slave, term.slave, term.slave
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	return j.start()
}

func (term *terminal) shows(t *testing.T, what string) {
	t.Helper()
	shown := false
	defer func() {
		if !shown {
			t.Logf("the terminal shows %q", term.shown.String())
		}
	}()
	proc.Eventually(t, fmt.Sprintf("%q on the terminal", what), func() bool {
		shown = strings.Contains(term.shown.String(), what)
		return shown
	})
}

func (term *terminal) state(t *testing.T) (*unix.Termios, int) {
	t.Helper()
	fd := int(term.slave.Fd())
	s, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s, flags
}

// A line that is typed reaches rank 0, and the terminal is left as it was.
func TestTypedInput(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"1", "2"} {
		term := newTerminal(t)
		before, flags := term.state(t)
		j := onTerminal(t, term, "-n", n, "RANK", "0:prompt=name? ", "0:line")
		term.shows(t, "name? ")
		fmt.Fprint(term.keys, "rosa\n")
		term.shows(t, "read rosa")
		j.wait(0)
		after, flagsAfter := term.state(t)
		if !reflect.DeepEqual(before, after) || flags != flagsAfter || flagsAfter&unix.O_NONBLOCK != 0 {
			t.Errorf("the terminal was changed: %v -> %v, flags %#x -> %#x", before, after, flags, flagsAfter)
		}
	}
}

func TestCtrlC(t *testing.T) {
	t.Parallel()
	term := newTerminal(t)
	j := onTerminal(t, term, "-n", "2", "--kill-delay", "1m", "RANK", "tell", "exit=0")
	proc.Eventually(t, "the ranks", func() bool { return strings.Count(term.shown.String(), "ready") == 2 })
	fmt.Fprint(term.keys, "\x03")
	j.wait(130)
	proc.Eventually(t, "both ranks to say that they were told",
		func() bool { return strings.Count(term.shown.String(), "got interrupt") == 2 })
}

func TestColours(t *testing.T) {
	t.Parallel()
	term := newTerminal(t)
	j := prepare(t, "-n", "1", "-l", "RANK", "print=x")
	j.cmd.Env = append(j.cmd.Env, "TERM=xterm", "NO_COLOR=")
	j.cmd.Stdout = term.slave
	j.start().wait(0)
	term.shows(t, "\x1b[36m[0]\x1b[0m x")
	plain := newTerminal(t)
	j = prepare(t, "-n", "1", "-l", "RANK", "print=x")
	j.cmd.Env = append(j.cmd.Env, "TERM=xterm", "NO_COLOR=1")
	j.cmd.Stdout = plain.slave
	j.start().wait(0)
	plain.shows(t, "[0] x")
	if strings.Contains(plain.shown.String(), "\x1b") {
		t.Errorf("colour in spite of NO_COLOR: %q", plain.shown.String())
	}
}

// Ctrl-Z stops gorun and the ranks; both go on together.
func TestSuspend(t *testing.T) {
	t.Parallel()
	term := newTerminal(t)
	j := onTerminal(t, term, "-n", "2", "--kill-delay", "1m", "RANK", "tell", "exit=0")
	proc.Eventually(t, "the ranks", func() bool { return strings.Count(term.shown.String(), "ready") == 2 })
	// An orphaned process group ignores the terminal's stop; the signal to gorun is what a shell's job gets.
	rank := j.pidOf(1)
	j.cmd.Process.Signal(syscall.SIGTSTP)
	stopped := func(pid int) bool { p, _ := proc.Lookup(pid); return p.State == "T" }
	proc.Eventually(t, "a stopped rank", func() bool { return stopped(rank) })
	proc.Eventually(t, "a stopped gorun", func() bool { return stopped(j.cmd.Process.Pid) })
	j.cmd.Process.Signal(syscall.SIGCONT)
	proc.Eventually(t, "a running rank", func() bool { return !stopped(rank) })
	j.cmd.Process.Signal(syscall.SIGINT)
	j.wait(130)
}

// A rank that the terminal stops, because it is in the background, is named, also one that another has spawned.
func TestStoppedByTerminal(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"1", "2"} {
		for signal, wants := range map[string]string{"SIGTTOU": "stty -echo </dev/tty", "SIGTTIN": "read x </dev/tty"} {
			term := newTerminal(t)
			j := onTerminal(t, term, "-n", n, "--kill-delay", "100ms", "sh", "-c", `test $PMI_RANK = 0 || sleep 1000; `+wants)
			term.shows(t, "gorun: rank 0 (pid ")
			term.shows(t, signal)
			fmt.Fprint(term.keys, "\x03")
			j.wait(130)
			term = newTerminal(t)
			j = onTerminal(t, term, "-n", n, "--kill-delay", "100ms", "RANK", "join", "0:spawn="+wants, "sleep")
			term.shows(t, "gorun: rank 0 of spawn 1 (pid ")
			term.shows(t, signal)
			fmt.Fprint(term.keys, "\x03")
			j.wait(130)
		}
	}
}

// While hosts are waited for a terminal says so, below all that is written, and forgets it. Nothing else than a
// terminal is told.
func TestProgressLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	words, goOn, begin := filepath.Join(dir, "shell"), filepath.Join(dir, "go-on"), filepath.Join(dir, "begin")
	script := "#!/bin/sh\n[ $1 = a ] || while [ ! -e " + goOn + " ]; do sleep 0.05; done\nshift; exec \"$@\"\n"
	if err := os.WriteFile(words, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	const line = "gorun: 1 of 2 hosts have started their ranks; waiting for b"
	args := []string{"-n", "2", "-H", "a,b", "--launcher", "exec", "--launch-agent", words, "sh", "-c",
		"echo early; [ $PMI_RANK = 1 ] || { while [ ! -e " + begin + " ]; do sleep 0.05; done; printf 'name? '; }"}
	term := newTerminal(t)
	j := prepare(t, args...)
	j.cmd.Env = append(j.cmd.Env, "TERM=xterm")
	j.cmd.Stdout, j.cmd.Stderr = term.slave, term.slave
	j.start()
	term.shows(t, "early\r\n") // below it the line may say at first that no host has started all of its ranks
	term.shows(t, line)
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	proc.Eventually(t, "nothing after the line that has begun", func() bool {
		return strings.HasSuffix(term.shown.String(), line+"\r\x1b[Kname? ")
	})
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j.wait(0)
	proc.Eventually(t, "the end of the line", func() bool { // what a process has written may be read after its end
		shown := term.shown.String()
		return strings.Count(shown, line+"\r\x1b[K") == strings.Count(shown, line)
	})
	j = prepare(t, args...)
	j.start().wait(0)
	if strings.Contains(j.err.String(), "waiting for") {
		t.Errorf("it is no terminal: %q", j.err.String())
	}
}

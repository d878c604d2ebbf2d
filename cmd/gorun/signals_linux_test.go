package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// under has gorun started by a shell script, whose "$0" and "$@" are the command.
func (j *job) under(script string) *job {
	j.cmd.Args = append([]string{"sh", "-c", script}, j.cmd.Args...)
	var err error
	if j.cmd.Path, err = exec.LookPath("sh"); err != nil {
		j.t.Fatal(err)
	}
	return j
}

// waitsForUSR1 is a program that ends well on SIGUSR1 and says that it listens.
const waitsForUSR1 = `package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	fmt.Println("ready")
	<-c
}
`

// Signals that were ignored when gorun was started end no job: nohup ignores HUP, and a shell without job control
// ignores INT and QUIT for a command that it starts in the background.
func TestIgnoredSignals(t *testing.T) {
	t.Parallel()
	const (
		nohup      = `trap "" HUP; exec "$0" "$@"`
		background = `"$0" "$@" & wait $!`
	)
	for _, c := range []struct {
		name   string
		script string
		ranks  int
		job    func() *job
	}{
		{"binary", nohup, 2, func() *job { return prepare(t, "-n", "2", "RANK", "tell") }},
		{"binary", background, 2, func() *job { return prepare(t, "-n", "2", "RANK", "tell") }},
		{"package", nohup, 1, func() *job { return prepare(t, "-n", "1", module(t, waitsForUSR1)) }},
		{"package", background, 1, func() *job { return prepare(t, "-n", "1", module(t, waitsForUSR1)) }},
		{"hosts", nohup, 2, func() *job { return ways(t)["exec"].prepare(t, 1, "RANK", "tell") }},
		{"hosts", background, 2, func() *job { return ways(t)["exec"].prepare(t, 1, "RANK", "tell") }},
	} {
		ignored := []syscall.Signal{syscall.SIGHUP}
		if c.script == background {
			ignored = []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}
		}
		for _, s := range ignored {
			t.Run(c.name+" "+s.String(), func(t *testing.T) {
				t.Parallel()
				j := c.job()
				j.t = t
				j.cmd.Env = append(j.cmd.Env, "GOFLAGS=")
				j.under(c.script).start().ready(c.ranks)
				j.tell(s)
				j.tell(syscall.SIGUSR1)
				j.end(0)
				j.gone()
			})
		}
	}
}

func init() { passedOn = append(passedOn, syscall.SIGPWR) }

// A signal that is no demand to end goes on to the ranks, and the job goes on.
func TestForwardedSignals(t *testing.T) {
	t.Parallel()
	for _, s := range passedOn {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			j := start(t, "-n", "2", "RANK", "tell", "exit=0").ready(2)
			j.cmd.Process.Signal(s)
			j.wait(0)
			if n := strings.Count(j.out.String(), fmt.Sprintf("got %v\n", s)); n != 2 {
				t.Errorf("%d ranks got the signal:\n%s", n, j.out.String())
			}
		})
	}
}

// A rank whose reader goes away ends the job without a word, as the program alone would end.
func TestQuietBrokenPipe(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"1", "2"} {
		j := prepare(t, "-n", n, "RANK", "pour").under(`{ "$0" "$@"; echo code $? >&2; } | head -n 1 >/dev/null`)
		j.start().wait(0)
		if got := j.err.String(); got != "code 141\n" {
			t.Errorf("%s ranks: %q", n, got)
		}
	}
	// The death by SIGPIPE of a rank whose output is read is one like others.
	start(t, "-n", "1", "sh", "-c", "kill -PIPE $$").wait(141).says("was killed by signal 13")
}

// A descriptor that the user has opened for the program is the program's.
func TestInheritedDescriptors(t *testing.T) {
	t.Parallel()
	j := prepare(t, "-n", "1", "RANK", "join", "finalize", ":", "-n", "1", "sh", "-c", "cat <&3; cat <&4").
		under(`echo three >"$GORUN_TEST_FILE"; exec "$0" "$@" 3<"$GORUN_TEST_FILE" 4</dev/null`)
	j.cmd.Env = append(j.cmd.Env, "GORUN_TEST_FILE="+t.TempDir()+"/file")
	j.start().wait(0).prints("three\n")
}

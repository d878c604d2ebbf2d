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

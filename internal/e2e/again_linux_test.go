package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	role("again", func(_ context.Context, w *mpi.Comm) error { return againScenes[os.Args[1]](w) })
}

// againScenes are what ranks do of which one is started again, as a user of gorun sees it.
var againScenes = map[string]func(w *mpi.Comm) error{
	"settings": againSettings, "hangs": againHangs, "exits": againExits, "helps": againHelps,
}

// replaceOne has a rank die and be replaced, and returns the communicator of all in all of them.
func replaceOne(w *mpi.Comm, dead int) (*mpi.Comm, error) {
	if isNew() {
		return w, nil
	}
	if err := fall(w, []int{dead}); err != nil {
		return nil, err
	}
	return w.Replace()
}

// ownOfAProcess are variables that say which process of gorun's this is, or where its launcher is.
var ownOfAProcess = regexp.MustCompile(`^(PMI_(FD|RANK|SIZE|SPAWNED)|GORUN_JOB|GORUN_EDGE)=`)

// againSettings: each process says what it was started with. os.Args: the name of the program.
func againSettings(w *mpi.Comm) error {
	env := slices.DeleteFunc(os.Environ(), ownOfAProcess.MatchString)
	slices.Sort(env)
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	fmt.Printf("rank %d new %v of %s in %s, environment %q\n", w.Rank(), isNew(), os.Args[2], wd, env)
	c, err := replaceOne(w, 2)
	if err != nil {
		return err
	}
	return whole(c, 3, w.Rank())
}

// A rank that is started again is the same for the user: its program, settings and name. What it prints goes into files
// of its own.
func TestRankThatStartsAgainIsTheSame(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		flags []string
		files bool
	}{
		"lines": {flags: []string{"-l"}}, "files": {files: true}, "hosts": {flags: append([]string{"-l"}, spawnHosts...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			flags := append([]string{"--respawn", "1"}, c.flags...)
			if c.files {
				flags = append(flags, "--output-dir", dir)
			}
			flags = append(flags, "-x", "WHOSE=master", "-n", "1", self, "settings", "master", ":", "-x", "WHOSE=worker",
				"--wdir", dir)
			j := run(t, spec{n: 2, role: "again", args: []string{"settings", "worker"}, flags: flags}, 0)
			j.counts(map[string]int{`^gorun: rank 2 \(pid \d+ .*; the job goes on, and Replace (may start|starts) it again`: 1,
				`^gorun: rank 2 has been started again on`: 1})
			of := func(new bool) string {
				re := fmt.Sprintf(`rank 2 new %v (of worker in .*)`, new)
				if !c.files {
					found := j.find(`^\[2\] ` + re)
					if len(found) != 1 {
						t.Fatalf("new %v: %q", new, found)
					}
					return found[0][1]
				}
				file := "rank.2.out"
				if new {
					file = "rank.2.again1.out"
				}
				b, err := os.ReadFile(filepath.Join(dir, file))
				m := regexp.MustCompile(re).FindStringSubmatch(string(b))
				if err != nil || m == nil {
					t.Fatalf("%s: %v, %q", file, err, b)
				}
				return m[1]
			}
			if first, again := of(false), of(true); name == "lines" && first != again {
				t.Errorf("first\n%s\nagain\n%s", first, again)
			}
		})
	}
}

// againHangs: after a Replace the new rank waits for a message that does not come.
func againHangs(w *mpi.Comm) error {
	c, err := replaceOne(w, 1)
	if err != nil {
		return err
	}
	if c.Rank() == 1 {
		_, err = mpi.Recv(c, make([]byte, 8), 2, tagData)
		return err
	}
	return mpi.Barrier(c)
}

// The tables have ranks that were started again in their places, with what they wait for.
func TestTableOfRanksThatStartAgain(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"one host": nil, "hosts": spawnHosts} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := start(t, spec{n: 3, role: "again", args: []string{"hangs"},
				flags: append([]string{"--respawn", "1", "--dump", dir}, flags...)})
			waits := regexp.MustCompile(fmt.Sprintf(`(?m)^rank 1 \(started again\).*: Recv from 2, tag %d, 8 B, world.*, at `+
				`again_linux_test\.go:\d+$`, tagData))
			proc.Eventually(t, "the table", func() bool {
				out, err := exec.Command(j.launcher, "status", fmt.Sprint(j.cmd.Process.Pid)).CombinedOutput()
				return err == nil && waits.Match(out) && strings.Contains(string(out), "ranks 0, 2")
			})
			j.cmd.Process.Signal(syscall.SIGQUIT)
			j.wait(131).counts(map[string]int{`^  rank 1 \(started again\).*: Recv from 2`: 1, `^  ranks 0, 2.*: Barrier`: 1,
				`has ended$`: 0})
			for rank := range 3 {
				if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("rank.%d.goroutines", rank))); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// againHelps: after a Replace the others wait for the new rank, which sleeps first.
func againHelps(w *mpi.Comm) error {
	c, err := replaceOne(w, 1)
	if err == nil && isNew() {
		time.Sleep(sleepOf())
	}
	if err == nil {
		err = whole(c, 3, w.Rank())
	}
	return err
}

// A job stands, or does not, also when ranks have been started again.
func TestStallOfRanksThatStartAgain(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"one host": nil, "hosts": spawnHosts} {
		t.Run("stands, "+name, func(t *testing.T) {
			t.Parallel()
			run(t, spec{n: 3, role: "again", args: []string{"hangs"},
				flags: append([]string{"--respawn", "1", "--stall", "abort"}, flags...)}, 125).counts(map[string]int{
				`^gorun: no rank of the job can move: all have waited for each other for 10s`: 1,
				`^  rank 1 \(started again\).*: Recv from 2`:                                  1})
		})
	}
	t.Run("can move", func(t *testing.T) {
		t.Parallel()
		run(t, spec{n: 3, role: "again", args: []string{"helps"}, flags: []string{"--respawn", "1", "--stall", "500ms"},
			env: []string{"WAITS_SLEEP=3s"}}, 0).counts(map[string]int{"can move": 0})
	})
}

// againExits: the new rank ends badly, when the others have nothing to do any more.
func againExits(w *mpi.Comm) error {
	c, err := replaceOne(w, 1)
	if err == nil {
		err = whole(c, 3, w.Rank())
	}
	if err == nil && isNew() {
		os.Exit(5)
	}
	if err == nil { // the others are through whole
		if _, err = mpi.Recv(c, []byte{0}, 1, tagData); errors.Is(err, mpi.ErrPeerFailed) {
			err = nil
		}
	}
	return err
}

// The exit code is of the first rank that has ended badly and was not started again.
func TestRankThatStartsAgainAndFails(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 3, role: "again", args: []string{"exits"}, flags: []string{"--respawn", "1"}}, 5).counts(map[string]int{
		`^gorun: rank 1 \(started again, pid \d+ on host \S+\) exited with code 5; the job goes on without it: no start ` +
			`of --respawn 1 is left$`: 1,
		`^gorun: the exit code is 5: the first rank that ended badly and was not started again is rank 1$`: 1})
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// threads is how many threads a process has.
func threads(pid int) int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	return len(tasks)
}

// A rank costs gorun no thread: Go's runtime ends a process with 10,000 of them.
func TestRanksAreNoThreads(t *testing.T) {
	t.Parallel()
	n := many()
	j := start(t, "-n", fmt.Sprint(n), "sh", "-c", "echo ready; exec sleep 1000").ready(n)
	if got := threads(j.cmd.Process.Pid); got > n/2 {
		t.Errorf("gorun has %d threads for %d ranks", got, n)
	}
	j.cmd.Process.Signal(syscall.SIGINT)
	j.wait(130)
}

// Processes that a rank leaves without a parent are gorun's children. When they end they do not stay behind as zombies,
// also where a rank has ended, whose own process stays until the end of the job.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	for _, rank1 := range []string{"exec sleep 1000", "exit 0"} {
		j := start(t, "-n", "2", "sh", "-c", `for i in 1 2 3 4 5; do
			(setsid sh -c 'echo orphan $$; sleep 0.2; exit 3' &)
		done
		test $PMI_RANK = 0 && exec sleep 1000
		`+rank1)
		orphans := regexp.MustCompile(`orphan (\d+)\n`)
		proc.Eventually(t, "the orphans", func() bool { return len(orphans.FindAllString(j.out.String(), -1)) == 10 })
		for _, o := range orphans.FindAllStringSubmatch(j.out.String(), -1) {
			pid, _ := strconv.Atoi(o[1])
			proc.Eventually(t, "orphan "+o[1]+" to be reaped", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
		}
		j.cmd.Process.Signal(syscall.SIGINT)
		j.wait(130)
	}
}

// sh -c "something & exec gorun ...": what the shell has started is gorun's child, and none of its business, nor is
// what that has started in its turn.
func TestChildrenOfTheShellLive(t *testing.T) {
	t.Parallel()
	started := filepath.Join(t.TempDir(), "started")
	j := prepare(t, "-n", "2", "RANK", "daemon", "sleep")
	j.cmd.Args = append([]string{"sh", "-c", `
		unset ` + markVar + `
		sleep 1000 & echo child $!
		sh -c 'sleep 1001 & echo orphan $!; until test -e "$0" || ! test -d "${0%/*}"; do sleep 0.05; done' ` + started + ` &
		export ` + markVar + "=" + j.mark + `
		exec "$0" "$@"`, j.cmd.Path}, j.cmd.Args[1:]...)
	j.cmd.Path = "/bin/sh"
	j.start()
	j.ready(2)
	if err := os.WriteFile(started, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var child, orphan int
	proc.Eventually(t, "the shell's children", func() bool {
		n, _ := fmt.Sscanf(sorted(j.out.String()), "child %d\norphan %d", &child, &orphan)
		p, _ := proc.Lookup(orphan)
		return n == 2 && p.Parent == j.cmd.Process.Pid
	})
	for _, pid := range []int{child, orphan} {
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	}
	j.cmd.Process.Signal(syscall.SIGINT)
	j.cmd.WaitDelay = 1 // the two hold our pipes
	j.cmd.Wait()
	if code := j.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("gorun exited with %d: %s", code, j.err.String())
	}
	j.nothingLeft()
	for _, pid := range []int{child, orphan} {
		if _, alive := proc.Lookup(pid); !alive {
			t.Errorf("process %d of the shell is dead:\n%s", pid, j.out.String())
		}
	}
}

// A SIGKILL of gorun ends what its ranks have started, in any session.
func TestKillGorunWithDaemons(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "3", "RANK", "deaf", "daemon", "child", "sleep").ready(3)
	proc.Eventually(t, "the cleaner", func() bool { return len(j.cleaners()) == 1 })
	proc.Eventually(t, "gorun, 3 ranks and 6 children", func() bool { return len(j.processes()) == 1+3+6 })
	j.cmd.Process.Kill()
	j.cmd.Wait()
	proc.Eventually(t, "all to be gone", func() bool { return len(j.processes()) == 0 })
	proc.Eventually(t, "the cleaner to be gone", func() bool { return len(j.cleaners()) == 0 })
}

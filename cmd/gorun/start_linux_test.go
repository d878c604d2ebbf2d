package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// many is how many ranks a test of many has.
func many() int {
	if testing.Short() {
		return 100
	}
	return 1000
}

// Ctrl-C while many ranks start: those that run get it, the others do not start, and none is left.
func TestInterruptManyStarting(t *testing.T) {
	t.Parallel()
	n := many()
	j := start(t, "-n", fmt.Sprint(n), "--kill-delay", "1m", "sh", "-c", "exec sleep 1000")
	proc.Eventually(t, "some ranks", func() bool { return len(j.processes()) > n/4 })
	j.cmd.Process.Signal(syscall.SIGINT)
	j.wait(130)
}

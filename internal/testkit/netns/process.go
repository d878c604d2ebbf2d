package netns

import (
	"fmt"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// insideOf waits for the process that an nsenter starts inside of a host, but not beyond the end of the nsenter. It
// returns its pid as seen from here.
func insideOf(nsenter int, ended <-chan struct{}) (int, error) {
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if pid := childElsewhere(nsenter); pid != 0 {
			return pid, nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return 0, fmt.Errorf("process %d has ended", nsenter)
		case <-deadline:
			return 0, fmt.Errorf("process %d has started nothing within %v", nsenter, patience)
		}
	}
}

// childElsewhere is the child of a process that is in another PID namespace than this process; 0: there is none so far.
func childElsewhere(parent int) int {
	here := proc.Self().Namespace("pid")
	for _, p := range proc.List(func(p proc.Info) bool { return p.Parent == parent }) {
		if ns := p.Namespace("pid"); ns != "" && ns != here {
			return p.PID
		}
	}
	return 0
}

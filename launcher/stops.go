package launcher

import (
	"os"
	"syscall"

	"github.com/gorun-mpi/mpi/internal/procs"
)

// stopSignals are those by which the terminal stops a process of the background that reads from it or changes it. Ranks
// are in the background: the terminal is gorun's. There is no other sign of why such a rank does not go on.
var stopSignals = map[syscall.Signal]string{syscall.SIGTTIN: "SIGTTIN", syscall.SIGTTOU: "SIGTTOU"}

// stops is how the supervisor hears of processes that stop. They are its own.
type stops struct {
	signals <-chan os.Signal       // children may have stopped
	early   map[int]syscall.Signal // pid -> by what; processes that startRanks has not reported
}

// begin is called before the first rank starts, and returns what ends it. A process that is not alone has children that
// are not ours to ask about.
func (h *stops) begin(alone bool) (end func()) {
	if !alone {
		return func() {}
	}
	h.early = map[int]syscall.Signal{}
	h.signals, end = procs.WatchStops()
	return end
}

// childStopped is told of each child that stops: a rank, or a process that a rank has left behind.
func (r *run) childStopped(pid int, by syscall.Signal) {
	if stopSignals[by] == "" {
		return
	}
	for i := range r.plan.Specs {
		rank := r.plan.Specs[i].Rank
		if st := r.ranks[rank]; st.started && st.pid == pid {
			r.rankStopped(rank, by)
			return
		}
	}
	r.stops.early[pid] = by
}

func (r *run) rankStopped(rank int, by syscall.Signal) {
	r.say("rank %d (pid %d on host %s) was stopped by the terminal (signal %d, %s): it reads from the terminal or "+
		"changes it, which only the foreground may, and ranks are in the background; end the job by Ctrl-C",
		rank, r.ranks[rank].pid, r.hostOf(rank), int(by), stopSignals[by])
}

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
	h.signals, end = procs.WatchStops()
	return end
}

// childStopped is told of each child that stops: a rank, also of a spawned job, or a process that one has left behind.
func (r *run) childStopped(pid int, by syscall.Signal) {
	if stopSignals[by] == "" {
		return
	}
	for rank, st := range r.ranks {
		if st.host == "" && st.started && st.pid == pid {
			r.rankStopped(rank, by)
			return
		}
	}
	if r.stops.early == nil {
		r.stops.early = map[int]syscall.Signal{}
	}
	r.stops.early[pid] = by
	for s := range r.spawns.begun() {
		s.run.call(func() { s.run.childStopped(pid, by) })
	}
}

func (r *run) rankStopped(rank int, by syscall.Signal) {
	r.say("%s (pid %d on host %s) was stopped by the terminal (signal %d, %s): it reads from the terminal or "+
		"changes it, which only the foreground may, and ranks are in the background; end the job by Ctrl-C",
		r.nameOf(rank), r.ranks[rank].pid, r.hostOf(rank), int(by), stopSignals[by])
}

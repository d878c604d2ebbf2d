package launcher

import "github.com/gorun-mpi/mpi/internal/procs"

import "strings"

// endings is how each rank has ended, of those that have been heard to; nil: it is not wanted.
type endings []*procs.Exit

func (all endings) note(e procs.Exit) {
	if all != nil {
		all[e.Rank] = &e
	}
}

// sayEndings says of each rank how it has ended (--print-all-exitcodes), but of the one whose end is the cause, which
// the last line is to say.
func (r *run) sayEndings() {
	for rank, e := range r.endings {
		switch {
		case e != nil && !r.policy.said && strings.HasPrefix(r.policy.cause, e.String()):
		case e != nil:
			r.say("%s", e)
		case r.ranks[rank].started:
			r.say("rank %d (pid %d on host %s) was lost", rank, r.ranks[rank].pid, r.hostOf(rank))
		default:
			r.say("rank %d (on host %s) was not started", rank, r.hostOf(rank))
		}
	}
}

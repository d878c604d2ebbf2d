package launcher

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/stdio"
)

const (
	// lingering is how long processes that the ranks left behind may go on after the last rank has ended well: the tee
	// of a wrapper script has its last lines to write.
	lingering = 500 * time.Millisecond
	// unreadAfterFailure is how long a destination of output may take nothing, after a job that has failed, before the
	// rest of the output is dropped; unreadWhenTold is the same when gorun is told to end meanwhile.
	unreadAfterFailure = 2 * time.Second
	unreadWhenTold     = 100 * time.Millisecond
	// closing is how long what holds nothing of the job's may take to be ended.
	closing = 5 * time.Second
)

// finish is the end of the job after the last rank's: nothing stays behind, all output is written.
//
// What the ranks of a job that has ended well have written is written out, however long its reader takes. After a
// failure, or when gorun is told to end, what the reader does not take is dropped.
func (r *run) finish() int {
	r.leaving = true
	if r.fleet != nil {
		r.fleet.dismiss()
	}
	if r.backend != nil {
		r.endLocal()
	}
	r.stopInput()
	if r.fleet != nil {
		r.awaitOutput(r.fleet.finished)
		r.await(r.fleet.close, closing)
	}
	r.print(action{say: r.streams.Summary()})
	r.sayEndings()
	if d := r.policy.deaths; d != nil && r.parent == nil && r.spawned == nil && r.policy.phase == working {
		if line := d.summary(); line != "" {
			r.say("%s", line)
		}
	}
	r.print(r.policy.last()) // nothing follows the cause
	if r.spawned != nil {
		return r.policy.code // the outlets are of the first job, which goes on
	}
	for _, o := range r.streams.Outlets() {
		r.awaitOutput(o.Flush)
		r.account(o)
	}
	return r.policy.result()
}

// endLocal ends what is left on this host, and reads the output to its end.
func (r *run) endLocal() {
	if r.policy.phase == working {
		r.await(r.streams.Drain, lingering)
	}
	r.await(r.backend.Close, closing)
	r.stopInput()
	r.streams.GiveUp()
	r.awaitOutput(r.streams.Drain)
}

// stopInput feeds no more of the standard input. It may be called again.
func (r *run) stopInput() {
	r.await(r.streams.StopInput, lingering) // another process may have taken what it is about to read
}

// account makes what became of an outlet a part of the job's result.
func (r *run) account(o *stdio.Outlet) {
	lost, err := o.Result()
	switch {
	case err != nil:
		r.unwritten(err)
	case lost > 0 && !r.toldToEnd:
		r.say("the reader of the output takes no more: %d bytes of it are dropped", lost)
	}
}

// unwritten reports that output cannot be written.
func (r *run) unwritten(err error) {
	a := r.policy.unwritten(time.Now(), err)
	if r.leaving {
		a.signal = 0 // there are no ranks
	}
	r.do(a)
}

// leave drops the output that is not taken, which is all that is left.
func (r *run) leave(code int, cause string) {
	r.toldToEnd = true
	r.do(r.policy.leave(code, cause))
}

// await calls f, and supervises until it has returned, but not longer than limit.
func (r *run) await(f func(), limit time.Duration) {
	done := make(chan struct{})
	end := sync.OnceFunc(func() { close(done) })
	t := time.AfterFunc(limit, end)
	defer t.Stop()
	go func() { f(); end() }()
	for r.step(done) {
	}
}

// awaitOutput calls f, which waits for output to be written, and supervises until it has returned.
func (r *run) awaitOutput(f func()) {
	t := time.NewTicker(unreadWhenTold / 2)
	defer t.Stop()
	r.check = t.C
	r.await(f, math.MaxInt64)
	r.check = nil
}

// checkOutput drops what is not taken.
func (r *run) checkOutput() {
	if r.policy.phase == working || r.spawned != nil && !r.spawned.ending {
		return
	}
	limit, patience := unreadAfterFailure, 2*closing
	if r.toldToEnd {
		limit, patience = unreadWhenTold, unreadAfterFailure
	}
	quiet := true
	for _, o := range r.streams.Outlets() {
		stalled := o.Stalled()
		if quiet = quiet && stalled == 0; stalled > limit {
			o.Drop()
		}
	}
	r.fleet.abandon(patience, quiet)
}

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
	if r.spawned != nil && r.spawned.failed {
		return // that was said
	}
	for rank, e := range r.endings {
		var text string
		if e != nil {
			text = r.job.titled(*e).String()
		}
		switch {
		case e != nil && !r.policy.said && strings.HasPrefix(r.policy.cause, text):
		case e != nil:
			r.say("%s", text)
		case r.ranks[rank].started:
			r.say("%s (pid %d on host %s) was lost", r.nameOf(rank), r.ranks[rank].pid, r.hostOf(rank))
		default:
			r.say("%s (on host %s) was not started", r.nameOf(rank), r.hostOf(rank))
		}
	}
}

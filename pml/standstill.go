package pml

import "slices"

// Ranks of one process that all sleep in calls, each for what only another one of them can do, never move again. Their
// engines show it: nothing has come, nothing is to be done, nothing is under way that goes on without a call.

// Awaited is what a rank waits for.
type Awaited struct {
	What    AwaitedKind
	Rank    int32  // that could end the wait, or AnySource
	Ctx     uint32 // of AwaitsMessage and AwaitsMatch; of AwaitsWord, of the calls that use the board, if it is known
	Tag     int32
	Bytes   int64 // of the message, or of the room for it
	InRound bool  // of an operation of several rounds
	Owner   int32 // of AwaitsWord, where any rank may raise it: the rank that has the line
}

// AwaitedKind says what a rank could do that would end a wait.
type AwaitedKind uint8

const (
	AwaitsMessage AwaitedKind = iota // send
	AwaitsMatch                      // receive what has been sent, or some of what has been sent before
	AwaitsWord                       // raise its word on a board, or answer
)

// Stand reports whether each rank of these jobs seems to wait, which StandStill then looks at as a whole. It makes no
// garbage, so that it can be asked again and again while ranks work.
func Stand(jobs [][]*Engine) bool {
	for _, ranks := range jobs {
		for _, e := range ranks {
			e.lock()
			stands := e.stands()
			e.unlock()
			if !stands {
				return false
			}
		}
	}
	return true
}

// StandStill looks whether the ranks of these jobs, all of this process, can do nothing unless a goroutine calls the
// library. still is called if so, with the locks of all: it does not call the library. It gets what each rank of each
// job waits for. Otherwise, or where that cannot be known, nothing happens. Whether other goroutines could call is not
// looked at. Callers name the jobs in one order: their engines are locked in that order.
func StandStill(jobs [][]*Engine, still func([][]*Snapshot)) {
	all := slices.Concat(jobs...)
	for _, e := range all { // as FailAll
		e.lock()
	}
	defer func() {
		for _, e := range all {
			e.exitCall()
			e.unlock()
		}
	}()
	for _, e := range all {
		if !e.standsOnLook() {
			return
		}
		e.exitCall() // what it leaves to do is done now
	}
	found, asleep := make([][]*Snapshot, len(jobs)), 0
	for i, ranks := range jobs {
		for _, e := range ranks {
			if !e.standsOnLook() { // what another one has done
				return
			}
			s := e.snapshot()
			if waitsForReturned(s, ranks) {
				return // the rank that has returned says so
			}
			found[i] = append(found[i], s)
			asleep += s.Asleep
		}
	}
	if asleep > 0 { // else all are at their end
		still(found)
	}
}

// stands reports whether this rank rests, and a caller of it sleeps, or it has returned: a rank that computes does not
// stand.
func (e *Engine) stands() bool {
	return e.rests() && (e.links.vigil.returned || e.wait.followers > 0 || e.wait.leader == leaderParked)
}

// standsOnLook reports whether this rank stands after a look at its device.
func (e *Engine) standsOnLook() bool {
	return e.stands() && (!e.wait.mayPoll() || e.progress() == 0) && e.stands()
}

// waitsForReturned reports whether a caller waits for one of ranks that has returned.
func waitsForReturned(s *Snapshot, ranks []*Engine) bool {
	for _, by := range s.Sleepers {
		for _, a := range by.Awaited {
			if a.Rank >= 0 && ranks[a.Rank].links.vigil.returned {
				return true
			}
		}
	}
	return false
}

// rests reports whether nothing goes on by itself at this rank, and no wait can end but by what another rank does. Only
// a device of this process alone has no packets on their way that it does not show, and no connection to mend.
func (e *Engine) rests() bool {
	wakes := e.dev.Facts().Wake
	return len(wakes) == 1 && wakes[0].FD < 0 && e.quiet()
}

// quiet reports whether this rank rests as far as it knows: packets may be on their way.
func (e *Engine) quiet() bool {
	l, w := &e.links, &e.wait
	if e.closed != nil || !e.direct || l.offload.busy() || len(e.recovery.losses) != 0 {
		return false
	}
	if w.leader != noLeader && w.leader != leaderParked || w.watcher != watcherAsleep || w.mayEnd != 0 ||
		e.load.pending != 0 || e.load.stalled != 0 || e.schedules.working != 0 {
		return false
	}
	for t := range l.transfers.values() {
		if !t.unmatched() {
			return false
		}
	}
	if a := l.transfers.accel; a != nil && (len(a.under)+len(a.streams)+a.aside > 0) {
		return false
	}
	for _, p := range l.peers {
		if p != nil && (p.connecting || p.err != nil || p.control.len() > 0) {
			return false
		}
	}
	for _, b := range e.boards.all {
		if b.err != nil || b.r != nil && b.Lines[b.line].Word.Load() >= b.least {
			return false
		}
	}
	return true
}

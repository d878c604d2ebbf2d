package pml

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
}

// AwaitedKind says what a rank could do that would end a wait.
type AwaitedKind uint8

const (
	AwaitsMessage AwaitedKind = iota // send
	AwaitsMatch                      // receive what has been sent, or some of what has been sent before
	AwaitsWord                       // raise its word on a board, or answer
)

// Standstill is what the ranks of a job wait for.
type Standstill struct {
	Ranks     []*Snapshot
	Asleep    int // callers that sleep, of all ranks
	completed uint
}

// SameAs reports whether no wait has ended since an earlier look.
func (s *Standstill) SameAs(before *Standstill) bool {
	return before != nil && s.Asleep == before.Asleep && s.completed == before.completed
}

// StandsStill looks whether ranks, which are all of a job, can do nothing unless a goroutine calls the library. still
// is called if so, with the locks of all: it does not call the library. Otherwise, or where that cannot be known, the
// result is nil. Whether other goroutines could call is not looked at.
func StandsStill(ranks []*Engine, still func(*Standstill)) {
	for _, e := range ranks {
		e.lock()
		rests := e.rests()
		e.unlock()
		if !rests {
			return
		}
	}
	for _, e := range ranks { // as FailAll
		e.lock()
	}
	defer func() {
		for _, e := range ranks {
			e.exitCall()
			e.unlock()
		}
	}()
	s := &Standstill{Ranks: make([]*Snapshot, len(ranks))}
	for i, e := range ranks {
		if !e.rests() || e.wait.mayPoll() && e.progress() != 0 {
			return
		}
		s.completed += e.load.completed
		s.Ranks[i] = e.snapshot()
		s.Asleep += s.Ranks[i].Asleep
	}
	for i, e := range ranks {
		if !e.rests() { // what another one has done
			return
		}
		for _, by := range s.Ranks[i].Sleepers {
			for _, a := range by.Awaited {
				if a.Rank >= 0 && ranks[a.Rank].links.vigil.returned {
					return // that rank has returned, and says so
				}
			}
		}
	}
	if s.Asleep > 0 { // else all are at their end
		still(s)
	}
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
	if e.closed != nil || !e.direct || l.offload.dev != nil || l.lost != nil {
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

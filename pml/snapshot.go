package pml

import (
	"fmt"
	"iter"
	"slices"
	"time"
)

// What the callers of a rank wait for, for a user who asks. A caller that goes to sleep leaves a mark in each request
// that it waits for (waitFor.attach), by which it is woken. So what it waits for is found when a user asks, and is
// noted nowhere before.

// Snapshot is what the callers of a rank wait for at one moment.
type Snapshot struct {
	Quiet    bool // nothing goes on by itself, and no wait can end but by what another rank does
	Returned bool // this rank makes no call any more: see Engine.Return
	Asleep   int  // callers that sleep
	Moved    uint64
	Sent     uint64 // messages
	Taken    uint64 // messages that have come
	Sleepers []Sleeper
	Unasked  []Unasked // in the order of their arrival, of all contexts
	Held     []Held
}

// Sleeper is a caller that sleeps.
type Sleeper struct {
	Awaited []Awaited
	Leads   bool
	For     time.Duration // for how long at least
	IDs     []string      // of its requests, as a goroutine's stack has them
	mark    *sema
}

// Unasked is a message that no receive has asked for.
type Unasked struct {
	Ctx         uint32
	Source, Tag int32
}

// Held are locks of a window that this rank has.
type Held struct {
	Ctx   uint32  // of the window's messages
	Ranks []int32 // see Handler.Locks
}

// parks says since when a caller has slept, again and again, while no operation of its rank has completed.
type parks struct {
	completed uint // load.completed at the first of these sleeps
	since     time.Time
}

// begin is called when the caller goes to sleep.
func (p *parks) begin(e *Engine) {
	if p.since.IsZero() || p.completed != e.load.completed {
		*p = parks{e.load.completed, e.pace.now()}
	}
}

// mostUnasked messages are in a Snapshot.
const mostUnasked = 1000

// Glance is a Snapshot of the counts alone.
func (e *Engine) Glance() *Snapshot {
	e.lock()
	defer e.unlock()
	return e.glance()
}

// Snapshot calls with, under the engine's lock: it does not call the library.
func (e *Engine) Snapshot(with func(*Snapshot)) {
	e.lock()
	defer e.unlock()
	with(e.snapshot())
}

func (e *Engine) glance() *Snapshot {
	s := &Snapshot{Quiet: e.quiet(), Returned: e.links.vigil.returned, Asleep: e.wait.followers}
	if e.wait.leader == leaderParked {
		s.Asleep++
	}
	st, waiting := e.path.count(e.stats), uint64(e.links.table.Unexpected())+e.links.aside
	s.Sent = st.EagerSent + st.RendezvousSent + e.windows.notes.sent
	s.Taken = st.MatchedOnArrival + st.Matched + waiting
	s.Moved = uint64(e.load.completed) + s.Sent + s.Taken + st.Matched
	return s
}

func (e *Engine) snapshot() *Snapshot {
	s := e.glance()
	awaited := e.links.awaitedBy()
	if t, ok := e.path.(*taggedPath); ok {
		awaited = t.awaitedBy()
	}
	for a, r := range awaited {
		s.note(e, a, r)
	}
	for _, m := range e.links.table.Messages(mostUnasked) {
		s.Unasked = append(s.Unasked, Unasked{m.Ctx, m.Source, m.Tag})
	}
	for _, b := range e.boards.all {
		if b.locks != nil {
			s.holds(b.ctx, b.locks())
		}
	}
	for _, w := range e.windows.open {
		s.holds(w.ctx, w.handle.Locks())
	}
	return s
}

// holds adds the locks of a window.
func (s *Snapshot) holds(ctx uint32, ranks []int32) {
	if len(ranks) > 0 {
		s.Held = append(s.Held, Held{ctx, ranks})
	}
}

// note adds what r waits for to the sleeper whose mark it has, if it has one.
func (s *Snapshot) note(e *Engine, a Awaited, r *Request) {
	holder := r.holder()
	if holder.w == nil {
		return
	}
	i := 0
	for i < len(s.Sleepers) && s.Sleepers[i].mark != holder.w {
		i++
	}
	if i == len(s.Sleepers) {
		s.Sleepers = append(s.Sleepers, Sleeper{mark: holder.w, Leads: holder.w == &e.parked,
			For: e.pace.now().Sub(holder.w.since)})
	}
	by := &s.Sleepers[i]
	by.Awaited = append(by.Awaited, a)
	by.IDs = append(by.IDs, fmt.Sprintf("%p", holder))
}

// holder is the request that a caller waits for, of which r may be a part.
func (r *Request) holder() *Request {
	switch {
	case r.w != nil:
	case r.extra && r.rounds != nil && r.rounds.front != nil:
		return r.rounds.front
	case r.other != nil:
		return r.other
	case r.extra && r.proxy != nil:
		return r.proxy
	}
	return r
}

// awaits is what r waits for, from a rank or of it.
func (r *Request) awaits(what AwaitedKind, rank int32) Awaited {
	return Awaited{What: what, Rank: rank, Ctx: r.recv.Ctx, Tag: r.recv.Tag, Bytes: int64(r.buf.Len),
		InRound: r.extra && r.rounds != nil}
}

// awaitedBy is what the requests of this rank wait for.
func (t *taggedPath) awaitedBy() iter.Seq2[Awaited, *Request] {
	return func(yield func(Awaited, *Request) bool) {
		for _, r := range slices.Concat(t.all(), t.e.probers) {
			what := AwaitsMessage
			if r.sends() {
				what = AwaitsMatch
			}
			skip := r.op == opLost || r.serves() || r.takes() || t.e.serverWaits(r)
			if !skip && !yield(r.awaits(what, r.recv.Source), r) {
				return
			}
		}
	}
}

// awaitedBy is what the requests of this rank wait for.
func (l *linkPath) awaitedBy() iter.Seq2[Awaited, *Request] {
	return func(yield func(Awaited, *Request) bool) {
		add := func(what AwaitedKind, rank int32, r *Request) bool { return yield(r.awaits(what, rank), r) }
		for _, posted := range l.table.Receives() {
			r, ok := posted.Owner.(*Request)
			if ok && !r.serves() && !l.e.serverWaits(r) && !add(AwaitsMessage, posted.Source, r) {
				return
			}
		}
		for _, r := range l.e.probers {
			if !l.e.serverWaits(r) && !add(AwaitsMessage, r.recv.Source, r) {
				return
			}
		}
		for t := range l.transfers.values() {
			what := AwaitsMatch
			switch {
			case t.one.reach != nil:
				what = AwaitsWord
			case t.r.op == opLink: // this rank's device registers memory
				continue
			case t.recv:
				what = AwaitsMessage
			}
			if !add(what, t.peer.rank, t.r) {
				return
			}
		}
		for _, p := range l.peers {
			if p == nil {
				continue
			}
			for _, r := range p.queue.items() {
				if r.transfer == nil && !add(AwaitsMatch, p.rank, r) {
					return
				}
			}
		}
		for _, b := range l.e.boards.all {
			if b.r == nil {
				continue
			}
			by := b.raisers()
			if len(by) == 0 {
				by = []int32{AnySource}
			}
			for _, rank := range by {
				if !yield(Awaited{What: AwaitsWord, Rank: rank, Ctx: b.ctx, Owner: b.owner()[0]}, b.r) {
					return
				}
			}
		}
	}
}

package pml

import (
	"errors"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/tagmatch"
)

// A rank that has returned makes no call any more and has nothing under way, so a wait for it would never end. A rank
// that has waited for a while asks the ranks that it waits for to say when they have returned (Watch). The answer
// (Returned) goes over the link that all messages of that rank have gone over, and the rank sends it behind them: what
// is not here when the answer comes never comes. From then on calls for that rank fail as for one that has died.
//
// A wait for any source goes on: a rank may send to itself. So does a wait for a rank that is waiting in turn, and one
// for a server (see Engine.StartServer), which answers also when its rank has returned.

// vigil asks ranks whether they have returned.
type vigil struct {
	l        *linkPath
	returned bool // this rank has returned
	// timer calls look while runs is set: from a sleep of a caller on, as long as operations are under way.
	timer *time.Timer
	runs  bool
	looks uint // that there have been
	asked int  // ranks, since the last one
}

const (
	// vigilAfter is for how long operations are under way before a rank asks, and then how often it looks.
	vigilAfter = time.Second
	// vigilMost ranks are asked at a time: asking may make a connection.
	vigilMost = 16
)

// farewell is what a rank and a peer say to each other of their ends.
type farewell struct {
	asked, asks, answered bool  // this rank has asked it; it has asked this rank, and has been told
	sought                bool  // the peer is said to have failed: it counts that no connection can be made
	probed                uint  // vigil.looks + 1 when a probe has first found nothing of it; 0: none has
	err                   error // it has returned: why waits for it end
}

// begin is called when a caller is about to sleep.
func (v *vigil) begin() {
	if v.runs || !v.l.e.direct || v.l.offload.dev != nil { // a device that matches delivers behind the answer
		return
	}
	v.runs = true
	if v.timer == nil {
		v.timer = time.AfterFunc(vigilAfter, v.look)
	} else {
		v.timer.Reset(vigilAfter)
	}
}

// end is called when the engine is closed.
func (v *vigil) end() {
	if v.timer != nil {
		v.timer.Stop()
	}
}

// foundNone is called where a probe that does not wait has found no message of rank. One that does so again after at
// least a second is taken for a loop, and asks.
func (v *vigil) foundNone(rank int32) {
	p := v.l.peer(rank)
	if p.end.asked {
		return
	}
	switch v.begin(); {
	case !v.runs: // there is no place for the question
	case p.end.probed == 0:
		p.end.probed = v.looks + 1
	case v.looks > p.end.probed:
		v.ask(p)
	}
}

// look asks the ranks that this one waits for, and ends the waits for a rank that has said that it has returned.
func (v *vigil) look() {
	e := v.l.e
	e.lock()
	defer e.unlock()
	v.looks++
	v.asked = 0
	if v.runs = false; e.closed != nil || e.load.outstanding == 0 {
		return
	}
	v.l.awaited(func(rank int32) {
		if rank < 0 {
			return
		}
		if p := v.l.peer(rank); p.end.err != nil {
			p.endWaits()
		} else {
			v.ask(p)
		}
	})
	v.begin()
	e.exitCall()
}

// ask asks p to say when it has returned, once.
func (v *vigil) ask(p *peer) {
	if p.err == nil && !p.end.asked && int(p.rank) != v.l.e.cfg.Rank && v.asked < vigilMost {
		p.end.asked = true
		v.asked++
		p.sendControl(wire.Header{Kind: wire.Watch, Flags: wire.Wake | wire.Urgent})
	}
}

// awaited calls yield for each rank that something waits for, perhaps more than once.
func (l *linkPath) awaited(yield func(rank int32)) {
	for _, source := range l.table.Sources() {
		yield(source)
	}
	for _, r := range l.e.probers {
		yield(r.status.Source)
	}
	for t := range l.transfers.values() {
		if t.unmatched() {
			yield(t.peer.rank)
		}
	}
	for _, p := range l.peers {
		if p != nil && p.queue.len() > 0 {
			yield(p.rank)
		}
	}
	for _, b := range l.e.boards.all {
		if b.r != nil {
			for _, rank := range b.raisers() {
				yield(rank)
			}
		}
	}
}

// unmatched reports whether the receiver has not begun to receive the message, as far as is known here.
func (t *transfer) unmatched() bool {
	return !t.recv && t.failed == nil && t.r.op != opLink && !t.snd.Asked()
}

// onWatch is called when p wants to know when this rank has returned.
func (p *peer) onWatch() {
	p.end.asks = true
	p.sayReturned()
}

// sayReturned tells p, if it has asked, that this rank has returned.
func (p *peer) sayReturned() {
	if p.l.vigil.returned && p.end.asks && !p.end.answered && p.err == nil {
		p.end.answered = true
		p.sendControl(wire.Header{Kind: wire.Returned, Flags: wire.Wake | wire.Urgent})
	}
}

// onReturned is called when p makes no call any more, and has nothing under way.
func (p *peer) onReturned() {
	if p.end.err == nil {
		p.end.err = &PeerError{int(p.rank), ErrReturned}
		p.l.needsCheck++
		p.endWaits()
	}
}

// endWaits ends what waits for p, which has returned.
func (p *peer) endWaits() {
	l, err := p.l, p.end.err
	l.failReceives(l.table.FailSource(p.rank, func(m *tagmatch.Receive) bool {
		return l.e.server.has(m.Ctx, m.Tag)
	}), err)
	l.e.probers.end(l.e, func(r *Request) bool { return r.status.Source == p.rank }, err)
	for t := range l.transfers.values() {
		if t.peer == p && t.unmatched() && !t.r.queued && !l.e.server.has(t.r.recv.Ctx, t.r.recv.Tag) {
			t.snd.Abandon()
			l.transfers.end(t, err)
		}
	}
	p.queue.deleteFunc(func(r *Request) bool {
		if l.e.server.has(r.recv.Ctx, r.recv.Tag) {
			return false
		}
		l.dequeued(r)
		l.e.complete(r, err)
		return true
	})
	l.e.boards.returned(p.rank, err)
	p.flush()
}

// returned is called when a member of boards has returned. It has raised all words that it ever raises.
func (s *boards) returned(rank int32, err error) {
	for _, b := range s.all {
		if b.r == nil || b.Lines[b.line].Word.Load() >= b.least {
			continue
		}
		switch {
		case !slices.Contains(b.raisers(), rank):
		case b.from == nil:
			b.fail(slices.Index(b.members, rank), err)
		default: // others may go on with what this rank does not wait for
			b.Forget()
			b.endWait(err)
		}
	}
}

// raisers are the ranks of the world that have still to raise the word that is waited for.
func (b *Board) raisers() []int32 {
	if b.from != nil {
		return b.from
	}
	return b.owner()
}

// owner is the rank of the world that has the line with the word.
func (b *Board) owner() []int32 { return b.members[b.line*len(b.members)/len(b.Lines):][:1] }

// whyReturned is what a board is told of a member that has returned while others wait for it.
const whyReturned = "it has returned"

// leave is called when this rank makes no call any more: a member that waits for one would wait for ever.
func (s *boards) leave(e *Engine) {
	for _, b := range s.all {
		if b.locks != nil && len(b.locks()) > 0 { // members may wait for what this rank would do if it called on
			me := int32(e.cfg.Rank)
			b.Fail(slices.Index(b.members, me), []byte(whyReturned))
			b.end(&PeerError{int(me), ErrReturned})
		}
	}
}

// Return is called when this rank makes no call any more and has nothing under way. Ranks that wait for it hear of
// that. The engine still reads the packets of others until it is closed: ranks of one process end one by one, and the
// last packets of a rank, such as credit, may find a link full.
func (e *Engine) Return() {
	e.lock()
	defer e.unlock()
	e.links.vigil.returned, e.load.ended = true, true
	e.boards.leave(e)
	e.windows.returned()
	e.wait.isNot() // it may be armed for what is urgent alone
	for _, p := range e.links.peers {
		if p != nil {
			p.sayReturned()
		}
	}
	e.arm()
}

// Gone says why a rank of the world makes no call any more: it has failed, or this rank has heard that it has returned.
// nil: neither is known.
func (e *Engine) Gone(rank int) error {
	e.lock()
	defer e.unlock()
	return e.path.gone(int32(rank))
}

// inVain says why a message with that context and tag will not come from, or go to, a rank; nil: it may.
func (e *Engine) inVain(rank int32, ctx uint32, tag int32) error {
	if err := e.recovery.revoked[ctx]; err != nil {
		return err
	}
	err := e.lost(rank, ctx)
	if err != nil && errors.Is(err, ErrReturned) && e.server.has(ctx, tag) {
		return nil
	}
	return err
}

// onlyAsks reports whether the connection that is being made is for a question or an answer of this file, and nothing
// else.
func (p *peer) onlyAsks() bool {
	if p.end.sought || p.control.len() == 0 {
		return false
	}
	for _, h := range p.control.items() {
		if h.Kind != wire.Watch && h.Kind != wire.Returned {
			return false
		}
	}
	return p.queue.len() == 0 && len(p.starters)+len(p.linked) == 0
}

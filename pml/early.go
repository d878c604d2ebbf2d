package pml

import (
	"slices"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A send of a short message for which a caller waits ends without a match as long as its receiver waits or takes
// messages. Where the message was announced (its sender had no credit for the payload, or has measured that announcing
// is faster), the sender says that its caller is blocked: in the RTS (wire.Blocking), or, if the caller has come later,
// by a packet of its own (wire.Blocked). A receiver that waits for something that does not come then
// fetches the message before it is matched, and grants the sender that had no credit more.

// early is where an announced message is that is fetched before it is matched.
type early uint8

const (
	notEarly     early = iota
	earlyUnder         // a transfer has its buffer
	earlyDropped       // likewise, and nothing will receive it
	earlyHere          // it is here, or will not come: its sender has failed
)

// blocking: the caller of r's sender is blocked in it, though the message is short.
func (p *peer) blocking(r *Request) uint8 {
	switch {
	case r.vain < isBlocked || r.mode != Standard || r.buf.Len > p.out.Limit():
		return 0
	case r.announce:
		return wire.Blocking
	}
	return wire.Blocking | wire.NoCredit
}

// sending returns the send of an Isendrecv that is under way, what a proxy is for, and any other request as it is.
func (r *Request) sending() *Request {
	if r.op == opProxy && r.proxied != nil {
		return r.proxied
	}
	if r.op == opRecv && r.other != nil {
		return r.other
	}
	return r
}

// saysBlocked tells the receiver of r that a caller waits for r, if r is a send that was announced while its caller did
// not wait. If r is still queued, its RTS will say so.
func (l *linkPath) saysBlocked(r *Request) {
	r = r.sending()
	if r.op != opSend || r.state != stActive || r.vain >= isBlocked {
		return
	}
	if r.vain = isBlocked; r.queued || r.transfer == nil || r.transfer.snd.Asked() {
		return
	}
	if flags := r.peer.blocking(r); flags != 0 {
		r.peer.sendControl(wire.Header{Kind: wire.Blocked, Flags: flags | wire.Urgent, ID: r.transfer.id})
	}
}

// triedInVain counts a look at r that found it not done. After some of them its caller is said to wait.
func (l *linkPath) triedInVain(r *Request) {
	r = r.sending()
	if r.op != opSend || r.vain >= isBlocked {
		return
	}
	if r.vain+1 < fruitless {
		r.vain++
		return
	}
	l.saysBlocked(r)
}

// onBlocked is called when a caller of p waits for the message ID.
func (l *linkPath) onBlocked(p *peer, h *wire.Header) {
	u := p.find(h.ID)
	if u == nil || u.blocks() || u.Kind != wire.RTS {
		return
	}
	if u.Flags |= wire.Blocking | h.Flags&wire.NoCredit; u.blocks() {
		p.blocked++
		l.wants(p)
	}
}

// blocks reports whether the sender's caller is blocked in the send of u, and the message can be fetched.
func (u *unexpected) blocks() bool {
	return u.Kind == wire.RTS && u.Flags&wire.Blocking != 0 && u.Size <= eager.MaxFetch
}

const (
	// fruitless is how many looks that find nothing it takes until a rank is said to wait whose caller does not block.
	fruitless = 64
	// isBlocked is the value of Request.vain of a send whose caller waits.
	isBlocked = 255
	// patience is how many visits of letSendersGoOn a sender waits while messages come that are matched.
	patience = 1000
)

// foundNothing is called where a caller asks for something that has not come, and does not wait in the library for it:
// such a caller may do so in a loop. w is what it asks for.
func (l *linkPath) foundNothing(w *waitFor) {
	l.unmatched = l.unmatched || l.transfers.inbound > 0 && len(l.wanting) > 0 && w.asksUnmatched()
	if l.fruitless++; l.fruitless >= fruitless {
		l.letSendersGoOn(w)
	}
}

// letSendersGoOn is called where a caller waits for something that has not come for a while, which may depend on any
// sender; it reports whether one goes on. A caller that waits for the rest of a matched message needs no sender to go
// on. w is what the caller of this function waits for, if it is known; callers that sleep wait too.
func (l *linkPath) letSendersGoOn(w *waitFor) (found bool) {
	if !l.e.direct {
		l.fruitless = 0
		return l.e.path.stalled()
	}
	rest := l.transfers.inbound > 0 && len(l.wanting) > 0 && !l.unmatched && !l.awaitsUnmatched(w)
	l.fruitless, l.unheard, l.unmatched = 0, false, false
	for i := len(l.wanting) - 1; i >= 0; i = min(i, len(l.wanting)) - 1 {
		p := l.wanting[i]
		if stuck := p.in.Stuck(); rest {
			if p.passedOver++; !stuck {
				p.passedOver = 0
			}
			if p.passedOver < patience {
				continue
			}
		}
		p.passedOver = 0
		found = true
		if p.in.Wants() {
			p.serve()
		}
		// The sender's latest is the first that is looked at: a rank whose one goroutine is blocked has sent nothing
		// since.
		for u := p.asked; u != nil && p.blocked > 0; {
			older := u.older
			if u.blocks() {
				l.fetch(u)
			}
			u = older
		}
	}
	return found
}

// asksUnmatched reports whether w is a probe, a receive that has just been posted, or has a receive that no message has
// been matched with.
func (w *waitFor) asksUnmatched() bool {
	if w.r == nil && len(w.set.set) == 0 {
		return !w.flush
	}
	found := false
	w.each(func(r *Request) { found = found || r.isUnmatched() })
	return found
}

func (r *Request) isUnmatched() bool {
	if r.op == opProxy && r.proxied != nil {
		r = r.proxied
	}
	return r.op == opRecv && r.state == stActive && r.transfer == nil
}

// awaitsUnmatched reports whether a caller waits for a message that no receive has been matched with: that of w, or one
// that sleeps.
func (l *linkPath) awaitsUnmatched(w *waitFor) bool {
	callers := func(r *Request) bool { return !l.e.serverWaits(r) }
	if w != nil && w.asksUnmatched() || slices.ContainsFunc(l.e.probers, callers) {
		return true
	}
	for _, posted := range l.table.Receives() {
		r := posted.Owner.(*Request)
		if r.w != nil || r.done != nil || r.rounds != nil || r.proxy != nil {
			return true
		}
	}
	return false
}

// lookAgain wakes the goroutine that sleeps for all callers that wait, if senders are unheard.
func (l *linkPath) lookAgain() {
	e := l.e
	if !l.unheard || e.wait.computing() {
		return
	}
	e.wakeLeader()
	if e.wait.leader == noLeader && e.wait.wakeWatcher() {
		e.sleep.Interrupt()
	}
}

// hears calls letSendersGoOn for the watcher, which is about to sleep, if that is needed. It reports whether it has
// called it.
func (l *linkPath) hears() bool {
	if !l.unheard || l.e.wait.computing() {
		return false
	}
	l.letSendersGoOn(nil)
	return true
}

// fetch begins to fetch u, which is not matched.
func (l *linkPath) fetch(u *unexpected) {
	e, p, rts := l.e, u.peer, u.RTS()
	noCredit := u.Flags&wire.NoCredit != 0
	l.matched(u)
	l.early += l.store.Fetch(&u.Unexpected)
	u.early, u.ID = earlyUnder, 0
	r := e.requests.take()
	r.prepareRecv(nil, u.m.Ctx, int(p.rank), u.m.Tag, nil)
	r.op, r.state, r.err, r.detached = opEarly, stActive, nil, true
	r.buf = transport.HostMem(u.Payload)
	e.load.outstanding++
	e.load.detached++
	if l.fetches == nil {
		l.fetches = map[*Request]*unexpected{}
	}
	l.fetches[r] = u
	if noCredit {
		p.grow(eager.Cost(int(u.Size)))
	}
	l.transfers.receive(r, p, &rts)
}

// fetched is called when r, which was to fetch a message, is over.
func (l *linkPath) fetched(r *Request) {
	u := l.fetches[r]
	delete(l.fetches, r)
	err := r.err
	l.e.requests.putBack(r)
	to, dropped := u.to, u.early == earlyDropped
	u.to, u.early = nil, earlyHere
	if err == nil {
		u.Kind = wire.Eager
	}
	switch {
	case dropped:
		l.release(u)
	case to == nil && u.peer.err == nil:
		u.broken = err // for who receives it
	case to == nil:
	case err != nil:
		l.breaks(u, to, err)
	default:
		l.deliver(to, u)
	}
}

// breaks ends r, which was to get u: that could not be fetched.
func (l *linkPath) breaks(u *unexpected, r *Request, err error) {
	l.aside++
	l.release(u)
	l.e.complete(r, err)
}

package pml

import "github.com/gorun-mpi/mpi/internal/wire"

// Cancel asks for r to be cancelled; MPI 4.1 §3.8.4. It completes either cancelled or as if nothing had been asked.
func (e *Engine) Cancel(r *Request) error {
	e.lock()
	defer e.unlock()
	if r.state != stActive && r.state != stDone {
		return r.claim()
	}
	if r.state == stActive {
		e.cancel(r, nil)
		e.exitCall()
	}
	return nil
}

// cancel takes r back if that is possible, now or when the receiver has answered. why: the context's error, or nil for
// an explicit cancel, which is not an error.
func (e *Engine) cancel(r *Request, why error) {
	if r.part != nil {
		e.cancel(r.part, why)
	}
	switch {
	case r.state != stActive:
	case r.op == opProbe:
		e.dropProber(r)
		e.endCancelled(r, why)
	case r.op == opRecv && r.hand == handDown:
		e.cancelDown(r, why)
	case r.op == opRecv:
		if e.table.Cancel(&r.recv) {
			e.unhand(r)
			e.endCancelled(r, why)
		}
	case r.queued:
		p := r.peer
		for i, o := range p.queue {
			if o == r {
				p.queue = append(p.queue[:i], p.queue[i+1:]...)
				break
			}
		}
		r.queued = false
		e.endCancelled(r, why)
		e.flush(p)
	case r.id != 0 && !r.cancelling:
		r.cancelling = true
		r.cancelErr, r.extra = why, true
		// Wake: the receiver may be far from the library, with nothing of its own under way.
		e.sendControl(r.peer, wire.Header{Kind: wire.Cancel, Flags: wire.Wake | wire.Urgent, ID: r.id})
	}
}

func (e *Engine) endCancelled(r *Request, why error) {
	r.status.Cancelled, r.status.Bytes = true, 0
	e.complete(r, why)
}

// takeBack: the sender asks for its message ID back.
func (e *Engine) takeBack(p *peer, h *wire.Header) {
	reply := wire.Header{Kind: wire.CancelReply, Flags: wire.Urgent, ID: h.ID}
	for u := p.asked; u != nil; u = u.older {
		if u.id == h.ID && !u.taken {
			e.table.Remove(&u.m)
			p.debt.Unhold(u.cost)
			e.stats.UnexpectedBytes -= u.cost
			p.forget(u)
			e.owe(p, u.cost)
			e.freeUnexpected(u)
			reply.Len = 1
			break
		}
	}
	e.sendControl(p, reply)
}

// cancelled: the receiver's answer.
func (e *Engine) cancelled(p *peer, h *wire.Header) {
	r := e.ids.find(h.ID, p)
	if r == nil || r.op != opSend || !r.cancelling {
		return
	}
	if h.Len == 0 {
		return // matched: it completes in its own time
	}
	r.status.Cancelled, r.status.Bytes = true, 0
	e.endSend(r, r.cancelErr)
}

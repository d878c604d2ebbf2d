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
	if r.other != nil && !r.detached {
		e.cancel(r.other, why)
	}
	switch {
	case r.state != stActive:
	case r.op == opProbe:
		e.dropProber(r)
		e.endCancelled(r, why)
	case r.op == opRecv && r.offload.state == inDevice:
		e.cancelDown(r, why)
	case r.op == opRecv:
		if e.table.Cancel(&r.recv) {
			e.withdraw(r)
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
		e.dequeued(r)
		e.endCancelled(r, why)
		e.flush(p)
	case r.transfer != nil && !r.cancelling:
		r.cancelling = true
		r.cancelErr, r.extra = why, true
		// Wake: the receiver may be far from the library, with nothing of its own under way.
		e.sendControl(r.peer, wire.Header{Kind: wire.Cancel, Flags: wire.Wake | wire.Urgent, ID: r.transfer.id})
	}
}

func (e *Engine) endCancelled(r *Request, why error) {
	r.status.Cancelled, r.status.Bytes = true, 0
	e.complete(r, why)
}

// onCancel: the sender asks for its message ID back.
func (e *Engine) onCancel(p *peer, h *wire.Header) {
	reply := wire.Header{Kind: wire.CancelReply, Flags: wire.Urgent, ID: h.ID}
	for u := p.asked; u != nil; u = u.older {
		if u.id == h.ID && !u.taken {
			e.table.Remove(&u.m)
			p.debt.Unhold(u.cost)
			e.stats.UnexpectedBytes -= u.cost
			p.forget(u)
			e.returnCredit(p, u.cost)
			e.freeUnexpected(u)
			reply.Len = 1
			break
		}
	}
	e.sendControl(p, reply)
}

// onCancelReply: the receiver's answer.
func (e *Engine) onCancelReply(p *peer, h *wire.Header) {
	t := e.transfers.find(h.ID)
	if t == nil || t.peer != p || t.recv || !t.r.cancelling {
		return
	}
	if h.Len == 0 {
		return // matched: it completes in its own time
	}
	t.snd.Abandon()
	t.r.status.Cancelled, t.r.status.Bytes = true, 0
	e.end(t, t.r.cancelErr)
}

package pml

import "fmt"

// errBothNotCancelled means that an Isendrecv cannot be cancelled: Cancelled says that nothing was transferred. A short
// message has gone when Isendrecv returns, and the receiver of a long one may match it while this rank matches the
// receive.
var errBothNotCancelled = fmt.Errorf("%w: Isendrecv cannot be cancelled; start an Isend and an Irecv, and cancel these",
	ErrRequest)

// Cancel asks for r to be cancelled; MPI 4.1 §3.8.4. It completes either cancelled or as if nothing had been asked.
func (r *Request) Cancel() error {
	e := r.e
	e.lock()
	defer e.unlock()
	if r.state != stActive && r.state != stDone {
		return r.checkWaitable()
	}
	if r.op == opProxy {
		return errProxyNotCancelled
	}
	if r.op == opRounds {
		return errNotCancelled
	}
	if r.op == opRecv && r.mode == withSend {
		return errBothNotCancelled
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
	switch {
	case r.state != stActive:
	case r.other != nil && !r.detached:
		r.cancelBoth(e.path, why)
	case r.op == opRounds:
		e.schedules.cancel(r, why)
	case r.op == opBoard:
		e.boards.cancel(e, r, why)
	case r.op == opProxy:
		e.cancelProxy(r, why)
	case r.op == opProbe:
		e.probers = without(e.probers, r)
		e.endCancelled(r, why)
	default:
		e.path.cancel(r, why)
	}
}

// cancelBoth cancels both halves of an Isendrecv whose send is under way: its context has ended.
func (r *Request) cancelBoth(p path, why error) {
	if r.hold == holdHalf {
		p.cancel(r, why)
	}
	if r.other != nil {
		p.cancel(r.other, why)
	}
}

func (e *Engine) endCancelled(r *Request, why error) {
	r.status.Cancelled, r.status.Bytes = true, 0
	e.complete(r, why)
}

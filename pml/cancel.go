package pml

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
		e.probers = without(e.probers, r)
		e.endCancelled(r, why)
	default:
		e.path.cancel(r, why)
	}
}

func (e *Engine) endCancelled(r *Request, why error) {
	r.status.Cancelled, r.status.Bytes = true, 0
	e.complete(r, why)
}

package pml

// Cancel asks for r to be cancelled; MPI 4.1 §3.8.4. It completes either cancelled or as if nothing had been asked.
func (r *Request) Cancel() error {
	e := r.e
	e.lock()
	defer e.unlock()
	if r.state != stActive && r.state != stDone {
		return r.claim()
	}
	if r.op == opRounds {
		return errNotCancelled
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
	case r.op == opRecv && r.mode == withSend && why == nil: // what it has sent cannot be taken back any more
	case r.op == opRounds:
		e.schedules.cancel(r, why)
	case r.op == opProbe:
		e.probers = without(e.probers, r)
		e.endCancelled(r, why)
	default:
		e.path.cancel(r, why)
	}
}

// cancelBoth cancels an Isendrecv whose send is under way. Cancelled says that nothing was transferred, so the send is
// asked for first: if it is not taken back, nothing is cancelled (sendTakenBack). The end of a context is an error, which
// does not say that: then both are cancelled at once.
func (r *Request) cancelBoth(p path, why error) {
	if why == nil {
		if r.parts == bothUnderWay {
			p.cancel(r.other, nil)
		}
		return
	}
	if r.parts > 0 {
		p.cancel(r, why)
	}
	if r.other != nil {
		p.cancel(r.other, why)
	}
}

// sendTakenBack: s, the send of an Isendrecv, has been. It reports whether s is not over: it is when its receive is
// taken back too.
func (e *Engine) sendTakenBack(s *Request) bool {
	r := s.other
	if s.extra && s.parts == sendIsBack {
		return false // for the second time: its receive has been, too
	}
	s.extra, s.parts = true, sendIsBack
	if r.parts == 0 {
		e.receiveEnded(r, s)
	} else {
		e.path.cancel(r, nil)
	}
	return true
}

// receiveEnded: r, whose send s has been taken back, is over. If r has got a message, s is sent after all: the messages
// that were sent since may be received before it.
func (e *Engine) receiveEnded(r, s *Request) {
	if r.status.Cancelled {
		e.complete(s, nil)
		return
	}
	s.parts, s.cancelling = 0, false
	s.status.Cancelled, s.status.Bytes = false, int64(s.buf.Len)
	if e.closed != nil {
		e.complete(s, e.closed)
		return
	}
	e.path.send(s)
}

func (e *Engine) endCancelled(r *Request, why error) {
	r.status.Cancelled, r.status.Bytes = true, 0
	e.complete(r, why)
}

package pml

import (
	"context"
	"slices"

	"github.com/gorun-mpi/mpi/transport"
)

func (r *Request) prepareSend(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) {
	r.op, r.mode, r.announce, r.vain = opSend, mode, false, 0
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(dest), tag
	r.buf, r.cctx = transport.HostMem(buf), cc
}

// sendSlow is Send where the fast path said no. The lock is held, and is released.
func (e *Engine) sendSlow(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) error {
	announce := false
	if p := e.links.peers[dest]; p != nil && p.out.Measured(len(buf)) && mode == Standard {
		if announce = p.out.Tuner.Announce(len(buf)); !announce && p.out.Send(ctx, tag, buf) {
			e.links.sent(len(buf))
			e.unlock()
			return nil
		}
	}
	if mode == Standard && (!e.direct && e.sendBlocking(ctx, dest, tag, buf) ||
		!announce && e.links.sendAgain(ctx, dest, tag, buf)) {
		e.exitCall()
		e.unlock()
		return nil
	}
	r := e.requests.take()
	r.prepareSend(cc, ctx, dest, tag, buf, mode)
	r.announce, r.vain = announce, isBlocked
	e.wait.calling = true
	e.start(r)
	e.wait.calling = false
	e.await(r)
	err := r.err
	e.requests.putBack(r)
	e.exitCall()
	e.unlock()
	return err
}

// sendBlocking is sendNow whose caller waits until the message has left. It reports whether the message is sent.
func (e *Engine) sendBlocking(ctx uint32, dest int, tag int32, buf []byte) bool {
	e.wait.calling = true
	sent := e.links.sendNow(ctx, dest, tag, buf)
	e.wait.calling = false
	return sent
}

// SendDetached sends buf, or a copy of it, and does not wait. For buffered sends; Pending counts it. The error is that
// nothing can be sent any more.
func (e *Engine) SendDetached(ctx uint32, dest int, tag int32, buf []byte) error {
	e.lock()
	defer e.unlock()
	if e.links.sendNow(ctx, dest, tag, buf) {
		if !e.direct {
			e.exitCall() // the device may hold it
		}
		return nil
	}
	if e.links.sendAgain(ctx, dest, tag, buf) {
		e.exitCall()
		return nil
	}
	defer e.exitCall() // also where nothing is sent: that poll may have brought work
	if e.closed != nil {
		return e.closed
	}
	if err := e.inVain(int32(dest), ctx, tag); err != nil {
		return err
	}
	r := e.requests.take()
	r.prepareSend(nil, ctx, dest, tag, slices.Clone(buf), Standard)
	r.detached = true
	e.load.detached++
	e.start(r)
	return nil
}

// Sendrecv sends a message and receives another, whose status it returns; MPI 4.1 §3.10.
func (e *Engine) Sendrecv(cc context.Context, ctx uint32, dest int, stag int32, send []byte, source int, rtag int32,
	recv []byte) (Status, error) {
	e.lock()
	if e.links.sendNow(ctx, dest, stag, send) || e.links.sendAgain(ctx, dest, stag, send) {
		if st, landed := e.links.land(ctx, int32(source), rtag, recv, landPolls); landed {
			e.exitCall()
			e.unlock()
			return st, nil
		}
		return e.recvSlow(cc, ctx, source, rtag, recv)
	}
	r := e.startSendrecv(cc, ctx, dest, stag, send, source, rtag, recv, true)
	e.unlock()
	return r.Wait()
}

// Isendrecv starts a send and a receive as one request, whose status is the receive's; MPI 4.1 §3.10.
func (e *Engine) Isendrecv(cc context.Context, ctx uint32, dest int, stag int32, send []byte, source int, rtag int32,
	recv []byte) *Request {
	e.lock()
	defer e.unlock()
	return e.startSendrecv(cc, ctx, dest, stag, send, source, rtag, recv, false)
}

// startSendrecv is Isendrecv with the lock held. blocks: the caller waits for it at once.
func (e *Engine) startSendrecv(cc context.Context, ctx uint32, dest int, stag int32, send []byte, source int,
	rtag int32, recv []byte, blocks bool) *Request {
	r := e.requests.handle()
	r.prepareRecv(cc, ctx, source, rtag, recv)
	r.mode, r.hold, r.extra = withSend, holdHalf, true
	s := e.requests.take()
	s.prepareSend(nil, ctx, dest, stag, send, Standard)
	if s.detached, s.other, r.other = true, r, s; blocks {
		s.vain = isBlocked
	}
	e.load.detached++
	e.start(r)
	e.start(s)
	e.exitCall()
	return r
}

// start makes a prepared request active. It may be done when start returns.
func (e *Engine) start(r *Request) {
	r.state, r.err = stActive, nil
	r.status = Status{} // a request that was cancelled once is not for ever
	e.load.outstanding++
	if e.refuses {
		if err := e.refusal(r.recv.Ctx); err != nil {
			e.complete(r, err)
			return
		}
	}
	if r.op == opRecv {
		e.path.post(r)
		return
	}
	r.status = Status{Source: r.recv.Source, Tag: r.recv.Tag, Bytes: int64(r.buf.Len)}
	e.path.send(r)
}

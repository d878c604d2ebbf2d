package pml

import (
	"context"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
)

func (r *Request) prepareSend(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) {
	r.op, r.mode = opSend, mode
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(dest), tag
	r.buf, r.cctx = buf, cc
}

// sendSlow is Send where the fast path said no. The lock is held, and is released.
func (e *Engine) sendSlow(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) error {
	r := e.request()
	r.prepareSend(cc, ctx, dest, tag, buf, mode)
	e.wait.calling = true
	e.start(r)
	e.wait.calling = false
	e.await(r)
	err := r.err
	e.recycle(r)
	e.exitCall()
	e.unlock()
	return err
}

// SendDetached sends buf, which becomes the engine's, and does not wait. For buffered sends; Pending counts it. The
// error is that nothing can be sent any more.
func (e *Engine) SendDetached(ctx uint32, dest int, tag int32, buf []byte) error {
	e.lock()
	defer e.unlock()
	if e.closed != nil {
		return e.closed
	}
	if p := e.peers[dest]; p != nil && p.err != nil {
		return p.err
	}
	r := e.request()
	r.prepareSend(nil, ctx, dest, tag, buf, Standard)
	r.detached = true
	e.detached++
	e.start(r)
	e.exitCall()
	return nil
}

// Isendrecv starts a send and a receive as one request, whose status is the receive's; MPI 4.1 §3.10.
func (e *Engine) Isendrecv(cc context.Context, ctx uint32, dest int, stag int32, send []byte, source int, rtag int32, recv []byte) *Request {
	e.lock()
	r := e.handle()
	r.prepareRecv(cc, ctx, source, rtag, recv)
	r.parts = 1
	s := e.request()
	s.prepareSend(nil, ctx, dest, stag, send, Standard)
	s.detached, s.other, r.other = true, r, s
	e.detached++
	e.start(r)
	e.start(s)
	e.exitCall()
	e.unlock()
	return r
}

// start makes a prepared request active. It may be done when start returns.
func (e *Engine) start(r *Request) {
	r.state, r.err, r.cancelling, r.waited, r.ended = stActive, nil, false, false, false
	r.status = Status{} // a request that was cancelled once is not for ever
	e.outstanding++
	if e.closed != nil {
		e.complete(r, e.closed)
		return
	}
	if r.op == opRecv {
		e.post(r)
		return
	}
	r.status = Status{Source: r.recv.Source, Tag: r.recv.Tag, Bytes: int64(len(r.buf))}
	p := e.peer(r.recv.Source) // not in post: a receive needs no peer until it is matched
	r.peer = p
	if p.err != nil {
		e.complete(r, p.err)
		return
	}
	if len(p.queue) == 0 && p.link != nil {
		switch e.trySend(p, r) {
		case sendTaken:
			if e.todo.self {
				e.drainSelf()
			}
			return
		case sendFull:
			e.markBlocked(p)
		}
	}
	r.queued = true
	p.queue = append(p.queue, r)
	p.eagerMax = -1
	if p.link == nil {
		e.ensureConnected(p)
	}
	if e.todo.self {
		e.drainSelf()
	}
}

type sendResult uint8

const (
	sendTaken sendResult = iota
	sendFull
	sendNoCredit
)

// trySend hands r to the link, eager or as RTS.
func (e *Engine) trySend(p *peer, r *Request) sendResult {
	limit := p.limit
	if e.wait.calling && len(p.queue) == 0 {
		limit = p.waitMax
	}
	if len(r.buf) <= limit && p.account.TakePayload(len(r.buf)) {
		return e.tryEager(p, r)
	}
	if !p.account.TakeEnvelope() {
		return sendNoCredit
	}
	return e.announce(p, r)
}

func (e *Engine) tryEager(p *peer, r *Request) sendResult {
	h := &e.hdr
	*h = wire.Header{Kind: wire.Eager, Ctx: r.recv.Ctx, Tag: r.recv.Tag}
	if r.mode == Synchronous {
		if r.transfer == nil {
			e.transfers.open(r, p) // of no bytes: there is nothing to stream, whatever the peer says
		}
		h.Kind, h.Flags, h.ID = wire.EagerSync, wire.Urgent, r.transfer.id
	}
	if !p.link.TrySend(h, r.buf) {
		p.account.Return(eager.Cost(len(r.buf)))
		return sendFull
	}
	r.queued = false
	e.stats.EagerSent++
	e.stats.BytesSent += uint64(len(r.buf))
	if r.mode == Standard {
		e.dequeued(r) // it may have been refused as an RTS before there was credit
		e.complete(r, nil)
	}
	return sendTaken
}

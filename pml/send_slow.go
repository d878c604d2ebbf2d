package pml

import (
	"context"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
)

func (r *Request) prepareSend(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) {
	r.op, r.mode, r.persistent = opSend, mode, false
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
	s.detached, s.whole, r.part = true, r, s
	e.detached++
	e.start(r)
	e.start(s)
	e.exitCall()
	e.unlock()
	return r
}

// start makes a prepared request active. It may be done when start returns.
func (e *Engine) start(r *Request) {
	r.state, r.err, r.cancelling, r.waited, r.canGet, r.ended = stActive, nil, false, false, false, false
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
	h := &e.hdr
	*h = wire.Header{Kind: wire.RTS, Flags: wire.Urgent, Ctx: r.recv.Ctx, Tag: r.recv.Tag, ID: e.ids.of(r), Len: uint64(len(r.buf))}
	if p.getter != nil {
		if addr, key, ok := p.getter.Register(r.buf); ok {
			h.Flags |= wire.Readable
			h.Addr, h.Key = addr, key
			r.at, r.key = addr, key
		}
	}
	if !p.link.TrySend(h, nil) {
		e.deregister(p, r, h.Flags)
		p.account.Return(eager.Envelope)
		return sendFull
	}
	r.queued = false
	r.canGet = h.Flags&wire.Readable != 0
	r.snd.Init(int64(len(r.buf)), p.piece(len(r.buf)))
	e.stats.RendezvousSent++
	e.stats.BytesSent += uint64(len(r.buf))
	return sendTaken
}

func (e *Engine) tryEager(p *peer, r *Request) sendResult {
	h := &e.hdr
	*h = wire.Header{Kind: wire.Eager, Ctx: r.recv.Ctx, Tag: r.recv.Tag}
	if r.mode == Synchronous {
		h.Kind, h.Flags, h.ID = wire.EagerSync, wire.Urgent, e.ids.of(r)
		r.snd.Init(0, 0) // nothing to stream, whatever the peer says
	}
	if !p.link.TrySend(h, r.buf) {
		p.account.Return(eager.Cost(len(r.buf)))
		return sendFull
	}
	r.queued = false
	e.stats.EagerSent++
	e.stats.BytesSent += uint64(len(r.buf))
	if r.mode == Standard {
		e.complete(r, nil)
	}
	return sendTaken
}

func (e *Engine) deregister(p *peer, r *Request, flags uint8) {
	if flags&wire.Readable != 0 && p.getter != nil {
		p.getter.Deregister(r.at, r.key)
	}
}

// clear: the receiver asks for a stream.
func (e *Engine) clear(p *peer, h *wire.Header) {
	r := e.ids.find(h.ID, p)
	if r == nil || r.op != opSend {
		return // over: FIN was faster
	}
	if r.queued {
		e.failPeer(p, protocolError(p, "it asked for a message that has not been sent"))
		return
	}
	r.remote = h.Key
	was := r.snd.Streaming()
	a := r.snd.Step(rendezvous.Input{On: rendezvous.Clear, Gen: h.Tag, Off: int64(h.Addr), Len: int64(h.Len)})
	switch {
	case a.Do == rendezvous.Fail:
		e.failPeer(p, &PeerError{int(p.rank), a.Err})
	case a.Do == rendezvous.Send && !was:
		e.stats.Streams++
		e.todo.add(jobStream, r)
		if !p.stalled {
			e.pump(r)
		}
	}
}

// piece is how long the fragments of a message are. A short message that is copied is cut into four, so that both ends
// copy at once.
func (p *peer) piece(size int) int64 {
	if p.lender != nil {
		return int64(p.link.Caps().LendMax)
	}
	return min(p.fragment, int64(max(size/4&^63, 4<<10)))
}

// pump sends fragments while there is room, and reports how many.
func (e *Engine) pump(r *Request) int {
	n := 0
	for a := r.snd.Step(rendezvous.Input{On: rendezvous.Room}); a.Do == rendezvous.Send; n++ {
		if r.peer.lender == nil {
			a.Len = min(a.Len, int64(r.peer.link.Caps().FragMax)) // which is less once memory has run out
		}
		h := &e.hdr
		*h = wire.Header{Kind: wire.Data, Flags: wire.Urgent, Tag: a.Gen, Key: r.remote, Addr: uint64(a.Off)}
		if !e.sendFragment(r.peer, h, r.buf[a.Off:a.Off+a.Len]) {
			return n
		}
		a = r.snd.Step(rendezvous.Input{On: rendezvous.Sent, Len: a.Len})
	}
	if !r.snd.Streaming() {
		e.todo.remove(jobStream, r)
	}
	return n
}

// sendFragment: the sender's buffer is left alone until FIN, so that it can be lent.
func (e *Engine) sendFragment(p *peer, h *wire.Header, payload []byte) bool {
	taken := false
	if p.lender != nil {
		taken = p.lender.TryLend(h, payload)
	} else {
		taken = p.link.TrySend(h, payload)
	}
	if !taken && p.tells {
		e.markBlocked(p)
	}
	return taken
}

// finished: FIN, or Matched for a synchronous eager message.
func (e *Engine) finished(p *peer, h *wire.Header) {
	r := e.ids.find(h.ID, p)
	if r == nil || r.op != opSend {
		return
	}
	if r.queued {
		e.failPeer(p, protocolError(p, "it acknowledged a message that has not been sent"))
		return
	}
	e.endSend(r, nil)
}

// endSend completes a send that has a number.
func (e *Engine) endSend(r *Request, err error) {
	e.todo.remove(jobStream, r)
	e.todo.remove(jobWrite, r)
	r.putBusy = false
	if r.canGet && r.peer.getter != nil {
		r.peer.getter.Deregister(r.at, r.key)
	}
	r.canGet = false
	e.complete(r, err)
}

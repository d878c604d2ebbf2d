package pml

import (
	"context"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A send's life:
//
//	1. Send or Isend: if the peer is connected, nothing is queued for it, the message is short and there is credit,
//	   one TrySend and it is over. Everything else is in send_slow.go:
//	2. start: a request; connecting, or queued behind others, or
//	3. trySend: eager with a request (synchronous), or RTS
//	4. progress.go: CTS begins a stream, FIN or Matched ends it.

// Send sends buf and returns when it may be reused. Collective and point-to-point contexts are the caller's business.
func (e *Engine) Send(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) error {
	e.lock()
	if p := e.peers[dest]; p != nil && len(buf) <= min(p.eagerMax, p.waitMax) && mode == Standard && e.sendNow(p, ctx, tag, buf) {
		if e.todo.self {
			e.drainSelf()
			e.exitCall()
		}
		e.unlock()
		return nil
	}
	return e.sendSlow(cc, ctx, dest, tag, buf, mode)
}

// Isend starts a send. The request is the caller's until it is collected.
func (e *Engine) Isend(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) *Request {
	e.lock()
	r := e.handle()
	if p := e.peers[dest]; p != nil && len(buf) <= p.eagerMax && mode == Standard && e.sendNow(p, ctx, tag, buf) {
		r.op, r.state = opSend, stDone
		r.status.Source, r.status.Tag, r.status.Bytes, r.status.Cancelled = int32(dest), tag, int64(len(buf)), false
		if e.todo.self {
			e.drainSelf()
			e.exitCall()
		}
		e.unlock()
		return r
	}
	if len(buf) > 0 && e.wait.armed == armedNot && e.wait.leader == noLeader && e.dev.Arm(transport.Urgent, false) {
		// Now and not when the call ends: the receiver looks whether this rank is here the moment it sees the message,
		// and would have it do half of the work when it may be about to compute.
		e.wait.isArmed(needUrgent)
	}
	r.prepareSend(cc, ctx, dest, tag, buf, mode)
	e.start(r)
	e.exitCall()
	e.unlock()
	return r
}

// sendNow is the eager path: credit, header, one dynamic call.
func (e *Engine) sendNow(p *peer, ctx uint32, tag int32, buf []byte) bool {
	if !p.account.TakePayload(len(buf)) {
		return false
	}
	h := &e.hdr
	h.Kind, h.Flags, h.Ctx, h.Tag = wire.Eager, 0, ctx, tag
	if !p.link.TrySend(h, buf) {
		p.account.Return(eager.Cost(len(buf)))
		return false
	}
	e.stats.EagerSent++
	e.stats.BytesSent += uint64(len(buf))
	return true
}

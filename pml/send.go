package pml

import "context"

// A send's life: if the peer is connected, nothing is queued for it, the message is short and there is credit, one TrySend
// and it is over. Otherwise it becomes a request (send_slow.go) and the path's (links.go).

// Send sends buf and returns when it may be reused. Collective and point-to-point contexts are the caller's business.
func (e *Engine) Send(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) error {
	e.lock()
	if p := e.links.peers[dest]; p != nil && len(buf) <= p.out.WaitMax && mode == Standard && p.out.Send(ctx, tag, buf) {
		e.sent(len(buf))
		e.unlock()
		return nil
	}
	return e.sendSlow(cc, ctx, dest, tag, buf, mode)
}

// Isend starts a send. The request is the caller's until it is collected.
func (e *Engine) Isend(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) *Request {
	e.lock()
	r := e.requests.handle()
	if p := e.links.peers[dest]; p != nil && len(buf) <= p.out.Max && mode == Standard && p.out.Send(ctx, tag, buf) {
		r.op, r.state = opSend, stDone
		r.status.Source, r.status.Tag, r.status.Bytes, r.status.Cancelled = int32(dest), tag, int64(len(buf)), false
		e.sent(len(buf))
		e.unlock()
		return r
	}
	r.prepareSend(cc, ctx, dest, tag, buf, mode)
	e.start(r)
	e.exitCall()
	e.unlock()
	return r
}

// sent: a short message of n bytes has been taken.
func (e *Engine) sent(n int) {
	e.stats.EagerSent++
	e.stats.BytesSent += uint64(n)
	if e.links.worklist.self {
		e.links.selfSent()
	}
}

// selfSent: to this rank.
func (l *linkPath) selfSent() {
	l.drainSelf()
	l.e.exitCall()
}

package pml

import "context"

// A send's life: if the peer is connected, nothing is queued for it, the message is short and there is credit, one
// TrySend and it is over. Otherwise it becomes a request (send_slow.go) and the path's (links.go).

// Send sends buf and returns when it may be reused. Collective and point-to-point contexts are the caller's business.
func (e *Engine) Send(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) error {
	e.lock()
	if p := e.links.peers[dest]; p.sure(len(buf), mode) && p.out.Send(ctx, tag, buf) {
		e.links.sent(len(buf))
		e.unlock()
		return nil
	}
	return e.sendSlow(cc, ctx, dest, tag, buf, mode)
}

// Isend starts a send. The request is the caller's until it is collected.
func (e *Engine) Isend(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) *Request {
	e.lock()
	r := e.requests.handles.get()
	if r == nil {
		r = e.requests.fresh()
	}
	if p := e.links.peers[dest]; p.sure(len(buf), mode) && p.out.Send(ctx, tag, buf) {
		r.sentAs(dest, tag, len(buf))
		e.links.sent(len(buf))
		e.unlock()
		return r
	}
	if !e.links.sendUnawaited(r, ctx, dest, tag, buf, mode) {
		announce := r.announce
		r.prepareSend(cc, ctx, dest, tag, buf, mode)
		r.announce = announce
		e.start(r)
	}
	e.exitCall()
	e.unlock()
	return r
}

// sure reports whether a message of n bytes goes to p by an eager send whatever has been measured: the usual case of a
// short message. p is nil before its link is made. sure is inlined in Send, Isend and the start of a persistent send: a
// function that also sends would cost each message a call.
func (p *peer) sure(n int, mode Mode) bool { return p != nil && n <= p.out.Sure && mode == Standard }

// sendUnawaited sends a message whose sender does not wait for it, if it is short and nothing is in its way: it reports
// whether r is done. If not, r.announce says whether the message is announced.
func (l *linkPath) sendUnawaited(r *Request, ctx uint32, dest int, tag int32, buf []byte, mode Mode) bool {
	r.announce = mode == Standard && l.follows(dest, len(buf))
	if mode != Standard || r.announce || !l.sendNow(ctx, dest, tag, buf) && !l.sendAgain(ctx, dest, tag, buf) {
		return false
	}
	r.sentAs(dest, tag, len(buf))
	return true
}

// follows reports whether a message of n bytes whose sender does not wait is announced though it may be eager: one of
// medium length that follows others. Its receiver reads several in one call, which costs both sides less than two
// copies of each.
func (l *linkPath) follows(dest, n int) bool {
	p := l.peers[dest]
	return p != nil && p.out.Measured(n) && p.out.Follows()
}

// sentAs completes r for a message that has been sent without it.
func (r *Request) sentAs(dest int, tag int32, n int) {
	r.op, r.state = opSend, stDone
	r.status.Source, r.status.Tag, r.status.Bytes, r.status.Cancelled = int32(dest), tag, int64(n), false
}

// sendNow is the fast path of what does not wait: it sends a short message, if nothing is in its way. It reports
// whether it has.
func (l *linkPath) sendNow(ctx uint32, dest int, tag int32, buf []byte) bool {
	p := l.peers[dest]
	if p == nil || len(buf) > p.out.Max || !p.out.Send(ctx, tag, buf) {
		return p == nil && !l.e.direct && l.e.path.sendNow(ctx, dest, tag, buf)
	}
	l.sent(len(buf))
	return true
}

// sendAgain tries a short message once more after a poll, which may bring credit. It reports whether the message is
// sent. Without it the message would be announced and fetched, which costs several times as much.
func (l *linkPath) sendAgain(ctx uint32, dest int, tag int32, buf []byte) bool {
	p := l.peers[dest]
	if p == nil || len(buf) > p.out.Max || !l.e.wait.mayPoll() || l.e.progress() == 0 {
		return false
	}
	return l.sendNow(ctx, dest, tag, buf)
}

// sent is called when a short message of n bytes has been taken.
func (l *linkPath) sent(n int) {
	l.e.stats.EagerSent++
	l.e.stats.BytesSent += uint64(n)
	if l.worklist.self {
		l.selfSent()
	}
}

// selfSent sends a message to this rank.
func (l *linkPath) selfSent() {
	l.drainSelf()
	l.e.exitCall()
}

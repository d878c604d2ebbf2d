package pml

import (
	"fmt"
	"math"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// What links and devices report.

func (l *linkPath) events(pkts []transport.Packet) int {
	for i := range pkts {
		l.event(&pkts[i])
	}
	return 0
}

// event handles one packet. The order of the cases is that of their frequency.
func (l *linkPath) event(pkt *transport.Packet) {
	if pkt.Event > transport.Unmatched { // neither that nor Arrived
		l.report(pkt)
		return
	}
	if uint(pkt.Peer) >= uint(len(l.peers)) {
		return // a transport's mistake; there is no peer to blame it on
	}
	p := l.peer(pkt.Peer)
	if o := p.tags.offload; o != nil && !o.dealing {
		o.packet(p, pkt)
		return
	}
	if p.err != nil {
		return
	}
	h := &pkt.Header
	switch h.Kind {
	case wire.Eager:
		l.onEager(p, h.Ctx, h.Tag, pkt.Payload)
	case wire.Data:
		l.transfers.onData(p, h, pkt.Payload)
	case wire.RTS, wire.EagerSync:
		l.onMessage(p, pkt)
	case wire.CTS:
		l.transfers.onCTS(p, h)
	case wire.FIN, wire.Matched:
		l.transfers.onFIN(p, h)
	case wire.Credit:
		l.onCredit(p, h)
	case wire.PutReq:
		l.transfers.onPutReq(p, h)
	case wire.PutDone:
		l.transfers.onPutDone(p, h)
	case wire.Cancel:
		l.onCancel(p, h)
	case wire.CancelReply:
		l.onCancelReply(p, h)
	case wire.CreditReq:
		l.onCreditReq(p, h)
	case wire.Watch:
		p.onWatch()
	case wire.Returned:
		p.onReturned()
	case wire.Blocked:
		l.onBlocked(p, h)
	case wire.Batch:
		l.onBatch(p, pkt.Payload)
	case wire.Ask, wire.Broken, wire.HandleReq, wire.Handle, wire.Unmap, wire.Unmapped, wire.Filled,
		wire.AskParts:
		l.transfers.onDevice(p, h, pkt.Payload)
	default:
		p.breaks(fmt.Sprintf("it sent a packet of kind %v", h.Kind))
	}
}

// onEager takes a message that is here as a whole.
func (l *linkPath) onEager(p *peer, ctx uint32, tag int32, payload []byte) {
	e := l.e
	p.out.Came()
	m := l.table.Arrive(ctx, p.rank, tag)
	if m == nil {
		l.queue(p, &wire.Header{Kind: wire.Eager, Ctx: ctx, Tag: tag}, payload)
		return
	}
	r := m.Owner.(*Request)
	n := copyIn(r.buf, payload)
	r.status.Source, r.status.Tag, r.status.Bytes = p.rank, tag, int64(n)
	e.stats.MatchedOnArrival++
	if n == len(payload) && r.plain() {
		r.completePlain(&e.load)
	} else if n == len(payload) {
		e.complete(r, nil)
	} else {
		l.beyond(r, payload)
	}
	p.returnCredit(eager.Cost(len(payload)))
}

// beyond ends r, in whose buffer a message has not fitted: it is too short, or of a device.
func (l *linkPath) beyond(r *Request, payload []byte) {
	if o := r.device(); o != nil {
		o.land(payload)
		return
	}
	l.e.complete(r, r.truncated(int64(len(payload))))
}

// report handles what is no packet of a peer.
func (l *linkPath) report(pkt *transport.Packet) {
	switch pkt.Event {
	case transport.Down:
		if uint(pkt.Peer) < uint(len(l.peers)) {
			l.peer(pkt.Peer).isDown(pkt.Err)
		}
	case transport.Reached:
		l.e.boards.reached(pkt.Cookie)
	case transport.RMADone:
		l.transfers.onGetDone(pkt.Cookie, pkt.Value, pkt.Err)
	case transport.Noted:
		l.onNoted(pkt)
	case transport.Placed:
		if p := l.known(pkt.Peer); p != nil {
			l.transfers.onPlaced(p, &pkt.Header)
		}
	case transport.Room:
		if p := l.known(pkt.Peer); p != nil {
			l.worklist.resume(p)
			p.flush()
		}
	case transport.OffloadMatched, transport.OffloadDone, transport.OffloadBack:
		l.offload.event(pkt)
	}
}

// onMessage takes a message that its sender waits to hear of: announced, or synchronous.
func (l *linkPath) onMessage(p *peer, pkt *transport.Packet) {
	h := &pkt.Header
	if h.Kind == wire.RTS && h.Len > math.MaxInt64 {
		p.breaks(fmt.Sprintf("it announced a message of %d bytes", h.Len))
		return
	}
	m := l.table.Arrive(h.Ctx, p.rank, h.Tag)
	if m == nil {
		l.queue(p, h, pkt.Payload)
		return
	}
	r := m.Owner.(*Request)
	r.status = Status{Source: p.rank, Tag: h.Tag}
	l.e.stats.MatchedOnArrival++
	if h.Kind == wire.RTS {
		l.transfers.receive(r, p, h)
		return
	}
	n := copyIn(r.buf, pkt.Payload)
	if r.status.Bytes = int64(n); n == len(pkt.Payload) {
		l.e.complete(r, nil)
	} else {
		l.beyond(r, pkt.Payload)
	}
	p.sendControl(wire.Header{Kind: wire.Matched, ID: h.ID})
	p.returnCredit(eager.Cost(len(pkt.Payload)))
}

// queue keeps a message as unexpected.
func (l *linkPath) queue(p *peer, h *wire.Header, payload []byte) {
	if l.e.dropped.low != nil && l.e.dropped.has(h.Ctx) {
		l.aside++
		l.lose(p, h.Kind, h.ID, costOf(h.Kind, len(payload)))
		return
	}
	u := l.spare
	if u == nil {
		u = new(unexpected)
		u.m.Owner = u
	} else {
		l.spare = u.next
		u.next = nil
	}
	u.m.Ctx, u.m.Source, u.m.Tag, u.peer = h.Ctx, p.rank, h.Tag, p
	l.store.Keep(&u.Unexpected, h, payload)
	if u.ID != 0 { // 0 is no number: such a message cannot be taken back, nor asked for
		p.remember(u)
		if u.blocks() {
			p.blocked++
			l.wants(p)
		}
		l.e.calledUpon(h)
	}
	l.table.Queue(&u.m)
	if len(l.e.probers) != 0 {
		l.e.probers.end(l.e, probesFinding(h.Ctx, p.rank, h.Tag), nil)
	}
	if !p.in.Charge(u.Cost) {
		p.breaks("it has sent more unmatched messages than it was allowed")
	}
}

// matched is called when u is off the table, or is being fetched, and its sender cannot take it back any more.
func (l *linkPath) matched(u *unexpected) {
	u.peer.in.Refund(u.Cost)
	if u.ID != 0 {
		u.peer.forget(u)
		if u.blocks() {
			u.peer.blocked--
			l.served(u.peer)
		}
	}
}

// release frees u and its payload. Of the records of a burst no more are kept than would fit into what is kept of
// buffers.
func (l *linkPath) release(u *unexpected) {
	if u.early != notEarly {
		l.early -= l.store.Drop(&u.Unexpected)
	}
	l.store.Release(&u.Unexpected)
	u.peer, u.taken, u.early, u.broken = nil, false, notEarly, nil
	if l.store.Bytes <= int64(l.store.Pool.Keep) {
		u.next, l.spare = l.spare, u
	}
}

// deliver gives an unexpected message, which is off the table, to r.
func (l *linkPath) deliver(r *Request, u *unexpected) {
	p := u.peer
	r.status = Status{Source: p.rank, Tag: u.m.Tag}
	if u.early == earlyUnder {
		u.to = r
		return
	}
	if err := u.broken; err != nil {
		l.breaks(u, r, err)
		return
	}
	l.matched(u)
	l.e.stats.Matched++
	if p.tags.able {
		l.e.stats.SoftwareMatches++
	}
	if u.Kind == wire.RTS {
		l.hdr = u.RTS()
		l.release(u)
		l.transfers.receive(r, p, &l.hdr)
		return
	}
	n := copyIn(r.buf, u.Payload)
	if r.status.Bytes = int64(n); n == len(u.Payload) && r.plain() {
		r.completePlain(&l.e.load)
	} else if n == len(u.Payload) {
		l.e.complete(r, nil)
	} else {
		l.beyond(r, u.Payload)
	}
	if u.Kind == wire.EagerSync {
		p.sendControl(wire.Header{Kind: wire.Matched, ID: u.ID})
	}
	p.returnCredit(u.Cost)
	l.release(u)
}

// takeOut is deliver for a caller that has no request yet, if u is here as a whole, fits, and its sender does not wait.
func (l *linkPath) takeOut(u *unexpected, buf []byte) (st Status, taken bool) {
	if u.Kind != wire.Eager || len(u.Payload) > len(buf) {
		return st, false
	}
	p := u.peer
	l.table.Remove(&u.m)
	l.matched(u)
	l.e.stats.Matched++
	st = Status{Source: p.rank, Tag: u.m.Tag, Bytes: int64(copy(buf, u.Payload))}
	p.returnCredit(u.Cost)
	l.release(u)
	return st, true
}

// discard drops an unexpected message that is off the table and will never be received.
func (l *linkPath) discard(u *unexpected) {
	l.aside++
	if u.early == earlyUnder {
		u.early = earlyDropped
		return
	}
	l.matched(u)
	l.lose(u.peer, u.Kind, u.ID, u.Cost)
	l.release(u)
}

// lose ends a message at its sender, whose buffer is free: it is lost with its communicator.
func (l *linkPath) lose(p *peer, kind wire.Kind, id uint64, cost int64) {
	switch kind {
	case wire.EagerSync:
		p.sendControl(wire.Header{Kind: wire.Matched, ID: id})
	case wire.RTS:
		p.sendControl(wire.Header{Kind: wire.FIN, ID: id})
	}
	p.returnCredit(cost)
	p.checkAnswers()
}

// costOf is what a message has taken of its sender's credit: an announced one its envelope.
func costOf(kind wire.Kind, payload int) int64 {
	if kind == wire.RTS {
		return eager.Envelope
	}
	return eager.Cost(payload)
}

// onCancel is called when the sender asks for its message ID back.
func (l *linkPath) onCancel(p *peer, h *wire.Header) {
	reply := wire.Header{Kind: wire.CancelReply, Flags: wire.Urgent, ID: h.ID}
	u := p.find(h.ID)
	if u == nil || u.taken {
		p.sendControl(reply)
	} else {
		l.table.Remove(&u.m)
		l.aside++
		l.matched(u)
		reply.Len = 1
		p.sendControl(reply) // the credit comes behind: see checkAnswers
		p.returnCredit(u.Cost)
		l.release(u)
	}
	p.checkAnswers()
}

// onCancelReply takes the receiver's answer.
func (l *linkPath) onCancelReply(p *peer, h *wire.Header) {
	t := l.transfers.find(h.ID)
	if t == nil || t.peer != p || t.recv || !t.r.cancelling {
		return
	}
	if h.Len == 0 {
		return // matched: it completes in its own time
	}
	if t.snd.Asked() {
		p.breaks("it gave back a message that it has asked for")
		return
	}
	t.snd.Abandon()
	t.r.status.Cancelled, t.r.status.Bytes = true, 0
	l.transfers.end(t, t.r.cancelErr)
}

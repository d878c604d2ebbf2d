package pml

import (
	"context"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/tagmatch"
	"github.com/gorun-mpi/mpi/transport"
)

// A receive's life:
//
//	1. Recv or Irecv: post; matched at once if the message is here (deliver), else in the table
//	2. wait.go: somebody polls
//	3. progress.go: a message arrives, the table says it is ours: copied (eager), or
//	4. transfer.go: fetched (rendezvous)

// unexpected is a message that arrived before its receive. Owner: the table while queued, then whoever took it off.
type unexpected struct {
	m       tagmatch.Message
	peer    *peer
	kind    wire.Kind // Eager, EagerSync or RTS
	flags   uint8
	taken   bool   // by a matched probe
	payload []byte // of an eager message; from Engine.pool
	size    int64
	cost    int64 // of the sender's credit

	id, addr, key uint64

	next       *unexpected // free list
	older      *unexpected // in peer.asked ⇔ id != 0 and the table's or a probe's
	newer      *unexpected
	probeOwner *Engine
}

// Recv receives into buf. source and tag may be wildcards.
func (e *Engine) Recv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) (Status, error) {
	e.lock()
	r := e.request()
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(source), tag
	r.buf, r.cctx = buf, cc
	e.wait.calling = true
	e.startRecv(r)
	e.wait.calling = false
	if r.state != stDone {
		e.await(r)
	}
	st, err := r.status, r.err
	e.recycle(r)
	e.exitCall()
	e.unlock()
	return st, err
}

// Irecv starts a receive. The request is the caller's until it is collected.
func (e *Engine) Irecv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) *Request {
	e.lock()
	r := e.handle()
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(source), tag
	r.buf, r.cctx = buf, cc
	e.startRecv(r)
	e.exitCall()
	e.unlock()
	return r
}

// startRecv is prepareRecv and start in one, where the arguments are in r already.
func (e *Engine) startRecv(r *Request) {
	r.op, r.mode, r.state = opRecv, Standard, stActive
	r.cancelling, r.waited, r.ended = false, false, false
	r.status.Cancelled = false
	e.outstanding++
	if e.closed != nil {
		e.complete(r, e.closed)
		return
	}
	e.post(r)
}

func (r *Request) prepareRecv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) {
	r.op, r.mode = opRecv, Standard
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(source), tag
	r.buf, r.cctx = buf, cc
}

// post puts r into the table, or gives it the message that waits for it.
func (e *Engine) post(r *Request) {
	if m := e.table.Post(&r.recv); m != nil {
		e.deliver(r, m.Owner.(*unexpected))
		return
	}
	if e.special != 0 {
		e.posted(r)
	}
}

// posted looks after a receive that has found no message, where peers have failed or a device matches tags.
func (e *Engine) posted(r *Request) {
	rank := r.recv.Source
	if rank < 0 {
		e.fallBack(FallbackSource)
		return
	}
	p := e.peers[rank]
	switch {
	case p == nil:
	case p.err != nil: // it waits in vain
		e.table.Cancel(&r.recv)
		e.complete(r, p.err)
	case p.able:
		e.handDown(p, r)
	case p.link != nil:
		e.fallBack(FallbackPeer)
	}
}

// deliver gives an unexpected message, which is off the table, to r.
func (e *Engine) deliver(r *Request, u *unexpected) {
	p := u.peer
	r.status = Status{Source: p.rank, Tag: u.m.Tag}
	p.debt.Unhold(u.cost)
	e.stats.UnexpectedBytes -= u.cost
	e.stats.Matched++
	if p.able {
		e.stats.SoftwareMatches++
	}
	if u.id != 0 {
		p.forget(u)
	}
	if u.kind == wire.RTS {
		e.receive(r, p, &wire.Header{Kind: wire.RTS, Flags: u.flags, ID: u.id, Len: uint64(u.size), Addr: u.addr, Key: u.key})
		e.freeUnexpected(u)
		return
	}
	n := copy(r.buf, u.payload)
	e.arrived(r, p, n, len(u.payload))
	if u.kind == wire.EagerSync {
		e.sendControl(p, wire.Header{Kind: wire.Matched, ID: u.id})
	}
	e.returnCredit(p, u.cost)
	e.freeUnexpected(u)
}

// arrived completes a receive of an eager message of size bytes, n of which fitted.
func (e *Engine) arrived(r *Request, p *peer, n, size int) {
	r.status.Bytes = int64(n)
	if n < size {
		e.complete(r, &TruncateError{int64(size), int64(len(r.buf))})
		return
	}
	e.complete(r, nil)
}

// discard drops an unexpected message that is off the table and that nobody will receive.
func (e *Engine) discard(u *unexpected) {
	p := u.peer
	p.debt.Unhold(u.cost)
	e.stats.UnexpectedBytes -= u.cost
	if u.id != 0 {
		p.forget(u)
		kind := wire.FIN // the sender's buffer is free; the message is lost with its communicator
		if u.kind == wire.EagerSync {
			kind = wire.Matched
		}
		e.sendControl(p, wire.Header{Kind: kind, ID: u.id})
	}
	e.returnCredit(p, u.cost)
	e.freeUnexpected(u)
}

func (p *peer) forget(u *unexpected) {
	if u.newer != nil {
		u.newer.older = u.older
	} else {
		p.asked = u.older
	}
	if u.older != nil {
		u.older.newer = u.newer
	}
	u.older, u.newer = nil, nil
}

func (e *Engine) newUnexpected() *unexpected {
	u := e.unexp
	if u == nil {
		u = new(unexpected)
		u.m.Owner = u
		return u
	}
	e.unexp = u.next
	u.next = nil
	return u
}

func (e *Engine) freeUnexpected(u *unexpected) {
	if u.payload != nil {
		e.pool.Put(u.payload)
		u.payload = nil
	}
	u.peer, u.taken = nil, false
	u.next = e.unexp
	e.unexp = u
}

// queue makes the packet an unexpected message.
func (e *Engine) queue(p *peer, pkt *transport.Packet, cost int64) {
	h := &pkt.Header
	u := e.newUnexpected()
	u.m.Ctx, u.m.Source, u.m.Tag = h.Ctx, p.rank, h.Tag
	u.peer, u.kind, u.flags, u.cost = p, h.Kind, h.Flags, cost
	u.id = 0
	u.size = int64(len(pkt.Payload))
	if h.Kind != wire.Eager {
		u.id, u.addr, u.key = h.ID, h.Addr, h.Key
	}
	if u.id != 0 { // 0 is no number: such a message cannot be taken back
		u.older = p.asked
		if u.older != nil {
			u.older.newer = u
		}
		p.asked = u
	}
	if h.Kind == wire.RTS {
		u.size = int64(h.Len)
	} else if len(pkt.Payload) > 0 {
		u.payload = e.pool.Get(len(pkt.Payload))
		copy(u.payload, pkt.Payload)
	}
	e.stats.hold(cost)
	e.table.Queue(&u.m)
	if len(e.probers) != 0 {
		e.tellProbers(u)
	}
	if !p.debt.Hold(cost) {
		e.failPeer(p, protocolError(p, "it has sent more unmatched messages than it was allowed"))
	}
}

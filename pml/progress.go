package pml

import (
	"fmt"
	"math"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// progress polls once, handles what came, and goes on with what is under way. It returns how much it did. The caller
// holds the lock; afterwards the device may not be armed as it was (see exitCall).
func (e *Engine) progress() int {
	if e.closed != nil {
		return 0 // the device may be gone
	}
	n := e.dev.Poll(e.pkts[:])
	if n != 0 {
		e.wait.arrived()
	}
	for i := range n {
		e.packet(&e.pkts[i])
	}
	if e.todo.pending != 0 {
		n += e.work()
	}
	return n
}

// packet handles one event. The order of the cases is that of their frequency.
func (e *Engine) packet(pkt *transport.Packet) {
	if pkt.Event != transport.Arrived {
		e.event(pkt)
		return
	}
	if uint(pkt.Peer) >= uint(len(e.peers)) {
		return // a transport's mistake; nobody to blame it on
	}
	p := e.peer(pkt.Peer)
	if p.offload != nil && !p.offload.dealing {
		e.fromOffload(p, pkt)
		return
	}
	if p.err != nil {
		return
	}
	h := &pkt.Header
	switch h.Kind {
	case wire.Eager:
		cost := eager.Cost(len(pkt.Payload))
		m := e.table.Arrive(h.Ctx, pkt.Peer, h.Tag)
		if m == nil {
			e.queue(p, pkt, cost)
			return
		}
		r := m.Owner.(*Request)
		n := copy(r.buf, pkt.Payload)
		r.status.Source, r.status.Tag, r.status.Bytes = pkt.Peer, h.Tag, int64(n)
		e.stats.MatchedOnArrival++
		if n == len(pkt.Payload) && r.plain() {
			e.completePlain(r)
		} else {
			e.arrived(r, p, n, len(pkt.Payload))
		}
		e.returnCredit(p, cost)
	case wire.Data:
		e.onData(p, h, pkt.Payload)
	case wire.RTS:
		if h.Len > math.MaxInt64 {
			e.failPeer(p, protocolError(p, fmt.Sprintf("it announced a message of %d bytes", h.Len)))
			return
		}
		m := e.table.Arrive(h.Ctx, pkt.Peer, h.Tag)
		if m == nil {
			e.queue(p, pkt, eager.Envelope)
			return
		}
		r := m.Owner.(*Request)
		r.status = Status{Source: pkt.Peer, Tag: h.Tag}
		e.stats.MatchedOnArrival++
		e.receive(r, p, h)
	case wire.EagerSync:
		cost := eager.Cost(len(pkt.Payload))
		m := e.table.Arrive(h.Ctx, pkt.Peer, h.Tag)
		if m == nil {
			e.queue(p, pkt, cost)
			return
		}
		r := m.Owner.(*Request)
		r.status = Status{Source: pkt.Peer, Tag: h.Tag}
		e.stats.MatchedOnArrival++
		e.arrived(r, p, copy(r.buf, pkt.Payload), len(pkt.Payload))
		e.sendControl(p, wire.Header{Kind: wire.Matched, ID: h.ID})
		e.returnCredit(p, cost)
	case wire.CTS:
		e.onCTS(p, h)
	case wire.FIN, wire.Matched:
		e.onFIN(p, h)
	case wire.Credit:
		if h.Len > math.MaxInt64 || !p.account.Return(int64(h.Len)) {
			e.failPeer(p, protocolError(p, fmt.Sprintf("it gave back %d bytes of credit that were not taken", h.Len)))
			return
		}
		if len(p.queue) > 0 {
			e.flush(p)
		}
	case wire.PutAsk:
		e.onPutReq(p, h)
	case wire.PutDone:
		e.onPutDone(p, h)
	case wire.Cancel:
		e.onCancel(p, h)
	case wire.CancelReply:
		e.onCancelReply(p, h)
	default:
		e.failPeer(p, protocolError(p, fmt.Sprintf("it sent a packet of kind %v", h.Kind)))
	}
}

func protocolError(p *peer, what string) error {
	return &PeerError{int(p.rank), fmt.Errorf("%w: %s", transport.ErrPeerGone, what)}
}

func (e *Engine) event(pkt *transport.Packet) {
	switch pkt.Event {
	case transport.Down:
		if uint(pkt.Peer) < uint(len(e.peers)) {
			e.failPeer(e.peer(pkt.Peer), &PeerError{int(pkt.Peer), pkt.Err})
		}
	case transport.Got:
		e.onGetDone(pkt.Header.ID, pkt.Err)
	case transport.Placed:
		if uint(pkt.Peer) < uint(len(e.peers)) && e.peers[pkt.Peer] != nil {
			e.onPlaced(e.peers[pkt.Peer], &pkt.Header)
		}
	case transport.Room:
		if uint(pkt.Peer) < uint(len(e.peers)) && e.peers[pkt.Peer] != nil {
			e.todo.resume(e.peers[pkt.Peer])
			e.flush(e.peers[pkt.Peer])
		}
	case transport.OffloadMatched, transport.OffloadDone, transport.OffloadBack:
		e.offloadEvent(pkt)
	}
}

// work goes on with what nobody else will remind us of.
func (e *Engine) work() int {
	n := 0
	if e.todo.self {
		n += e.pollSelf()
	}
	for i := len(e.todo.blocked) - 1; i >= 0; i-- {
		if i < len(e.todo.blocked) {
			e.flush(e.todo.blocked[i])
		}
	}
	// Oldest first, and one at a time: the peer works on them in the same order, and a message's end is worth more
	// than the beginnings of many.
	streams := &e.todo.jobs[jobStream]
	for i := 0; i < len(*streams); {
		t := (*streams)[i]
		n += e.pump(t)
		if i < len(*streams) && (*streams)[i] == t {
			i++
		}
	}
	n += oneOf(e, e.todo.jobs[jobRead], (*Engine).readNext)
	n += oneOf(e, e.todo.jobs[jobWrite], (*Engine).writeNext)
	return n
}

// oneOf moves one piece of the first that can.
func oneOf(e *Engine, list []*transfer, next func(*Engine, *transfer) int) int {
	for _, t := range list {
		if next(e, t) != 0 {
			return 1
		}
	}
	return 0
}

// drainSelf handles what this rank has sent to itself. It does not touch the net: somebody else may be armed for it.
func (e *Engine) drainSelf() {
	for e.todo.self {
		e.work()
	}
}

func (e *Engine) pollSelf() int {
	self := e.cfg.Self
	n := self.Poll(e.selfPkts[:])
	for i := range n {
		e.selfPkts[i].Peer = int32(e.cfg.Rank)
		e.packet(&e.selfPkts[i])
	}
	if n == 0 {
		e.todo.removeSelf()
	}
	return n
}

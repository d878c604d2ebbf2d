package pml

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// peer is another rank, from the first contact on.
type peer struct {
	rank int32
	// eagerMax is the longest message that send may hand straight to the link; -1 while there is no link, while
	// messages are queued (order!) or when the peer is gone.
	eagerMax int
	link     transport.Link
	getter   transport.Getter   // nil: cannot
	presence transport.Presence // nil: not known
	lender   transport.Lender   // nil: payloads are copied
	placer   transport.Placer   // nil: fragments are copied
	tells    bool               // the link says when it has room again
	stalled  bool               // and it has none now
	noSplit  bool               // the sender's half of a split message could not be written
	tuner    rendezvous.Tuner   // of what it sends
	limit    int                // what eagerMax is when it is not -1
	waitMax  int                // the longest eager message of a caller that waits for it; <= limit
	fragment int64
	getMax   int64 // of the link's caps

	account eager.Account
	debt    eager.Debt

	connecting bool
	err        error // why nothing can be sent to or received from it

	// offload: its messages come through a device that could match them, or that is not known yet as there is no link.
	// able: and the device does. Receives that name this peer, are posted and not handed down: soft, those for any tag
	// among them: softWild; counted if able.
	offload        *offload
	able           bool
	soft, softWild int32

	// What could not be sent. Control packets need no credit and overtake messages; messages keep their order.
	control []wire.Header
	queue   []*Request // queue[0] is next
	blocked bool       // its link was full and does not say when it has room

	starters []*transfer // matched receives that wait for the link
	asked    *unexpected // unmatched messages that the sender may take back, newest first
}

// peer returns the record of a rank, made on first contact.
func (e *Engine) peer(rank int32) *peer {
	if p := e.peers[rank]; p != nil {
		return p
	}
	p := &peer{rank: rank, eagerMax: -1, offload: e.offload}
	p.debt.Open(e.grant)
	e.peers[rank] = p
	return p
}

// ensureConnected makes sure that there will be a link to p.
func (e *Engine) ensureConnected(p *peer) {
	if p.link != nil || p.connecting || p.err != nil {
		return
	}
	p.connecting = true
	if int(p.rank) == e.cfg.Rank {
		l, err := e.cfg.Self.Connect(e.ctx, 0, e.cfg.Self.Address())
		e.onConnected(p, e.grant, l, err)
		return
	}
	e.wg.Add(1)
	go e.connect(p)
}

// connect runs in a goroutine of its own: it may have to wait for the peer.
func (e *Engine) connect(p *peer) {
	defer e.wg.Done()
	ctx, cancel := context.WithTimeout(e.ctx, e.cfg.ConnectTimeout)
	defer cancel()
	grant, link, err := e.dial(ctx, int(p.rank))
	e.lock()
	if e.wait.leader == noLeader { // nobody may call for long: what this link was needed for is done here and now
		stoodIn := e.wait.standIn()
		e.onConnected(p, grant, link, err)
		for e.todo.pending != 0 && e.wait.leader == noLeader && e.progress() != 0 {
		}
		e.wait.standBack(stoodIn)
	} else {
		e.onConnected(p, grant, link, err)
	}
	e.exitCall()
	e.unlock()
}

func (e *Engine) dial(ctx context.Context, rank int) (int64, transport.Link, error) {
	var b []byte
	if in, ok := e.cfg.Net.(transport.Introducer); ok {
		b = in.Card(rank)
	}
	if b == nil {
		var err error
		if b, err = e.cfg.Lookup(ctx, rank); err != nil {
			return 0, nil, fmt.Errorf("looking up its address: %w", err)
		}
	}
	grant, address, err := splitAddress(rank, b)
	if err != nil {
		return 0, nil, err
	}
	l, err := e.cfg.Net.Connect(ctx, rank, address)
	return grant, l, err
}

// onConnected takes the result of connecting.
func (e *Engine) onConnected(p *peer, grant int64, l transport.Link, err error) {
	p.connecting = false
	if p.err != nil {
		return
	}
	if err != nil {
		e.failPeer(p, &PeerError{int(p.rank), err})
		return
	}
	caps := l.Caps()
	p.link = l
	p.presence, _ = l.(transport.Presence)
	if caps.Get {
		p.getter, _ = l.(transport.Getter)
	}
	p.lender, _ = l.(transport.Lender)
	p.placer, _ = l.(transport.Placer)
	p.tells = caps.TellsRoom
	e.pace.hosted = e.pace.hosted || caps.Hosted
	p.limit = caps.EagerMax
	if e.cfg.EagerMax > 0 {
		p.limit = min(e.cfg.EagerMax, caps.FragMax, caps.EagerMax)
	}
	if p.waitMax = p.limit; caps.WaitMax > 0 && e.cfg.EagerMax <= 0 {
		p.waitMax = min(p.limit, caps.WaitMax)
	}
	p.fragment, p.getMax = int64(caps.FragMax), int64(caps.GetMax)
	p.account.Open(grant)
	e.explain(p, caps)
	e.offloadTo(p)
	if int(p.rank) == e.cfg.Rank {
		p.link = &selfLink{l, e}
	}
	for _, t := range p.starters {
		e.begin(t)
	}
	p.starters = nil
	e.flush(p)
}

func (e *Engine) explain(p *peer, caps *transport.Caps) {
	if e.cfg.Debug == nil {
		return
	}
	dev, large := e.cfg.Net, "stream, split or get, by what each has cost; get while the sender computes"
	if int(p.rank) == e.cfg.Rank {
		dev = e.cfg.Self
	}
	name := dev.Name()
	if several, ok := dev.(transport.Several); ok {
		name = several.Via(int(p.rank))
	}
	why := "none: all schemes work"
	switch {
	case p.getter == nil:
		large, why = "stream", caps.WhyNot
	case p.presence == nil:
		large, why = "get; stream where the sender's memory is not registered", "split: the device does not say whether the peer polls"
	}
	e.cfg.Debug("peer connected", "peer", p.rank, "transport", name, "eager-max", p.limit, "rendezvous", large, "not-used", why)
}

// Transport is the name of the device by which this rank reaches others; of several, shm+tcp.
func (e *Engine) Transport() string {
	if e.cfg.Net == nil {
		return e.cfg.Self.Name()
	}
	return e.cfg.Net.Name()
}

// selfLink notes that there is something to poll.
type selfLink struct {
	transport.Link
	e *Engine
}

func (l *selfLink) TrySend(h *wire.Header, payload []byte) bool {
	if !l.Link.TrySend(h, payload) {
		return false
	}
	l.e.todo.addSelf()
	return true
}

// flush sends what is queued for p, and decides whether send may go straight to the link.
func (e *Engine) flush(p *peer) {
	p.eagerMax = -1
	if p.link == nil {
		if p.err == nil && (len(p.queue) > 0 || len(p.control) > 0) {
			e.ensureConnected(p)
		}
		return
	}
	if e.flushControl(p) && e.flushQueue(p) {
		e.todo.unblock(p)
		e.todo.resume(p) // it was stalled for what came before a link, or before this
		if len(p.queue) == 0 && p.err == nil {
			p.eagerMax = p.limit
		}
		return
	}
	e.markBlocked(p)
}

func (e *Engine) flushControl(p *peer) bool {
	for i := range p.control {
		if !p.link.TrySend(&p.control[i], nil) {
			p.control = append(p.control[:0], p.control[i:]...)
			return false
		}
	}
	p.control = p.control[:0]
	return true
}

// flushQueue reports false if the link is full. Lack of credit is not its fault: Credit will call again.
func (e *Engine) flushQueue(p *peer) bool {
	for i, r := range p.queue {
		switch e.trySend(p, r) {
		case sendFull:
			p.queue = dropFirst(p.queue, i)
			return false
		case sendNoCredit:
			p.queue = dropFirst(p.queue, i)
			return true
		}
	}
	p.queue = dropFirst(p.queue, len(p.queue))
	return true
}

// dequeued: r is no longer in its peer's queue, and has not been announced.
func (e *Engine) dequeued(r *Request) {
	r.queued = false
	if r.transfer != nil {
		e.close(r.transfer)
	}
}

func dropFirst(q []*Request, n int) []*Request {
	if n == 0 {
		return q
	}
	m := copy(q, q[n:])
	clear(q[m:])
	return q[:m]
}

// markBlocked notes that p's link is full.
func (e *Engine) markBlocked(p *peer) {
	switch {
	case !p.tells:
		e.todo.markBlocked(p)
	case p.err == nil:
		e.todo.stall(p)
	}
}

// sendControl sends a packet without payload, now or later.
func (e *Engine) sendControl(p *peer, h wire.Header) {
	if p.err != nil {
		return
	}
	if p.link != nil && len(p.control) == 0 {
		e.hdr = h
		if p.link.TrySend(&e.hdr, nil) {
			return
		}
	}
	p.control = append(p.control, h)
	if p.link == nil {
		e.ensureConnected(p)
		return
	}
	e.markBlocked(p)
}

// returnCredit gives credit back for a message that is matched.
func (e *Engine) returnCredit(p *peer, cost int64) {
	if n := p.debt.Owe(cost); n != 0 {
		e.sendControl(p, wire.Header{Kind: wire.Credit, Flags: wire.Urgent, Len: uint64(n)})
	}
}

// failPeer ends everything that involves p.
func (e *Engine) failPeer(p *peer, err error) {
	if p.err != nil {
		return
	}
	p.err = err
	e.special++
	p.eagerMax = -1
	e.todo.unblock(p)
	e.todo.resume(p)
	p.control = nil
	for _, r := range p.queue {
		e.dequeued(r)
		e.complete(r, err)
	}
	p.queue = nil
	p.starters = nil
	e.failPosted(p.rank, err)
	if int(p.rank) != e.cfg.Rank {
		// A receive from anybody might have been meant for this peer; nobody can know, so its caller is told.
		e.failPosted(AnySource, err)
	}
	e.failMatched(p, err)
	for i := range e.transfers.slots {
		if t := e.transfers.slots[i].t; t != nil && t.peer == p {
			e.abandon(t, err)
		}
	}
	probers := e.probers
	e.probers = nil
	for _, r := range probers {
		if r.recv.Source == p.rank || r.recv.Source == AnySource {
			e.complete(r, err)
		} else {
			e.probers = append(e.probers, r)
		}
	}
}

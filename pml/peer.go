package pml

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/tagmatch"
	"github.com/gorun-mpi/mpi/transport"
)

// peer is another rank, from the first contact on.
type peer struct {
	l    *linkPath
	rank int32
	out  eager.Sender         // what may be sent at once. Enabled ⇔ there is a link, queue is empty, and err is nil
	in   eager.CreditReceiver // what it may send unasked

	link     transport.Link
	rma      *transport.RMA      // nil: its memory cannot be reached
	presence *transport.Presence // nil: not known
	zcopy    *transport.ZeroCopy // nil: fragments are copied
	cut      func()              // of the link's caps; nil: only this engine reaches what is registered for p
	fragment int64
	getMax   int64 // of the link's caps

	connecting bool
	stalled    bool  // the link has refused something, and will say when it has room
	noSplit    bool  // the sender's half of a split message could not be written
	err        error // why nothing can be sent to or received from it
	down       bool  // its Down has come; then err is not nil
	end        farewell

	// What could not be sent. Control packets need no credit and overtake messages; messages keep their order.
	control fifo[controlPacket]
	answers int // in control: what the peer asks for, see isAnswer
	queue   fifo[*Request]

	tuner    rendezvous.Tuner       // of what it sends
	offered  int                    // messages to it that it can READ, and has not said that it has
	starters []*transfer            // matched receives that wait for the link
	linked   []func()               // likewise, to be called
	asked    *unexpected            // unmatched messages that the sender may take back, newest first
	byID     map[uint64]*unexpected // these, once it has taken one back; nil: not yet, or there is none of them
	blocked  int                    // of these whose sender is blocked: see early

	passedOver int     // visits of letSendersGoOn
	shares     *shares // nil: no device memory
	tags       peerTags
}

func newPeer(l *linkPath, rank int32) *peer {
	p := &peer{l: l, rank: rank}
	p.out.Disable()
	p.in.Open(l.grant)
	if l.offload.dev != nil {
		p.tags.offload = &l.offload
	}
	return p
}

// ensureConnected makes sure that there will be a link to p.
func (p *peer) ensureConnected() {
	if p.link != nil || p.connecting || p.err != nil {
		return
	}
	p.connecting = true
	e := p.l.e
	if self := e.cfg.Self; int(p.rank) == e.cfg.Rank {
		link, err := self.Connect(e.ctx, 0, self.Address())
		p.onConnected(p.l.grant, link, err)
		return
	}
	if grant, link := connectNow(&e.cfg, int(p.rank)); link != nil {
		p.onConnected(grant, link, nil)
		return
	}
	e.wg.Add(1)
	go p.connect()
}

// connect runs in a goroutine of its own: it may have to wait for the peer.
func (p *peer) connect() {
	e := p.l.e
	defer e.wg.Done()
	ctx, cancel := context.WithTimeout(e.ctx, e.cfg.ConnectTimeout)
	defer cancel()
	grant, link, err := dial(ctx, &e.cfg, int(p.rank))
	e.lock()
	if e.wait.leader == noLeader { // no caller may come for long: what this link was needed for is done here and now
		stoodIn := e.wait.standIn()
		p.onConnected(grant, link, err)
		for e.load.pending != 0 && e.wait.leader == noLeader && !e.asked() && e.progress() != 0 {
		}
		e.wait.standBack(stoodIn)
	} else {
		p.onConnected(grant, link, err)
	}
	e.exitCall()
	e.unlock()
}

// connectNow is dial where that waits for no other process; else there is no link.
func connectNow(cfg *Config, rank int) (int64, transport.Link) {
	connect := cfg.Net.Facts().ConnectNow
	if connect == nil {
		return 0, nil
	}
	grant, address, err := splitAddress(rank, cfg.known(rank))
	if err != nil {
		return 0, nil
	}
	return grant, connect(rank, address)
}

// known is what a peer has published, if that need not be looked up.
func (cfg *Config) known(rank int) []byte {
	if in := cfg.Net.Facts().Introducer; in != nil {
		if b := in.Card(rank); b != nil {
			return b
		}
	}
	if cfg.Known == nil {
		return nil
	}
	return cfg.Known(rank)
}

func dial(ctx context.Context, cfg *Config, rank int) (int64, transport.Link, error) {
	b := cfg.known(rank)
	if b == nil {
		var err error
		if b, err = cfg.Lookup(ctx, rank); err != nil {
			return 0, nil, fmt.Errorf("looking up its address: %w", err)
		}
	}
	grant, address, err := splitAddress(rank, b)
	if err != nil {
		return 0, nil, err
	}
	link, err := cfg.Net.Connect(ctx, rank, address)
	return grant, link, err
}

// onConnected takes the result of connecting.
func (p *peer) onConnected(grant int64, link transport.Link, err error) {
	p.connecting = false
	if p.err != nil {
		return
	}
	if err != nil && p.onlyAsks() {
		p.control.reset() // it may still be the peer that connects
		return
	}
	if err != nil {
		p.fail(&PeerError{int(p.rank), err})
		return
	}
	e, caps := p.l.e, link.Caps()
	if int(p.rank) == e.cfg.Rank {
		p.link = &selfLink{link, p.l}
	} else {
		p.link, p.cut = link, caps.Cut
	}
	p.rma, p.presence, p.zcopy = caps.RMA, caps.Presence, caps.ZeroCopy
	e.pace.yieldCPU = e.pace.yieldCPU || caps.Hosted
	limit := caps.EagerMax
	if e.cfg.EagerMax > 0 {
		limit = min(e.cfg.EagerMax, caps.FragMax, caps.EagerMax)
	}
	sure := limit
	if e.cfg.EagerMax == 0 && caps.EagerSure != 0 && p.rma != nil {
		sure, p.out.Tuner.Now = min(caps.EagerSure, limit), p.l.transfers.chooser.Now
	}
	p.out.Connect(p.link, grant, limit, sure)
	p.fragment = int64(caps.FragMax)
	if p.rma != nil {
		p.getMax = int64(p.rma.Max)
	}
	p.explain(caps)
	p.l.offload.onConnected(p, link)
	for _, t := range p.starters {
		p.l.transfers.begin(t)
	}
	p.starters = nil
	linked := p.linked
	p.linked = nil
	for _, f := range linked {
		f()
	}
	p.flush()
}

func (p *peer) explain(caps *transport.Caps) {
	cfg := &p.l.e.cfg
	if cfg.Debug == nil {
		return
	}
	large := "stream, split or get, by what each has cost; get while the sender computes"
	why := "none: all schemes work"
	switch {
	case p.rma == nil:
		large, why = "stream", caps.WhyNoRMA
	case p.presence == nil:
		large = "get; stream where the sender's memory is not registered"
		why = "split: the device does not say whether the peer polls"
	}
	cfg.Debug("peer connected", "peer", p.rank, "transport", p.l.e.TransportTo(int(p.rank)), "eager-max", p.out.Limit(),
		"rendezvous", large, "not-used", why)
}

// unsent is how many packets wait for a link, for room in it, or for credit.
func (p *peer) unsent() int { return p.queue.len() + p.control.len() }

// flush sends what is queued for p, and decides whether sends may go straight to the link.
func (p *peer) flush() {
	p.out.Disable()
	if p.link == nil {
		if p.err == nil && p.unsent() > 0 {
			p.ensureConnected()
		}
		return
	}
	if !p.flushControl() || !p.flushQueue() {
		p.l.worklist.stall(p)
		return
	}
	p.l.worklist.resume(p) // it was stalled for what came before a link, or before this
	if p.queue.len() == 0 && p.err == nil {
		p.out.Enable()
	}
}

func (p *peer) flushControl() bool {
	for p.control.len() > 0 {
		h := &p.control.items()[0]
		if !p.link.TrySend(&h.Header, h.payload) {
			return false
		}
		if isAnswer(h.Kind) {
			p.answers--
		}
		p.control.pop()
	}
	return true
}

// flushQueue sends what is queued as far as there is credit. It reports whether the link has room left. Where credit is
// lacking, Credit will call again.
func (p *peer) flushQueue() bool {
	batch := batchLimit(p.link.Caps())
	for p.queue.len() > 0 {
		if batch > 0 && p.queue.len() > 1 {
			if ok, full := p.sendBatch(batch); full {
				return false
			} else if ok {
				continue
			}
		}
		switch p.l.trySend(p, p.queue.items()[0]) {
		case sendFull:
			return false
		case sendNoCredit:
			return p.askForCredit()
		case sendPrepares:
			return true
		}
		p.queue.pop()
	}
	return true
}

// controlPacket is a packet that is no message and no part of one.
type controlPacket struct {
	wire.Header
	payload []byte
}

// sendControl sends a packet without payload, now or later.
func (p *peer) sendControl(h wire.Header) {
	if p.err != nil {
		return
	}
	if p.link != nil && p.control.len() == 0 {
		p.l.hdr = h
		if p.link.TrySend(&p.l.hdr, nil) {
			return
		}
	}
	p.queueControl(controlPacket{h, nil})
}

// sendWith is sendControl of a packet with a short payload, which nobody changes.
func (p *peer) sendWith(h wire.Header, payload []byte) {
	if p.err != nil {
		return
	}
	if p.link != nil && p.control.len() == 0 {
		p.l.hdr = h
		if p.link.TrySend(&p.l.hdr, payload) {
			return
		}
	}
	p.queueControl(controlPacket{h, payload})
}

// queueControl keeps a packet until there is a link, or room in it.
func (p *peer) queueControl(c controlPacket) {
	p.control.push(c)
	if isAnswer(c.Kind) {
		p.answers++
	}
	if p.link == nil {
		p.ensureConnected()
		return
	}
	p.l.worklist.stall(p)
}

func isAnswer(k wire.Kind) bool {
	return k == wire.CancelReply || k == wire.PutDone || k == wire.FIN || k == wire.Matched
}

// checkAnswers fails a peer that goes on asking and takes no answer, since the answers that wait for room have no other
// bound. A peer that keeps to the protocol asks for each message once or, if it cancels the message, twice. Its credit,
// and what it gives back of this rank's, comes behind the answers or was sent before the link was full: so they are at
// most twice as many as the messages that credit allows.
func (p *peer) checkAnswers() {
	if p.answers > 2*(p.in.Messages()+p.out.Messages()) {
		p.breaks("it takes no answers and goes on asking")
	}
}

// remember notes a message that p may take back.
func (p *peer) remember(u *unexpected) {
	if u.older = p.asked; u.older != nil {
		u.older.newer = u
	}
	p.asked = u
	if p.byID != nil {
		p.byID[u.ID] = u
	}
}

// find returns the message that p may take back with that number, or nil.
func (p *peer) find(id uint64) *unexpected {
	if p.byID == nil && p.asked != nil {
		p.byID = map[uint64]*unexpected{}
		for u := p.asked; u != nil; u = u.older {
			p.byID[u.ID] = u
		}
	}
	return p.byID[id]
}

// forget takes u off the list of messages that p may ask back.
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
	if p.byID[u.ID] == u {
		delete(p.byID, u.ID)
	}
	if p.asked == nil {
		p.byID = nil
	}
}

// breaks fails a peer that breaks the protocol.
func (p *peer) breaks(what string) {
	p.fail(&PeerError{int(p.rank), fmt.Errorf("%w: %s", transport.ErrPeerGone, what)})
}

// harmless reports whether neither p nor the link to it can touch the memory of this rank, but for a READ or WRITE
// under way.
func (p *peer) harmless() bool { return p.down || p.cut == nil }

// isDown notes that p is gone, and harmless from now on.
func (p *peer) isDown(err error) {
	p.down = true
	if p.err == nil {
		p.fail(&PeerError{int(p.rank), err})
	} else {
		p.l.transfers.releaseAll(p)
	}
}

// fail ends everything that involves p, now or when the buffers are not touched any more.
func (p *peer) fail(err error) {
	if p.err != nil {
		return
	}
	l := p.l
	p.err = err
	l.needsCheck++
	l.served(p)
	p.out.Disable()
	l.worklist.resume(p)
	p.control.reset()
	p.answers = 0
	for _, r := range p.queue.items() {
		if r.transfer != nil && r.transfer.prep == preparing {
			r.queued = false // failPeer ends it, when the link has let go of the buffer
			continue
		}
		l.dequeued(r)
		l.e.complete(r, err)
	}
	p.queue.reset()
	p.starters, p.linked = nil, nil
	l.failReceives(l.table.FailSource(p.rank, nil), err)
	if int(p.rank) != l.e.cfg.Rank {
		l.e.lose(p.rank, err)
		// A receive from any source might have been meant for this peer; that cannot be known, so its caller is told.
		l.failReceives(l.table.FailSource(AnySource, func(m *tagmatch.Receive) bool {
			return m.Owner.(*Request).serves() || l.e.closed == nil && l.e.recovery.lostTo(m.Ctx) == nil
		}), err)
	}
	l.offload.failMatched(p, err)
	l.transfers.failPeer(p, err)
	l.e.probers.end(l.e, l.e.probesLosing(p.rank), err)
	p.unshare()
	l.e.boards.failed(p.rank, err)
	l.e.windows.failed(l.e, p.rank, err)
	if !p.harmless() {
		p.cut()
	}
}

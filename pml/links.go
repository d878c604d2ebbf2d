package pml

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/tagmatch"
	"github.com/gorun-mpi/mpi/transport"
)

// linkPath moves messages over links: tagmatch says which receive gets which message, eager sends short ones,
// rendezvous says how long ones move.
//
// A send's life here:
//
//  1. Engine.Send: eager.Sender.Send, and it is over; or
//  2. send: connecting, or queued behind others, or
//  3. trySend: eager with a request, or RTS
//  4. packets.go: CTS begins a stream, FIN or Matched ends it
//
// and a receive's:
//
//  1. post: matched at once if the message is here (deliver), else in the table
//  2. packets.go: a message arrives, the table says that it is r's: copied (eager), or
//  3. transfer.go: fetched (rendezvous)
type linkPath struct {
	e     *Engine
	table *tagmatch.Table
	peers []*peer // by rank; nil until first contact
	// needsCheck: peers that have failed or returned, that send through a device that matches, or are in wanting.
	// Posted receives need a look.
	needsCheck int
	wanting    []*peer // Invariant: p is in it once ⇔ p.wants() and p.err is nil
	unheard    bool    // since letSendersGoOn, some that are in wanting; a caller that waits may not sleep before it
	fruitless  uint    // calls of foundNothing since then
	unmatched  bool    // one of these asked for a message that no receive has been matched with
	hdr        wire.Header
	worklist   worklist
	transfers  transfers
	offload    offload
	store      eager.Store
	shorts     shorts
	vigil      vigil
	spare      *unexpected              // free records
	saidMore   bool                     // in the log: see peer.sayMore
	aside      uint64                   // messages that have come, are not in table, and no receive has got
	early      int64                    // bytes of store: of messages that are, or were, fetched before they are matched
	fetches    map[*Request]*unexpected // for which they are fetched
	grant      int64                    // what each peer may send unasked
	batch      []byte                   // the payload of the last one, whose memory is used again
	selfPkts   [4]transport.Packet
}

func (l *linkPath) init(e *Engine) {
	cfg := &e.cfg
	keep := cfg.UnexpectedMax / 8
	l.e, l.table, l.peers = e, tagmatch.New(), make([]*peer, cfg.Size)
	l.store.Pool.Keep, l.grant = int(keep), eager.Grant(cfg.UnexpectedMax-keep, cfg.Size)
	l.worklist.load, l.worklist.wake = &e.load, e.wakeLeader
	l.transfers.l, l.offload.l, l.vigil.l = l, l, l
	begun := time.Now()
	l.transfers.chooser.Now = func() int64 { return int64(time.Since(begun)) + 1 }
	if cfg.Net != nil {
		l.offload.init(cfg.Net.Facts().Offload)
	}
}

// address is the grant to each sender and the device's address.
func (l *linkPath) address() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(l.grant))
	if net := l.e.cfg.Net; net != nil {
		b = append(b, net.Address()...)
	}
	return b
}

func splitAddress(peer int, b []byte) (grant int64, device []byte, err error) {
	if len(b) < 8 {
		return 0, nil, fmt.Errorf("rank %d published %d bytes as its address, at least 8 are needed", peer, len(b))
	}
	grant = int64(binary.LittleEndian.Uint64(b))
	if grant < eager.MinGrant {
		return 0, nil, fmt.Errorf("rank %d grants %d bytes of unexpected messages, at least %d are needed", peer, grant,
			eager.MinGrant)
	}
	return grant, b[8:], nil
}

// peer returns the record of a rank, made on first contact.
func (l *linkPath) peer(rank int32) *peer {
	if p := l.peers[rank]; p != nil {
		return p
	}
	p := newPeer(l, rank)
	l.peers[rank] = p
	return p
}

// known returns the record of a rank that a device speaks of, or nil.
func (l *linkPath) known(rank int32) *peer {
	if i := uint(rank); i < uint(len(l.peers)) {
		return l.peers[i]
	}
	return nil
}

func (l *linkPath) send(r *Request) {
	if !l.e.wait.calling {
		l.armEarly(r)
	}
	p := l.peer(r.recv.Source) // not in post: a receive needs no peer until it is matched
	r.peer = p
	if p.err != nil {
		l.e.complete(r, p.err)
		return
	}
	if p.queue.len() == 0 && p.link != nil {
		switch l.trySend(p, r) {
		case sendTaken:
			l.drainSelf()
			if p.end.err != nil {
				p.endWaits()
			}
			return
		case sendFull:
			l.worklist.stall(p)
		case sendNoCredit:
			p.askForCredit()
		}
	}
	r.queued = true
	p.queue.push(r)
	p.out.Disable()
	if p.link == nil {
		p.ensureConnected()
	}
	l.drainSelf()
}

// armEarly arms the device before a message is announced and not when the call ends: the receiver looks whether this
// rank is here the moment it sees the message, and would have it do half of the work when it may be about to compute.
func (l *linkPath) armEarly(r *Request) {
	e := l.e
	if r.buf.Len > 0 && e.wait.armed == armedNot && e.wait.leader == noLeader && e.sleep.Arm(transport.Urgent, false) {
		e.wait.isArmed(needUrgent)
	}
}

type sendResult uint8

const (
	sendTaken sendResult = iota
	sendFull
	sendNoCredit
	sendPrepares // RMADone will say when it may be tried again
)

// trySend hands r to the link, eager or as RTS.
func (l *linkPath) trySend(p *peer, r *Request) sendResult {
	n := r.buf.Len
	if n <= p.out.Limit() && !r.announce && p.out.TakePayload(n) {
		return l.sendEager(p, r)
	}
	if !p.out.TakeEnvelope() {
		return sendNoCredit
	}
	if result := l.transfers.announce(p, r); result != sendTaken {
		return result
	}
	r.queued = false
	l.e.stats.RendezvousSent++
	l.e.stats.BytesSent += uint64(n)
	return sendTaken
}

// sendEager sends a message whose credit has been taken.
func (l *linkPath) sendEager(p *peer, r *Request) sendResult {
	h := wire.Header{Kind: wire.Eager, Ctx: r.recv.Ctx, Tag: r.recv.Tag}
	if r.mode == Synchronous {
		if r.transfer == nil {
			l.transfers.open(r, p) // of no bytes: there is nothing to stream, whatever the peer says
		}
		h.Kind, h.Flags, h.ID = wire.EagerSync, wire.Urgent, r.transfer.id
	}
	if !p.out.SendPaid(h, copyOut(r.buf), eager.Cost(r.buf.Len)) {
		return sendFull
	}
	l.sentEager(r)
	return sendTaken
}

// sentEager is called when the link has taken r's message.
func (l *linkPath) sentEager(r *Request) {
	l.e.stats.EagerSent++
	l.e.stats.BytesSent += uint64(r.buf.Len)
	if r.queued = false; r.mode == Standard {
		l.dequeued(r) // it may have been refused as an RTS before there was credit
		l.e.complete(r, nil)
	}
}

// dequeued is called when r is no longer in its peer's queue, and has not been announced.
func (l *linkPath) dequeued(r *Request) {
	r.queued = false
	if r.transfer != nil {
		l.transfers.close(r.transfer)
	}
}

// post puts r into the table, or gives it the message that waits for it.
func (l *linkPath) post(r *Request) {
	l.posted(r, l.table.Post(&r.recv))
}

// posted goes on after the table's answer.
func (l *linkPath) posted(r *Request, m *tagmatch.Message) {
	if m != nil {
		l.deliver(r, m.Owner.(*unexpected))
	} else if l.needsCheck != 0 {
		l.checkPosted(r)
	}
}

// checkPosted looks after a receive that has found no message, where peers have failed or a device matches tags.
func (l *linkPath) checkPosted(r *Request) {
	rank := r.recv.Source
	if err := l.e.inVain(rank, r.recv.Ctx, r.recv.Tag); err != nil && !r.serves() {
		l.table.Cancel(&r.recv)
		l.e.complete(r, err)
		return
	}
	l.serve(rank)
	l.foundNothing(&waitFor{e: l.e})
	if rank < 0 {
		l.offload.fallBack(FallbackSource)
		return
	}
	p := l.peers[rank]
	switch {
	case p == nil:
	case p.tags.able:
		l.offload.handDown(p, r)
	case p.link != nil:
		l.offload.fallBack(FallbackPeer)
	}
}

// cancel implements path.
func (l *linkPath) cancel(r *Request, why error) {
	switch {
	case r.op == opLink:
		if r.extra && r.waits != nil {
			r.waits.unwait(r, why)
		} else if why != nil {
			l.transfers.desert(r.transfer, why)
		} // else an operation ends soon, and without the peer
	case r.op == opRecv && r.offload.state == inDevice:
		l.offload.cancel(r, why)
	case r.op == opRecv:
		if l.table.Cancel(&r.recv) {
			l.offload.withdraw(r)
			l.e.endCancelled(r, why)
		}
	case r.queued && r.transfer != nil && r.transfer.prep == preparing: // onPrepared takes it back
		if !r.cancelling {
			r.cancelling, r.cancelErr, r.extra = true, why, true
		}
	case r.queued:
		p := r.peer
		p.queue.remove(slices.Index(p.queue.items(), r))
		l.dequeued(r)
		l.e.endCancelled(r, why)
		p.flush()
	case r.transfer != nil && !r.cancelling:
		r.cancelling = true
		r.cancelErr, r.extra = why, true
		// Wake: the receiver may be far from the library, with nothing of its own under way.
		r.peer.sendControl(wire.Header{Kind: wire.Cancel, Flags: wire.Wake | wire.Urgent, ID: r.transfer.id})
	}
}

func (l *linkPath) probe(ctx uint32, source, tag int32, take bool) (found, bool) {
	m := l.table.Probe(ctx, source, tag)
	if m == nil {
		if len(l.wanting) != 0 {
			l.serve(source)
		}
		return found{}, false
	}
	u := m.Owner.(*unexpected)
	if take {
		l.table.Remove(m)
		u.taken = true
		l.aside++
	}
	return found{ctx: ctx, status: Status{Source: u.peer.rank, Tag: m.Tag, Bytes: u.Size}, u: u}, true
}

func (l *linkPath) take(f found, r *Request) {
	l.aside--
	l.deliver(r, f.u)
}

func (l *linkPath) drop(ctx uint32, err error) {
	receives, messages := l.table.DropContext(ctx)
	l.failReceives(receives, err)
	for _, m := range messages {
		l.discard(m.Owner.(*unexpected))
	}
}

func (l *linkPath) fail(err error) {
	l.shorts.next = nil
	for _, p := range l.peers {
		if p != nil {
			p.fail(err)
		}
	}
	l.failReceives(l.table.FailAll(), err)
}

func (l *linkPath) finish() {
	l.offload.finish()
	l.transfers.finish()
}

// failReceives completes posted receives that are off the table, now or when the device has let go of them.
func (l *linkPath) failReceives(list []*tagmatch.Receive, err error) {
	for _, m := range list {
		r := m.Owner.(*Request)
		if r.offload.state == inDevice {
			l.offload.fail(r, err)
			continue
		}
		l.offload.withdraw(r)
		l.e.complete(r, err)
	}
}

// gone implements path.
func (l *linkPath) gone(rank int32) error {
	if p := l.peers[rank]; p == nil {
		return nil
	} else if p.err != nil {
		return p.err
	} else {
		return p.end.err
	}
}

func (l *linkPath) count(s Stats) Stats {
	s.Posted, s.Unexpected = l.table.Posted(), l.table.Unexpected()
	s.UnexpectedBytes, s.UnexpectedPeak = l.store.Bytes, l.store.Peak
	return s
}

// work goes on with what no packet will be a reminder of.
func (l *linkPath) work() int {
	n := 0
	if l.worklist.self {
		n += l.pollSelf()
	}
	return n + l.transfers.work()
}

func (l *linkPath) stalled() bool {
	l.returnToWanting()
	goes := !l.e.wait.computing() && l.letSendersGoOn(nil)
	return l.transfers.switchToGet() || goes
}

// selfLink notes that there is something to poll.
type selfLink struct {
	transport.Link
	l *linkPath
}

func (s *selfLink) TrySend(h *wire.Header, payload []byte) bool {
	if !s.Link.TrySend(h, payload) {
		return false
	}
	s.l.worklist.addSelf()
	return true
}

// drainSelf handles what this rank has sent to itself. It does not touch the net: another caller may be armed for it.
func (l *linkPath) drainSelf() {
	for l.worklist.self {
		l.work()
	}
}

func (l *linkPath) pollSelf() int {
	cfg := &l.e.cfg
	n := cfg.Self.Poll(l.selfPkts[:])
	for i := range n {
		l.selfPkts[i].Peer = int32(cfg.Rank)
	}
	l.events(l.selfPkts[:n])
	if n == 0 {
		l.worklist.removeSelf()
	}
	return n
}

package pml

import (
	"slices"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// Messages in device memory that go through pinned memory.
//
// There is a bounded amount of it, and an operation that finds none stands in line. None that has some waits for one
// that stands in line: a send asks for some when its receiver, which has some already, has asked for its bytes, and
// gives it back when the link has taken them; a receive asks for some before it asks its sender for bytes, whose side
// is another one. The end of a copy depends on nothing here.
//
// A receive asks for several parts at a time, so that one is copied to the device while others come. It stands in line
// only while it has none.

// stagingSizes are of one side.
var stagingSizes = struct {
	small, smalls int64 // bytes of a piece of pinned memory, and how many of them there are
	large, larges int64
	step          int64 // bytes of one copy: what has been copied is sent while the rest of the piece is copied
}{64 << 10, 16, 2 << 20, 4, 512 << 10}

// side is the pinned memory for messages of one direction.
type side struct{ small, large pool }

// pool is pinned memory in pieces of one size.
type pool struct {
	size int64
	free []*pinned
	line fifo[*deviceOp] // the operations that wait for some; empty while free has some
}

// pinned is a piece of pinned memory. Its owner is the pool while it is free, then the deviceOp that has it as buf or
// in parts, then perhaps a copy out of it.
type pinned struct {
	pool  *pool
	mem   transport.Mem
	place uint32 // more by 1 than where it is in the memory that other processes map; 0: it is not there
}

// init makes the pools of mem. shared: mem is the beginning of the memory that other processes map.
func (s *side) init(mem []byte, shared bool) {
	z := &stagingSizes
	s.small.size, s.large.size = z.small, z.large
	for off := int64(0); off < int64(len(mem)); {
		p := &s.small
		if off >= z.small*z.smalls {
			p = &s.large
		}
		b := &pinned{pool: p, mem: transport.HostMem(mem[off : off+p.size : off+p.size])}
		if shared {
			b.place = uint32(off) + 1
		}
		p.free = append(p.free, b)
		off += p.size
	}
}

// of is where n bytes go, or the beginning of them.
func (s *side) of(n int64) *pool {
	if n <= s.small.size {
		return &s.small
	}
	return &s.large
}

// take takes a piece for o. nil: there is none, and o stands in line, for got.
func (p *pool) take(o *deviceOp) *pinned {
	if k := len(p.free); k > 0 {
		b := p.free[k-1]
		p.free = p.free[:k-1]
		return b
	}
	o.waiting = p
	p.line.push(o)
	return nil
}

func (p *pool) put(b *pinned) {
	if p.line.len() == 0 {
		p.free = append(p.free, b)
		return
	}
	o := p.line.items()[0]
	p.line.pop()
	o.waiting = nil
	o.got(b)
}

// leave takes o out of the line.
func (p *pool) leave(o *deviceOp) {
	p.line.remove(slices.Index(p.line.items(), o))
	o.waiting = nil
}

// got goes on with o, which has got a piece.
func (o *deviceOp) got(b *pinned) {
	switch {
	case len(o.rest) > 0:
		o.landIn(b)
		o.landRest()
	case o.r.op == opSend:
		o.fill(b)
	default:
		o.ask(b)
		o.askMore(o.r.transfer)
	}
	o.settle()
}

// The sending end.

// sendPiece sends the beginning of the fragment a, as far as it is in pinned memory. It returns how much; 0: t is
// parked until there is something to do, or the link is full.
func (o *deviceOp) sendPiece(t *transfer, a *rendezvous.Action) int64 {
	ts, p := &o.a.e.links.transfers, t.peer
	touch := o.mayTouch() // before the receiver takes memory for parts
	if o.over || touch && !o.inParts && o.prefersParts(t, a) {
		return 0
	}
	if o.buf != nil && (a.Off < o.from || a.Off >= o.from+o.n) && o.ready == o.n {
		o.giveBack() // the receiver has asked for something else
	}
	if o.buf == nil && o.waiting == nil && o.broken == nil && touch {
		o.from, o.n = a.Off, t.snd.Unsent()
		if targets := o.r.pieces.targets; len(targets) > 0 {
			o.n = targets[0].from - a.Off
		}
		if b := o.a.out.of(o.n).take(o); b != nil {
			o.fill(b)
		}
	}
	if o.over { // it cannot be read
		return 0
	}
	n := int64(0)
	if o.buf != nil && a.Off >= o.from && o.broken == nil {
		n = min(a.Len, o.from+o.ready-a.Off, int64(p.link.Caps().FragMax))
	}
	if n <= 0 {
		ts.l.worklist.remove(jobStream, t) // until a copy has ended
		return 0
	}
	// It is copied: pinned memory that was lent would have to stay as it is for as long as the link says, which is of
	// all that it has.
	ts.l.hdr = a.Header
	if !p.link.TrySend(&ts.l.hdr, copyOut(o.buf.mem.Part(a.Off-o.from, n))) {
		ts.l.worklist.stall(p)
		return 0
	}
	if a.Off+n == o.from+o.n {
		o.giveBack()
	}
	return n
}

// fill copies the bytes that are asked for into b, or as many as fit.
func (o *deviceOp) fill(b *pinned) {
	o.buf, o.ready = b, 0
	o.n = min(o.n, b.pool.size)
	var err error
	for off := int64(0); off < o.n && err == nil; off += stagingSizes.step {
		n := min(stagingSizes.step, o.n-off)
		err = o.a.start(o, o.b.Memory.Device, b.mem.Number()+uint64(off), o.b.Addr+uint64(o.from+off), n,
			func(err error) { o.filled(n, err) })
		if err != nil {
			o.n = off // what copies there are go there
		}
	}
	if err != nil {
		o.cannotRead(err)
	}
}

// filled is called when the next n bytes are in buf, or will not be.
func (o *deviceOp) filled(n int64, err error) {
	if o.ready += n; o.over && o.ready == o.n {
		o.giveBack()
	}
	o.copied(err)
}

// breaks ends a send whose message cannot be read. Its receiver hears of that.
func (o *deviceOp) breaks(err error) {
	t := o.r.transfer
	if t == nil || o.over {
		o.r.fails(err)
		return
	}
	if t.failed == nil {
		t.peer.sendControl(wire.Header{Kind: wire.Broken, Flags: wire.Urgent, Key: t.snd.To()})
	}
	t.snd.Abandon()
	o.a.e.links.transfers.end(t, err)
}

// onBroken is called when p cannot send the rest of a message.
func (ts *transfers) onBroken(p *peer, h *wire.Header) {
	t := ts.receiving(p, h.Key)
	switch {
	case t == nil: // over: the copy of the other end was ahead of what is wanted
	case t.rcv.ReadUnderWay() || t.rcv.Back().OK:
		p.breaks("it cannot send a message that it has let this rank read")
	case p.link == nil: // t is in starters
		p.breaks("it cannot send a message that was not asked for")
	default:
		if o := t.r.device(); o != nil {
			for i := range o.parts {
				o.parts[i].mayFill = false // the sender's copies have ended
			}
			o.endHost()
		}
		t.rcv.Abandon()
		t.r.status.Bytes = 0
		p.returnCredit(eager.Envelope)
		ts.end(t, errBroken)
	}
}

// The receiving end.

// receive is transfers.receive.
func (o *deviceOp) receive(p *peer, rts *wire.Header) {
	ts, r := &o.a.e.links.transfers, o.r
	r.buf.Len = int(o.b.Len) // without an address: nothing but the length is used
	t := ts.open(r, p)
	t.recv = true
	ts.inbound++
	t.rcv.Init(rts, o.b.Len, t.id)
	r.status.Bytes = t.rcv.Want()
	o.share.offered, o.share.id = rts.Flags&wire.Device != 0, rts.ID
	o.share.unready = o.share.offered && rts.Flags&wire.Unready != 0
	if p.link == nil { // the answer needs one
		p.linked = append(p.linked, func() { o.begin(t) })
		p.ensureConnected()
		return
	}
	o.begin(t)
}

// begin is called when there is a link to the sender.
func (o *deviceOp) begin(t *transfer) {
	if o.over {
		return
	}
	if t.rcv.Want() == 0 {
		o.a.e.links.transfers.onReceiver(t, t.rcv.Begin(rendezvous.Stream, 1, rendezvous.Region{}))
		return
	}
	o.reading.inRTS = t.rcv.Readable()
	t.rcv.InParts()
	if o.mayTouch() {
		o.fetch(t)
	}
}

// fetch gets the message, by the best way that there is.
func (o *deviceOp) fetch(t *transfer) {
	if !o.askWhere(t) && !o.reads(t) {
		o.askMore(t)
	}
}

// part is a part of a message that a receive has asked for, and the memory for it.
type part struct {
	b       *pinned
	from, n int64 // of the message
	mayFill bool  // the sender may put it there by itself
}

// partsMost is how many parts a receive from p asks for at a time. A link that places fragments has one place for a
// message.
func partsMost(p *peer) int {
	if p.zcopy != nil {
		return 1
	}
	return int(stagingSizes.larges)
}

// askMore asks for the next parts of the message as far as there is room for them. Where the receive has none left it
// waits for some. No memory is taken for parts that may be long in coming.
func (o *deviceOp) askMore(t *transfer) {
	if o.share.unready {
		o.request(t, wire.Header{})
		return
	}
	for o.waiting == nil && t.rcv.Left() > 0 && len(o.parts) < partsMost(t.peer) {
		p := o.a.in.of(t.rcv.Left())
		if len(o.parts) > 0 && len(p.free) == 0 {
			return
		}
		if b := p.take(o); b != nil {
			o.ask(b)
		}
	}
}

func (o *deviceOp) ask(b *pinned) {
	ts, t := &o.a.e.links.transfers, o.r.transfer
	p := t.peer
	n := min(t.rcv.Left(), b.pool.size)
	if o.host {
		n = min(n, readPiece) // which is copied while the lock is held
	}
	a := t.rcv.Ask(n)
	if z := p.zcopy; z != nil {
		z.Place(t.id, a.Header.Tag, b.mem.Part(0, a.Len).Back(a.Off), a.Off)
		t.placed = true
	}
	o.parts = append(o.parts, part{b, a.Off, a.Len, p.askFor(a.Header, b)})
	ts.l.worklist.set(jobInbound, t, true)
}

// Unpack takes what has come of the parts that are asked for: the receiving machine lets nothing else through. It
// reports whether it has, as it always does.
func (o *deviceOp) Unpack(src []byte, from int64) bool {
	end := from + int64(len(src))
	for _, q := range o.parts {
		if lo, hi := max(from, q.from), min(end, q.from+q.n); lo < hi {
			copyIn(q.b.mem.Part(lo-q.from, hi-lo), src[lo-from:hi-from])
		}
	}
	o.landed(o.r.transfer, end)
	return true
}

// landed is called when the message is here up to end. It copies the parts that are to the device, and asks for more.
func (o *deviceOp) landed(t *transfer, end int64) {
	for len(o.parts) > 0 && o.parts[0].from+o.parts[0].n <= end {
		q := o.parts[0]
		o.parts = slices.Delete(o.parts, 0, 1)
		if o.r.err == nil {
			o.r.fails(o.drain(q.b, q.from, q.n))
		} else {
			q.b.pool.put(q.b)
		}
	}
	if o.r.err == nil {
		o.askMore(t)
	}
}

// partHere is called when all is here that was asked for.
func (o *deviceOp) partHere() {
	ts, t := &o.a.e.links.transfers, o.r.transfer
	ts.rest(t)
	if o.landed(t, t.rcv.Have()); o.r.err == nil && (len(o.parts) > 0 || t.rcv.Left() > 0) {
		return
	}
	o.endHost()
	ts.onReceiver(t, t.rcv.Over())
}

// drain starts the copy of n bytes in b to from of the message. b is the copy's then.
func (o *deviceOp) drain(b *pinned, from, n int64) error {
	if o.host {
		copyIn(o.r.buf.Part(from, n), copyOut(b.mem.Part(0, n)))
		b.pool.put(b)
		return nil
	}
	err := o.a.start(o, o.b.Memory.Device, o.b.Addr+uint64(from), b.mem.Number(), n, func(err error) {
		if err != nil {
			o.drainFailed(deviceError("copying the message to it", err))
		}
		b.pool.put(b)
		if t := o.r.transfer; len(o.parts) > 0 && t != nil && o.r.err == nil {
			o.askMore(t)
		}
	})
	if err != nil {
		b.pool.put(b)
	}
	return err
}

// drainFailed is called when a part could not be copied. If nothing is under way from the sender the message ends now,
// else when that is here.
func (o *deviceOp) drainFailed(err error) {
	o.r.fails(err)
	if t := o.r.transfer; t != nil && t.failed == nil && len(o.parts) == 0 {
		if o.waiting != nil {
			o.waiting.leave(o)
		}
		o.a.e.links.transfers.onReceiver(t, t.rcv.Over())
	}
}

// land takes a message that is here as a whole.
func (o *deviceOp) land(payload []byte) {
	r := o.r
	r.buf.Len = int(o.b.Len)
	n := min(int64(len(payload)), o.b.Len)
	r.status.Bytes = n
	o.rest, o.from = payload[:n], 0
	if len(o.rest) > 0 && o.mayTouch() {
		o.landRest()
	}
	if len(o.rest) > 0 {
		o.rest = slices.Clone(o.rest)
	}
	o.a.e.complete(r, r.truncated(int64(len(payload))))
}

// landRest copies the rest as far as there is pinned memory.
func (o *deviceOp) landRest() {
	for len(o.rest) > 0 {
		b := o.a.in.of(int64(len(o.rest))).take(o)
		if b == nil {
			return
		}
		o.landIn(b)
	}
}

// landIn copies the beginning of the rest through b.
func (o *deviceOp) landIn(b *pinned) {
	n := copyIn(b.mem, o.rest[:min(int64(len(o.rest)), b.pool.size)])
	err := o.drain(b, o.from, int64(n))
	o.rest, o.from = o.rest[n:], o.from+int64(n)
	if err != nil {
		o.r.fails(err)
		o.rest = nil
	}
	if len(o.rest) == 0 {
		o.rest = nil
	}
}

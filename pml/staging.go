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
// There is a bounded amount of it, and an operation that finds none stands in line. None that has some waits for one that
// stands in line: a send asks for some when its receiver, which has some already, has asked for its bytes, and gives it back
// when the link has taken them; a receive asks for some before it asks its sender for bytes, whose side is another one.
// The end of a copy depends on nothing here.

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

// pinned is a piece of pinned memory. Its owner is the pool while it is free, then the deviceOp that has it as buf, then
// perhaps a copy out of it.
type pinned struct {
	pool *pool
	mem  transport.Mem
}

func (s *side) init(mem []byte) {
	z := &stagingSizes
	s.small.init(mem[:z.small*z.smalls], z.small)
	s.large.init(mem[z.small*z.smalls:], z.large)
}

func (p *pool) init(mem []byte, size int64) {
	p.size = size
	for ; int64(len(mem)) >= size; mem = mem[size:] {
		p.free = append(p.free, &pinned{p, transport.HostMem(mem[:size:size])})
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
	}
	o.settle()
}

// The sending end.

// sendPiece sends the beginning of the fragment a, as far as it is in pinned memory. It returns how much; 0: t is parked
// until there is something to do, or the link is full.
func (o *deviceOp) sendPiece(t *transfer, a *rendezvous.Action) int64 {
	ts, p := &o.a.e.links.transfers, t.peer
	if o.buf != nil && (a.Off < o.from || a.Off >= o.from+o.n) && o.ready == o.n {
		o.giveBack() // the receiver has asked for something else
	}
	if o.buf == nil && o.waiting == nil && o.mayTouch() {
		o.from, o.n = a.Off, t.snd.Unsent()
		if b := o.a.out.of(o.n).take(o); b != nil {
			o.fill(b)
		}
	}
	if o.over { // it cannot be read
		return 0
	}
	n := int64(0)
	if o.buf != nil && a.Off >= o.from {
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
		o.breaks(err)
	}
}

// filled is called when the next n bytes are in buf, or will not be.
func (o *deviceOp) filled(n int64, err error) {
	o.ready += n
	ts, t := &o.a.e.links.transfers, o.r.transfer
	switch {
	case o.over:
		if o.ready == o.n {
			o.giveBack()
		}
	case err != nil:
		o.breaks(deviceError("copying the message from it", err))
	case t != nil && t.failed == nil:
		ts.l.worklist.set(jobStream, t, t.snd.Streaming())
	}
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

// askMore asks for the next part of the message when there is room for it. No memory is taken for a part that may be
// long in coming.
func (o *deviceOp) askMore(t *transfer) {
	if o.share.unready {
		o.request(t, wire.Header{})
		return
	}
	if b := o.a.in.of(t.rcv.Left()).take(o); b != nil {
		o.ask(b)
	}
}

func (o *deviceOp) ask(b *pinned) {
	ts, t := &o.a.e.links.transfers, o.r.transfer
	p := t.peer
	o.buf, o.from, o.n = b, t.rcv.Have(), min(t.rcv.Left(), b.pool.size)
	o.ready = o.n // it goes back whenever it is not wanted: no copy into it is under way
	a := t.rcv.Ask(o.n)
	if z := p.zcopy; z != nil {
		z.Place(t.id, a.Header.Tag, b.mem.Part(0, o.n).Back(a.Off), a.Off)
		t.placed = true
	}
	p.sendControl(a.Header)
	ts.l.worklist.set(jobInbound, t, true)
}

// Unpack takes what has come of the part that is asked for: the receiving machine lets nothing else through. It reports
// whether it has, as it always does.
func (o *deviceOp) Unpack(src []byte, from int64) bool {
	copyIn(o.buf.mem.Part(from-o.from, int64(len(src))), src)
	return true
}

// partHere is called when all is here that was asked for.
func (o *deviceOp) partHere() {
	ts, t := &o.a.e.links.transfers, o.r.transfer
	ts.rest(t)
	b := o.buf
	o.buf = nil
	if o.r.err == nil {
		o.r.fails(o.drain(b, o.from, o.n))
	} else {
		b.pool.put(b)
	}
	if o.r.err == nil && t.rcv.Left() > 0 {
		o.askMore(t)
		return
	}
	ts.onReceiver(t, t.rcv.Over())
}

// drain starts the copy of n bytes in b to from of the message. b is the copy's then.
func (o *deviceOp) drain(b *pinned, from, n int64) error {
	err := o.a.start(o, o.b.Memory.Device, o.b.Addr+uint64(from), b.mem.Number(), n, func(err error) {
		if err != nil {
			o.drainFailed(deviceError("copying the message to it", err))
		}
		b.pool.put(b)
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
	if t := o.r.transfer; t != nil && t.failed == nil && o.buf == nil {
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

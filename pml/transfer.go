package pml

import (
	"math"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// transfer is one end of a message that peers speak of by a number: a rendezvous, or a synchronous eager message that is
// not matched yet. What is sent on which event is package rendezvous's to say; here that is carried out.
//
// From open to close the request's buffer is the library's, and also what the link may touch it for: READs and WRITEs
// under way, fragments that are placed, what is registered. close gives all of it back.
type transfer struct {
	id   uint64
	r    *Request // r.transfer == this
	peer *peer
	recv bool // rcv is in use, else snd
	rcv  rendezvous.Receiver
	snd  rendezvous.Sender

	jobs   jobSet // what is in the worklist
	placed bool   // the link's Place has the buffer
	next   *transfer
}

// transferTable gives transfers numbers that peers return. A number is used once.
type transferTable struct {
	slots []transferSlot
	free  []uint32  // slots without a transfer
	spare *transfer // for reuse
}

type transferSlot struct {
	t   *transfer
	gen uint32
}

// open makes a transfer for r, with a number.
func (tt *transferTable) open(r *Request, p *peer) *transfer {
	t := tt.spare
	if t == nil {
		t = new(transfer)
	}
	tt.spare = t.next
	i := uint32(len(tt.slots))
	if n := len(tt.free); n > 0 {
		i = tt.free[n-1]
		tt.free = tt.free[:n-1]
	} else {
		tt.slots = append(tt.slots, transferSlot{})
	}
	s := &tt.slots[i]
	s.gen++
	s.t = t
	*t = transfer{r: r, peer: p, id: uint64(s.gen)<<32 | uint64(i+1)}
	r.transfer = t
	return t
}

// find returns the transfer with that number, or nil.
func (tt *transferTable) find(id uint64) *transfer {
	if i := uint32(id) - 1; uint64(i) < uint64(len(tt.slots)) {
		if t := tt.slots[i].t; t != nil && t.id == id {
			return t
		}
	}
	return nil
}

// receiving returns the transfer with that number if it is one that p sends.
func (tt *transferTable) receiving(p *peer, id uint64) *transfer {
	if t := tt.find(id); t != nil && t.peer == p && t.recv {
		return t
	}
	return nil
}

// release takes the number back. t is for reuse.
func (tt *transferTable) release(t *transfer) {
	i := uint32(t.id) - 1
	tt.slots[i].t = nil
	tt.free = append(tt.free, i)
	t.r.transfer = nil
	t.r, t.peer = nil, nil
	t.next, tt.spare = tt.spare, t
}

// close ends what the link does with the buffer, and gives t back.
func (e *Engine) close(t *transfer) {
	for k := range jobKinds {
		e.todo.remove(k, t)
	}
	if t.placed {
		t.peer.placer.Displace(t.id)
	}
	memory := t.snd.Memory()
	if t.recv {
		memory = t.rcv.Back()
	}
	if memory.OK {
		t.peer.getter.Deregister(memory.Addr, memory.Key)
	}
	e.transfers.release(t)
}

// abandon ends a transfer because its peer is gone.
func (e *Engine) abandon(t *transfer, err error) {
	if t.recv {
		t.rcv.Abandon()
		t.r.status.Bytes = 0
	} else {
		t.snd.Abandon()
	}
	e.end(t, err)
}

// end gives the buffer back to its user.
func (e *Engine) end(t *transfer, err error) {
	r := t.r
	e.close(t)
	e.complete(r, err)
}

// readPiece bounds what one READ moves while the engine's lock is held, unless the link says otherwise: a device that
// moves memory by itself takes no longer for more.
const readPiece = 1 << 20

func (p *peer) readPiece() int64 {
	if p.getMax > 0 {
		return p.getMax
	}
	return readPiece
}

// The receiving end.

// receive begins to fetch the message of rts for r, which is matched with it and off the table.
func (e *Engine) receive(r *Request, p *peer, rts *wire.Header) {
	if p.err != nil { // only the envelope is here
		e.complete(r, p.err)
		return
	}
	t := e.transfers.open(r, p)
	t.recv = true
	t.rcv.Init(rts, int64(len(r.buf)), t.id)
	r.status.Bytes = t.rcv.Want()
	if p.link == nil { // the answer needs one
		p.starters = append(p.starters, t)
		e.ensureConnected(p)
		return
	}
	e.begin(t)
}

// begin chooses the scheme.
func (e *Engine) begin(t *transfer) {
	p := t.peer
	if p.getter == nil {
		t.rcv.NotReadable()
	}
	f := rendezvous.Facts{Size: t.rcv.Size(), Room: int64(len(t.r.buf)), Readable: t.rcv.Readable(), Writable: !p.noSplit,
		Mapped: t.rcv.Source.Key != 0, Sender: p.presence, Watched: e.wait.watching(), Computing: e.wait.computing()}
	s, n := e.chooser.Choose(&t.rcv.Trial, &p.tuner, &f)
	var back rendezvous.Region
	switch s {
	case rendezvous.Get:
		e.stats.Gets++
	case rendezvous.Split:
		e.stats.Splits++
		if back = e.registerBack(t, n); !back.OK {
			s = rendezvous.Get
		}
	}
	e.onReceiver(t, t.rcv.Begin(s, p.readPiece(), back))
}

// registerBack registers the last n bytes that the message will have in its buffer, for the sender to write.
func (e *Engine) registerBack(t *transfer, n int64) rendezvous.Region {
	size := t.rcv.Size()
	addr, key, ok := t.peer.getter.Register(t.r.buf[size-n : size])
	if !ok || key > math.MaxUint32 {
		t.peer.noSplit = true
		return rendezvous.Region{}
	}
	return rendezvous.Region{Addr: addr, Key: key, Len: n, OK: true}
}

// onReceiver does what the receiving machine says. t may be closed afterwards.
func (e *Engine) onReceiver(t *transfer, a rendezvous.Action) {
	switch a.Do {
	case rendezvous.Expect:
		if place := t.peer.placer; place != nil {
			place.Place(t.id, a.Header.Tag, t.r.buf[:a.Off+a.Len], a.Off)
			t.placed = true
		}
		e.sendControl(t.peer, a.Header)
	case rendezvous.Send:
		e.sendControl(t.peer, a.Header)
	case rendezvous.Finish:
		e.finishReceive(t, a.Header)
		return
	case rendezvous.Fail:
		e.failPeer(t.peer, &PeerError{int(t.peer.rank), a.Err})
		return
	}
	e.todo.set(jobRead, t, t.rcv.Reading())
	e.todo.set(jobInbound, t, t.rcv.Streaming())
}

// finishReceive: everything that was wanted is here.
func (e *Engine) finishReceive(t *transfer, fin wire.Header) {
	r, p, size := t.r, t.peer, t.rcv.Size()
	e.close(t)
	e.sendControl(p, fin)
	e.returnCredit(p, eager.Envelope)
	var err error
	if size > int64(len(r.buf)) {
		err = &TruncateError{size, int64(len(r.buf))}
	}
	e.complete(r, err)
}

// onData: a piece of a stream.
func (e *Engine) onData(p *peer, h *wire.Header, payload []byte) {
	if t := e.transfers.receiving(p, h.Key); t != nil { // else it is over: READ was faster
		e.onFragment(t, h, int64(len(payload)), payload)
	}
}

// onPlaced: a piece of a fragment is in the buffer already.
func (e *Engine) onPlaced(p *peer, h *wire.Header) {
	if t := e.transfers.receiving(p, h.Key); t != nil && t.placed && h.Len <= math.MaxInt64 {
		e.onFragment(t, h, int64(h.Len), nil)
	}
}

func (e *Engine) onFragment(t *transfer, h *wire.Header, n int64, payload []byte) {
	a := t.rcv.OnData(h.Tag, int64(h.Addr), n)
	if a.Do == rendezvous.Copy {
		copy(t.r.buf[a.Off:a.Off+a.Len], payload)
		a = t.rcv.Copied(a.Len)
	}
	e.onReceiver(t, a)
}

// readNext does one READ, if that is not under way.
func (e *Engine) readNext(t *transfer) int {
	off, n, ok := t.rcv.NextRead()
	if !ok {
		return 0
	}
	from := t.rcv.Source
	switch st, err := t.peer.getter.TryGet(t.r.buf[off:off+n], from.Addr+uint64(off), from.Key, t.id); {
	case err != nil:
		e.readFailed(t)
	case st == transport.GetFull:
		return 0
	case st == transport.GetStarted:
		t.rcv.ReadStarted()
	default:
		e.onReceiver(t, t.rcv.OnGetDone())
	}
	return 1
}

func (e *Engine) readFailed(t *transfer) {
	e.stats.GetsFailed++
	e.onReceiver(t, t.rcv.OnGetFailed())
}

// onGetDone: a READ or WRITE that was started has ended.
func (e *Engine) onGetDone(id uint64, err error) {
	t := e.transfers.find(id)
	switch {
	case t == nil:
	case !t.recv:
		if n := t.snd.WriteUnderWay(); n > 0 {
			e.wrote(t, n, err)
		}
	case !t.rcv.Reading():
	case err != nil:
		e.readFailed(t)
	default:
		e.onReceiver(t, t.rcv.OnGetDone())
	}
}

// onPutDone: the sender has written its part, or cannot.
func (e *Engine) onPutDone(p *peer, h *wire.Header) {
	t := e.transfers.receiving(p, h.Key)
	if t == nil || !t.rcv.Back().OK {
		return
	}
	back := t.rcv.Back()
	p.getter.Deregister(back.Addr, back.Key)
	p.noSplit = p.noSplit || h.Len == 0
	e.onReceiver(t, t.rcv.OnPutDone(int64(h.Len)))
}

// switchToGet changes stalled streams to READs, and reports whether there were any: the senders have stopped sending,
// perhaps to compute.
func (e *Engine) switchToGet() bool {
	found := false
	streams := &e.todo.jobs[jobInbound]
	for i := len(*streams) - 1; i >= 0; i-- {
		if t := (*streams)[i]; t.rcv.Readable() {
			found = true
			e.stats.TakenOver++
			e.onReceiver(t, t.rcv.Stall())
		}
	}
	return found
}

// The sending end.

// announce sends the RTS of r.
func (e *Engine) announce(p *peer, r *Request) sendResult {
	t := r.transfer
	if t == nil {
		t = e.transfers.open(r, p)
	}
	size := int64(len(r.buf))
	var memory rendezvous.Region
	if p.getter != nil {
		memory.Addr, memory.Key, memory.OK = p.getter.Register(r.buf)
	}
	t.snd.Init(t.id, size, memory, p.piece(len(r.buf)))
	e.hdr = t.snd.RTS(r.recv.Ctx, r.recv.Tag)
	if !p.link.TrySend(&e.hdr, nil) {
		if memory.OK {
			p.getter.Deregister(memory.Addr, memory.Key)
		}
		t.snd.Init(t.id, 0, rendezvous.Region{}, 0)
		p.account.Return(eager.Envelope)
		return sendFull
	}
	r.queued = false
	e.stats.RendezvousSent++
	e.stats.BytesSent += uint64(size)
	return sendTaken
}

// sending returns the transfer that p speaks of if it is one to p. what says what it does, if it cannot know the number.
func (e *Engine) sending(p *peer, id uint64, what string) *transfer {
	t := e.transfers.find(id)
	if t == nil || t.peer != p || t.recv {
		return nil // over: FIN was faster
	}
	if t.r.queued {
		e.failPeer(p, protocolError(p, what+" a message that has not been sent"))
		return nil
	}
	return t
}

// onSender does what the sending machine says. t may be closed afterwards.
func (e *Engine) onSender(t *transfer, a rendezvous.Action) {
	switch a.Do {
	case rendezvous.Send:
		e.sendControl(t.peer, a.Header)
	case rendezvous.Complete:
		e.end(t, nil)
		return
	case rendezvous.Fail:
		e.failPeer(t.peer, &PeerError{int(t.peer.rank), a.Err})
		return
	}
	e.todo.set(jobStream, t, t.snd.Streaming())
	e.todo.set(jobWrite, t, t.snd.Writing())
}

// onCTS: the receiver asks for a stream.
func (e *Engine) onCTS(p *peer, h *wire.Header) {
	t := e.sending(p, h.ID, "it asked for")
	if t == nil {
		return
	}
	began := !t.snd.Streaming()
	e.onSender(t, t.snd.OnCTS(h))
	if began && t.jobs.has(jobStream) {
		e.stats.Streams++
		if !p.stalled {
			e.pump(t)
		}
	}
}

// onFIN: FIN, or Matched for a synchronous eager message.
func (e *Engine) onFIN(p *peer, h *wire.Header) {
	if t := e.sending(p, h.ID, "it acknowledged"); t != nil {
		e.onSender(t, t.snd.OnFIN())
	}
}

// onPutReq: the receiver asks this sender to write the end of its message.
func (e *Engine) onPutReq(p *peer, h *wire.Header) {
	if t := e.sending(p, h.ID, "it asked for"); t != nil {
		_, able := p.link.(transport.Putter)
		e.onSender(t, t.snd.OnPutAsk(h, able))
	}
}

// piece is how long the fragments of a message are.
func (p *peer) piece(size int) int64 {
	if p.lender != nil {
		return int64(p.link.Caps().LendMax)
	}
	return rendezvous.PieceOf(size, p.fragment)
}

// pump sends fragments while there is room, and reports how many.
func (e *Engine) pump(t *transfer) int {
	p, buf := t.peer, t.r.buf
	for n := 0; ; n++ {
		limit := int64(math.MaxInt64)
		if p.lender == nil {
			limit = int64(p.link.Caps().FragMax) // which is less once memory has run out
		}
		a := t.snd.NextFragment(limit)
		if a.Do != rendezvous.Fragment {
			e.todo.remove(jobStream, t)
			return n
		}
		e.hdr = a.Header
		if !e.sendFragment(p, buf[a.Off:a.Off+a.Len]) {
			return n
		}
		t.snd.Sent(a.Len)
	}
}

// sendFragment sends e.hdr with payload. The sender's buffer is left alone until FIN, so that it can be lent.
func (e *Engine) sendFragment(p *peer, payload []byte) bool {
	taken := false
	if p.lender != nil {
		taken = p.lender.TryLend(&e.hdr, payload)
	} else {
		taken = p.link.TrySend(&e.hdr, payload)
	}
	if !taken && p.tells {
		e.markBlocked(p)
	}
	return taken
}

// writeNext does one WRITE, if that is not under way.
func (e *Engine) writeNext(t *transfer) int {
	off, n, addr, key, ok := t.snd.NextWrite(t.peer.readPiece())
	if !ok {
		return 0
	}
	switch st, err := t.peer.link.(transport.Putter).TryPut(t.r.buf[off:off+n], addr, key, t.id); {
	case err == nil && st == transport.GetFull:
		return 0
	case err == nil && st == transport.GetStarted:
		t.snd.WriteStarted(n)
	default:
		e.wrote(t, n, err)
	}
	return 1
}

// wrote: a WRITE of n bytes has ended.
func (e *Engine) wrote(t *transfer, n int64, err error) {
	if err != nil {
		e.onSender(t, t.snd.OnWriteFailed())
		return
	}
	e.onSender(t, t.snd.OnWritten(n))
}

package pml

import (
	"math"
	"time"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// readPiece bounds what one READ moves while the engine's lock is held, unless the link says otherwise: a device that
// moves memory by itself takes no longer for more.
const readPiece = 1 << 20

func (p *peer) readPiece() int64 {
	if p.getMax > 0 {
		return p.getMax
	}
	return readPiece
}

// transfer begins to fetch a message for r, which is matched and off the table.
func (e *Engine) transfer(r *Request, p *peer, size int64, id, addr, key uint64, flags uint8) {
	if p.err != nil { // only the envelope is here
		e.complete(r, p.err)
		return
	}
	r.peer, r.remote, r.at, r.key, r.size = p, id, addr, key, size
	r.canGet = flags&wire.Readable != 0
	want := size
	if room := int64(len(r.buf)); room < size {
		want = room
	}
	r.status.Bytes = want
	r.rcv.Init(want, p.readPiece())
	e.ids.of(r)
	if p.link == nil { // the answer needs one
		p.starters = append(p.starters, r)
		e.ensureConnected(p)
		return
	}
	e.startTransfer(r)
}

// startTransfer chooses the scheme.
func (e *Engine) startTransfer(r *Request) {
	p := r.peer
	r.rcv.Init(r.status.Bytes, p.readPiece()) // which a link that was not there has changed
	if p.getter == nil {
		r.canGet = false
	}
	scheme, back := e.choose(r)
	switch scheme {
	case rendezvous.Get:
		e.stats.Gets++
	case rendezvous.Split:
		e.stats.Splits++
	}
	e.receive(r, rendezvous.Input{On: rendezvous.Matched, Scheme: scheme, Len: back})
}

// receive gives the receiver's machine an input and does what it says.
func (e *Engine) receive(r *Request, in rendezvous.Input) {
	was := r.rcv.Scheme()
	a := r.rcv.Step(in)
	if now := r.rcv.Scheme(); now != was {
		if was == rendezvous.Stream {
			e.inbound--
		}
		if now == rendezvous.Stream {
			e.inbound++
		}
	}
	switch a.Do {
	case rendezvous.SendCTS:
		if r.peer.placer != nil {
			r.peer.placer.Place(r.id, a.Gen, r.buf[:a.Off+a.Len], a.Off)
			r.placing = true
		}
		e.sendControl(r.peer, wire.Header{Kind: wire.CTS, Flags: wire.Urgent, ID: r.remote, Key: r.id,
			Tag: a.Gen, Addr: uint64(a.Off), Len: uint64(a.Len)})
	case rendezvous.AskPut:
		e.askPut(r, a)
	case rendezvous.Read:
		r.read = a
		e.todo.add(jobRead, r)
	case rendezvous.Finish:
		e.endReceive(r)
	case rendezvous.Fail:
		e.failPeer(r.peer, &PeerError{int(r.peer.rank), a.Err})
	}
}

// fragment: a piece of a stream.
func (e *Engine) fragment(p *peer, pkt *transport.Packet) {
	h := &pkt.Header
	r := e.ids.find(h.Key, p)
	if r == nil || r.op != opRecv {
		return // over: READ was faster
	}
	a := r.rcv.Step(rendezvous.Input{On: rendezvous.Fragment, Gen: h.Tag, Off: int64(h.Addr), Len: int64(len(pkt.Payload))})
	switch a.Do {
	case rendezvous.Copy:
		copy(r.buf[a.Off:a.Off+a.Len], pkt.Payload)
		e.receive(r, rendezvous.Input{On: rendezvous.Copied, Len: a.Len})
	case rendezvous.Fail:
		e.failPeer(p, &PeerError{int(p.rank), a.Err})
	}
}

// placed: a piece of a fragment is in r's buffer already.
func (e *Engine) placed(p *peer, pkt *transport.Packet) {
	h := &pkt.Header
	r := e.ids.find(h.Key, p)
	if r == nil || r.op != opRecv || !r.placing || h.Len > math.MaxInt64 {
		return
	}
	a := r.rcv.Step(rendezvous.Input{On: rendezvous.Fragment, Gen: h.Tag, Off: int64(h.Addr), Len: int64(h.Len)})
	switch a.Do {
	case rendezvous.Copy:
		e.receive(r, rendezvous.Input{On: rendezvous.Copied, Len: a.Len})
	case rendezvous.Fail:
		e.failPeer(p, &PeerError{int(p.rank), a.Err})
	}
}

// displace: r's buffer is its caller's again.
func (e *Engine) displace(r *Request) {
	if r.placing {
		r.placing = false
		r.peer.placer.Displace(r.id)
	}
}

// readNext does one READ.
func (e *Engine) readNext(r *Request) int {
	a := r.read
	if a.Do != rendezvous.Read {
		return 0 // under way, or waiting
	}
	st, err := r.peer.getter.TryGet(r.buf[a.Off:a.Off+a.Len], r.at+uint64(a.Off), r.key, r.id)
	switch {
	case err != nil:
		e.readFailed(r)
	case st == transport.GetFull:
		return 0
	case st == transport.GetStarted:
		r.read.Do = rendezvous.Nothing
	default:
		e.haveRead(r)
	}
	return 1
}

// gotRead: a READ that was started has ended.
func (e *Engine) gotRead(id uint64, err error) {
	i := uint32(id) - 1
	if uint64(i) >= uint64(len(e.ids.slots)) {
		return
	}
	r := e.ids.slots[i].r
	if r == nil || r.id != id {
		return
	}
	if r.putBusy {
		if err != nil {
			e.endPut(r, 0)
			return
		}
		e.putMoved(r, min(r.putLeft, r.peer.readPiece()))
		return
	}
	if !r.jobs.has(jobRead) {
		return
	}
	if err != nil {
		e.readFailed(r)
		return
	}
	e.haveRead(r)
}

// haveRead: a READ is done.
func (e *Engine) haveRead(r *Request) {
	r.read.Do = rendezvous.Nothing
	e.receive(r, rendezvous.Input{On: rendezvous.Got, Len: r.read.Len})
	if r.read.Do == rendezvous.Nothing {
		e.todo.remove(jobRead, r) // the front of a split message: the back is not ours to do
		if r.tuned != nil || r.crowd != nil {
			r.frontDone = time.Now()
		}
	}
}

func (e *Engine) readFailed(r *Request) {
	r.canGet = false
	e.stats.GetsFailed++
	e.todo.remove(jobRead, r)
	e.receive(r, rendezvous.Input{On: rendezvous.GetFailed})
}

// endReceive: everything that was wanted is here.
func (e *Engine) endReceive(r *Request) {
	e.todo.remove(jobRead, r)
	e.leavePut(r)
	e.displace(r)
	e.fetched(r, true)
	p := r.peer
	e.sendControl(p, wire.Header{Kind: wire.FIN, ID: r.remote})
	e.owe(p, eager.Envelope)
	var err error
	if r.size > int64(len(r.buf)) {
		err = &TruncateError{r.size, int64(len(r.buf))}
	}
	e.complete(r, err)
}

// abandon ends a transfer because its peer is gone.
func (e *Engine) abandon(r *Request, err error) {
	if r.op == opSend {
		e.endSend(r, err)
		return
	}
	e.todo.remove(jobRead, r)
	e.leavePut(r)
	e.displace(r)
	e.fetched(r, false)
	if r.rcv.Scheme() == rendezvous.Stream {
		e.inbound--
	}
	r.status.Bytes = 0
	e.complete(r, err)
}

// switchToGet changes stalled streams to READs, and reports whether there were any: the senders have stopped sending,
// perhaps to compute.
func (e *Engine) switchToGet() bool {
	if e.inbound == 0 {
		return false
	}
	found := false
	for i := range e.ids.slots {
		r := e.ids.slots[i].r
		if r != nil && r.op == opRecv && r.canGet && r.rcv.Scheme() == rendezvous.Stream {
			found = true
			e.stats.TakenOver++
			e.receive(r, rendezvous.Input{On: rendezvous.Stalled})
		}
	}
	return found
}

// askPut asks the sender to write the end of the message into r's buffer.
func (e *Engine) askPut(r *Request, a rendezvous.Action) {
	addr, key, ok := r.peer.getter.Register(r.buf[a.Off : a.Off+a.Len])
	if !ok || key > math.MaxUint32 {
		r.peer.noSplit = true
		e.receive(r, rendezvous.Input{On: rendezvous.Asked})
		e.receive(r, rendezvous.Input{On: rendezvous.PutFailed})
		return
	}
	r.putAddr, r.putKey, r.putOpen = addr, key, true
	e.sendControl(r.peer, wire.Header{Kind: wire.PutAsk, Flags: wire.Urgent, ID: r.remote, Key: r.id,
		Ctx: uint32(key), Addr: addr, Len: uint64(a.Len)})
	e.receive(r, rendezvous.Input{On: rendezvous.Asked})
}

// leavePut: the sender writes no more.
func (e *Engine) leavePut(r *Request) {
	if r.putOpen {
		r.putOpen = false
		r.peer.getter.Deregister(r.putAddr, r.putKey)
	}
}

// putDone: the sender has written its part, or cannot.
func (e *Engine) putDone(p *peer, h *wire.Header) {
	r := e.ids.find(h.Key, p)
	if r == nil || r.op != opRecv || !r.putOpen {
		return
	}
	e.leavePut(r)
	r.sides()
	in := rendezvous.Input{On: rendezvous.PutDone, Len: int64(h.Len)}
	if h.Len == 0 {
		p.noSplit = true
		in.On = rendezvous.PutFailed
	}
	e.receive(r, in)
}

// put: the receiver asks this sender to write the end of its message.
func (e *Engine) put(p *peer, h *wire.Header) {
	r := e.ids.find(h.ID, p)
	if r == nil || r.op != opSend {
		return
	}
	if r.queued {
		e.failPeer(p, protocolError(p, "it asked for a message that has not been sent"))
		return
	}
	_, able := p.link.(transport.Putter)
	if !able || h.Len == 0 || h.Len > uint64(len(r.buf)) || r.jobs.has(jobWrite) {
		e.sendControl(p, wire.Header{Kind: wire.PutDone, Flags: wire.Urgent, Key: h.Key})
		return
	}
	r.remote, r.putAddr, r.putKey, r.putLeft, r.putLen = h.Key, h.Addr, uint64(h.Ctx), int64(h.Len), int64(h.Len)
	r.putBusy = false
	e.todo.add(jobWrite, r)
}

// putNext writes one piece.
func (e *Engine) putNext(r *Request) int {
	if r.putBusy {
		return 0
	}
	n := min(r.putLeft, r.peer.readPiece())
	from := int64(len(r.buf)) - r.putLeft
	st, err := r.peer.link.(transport.Putter).TryPut(r.buf[from:from+n], r.putAddr+uint64(r.putLen-r.putLeft), r.putKey, r.id)
	switch {
	case err != nil:
		e.endPut(r, 0)
	case st == transport.GetFull:
		return 0
	case st == transport.GetStarted:
		r.putBusy = true
	default:
		e.putMoved(r, n)
	}
	return 1
}

// putMoved: a piece is there.
func (e *Engine) putMoved(r *Request, n int64) {
	r.putBusy = false
	if r.putLeft -= n; r.putLeft == 0 {
		e.endPut(r, r.putLen)
	}
}

func (e *Engine) endPut(r *Request, done int64) {
	r.putBusy = false
	e.todo.remove(jobWrite, r)
	e.sendControl(r.peer, wire.Header{Kind: wire.PutDone, Flags: wire.Urgent, Key: r.remote, Len: uint64(done)})
}

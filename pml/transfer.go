package pml

import (
	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// readPiece bounds what one READ moves while the engine's lock is held.
const readPiece = 1 << 20

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
	r.rcv.Init(want, readPiece)
	e.ids.of(r)
	if p.link == nil { // the answer needs one
		p.starters = append(p.starters, r)
		e.reach(p)
		return
	}
	e.startTransfer(r)
}

// startTransfer chooses the scheme.
func (e *Engine) startTransfer(r *Request) {
	p := r.peer
	if p.getter == nil {
		r.canGet = false
	}
	scheme := rendezvous.Stream
	if r.canGet && (e.watching || p.presence == nil || r.key != 0 || !p.presence.PeerPolls()) {
		scheme = rendezvous.Get
		e.stats.Gets++
	}
	e.receive(r, rendezvous.Input{On: rendezvous.Matched, Scheme: scheme})
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
		e.sendControl(r.peer, wire.Header{Kind: wire.CTS, Flags: wire.Urgent, ID: r.remote, Key: r.id,
			Tag: a.Gen, Addr: uint64(a.Off), Len: uint64(a.Len)})
	case rendezvous.Read:
		r.read = a
		if !r.inGets {
			r.inGets = true
			e.reads = append(e.reads, r)
			e.more()
		}
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
		e.receive(r, rendezvous.Input{On: rendezvous.Got, Len: a.Len})
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
	if r == nil || r.id != id || !r.inGets {
		return
	}
	if err != nil {
		e.readFailed(r)
		return
	}
	e.receive(r, rendezvous.Input{On: rendezvous.Got, Len: r.read.Len})
}

func (e *Engine) readFailed(r *Request) {
	r.canGet = false
	e.stats.GetsFailed++
	e.leaveReads(r)
	e.receive(r, rendezvous.Input{On: rendezvous.GetFailed})
}

func (e *Engine) leaveReads(r *Request) {
	if !r.inGets {
		return
	}
	r.inGets = false
	e.todo--
	for i, o := range e.reads {
		if o == r {
			e.reads = append(e.reads[:i], e.reads[i+1:]...)
			return
		}
	}
}

// endReceive: everything that was wanted is here.
func (e *Engine) endReceive(r *Request) {
	e.leaveReads(r)
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
	e.leaveReads(r)
	if r.rcv.Scheme() == rendezvous.Stream {
		e.inbound--
	}
	r.status.Bytes = 0
	e.complete(r, err)
}

// takeOver changes stalled streams to READs, and reports whether there were any: the senders have stopped sending,
// perhaps to compute.
func (e *Engine) takeOver() bool {
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

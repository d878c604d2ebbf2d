package pml

import (
	"context"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// A message whose data is not one piece of memory. Where its fragments are copied, each is packed as it is sent, and
// unpacked as it arrives: both ends work at once, on what their caches hold. Where the link moves memory by itself, and
// for short messages, the caller packs and unpacks the whole.

// Packer is where a message comes from that is sent in pieces.
type Packer interface {
	// Pack copies bytes from … from+len(dst) of the message into dst. The lock is held.
	Pack(dst []byte, from int64)
}

// Unpacker is where a message goes that is received in pieces.
type Unpacker interface {
	// Unpack takes bytes from … from+len(src) of the message, or returns false: then they go into the receive's
	// buffer. src is the transport's. The lock is held.
	Unpack(src []byte, from int64) bool
}

// pieces are where such a message of a request lies.
type pieces struct {
	packer   Packer   // of a send, whose buf has a length only
	unpacker Unpacker // of a receive, whose buf has what is not taken
	device   *deviceOp
	targets  []*target // of a send: where its receiver wants the next parts, in order
}

// IsendPieces is Isend of size bytes that from has. It returns nil, and has sent nothing, unless the link would copy
// fragments of them: then the message must be packed for Isend.
func (e *Engine) IsendPieces(cc context.Context, ctx uint32, dest int, tag int32, size int64, from Packer) *Request {
	e.lock()
	defer e.unlock()
	if e.closed != nil || !e.links.copiesFragments(dest, size) {
		return nil
	}
	r := e.requests.handle()
	r.prepareSend(cc, ctx, dest, tag, nil, Standard)
	r.buf.Len, r.announce = int(size), true
	r.pieces, r.extra = &pieces{packer: from}, true
	e.start(r)
	e.exitCall()
	return r
}

// copiesFragments reports whether a message of size bytes to dest can be sent in fragments that the link copies. A link
// that only reads memory, or a device that matches tags, has the whole message instead.
func (l *linkPath) copiesFragments(dest int, size int64) bool {
	if !l.e.direct || dest >= len(l.peers) {
		return false
	}
	p := l.peers[dest]
	return p != nil && p.link != nil && p.zcopy == nil && p.tags.offload == nil && size > int64(p.out.Limit())
}

// IrecvPieces is Irecv into buf, or of as much as to takes.
func (e *Engine) IrecvPieces(cc context.Context, ctx uint32, source int, tag int32, buf []byte, to Unpacker) *Request {
	e.lock()
	defer e.unlock()
	r := e.requests.handle()
	r.prepareRecv(cc, ctx, source, tag, buf)
	r.pieces, r.extra = &pieces{unpacker: to}, true
	e.start(r)
	e.exitCall()
	return r
}

// packedPiece is the fragment that was packed last: a link that had no room for it is given it again.
type packedPiece struct {
	transfer uint64 // the number of the transfer
	off      int64
	n        int64
	mem      []byte
}

// announcePieces is announce of a message that no peer can READ, unless it is in device memory.
func (ts *transfers) announcePieces(t *transfer) sendResult {
	p, r := t.peer, t.r
	if r.pieces.device != nil {
		if !ts.announceDevice(t) {
			return sendFull
		}
		return sendTaken
	}
	t.snd.Init(t.id, int64(r.buf.Len), rendezvous.Region{}, p.piece(r.buf.Len))
	if p.zcopy != nil {
		t.snd.EndsAlone()
	}
	rts := t.snd.RTS(r.recv.Ctx, r.recv.Tag)
	rts.Flags |= p.blocking(r)
	if p.out.SendPaid(rts, nil, eager.Envelope) {
		return sendTaken
	}
	t.snd.Init(t.id, 0, rendezvous.Region{}, 0)
	return sendFull
}

// sendPiece sends the fragment a of a message that lies in pieces, or the beginning of it. It returns how much;
// negative: the caller leaves the rest for later.
func (ts *transfers) sendPiece(t *transfer, a *rendezvous.Action) int64 {
	if targets := t.r.pieces.targets; len(targets) > 0 {
		if a.Off >= targets[0].from {
			return ts.tell(t, a)
		}
		a.Len = min(a.Len, targets[0].from-a.Off)
	}
	if o := t.r.pieces.device; o != nil {
		return o.sendPiece(t, a)
	}
	payload := t.r.buf
	if t.r.pieces.packer == nil {
		payload = payload.Part(a.Off, a.Len)
	} else {
		payload = ts.fragment(t, a.Off, a.Len)
	}
	if !ts.sendFragment(t.peer, payload) {
		return 0
	}
	return a.Len
}

// fragment is n bytes of t's message from off on, packed.
func (ts *transfers) fragment(t *transfer, off, n int64) transport.Mem {
	last := &ts.packed
	if int64(len(last.mem)) < n {
		*last = packedPiece{mem: make([]byte, n)}
	}
	if last.transfer != t.id || last.off != off || last.n != n {
		last.transfer, last.off, last.n = t.id, off, n
		t.r.pieces.packer.Pack(last.mem[:n], off)
	}
	return transport.HostMem(last.mem[:n])
}

// arrived puts a fragment where it belongs.
func (r *Request) arrived(off int64, payload []byte) {
	if r.pieces == nil || len(payload) == 0 || !r.pieces.unpacker.Unpack(payload, off) {
		copyIn(r.buf.Part(off, int64(len(payload))), payload)
	}
}

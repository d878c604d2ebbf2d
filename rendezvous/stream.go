package rendezvous

import "github.com/gorun-mpi/mpi/internal/wire"

// Stream has the receiver say CTS, and the sender send fragments in order. It needs nothing of the link but packets.
var Stream = &Scheme{
	name:  "stream",
	index: 0,
	able:  func(f Facts) bool { return !f.Readable || f.polls },
	begin: (*Receiver).beginStream,
}

func (r *Receiver) beginStream() Action {
	r.phase, r.tookOver = streaming, false
	r.gen++
	n := r.want - r.have
	return Action{Do: Expect, Off: r.have, Len: n, Header: wire.Header{Kind: wire.CTS, Flags: wire.Urgent,
		ID: r.remote, Key: r.own, Tag: r.gen, Addr: uint64(r.have), Len: uint64(n)}}
}

// OnData is called when n bytes for off of stream gen have come.
func (r *Receiver) OnData(gen int32, off, n int64) Action {
	if r.tookOver && gen == r.gen && r.Reading() && !r.started {
		// The sender sends again, what has been READ already: it goes on where the READs are. Both ends copy at once then.
		r.asked = 0
		return r.beginStream()
	}
	if r.phase != streaming || gen != r.gen {
		return Action{} // sent before the sender heard that we READ instead, or asked again
	}
	if off != r.have || n <= 0 || n > r.want-r.have {
		return failf("a fragment for bytes %d to %d came where %d of %d bytes are in place", off, off+n, r.have, r.want)
	}
	return Action{Do: Copy, Off: off, Len: n}
}

// Copied is called when the bytes of OnData are in the buffer.
func (r *Receiver) Copied(n int64) Action {
	if r.have += n; r.have == r.want {
		return r.finish()
	}
	return Action{}
}

// Stall is called when nothing has come for a while. The receiver READs the rest, if that is possible, or waits until
// the sender sends again.
func (r *Receiver) Stall() Action {
	if r.phase != streaming || !r.readable {
		return Action{}
	}
	r.tookOver = true
	return r.beginGet()
}

// Stream of the sender.

// OnCTS is called when the receiver asks for bytes off to off+n, as stream h.Tag.
func (s *Sender) OnCTS(h *wire.Header) Action {
	if s.done {
		return Action{}
	}
	off, n := int64(h.Addr), int64(h.Len)
	if off < 0 || n <= 0 || off > s.size || n > s.size-off {
		return failf("clear to send for bytes %d to %d of a message of %d bytes", off, off+n, s.size)
	}
	s.next, s.end, s.gen, s.to = off, off+n, h.Tag, h.Key
	return Action{}
}

// Streaming reports whether there are fragments to send.
func (s *Sender) Streaming() bool { return !s.done && s.next < s.end }

// NextFragment returns the fragment to send now, of at most limit bytes, or Nothing.
func (s *Sender) NextFragment(limit int64) Action {
	if !s.Streaming() {
		return Action{}
	}
	return Action{Do: Fragment, Off: s.next, Len: min(s.piece, limit, s.end-s.next),
		Header: wire.Header{Kind: wire.Data, Flags: wire.Urgent, Tag: s.gen, Key: s.to, Addr: uint64(s.next)}}
}

// Sent is called when the link has taken n bytes.
func (s *Sender) Sent(n int64) { s.next += n }

// PieceOf is how long the fragments of a message are that are copied: at most fragment, and a short message is cut into
// four, so that both ends copy at once.
func PieceOf(size int, fragment int64) int64 { return min(fragment, int64(max(size/4&^63, 4<<10))) }

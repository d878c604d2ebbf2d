package rendezvous

import "github.com/gorun-mpi/mpi/internal/wire"

// Split has both processors copy. The receiver READs the front of the message as in get, the sender WRITEs the back
// into the receiver's buffer, and each byte is copied once. Only the sender can say that it has stopped writing, so it
// is waited for. The front may be empty: then the receiver does nothing at all, as befits one that computes.
var Split = &Scheme{
	name:  "split",
	index: 2,
	able:  func(f Facts) bool { return f.polls && f.mayWrite() },
	begin: (*Receiver).beginSplit,
}

// minSplit is the shortest message worth splitting: each part costs a system call.
const minSplit = 12 << 10

func (r *Receiver) beginSplit() Action {
	r.want -= r.back.Len
	ask := Action{Do: Send, Header: wire.Header{Kind: wire.PutReq, Flags: wire.Urgent, ID: r.remote, Key: r.own,
		Ctx: uint32(r.back.Key), Addr: r.back.Addr, Len: uint64(r.back.Len)}}
	if r.want > 0 {
		r.beginGet()
	}
	return ask
}

// OnPutDone is called when the sender has written the n bytes of the back; or, if n is 0, has not and will not. The
// caller has withdrawn the registration.
func (r *Receiver) OnPutDone(n int64) Action {
	back := r.back.Len
	r.back = Region{}
	if back == 0 || n != 0 && n != back {
		return failf("the sender has written %d bytes where %d were asked for", n, back)
	}
	r.Trial.backDone(r.Reading())
	if n != 0 {
		if r.have < r.want {
			return Action{}
		}
		return r.finish()
	}
	// Fetch the back like the front. A READ that is under way goes on into it.
	r.want += back
	switch r.phase {
	case idle:
		return r.beginGet()
	case streaming: // what was asked for ends at the front: ask for all that is missing
		return r.beginStream()
	}
	return Action{}
}

// Split of the sender.

// OnPutReq is called when the receiver asks for the last h.Len bytes to be written to its memory. able: the link can.
func (s *Sender) OnPutReq(h *wire.Header, able bool) Action {
	if !able || s.done || h.Len == 0 || h.Len > uint64(s.size) || s.Writing() {
		return putDone(h.Key, 0)
	}
	s.put = writing{Region{h.Addr, uint64(h.Ctx), int64(h.Len), true}, h.Key, int64(h.Len), 0}
	return Action{}
}

func putDone(to uint64, n int64) Action {
	return Action{Do: Send, Header: wire.Header{Kind: wire.PutDone, Flags: wire.Urgent, Key: to, Len: uint64(n)}}
}

// Writing reports whether there is a WRITE to do or under way.
func (s *Sender) Writing() bool { return s.put.left > 0 }

// NextWrite is the WRITE to do now, of at most piece bytes: n bytes from off of the message to addr. ok: there is one.
func (s *Sender) NextWrite(piece int64) (off, n int64, addr, key uint64, ok bool) {
	p := &s.put
	n = min(p.left, piece)
	return s.size - p.left, n, p.Addr + uint64(p.Len-p.left), p.Key, p.left > 0 && p.asked == 0
}

// WriteStarted notes that the link reads the n bytes until OnWritten or OnWriteFailed.
func (s *Sender) WriteStarted(n int64) { s.put.asked = n }

// WriteUnderWay is how much of the message the link reads for a WRITE.
func (s *Sender) WriteUnderWay() int64 { return s.put.asked }

// OnWritten is called when the n bytes of a WRITE are there.
func (s *Sender) OnWritten(n int64) Action {
	s.put.asked = 0
	if s.done {
		return Action{}
	}
	if s.put.left -= n; s.put.left > 0 {
		return Action{}
	}
	return putDone(s.put.to, s.put.Len)
}

// OnWriteFailed is called when the n bytes of a WRITE are not there. The receiver fetches all of the back.
func (s *Sender) OnWriteFailed() Action {
	s.put.left, s.put.asked = 0, 0
	if s.done {
		return Action{}
	}
	return putDone(s.put.to, 0)
}

package rendezvous

import "github.com/gorun-mpi/mpi/internal/wire"

// A message is received in parts where there is no buffer for all of it: its receiver asks for as much as it has room
// for, puts that where it belongs, and asks for more, also before that is here. Parts that are asked for in time are
// one stream. Until Over there counts as much as a byte as the back of the message, which no rank writes by itself.

// InParts has the message come in parts, of which none has been asked for. The caller calls it in place of Begin, or
// after that where a stream was asked for of which nothing has come.
func (r *Receiver) InParts() {
	r.phase = idle
	r.readable, r.noFIN, r.atFront = false, false, Part
	r.left, r.want, r.back.Len = r.want, 0, 1
}

// Left is how many bytes have not been asked for.
func (r *Receiver) Left() int64 { return r.left }

// Ask asks for the next n bytes, n <= Left. OnData takes them as bytes of a stream; Copied says Part when all
// that was asked for is there.
func (r *Receiver) Ask(n int64) Action {
	if r.phase != streaming {
		r.phase = streaming
		r.gen++
	}
	off := r.want
	r.want += n
	r.left -= n
	return Action{Do: Expect, Off: off, Len: n, Header: wire.Header{Kind: wire.Ask, Flags: wire.Urgent,
		ID: r.remote, Key: r.own, Tag: r.gen, Addr: uint64(off), Len: uint64(n)}}
}

// Again asks for the stream anew.
func (r *Receiver) Again() Action { return r.beginStream() }

// Over ends the message with what is here: nothing that was asked for is under way, and nothing more is asked for.
func (r *Receiver) Over() Action {
	r.want, r.left, r.back = r.have, 0, Region{}
	return r.finish()
}

// OnAsk is called when the receiver asks for a part: for more of a stream, or for another one.
func (s *Sender) OnAsk(h *wire.Header) Action {
	s.parts = s.parts || s.alone
	s.alone = false
	if n := int64(h.Len); s.Continues(h) && n > 0 && n <= s.size-s.end {
		s.end += n
		return Action{}
	}
	return s.OnCTS(h)
}

// Continues reports whether h asks for what follows all that has been asked for of a stream.
func (s *Sender) Continues(h *wire.Header) bool {
	return !s.done && s.gen > 0 && h.Tag == s.gen && h.Key == s.to && h.Addr == uint64(s.end)
}

// Lent reports whether the link may read what it has been given of the message, also when FIN has come.
func (s *Sender) Lent() bool { return s.parts }

// OnEarlyFIN is OnFIN while the link may read parts of the message: OnReleased completes it.
func (s *Sender) OnEarlyFIN() { s.end, s.alone = s.next, true }

// OnHandleReq is called when the receiver, whose number of its end is to, asks where the message is.
func (s *Sender) OnHandleReq(to uint64) {
	s.alone, s.to = false, to
	s.gen = -1 // asked, and for no stream
}

// Unsent is how many bytes have been asked for and not been sent.
func (s *Sender) Unsent() int64 { return s.end - s.next }

// To is the number of the receiver's end, of a message that has been asked for.
func (s *Sender) To() uint64 { return s.to }

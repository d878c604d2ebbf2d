package rendezvous

import "github.com/gorun-mpi/mpi/internal/wire"

// A message is received in parts where there is no buffer for all of it: its receiver asks for as much as it has room
// for, puts that where it belongs, and asks for more. Each part is a stream. Until Over there counts as much as a byte as
// the back of the message, which nobody writes by itself.

// InParts has the message come in parts, of which none has been asked for. The caller calls it in place of Begin.
func (r *Receiver) InParts() {
	r.readable, r.noFIN, r.atFront = false, false, Part
	r.left, r.want, r.back.Len = r.want, 0, 1
}

// Left is how many bytes have not been asked for.
func (r *Receiver) Left() int64 { return r.left }

// Ask asks for the next n bytes, n <= Left, once all that was asked for before is here. OnData takes them as it takes
// those of a stream; Copied says Part when they are there.
func (r *Receiver) Ask(n int64) Action {
	r.phase = streaming
	r.gen++
	r.want = r.have + n
	r.left -= n
	return Action{Do: Expect, Off: r.have, Len: n, Header: wire.Header{Kind: wire.Ask, Flags: wire.Urgent,
		ID: r.remote, Key: r.own, Tag: r.gen, Addr: uint64(r.have), Len: uint64(n)}}
}

// Over ends the message with what is here: nothing more is asked for.
func (r *Receiver) Over() Action {
	r.want, r.left, r.back = r.have, 0, Region{}
	return r.finish()
}

// OnAsk is called when the receiver asks for a part.
func (s *Sender) OnAsk(h *wire.Header) Action {
	s.parts = s.parts || s.alone
	s.alone = false
	return s.OnCTS(h)
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

package rendezvous

// The stream scheme: the receiver says CTS, the sender sends fragments in
// order. Needs nothing of the link but packets.

func (r *Receiver) beginStream() Action {
	r.scheme = Stream
	r.gen++
	return Action{Do: SendCTS, Gen: r.gen, Off: r.have, Len: r.want - r.have}
}

func (r *Receiver) fragment(in Input) Action {
	if r.scheme != Stream || in.Gen != r.gen {
		return Action{Do: Drop} // sent before the sender heard that we READ instead, or asked again
	}
	if in.Off != r.have || in.Len <= 0 || in.Len > r.want-r.have {
		return failf("a fragment for bytes %d to %d came where %d of %d bytes are in place", in.Off, in.Off+in.Len, r.have, r.want)
	}
	return Action{Do: Copy, Off: in.Off, Len: in.Len}
}

// Sender is the sending end of one transfer. Until it is asked to stream it has nothing to do.
type Sender struct {
	size  int64 // of the message
	next  int64 // first byte not sent. next <= end <= size
	end   int64 // what the last CTS asked for
	piece int64 // of one fragment
	gen   int32 // of the last CTS
	over  bool
}

// Init sets the machine up for a message of size bytes, sent in fragments of at most piece.
func (s *Sender) Init(size, piece int64) { *s = Sender{size: size, piece: piece} }

// Streaming reports whether there is something to send.
func (s *Sender) Streaming() bool { return !s.over && s.next < s.end }

// Step takes one input.
func (s *Sender) Step(in Input) Action {
	switch in.On {
	case Clear:
		if s.over {
			return Action{Do: Drop}
		}
		if in.Off < 0 || in.Len <= 0 || in.Off > s.size || in.Len > s.size-in.Off {
			return failf("clear to send for bytes %d to %d of a message of %d bytes", in.Off, in.Off+in.Len, s.size)
		}
		s.next, s.end, s.gen = in.Off, in.Off+in.Len, in.Gen
		return s.room()
	case Room:
		return s.room()
	case Sent:
		s.next += in.Len
		return s.room()
	case Finished:
		if s.over {
			return Action{Do: Drop}
		}
		s.over = true
		return Action{Do: Complete}
	}
	return failf("a sender got input %d", in.On)
}

func (s *Sender) room() Action {
	if !s.Streaming() {
		return Action{}
	}
	return Action{Do: Send, Gen: s.gen, Off: s.next, Len: min(s.piece, s.end-s.next)}
}

package rendezvous

import "github.com/gorun-mpi/mpi/internal/wire"

// Sender is the sending end of one transfer. The message belongs to the library from RTS to Complete or Abandon: the
// receiver may READ it, and the link reads it for fragments and WRITEs. Until it is asked for something it does
// nothing.
type Sender struct {
	own  uint64 // the number of this end
	size int64
	done bool
	mem  Region // where the receiver may READ it

	// stream
	to    uint64 // the number of the receiver's end
	next  int64  // first byte not sent. next <= end <= size
	end   int64  // what the last CTS asked for
	piece int64  // of one fragment
	gen   int32  // of the last CTS
	alone bool   // the link says when it has let go of a stream, for which there is no FIN
	parts bool   // the link says so, and there is a FIN

	put writing
}

// writing is the back of a split message, on its way to the receiver's memory.
type writing struct {
	Region        // where it goes
	to     uint64 // the number of the receiver's end
	left   int64  // bytes still to write. 0: none, or nothing was asked for
	asked  int64  // bytes of the WRITE under way; 0: none
}

// Init begins a transfer: a message of size bytes is about to be announced, as number own. mem is where the receiver
// may READ it; fragments have at most piece bytes.
func (s *Sender) Init(own uint64, size int64, mem Region, piece int64) {
	*s = Sender{own: own, size: size, mem: mem, piece: piece}
}

// EndsAlone notes that the link says when it has let go of what it has been given to send. Where the message can be
// READ, FIN is what ends a transfer all the same.
func (s *Sender) EndsAlone() { s.alone = !s.mem.OK }

// RTS announces the message.
func (s *Sender) RTS(ctx uint32, tag int32) wire.Header {
	h := wire.Header{Kind: wire.RTS, Flags: wire.Urgent, Ctx: ctx, Tag: tag, ID: s.own, Len: uint64(s.size)}
	if s.mem.OK {
		h.Flags |= wire.Readable
		h.Addr, h.Key = s.mem.Addr, s.mem.Key
	}
	if s.alone {
		h.Flags |= wire.NoFIN
	}
	return h
}

// Memory is where the receiver may READ the message, if it may.
func (s *Sender) Memory() Region { return s.mem }

// OnFIN is called when the receiver has what it wants.
func (s *Sender) OnFIN() Action {
	if s.done {
		return Action{}
	}
	s.Abandon()
	return Action{Do: Complete}
}

// OnReleased is called when the link has let go of all that it has been given.
func (s *Sender) OnReleased() Action {
	if s.done || !s.alone || s.gen == 0 || s.next < s.end {
		return Action{}
	}
	s.Abandon()
	return Action{Do: Complete}
}

// GetsFIN reports whether FIN may come now.
func (s *Sender) GetsFIN() bool { return !s.alone || s.gen == 0 }

// Exposed reports whether the receiver can READ the message, or the link may have parts of it that it has not sent.
func (s *Sender) Exposed() bool { return s.mem.OK || s.Asked() }

// Asked reports whether the receiver has asked for a part of the message, so that it cannot be taken back.
func (s *Sender) Asked() bool { return s.gen != 0 || s.put.Len > 0 }

// Abandon ends the transfer: the message is taken back, or its peer has failed.
func (s *Sender) Abandon() {
	s.done = true
	s.put.left = 0
}

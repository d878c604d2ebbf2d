package eager

import "github.com/gorun-mpi/mpi/internal/wire"

// Unexpected is what is kept of a message that has come before its receive: all of it, or of one that is announced the
// envelope. It belongs to the Store from Keep to Release.
type Unexpected struct {
	Kind    wire.Kind // Eager, EagerSync or RTS
	Flags   uint8
	Payload []byte // in small, or from the Store's pool; nil for RTS
	Size    int64  // of the message
	Cost    int64  // of the sender's credit

	ID, Addr, Key uint64 // as in the header; all 0 for Eager

	small [1 << minClass]byte
}

// RTS is the header that has announced it.
func (u *Unexpected) RTS() wire.Header {
	return wire.Header{Kind: wire.RTS, Flags: u.Flags, ID: u.ID, Len: uint64(u.Size), Addr: u.Addr, Key: u.Key}
}

// Store keeps unexpected messages.
type Store struct {
	Pool
	Bytes int64 // what they cost, now
	Peak  int64 // and at most
}

// costOf is what a message costs until it is matched: an announced one its envelope, any other its payload too.
func costOf(h *wire.Header, payload int) int64 {
	if h.Kind == wire.RTS {
		return Envelope
	}
	return Cost(payload)
}

// Keep fills u with a message and copies its payload.
func (s *Store) Keep(u *Unexpected, h *wire.Header, payload []byte) {
	u.Kind, u.Flags, u.Cost = h.Kind, h.Flags, costOf(h, len(payload))
	u.Size, u.ID, u.Addr, u.Key = int64(len(payload)), 0, 0, 0
	if h.Kind != wire.Eager {
		u.ID, u.Addr, u.Key = h.ID, h.Addr, h.Key
	}
	if h.Kind == wire.RTS {
		u.Size = int64(h.Len)
	} else if n := len(payload); n > len(u.small) {
		u.Payload = s.Get(n)
		copy(u.Payload, payload)
	} else if n > 0 {
		u.Payload = u.small[:n]
		copy(u.Payload, payload)
	}
	s.Bytes += u.Cost
	s.Peak = max(s.Peak, s.Bytes)
}

// Release gives the payload's buffer back.
func (s *Store) Release(u *Unexpected) {
	s.Bytes -= u.Cost
	if len(u.Payload) > len(u.small) {
		s.Put(u.Payload)
	}
	u.Payload = nil
}

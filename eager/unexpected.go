package eager

import "github.com/gorun-mpi/mpi/internal/wire"

// Unexpected is what is kept of a message that has come before its receive: all of it, or of one that is announced the
// envelope, until it is fetched. It belongs to the Store from Keep to Release.
type Unexpected struct {
	Kind    wire.Kind // Eager, EagerSync or RTS
	Flags   uint8
	Payload []byte // in small, or from the Store's pool; nil for RTS
	Size    int64  // of the message
	Cost    int64  // of the sender's credit; 0 once it is fetched

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
	} else if n := len(payload); n > 0 {
		s.room(u, n)
		copy(u.Payload, payload)
	}
	s.Bytes += u.Cost
	s.Peak = max(s.Peak, s.Bytes)
}

// room gives u a buffer of n bytes, which are more than none.
func (s *Store) room(u *Unexpected, n int) {
	if u.Payload = u.small[:min(n, len(u.small))]; n > len(u.small) {
		u.Payload = s.Get(n)
	}
}

// Fetch gives u, which is announced and short, the buffer into which it is fetched. From then on it costs its sender
// nothing. Fetch returns the cost of u; Drop takes the same cost back, and comes before Release.
func (s *Store) Fetch(u *Unexpected) int64 {
	if u.Size > 0 {
		s.room(u, int(u.Size))
	}
	n := Cost(int(u.Size))
	s.Bytes += n - u.Cost
	s.Peak = max(s.Peak, s.Bytes)
	u.Cost = 0
	return n
}

// Drop is called when u, which was fetched, is not kept any longer.
func (s *Store) Drop(u *Unexpected) int64 {
	n := Cost(int(u.Size))
	s.Bytes -= n
	return n
}

// MaxFetch is the longest message that is fetched before it is matched: no link has a higher limit for eager messages.
const MaxFetch = 1 << maxClass

// Release gives the payload's buffer back.
func (s *Store) Release(u *Unexpected) {
	s.Bytes -= u.Cost
	if len(u.Payload) > len(u.small) {
		s.Put(u.Payload)
	}
	u.Payload = nil
}

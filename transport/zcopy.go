package transport

import "github.com/gorun-mpi/mpi/internal/wire"

// ZeroCopy describes a link that moves the fragments of streams without copying them.
type ZeroCopy struct {
	// Send is TrySend of a Data packet whose payload is not copied: the link may read it after Send has returned, for as
	// long as Reads says so. The caller does not write to it meanwhile.
	Send func(h *wire.Header, payload Mem) bool
	Max  int // bytes; the longest payload that Send takes
	// Reads reports whether the link still reads a payload that Send has taken. If so that counts as a refusal: Room
	// follows when it does not, or Down, and until Down all that Send has taken is in use where the connection has
	// failed.
	Reads func() bool
	// Place announces Data packets from the peer with Key key and Tag gen. The link writes their payload to dst at
	// their Addr, which must lie within from … dst.Len, and Poll reports it with Placed, piece by piece and in order.
	// dst belongs to the link until Displace. A packet that does not fit arrives as any other, or, if it is
	// longer than FragMax, not at all: its sender breaks the protocol.
	Place func(key uint64, gen int32, dst Mem, from int64)
	// Displace ends Place: from now on nothing is written to that dst. Without a Place before it does nothing.
	Displace func(key uint64)
}

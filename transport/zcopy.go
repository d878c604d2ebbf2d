package transport

import "github.com/gorun-mpi/mpi/internal/wire"

// ZeroCopy is about a link that moves the fragments of streams without copying them.
type ZeroCopy struct {
	// Send is TrySend of a Data packet whose payload may be read after Send has returned, until the peer has got all of
	// it. The caller leaves it alone until an answer of the peer shows that.
	Send func(h *wire.Header, payload Mem) bool
	Max  int // bytes; the longest payload that Send takes
	// Place announces Data packets from the peer with Key key and Tag gen: what they carry is written to dst at their
	// Addr, which must lie within from … dst.Len, and Poll reports it with Placed, piece by piece and in order. dst
	// belongs to the link until Displace. One that does not fit is a packet as ever.
	Place func(key uint64, gen int32, dst Mem, from int64)
	// Displace ends it: from now on nothing is written to that dst. Without Place before it does nothing.
	Displace func(key uint64)
}

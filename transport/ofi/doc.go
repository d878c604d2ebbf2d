// Package ofi leaves matching and moving to libfabric (OFI): the way to AWS's EFA, and to other fabrics whose provider
// has tagged messages. It is the third level of the seam, transport.Tagged, as Open MPI's MTL ofi is.
//
// The build tag ofi includes the package, and it opens the library at run time; without either, New returns an error.
// shim.c has the C code; C records completions in a ring, and Go reads the ring in place. The engine's cookie of an
// operation is its slot in Go and in C. Two things that libfabric lacks are done here: the receiver answers a
// synchronous send, and a TCP connection to each peer says when that peer is gone. docs/rdma.md tells when to choose
// it, docs/decisions/ofi.md gives the reasons for this design.
//
//	Owns:     the endpoint, the operations under way and the pins of their buffers, the TCP connections to peers
//	May call: transport, transport/tcp (the control connections), internal/wire, libfabric
//	Never:    call from C into Go; let C keep a Go pointer without a pin; let libfabric keep registrations of memory
//	          that no operation uses
package ofi

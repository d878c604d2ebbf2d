// Package ucx leaves matching and moving to UCX (libucp): shared memory, TCP, InfiniBand and RoCE with several rails,
// as UCX chooses among them. It is the third level of the seam, transport.Tagged, as Open MPI's UCX PML is.
//
// The build tag ucx includes the package, and it opens the library at run time; without either, New returns an error.
// shim.c has the C code. Go writes short sends and receives into queues in C's memory, and the next call of C begins
// them; C records completions in a ring, and Go reads the ring in place. The engine's cookie of an operation is its
// slot in Go and in C. docs/rdma.md tells when UCX is the right choice, docs/decisions/ucx.md gives the reasons for
// this design.
//
//	Owns:     the worker and its endpoints, the operations under way and the pins of their buffers, mapped memory
//	May call: transport, transport/tcp (how a silent connection is detected), internal/eventset, internal/wire, x/sys,
//	          libucp
//	Never:    call from C into Go; let C keep a Go pointer without a pin; enable UCX's memory hooks, signal handlers or
//	          registration cache; write an unasked line to standard error
package ucx

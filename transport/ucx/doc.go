// Package ucx leaves matching and moving to UCX (libucp): shared memory, TCP, InfiniBand and RoCE with several rails,
// as UCX chooses among them. It is the third level of the seam, transport.Tagged, as Open MPI's UCX PML is.
//
// The package is built with the tag ucx, and opens the library at run time; without either, New says so. What this
// package's C code does is in shim.c: completions are plain records in a ring that Go reads where it lies.
// docs/rdma.md tells when it is the right choice, docs/decisions/ucx.md why it is made so.
//
//	Owns:     the worker and its endpoints, the operations under way and the pins of their buffers, mapped memory
//	May call: transport, transport/tcp (how a silent connection is told), internal/eventset, internal/wire, x/sys, libucp
//	Never:    a call from C into Go; a Go pointer that C keeps without a pin; UCX's memory hooks, signal handlers or
//	          registration cache; a line on standard error that was not asked for
package ucx

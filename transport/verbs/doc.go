// Package verbs carries packets by RDMA: libibverbs, reliable connections, one shared receive queue per rank.
//
// Short messages are sent into the receive buffers of the peer's shared queue, which are the unexpected-message
// buffers as well; large ones are READ by the receiver straight into the user's buffer, and the sender's CPU takes no
// part. The package is built with the tag verbs, and opens the library at run time; without either, New says so.
// docs/rdma.md tells how a message travels, docs/decisions/verbs.md and registration.md why it is made so.
//
//	Owns:     the device's objects, the slabs of registered memory, queue pairs and what is posted on them
//	May call: transport, transport/tcp (the control connection), internal/eventset, internal/wire, internal/topology,
//	          golang.org/x/sys, libibverbs
//	Never:    a cache of registrations by address; a call from C into Go; a request for memory of the Go heap that is
//	          not pinned; a key with more rights than were asked for
package verbs

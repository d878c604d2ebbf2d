// Package verbs carries packets by RDMA: libibverbs, reliable connections, one shared receive queue per rank.
//
// Short messages arrive in the receive buffers of the peer's shared queue, which are also the unexpected-message
// buffers. The receiver READs large messages straight into the user's buffer, without the sender's CPU. The build tag
// verbs includes the package, and it opens the library at run time; without either, New returns an error. docs/rdma.md
// tells how a message travels; docs/decisions/verbs.md and registration.md give the reasons.
//
//	Owns:     the device's objects, the slabs of registered memory, queue pairs and what is posted on them
//	May call: transport, transport/tcp (the control connection), internal/eventset, internal/wire, internal/topology,
//	          golang.org/x/sys, libibverbs
//	Never:    cache registrations by address; call from C into Go; request memory of the Go heap that is not pinned;
//	          give out a key with more rights than needed
package verbs

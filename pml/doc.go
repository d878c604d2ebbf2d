// Package pml is the point-to-point messaging layer: the engine that turns
// sends and receives into packets and back. One Engine is one rank.
//
// A message's life: send.go (the fast case) and send_slow.go, over a
// transport.Link, into progress.go at the receiver, where tagmatch says who
// gets it; recv.go posts what it is matched with; transfer.go moves large
// ones. wait.go is the only file that may sleep.
//
//	Owns:     requests while they are active, peers, the poll buffer; every state change of a request
//	May call: tagmatch, eager, rendezvous, transport (the seam only), internal/wire, x/sys (sched_yield)
//	Never:    a concrete transport; a communicator; log or allocate on the eager path
package pml

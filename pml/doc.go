// Package pml is the point-to-point messaging layer: the engine that turns sends and receives into packets and back.
// One Engine is one rank.
//
// Engine has the requests, their waiting and the lock: send.go (the fast case), send_slow.go, recv.go, probe.go.
// Callers that wait for messages sleep in wait.go, and goroutines that wait for the lock sleep in lock.go; no other
// file may sleep. waitstate.go says which goroutine may, pace.go what a wait does next.
//
// Operations that have begun have types of their own with methods, each of which takes the engine's lock: Request
// (complete.go, cancel.go); Rounds, which has several rounds of messages (rounds.go); Board, memory that several ranks
// map (board.go).
//
// The interface path (path.go) hides how messages are matched and moved. Over links: links.go posts and sends,
// packets.go handles arriving packets, peer.go has a record of each rank, shorts.go receives short messages without a
// request, batch.go sends several queued messages in a packet, credit.go bounds unmatched messages, transfer.go moves
// large messages, pieces.go packs messages that lie in pieces, worklist.go has the work that goes on by itself,
// offload.go the receives that a device matches. device.go has what is different where a message is in the memory of an
// accelerator: staging.go moves it through pinned memory, peerpool.go through the receiver's alone, hostparts.go to
// a receiver that has no devices, sharing.go between ranks that reach each other's devices, adapter.go by adapters
// that reach them.
// tagged.go leaves all of that to a library.
//
//	Owns:     requests while they are active, peers, the poll buffer; every state change of a request
//	May call: tagmatch, eager, rendezvous, transport (the seam only), accel, internal/eventset, internal/memfile,
//	          internal/waitpolicy, internal/wire, x/sys (sched_yield, mmap)
//	Never:    know a concrete transport or a communicator; log or allocate on the eager path
package pml

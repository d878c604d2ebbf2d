// Package pml is the point-to-point messaging layer: the engine that turns
// sends and receives into packets and back. One Engine is one rank.
//
// Engine has the requests, their waiting and the lock: send.go (the fast case),
// send_slow.go, recv.go, probe.go; wait.go is the only file that may sleep,
// waitstate.go says which goroutine may, pace.go what a wait does next.
//
// What is done with an operation that Engine has begun is a method of it:
// Request (complete.go, cancel.go), Rounds, which has several rounds of
// messages (rounds.go), and Board, which is memory that ranks map (board.go).
// Each takes its engine's lock.
//
// Behind path (path.go) stands how messages are matched and moved. Over links:
// links.go posts and sends, packets.go handles what arrives, peer.go has a
// record of each rank, shorts.go lets short ones land, batch.go sends several
// in a packet where they have queued up, credit.go bounds what lies unmatched,
// transfer.go moves large messages, pieces.go packs those that lie in pieces,
// worklist.go has what goes on by itself, offload.go what a device matches.
// tagged.go leaves all of that to a library.
//
//	Owns:     requests while they are active, peers, the poll buffer; every state change of a request
//	May call: tagmatch, eager, rendezvous, transport (the seam only), internal/eventset, internal/waitpolicy,
//	          internal/wire, x/sys (sched_yield)
//	Never:    a concrete transport; a communicator; log or allocate on the eager path
package pml

// Package consensus lets the ranks of a communicator agree on a value although ranks die meanwhile: all ranks that live
// on get the same value. It is an early-returning agreement over a tree: a rank returns as soon as it has the value,
// and answers ranks that ask later (Herault, Bouteiller, Bosilca and others, Practical Scalable Consensus for
// Pseudo-Synchronous Distributed Systems, SC '15).
//
// A Machine is one rank of one communicator. It gets what its caller gives (Begin), what other ranks send (Hear), and
// who has died (Died). It returns the messages to send (Messages) and the value (Decided):
//
//	Begin ─┐                 ┌─► Messages: reports go up the tree, the decision goes down
//	Hear ──┼──► Machine ─────┤
//	Died ──┘                 └─► Decided
//
//	tree.go     who reports to whom, if these ranks are dead
//	machine.go  the rules
//	flood.go    how news reach all ranks though the rank that has it dies
//
//	Owns:     the agreements of a communicator, and who is dead as this rank knows
//	May call: the standard library
//	Never:    send, wait, lock, read a clock; believe that a rank lives
package consensus

// Package rma has the rules of one-sided communication (MPI 4.1, chapter 12): which calls an epoch allows, which rank
// gets a lock next, and the messages by which a rank asks another one to work on its window.
//
// An Epochs is one rank's view of a window (epoch.go). A Queue is the lock of a rank of a window, where other ranks ask
// for it by message (queue.go); Enter, Entered and Leave are the same lock in words that all ranks of the window have
// mapped (ticket.go). A Request is a message (message.go).
//
//	Owns:     the epochs of a window, the order of its locks, the layout of its messages
//	May call: the standard library
//	Never:    touch the memory of a window, an atomic word, a transport, a clock; lock, block, start a goroutine
package rma

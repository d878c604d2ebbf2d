// Package window runs windows: memory of each rank that the other ranks of a communicator read, write and update.
//
// make.go makes a window, in the call that makes its communicator. The memory of ranks of one host is a board, which
// all of them have mapped: there an operation is a load, a store or an atomic step of the caller's CPU. lock.go has the
// locks, which are words of that board, and sync.go the other synchronization.
//
//	Owns:     a window's memory, epochs and locks
//	May call: rma, pml, internal/coll, internal/agree, collectives (their names), internal/meminfo,
//	          internal/mpierr, internal/ranks
//	Never:    know an element's type, check a caller's buffer, make a communicator
package window

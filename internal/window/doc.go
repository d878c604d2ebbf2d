// Package window runs windows: memory of each rank that the other ranks of a communicator read, write and update.
//
// make.go makes a window, in the call that makes its communicator. The memory of ranks of one host is a board, which
// all of them have mapped: there an operation is a load, a store or an atomic step of the caller's CPU. link.go has the
// memory that a link reads and writes, device.go the atomic steps that a device makes, and ask.go and serve.go the
// requests for everything else. held.go has the requests that wait for a flush. lock.go has the locks, which are words
// of the board, and short.go the epoch of a lock that is had at once. pscw.go has the epochs of groups, signals.go
// their signals in mapped memory, and sync.go the other synchronization. dynamic.go has the regions of a window to
// which ranks attach memory, and layouts.go the operations with layouts. accel.go has windows over device memory, which
// package gpu makes.
//
//	Owns:     a window's memory, epochs and locks
//	May call: rma, pml, accel (a buffer), internal/coll, internal/agree, collectives (their names), internal/meminfo,
//	          internal/mpierr, internal/ranks, internal/layout
//	Never:    know an element's type, check a caller's buffer, make a communicator
package window

// Package coll runs the collective calls of a communicator.
//
// A call on a Group has a Plan: the algorithm that package collectives has chosen, its schedule, and the caller's
// buffers. The plan goes one of three ways, and each rank goes it to the end, also after a failure: a rank that cannot
// go on sends to the ranks that wait for it that it has given up. So no live rank waits in vain.
//
//	plan ──► start ──┬──► board      ranks of one host copy through memory that all have mapped ──┐
//	(plan.go,        ├──► direct     they read and write each other's buffers                     ├──► end
//	 cache.go)       └──► messages   the schedule, round by round, over pml                       ┘   (start.go)
//
//	start     start.go: blocking on the caller's goroutine, or as a request of several rounds (pml.Rounds)
//	board     board.go makes it, steps.go has its steps, copies.go its algorithms; direct.go uses it for addresses
//	messages  messages.go for a blocking call, start.go for the others
//	compare   compare.go: with GORUN_COLL_CHECK the ranks first exchange what they call
//	          mismatch.go: without it, a rank that is about to sleep looks for ranks that make another call
//
//	Owns:     a communicator's plans, numbers of calls, board and queue of calls; which of its ranks share a host
//	May call: pml, transport, collectives, internal/agree, internal/mpierr, internal/background, internal/ranks
//	Never:    check a caller's arguments, know an element's type, make a communicator, read a setting
package coll

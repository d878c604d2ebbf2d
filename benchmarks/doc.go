// Package benchmarks holds the programs that measure this library from outside, as a user's program would:
//
//	latency, bw   OSU's point-to-point tests, with their options and output
//	match         the cost of matching against the length of the queue
//	ring          a token round all ranks
//	init          joining a job
//	flood         far more messages than the receiver takes
//	stress        random traffic, every byte checked; part of make test
//	compare       these beside Open MPI and MPICH (peers: the same programs in C)
//
// Each says in its own package doc what it measures and how: go doc ./benchmarks/match.
//
// Owns: nothing.
// May call: mpi, benchmarks/harness.
// Never: reaches inside of the runtime.
package benchmarks

// Package benchmarks holds the programs that measure this library from outside, as a user's program would:
//
//	latency, latency_persistent, multi_lat, latency_mt   OSU's ping-pongs: plain, by persistent requests, of many
//	                                                     pairs of ranks, of many goroutines
//	bw, bw_persistent, bibw, mbw_mr, fan_in, fan_out     OSU's windows: one way, by persistent requests, both ways,
//	                                                     of many pairs, from all ranks to one, from one to all
//	allpairs      every rank sends to random others
//	ring          a token round all ranks
//	match         the cost of matching against the length of the queue
//	overlap       how much of a transfer is hidden by computation
//	idle          what a rank that waits costs
//	init          joining a job
//	flood         far more messages than the receiver receives
//	stress        random traffic, every byte checked
//	compare       compares these with Open MPI and MPICH (peers: the same programs in C)
//
// All but the last three take options of the OSU micro-benchmarks 7.4 and print its lines; with --json they print
// objects with the facts of the machine instead, with --plot they draw. The package doc of each says what it
// measures and how: go doc ./benchmarks/match.
//
// Owns: nothing.
// May call: mpi, benchmarks/harness.
// Never: reaches inside of the runtime.
package benchmarks

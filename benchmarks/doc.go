// Package benchmarks holds the programs that measure this library from outside, as a user's program would:
//
//	latency, latency_persistent, multi_lat, latency_mt   OSU's ping-pongs: plain, by persistent requests, of many
//	                                                     pairs of ranks, of many goroutines
//	bw, bw_persistent, bibw, mbw_mr, fan_in, fan_out     OSU's windows: one way, by persistent requests, both ways,
//	                                                     of many pairs, from all ranks to one, from one to all
//	collective    OSU's collective calls
//	onesided      OSU's operations on windows
//	kernel        the sum that reductions use, compared with a copy
//	allpairs      every rank sends to random others
//	halo          ranks compute unevenly and exchange halos
//	late          messages after one rank was late
//	consumer      a receiver that is slower than its sender
//	first         the first messages between ranks
//	ring          a token round all ranks
//	match         the cost of matching against the length of the queue
//	overlap       how much of a transfer is hidden by computation
//	idle          what a rank that waits costs
//	init          joining a job
//	recovery      the death of a rank, and the calls for programs that outlive it
//	flood         far more messages than the receiver receives
//	stress        random traffic, every byte checked
//	compare       compares these with Open MPI and MPICH (peers: the same programs in C)
//
// All but the last three take options of the OSU micro-benchmarks 7.4 and print its lines. With --json they print
// objects with the facts of the machine instead, with --plot they draw. They warm up for 0.7 s before the first figure
// (--warm-time), unless -x gives the iterations before each figure. They measure each figure for a number of iterations
// (-i) or for a time (--time). The package doc of each program describes its measurement: go doc ./benchmarks/match.
//
//	Owns:     nothing
//	May call: mpi, benchmarks/harness
//	Never:    reach into the runtime
package benchmarks

// Compare measures this library beside Open MPI and MPICH: the same programs, written in Go for ours and in C for
// them (benchmarks/peers), started in turn (ours, theirs, the other's, ours, …) so that a noisy minute hits all of
// them, each rank pinned to a core where there are enough.
//
//	go run ./benchmarks/compare [-quick] [-rounds N] [-only latency,bw,match,ring,init] [-limit 120s]
//
// For every measurement a table is printed: the median of the rounds for each library, how far the rounds are apart
// (greatest less smallest, in percent of the median), and the ratio of our median to the better one of theirs. A
// library that is missing, fails or runs into the limit is reported as such and not waited for.
//
// Owns: what is run, in which order, and the tables.
// May call: the go command, mpicc and mpirun of the peers, gorun.
// Never: imports package mpi or measures anything itself but the wall time of whole commands.
package main

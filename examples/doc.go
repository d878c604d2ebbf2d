// Package examples holds programs to start from, each a page or three:
//
//	ring          a token passed round all ranks
//	pi            an integral; partial sums added along a tree of sends
//	masterworker  a work queue: AnySource, AnyTag, Status
//	goroutines    many goroutines on one communicator, ended by a context
//	heat          a domain divided over the ranks, halo exchange hidden behind the computation, a picture
//
// Start one with "gorun -n 4 ./examples/heat". Every example runs with any number of ranks; examples_test.go starts
// each of them with 1, 2, 3, 4 and 7.
//
// Owns: nothing.
// May call: mpi, the standard library; heat draws with gonum/plot.
// Never: uses anything of this module but package mpi.
package examples

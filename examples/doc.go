// Package examples holds programs to start from, each a page or three:
//
//	ring          a token passed round all ranks
//	pi            an integral; Reduce adds the partial sums
//	masterworker  a work queue: AnySource, AnyTag, Status
//	goroutines    many goroutines on one communicator, ended by a context
//	heat          a domain divided over the ranks, halo exchange hidden behind the computation, a picture
//	cg            linear equations by conjugate gradients: halos, and scalar products by Allreduce
//	train         a neural network trained on shares of the samples; Allreduce adds the gradients, also in GPU memory
//	matmul        a product of matrices on a grid of ranks: Cart, CartSub, Bcast along rows and columns
//	samplesort    keys sorted over all ranks: Allgather of samples, Alltoallv of the keys
//	queue         a work queue without a master: FetchOp on a window
//	hashtable     a hash table spread over all ranks: CompareAndSwap and Accumulate
//	halo          neighbours write each other's halo cells: PutNotify and WaitNote
//	survive       a heat equation that goes on from a checkpoint when ranks die: Replace, mpi/checkpoint
//
// Start one with "gorun -n 4 ./examples/heat". Every example runs with any number of ranks; examples_test.go starts
// each of them with 1, 2, 3, 4, 6 and 8. The seven before survive check their own answers, and fail if these are wrong.
//
//	Owns:     nothing
//	May call: mpi, the standard library; train calls mpi/gpu; survive calls mpi/checkpoint; heat draws with gonum/plot
//	Never:    use a package of this module except mpi, mpi/gpu and mpi/checkpoint
package examples

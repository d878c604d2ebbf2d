package mpi

import (
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

// Nonblocking collective calls; §6.12. Each starts the call whose name it has behind the I, with the same arguments,
// and returns a request for Wait, the Test… and the sets, as those of messages are. Its buffers belong to the library
// until then. Every rank of the communicator makes its collective calls in the same order; any number may be under way,
// and they may complete in any order. A nonblocking call does not match a blocking one. It goes on while its rank
// computes.
//
// An operator is called by the goroutine that waits for the request, or by one of the library's, while none waits.
//
// The request cannot be cancelled. If its communicator's context ends, Wait returns the context's error; the call has
// been entered all the same (Barrier). A communicator may be freed while calls on it are under way.

// Ibarrier starts a Barrier; §6.12.1.
func Ibarrier(c *Comm) (*Request, error) {
	return c.start(planBarrier(c, coll.Nonblocking))
}

// Ibcast starts a Bcast; §6.12.2.
func Ibcast[T any](c *Comm, buf []T, root int) (*Request, error) {
	return c.start(planBcast(c, coll.Nonblocking, buf, root))
}

// Igather starts a Gather; §6.12.3.
func Igather[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	return c.start(planGather(c, coll.Nonblocking, send, recv, root))
}

// Igatherv starts a Gatherv; §6.12.3.
func Igatherv[T any](c *Comm, send []T, recv [][]T, root int) (*Request, error) {
	return c.start(planGatherv(c, coll.Nonblocking, send, recv, root))
}

// Iscatter starts a Scatter; §6.12.4.
func Iscatter[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	return c.start(planScatter(c, coll.Nonblocking, send, recv, root))
}

// Iscatterv starts a Scatterv; §6.12.4.
func Iscatterv[T any](c *Comm, send [][]T, recv []T, root int) (*Request, error) {
	return c.start(planScatterv(c, coll.Nonblocking, send, recv, root))
}

// Iallgather starts an Allgather; §6.12.5.
func Iallgather[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.start(planAllgather(c, coll.Nonblocking, send, recv))
}

// Iallgatherv starts an Allgatherv; §6.12.5.
func Iallgatherv[T any](c *Comm, send []T, recv [][]T) (*Request, error) {
	return c.start(planAllgatherv(c, coll.Nonblocking, send, recv))
}

// Ialltoall starts an Alltoall; §6.12.6.
func Ialltoall[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.start(planAlltoall(c, coll.Nonblocking, send, recv))
}

// Ialltoallv starts an Alltoallv; §6.12.6.
func Ialltoallv[T any](c *Comm, send, recv [][]T) (*Request, error) {
	return c.start(planAlltoallv(c, coll.Nonblocking, send, recv))
}

// Ireduce starts a Reduce; §6.12.7.
func Ireduce[T any](c *Comm, send, recv []T, op Op[T], root int, options ...Reduction) (*Request, error) {
	return c.start(planReduce(c, coll.Nonblocking, send, recv, op, root, options))
}

// Iallreduce starts an Allreduce; §6.12.8.
func Iallreduce[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) (*Request, error) {
	return c.start(planReduceEach(c, coll.Nonblocking, collectives.Allreduce, send, recv, op, options))
}

// IreduceScatterBlock starts a ReduceScatterBlock; §6.12.9.
func IreduceScatterBlock[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) (*Request, error) {
	return c.start(planReduceScatterBlock(c, coll.Nonblocking, send, recv, op, options))
}

// IreduceScatter starts a ReduceScatter; §6.12.10.
func IreduceScatter[T any](c *Comm, send, recv []T, counts []int, op Op[T], options ...Reduction) (*Request, error) {
	return c.start(planReduceScatter(c, coll.Nonblocking, send, recv, counts, op, options))
}

// Iscan starts a Scan; §6.12.11.
func Iscan[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) (*Request, error) {
	return c.start(planReduceEach(c, coll.Nonblocking, collectives.Scan, send, recv, op, options))
}

// Iexscan starts an Exscan; §6.12.12.
func Iexscan[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) (*Request, error) {
	return c.start(planReduceEach(c, coll.Nonblocking, collectives.Exscan, send, recv, op, options))
}

// IneighborAllgather starts a NeighborAllgather; §8.7.1.
func IneighborAllgather[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.start(planNeighborAllgather(c, coll.Nonblocking, send, recv))
}

// IneighborAllgatherv starts a NeighborAllgatherv; §8.7.1.
func IneighborAllgatherv[T any](c *Comm, send []T, recv [][]T) (*Request, error) {
	return c.start(planNeighborAllgatherv(c, coll.Nonblocking, send, recv))
}

// IneighborAlltoall starts a NeighborAlltoall; §8.7.2.
func IneighborAlltoall[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.start(planNeighborAlltoall(c, coll.Nonblocking, send, recv))
}

// IneighborAlltoallv starts a NeighborAlltoallv; §8.7.2.
func IneighborAlltoallv[T any](c *Comm, send, recv [][]T) (*Request, error) {
	return c.start(planNeighborAlltoallv(c, coll.Nonblocking, send, recv))
}

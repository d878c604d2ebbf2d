package mpi

import (
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

// Persistent collective calls; §6.13. Each makes a request for the call whose name it has before Init, with the same
// arguments: Start starts it, as often as is wanted, and Free gives it back. Every rank of the communicator makes them,
// in the same order as its other collective calls; they may be started in any order, by each rank. Between Start and
// completion the buffers belong to the library.

// BarrierInit makes a persistent Barrier; §6.13.1.
func BarrierInit(c *Comm) (*Request, error) {
	return c.keep(planBarrier(c, coll.Persistent))
}

// BcastInit makes a persistent Bcast; §6.13.2.
func BcastInit[T any](c *Comm, buf []T, root int) (*Request, error) {
	return c.keep(planBcast(c, coll.Persistent, buf, root))
}

// GatherInit makes a persistent Gather; §6.13.3.
func GatherInit[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	return c.keep(planGather(c, coll.Persistent, send, recv, root))
}

// GathervInit makes a persistent Gatherv; §6.13.3.
func GathervInit[T any](c *Comm, send []T, recv [][]T, root int) (*Request, error) {
	return c.keep(planGatherv(c, coll.Persistent, send, recv, root))
}

// ScatterInit makes a persistent Scatter; §6.13.4.
func ScatterInit[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	return c.keep(planScatter(c, coll.Persistent, send, recv, root))
}

// ScattervInit makes a persistent Scatterv; §6.13.4.
func ScattervInit[T any](c *Comm, send [][]T, recv []T, root int) (*Request, error) {
	return c.keep(planScatterv(c, coll.Persistent, send, recv, root))
}

// AllgatherInit makes a persistent Allgather; §6.13.5.
func AllgatherInit[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.keep(planAllgather(c, coll.Persistent, send, recv))
}

// AllgathervInit makes a persistent Allgatherv; §6.13.5.
func AllgathervInit[T any](c *Comm, send []T, recv [][]T) (*Request, error) {
	return c.keep(planAllgatherv(c, coll.Persistent, send, recv))
}

// AlltoallInit makes a persistent Alltoall; §6.13.6.
func AlltoallInit[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.keep(planAlltoall(c, coll.Persistent, send, recv))
}

// AlltoallvInit makes a persistent Alltoallv; §6.13.6.
func AlltoallvInit[T any](c *Comm, send, recv [][]T) (*Request, error) {
	return c.keep(planAlltoallv(c, coll.Persistent, send, recv))
}

// ReduceInit makes a persistent Reduce; §6.13.7.
func ReduceInit[T any](c *Comm, send, recv []T, op Op[T], root int, options ...Reduction) (*Request, error) {
	return c.keep(planReduce(c, coll.Persistent, send, recv, op, root, options))
}

// AllreduceInit makes a persistent Allreduce; §6.13.8.
func AllreduceInit[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) (*Request, error) {
	return c.keep(planReduceEach(c, coll.Persistent, collectives.Allreduce, send, recv, op, options))
}

// ReduceScatterBlockInit makes a persistent ReduceScatterBlock; §6.13.9.
func ReduceScatterBlockInit[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) (*Request, error) {
	return c.keep(planReduceScatterBlock(c, coll.Persistent, send, recv, op, options))
}

// ReduceScatterInit makes a persistent ReduceScatter; §6.13.10.
func ReduceScatterInit[T any](c *Comm, send, recv []T, counts []int, op Op[T], options ...Reduction) (*Request, error) {
	return c.keep(planReduceScatter(c, coll.Persistent, send, recv, counts, op, options))
}

// ScanInit makes a persistent Scan; §6.13.11.
func ScanInit[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) (*Request, error) {
	return c.keep(planReduceEach(c, coll.Persistent, collectives.Scan, send, recv, op, options))
}

// ExscanInit makes a persistent Exscan; §6.13.12.
func ExscanInit[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) (*Request, error) {
	return c.keep(planReduceEach(c, coll.Persistent, collectives.Exscan, send, recv, op, options))
}

// NeighborAllgatherInit makes a persistent NeighborAllgather; §8.8.1.
func NeighborAllgatherInit[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.keep(planNeighborAllgather(c, coll.Persistent, send, recv))
}

// NeighborAllgathervInit makes a persistent NeighborAllgatherv; §8.8.1.
func NeighborAllgathervInit[T any](c *Comm, send []T, recv [][]T) (*Request, error) {
	return c.keep(planNeighborAllgatherv(c, coll.Persistent, send, recv))
}

// NeighborAlltoallInit makes a persistent NeighborAlltoall; §8.8.2.
func NeighborAlltoallInit[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.keep(planNeighborAlltoall(c, coll.Persistent, send, recv))
}

// NeighborAlltoallvInit makes a persistent NeighborAlltoallv; §8.8.2.
func NeighborAlltoallvInit[T any](c *Comm, send, recv [][]T) (*Request, error) {
	return c.keep(planNeighborAlltoallv(c, coll.Persistent, send, recv))
}

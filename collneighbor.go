package mpi

import (
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

// NeighborAllgather sends send to each rank that the caller sends to, and receives a block from each rank that it
// receives from, in the order of Neighbors; §8.6.1. All blocks have one length. Cart, Graph or DistGraph has made the
// communicator; another one is ErrTopology. Every rank of it calls, also a rank without neighbours. In a grid, the
// block of a ProcNull does not change.
//
// A message along an edge arrives as from the other end of the edge. If several edges lead from one rank to another,
// the messages keep the order of the edges. In a grid, a block that is sent upwards along a dimension arrives from
// below, also if both neighbours are one rank, or the caller itself.
func NeighborAllgather[T any](c *Comm, send, recv []T) error {
	return c.perform(planNeighborAllgather(c, coll.Blocking, send, recv))
}

func planNeighborAllgather[T any](c *Comm, w coll.Way, send, recv []T) (*coll.Plan, error) {
	op := w.Call(collectives.NeighborAllgather)
	in, out, err := checkNeighbors[T](c, op)
	if err != nil {
		return nil, err
	}
	n := len(send)
	if out == 0 && in > 0 {
		n = len(recv) / in // there is no neighbour to send to
	}
	if len(recv) != in*n {
		return nil, c.lengthError(op, "send has %d elements and recv %d; recv must have %d, one block for each of %d "+
			"neighbours that the caller receives from", len(send), len(recv), in*n, in)
	}
	key := keyOf[T](collectives.NeighborAllgather)
	key.Count = elements[T](n)
	return withBuffers(op, planned[T](&c.group, w, key, nil, nil), send, recv)
}

// NeighborAllgatherv is NeighborAllgather of blocks of any lengths: recv has a slice for each rank that the caller
// receives from, as long as that rank's send; §8.6.1.
func NeighborAllgatherv[T any](c *Comm, send []T, recv [][]T) error {
	return c.perform(planNeighborAllgatherv(c, coll.Blocking, send, recv))
}

func planNeighborAllgatherv[T any](c *Comm, w coll.Way, send []T, recv [][]T) (*coll.Plan, error) {
	op := w.Call(collectives.NeighborAllgatherv)
	in, _, err := checkNeighbors[T](c, op)
	if err != nil {
		return nil, err
	}
	if err := c.edges(op, "recv", len(recv), in, "receives from"); err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.NeighborAllgatherv)
	key.Count = elements[T](len(send))
	return oneToBlocks(c, w, op, key, send, recv)
}

// NeighborAlltoall sends block i of send to the i-th rank that the caller sends to, and receives block i of recv from
// the i-th rank that it receives from; §8.6.2. All blocks have one length. See NeighborAllgather.
func NeighborAlltoall[T any](c *Comm, send, recv []T) error {
	return c.perform(planNeighborAlltoall(c, coll.Blocking, send, recv))
}

func planNeighborAlltoall[T any](c *Comm, w coll.Way, send, recv []T) (*coll.Plan, error) {
	op := w.Call(collectives.NeighborAlltoall)
	in, out, err := checkNeighbors[T](c, op)
	if err != nil {
		return nil, err
	}
	n := len(send) / max(1, out)
	if out == 0 {
		n = len(recv) / max(1, in)
	}
	if len(send) != out*n || len(recv) != in*n {
		return nil, c.lengthError(op, "send has %d elements and recv %d; they must have one block of the same length "+
			"for each of %d neighbours that the caller sends to, and of %d that it receives from", len(send), len(recv), out, in)
	}
	key := keyOf[T](collectives.NeighborAlltoall)
	key.Count = elements[T](n)
	return withBuffers(op, planned[T](&c.group, w, key, nil, nil), send, recv)
}

// NeighborAlltoallv is NeighborAlltoall of blocks of any lengths: send and recv have a slice for each neighbour;
// §8.6.2. A slice of send is as long as the slice that receives it.
func NeighborAlltoallv[T any](c *Comm, send, recv [][]T) error {
	return c.perform(planNeighborAlltoallv(c, coll.Blocking, send, recv))
}

func planNeighborAlltoallv[T any](c *Comm, w coll.Way, send, recv [][]T) (*coll.Plan, error) {
	op := w.Call(collectives.NeighborAlltoallv)
	in, out, err := checkNeighbors[T](c, op)
	if err != nil {
		return nil, err
	}
	if err := c.edges(op, "recv", len(recv), in, "receives from"); err != nil {
		return nil, err
	}
	if err := c.edges(op, "send", len(send), out, "sends to"); err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.NeighborAlltoallv)
	var few, more [fewRanks]int64
	p := planned[T](&c.group, w, key, countsOf(few[:0], send), countsOf(more[:0], recv))
	list(p, collectives.In, send)
	list(p, collectives.Out, recv)
	return p.CheckBlocks(op)
}

// checkNeighbors is checkColl of a call among neighbours. It returns how many the caller receives from and sends to.
func checkNeighbors[T any](c *Comm, op string) (in, out int, err error) {
	if err := checkColl[T](c, op); err != nil {
		return 0, 0, err
	}
	return c.neighborCounts(op)
}

// neighborCounts is how many neighbours the caller receives from and sends to.
func (c *Comm) neighborCounts(op string) (in, out int, err error) {
	if c.group.Topology == nil {
		return 0, 0, c.noTopology(op)
	}
	if g, ok := c.group.Topology.(*graph); ok && g.lopsided != "" {
		return 0, 0, c.collError(op, ErrTopology, "%s; edges must lead both ways, or the graph be made by DistGraph",
			g.lopsided)
	}
	in, out = c.group.Topology.Degree(c.group.Rank)
	return in, out, nil
}

func (c *Comm) noTopology(op string) *Error {
	return c.opError(op, ErrTopology, "the communicator has no topology; Cart, Graph or DistGraph give it one")
}

// edges reports that a list with a slice for each neighbour has another length.
func (c *Comm) edges(op, name string, n, want int, what string) error {
	if n != want {
		return c.lengthError(op, "%s has %d slices; it must have one for each of %d neighbours that the caller %s, which "+
			"may be empty", name, n, want, what)
	}
	return nil
}

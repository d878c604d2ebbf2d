package mpi

import (
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

// Barrier returns when every rank of c has called it; §6.3.
//
// If c's context has ended, or ends first, Barrier returns the context's error. This rank counts as entered all the
// same: the library finishes the barrier in the background when the other ranks enter. So all ranks agree which calls
// belong together, whichever rank's deadline passes. The same holds for all collective calls. They then work on copies
// of the caller's buffers: the caller owns its buffers again at once, and does not get the result. Their operators may
// be called later.
func Barrier(c *Comm) error {
	return c.perform(planBarrier(c, coll.Blocking))
}

func planBarrier(c *Comm, w coll.Way) (*coll.Plan, error) {
	op := w.Call(collectives.Barrier)
	if c.IsInter() {
		return planInterBarrier(c, w, op)
	}
	if err := c.intra(op); err != nil {
		return nil, err
	}
	key := coll.Key{Operation: collectives.Barrier, ElemSize: 1, Commutative: true}
	return planned[byte](&c.group, w, key, nil, nil), nil
}

// Bcast sends buf of rank root to buf of all other ranks; §6.4. All buffers have the same length.
func Bcast[T any](c *Comm, buf []T, root int) error {
	return c.perform(planBcast(c, coll.Blocking, buf, root))
}

func planBcast[T any](c *Comm, w coll.Way, buf []T, root int) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterBcast(c, w, buf, root)
	}
	op := w.Call(collectives.Bcast)
	if err := checkRoot[T](c, op, root); err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Bcast)
	key.Root, key.Count = root, elements[T](len(buf))
	p := planned[T](&c.group, w, key, nil, nil)
	buffer(p, collectives.Out, buf)
	return p, nil
}

// Gather brings send of every rank to rank root's recv, in the order of ranks; §6.5. All ranks' send have one length,
// and the root's recv is Size times as long. Other ranks' recv is not used. The root's send may be nil: its block is
// then in recv already.
func Gather[T any](c *Comm, send, recv []T, root int) error {
	return c.perform(planGather(c, coll.Blocking, send, recv, root))
}

func planGather[T any](c *Comm, w coll.Way, send, recv []T, root int) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterGather(c, w, send, recv, root)
	}
	op := w.Call(collectives.Gather)
	if err := checkRoot[T](c, op, root); err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Gather)
	key.Root = root
	n := len(send)
	if c.group.Rank == root {
		var err error
		if n, err = c.gathered(op, len(send), send == nil, len(recv)); err != nil {
			return nil, err
		}
		key.InPlace = send == nil
	} else {
		recv = nil
	}
	key.Count = elements[T](n)
	return withBuffers(op, planned[T](&c.group, w, key, nil, nil), send, recv)
}

// gathered is the length of a block where recv gets one of each rank.
func (c *Comm) gathered(op string, send int, inPlace bool, recv int) (int, error) {
	n, err := c.blockLen(op, "recv", recv)
	if err != nil {
		return 0, err
	}
	if !inPlace && n != send {
		return 0, c.lengthError(op, "send has %d elements and recv %d; recv must have %d, one block for each of %d ranks",
			send, recv, send*c.group.Size, c.group.Size)
	}
	return n, nil
}

// Gatherv is Gather of blocks of any lengths: the root's recv has a slice for each rank, as long as that rank's send;
// §6.5.
func Gatherv[T any](c *Comm, send []T, recv [][]T, root int) error {
	return c.perform(planGatherv(c, coll.Blocking, send, recv, root))
}

func planGatherv[T any](c *Comm, w coll.Way, send []T, recv [][]T, root int) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterGatherv(c, w, send, recv, root)
	}
	op := w.Call(collectives.Gatherv)
	if err := checkRoot[T](c, op, root); err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Gatherv)
	key.Root, key.Count = root, elements[T](len(send))
	var few [fewRanks]int64
	var out []int64
	if c.group.Rank == root {
		if err := c.own(op, "recv", "send", len(recv), lenOf(recv, c.group.Rank), len(send), send == nil); err != nil {
			return nil, err
		}
		key.InPlace = send == nil
		key.Count = elements[T](len(recv[root]))
		out = countsOf(few[:0], recv)
	} else {
		recv = nil
	}
	p := planned[T](&c.group, w, key, nil, out)
	buffer(p, collectives.In, send)
	list(p, collectives.Out, recv)
	return p.CheckBlocks(op)
}

// lenOf is the length of slice i, if there is one.
func lenOf[T any](list [][]T, i int) int {
	if i < len(list) {
		return len(list[i])
	}
	return 0
}

// own reports that a list has not a slice for each rank, or its own one another length than the other buffer.
func (c *Comm) own(op, list, other string, slices, own, n int, inPlace bool) error {
	if err := c.blocks(op, list, slices); err != nil {
		return err
	}
	if !inPlace && own != n {
		return c.lengthError(op, "%s[%d] has %d elements and %s %d; a rank's own block is copied, "+
			"and both must have the same length", list, c.group.Rank, own, other, n)
	}
	return nil
}

// Scatter sends block i of rank root's send to rank i's recv; §6.6. All ranks' recv have one length, and the root's
// send is Size times as long. Other ranks' send is not used. The root's recv may be nil: its block then stays in send.
func Scatter[T any](c *Comm, send, recv []T, root int) error {
	return c.perform(planScatter(c, coll.Blocking, send, recv, root))
}

func planScatter[T any](c *Comm, w coll.Way, send, recv []T, root int) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterScatter(c, w, send, recv, root)
	}
	op := w.Call(collectives.Scatter)
	if err := checkRoot[T](c, op, root); err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Scatter)
	key.Root = root
	n := len(recv)
	if c.group.Rank == root {
		var err error
		if n, err = c.blockLen(op, "send", len(send)); err != nil {
			return nil, err
		}
		if key.InPlace = recv == nil; recv != nil && n != len(recv) {
			return nil, c.lengthError(op, "send has %d elements and recv %d; send must have %d, one block for each of %d ranks",
				len(send), len(recv), len(recv)*c.group.Size, c.group.Size)
		}
	} else {
		send = nil
	}
	key.Count = elements[T](n)
	return withBuffers(op, planned[T](&c.group, w, key, nil, nil), send, recv)
}

// Scatterv is Scatter of blocks of any lengths: the root's send has a slice for each rank, as long as that rank's recv;
// §6.6.
func Scatterv[T any](c *Comm, send [][]T, recv []T, root int) error {
	return c.perform(planScatterv(c, coll.Blocking, send, recv, root))
}

func planScatterv[T any](c *Comm, w coll.Way, send [][]T, recv []T, root int) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterScatterv(c, w, send, recv, root)
	}
	op := w.Call(collectives.Scatterv)
	if err := checkRoot[T](c, op, root); err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Scatterv)
	key.Root, key.Count = root, elements[T](len(recv))
	var few [fewRanks]int64
	var in []int64
	if c.group.Rank == root {
		if err := c.own(op, "send", "recv", len(send), lenOf(send, c.group.Rank), len(recv), recv == nil); err != nil {
			return nil, err
		}
		key.InPlace = recv == nil
		key.Count = elements[T](len(send[root]))
		in = countsOf(few[:0], send)
	} else {
		send = nil
	}
	p := planned[T](&c.group, w, key, in, nil)
	list(p, collectives.In, send)
	buffer(p, collectives.Out, recv)
	return p.CheckBlocks(op)
}

// Allgather is Gather to all ranks; §6.7. send may be nil: each rank's block is then in its recv already.
func Allgather[T any](c *Comm, send, recv []T) error {
	return c.perform(planAllgather(c, coll.Blocking, send, recv))
}

func planAllgather[T any](c *Comm, w coll.Way, send, recv []T) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterAllgather(c, w, send, recv)
	}
	op := w.Call(collectives.Allgather)
	if err := checkColl[T](c, op); err != nil {
		return nil, err
	}
	n, err := c.gathered(op, len(send), send == nil, len(recv))
	if err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Allgather)
	key.Count, key.InPlace = elements[T](n), send == nil
	return withBuffers(op, planned[T](&c.group, w, key, nil, nil), send, recv)
}

// Allgatherv is Gatherv to all ranks, and every rank gives all lengths; §6.7. send may be nil: each rank's block is
// then in its recv already.
func Allgatherv[T any](c *Comm, send []T, recv [][]T) error {
	return c.perform(planAllgatherv(c, coll.Blocking, send, recv))
}

func planAllgatherv[T any](c *Comm, w coll.Way, send []T, recv [][]T) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterAllgatherv(c, w, send, recv)
	}
	op := w.Call(collectives.Allgatherv)
	if err := checkColl[T](c, op); err != nil {
		return nil, err
	}
	if err := c.own(op, "recv", "send", len(recv), lenOf(recv, c.group.Rank), len(send), send == nil); err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Allgatherv)
	key.InPlace = send == nil
	return oneToBlocks(c, w, op, key, send, recv)
}

// Alltoall sends block i of send to rank i, and receives rank i's block in block i of recv; §6.8. All blocks of all
// ranks have one length. send may be nil at all ranks: recv then holds the blocks to send, and the received ones
// replace them.
func Alltoall[T any](c *Comm, send, recv []T) error {
	return c.perform(planAlltoall(c, coll.Blocking, send, recv))
}

func planAlltoall[T any](c *Comm, w coll.Way, send, recv []T) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterAlltoall(c, w, send, recv)
	}
	op := w.Call(collectives.Alltoall)
	if err := checkColl[T](c, op); err != nil {
		return nil, err
	}
	n, err := c.blockLen(op, "recv", len(recv))
	if err != nil {
		return nil, err
	}
	if send != nil && len(send) != len(recv) {
		return nil, c.lengthError(op, "send has %d elements and recv %d; both must have the same length", len(send),
			len(recv))
	}
	key := keyOf[T](collectives.Alltoall)
	key.Count, key.InPlace = elements[T](n), send == nil
	return withBuffers(op, planned[T](&c.group, w, key, nil, nil), send, recv)
}

// Alltoallv is Alltoall of blocks of any lengths: send and recv have a slice for each rank; §6.8. send[j] at rank i is
// as long as recv[i] at rank j. send may be nil at all ranks: recv then holds the blocks to send, and the received ones
// replace them.
func Alltoallv[T any](c *Comm, send, recv [][]T) error {
	return c.perform(planAlltoallv(c, coll.Blocking, send, recv))
}

func planAlltoallv[T any](c *Comm, w coll.Way, send, recv [][]T) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterAlltoallv(c, w, send, recv)
	}
	op := w.Call(collectives.Alltoallv)
	if err := checkColl[T](c, op); err != nil {
		return nil, err
	}
	if err := c.own(op, "recv", "send", len(recv), lenOf(recv, c.group.Rank), lenOf(send, c.group.Rank),
		send == nil); err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Alltoallv)
	key.InPlace = send == nil
	var few, more [fewRanks]int64
	out := countsOf(more[:0], recv)
	in := out
	if send != nil {
		if err := c.blocks(op, "send", len(send)); err != nil {
			return nil, err
		}
		in = countsOf(few[:0], send)
	}
	p := planned[T](&c.group, w, key, in, out)
	list(p, collectives.In, send)
	list(p, collectives.Out, recv)
	return p.CheckBlocks(op)
}

package mpi

import (
	"slices"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

// On an intercommunicator each group gets what the other one has; §6.2.3. A call with a root runs on the ranks of one
// group and then the root of the other one. Other calls run on the ranks of both groups.

// interRoot is who is the root of a call on an intercommunicator, and on which communicator it runs. idle: this rank
// has no part in it.
func (c *Comm) interRoot(op string, root int) (over *coll.Group, idle bool, err error) {
	switch {
	case root == Root:
		return c.group.RootGroup(int(c.group.WorldRank), true), false, nil
	case root == ProcNull:
		return c.group.BothGroups(), true, nil
	case root < 0 || root >= c.group.Size:
		return nil, false, c.collError(op, ErrRoot, "the root is %d; the remote group has %s. In the root's own group it is "+
			"mpi.Root at the root and mpi.ProcNull at the other ranks", root, c.ranksText())
	}
	return c.group.RootGroup(c.group.ToWorld(root), false), false, nil
}

// checkInter is checkColl on an intercommunicator.
func checkInter[T any](c *Comm, op string) error {
	if err := c.valid(op); err != nil {
		return err
	}
	return checkElements[T](c, op)
}

func planInterBarrier(c *Comm, w coll.Way, op string) (*coll.Plan, error) {
	if err := c.valid(op); err != nil {
		return nil, err
	}
	over := c.group.BothGroups()
	return planned[byte](over, w, coll.Key{Operation: collectives.Barrier, ElemSize: 1, Commutative: true}, nil, nil),
		nil
}

func planInterBcast[T any](c *Comm, w coll.Way, buf []T, root int) (*coll.Plan, error) {
	op := w.Call(collectives.Bcast)
	if err := checkInter[T](c, op); err != nil {
		return nil, err
	}
	over, idle, err := c.interRoot(op, root)
	if err != nil {
		return nil, err
	}
	if idle {
		buf = nil
	}
	key := keyOf[T](collectives.Bcast)
	key.Root, key.Count = over.Size-1, elements[T](len(buf))
	p := interPlan[T](c, over, w, op, key, nil, nil, root)
	buffer(p, collectives.Out, buf)
	return p, nil
}

func planInterGather[T any](c *Comm, w coll.Way, send, recv []T, root int) (*coll.Plan, error) {
	op := w.Call(collectives.Gather)
	if err := checkInter[T](c, op); err != nil {
		return nil, err
	}
	over, idle, err := c.interRoot(op, root)
	if err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Gather)
	key.Root = over.Size - 1
	n := len(send)
	switch {
	case idle:
		n, send, recv = 0, nil, nil
	case root == Root:
		if n, err = c.blockLen(op, "recv", len(recv)); err != nil {
			return nil, err
		}
		send, key.InPlace = nil, true
	default:
		recv = nil
	}
	key.Count = elements[T](n)
	p := interPlan[T](c, over, w, op, key, nil, nil, root)
	buffer(p, collectives.In, send)
	buffer(p, collectives.Out, recv)
	return p, nil
}

func planInterGatherv[T any](c *Comm, w coll.Way, send []T, recv [][]T, root int) (*coll.Plan, error) {
	op := w.Call(collectives.Gatherv)
	if err := checkInter[T](c, op); err != nil {
		return nil, err
	}
	over, idle, err := c.interRoot(op, root)
	if err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Gatherv)
	key.Root = over.Size - 1
	var out []int64
	switch {
	case idle:
		send, recv = nil, nil
	case root == Root:
		if err := c.blocks(op, "recv", len(recv)); err != nil {
			return nil, err
		}
		send, key.InPlace = nil, true
		out = append(countsOf(nil, recv), 0) // the root has no block of its own
	default:
		recv, key.Count = nil, elements[T](len(send))
	}
	p := interPlan[T](c, over, w, op, key, nil, out, root)
	buffer(p, collectives.In, send)
	list(p, collectives.Out, recv)
	return p.CheckBlocks(op)
}

func planInterScatter[T any](c *Comm, w coll.Way, send, recv []T, root int) (*coll.Plan, error) {
	op := w.Call(collectives.Scatter)
	if err := checkInter[T](c, op); err != nil {
		return nil, err
	}
	over, idle, err := c.interRoot(op, root)
	if err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Scatter)
	key.Root = over.Size - 1
	n := len(recv)
	switch {
	case idle:
		n, send, recv = 0, nil, nil
	case root == Root:
		if n, err = c.blockLen(op, "send", len(send)); err != nil {
			return nil, err
		}
		recv, key.InPlace = nil, true
	default:
		send = nil
	}
	key.Count = elements[T](n)
	p := interPlan[T](c, over, w, op, key, nil, nil, root)
	buffer(p, collectives.In, send)
	buffer(p, collectives.Out, recv)
	return p, nil
}

func planInterScatterv[T any](c *Comm, w coll.Way, send [][]T, recv []T, root int) (*coll.Plan, error) {
	op := w.Call(collectives.Scatterv)
	if err := checkInter[T](c, op); err != nil {
		return nil, err
	}
	over, idle, err := c.interRoot(op, root)
	if err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Scatterv)
	key.Root = over.Size - 1
	var in []int64
	switch {
	case idle:
		send, recv = nil, nil
	case root == Root:
		if err := c.blocks(op, "send", len(send)); err != nil {
			return nil, err
		}
		recv, key.InPlace = nil, true
		in = append(countsOf(nil, send), 0)
	default:
		send, key.Count = nil, elements[T](len(recv))
	}
	p := interPlan[T](c, over, w, op, key, in, nil, root)
	list(p, collectives.In, send)
	buffer(p, collectives.Out, recv)
	return p.CheckBlocks(op)
}

func planInterReduce[T any](c *Comm, w coll.Way, send, recv []T, op Op[T], root int, options []Reduction) (
	*coll.Plan, error,
) {
	name := w.Call(collectives.InterReduce)
	if err := checkInter[T](c, name); err != nil {
		return nil, err
	}
	over, idle, err := c.interRoot(name, root)
	if err != nil {
		return nil, err
	}
	n := len(send)
	switch {
	case idle:
		n, send, recv = 0, nil, nil
	case root == Root:
		n, send = len(recv), nil
	case op == nil:
		return nil, c.nilOp(name)
	default:
		recv = nil
	}
	key := keyOf[T](collectives.InterReduce)
	key.Root, key.Count = over.Size-1, elements[T](n)
	p := reducing(over, w, key, op, options, nil)
	if c.group.Setup.Check {
		p.CompareInter(&c.group, name, root)
	}
	return withBuffers(name, p, send, recv)
}

// notInPlace is the error of a call whose send is nil.
func (c *Comm) notInPlace(op string) error {
	return c.lengthError(op, "send is nil, that is in place, which there is not on an intercommunicator: recv gets what "+
		"the other group has")
}

func planInterReduceScatter[T any](c *Comm, w coll.Way, o collectives.Operation, send, recv []T, counts []int64,
	sum int, op Op[T], options []Reduction,
) (*coll.Plan, error) {
	name := w.Call(o)
	switch {
	case op == nil:
		return nil, c.nilOp(name)
	case send == nil && sum > 0:
		return nil, c.notInPlace(name)
	case len(send) != sum || int64(len(recv)) != counts[c.group.Rank]:
		return nil, c.lengthError(name, "send has %d elements and recv %d; of the %d ranks of the caller's group, recv has "+
			"this rank's part, %d, and send the sum of all parts, %d", len(send), len(recv), len(counts),
			counts[c.group.Rank], sum)
	}
	if elements[T](1) == 0 {
		clear(counts)
		sum = 0
	}
	key := keyOf[T](o)
	key.Count = int64(sum)
	return withBuffers(name, reducing(c.group.BothGroups(), w, key, op, options, counts), send, recv)
}

func planInterReduceScatterBlock[T any](c *Comm, w coll.Way, send, recv []T, op Op[T], options []Reduction) (
	*coll.Plan, error,
) {
	const o = collectives.InterReduceScatterBlock
	if err := checkInter[T](c, w.Call(o)); err != nil {
		return nil, err
	}
	counts := slices.Repeat([]int64{int64(len(recv))}, c.Size())
	return planInterReduceScatter(c, w, o, send, recv, counts, len(recv)*c.Size(), op, options)
}

func planInterReduceScatterCounts[T any](c *Comm, w coll.Way, send, recv []T, counts []int, op Op[T],
	options []Reduction,
) (*coll.Plan, error) {
	const o = collectives.InterReduceScatter
	name := w.Call(o)
	if err := checkInter[T](c, name); err != nil {
		return nil, err
	}
	if len(counts) != c.Size() {
		return nil, c.lengthError(name, "there are %d counts; there must be one for each of the %d ranks of the caller's "+
			"group", len(counts), c.Size())
	}
	in, sum, err := c.sumCounts(name, nil, counts)
	if err != nil {
		return nil, err
	}
	return planInterReduceScatter(c, w, o, send, recv, in, sum, op, options)
}

// across returns the plan of a call in which each rank has a block for each rank of the other group, and gets one of
// each. The lists have these blocks.
func across[T any](c *Comm, w coll.Way, o collectives.Operation, send, recv [][]T) (*coll.Plan, error) {
	p := planned[T](c.group.BothGroups(), w, keyOf[T](o), c.spread(countsOf(nil, send)), c.spread(countsOf(nil, recv)))
	c.beginAcross(p)
	for i := range send {
		p.AddBlock(collectives.In, bytesOf(send[i]))
		p.AddBlock(collectives.Out, bytesOf(recv[i]))
	}
	return p.CheckBlocks(w.Call(o))
}

// spread brings counts of the remote ranks to the places of these among the ranks of both groups. The ranks of the own
// group have 0.
func (c *Comm) spread(counts []int64) []int64 {
	all := make([]int64, c.group.BothGroups().Size)
	copy(all[c.group.RemoteAt():], counts)
	return all
}

// beginAcross adds the blocks before the remote ranks' first one, which are empty.
func (c *Comm) beginAcross(p *coll.Plan) {
	for _, s := range []collectives.Space{collectives.In, collectives.Out} {
		p.ClearSpace(s)
		for range c.group.RemoteAt() {
			p.AddBlock(s, nil)
		}
	}
}

// split returns the n parts of buf.
func split[T any](buf []T, n int) [][]T {
	parts, length := make([][]T, n), len(buf)/n
	for i := range parts {
		parts[i] = buf[i*length : (i+1)*length]
	}
	return parts
}

func planInterAllgather[T any](c *Comm, w coll.Way, send, recv []T) (*coll.Plan, error) {
	op := w.Call(collectives.InterAllgather)
	if err := checkInter[T](c, op); err != nil {
		return nil, err
	}
	if _, err := c.blockLen(op, "recv", len(recv)); err != nil {
		return nil, err
	}
	return across(c, w, collectives.InterAllgather, slices.Repeat([][]T{send}, c.group.Size), split(recv, c.group.Size))
}

func planInterAllgatherv[T any](c *Comm, w coll.Way, send []T, recv [][]T) (*coll.Plan, error) {
	op := w.Call(collectives.InterAllgatherv)
	if err := checkInter[T](c, op); err != nil {
		return nil, err
	}
	if err := c.blocks(op, "recv", len(recv)); err != nil {
		return nil, err
	}
	return across(c, w, collectives.InterAllgatherv, slices.Repeat([][]T{send}, c.group.Size), recv)
}

func planInterAlltoall[T any](c *Comm, w coll.Way, send, recv []T) (*coll.Plan, error) {
	op := w.Call(collectives.InterAlltoall)
	if err := checkInter[T](c, op); err != nil {
		return nil, err
	}
	for name, buf := range map[string][]T{"send": send, "recv": recv} {
		if _, err := c.blockLen(op, name, len(buf)); err != nil {
			return nil, err
		}
	}
	return across(c, w, collectives.InterAlltoall, split(send, c.group.Size), split(recv, c.group.Size))
}

func planInterAlltoallv[T any](c *Comm, w coll.Way, send, recv [][]T) (*coll.Plan, error) {
	op := w.Call(collectives.InterAlltoallv)
	if err := checkInter[T](c, op); err != nil {
		return nil, err
	}
	if err := c.blocks(op, "recv", len(recv)); err != nil {
		return nil, err
	}
	if err := c.blocks(op, "send", len(send)); err != nil {
		return nil, err
	}
	return across(c, w, collectives.InterAlltoallv, send, recv)
}

func planInterAllreduce[T any](c *Comm, w coll.Way, send, recv []T, op Op[T], options []Reduction) (*coll.Plan, error) {
	name := w.Call(collectives.Allreduce)
	if err := checkInter[T](c, name); err != nil {
		return nil, err
	}
	switch {
	case op == nil:
		return nil, c.nilOp(name)
	case send == nil && len(recv) > 0:
		return nil, c.notInPlace(name)
	}
	n, err := c.vectors(name, len(send), false, len(recv))
	if err != nil {
		return nil, err
	}
	over := c.group.BothGroups()
	key := keyOf[T](collectives.InterAllreduce)
	key.Count = elements[T](n)
	return withBuffers(name, reducing(over, w, key, op, options, nil), send, recv)
}

// interPlan is planned, of a call on over in the place of c.
func interPlan[T any](c *Comm, over *coll.Group, w coll.Way, op string, key coll.Key, in, out []int64,
	root int,
) *coll.Plan {
	p := planned[T](over, w, key, in, out)
	if c.group.Setup.Check {
		p.CompareInter(&c.group, op, root)
	}
	return p
}

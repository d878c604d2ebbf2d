package mpi

import (
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

// The calls of colllayout.go on an intercommunicator.

// checkInterHolder is checkHolder on an intercommunicator.
func checkInterHolder[T any](c *Comm, op string) error {
	if err := c.valid(op); err != nil {
		return err
	}
	if err := holdsNumbers[T](); err != nil {
		return c.collError(op, ErrType, "%w", err)
	}
	return nil
}

// interInBytes is inBytes of a call with a root, which runs on over.
func (c *Comm) interInBytes(over *coll.Group, w coll.Way, op string, key coll.Key, in, out []int64,
	root int,
) *coll.Plan {
	p := c.inBytesOn(over, w, key, in, out)
	if c.group.Setup.Check {
		p.CompareInter(&c.group, op, root)
	}
	return p
}

func planInterBcastLayout[T any](c *Comm, w coll.Way, buf []T, l Layout, root int) (*coll.Plan, error) {
	op := w.Named("BcastLayout")
	if err := checkInterHolder[T](c, op); err != nil {
		return nil, err
	}
	over, idle, err := c.interRoot(op, root)
	if err != nil {
		return nil, err
	}
	key := coll.Key{Operation: collectives.Bcast, Root: over.Size - 1}
	if idle {
		return c.interInBytes(over, w, op, key, nil, nil, root), nil
	}
	if err := checkBlock(c, op, buf, l, root != Root); err != nil {
		return nil, err
	}
	key.Count = l.Size()
	p := c.interInBytes(over, w, op, key, nil, nil, root)
	addBlock(p, collectives.Out, bytesOf(buf), l, root == Root, root != Root)
	return p, nil
}

func planInterGatherw[S, R any](c *Comm, w coll.Way, send []S, l Layout, recv []R, blocks []Layout, root int) (
	*coll.Plan, error,
) {
	op := w.Named("Gatherw")
	if err := checkInterHolder[R](c, op); err != nil {
		return nil, err
	}
	over, idle, err := c.interRoot(op, root)
	if err != nil {
		return nil, err
	}
	key := coll.Key{Operation: collectives.Gatherv, Root: over.Size - 1}
	switch {
	case idle:
		return c.interInBytes(over, w, op, key, nil, nil, root), nil
	case root != Root:
		if err := checkBlock(c, op, send, l, false); err != nil {
			return nil, err
		}
		key.Count = l.Size()
		p := c.interInBytes(over, w, op, key, nil, nil, root)
		addBlock(p, collectives.In, bytesOf(send), l, true, false)
		return p, nil
	}
	out, err := checkBlocks(c, op, "blocks", recv, blocks, c.group.Size, true)
	if err != nil {
		return nil, err
	}
	key.InPlace = true
	p := c.interInBytes(over, w, op, key, nil, append(out, 0), root) // the root has no block of its own
	for _, l := range blocks {
		addBlock(p, collectives.Out, bytesOf(recv), l, false, true)
	}
	return p.CheckBlocks(op)
}

func planInterScatterw[S, R any](c *Comm, w coll.Way, send []S, blocks []Layout, recv []R, l Layout, root int) (
	*coll.Plan, error,
) {
	op := w.Named("Scatterw")
	if err := checkInterHolder[S](c, op); err != nil {
		return nil, err
	}
	over, idle, err := c.interRoot(op, root)
	if err != nil {
		return nil, err
	}
	key := coll.Key{Operation: collectives.Scatterv, Root: over.Size - 1}
	switch {
	case idle:
		return c.interInBytes(over, w, op, key, nil, nil, root), nil
	case root != Root:
		if err := checkBlock(c, op, recv, l, true); err != nil {
			return nil, err
		}
		key.Count = l.Size()
		p := c.interInBytes(over, w, op, key, nil, nil, root)
		addBlock(p, collectives.Out, bytesOf(recv), l, false, true)
		return p, nil
	}
	in, err := checkBlocks(c, op, "blocks", send, blocks, c.group.Size, false)
	if err != nil {
		return nil, err
	}
	key.InPlace = true
	p := c.interInBytes(over, w, op, key, append(in, 0), nil, root)
	for _, l := range blocks {
		addBlock(p, collectives.In, bytesOf(send), l, true, false)
	}
	return p, nil
}

func planInterAllgatherw[S, R any](c *Comm, w coll.Way, send []S, l Layout, recv []R, blocks []Layout) (
	*coll.Plan, error,
) {
	op := w.Named("Allgatherw")
	if err := checkInterHolder[R](c, op); err != nil {
		return nil, err
	}
	out, err := checkBlocks(c, op, "blocks", recv, blocks, c.group.Size, true)
	if err != nil {
		return nil, err
	}
	if err := checkBlock(c, op, send, l, false); err != nil {
		return nil, err
	}
	in := make([]int64, c.group.Size)
	for i := range in {
		in[i] = l.Size()
	}
	p := c.inBytesOn(c.group.BothGroups(), w, coll.Key{Operation: collectives.InterAllgatherv}, c.spread(in),
		c.spread(out))
	c.beginAcross(p)
	addBlock(p, collectives.In, bytesOf(send), l, true, false)
	packed := p.Blocks(collectives.In)[c.group.RemoteAt()] // once, for all of the other group
	for i := range out {
		if i > 0 {
			p.AddBlock(collectives.In, packed)
		}
		addBlock(p, collectives.Out, bytesOf(recv), blocks[i], false, true)
	}
	return p.CheckBlocks(op)
}

func planInterAlltoallw[S, R any](c *Comm, w coll.Way, send []S, to []Layout, recv []R, from []Layout) (
	*coll.Plan, error,
) {
	op := w.Call(collectives.InterAlltoallw)
	if err := checkInterHolder[R](c, op); err != nil {
		return nil, err
	}
	out, err := checkBlocks(c, op, "from", recv, from, c.group.Size, true)
	if err != nil {
		return nil, err
	}
	in, err := checkBlocks(c, op, "to", send, to, c.group.Size, false)
	if err != nil {
		return nil, err
	}
	p := c.inBytesOn(c.group.BothGroups(), w, coll.Key{Operation: collectives.InterAlltoallw}, c.spread(in),
		c.spread(out))
	c.beginAcross(p)
	for i := range out {
		addBlock(p, collectives.In, bytesOf(send), to[i], true, false)
		addBlock(p, collectives.Out, bytesOf(recv), from[i], false, true)
	}
	return p.CheckBlocks(op)
}

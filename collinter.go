package mpi

import (
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

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
	p := interPlan[T](c, over, w, op, key, root)
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
	p := interPlan[T](c, over, w, op, key, root)
	buffer(p, collectives.In, send)
	buffer(p, collectives.Out, recv)
	return p, nil
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
		return nil, c.lengthError(name, "send is nil, that is in place, which there is not on an intercommunicator: recv "+
			"gets what the other group has")
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
func interPlan[T any](c *Comm, over *coll.Group, w coll.Way, op string, key coll.Key, root int) *coll.Plan {
	p := planned[T](over, w, key, nil, nil)
	if c.group.Setup.Check {
		p.CompareInter(&c.group, op, root)
	}
	return p
}

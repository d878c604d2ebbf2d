package mpi

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// A collective call on an intercommunicator runs on a communicator of those ranks that have a part in it, which has the
// contexts and the numbers of calls of the intercommunicator: all ranks of both groups, or the root and the group that
// is not its own. It is made by each rank by itself, and the caller does not see it.

// groups is what the collective calls on an intercommunicator need.
type groups struct {
	low  int   // ranks of the group whose first rank is lower in the world
	both *Comm // all ranks, those of that group first

	mu    sync.Mutex
	roots map[int]*Comm // by the root's rank in the world: the ranks of the other group, and then the root
}

func (c *Comm) newGroups() *groups {
	low, high := c.group.Local, c.group.Peers
	if low.At(0) > high.At(0) {
		low, high = high, low
	}
	g := &groups{low: int(low.N), roots: map[int]*Comm{}}
	g.both = c.partly(g, ranks.Of(slices.Concat(low.Runs, high.Runs)...))
	return g
}

// partly is the communicator of some ranks of an intercommunicator, of which this rank is one.
func (c *Comm) partly(g *groups, members *ranks.Set) *Comm {
	s := &shared{setup: c.setup, placed: &placed{}, groups: g}
	c.group.DerivePart(&s.group, members)
	if s.group.Both = &s.group; g.both != nil {
		s.group.Both = &g.both.group
	}
	s.colls.of = &c.colls
	return newComm(s, nil)
}

// from is the communicator for calls whose root has this rank in the world. ours: the root is this rank.
func (c *Comm) from(root int, ours bool) *Comm {
	g := c.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.roots[root]
	if d == nil {
		group := c.group.Local
		if ours {
			group = c.group.Peers
		}
		d = c.partly(g, ranks.Of(append(slices.Clone(group.Runs), ranks.Strided(int32(root), 1, 1))...))
		g.roots[root] = d
	}
	return newComm(d.shared, c.ctx)
}

// bothGroups is the communicator of all ranks of an intercommunicator.
func (c *Comm) bothGroups() *Comm { return newComm(c.groups.both.shared, c.ctx) }

// interRoot is who is the root of a call on an intercommunicator, and on which communicator it runs. idle: this rank
// has no part in it.
func (c *Comm) interRoot(op string, root int) (over *Comm, idle bool, err error) {
	switch {
	case root == Root:
		return c.from(int(c.group.WorldRank), true), false, nil
	case root == ProcNull:
		return c.bothGroups(), true, nil
	case root < 0 || root >= c.group.Size:
		return nil, false, c.collError(op, ErrRoot, "the root is %d; the remote group has %s. In the root's own group it is "+
			"mpi.Root at the root and mpi.ProcNull at the other ranks", root, c.ranksText())
	}
	return c.from(c.group.ToWorld(root), false), false, nil
}

// checkInter is checkColl on an intercommunicator.
func checkInter[T any](c *Comm, op string) error {
	if err := c.valid(op); err != nil {
		return err
	}
	return checkElements[T](c, op)
}

func planInterBarrier(c *Comm, w way, op string) (*collPlan, error) {
	if err := c.valid(op); err != nil {
		return nil, err
	}
	over := c.bothGroups()
	p := planned[byte](over, w, planKey{operation: collectives.Barrier, elemSize: 1, commutative: true}, nil, nil)
	p.over = over
	return p, nil
}

func planInterBcast[T any](c *Comm, w way, buf []T, root int) (*collPlan, error) {
	op := w.call(collectives.Bcast)
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
	key.root, key.count = over.group.Size-1, elements[T](len(buf))
	p := interPlan[T](c, over, w, op, key, root)
	buffer(p, collectives.Out, buf)
	return p, nil
}

func planInterGather[T any](c *Comm, w way, send, recv []T, root int) (*collPlan, error) {
	op := w.call(collectives.Gather)
	if err := checkInter[T](c, op); err != nil {
		return nil, err
	}
	over, idle, err := c.interRoot(op, root)
	if err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Gather)
	key.root = over.group.Size - 1
	n := len(send)
	switch {
	case idle:
		n, send, recv = 0, nil, nil
	case root == Root:
		if n, err = c.share(op, "recv", len(recv)); err != nil {
			return nil, err
		}
		send, key.inPlace = nil, true
	default:
		recv = nil
	}
	key.count = elements[T](n)
	p := interPlan[T](c, over, w, op, key, root)
	buffer(p, collectives.In, send)
	buffer(p, collectives.Out, recv)
	return p, nil
}

func planInterAllreduce[T any](c *Comm, w way, send, recv []T, op Op[T], options []Reduction) (*collPlan, error) {
	name := w.call(collectives.Allreduce)
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
	over := c.bothGroups()
	key := keyOf[T](collectives.InterAllreduce)
	key.count = elements[T](n)
	p := reducing(over, w, key, op, options, nil)
	p.over = over
	return apart(over, name, p, send, recv)
}

// interPlan is planned, of a call on over in the place of c.
func interPlan[T any](c, over *Comm, w way, op string, key planKey, root int) *collPlan {
	p := planned[T](over, w, key, nil, nil)
	if p.over = over; !c.setup.Check {
		return p
	}
	// What is compared at all ranks of both groups. The other ranks of the root's group know nothing of the call.
	group, asRoot, named := c.group.Local.At(0), "", ""
	typeName, count := p.typeName, fmt.Sprintf("%d elements for each block", p.count)
	switch root {
	case Root:
		asRoot = fmt.Sprintf("root %d", c.group.WorldRank)
	case ProcNull:
		typeName, count = "", ""
	default:
		group, named = c.group.Peers.At(0), fmt.Sprintf("root %d", c.group.ToWorld(root))
	}
	p.claimed = []claim{{text: op, class: ErrComm},
		{text: fmt.Sprintf("the root in the group of rank %d", group), class: ErrRoot},
		claimAsRoot: {text: asRoot, class: ErrRoot, open: true}, claimNamed: {text: named, class: ErrRoot, open: true},
		{text: typeName, class: ErrType, open: true}, {text: count, class: ErrCount, open: true}}
	return p
}

// The places of the two claims about the root: what it says itself, and what the ranks of the other group say.
const (
	claimAsRoot = 2
	claimNamed  = 3
)

// rootless reports that no rank is the root that others name, on an intercommunicator. claims are those of all ranks.
func rootless(claims []claim) *agree.Veto {
	if asRoot, named := claims[claimAsRoot].text, claims[claimNamed].text; asRoot != named {
		is := "no rank calls it with mpi.Root"
		if asRoot != "" {
			is = fmt.Sprintf("mpi.Root is given as %s", asRoot)
		}
		return &agree.Veto{Class: ErrRoot, Text: fmt.Sprintf("%s is called with %s, and %s", claims[0].text, named, is)}
	}
	return nil
}

package coll

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// A collective call on an intercommunicator runs on a group of the ranks that have a part in it, which has the contexts
// and the numbers of calls of the intercommunicator: all ranks of both groups, or the root and the group that is not
// its own. Each rank makes it by itself, and the caller does not see it.

// interGroups are the groups on which the collective calls on an intercommunicator run.
type interGroups struct {
	both *Group // all ranks, first those of the group whose first rank is lower in the world

	mu    sync.Mutex
	roots map[int]*Group // by the root's rank in the world: the ranks of the other group, and then the root
}

// Join makes g, which has the ranks of the local group, an intercommunicator.
func (g *Group) Join(local, remote *ranks.Set) {
	g.Local, g.Peers, g.Size = local, remote, int(remote.N)
	low, high := local, remote
	if low.At(0) > high.At(0) {
		low, high = high, low
	}
	g.low, g.inter = int(low.N), &interGroups{roots: map[int]*Group{}}
	g.inter.both = g.derivePart(ranks.Of(slices.Concat(low.Runs, high.Runs)...))
	g.Both = &g.inter.both.Group
}

// derivePart returns the group of some ranks of an intercommunicator, of which this rank is one.
func (g *Group) derivePart(members *ranks.Set) *Group {
	d := &Group{Setup: g.Setup, placement: &placement{}, low: g.low}
	g.Group.DerivePart(&d.Group, members)
	if d.Both = g.Both; d.Both == nil {
		d.Both = &d.Group
	}
	d.numbers.parent = &g.numbers
	return d
}

// BothGroups returns the group of all ranks of an intercommunicator.
func (g *Group) BothGroups() *Group { return g.inter.both }

// RemoteAt returns where the ranks of the remote group begin among the ranks of BothGroups.
func (g *Group) RemoteAt() int {
	if g.inter.both.Rank < g.low {
		return g.low
	}
	return 0
}

// RootGroup returns the group for calls whose root has this rank in the world. own: the root is this rank.
func (g *Group) RootGroup(root int, own bool) *Group {
	in := g.inter
	in.mu.Lock()
	defer in.mu.Unlock()
	d := in.roots[root]
	if d == nil {
		group := g.Local
		if own {
			group = g.Peers
		}
		d = g.derivePart(ranks.Of(append(slices.Clone(group.Runs), ranks.Strided(int32(root), 1, 1))...))
		in.roots[root] = d
	}
	return d
}

// The places of the two attributes about the root: what it says itself, and what the ranks of the other group say.
const (
	attributeAsRoot = 2
	attributeNamed  = 3
)

// CompareInter makes the ranks of both groups of the intercommunicator g compare the call op, of which p is the plan.
// The other ranks of the root's group know nothing of it.
func (p *Plan) CompareInter(g *Group, op string, root int) {
	group, asRoot, named := g.Local.At(0), "", ""
	typeName, count, order, operator := p.TypeName, fmt.Sprintf("%d elements for each block", p.Count), "", ""
	if p.Operation == collectives.Gatherv || p.Operation == collectives.Scatterv {
		count = "" // each rank has its own
	}
	switch root {
	case ranks.Root:
		asRoot = fmt.Sprintf("root %d", g.WorldRank)
	case ranks.ProcNull:
		typeName, count = "", ""
	default: // these ranks combine
		group, named = g.Peers.At(0), fmt.Sprintf("root %d", g.ToWorld(root))
		if p.Operation.Facts().Reduces {
			if order, operator = "an operator that commutes", p.OperatorName; !p.Commutative {
				order = "Ordered"
			}
		}
	}
	p.attributes = []attribute{{text: op, class: mpierr.ErrComm},
		{text: fmt.Sprintf("the root in the group of rank %d", group), class: mpierr.ErrRoot},
		attributeAsRoot: {text: asRoot, class: mpierr.ErrRoot, optional: true},
		attributeNamed:  {text: named, class: mpierr.ErrRoot, optional: true},
		{text: typeName, class: mpierr.ErrType, optional: true}, {text: count, class: mpierr.ErrCount, optional: true},
		{text: order, class: mpierr.ErrOp, optional: true}, {text: operator, class: mpierr.ErrOp, optional: true}}
}

// rootless reports that no rank is the root that others name, on an intercommunicator. attributes are known of all
// ranks.
func rootless(attributes []attribute) *agree.Veto {
	if asRoot, named := attributes[attributeAsRoot].text, attributes[attributeNamed].text; asRoot != named {
		is := "no rank calls it with mpi.Root"
		if asRoot != "" {
			is = fmt.Sprintf("mpi.Root is given as %s", asRoot)
		}
		return &agree.Veto{Class: mpierr.ErrRoot,
			Text: fmt.Sprintf("%s is called with %s, and %s", attributes[0].text, named, is)}
	}
	return nil
}

package mpi

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// cart is the grid of a communicator; §8.5. Ranks are in row-major order: the last coordinate changes fastest.
type cart struct {
	dims     []int
	periodic []bool
}

// Cart makes a communicator whose ranks form a grid; §8.5.1. Every rank of c calls it with the same arguments. dims has
// the length of each dimension (Dims finds good ones), and periodic says which dimensions close to a ring. Ranks beyond
// the grid get nil. With reorder, Cart may move ranks so that each host has a block of the grid. Wrong dimensions, or
// more grid points than ranks, are ErrDims at all ranks.
//
// The cost is the cost of a Split by host.
func (c *Comm) Cart(dims []int, periodic []bool, reorder bool) (*Comm, error) {
	if err := c.intra("Cart"); err != nil {
		return nil, err
	}
	bad := gridArgs("Cart", dims, periodic, c.group.Size)
	grid := &cart{slices.Clone(dims), slices.Clone(periodic)}
	args := agree.AppendInts(nil, int64(len(dims)))
	for i, d := range dims {
		args = agree.AppendInts(args, int64(d))
		if i < len(periodic) {
			args = fmt.Append(args, periodic[i])
		}
	}
	host := 0
	if reorder {
		host = c.group.Host()
	}
	s := agree.NewSplit(&c.group.Group, host, 0)
	s.Arrange = grid.order
	return c.create(plan{kind: agree.MakeCart, args: fmt.Append(args, reorder), bad: bad, g: s,
		members: func() *ranks.Set { return s.Members }, finish: func(made *commState) { made.group.Topology = grid }})
}

func (g *cart) size() int {
	n := 1
	for _, d := range g.dims {
		n *= d
	}
	return n
}

// order is which rank of the parent has each place of the grid.
func (g *cart) order(hosts [][]ranks.Run) []ranks.Run {
	var byHost []int32 // all ranks, one host after the other
	each, equal := 0, true
	for i, h := range hosts {
		before := len(byHost)
		ranks.Of(h...).All(func(r int32) bool { byHost = append(byHost, r); return true })
		if i == 0 {
			each = len(byHost)
		}
		equal = equal && len(byHost)-before == each
	}
	n := g.size()
	block := g.block(each)
	var b ranks.Builder
	for place := range n {
		from := place
		if equal && block != nil && len(hosts) > 1 && n%each == 0 {
			from = g.inBlocks(place, block, each)
		}
		b.AddRank(byHost[from])
	}
	return b.Runs
}

// block is the shape of the part of the grid that a host of so many ranks gets, with as few neighbours outside as
// possible; nil: no part fills a host.
func (g *cart) block(each int) []int {
	var best []int
	least := 0
	var try func(i, rest int, chosen []int)
	try = func(i, rest int, chosen []int) {
		if i == len(g.dims) {
			if rest != 1 {
				return
			}
			outside := 0
			for k, b := range chosen {
				if b < g.dims[k] {
					outside += 2 * each / b
				}
			}
			if best == nil || outside < least {
				best, least = slices.Clone(chosen), outside
			}
			return
		}
		for _, d := range divisorsOf(rest) {
			if g.dims[i]%d == 0 {
				try(i+1, rest/d, append(chosen, d))
			}
		}
	}
	try(0, each, nil)
	return best
}

// inBlocks numbers the places of the grid block by block.
func (g *cart) inBlocks(place int, block []int, each int) int {
	at := g.coords(place)
	host, inside := 0, 0
	for i, x := range at {
		host = host*(g.dims[i]/block[i]) + x/block[i]
		inside = inside*block[i] + x%block[i]
	}
	return host*each + inside
}

func (g *cart) coords(rank int) []int {
	at := make([]int, len(g.dims))
	for i := len(at) - 1; i >= 0; i-- {
		at[i] = rank % g.dims[i]
		rank /= g.dims[i]
	}
	return at
}

// rank is the rank at these coordinates, or ProcNull: outside of a dimension that is no ring.
func (g *cart) rank(at []int) int {
	r := 0
	for i, x := range at {
		if g.periodic[i] {
			if x %= g.dims[i]; x < 0 {
				x += g.dims[i]
			}
		} else if x < 0 || x >= g.dims[i] {
			return ProcNull
		}
		r = r*g.dims[i] + x
	}
	return r
}

// grid is c's, or why there is none.
func (c *Comm) grid(op string) (*cart, *Error) {
	if err := c.valid(op); err != nil {
		return nil, err
	}
	if g, ok := c.group.Topology.(*cart); ok {
		return g, nil
	}
	return nil, c.opError(op, ErrTopology, "the communicator is no grid; Cart makes one")
}

// CartDims returns the dimensions of c's grid, and which of them close to a ring; §8.5.5 (MPI_Cart_get,
// MPI_Cartdim_get). CartDims, Coords, CartRank, Shift and CartSub return ErrTopology for a communicator without a grid.
func (c *Comm) CartDims() (dims []int, periodic []bool, err error) {
	g, e := c.grid("CartDims")
	if e != nil {
		return nil, nil, e
	}
	return slices.Clone(g.dims), slices.Clone(g.periodic), nil
}

// Coords returns the coordinates of a rank in the grid; §8.5.5.
func (c *Comm) Coords(rank int) ([]int, error) {
	g, err := c.grid("Coords")
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= c.group.Size {
		return nil, c.rankError("Coords", rank, false)
	}
	return g.coords(rank), nil
}

// CartRank returns the rank at the coordinates; §8.5.5. In a periodic dimension a coordinate wraps around; in another
// dimension a coordinate outside the grid is ErrDims.
func (c *Comm) CartRank(coords ...int) (int, error) {
	g, err := c.grid("CartRank")
	if err != nil {
		return Undefined, err
	}
	if len(coords) == len(g.dims) {
		if r := g.rank(coords); r != ProcNull {
			return r, nil
		}
	}
	return Undefined, mpierr.New("CartRank", ErrDims, "the coordinates are %v; the grid has the dimensions %v, "+
		"of which %v are rings", coords, g.dims, g.periodic)
}

// Shift returns the ranks to receive from and to send to when all data moves by steps along a dimension; §8.5.6. Beyond
// the end of a dimension that is not periodic it returns ProcNull. A dimension that does not exist is ErrDims.
func (c *Comm) Shift(dim, steps int) (source, dest int, err error) {
	g, e := c.grid("Shift")
	switch {
	case e != nil:
		return Undefined, Undefined, e
	case dim < 0 || dim >= len(g.dims):
		return Undefined, Undefined, mpierr.New("Shift", ErrDims, "there is no dimension %d; the grid has %d, from 0 "+
			"on", dim, len(g.dims))
	}
	size := g.dims[dim]
	if g.periodic[dim] {
		steps %= size
	}
	steps = max(min(steps, size), -size) // far enough, and no sum overflows
	move := func(by int) int {
		to := g.coords(c.group.Rank)
		to[dim] += by
		return g.rank(to)
	}
	return move(-steps), move(steps), nil
}

// CartSub cuts the grid into grids of the kept dimensions; §8.5.7. Every rank calls it with the same argument, one
// entry for each dimension, and gets the communicator of its own grid.
func (c *Comm) CartSub(keep ...bool) (*Comm, error) {
	g, err := c.grid("CartSub")
	if err != nil {
		return nil, err
	}
	var bad *Error
	if len(keep) != len(g.dims) {
		bad = mpierr.New("CartSub", ErrDims, "%d dimensions are named; the grid has %d", len(keep), len(g.dims))
	}
	sub, color, key := &cart{}, 0, 0
	for i, x := range g.coords(c.group.Rank) {
		if bad != nil {
			break
		}
		if keep[i] {
			key = key*g.dims[i] + x
			sub.dims, sub.periodic = append(sub.dims, g.dims[i]), append(sub.periodic, g.periodic[i])
		} else {
			color = color*g.dims[i] + x
		}
	}
	s := agree.NewSplit(&c.group.Group, color, key)
	return c.create(plan{kind: agree.MakeCartSub, args: fmt.Append(nil, keep), bad: bad, g: s,
		members: func() *ranks.Set { return s.Members }, finish: func(made *commState) { made.group.Topology = sub }})
}

// Neighbours returns the neighbours of a rank along each dimension: below and above; §8.6.
func (g *cart) Neighbours(rank int) (sources, destinations []int) {
	var all []int
	at := g.coords(rank)
	for i := range at {
		for _, by := range []int{-1, 1} {
			to := slices.Clone(at)
			to[i] += by
			all = append(all, g.rank(to))
		}
	}
	return all, all
}

// Degree implements coll.Topology.
func (g *cart) Degree(int) (in, out int) { return 2 * len(g.dims), 2 * len(g.dims) }

// IsGrid implements coll.Topology.
func (g *cart) IsGrid() bool { return true }

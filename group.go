package mpi

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// Group is an ordered set of ranks; §7.2.1. It never changes. Comm.Group makes the first one; the methods make others
// from it. A group has a meaning only in the process that made it. Calls on a nil Group return ErrGroup, except Size
// and Rank, which return 0 and Undefined.
//
// A group is stored as ranges with strides, so the even ranks of a large job take at most three ranges.
type Group struct {
	eng   *pml.Engine // of the rank that has made it
	me    int32       // its rank in the world
	ranks *ranks.Set
}

// Comparison is the result of comparing two groups or communicators; §7.3.1, §7.4.1.
type Comparison int

// The results of a comparison.
const (
	Ident     Comparison = iota // the same ranks in the same order; the same communicator
	Congruent                   // two communicators whose groups are Ident
	Similar                     // the same ranks in another order
	Unequal
)

func (c Comparison) String() string {
	return [...]string{"ident", "congruent", "similar", "unequal"}[c]
}

// Range names the ranks First, First+Stride, … up to Last at most; §7.3.2. Stride may be negative, but not 0.
type Range struct{ First, Last, Stride int }

// Group returns the group of the communicator, the local group of an intercommunicator, and nil if c is nil; §7.3.2.
func (c *Comm) Group() *Group {
	if c == nil || c.commState == nil {
		return nil
	}
	return c.groupOf(c.group.Members())
}

func (c *Comm) groupOf(r *ranks.Set) *Group {
	return &Group{eng: c.group.Engine, me: c.group.WorldRank, ranks: r}
}

// Size returns the number of ranks in the group, 0 for a nil group; §7.3.1.
func (g *Group) Size() int {
	if g == nil || g.ranks == nil {
		return 0
	}
	return int(g.ranks.N)
}

// Rank returns the rank of the calling process in the group, or Undefined; §7.3.1.
func (g *Group) Rank() int {
	if g == nil || g.ranks == nil {
		return Undefined
	}
	return g.ranks.Find(g.me)
}

// usable reports why g cannot be used.
func (g *Group) usable(op string) *Error {
	if g == nil || g.ranks == nil {
		return mpierr.New(op, ErrGroup, "the group is nil; Comm.Group makes one")
	}
	return nil
}

// both reports why g and h cannot be used together.
func (g *Group) both(op string, h *Group) *Error {
	if err := g.usable(op); err != nil {
		return err
	}
	if err := h.usable(op); err != nil {
		return err
	}
	if g.eng != h.eng {
		return mpierr.New(op, ErrGroup, "the groups are of two ranks, or of two worlds: the world of the job, and one "+
			"with ranks that Spawn has started; use groups of communicators that were made of each other")
	}
	return nil
}

func (g *Group) with(b *ranks.Builder) *Group { return &Group{eng: g.eng, me: g.me, ranks: b.Done()} }

// check reports the first of ranks that g has not.
func (g *Group) check(op string, ranks []int) *Error {
	if err := g.usable(op); err != nil {
		return err
	}
	for _, r := range ranks {
		if r < 0 || r >= g.Size() {
			return mpierr.New(op, ErrGroup, "there is no rank %d in a group of %d; its ranks are 0 to %d", r, g.Size(),
				g.Size()-1)
		}
	}
	return nil
}

// twice is a rank that is in the list a second time, or -1.
func twice(list []int) int {
	sorted := slices.Sorted(slices.Values(list))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return sorted[i]
		}
	}
	return -1
}

// Union returns the ranks of g, followed by the ranks of h that are not in g; §7.3.2.
func (g *Group) Union(h *Group) (*Group, error) {
	if err := g.both("Union", h); err != nil {
		return nil, err
	}
	b := ranks.Builder{Runs: slices.Clone(g.ranks.Runs)}
	h.filter(&b, func(w int32) bool { return g.ranks.Find(w) == Undefined })
	return g.with(&b), nil
}

// Intersection returns the ranks of g that are also in h, in g's order; §7.3.2.
func (g *Group) Intersection(h *Group) (*Group, error) {
	if err := g.both("Intersection", h); err != nil {
		return nil, err
	}
	var b ranks.Builder
	g.filter(&b, func(w int32) bool { return h.ranks.Find(w) != Undefined })
	return g.with(&b), nil
}

// Difference returns the ranks of g that are not in h, in g's order; §7.3.2.
func (g *Group) Difference(h *Group) (*Group, error) {
	if err := g.both("Difference", h); err != nil {
		return nil, err
	}
	var b ranks.Builder
	g.filter(&b, func(w int32) bool { return h.ranks.Find(w) == Undefined })
	return g.with(&b), nil
}

// filter adds the ranks of g to b that keep names.
func (g *Group) filter(b *ranks.Builder, keep func(world int32) bool) {
	g.ranks.All(func(w int32) bool {
		if keep(w) {
			b.AddRank(w)
		}
		return true
	})
}

// Incl returns the group of the named ranks of g, in the order given; §7.3.2. A rank that is not in g, or is named
// twice, is ErrGroup.
func (g *Group) Incl(ranks ...int) (*Group, error) { return g.incl("Incl", ranks) }

func (g *Group) incl(op string, list []int) (*Group, error) {
	if err := g.check(op, list); err != nil {
		return nil, err
	}
	if r := twice(list); r >= 0 {
		return nil, mpierr.New(op, ErrGroup, "rank %d is named twice; a group has each rank once", r)
	}
	var b ranks.Builder
	for _, r := range list {
		b.AddRank(int32(g.ranks.At(r)))
	}
	return g.with(&b), nil
}

// Excl returns g without the named ranks; §7.3.2. A rank that is not in g, or is named twice, is ErrGroup.
func (g *Group) Excl(ranks ...int) (*Group, error) { return g.excl("Excl", ranks) }

func (g *Group) excl(op string, ranks []int) (*Group, error) {
	out, err := g.incl(op, ranks)
	if err != nil {
		return nil, err
	}
	return g.Difference(out)
}

// RangeIncl is Incl of the ranks of the ranges; §7.3.2. A stride of 0 is ErrGroup.
func (g *Group) RangeIncl(ranges ...Range) (*Group, error) {
	list, err := g.expand("RangeIncl", ranges)
	if err != nil {
		return nil, err
	}
	return g.incl("RangeIncl", list)
}

// RangeExcl is Excl of the ranks of the ranges; §7.3.2. A stride of 0 is ErrGroup.
func (g *Group) RangeExcl(ranges ...Range) (*Group, error) {
	list, err := g.expand("RangeExcl", ranges)
	if err != nil {
		return nil, err
	}
	return g.excl("RangeExcl", list)
}

// expand lists the ranks of ranges, the last step of which need not meet Last.
func (g *Group) expand(op string, ranges []Range) (list []int, err error) {
	if err := g.usable(op); err != nil {
		return nil, err
	}
	for _, r := range ranges {
		if r.Stride == 0 {
			return nil, mpierr.New(op, ErrGroup, "the stride of range %d to %d is 0; it must lead somewhere", r.First,
				r.Last)
		}
		if e := g.check(op, []int{r.First}); e != nil {
			return nil, e
		}
		for i := r.First; r.Stride > 0 && i <= r.Last || r.Stride < 0 && i >= r.Last; i += r.Stride {
			if e := g.check(op, []int{i}); e != nil {
				return nil, e
			}
			list = append(list, i)
			if r.Stride > 0 && r.Stride > r.Last-i {
				break // what comes next is past Last, and may be no int; down from a rank all is one
			}
		}
	}
	return list, nil
}

// Translate returns, for each of these ranks of g, its rank in h; §7.3.1. A rank that is not in h gives Undefined, and
// ProcNull gives ProcNull. A rank that is not in g is ErrGroup.
func (g *Group) Translate(ranks []int, h *Group) ([]int, error) {
	if err := g.both("Translate", h); err != nil {
		return nil, err
	}
	there := make([]int, len(ranks))
	for i, r := range ranks {
		if there[i] = ProcNull; r == ProcNull {
			continue
		}
		if err := g.check("Translate", []int{r}); err != nil {
			return nil, err
		}
		there[i] = h.ranks.Find(int32(g.ranks.At(r)))
	}
	return there, nil
}

// Compare returns Ident, Similar or Unequal; §7.3.1.
func (g *Group) Compare(h *Group) (Comparison, error) {
	if err := g.both("Compare", h); err != nil {
		return Unequal, err
	}
	return compareSets(g.ranks, h.ranks), nil
}

func compareSets(s, t *ranks.Set) Comparison {
	switch {
	case s.N != t.N:
		return Unequal
	case s.Equal(t):
		return Ident
	case s.Within(t):
		return Similar
	}
	return Unequal
}

// String describes the group by ranks of the world: [0-7 16 20-28/4].
func (g *Group) String() string {
	if g == nil || g.ranks == nil {
		return "no group"
	}
	var parts []string
	for _, r := range g.ranks.Runs {
		switch {
		case r.N == 1:
			parts = append(parts, fmt.Sprint(r.First))
		case r.Stride == 1:
			parts = append(parts, fmt.Sprintf("%d-%d", r.First, r.At(r.N-1)))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d/%d", r.First, r.At(r.N-1), r.Stride))
		}
	}
	return fmt.Sprint(parts)
}

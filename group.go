package mpi

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// Group is an ordered set of ranks; §7.2.1. It does not change. It is made from the group of a communicator, and means
// something in the process that has made it only. A nil Group is ErrGroup, except for Size, which is 0, and Rank.
//
// It is held as ranges with strides where the ranks are such: the even ranks of a large job take no more than three.
type Group struct {
	eng   *pml.Engine // of the rank that has made it
	me    int32       // its rank in the world
	ranks *ranks.Set
}

// Comparison is what comparing two groups or communicators gives; §7.3.1, §7.4.1.
type Comparison int

// From the same to nothing in common.
const (
	Ident     Comparison = iota // the same ranks in the same order; of communicators: the same one
	Congruent                   // of communicators: their groups are Ident
	Similar                     // the same ranks in another order
	Unequal
)

func (c Comparison) String() string {
	return [...]string{"ident", "congruent", "similar", "unequal"}[c]
}

// Range is the ranks First, First+Stride, … up to Last, which is not passed; §7.3.2. Stride may be negative, not 0.
type Range struct{ First, Last, Stride int }

// Group is the group of the communicator, of an intercommunicator the local one; §7.3.2. It is nil if c is nil.
func (c *Comm) Group() *Group {
	if c == nil || c.shared == nil {
		return nil
	}
	return c.groupOf(c.group.Members())
}

func (c *Comm) groupOf(r *ranks.Set) *Group {
	return &Group{eng: c.group.Engine, me: c.group.WorldRank, ranks: r}
}

// Size is the number of ranks in the group; §7.3.1.
func (g *Group) Size() int {
	if g == nil || g.ranks == nil {
		return 0
	}
	return int(g.ranks.N)
}

// Rank is the place of the calling process in the group, or Undefined; §7.3.1.
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
		return mpierr.New(op, ErrGroup, "the groups were made by two ranks (%d and %d of the world); "+
			"a group means something to its rank only", g.me, h.me)
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

// Union is the ranks of g, and then those of h that g has not; §7.3.2.
func (g *Group) Union(h *Group) (*Group, error) {
	if err := g.both("Union", h); err != nil {
		return nil, err
	}
	b := ranks.Builder{Runs: slices.Clone(g.ranks.Runs)}
	h.filter(&b, func(w int32) bool { return g.ranks.Find(w) == Undefined })
	return g.with(&b), nil
}

// Intersection is the ranks of g that h has too, in g's order; §7.3.2.
func (g *Group) Intersection(h *Group) (*Group, error) {
	if err := g.both("Intersection", h); err != nil {
		return nil, err
	}
	var b ranks.Builder
	g.filter(&b, func(w int32) bool { return h.ranks.Find(w) != Undefined })
	return g.with(&b), nil
}

// Difference is the ranks of g that h has not, in g's order; §7.3.2.
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

// Incl is the group of these ranks of g, in this order; §7.3.2. A rank that g has not, or that stands there twice, is
// ErrGroup.
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

// Excl is g without these ranks; §7.3.2.
func (g *Group) Excl(ranks ...int) (*Group, error) { return g.excl("Excl", ranks) }

func (g *Group) excl(op string, ranks []int) (*Group, error) {
	out, err := g.incl(op, ranks)
	if err != nil {
		return nil, err
	}
	return g.Difference(out)
}

// RangeIncl is Incl of the ranks of these ranges; §7.3.2.
func (g *Group) RangeIncl(ranges ...Range) (*Group, error) {
	list, err := g.expand("RangeIncl", ranges)
	if err != nil {
		return nil, err
	}
	return g.incl("RangeIncl", list)
}

// RangeExcl is Excl of the ranks of these ranges; §7.3.2.
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
			return nil, mpierr.New(op, ErrGroup, "the stride of range %d to %d is 0; it must lead somewhere", r.First, r.Last)
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

// Translate says which ranks of h the ranks of g are; §7.3.1. One that h has not is Undefined, ProcNull stays what it
// is.
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

// Compare is Ident, Similar or Unequal; §7.3.1.
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

// String describes the group by the ranks of the world: [0-7 16 20-28/4].
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

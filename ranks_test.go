package mpi

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// list is what a set of ranks is modelled by: a plain slice.
func listOf(s *ranks.Set) (all []int32) {
	s.All(func(w int32) bool { all = append(all, w); return true })
	return all
}

func indexOf(list []int32, w int32) int {
	if i := slices.Index(list, w); i >= 0 {
		return i
	}
	return Undefined
}

// checkRanks compares a group with its model, among ranks of the world below size.
func checkRanks(g *Group, model []int32, size int32) {
	s := g.ranks
	check(slices.Equal(listOf(s), model), "the group is %v, the model %v", listOf(s), model)
	same(g.Size(), len(model))
	same(g.Rank(), indexOf(model, g.me))
	for i, w := range model {
		same(s.At(i), int(w))
	}
	for w := range size {
		check(s.Find(w) == indexOf(model, w), "rank %d of the world is at %d in %v", w, s.Find(w), model)
	}
	d := agree.Decoder{B: agree.AppendRanks(nil, s)}
	there := d.Ranks(int(size))
	check(d.Over() && slices.Equal(listOf(there), model), "%v arrives as %v", model, listOf(there))
}

// groupProgram runs random set algebra on groups and on plain slices.
func groupProgram(rnd *rand.Rand, size int32, steps int) {
	world := &Group{me: rnd.Int32N(size), ranks: ranks.Of(ranks.Strided(0, 1, size))}
	groups, models := []*Group{world}, [][]int32{listOf(world.ranks)}
	for range steps {
		i, j := rnd.IntN(len(groups)), rnd.IntN(len(groups))
		g, h, a, b := groups[i], groups[j], models[i], models[j]
		var made *Group
		var model []int32
		without := func(w int32) bool { return !slices.Contains(b, w) }
		switch k := rnd.IntN(7); {
		case k == 0:
			made, model = ok(g.Union(h)), append(slices.Clone(a), slices.DeleteFunc(slices.Clone(b), func(w int32) bool {
				return slices.Contains(a, w)
			})...)
		case k == 1:
			made, model = ok(g.Intersection(h)), slices.DeleteFunc(slices.Clone(a), without)
		case k == 2:
			made = ok(g.Difference(h))
			model = slices.DeleteFunc(slices.Clone(a), func(w int32) bool { return !without(w) })
		case len(a) == 0:
			continue
		case k == 3:
			some := rnd.Perm(len(a))[:rnd.IntN(len(a)+1)]
			made = ok(g.Incl(some...))
			for _, r := range some {
				model = append(model, a[r])
			}
		case k == 4:
			some := rnd.Perm(len(a))[:rnd.IntN(len(a)+1)]
			made = ok(g.Excl(some...))
			model = slices.DeleteFunc(slices.Clone(a), func(w int32) bool { return slices.Contains(some, indexOf(a, w)) })
		default:
			r := Range{rnd.IntN(len(a)), rnd.IntN(len(a)), 1 + rnd.IntN(4)}
			if r.First > r.Last {
				r.Stride = -r.Stride
			}
			var in []int32
			for at := r.First; r.Stride > 0 && at <= r.Last || r.Stride < 0 && at >= r.Last; at += r.Stride {
				in = append(in, a[at])
			}
			if made, model = ok(g.RangeIncl(r)), in; k == 6 {
				made = ok(g.RangeExcl(r))
				model = slices.DeleteFunc(slices.Clone(a), func(w int32) bool { return slices.Contains(in, w) })
			}
		}
		checkRanks(made, model, size)
		want := Unequal
		if slices.Equal(model, b) {
			want = Ident
		} else if slices.Equal(slices.Sorted(slices.Values(model)), slices.Sorted(slices.Values(b))) {
			want = Similar
		}
		same(ok(made.Compare(h)), want)
		for r, w := range model {
			same(ok(made.Translate([]int{r, ProcNull}, h))[0], indexOf(b, w))
		}
		groups, models = append(groups, made), append(models, model)
	}
}

// §7.3: the set algebra of groups, against plain slices.
func TestGroupsAgainstSlices(t *testing.T) {
	for seed := range uint64(inShort(300, 60)) {
		rnd := newRand(seed, 0)
		groupProgram(rnd, 1+rnd.Int32N(40), 30)
	}
}

func FuzzGroups(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(9))
	f.Fuzz(func(_ *testing.T, a, b uint64, size uint8) {
		groupProgram(rand.New(rand.NewPCG(a, b)), int32(size)+1, 20)
	})
}

// What other ranks send is refused, or is a group without a rank that is none or is there twice.
func FuzzRanksFromOutside(f *testing.F) {
	f.Add(agree.AppendRanks(nil, ranks.Of(ranks.Strided(3, 2, 5), ranks.Strided(4, 1, 1))), uint8(20))
	f.Add(agree.AppendInts(nil, 2, 0, 1, 5, 4, -1, 2), uint8(20))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		d := agree.Decoder{B: b}
		s := d.Ranks(int(size))
		if d.Bad {
			return
		}
		list := slices.Sorted(slices.Values(listOf(s)))
		if len(slices.Compact(slices.Clone(list))) != len(list) || len(list) > 0 && (list[0] < 0 || list[len(list)-1] >= int32(size)) {
			t.Fatalf("%v is no group of %d ranks", list, size)
		}
	})
}

// Regular groups take no memory that grows with the job: every rank, a half, each host's first, a reversed one.
func TestRegularGroupsAreSmall(t *testing.T) {
	const n = 1 << 20
	world := &Group{ranks: ranks.Of(ranks.Strided(0, 1, n))}
	for _, r := range []Range{{0, n - 1, 1}, {0, n / 2, 1}, {0, n - 1, 128}, {n - 1, 0, -1}} {
		g := ok(world.RangeIncl(r))
		same(len(g.ranks.Runs), 1)
		same(len(ok(world.Difference(g)).ranks.Runs) <= n/128+1, true)
	}
}

// §7.3: what cannot be is ErrGroup, which says why.
func TestBadGroups(t *testing.T) {
	over(t)(2, func(w *Comm) {
		g := w.Group()
		for _, err := range []error{
			second(g.Incl(2)), second(g.Incl(-1)), second(g.Incl(1, 0, 1)), second(g.Excl(5)), second(g.Excl(0, 0)),
			second(g.RangeIncl(Range{0, 1, 0})), second(g.RangeIncl(Range{0, 5, 1})), second(g.RangeIncl(Range{0, 1, 1}, Range{1, 1, 1})),
			second(g.RangeExcl(Range{-1, 1, 1})), second(g.Translate([]int{7}, g)), second(g.Union(nil)),
			second((*Group)(nil).Incl(0)), second((*Group)(nil).Compare(g)),
		} {
			is(err, ErrGroup)
		}
		same((*Group)(nil).Size(), 0)
		same((*Group)(nil).Rank(), Undefined)
		same((*Comm)(nil).Group() == nil, true)
		same(ok(g.RangeIncl(Range{1, 0, 1})).Size(), 0)
		// Strides at the ends of what an int can be: the next one is past Last.
		for _, r := range []Range{{1, 1, math.MaxInt}, {1, 1, math.MinInt}, {1, 1, math.MinInt + 1}} {
			same(ok(g.RangeIncl(r)).Size(), 1)
			same(ok(g.RangeExcl(r)).Size(), g.Size()-1)
		}
		is(second(g.RangeIncl(Range{1, math.MaxInt, math.MaxInt - 1})), ErrGroup)
		is(second(g.RangeIncl(Range{1, math.MinInt, math.MinInt})), ErrGroup)
	})
	over(t)(1, func(w *Comm) {
		over(t)(1, func(v *Comm) { is(second(w.Group().Union(v.Group())), ErrGroup) })
	})
}

package ranks

import (
	"slices"
	"sort"
)

// Special values of ranks.
const (
	ProcNull  = -2 // no rank: calls that name it do nothing and succeed; §3.11
	Undefined = -3 // no such value; §2.5.4
	Root      = -4 // this rank is the root of a call on an intercommunicator; §6.2.3
)

// Run is n ranks of the world, each a stride from the one before.
type Run struct {
	First, Stride, N int32 // n >= 1; stride is not 0, and 1 if n is 1
}

// Strided is n ranks from first on.
func Strided(first, stride, n int32) Run { return Run{first, stride, n} }

// At is the rank of the world at place i.
func (r Run) At(i int32) int32 { return r.First + i*r.Stride }

// find is the place of a rank of the world in r, or -1.
func (r Run) find(world int32) int32 {
	d := world - r.First
	if d%r.Stride != 0 || d/r.Stride < 0 || d/r.Stride >= r.N {
		return -1
	}
	return d / r.Stride
}

func (r Run) low() int32  { return min(r.First, r.At(r.N-1)) }
func (r Run) high() int32 { return max(r.First, r.At(r.N-1)) }

// Set is an ordered set of ranks of the world, held as runs: every rank of a job, each second one, or the ranks of each
// host take a few words, for any number of ranks. Once built it does not change.
type Set struct {
	Runs   []Run   // no rank is in two of them
	starts []int32 // as many as runs: how many ranks stand before each
	N      int32   // ranks

	// Of several runs, to find a rank: their numbers by low(), and in each place the highest rank of the runs up to it.
	byLow []int32
	reach []int32
}

// Of makes the set of runs that hold no rank twice. Runs that continue each other become one.
func Of(runs ...Run) *Set {
	var b Builder
	for _, r := range runs {
		b.add(r)
	}
	return b.Done()
}

// At is the rank of the world at place i.
func (s *Set) At(i int) int {
	if len(s.Runs) == 1 {
		return int(s.Runs[0].At(int32(i)))
	}
	k := sort.Search(len(s.starts), func(k int) bool { return s.starts[k] > int32(i) }) - 1
	return int(s.Runs[k].At(int32(i) - s.starts[k]))
}

// Find is the place of a rank of the world in s, or Undefined.
func (s *Set) Find(world int32) int {
	if len(s.Runs) == 1 {
		if i := s.Runs[0].find(world); i >= 0 {
			return int(i)
		}
		return Undefined
	}
	k := sort.Search(len(s.byLow), func(k int) bool { return s.Runs[s.byLow[k]].low() > world }) - 1
	for ; k >= 0 && s.reach[k] >= world; k-- {
		at := s.byLow[k]
		if i := s.Runs[at].find(world); i >= 0 {
			return int(s.starts[at] + i)
		}
	}
	return Undefined
}

// All calls f with each rank of the world in s, in order.
func (s *Set) All(f func(world int32) bool) {
	for _, r := range s.Runs {
		for i := range r.N {
			if !f(r.At(i)) {
				return
			}
		}
	}
}

// Equal reports whether both sets have the same ranks in the same order.
func (s *Set) Equal(t *Set) bool {
	return slices.Equal(s.Runs, t.Runs) || s.N == t.N && s.samePlaces(t)
}

// samePlaces reports whether s and t have the same ranks in the same order, however they are cut into runs.
func (s *Set) samePlaces(t *Set) bool {
	i, same := 0, true
	s.All(func(w int32) bool {
		same = t.At(i) == int(w)
		i++
		return same
	})
	return same
}

// Within reports whether t has all ranks of s.
func (s *Set) Within(t *Set) bool {
	if len(t.Runs) == 1 && t.Runs[0].Stride == 1 { // often the world
		for _, r := range s.Runs {
			if t.Runs[0].find(r.low()) < 0 || t.Runs[0].find(r.high()) < 0 {
				return false
			}
		}
		return true
	}
	inside := true
	s.All(func(w int32) bool {
		inside = t.Find(w) != Undefined
		return inside
	})
	return inside
}

// Identity reports whether each rank of s has its place in s as its number in the world.
func (s *Set) Identity() bool {
	return len(s.Runs) == 1 && s.Runs[0].First == 0 && s.Runs[0].Stride == 1
}

// Builder makes a set of what is added, which has no rank twice.
type Builder struct{ Runs []Run }

func (b *Builder) add(r Run) {
	if r.N == 0 {
		return
	}
	if r.N == 1 {
		r.Stride = 1
	}
	if len(b.Runs) == 0 {
		b.Runs = append(b.Runs, r)
		return
	}
	last := &b.Runs[len(b.Runs)-1]
	step := r.First - last.At(last.N-1)
	switch {
	case last.N == 1 && (r.N == 1 || r.Stride == step), r.N == 1 && last.Stride == step,
		last.Stride == step && r.Stride == step:
		last.Stride = step
		last.N += r.N
	default:
		b.Runs = append(b.Runs, r)
	}
}

// AddRank adds one rank.
func (b *Builder) AddRank(world int32) { b.add(Run{world, 1, 1}) }

// Done is the set of what has been added.
func (b *Builder) Done() *Set {
	s := &Set{Runs: slices.Clip(b.Runs), starts: make([]int32, len(b.Runs))}
	for i, r := range s.Runs {
		s.starts[i] = s.N
		s.N += r.N
	}
	if len(s.Runs) < 2 {
		return s
	}
	s.byLow, s.reach = make([]int32, len(s.Runs)), make([]int32, len(s.Runs))
	for i := range s.byLow {
		s.byLow[i] = int32(i)
	}
	slices.SortFunc(s.byLow, func(i, j int32) int { return int(s.Runs[i].low()) - int(s.Runs[j].low()) })
	highest := int32(-1)
	for i, k := range s.byLow {
		highest = max(highest, s.Runs[k].high())
		s.reach[i] = highest
	}
	return s
}

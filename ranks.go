package mpi

import (
	"slices"
	"sort"
)

// run is n ranks of the world, each a stride from the one before.
type run struct {
	first, stride, n int32 // n >= 1; stride is not 0, and 1 if n is 1
}

func (r run) at(i int32) int32 { return r.first + i*r.stride }

// find is the place of a rank of the world in r, or -1.
func (r run) find(world int32) int32 {
	d := world - r.first
	if d%r.stride != 0 || d/r.stride < 0 || d/r.stride >= r.n {
		return -1
	}
	return d / r.stride
}

func (r run) low() int32  { return min(r.first, r.at(r.n-1)) }
func (r run) high() int32 { return max(r.first, r.at(r.n-1)) }

// ranks is an ordered set of ranks of the world, held as runs: every rank of a job, each second one, or those of each
// host take a few words, whatever their number. Once built it does not change.
type ranks struct {
	runs   []run   // no rank is in two of them
	starts []int32 // as many as runs: how many ranks stand before each
	n      int32   // ranks

	// Of several runs, to find a rank: their numbers by low(), and in each place the highest rank of the runs up to it.
	byLow []int32
	reach []int32
}

// ranksOf makes the set of runs that hold no rank twice. Runs that continue each other become one.
func ranksOf(runs ...run) *ranks {
	var b ranksBuilder
	for _, r := range runs {
		b.add(r)
	}
	return b.done()
}

func (s *ranks) at(i int) int {
	if len(s.runs) == 1 {
		return int(s.runs[0].at(int32(i)))
	}
	k := sort.Search(len(s.starts), func(k int) bool { return s.starts[k] > int32(i) }) - 1
	return int(s.runs[k].at(int32(i) - s.starts[k]))
}

// find is the place of a rank of the world in s, or Undefined.
func (s *ranks) find(world int32) int {
	if len(s.runs) == 1 {
		if i := s.runs[0].find(world); i >= 0 {
			return int(i)
		}
		return Undefined
	}
	k := sort.Search(len(s.byLow), func(k int) bool { return s.runs[s.byLow[k]].low() > world }) - 1
	for ; k >= 0 && s.reach[k] >= world; k-- {
		at := s.byLow[k]
		if i := s.runs[at].find(world); i >= 0 {
			return int(s.starts[at] + i)
		}
	}
	return Undefined
}

// all calls f with each rank of the world in s, in order.
func (s *ranks) all(f func(world int32) bool) {
	for _, r := range s.runs {
		for i := range r.n {
			if !f(r.at(i)) {
				return
			}
		}
	}
}

func (s *ranks) equal(t *ranks) bool {
	return slices.Equal(s.runs, t.runs) || s.n == t.n && s.samePlaces(t)
}

// samePlaces: the same ranks may be cut into other runs.
func (s *ranks) samePlaces(t *ranks) bool {
	i, same := 0, true
	s.all(func(w int32) bool {
		same = t.at(i) == int(w)
		i++
		return same
	})
	return same
}

// within: t has all ranks of s.
func (s *ranks) within(t *ranks) bool {
	if len(t.runs) == 1 && t.runs[0].stride == 1 { // often the world
		for _, r := range s.runs {
			if t.runs[0].find(r.low()) < 0 || t.runs[0].find(r.high()) < 0 {
				return false
			}
		}
		return true
	}
	inside := true
	s.all(func(w int32) bool {
		inside = t.find(w) != Undefined
		return inside
	})
	return inside
}

// identity: place and rank of the world are the same.
func (s *ranks) identity() bool {
	return len(s.runs) == 1 && s.runs[0].first == 0 && s.runs[0].stride == 1
}

// ranksBuilder makes a set of what is added, which has no rank twice.
type ranksBuilder struct{ runs []run }

func (b *ranksBuilder) add(r run) {
	if r.n == 0 {
		return
	}
	if r.n == 1 {
		r.stride = 1
	}
	if len(b.runs) == 0 {
		b.runs = append(b.runs, r)
		return
	}
	last := &b.runs[len(b.runs)-1]
	step := r.first - last.at(last.n-1)
	switch {
	case last.n == 1 && (r.n == 1 || r.stride == step), r.n == 1 && last.stride == step,
		last.stride == step && r.stride == step:
		last.stride = step
		last.n += r.n
	default:
		b.runs = append(b.runs, r)
	}
}

func (b *ranksBuilder) addRank(world int32) { b.add(run{world, 1, 1}) }

func (b *ranksBuilder) done() *ranks {
	s := &ranks{runs: slices.Clip(b.runs), starts: make([]int32, len(b.runs))}
	for i, r := range s.runs {
		s.starts[i] = s.n
		s.n += r.n
	}
	if len(s.runs) < 2 {
		return s
	}
	s.byLow, s.reach = make([]int32, len(s.runs)), make([]int32, len(s.runs))
	for i := range s.byLow {
		s.byLow[i] = int32(i)
	}
	slices.SortFunc(s.byLow, func(i, j int32) int { return int(s.runs[i].low()) - int(s.runs[j].low()) })
	highest := int32(-1)
	for i, k := range s.byLow {
		highest = max(highest, s.runs[k].high())
		s.reach[i] = highest
	}
	return s
}

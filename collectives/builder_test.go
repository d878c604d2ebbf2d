package collectives

import (
	"slices"
	"testing"
)

// A schedule that is made window by window is the one that is made at once.
func TestWindow(t *testing.T) {
	for i := range catalogue {
		a := &catalogue[i]
		if a.Needs&OnBoard != 0 {
			continue
		}
		p := sample(a, 8, 3)
		whole := new(Builder).Build(a, &p)
		var b Builder
		at, messages := 0, 0
		for at < whole.Rounds {
			s := b.Window(a, &p, at, 3)
			if s.Rounds != whole.Rounds || s.Tmp != whole.Tmp || s.Stored() != min(3, whole.Rounds-at) {
				t.Fatalf("%v: window at %d has %d of %d rounds and %d of Tmp; of %d, %d", a, at, s.Stored(), s.Rounds, s.Tmp,
					whole.Rounds, whole.Tmp)
			}
			for range s.Stored() {
				m, l := s.Round(at)
				wantM, wantL := whole.Round(at)
				messages += len(m)
				if !slices.Equal(m, wantM) || !slices.Equal(l, wantL) {
					t.Fatalf("%v: round %d is %v %v in a window, and %v %v", a, at, m, l, wantM, wantL)
				}
				at++
			}
		}
		if messages != whole.Messages || b.Window(a, &p, 0, 0).Messages != messages {
			t.Errorf("%v: %d messages are said to be %d", a, messages, whole.Messages)
		}
	}
}

// A Builder that has made a schedule makes it again without memory.
func TestBuildAllocates(t *testing.T) {
	for i := range catalogue {
		a := &catalogue[i]
		if a.Needs&OnBoard != 0 {
			continue
		}
		p := sample(a, 8, 3)
		var b Builder
		b.Build(a, &p)
		if n := testing.AllocsPerRun(10, func() { b.Build(a, &p) }); n != 0 {
			t.Errorf("%v: %v allocations", a, n)
		}
	}
}

// sample is a call of a that fits.
func sample(a *Algorithm, size, rank int) Params {
	return trial{algorithm: a, size: size, root: 1, count: 100, segment: 5, commutative: true,
		hosts: Blocks{size, 2}}.rank(rank).params
}

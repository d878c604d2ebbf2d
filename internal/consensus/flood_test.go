package consensus

import (
	"math/rand/v2"
	"testing"
)

// News reach all living ranks if one of them has it, whichever ranks die meanwhile and whenever each rank hears of
// that, and a rank tells few others.
func TestFlood(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rnd.IntN(40)
		floods, known := make([]*Flood, n), make([]Set, n)
		var dead Set
		type event struct {
			to, of int
			news   bool
		}
		var events []event
		sent := make([]int, n)
		hear := func(rank int) {
			if floods[rank] == nil {
				floods[rank] = NewFlood(n, rank)
			}
			for _, to := range floods[rank].Next(known[rank]) {
				sent[rank]++
				events = append(events, event{to, rank, true})
			}
		}
		deaths := rnd.IntN(n)
		hear(rnd.IntN(n))
		for len(events) > 0 {
			if deaths > 0 && rnd.IntN(4) == 0 && dead.Len() < n-1 {
				victim := rnd.IntN(n)
				if deaths--; dead.Add(victim) {
					for i := range n {
						events = append(events, event{i, victim, false})
					}
				}
			}
			i := rnd.IntN(len(events))
			e := events[i]
			events = append(events[:i], events[i+1:]...)
			switch {
			case dead.Has(e.to):
			case !e.news:
				if known[e.to].Add(e.of); floods[e.to] != nil {
					hear(e.to)
				}
			case dead.Has(e.of) && rnd.IntN(2) == 0: // lost
			case floods[e.to] == nil:
				floods[e.to] = NewFlood(n, e.to)
				floods[e.to].Heard(e.of)
				hear(e.to)
			}
		}
		heard, lives := 0, n-dead.Len()
		for i := range n {
			if !dead.Has(i) && floods[i] != nil {
				heard++
			}
		}
		if heard != 0 && heard != lives {
			t.Fatalf("seed %d: %d of %d living ranks have heard the news", seed, heard, lives)
		}
	}
	for _, n := range []int{1, 2, 3, 64, 1000} {
		if tell := NewFlood(n, n/2).Next(nil); len(tell) > 2*10 {
			t.Errorf("of %d ranks one tells %d", n, len(tell))
		}
	}
}

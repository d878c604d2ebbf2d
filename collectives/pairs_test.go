package collectives

import (
	"math/bits"
	"testing"
)

// Each rank combines the contributions of all, each once, in the order that all have, in few buffers. No contribution
// is taken by many ranks in one step: all ranks took the last rank's first, then the one before it.
func TestPairs(t *testing.T) {
	for ranks := 1; ranks <= 70; ranks++ {
		want := orderByPairs(0, ranks, false)
		takers := make([][]int, ranks) // by the step, and by whose contribution it takes
		for i := range takers {
			takers[i] = make([]int, ranks)
		}
		most := 0
		for rank := range ranks {
			steps, buffers := Pairs(rank, ranks)
			if len(steps) != ranks || steps[0].Rank != rank {
				t.Fatalf("rank %d of %d has %d steps, the first for rank %d", rank, ranks, len(steps), steps[0].Rank)
			}
			if limit := 2 + bits.Len(uint(ranks)); buffers > limit {
				t.Errorf("rank %d of %d needs %d buffers, more than %d", rank, ranks, buffers, limit)
			}
			if got := orderByPairs(rank, ranks, false); got != want {
				t.Errorf("rank %d of %d combines in another order than rank 0", rank, ranks)
			}
			seen := make([]bool, ranks)
			for i, s := range steps {
				if seen[s.Rank] || s.To == Own && s.Rank != rank {
					t.Fatalf("rank %d of %d, step %d: %+v", rank, ranks, i, s)
				}
				seen[s.Rank] = true
				takers[i][s.Rank]++
				most = max(most, takers[i][s.Rank])
			}
		}
		if power := ranks&(ranks-1) == 0; power && most > 1 || most > max(3, ranks/3) {
			t.Errorf("of %d ranks, %d take one contribution at one time", ranks, most)
		}
	}
}

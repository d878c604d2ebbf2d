package agree

import (
	"testing"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Numbers that are never used again leave a bounded number of outcomes, among them the latest.
func TestOutcomesAreForgotten(t *testing.T) {
	x := NewContextIDs()
	x.Small = 8
	both, most := ranks.Of(ranks.Strided(0, 1, 2)), 0
	const last = 100000
	for id := uint32(1); id <= last; id++ {
		if id == SmallNumbers { // it is no communicator's
			continue
		}
		if got := x.Reserve(id); got != id {
			t.Fatalf("Reserve(%d) = %d", id, got)
		}
		x.Decide(id, BallotRound, IsMade)
		x.Release(id, both)
		most = max(most, len(x.outcomes)+len(x.Taken))
	}
	if limit := 3 * outcomesKept; most > limit {
		t.Errorf("%d numbers and outcomes are kept; want at most %d", most, limit)
	}
	for _, id := range []uint32{1, 7, last - outcomesKept, last} {
		if r := x.bind(id, BallotOf(0), mpierr.ErrPeerFailed); r != IsMade {
			t.Errorf("the outcome of number %d is %d", id, r)
		}
	}
}

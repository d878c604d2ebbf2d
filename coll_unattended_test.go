package mpi

import (
	"context"
	"testing"

	"github.com/gorun-mpi/mpi/internal/coll"
)

// longCalls are made of vectors that chains cut into 16 segments.
func longCalls(h coll.Way, c *Comm) map[string]func() {
	const n = 1 << 20 / 8
	mine, recv, want := make([]int64, n), make([]int64, n), func(low, high int) (sum int64) {
		for rank := low; rank < high; rank++ {
			sum += int64(rank + 1)
		}
		return sum
	}
	for i := range mine {
		mine[i] = int64(c.Rank() + 1)
	}
	is := func(name string, want int64) {
		for _, got := range recv {
			check(got == want, "%s at rank %d: %d, not %d", name, c.Rank(), got, want)
		}
	}
	return map[string]func(){
		"Bcast": func() {
			copy(recv, mine)
			must(byBcast(h, c, recv, 1))
			is("Bcast", 2)
		},
		"Reduce": func() {
			must(byReduce(h, c, mine, recv, Sum, 1))
			if c.Rank() == 1 {
				is("Reduce", want(0, c.Size()))
			}
		},
		"Scan": func() {
			must(byScan(h, c, mine, recv, Sum))
			is("Scan", want(0, c.Rank()+1))
		},
		"Exscan": func() {
			must(byExscan(h, c, mine, recv, Sum))
			if c.Rank() > 0 {
				is("Exscan", want(0, c.Rank()))
			}
		},
	}
}

var longNames = []string{"Bcast", "Reduce", "Scan", "Exscan"}

const chains = "GORUN_COLL=bcast:chain,reduce:chain,scan:chain,exscan:chain"

// A long call that is not blocking takes no more messages of a rank than there are ranks: each message may wait for a
// rank that computes.
func TestFewMessagesWhileRanksCompute(t *testing.T) {
	for _, setting := range []string{"GORUN_COLL=", chains} {
		overLoop(t, onHosts(func(rank int) int { return rank }), unchecked(setting))(3, func(w *Comm) {
			for _, h := range []coll.Way{coll.Nonblocking, coll.Persistent} {
				calls := longCalls(h, w)
				for _, name := range longNames {
					must(Barrier(w)) // links are made
					most := uint64(w.Size())
					if n := sent(w, calls[name]); n > most {
						t.Errorf("%s: %s of 1 MiB sends %d messages from rank %d; want at most %d", setting,
							h.Named(name), n, w.Rank(), most)
					}
				}
			}
		})
	}
}

// A blocking call with a context goes together with calls without one.
func TestLongCallsWithAContextAtOneRank(t *testing.T) {
	over(t, unchecked(chains))(3, func(w *Comm) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for with := range w.Size() {
			c := w
			if w.Rank() == with {
				c = w.WithContext(ctx)
			}
			calls := longCalls(coll.Blocking, c)
			for _, name := range longNames {
				calls[name]()
			}
		}
	})
}

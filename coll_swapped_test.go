package mpi

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// swappedCall is a collective call whose messages have one element each, and what rank 0 and 1 of two get by it.
type swappedCall struct {
	name string
	do   func(h coll.Way, c *Comm, mine []int64) (got []int64, err error)
	want [2][]int64
}

// swappedCalls: rank r gives 10(r+1), and for rank 1 of two blocks 10(r+1)+1.
var swappedCalls = []swappedCall{
	{"Bcast", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := []int64{mine[0]}
		return got, byBcast(h, c, got, 0)
	}, [2][]int64{{10}, {10}}},
	{"Bcast of 1", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := []int64{mine[0]}
		return got, byBcast(h, c, got, 1)
	}, [2][]int64{{20}, {20}}},
	{"Gather", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 2)
		return onlyAt(c, 0, got), byGather(h, c, mine[:1], onlyAt(c, 0, got), 0)
	}, [2][]int64{{10, 20}, nil}},
	{"Gatherv", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 2)
		blocks := [][]int64{got[:1], got[1:]}
		if c.Rank() != 0 {
			blocks = nil
		}
		return onlyAt(c, 0, got), byGatherv(h, c, mine[:1], blocks, 0)
	}, [2][]int64{{10, 20}, nil}},
	{"Scatter", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 1)
		return got, byScatter(h, c, onlyAt(c, 0, mine), got, 0)
	}, [2][]int64{{10}, {11}}},
	{"Scatterv", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 1)
		blocks := [][]int64{mine[:1], mine[1:]}
		if c.Rank() != 0 {
			blocks = nil
		}
		return got, byScatterv(h, c, blocks, got, 0)
	}, [2][]int64{{10}, {11}}},
	{"Allgather", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 2)
		return got, byAllgather(h, c, mine[:1], got)
	}, [2][]int64{{10, 20}, {10, 20}}},
	{"Allgatherv", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 2)
		return got, byAllgatherv(h, c, mine[:1], [][]int64{got[:1], got[1:]})
	}, [2][]int64{{10, 20}, {10, 20}}},
	{"Alltoall", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 2)
		return got, byAlltoall(h, c, mine, got)
	}, [2][]int64{{10, 20}, {11, 21}}},
	{"Alltoallv", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 2)
		return got, byAlltoallv(h, c, [][]int64{mine[:1], mine[1:]}, [][]int64{got[:1], got[1:]})
	}, [2][]int64{{10, 20}, {11, 21}}},
	{"Reduce", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 1)
		return onlyAt(c, 1, got), byReduce(h, c, mine[:1], onlyAt(c, 1, got), Sum, 1)
	}, [2][]int64{nil, {30}}},
	{"Allreduce", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 1)
		return got, byAllreduce(h, c, mine[:1], got, Sum)
	}, [2][]int64{{30}, {30}}},
	{"ReduceScatterBlock", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 1)
		return got, byReduceScatterBlock(h, c, mine, got, Sum)
	}, [2][]int64{{30}, {32}}},
	{"ReduceScatter", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 1)
		return got, byReduceScatter(h, c, mine, got, []int{1, 1}, Sum)
	}, [2][]int64{{30}, {32}}},
	{"Scan", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 1)
		return got, byScan(h, c, mine[:1], got, Sum)
	}, [2][]int64{{10}, {30}}},
	{"Exscan", func(h coll.Way, c *Comm, mine []int64) ([]int64, error) {
		got := make([]int64, 1)
		return onlyAt(c, 1, got), byExscan(h, c, mine[:1], got, Sum)
	}, [2][]int64{nil, {10}}},
	{"Barrier", func(h coll.Way, c *Comm, _ []int64) ([]int64, error) { return nil, byBarrier(h, c) }, [2][]int64{}},
}

// onlyAt is buf at one rank.
func onlyAt(c *Comm, rank int, buf []int64) []int64 {
	if c.Rank() != rank {
		return nil
	}
	return buf
}

// Two ranks make two collective calls in different orders. Each of them is an error, or waits, or is what it would be
// if the other rank had made it at the same place: never a wrong number without an error. By messages and by the board.
func TestSwappedCalls(t *testing.T) {
	for name, how := range map[string]Option{"messages": unchecked(byMessages), "board": onBoard} {
		t.Run(name, func(t *testing.T) {
			run := overLoop(t, how)
			for i := range swappedCalls {
				for k := range i {
					if testing.Short() && (i+k)%2 == len(name)%2 { // the other half
						continue
					}
					for _, h := range few([]coll.Way{coll.Blocking, coll.Nonblocking, coll.Persistent},
						coll.Way((i+k)%3)) {
						var last sync.WaitGroup
						last.Add(2)
						run(2, func(w *Comm) { swapped(w, &last, h, &swappedCalls[i], &swappedCalls[k]) })
					}
				}
			}
		})
	}
}

// swapped makes the two calls at one rank. last counts the ranks that are still in their last Barrier, which the end of
// the other rank's engine would break.
func swapped(w *Comm, last *sync.WaitGroup, h coll.Way, first, second *swappedCall) {
	c := ok(w.Dup())
	for range coll.BoardSetup {
		must(Barrier(c))
	}
	if w.Rank() == 1 {
		first, second = second, first
	}
	var over sync.WaitGroup
	var wrong error
	mine := int64(10 * (w.Rank() + 1))
	over.Go(func() {
		for _, call := range []*swappedCall{first, second} {
			got, err := call.do(h, c, []int64{mine, mine + 1})
			if want := call.want[w.Rank()]; err == nil && !slices.Equal(got, want) {
				wrong = fmt.Errorf("%s is %d, not %d", call.name, got, want)
			}
			if err != nil {
				return
			}
		}
	})
	for range 8 { // what the two have sent has come by then
		must(Barrier(w))
	}
	last.Done()
	last.Wait()
	w.group.Engine.Close(mpierr.New("", ErrAborted, "the test ends what waits"))
	over.Wait()
	check(wrong == nil, "%s and then %s, where the other rank makes them in the other order, %v: %v", first.name,
		second.name, h, wrong)
}

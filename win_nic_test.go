package mpi

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// nicWindow makes a window with NICAtomics, by WinCreate or WinAlloc.
func nicWindow[T any](w *Comm, create bool, n int) *Win[T] {
	if create {
		return ok(WinCreate(w, make([]T, n), NICAtomics))
	}
	return ok(WinAlloc[T](w, n, NICAtomics))
}

// All kinds of atomic steps on one word are atomic with respect to each other, also the steps of the rank that has the
// word: none is lost, and no two find the same; §12.7.1.
func TestNICAtomics(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) { countByAll(run, func(int) {}) })
}

// countByAll has four ranks count. It calls after at each of them in the end.
func countByAll(run runner, after func(rank int)) {
	const n = 4
	each := inShort(200, 30)
	for _, create := range []bool{false, true} {
		var others, extra atomic.Int64 // ranks that count; steps of rank 0 meanwhile
		others.Store(n - 1)
		run(n, func(w *Comm) {
			win := nicWindow[int64](w, create, 4)
			must(win.LockAll())
			must(Barrier(w))
			steps := int64(0)
			found := make([]int64, each)
			for i := range each {
				// All begin with a step of their own kind, so that the kinds meet.
				found[i] = int64(-1 - i*n - w.Rank()) // it finds nothing
				switch (i + w.Rank()) % 5 {
				case 0, 1:
					found[i] = ok(win.FetchOp(Sum, 1, 0, 1))
				case 2:
					must(win.Accumulate(Sum, []int64{0, 1, 0}, 0, 0))
				case 3:
					was := ok(win.FetchOp(NoOp, 0, 0, 1))
					for now := ok(win.CompareAndSwap(0, 1, was, was+1)); now != was; {
						was = now
						now = ok(win.CompareAndSwap(0, 1, was, was+1))
					}
					found[i] = was
				case 4:
					var was [2]int64
					must(win.GetAccumulate(Sum, []int64{1, 0}, was[:], 0, 1))
					found[i] = was[0]
				}
				steps++
				ok(win.FetchOp(Max, int64(i*n+w.Rank()), 0, 3))
			}
			if w.Rank() > 0 {
				others.Add(-1)
			}
			for ; w.Rank() == 0 && others.Load() > 0; extra.Add(1) {
				ok(win.FetchOp(Sum, 1, 0, 1))
			}
			must(win.UnlockAll())
			must(Barrier(w))
			all := make([]int64, n*each)
			must(Gather(w, found, all, 0))
			if w.Rank() == 0 {
				slices.Sort(all)
				same(len(slices.Compact(all)), n*each)
				must(win.Lock(0, Shared))
				var got [4]int64
				must(win.Get(got[:], 0, 0))
				must(win.Flush(0))
				must(win.Unlock(0))
				same(got, [4]int64{0, steps*n + extra.Load(), 0, int64(each*n - 1)})
			}
			after(w.Rank())
			must(win.Free())
		})
	}
}

// Every operator gives the result that it gives without the option, and steps of one rank at one word are in their
// order; §12.7.2.
func TestNICOperators(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			win, plain := nicWindow[uint64](w, true, 3), ok(WinCreate(w, make([]uint64, 3)))
			for _, x := range []*Win[uint64]{win, plain} {
				must(x.LockAll())
			}
			if w.Rank() == 1 {
				for to := range 2 {
					for i, op := range []Op[uint64]{Sum[uint64], Prod[uint64], Min[uint64], Max[uint64],
						BitAnd[uint64], BitOr[uint64], BitXor[uint64], LogicalAnd[uint64], LogicalOr[uint64],
						LogicalXor[uint64], Replace[uint64], NoOp[uint64]} {
						v := []uint64{3, 1<<63 + 5, uint64(i)}
						a, b := make([]uint64, 3), make([]uint64, 3)
						must(win.Accumulate(Sum, v, to, 0))
						must(plain.Accumulate(Sum, v, to, 0))
						same(ok(win.FetchOp(op, 6, to, 1)), ok(plain.FetchOp(op, 6, to, 1)))
						same(ok(win.FetchOp(op, 6, to, 1)), ok(plain.FetchOp(op, 6, to, 1)))
						must(win.GetAccumulate(op, v, a, to, 0))
						must(plain.GetAccumulate(op, v, b, to, 0))
						check(slices.Equal(a, b), "operator %d at %d: %v, want %v", i, to, a, b)
						column := Vector(2, 1, 2, Of[uint64]())
						must(win.AccumulateLayout(Sum, v, column, to, 0, column))
						must(plain.AccumulateLayout(Sum, v, column, to, 0, column))
						same(ok(win.FetchOp(NoOp, 0, to, 2)), ok(plain.FetchOp(NoOp, 0, to, 2)))
					}
				}
			}
			for _, x := range []*Win[uint64]{win, plain} {
				must(x.UnlockAll())
				must(x.Free())
			}
		})
	})
}

// NICAtomics is for integers of 8 bytes, and for memory that there may be none of.
func TestNICTypes(t *testing.T) {
	type count int64
	overLoop(t)(2, func(w *Comm) {
		for _, err := range []error{
			second(WinAlloc[int32](w, 1, NICAtomics)), second(WinCreate(w, make([]float64, 1), NICAtomics)),
			second(WinAlloc[[2]int32](w, 1, NICAtomics)), second(WinAlloc[bool](w, 1, NICAtomics)),
		} {
			is(err, ErrType)
			check(strings.Contains(err.Error(), "with NICAtomics they must be integers of 8 bytes"), "%v", err)
		}
		is(second(WinCreate(w, make([]int64, 1), WinContiguous)), ErrUnavailable)
		win := nicWindow[count](w, true, w.Rank())
		must(win.Fence())
		is(second(win.FetchOp(Sum, 1, 0, 0)), ErrRange)
		same(ok(win.CompareAndSwap(1, 0, 5, 6)), 0)
		must(win.Fence())
		must(win.Free())
	})
}

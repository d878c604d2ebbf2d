package mpi

import (
	"errors"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

// Updates of many elements, which a rank makes alone, and atomic steps exclude each other: no step is lost; §12.3.4,
// §12.7.1. The elements of one and two bytes share words.
func TestLongUpdates(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		t.Run("int8", func(t *testing.T) { longUpdates[int8](t, run) })
		t.Run("uint16", func(t *testing.T) { longUpdates[uint16](t, run) })
		t.Run("float64", func(t *testing.T) { longUpdates[float64](t, run) })
	})
}

func longUpdates[T int8 | uint16 | float64](t *testing.T, run runner) {
	const n, long = 4, 2000 // elements that are more than a step is worth
	rounds := inShort(200, 30)
	run(n, func(w *Comm) {
		withWin(w, long, func(win *Win[T]) {
			ones, was := make([]T, long), make([]T, long)
			for i := range ones {
				ones[i] = 1
			}
			added := make([][]T, n) // by this rank, at each
			for to := range added {
				added[to] = make([]T, long)
			}
			add := func(to, at, n int, v T) {
				for i := range n {
					added[to][at+i] += v
				}
			}
			must(win.Fence())
			must(win.LockAll())
			for i := range rounds {
				at, to := (i*7+w.Rank())%long, (i+w.Rank())%n
				must(win.Accumulate(Sum, ones, to, 0))
				must(win.GetAccumulate(Sum, ones, was, to, 0))
				add(to, 0, long, 2)
				ok(win.FetchOp(Sum, 1, to, int64(at)))
				for {
					before := ok(win.FetchOp(NoOp, 0, to, int64(at)))
					if ok(win.CompareAndSwap(to, int64(at), before, before+1)) == before {
						break
					}
				}
				add(to, at, 1, 2)
				must(win.Accumulate(Sum, ones[:5], to, long-5))
				add(to, long-5, 5, 1)
			}
			must(win.UnlockAll())
			must(win.Fence())
			for to := range n {
				must(Allreduce(w, nil, added[to], Sum))
			}
			for i, v := range win.Local() {
				check(v == added[w.Rank()][i], "element %d is %v, want %v", i, v, added[w.Rank()][i])
			}
		})
	})
}

// A rank that fails while it may update memory alone leaves that to no other one, which hear of it; steps that need no
// turn go on.
func TestDeathInUpdate(t *testing.T) {
	const victim = 1
	var dies transport.Device
	over(t, withDevices(func(rank int, d transport.Device) transport.Device {
		if rank == victim {
			dies = d
		}
		return d
	}))(2, func(w *Comm) {
		win := ok(WinAlloc[int64](w, 1000))
		must(win.LockAll())
		if w.Rank() == victim {
			memory, _, _ := win.win.Memory(0)
			check(memory != nil, "the window is not mapped")
			must(win.win.Guard(0).Begin(true))
			dies.Close() // as a kill does: the engine says nothing
			return
		}
		err := win.Accumulate(Sum, make([]int64, 1000), 0, 0)
		for err == nil {
			err = win.Accumulate(Sum, make([]int64, 1000), 0, 0)
		}
		check(errors.Is(err, ErrPeerFailed), "the error is %v", err)
	})
}

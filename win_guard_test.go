package mpi

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
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
	rounds := inShort(200, 8)
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

// A rank has memory alone although one of many goroutines of another rank is always in the middle of an atomic step on
// other memory; a rank of another host, which asks for it, too.
func TestAloneAmongSteps(t *testing.T) {
	for name, run := range map[string]runner{
		"loop":  overLoop(t),
		"hosts": over(t, loopBeneath, onHosts(func(rank int) int { return rank % 2 })),
	} {
		t.Run(name, func(t *testing.T) {
			const n, goroutines, updates = 1000, 32, 5
			const busy = 2 // shares a host with rank 0
			var begun sync.WaitGroup
			begun.Add(goroutines)
			var over atomic.Int32
			run(3, func(w *Comm) {
				win := ok(WinAlloc[int64](w, n))
				must(win.LockAll())
				if w.Rank() == busy {
					var all sync.WaitGroup
					for range goroutines {
						all.Go(func() {
							ok(win.FetchOp(Sum, 1, busy, 0))
							for begun.Done(); over.Load() < 2; {
								ok(win.FetchOp(Sum, 1, busy, 0))
							}
						})
					}
					all.Wait()
				} else {
					begun.Wait()
					var err error
					for range updates {
						err = errors.Join(err, win.Accumulate(Sum, slices.Repeat([]int64{1}, n), 0, 0), win.Flush(0))
					}
					over.Add(1)
					must(err)
				}
				must(win.UnlockAll())
				must(Barrier(w))
				if w.Rank() == 0 {
					for _, v := range win.Local() {
						same(v, 2*updates)
					}
				}
				must(win.Free())
			})
		})
	}
}

// A rank that has nothing under way, and whose device is not armed, hears of the death of the rank for whose update it
// waits all the same.
func TestDeathInUpdateIsHeardOf(t *testing.T) {
	for _, alone := range []bool{true, false} {
		var dies transport.Device
		waits, heard := make(chan struct{}), make(chan struct{})
		overLoop(t, withDevices(func(rank int, d transport.Device) transport.Device {
			if rank == 1 {
				dies = d
			}
			return d
		}))(2, func(w *Comm) {
			win := ok(WinAlloc[int64](w, 1000))
			must(win.LockAll())
			if w.Rank() == 1 {
				must(win.win.Guard(0).Begin(alone))
				time.Sleep(10 * time.Millisecond) // rank 0 leads, and so disarms its device
				sendSignal(w, 0)
				<-waits
				time.Sleep(10 * time.Millisecond) // it waits for the memory
				dies.Close()                      // as a kill does: the engine says nothing
				<-heard                           // RunLocal tells the other ranks of a rank that returns
				return
			}
			defer close(heard)
			awaitSignal(w, 1)
			pending := w.group.Engine.Pending()
			close(waits)
			is(win.Accumulate(Sum, make([]int64, 1000), 0, 0), ErrPeerFailed)
			same(pending, 0)
		})
	}
}

// A rank that fails while it updates memory alone, or by a step, is named to each rank that waits for that, also to the
// ones that ask for an update by message. They read the elements as they are.
func TestDeathInUpdateIsNamed(t *testing.T) {
	for _, alone := range []bool{true, false} {
		t.Run(map[bool]string{true: "alone", false: "step"}[alone], func(t *testing.T) {
			const victim = 1
			var dies transport.Device
			over(t, loopBeneath, onHosts(func(rank int) int { return rank / 2 }),
				withDevices(func(rank int, d transport.Device) transport.Device {
					if rank == victim {
						dies = d
					}
					return d
				}))(3, func(w *Comm) { deathInUpdate(w, alone, victim, func() { dies.Close() }) })
		})
	}
}

func deathInUpdate(w *Comm, alone bool, victim int, die func()) {
	const n = 1000
	for other := range w.Size() { // a link to each, which tells of the end of a device
		second(Sendrecv(w, []byte{1}, other, 1, make([]byte, 1), other, 1))
	}
	win := ok(WinAlloc[int64](w, n))
	must(win.SetName("sums"))
	must(Barrier(w))
	if w.Rank() == victim {
		must(win.win.Guard(0).Begin(alone))
		die()
		return
	}
	must(win.Lock(0, Shared))
	long, was := make([]int64, n), make([]int64, n)
	var err error
	for err == nil { // until the other rank has begun
		if err = win.Accumulate(Sum, long, 0, 0); err == nil {
			err = win.Flush(0)
		}
	}
	calls := map[string]func() error{
		"Flush":         func() error { return errors.Join(win.Accumulate(Sum, long, 0, 0), win.Flush(0)) },
		"GetAccumulate": func() error { return win.GetAccumulate(Sum, long, was, 0, 0) },
	}
	if alone { // steps do not wait for a rank that has failed in one
		calls["FetchOp"] = func() error { return second(win.FetchOp(Sum, 1, 0, 0)) }
		calls["CompareAndSwap"] = func() error { return second(win.CompareAndSwap(0, 0, 0, 1)) }
	}
	for call, f := range calls {
		if call == "Flush" && w.Rank() == 0 {
			call = "Accumulate"
		}
		err := f()
		is(err, ErrPeerFailed)
		same(err.Error(), "mpi: "+call+" "+preposition(call)+" rank 0 on sums: rank 1 has failed while it updated elements there, which "+
			"may be half done; free the window")
	}
	must(win.Get(was, 0, 0))
	must(win.Flush(0))
	meet := func() { second(Sendrecv(w, []byte{1}, 2-w.Rank(), 1, make([]byte, 1), 2-w.Rank(), 1)) }
	meet() // a Get and a FetchOp of the same element at one time would be a mistake of the program; §12.3
	if !alone {
		ok(win.FetchOp(Sum, 1, 0, 0))
	}
	must(win.Unlock(0))
	meet() // rank 0 answers until then
}

// A Flush has the operations be complete before the rank goes on: of two ranks that each write to the other and then
// read what the other has written, one sees it; §12.5.4.
func TestFlushCompletes(t *testing.T) {
	if proc.Race {
		t.Skip("the ranks race for the elements, as the race detector would report")
	}
	everyWindow(t, func(t *testing.T, run runner) {
		rounds := inShort(2000, 200)
		if strings.HasSuffix(t.Name(), "/loop") || strings.HasSuffix(t.Name(), "/shm") {
			rounds = inShort(200_000, 500)
		}
		run(2, func(w *Comm) {
			const words, apart = 64, 16 // that are in use one after the other
			win := ok(WinAlloc[int64](w, words*apart))
			must(win.LockAll())
			got, one := make([]int64, rounds), []int64{0}
			for r := range rounds {
				at := int64(r % words * apart)
				one[0] = int64(r + 1)
				must(Barrier(w))
				must(win.Put(one, 1-w.Rank(), at))
				must(win.Flush(1 - w.Rank()))
				must(win.Get(got[r:][:1], w.Rank(), at))
				must(win.Flush(w.Rank()))
			}
			all := make([]int64, 2*rounds)
			must(Allgather(w, got, all))
			for r := range rounds {
				check(all[r] == int64(r+1) || all[rounds+r] == int64(r+1), "round %d: the ranks have read %d and %d", r,
					all[r], all[rounds+r])
			}
			must(win.UnlockAll())
			must(win.Free())
		})
	})
}

// GetAccumulate would read what it has written where its two buffers share memory; §12.3.4.
func TestGetAccumulateBuffers(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 100, func(win *Win[int]) {
				must(win.LockAll())
				b := make([]int, 150)
				is(win.GetAccumulate(Sum, b[:100], b[50:], 1, 0), ErrBuffer)
				is(second(win.RGetAccumulate(Sum, b[50:], b[:100], 1, 0)), ErrBuffer)
				must(win.GetAccumulate(Sum, b[:75], b[75:], 1, 0))
				must(win.GetAccumulate(NoOp, nil, b[:100], 1, 0))
				must(win.UnlockAll())
			})
		})
	})
}

// A read of memory that the rank has not attached is an error where the caller is to have the elements: at Wait and at
// FlushLocal.
func TestReadOutside(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			win := ok(WinDynamic[int64](w))
			at := ok(win.Attach(make([]int64, 4)))
			must(Barrier(w))
			other := 1 - w.Rank()
			must(win.Lock(other, Shared))
			for _, n := range []int{1, 5000} {
				r := ok(win.RGet(make([]int64, n), other, at+4))
				_, err := r.Wait()
				is(err, ErrRange)
				is(win.Flush(other), ErrRange)
				must(win.Get(make([]int64, n), other, at+4))
				is(win.FlushLocal(other), ErrRange)
				is(win.Flush(other), ErrRange)
				must(win.Flush(other))
			}
			must(second(ok(win.RGet(make([]int64, 4), other, at)).Wait()))
			must(win.Unlock(other))
			must(win.Free())
		})
	})
}

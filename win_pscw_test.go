package mpi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// A Start whose context ends has opened no epoch, and has lost no Post: the next one hears them; §12.5.2.
func TestStartAgain(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			withWin(w, 3, func(win *Win[int]) {
				switch w.Rank() {
				case 0:
					g := ok(w.Group().Incl(1, 2))
					awaitSignal(w, 1) // which has called Post
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					err := win.WithContext(ctx).Start(g)
					cancel()
					check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
					is(win.Put([]int{1}, 1, 0), ErrEpoch)
					is(win.Complete(), ErrEpoch)
					sendSignal(w, 2)
					must(win.Start(g))
					for to := 1; to < 3; to++ {
						must(win.Put([]int{to}, to, 0))
					}
					must(win.Complete())
					is(win.Put([]int{1}, 1, 0), ErrEpoch)
				default:
					g := ok(w.Group().Incl(0))
					if w.Rank() == 2 {
						awaitSignal(w, 0)
					}
					must(win.Post(g))
					if w.Rank() == 1 {
						sendSignal(w, 0)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					for err := win.WithContext(ctx).Wait(); err != nil; err = win.Wait() {
						check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
					}
					cancel()
					same(win.Local()[0], w.Rank())
				}
				must(win.Fence()) // all epochs are over
			})
		})
	})
}

// Of two goroutines that wait for one epoch at a time one ends it, and the other is told so: none waits for ever.
func TestTwoWaits(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 2, func(win *Win[int]) {
				g := ok(w.Group().Incl(1 - w.Rank()))
				for range 3 {
					if w.Rank() == 0 {
						must(win.Start(g))
						awaitSignal(w, 1)
						must(win.Complete())
						continue
					}
					must(win.Post(g))
					waited := make(chan error, 2)
					for range 2 {
						go func() { waited <- win.Wait() }()
					}
					sendSignal(w, 0)
					one, other := <-waited, <-waited
					if one == nil {
						one, other = other, one
					}
					is(one, ErrEpoch)
					must(other)
				}
			})
		})
	})
}

// A Post whose context ends has begun its epoch, and every rank of the group hears of that: each one's Start returns,
// and so does Wait. Not all ranks are connected before.
func TestPostWhoseContextHasEnded(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 8
		run(n, func(w *Comm) {
			withWin(w, n, func(win *Win[int]) {
				others := ok(w.Group().Excl(w.Rank()))
				over, cancel := context.WithCancel(t.Context())
				cancel()
				if err := win.WithContext(over).Post(others); err != nil {
					is(err, context.Canceled)
					is(win.Post(others), ErrEpoch)
				}
				must(win.Start(others))
				for to := range n {
					if to != w.Rank() {
						must(win.Put([]int{1}, to, int64(w.Rank())))
					}
				}
				must(win.Complete())
				must(win.Wait())
				for from, v := range win.Local() {
					check(from == w.Rank() || v == 1, "the element of rank %d is %d", from, v)
				}
			})
		})
	})
}

// Groups may have more ranks than a word has bits.
func TestPostStartOfManyRanks(t *testing.T) {
	overLoop(t)(130, func(w *Comm) {
		win := ok(WinAlloc[byte](w, 130))
		for range 3 {
			must(win.Post(w.Group()))
			must(win.Start(w.Group()))
			for to := range w.Size() {
				must(win.Accumulate(Sum, []byte{1}, to, int64(w.Rank())))
			}
			must(win.Complete())
			must(win.Wait())
		}
		for _, n := range win.Local() {
			same(n, 3)
		}
		must(win.Free())
	})
}

// Start, Wait and Test of a group with a rank that has failed are ErrPeerFailed and end the epoch. Ranks that name it
// in no group go on.
func TestPostStartWithTheDead(t *testing.T) {
	const victim = 3
	died, over0 := make(chan struct{}), make(chan struct{})
	var dies transport.Device
	over(t, withDevices(func(rank int, d transport.Device) transport.Device {
		if rank == victim {
			dies = d
		}
		return d
	}))(4, func(w *Comm) {
		win := ok(WinAlloc[int](w, 1))
		must(win.Fence())
		with := func(ranks ...int) *Group { return ok(w.Group().Incl(ranks...)) }
		switch w.Rank() {
		case victim:
			awaitSignal(w, 2)
			close(died)
			dies.Close() // as a kill does: the engine says nothing
			<-over0
		case 2:
			must(win.Post(with(0, victim)))
			sendSignal(w, victim)
			err := win.Wait()
			check(errors.Is(err, ErrPeerFailed) && strings.Contains(err.Error(), "rank 3"), "Wait: %v", err)
			same(win.Local()[0], 7)
			is(win.Start(with(victim)), ErrPeerFailed)
			is(win.Start(with(victim)), ErrPeerFailed) // not ErrEpoch
			if win.Post(with(victim)) == nil {
				done, err := win.Test()
				for ; !done && err == nil; done, err = win.Test() {
				}
				is(err, ErrPeerFailed)
				check(done, "the epoch goes on")
			}
		case 0:
			must(win.Start(with(2)))
			must(win.Put([]int{7}, 2, 0))
			must(win.Complete())
			<-died
			must(win.Start(with(1))) // from here on with the rank that lives
			must(win.Put([]int{8}, 1, 0))
			must(win.Complete())
			close(over0)
		case 1:
			<-died
			time.Sleep(10 * time.Millisecond) // rank 0 is asleep
			must(win.Post(with(0)))
			must(win.Wait())
			same(win.Local()[0], 8)
		}
	})
}

// Start and Wait do not wait for a rank that has returned, and say so.
func TestPostStartAfterReturn(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		if cannotAsk(t) {
			t.Skip("a device that matches by itself has no place for the question")
		}
		if testing.Short() && !strings.HasSuffix(t.Name(), "/loop") {
			t.Skip("each takes seconds")
		}
		run(3, func(w *Comm) {
			win := ok(WinAlloc[int](w, 1))
			switch w.Rank() {
			case 0:
				returned(win.Start(ok(w.Group().Incl(2))), "rank 2")
			case 1:
				must(win.Post(ok(w.Group().Incl(0, 2))))
				returned(win.Wait(), "rank 2")
				same(win.Local()[0], 5)
				return
			}
			if w.Rank() == 0 {
				must(win.Start(ok(w.Group().Incl(1)))) // it waits for what rank 2 does not do
				must(win.Put([]int{5}, 1, 0))
				must(win.Complete())
			}
		})
	})
}

// A Start waits for no rank that has returned, also where another goroutine sleeps at the board, or a member has
// failed.
func TestStartBesideWait(t *testing.T) {
	overLoop(t)(3, func(w *Comm) {
		win := ok(WinAlloc[int64](w, 1))
		group := func(rank int) *Group { return ok(w.Group().Incl(rank)) }
		switch w.Rank() {
		case 1: // returns
			awaitSignal(w, 0)
		case 2:
			must(win.Start(group(0)))
			sendSignal(w, 0)
			awaitSignal(w, 0)
			must(win.Complete())
		case 0:
			must(win.Post(group(2)))
			awaitSignal(w, 2)
			waited := make(chan error)
			go func() { waited <- win.Wait() }()
			time.Sleep(10 * time.Millisecond) // until it is asleep
			sendSignal(w, 1)
			returned(win.Start(group(1)), "rank 1")
			sendSignal(w, 2)
			must(<-waited)
		}
	})
}

// A lock that has been given up, and comes, takes no error of an operation of the next epoch.
func TestGivenUpLockKeepsErrors(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			win := ok(WinDynamic[int64](w))
			for range inShort(300, 30) {
				switch w.Rank() {
				case 1:
					must(win.Lock(0, Exclusive))
					sendSignal(w, 2)
					awaitSignal(w, 2)
					must(win.Unlock(0))
				case 2:
					awaitSignal(w, 1)
					for range 8 {
						ctx, cancel := context.WithTimeout(t.Context(), 50*time.Microsecond)
						err := win.WithContext(ctx).Lock(0, Shared)
						check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
						cancel()
					}
					sendSignal(w, 1)
					must(win.Lock(0, Shared))
					must(win.Put([]int64{1}, 0, 5)) // outside
					is(win.Unlock(0), ErrRange)
				}
				must(Barrier(w))
			}
			must(win.Free())
		})
	})
}

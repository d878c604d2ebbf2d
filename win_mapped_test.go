package mpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/shm"
)

// A Lock that is had at once opens an epoch like any other: each call that does not go with it is ErrEpoch and leaves
// it open, and Unlock ends it; §12.5.3.
func TestLockThatIsHadAtOnce(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int64]) {
				me, other := w.Rank(), 1-w.Rank()
				self := ok(w.Group().Incl(me))
				for _, call := range []func() error{
					win.Fence, win.LockAll, win.UnlockAll, win.Complete, win.Wait, win.Free,
					func() error { return win.Start(self) },
					func() error { return win.Unlock(me) },
					func() error { return win.Lock(other, Shared) },
					func() error { return win.Put([]int64{1}, me, 0) },
					func() error { return win.Flush(me) },
				} {
					for _, mode := range []LockMode{Shared, Exclusive} {
						for range 2 { // at once, and after a call that the lock refuses
							must(win.Lock(other, mode))
							must(win.Put([]int64{1}, other, 0))
							must(win.Flush(other))
							must(win.Unlock(other))
							is(win.Put([]int64{1}, other, 0), ErrEpoch)
						}
						must(win.Lock(other, mode))
						is(call(), ErrEpoch)
						must(win.Put([]int64{1}, other, 0))
						must(win.FlushAll())
						must(win.Unlock(other))
						is(win.Unlock(other), ErrEpoch)
					}
				}
				must(win.Lock(me, Shared))
				is(win.Post(self), ErrEpoch)
				must(win.Unlock(me))
				must(win.Post(self))
				is(win.Lock(me, Shared), ErrEpoch)
				must(win.Start(self))
				must(win.Complete())
				must(win.Wait())
				must(win.Lock(me, Shared))
				must(win.Lock(other, Shared))
				must(win.Unlock(me))
				must(win.Put([]int64{1}, other, 0))
				must(win.Unlock(other))
			})
		})
	})
}

// Goroutines of a rank have locks of different ranks at once. Each lock is exclusive, and none is lost.
func TestLocksAtOnce(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		rounds := inShort(2000, 50)
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int64]) {
				var all sync.WaitGroup
				for to := range 2 {
					all.Go(func() {
						v := make([]int64, 1)
						for range rounds {
							must(win.Lock(to, Exclusive))
							must(win.Get(v, to, 0))
							must(win.Flush(to))
							v[0]++
							must(win.Put(v, to, 0))
							must(win.Unlock(to))
						}
					})
				}
				all.Wait()
				must(Barrier(w))
				must(win.Lock(w.Rank(), Shared))
				same(win.Local()[0], int64(2*rounds))
				must(win.Unlock(w.Rank()))
			})
		})
	})
}

// A Fence whose context ends counts for the ranks that come to it later, and the next one waits for all ranks.
func TestFenceAfterContext(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			withWin(w, 3, func(win *Win[int64]) {
				must(win.Fence())
				for round := range int64(inShort(20, 3)) {
					if w.Rank() == 0 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
						is(win.WithContext(ctx).Fence(), context.DeadlineExceeded)
						is(win.WithContext(ctx).Fence(), context.DeadlineExceeded)
						cancel()
						sendSignal(w, 1)
						sendSignal(w, 2)
					} else {
						awaitSignal(w, 0)
						must(win.Fence())
						must(win.Fence())
						must(win.Put([]int64{round + 1}, 0, int64(w.Rank())))
					}
					must(win.Fence())
					if w.Rank() == 0 {
						same(win.Local()[1], round+1)
						same(win.Local()[2], round+1)
					}
					must(win.Fence())
				}
			})
		})
	})
}

// A rank of the group of Post that has called Complete may end: Wait waits for the others, and succeeds; §12.5.2.
func TestWaitAfterCompleteAndDeath(t *testing.T) {
	const victim = 2
	died := make(chan struct{})
	var dies transport.Device
	over(t, withDevices(func(rank int, d transport.Device) transport.Device {
		if rank == victim {
			dies = d
		}
		return d
	}))(3, func(w *Comm) {
		win := ok(WinAlloc[int64](w, 1))
		group := func(ranks ...int) *Group { return ok(w.Group().Incl(ranks...)) }
		switch w.Rank() {
		case 0:
			must(win.Post(group(1, victim)))
			sendSignal(w, victim)
			must(win.Wait()) // first for rank 1
			same(win.Local()[0], 3)
		case victim:
			must(win.Start(group(0)))
			awaitSignal(w, 0)
			time.Sleep(10 * time.Millisecond) // rank 0 is asleep
			must(win.Put([]int64{3}, 0, 0))
			must(win.Complete())
			dies.Close() // as a kill does: the engine says nothing
			close(died)
		case 1:
			<-died
			time.Sleep(10 * time.Millisecond) // rank 0 has heard of it
			must(win.Start(group(0)))
			must(win.Complete())
		}
	})
}

// The calls that begin and end epochs in memory that is mapped allocate nothing.
func TestEpochsAllocateNothing(t *testing.T) {
	overLoop(t)(1, func(w *Comm) {
		win, g, v := ok(WinAlloc[int64](w, 1)), w.Group(), make([]int64, 1)
		for _, f := range []struct {
			name string
			call func() error
		}{
			{"Fence", win.Fence},
			{"Fence and Put", func() error { return errors.Join(win.Put(v, 0, 0), win.Fence()) }},
			{"Lock", func() error { return errors.Join(win.Lock(0, Exclusive), win.Put(v, 0, 0), win.Unlock(0)) }},
			{"LockAll", func() error { return errors.Join(win.LockAll(), win.Put(v, 0, 0), win.UnlockAll()) }},
			{"groups", func() error {
				return errors.Join(win.Post(g), win.Start(g), win.Put(v, 0, 0), win.Complete(), win.Wait())
			}},
		} {
			least := 1e9
			for range 5 { // other goroutines of the process allocate now and then
				least = min(least, testing.AllocsPerRun(100, func() { must(f.call()) }))
			}
			if least != 0 && !proc.Race {
				panic(fmt.Sprintf("%s: %v allocations", f.name, least))
			}
		}
		must(win.Free())
	})
}

// A call after Free is ErrComm in memory that the kernel has mapped too, whose words are gone.
func TestLockAfterFree(t *testing.T) {
	over(t, withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		return ok(shm.New(shm.Options{Rank: rank, Size: 2, Local: 2, Job: "test", Secret: testSecret}))
	}))(2, func(w *Comm) {
		win := ok(WinAlloc[int64](w, 1))
		must(win.Free())
		must(Barrier(w))
		is(win.Lock(0, Shared), ErrComm)
		is(win.Lock(0, Exclusive), ErrComm)
		is(win.LockAll(), ErrComm)
	})
}

// Unlock of no rank is an error, and the epochs that there are stay as they are.
func TestUnlockOfNoRank(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int64]) {
				is(win.Unlock(AnySource), ErrRank)
				must(win.LockAll())
				is(win.Unlock(AnySource), ErrRank)
				is(win.Lock(1, Shared), ErrEpoch)
				must(win.UnlockAll())
				must(win.Lock(1, Shared))
				is(win.Unlock(AnySource), ErrRank)
				must(win.Unlock(1))
			})
		})
	})
}

// endsLate is a context that ends when it has been asked some times, if not before.
type endsLate struct {
	context.Context
	asked atomic.Int32
	after int32
}

func (c *endsLate) Err() error {
	if c.asked.Add(1) > c.after {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// A Lock whose context ends at any time keeps no other rank from the lock.
func TestLockWhoseContextEndsLate(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		for after := range int32(5) {
			run(2, func(w *Comm) {
				withWin(w, 1, func(win *Win[int64]) {
					if w.Rank() == 1 {
						must(win.Lock(0, Exclusive))
						sendSignal(w, 0)
						awaitSignal(w, 0)
						must(win.Unlock(0))
						sendSignal(w, 0)
						return
					}
					awaitSignal(w, 1)
					soon, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					defer cancel()
					is(win.WithContext(&endsLate{Context: soon, after: after}).Lock(0, Exclusive), context.DeadlineExceeded)
					sendSignal(w, 1)
					awaitSignal(w, 1)
					must(win.Lock(0, Exclusive))
					must(win.Unlock(0))
				})
			})
		}
	})
}

// While a Start waits, other goroutines are told that it does.
func TestStartHasNotReturned(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int64]) {
				g := ok(w.Group().Incl(1 - w.Rank()))
				if w.Rank() == 1 {
					awaitSignal(w, 0)
					must(win.Post(g))
					must(win.Wait())
					same(win.Local()[0], 1)
					return
				}
				started := make(chan error)
				go func() { started <- win.Start(g) }()
				for err := error(nil); err == nil || !strings.Contains(err.Error(), "Start has not returned yet"); {
					err = win.Put([]int64{1}, 1, 0)
					is(err, ErrEpoch)
					runtime.Gosched()
				}
				is(win.Complete(), ErrEpoch)
				is(win.Fence(), ErrEpoch)
				sendSignal(w, 1)
				must(<-started)
				must(win.Put([]int64{1}, 1, 0))
				must(win.Complete())
				is(win.Put([]int64{1}, 1, 0), ErrEpoch)
			})
		})
	})
}

// Test of a Post to a rank that has returned and to one that has not called Start takes the first off the group, and
// waits for the other one.
func TestOfPostToReturned(t *testing.T) {
	overLoop(t)(3, func(w *Comm) {
		win := ok(WinCreate(w, make([]int64, 1)))
		switch w.Rank() {
		case 1:
			awaitSignal(w, 0)
			must(win.Start(ok(w.Group().Incl(0))))
			must(win.Put([]int64{1}, 0, 0))
			must(win.Complete())
			awaitSignal(w, 0)
		case 0:
			must(win.Post(ok(w.Group().Incl(1, 2))))
			over, err := false, error(nil)
			for ; err == nil; over, err = win.Test() {
				check(!over, "the epoch is over, and rank 1 has not begun")
			}
			is(err, ErrPeerFailed)
			check(!over, "the epoch is over, and rank 1 has not begun")
			sendSignal(w, 1)
			must(win.Wait())
			same(win.Local()[0], 1)
			sendSignal(w, 1)
		}
	})
}

package mpi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/meminfo"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// FlushLocal, and the end of an epoch, complete operations that have requests too, and the request is waited for once
// all the same; §12.5.4.
func TestFlushLocalOfRequests(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		n := inShort(1<<17, 1<<15) // elements: a message of their own, by rendezvous
		run(2, func(w *Comm) {
			withWin(w, n, func(win *Win[int32]) {
				me, g := w.Rank(), ok(w.Group().Incl(1-w.Rank()))
				if me == 1 {
					for i := range win.Local() {
						win.Local()[i] = int32(i)
					}
				}
				must(Barrier(w))
				src, dst := make([]int32, n), make([]int32, n)
				get := func(ends func()) {
					clear(dst)
					r := ok(win.RGet(dst, 1, 0))
					ends()
					for i, v := range dst {
						same(v, int32(i))
					}
					same(ok(r.Wait()).Cancelled, false)
					_, err := r.Wait()
					is(err, ErrRequest)
				}
				if me == 0 {
					must(win.LockAll())
					get(func() { must(win.FlushLocal(1)) })
					get(func() { must(win.FlushLocalAll()) })
					get(func() { must(win.Flush(1)) })
					get(func() { must(win.FlushAll()) })
					get(func() { must(win.UnlockAll()) })
					must(win.Lock(1, Exclusive))
					for round := range int32(5) {
						for i := range src {
							src[i] = round + int32(i)
						}
						r := ok(win.RPut(src, 1, 0))
						must(win.FlushLocal(1))
						clear(src) // it is the caller's again
						ok(r.Wait())
						must(win.Flush(1)) // a Get has no order with a Put
						must(win.Get(dst, 1, 0))
						must(win.Flush(1))
						for i, v := range dst {
							same(v, round+int32(i))
						}
					}
					for i := range src {
						src[i] = int32(i)
					}
					must(win.Put(src, 1, 0))
					must(win.Flush(1))
					get(func() { must(win.Unlock(1)) })
				}
				must(win.Fence())
				if me == 0 {
					get(func() { must(win.Fence()) })
					must(win.Start(g))
					get(func() { must(win.Complete()) })
				} else {
					must(win.Fence())
					must(win.Post(g))
					must(win.Wait())
				}
			})
		})
	})
}

// frozen is a rank whose engine does nothing: see freeze.
type frozen struct{ begun, over chan struct{} }

// Handle implements pml.Handler.
func (f *frozen) Handle(int32, []byte) bool {
	close(f.begun)
	<-f.over
	return false
}

// Failed implements pml.Handler.
func (f *frozen) Failed(int32, error) {}

// Returned implements pml.Handler.
func (f *frozen) Returned() {}

// Locks implements pml.Handler.
func (f *frozen) Locks() []int32 { return nil }

const tagFreeze = 77

// freezes lets freeze stop the engine of this rank, once. The rank makes no call before that is over.
func freezes(c *Comm, f *frozen) {
	c.group.Engine.OpenWindow(c.group.Context+agree.CtxMessages, tagFreeze, make([]byte, 1), f)
}

// freeze stops the engine of a rank of the world until f.over is closed.
func freeze(c *Comm, rank int, f *frozen) {
	must(c.group.Engine.Send(nil, c.group.Context+agree.CtxMessages, rank, tagFreeze, nil, pml.Standard))
	<-f.begun
}

// A context ends a call that waits for a rank which does not answer. What has been asked is done all the same, its
// answer finds memory of its own, and the window goes on.
func TestContextEndsOperations(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 1 << 17
		for _, unlock := range []bool{true, false} {
			f := &frozen{make(chan struct{}), make(chan struct{})}
			run(2, func(w *Comm) {
				c := ok(w.Dup())
				win := ok(WinCreate(w, make([]int64, 3+2*n))) // for atomic steps, for RGet and for RPut
				if w.Rank() == 1 {
					freezes(c, f)
					sendSignal(w, 0)
					<-f.over
					awaitSignal(w, 0)
					must(win.Free())
					must(c.Free())
					return
				}
				awaitSignal(w, 1)
				if unlock {
					must(win.Lock(1, Shared))
				} else {
					must(win.LockAll())
				}
				must(win.Put([]int64{1}, 1, 0))
				must(win.Flush(1))
				calls, src, before := 0, make([]int64, n), make([]int64, 1)
				dst := func() []int64 { return make([]int64, n) } // several Gets are under way at once
				ended := func(call func(win *Win[int64]) error) {
					calls++
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
					defer cancel()
					err := call(win.WithContext(ctx))
					check(errors.Is(err, context.DeadlineExceeded), "call %d: the error is %v", calls, err)
					check(strings.HasPrefix(err.Error(), "mpi: "), "call %d: %v", calls, err)
				}
				// moves is ended for puts and gets, which a link that reaches the memory does without the rank.
				moves := func(call func(win *Win[int64]) error) {
					ended(func(win *Win[int64]) error {
						err := call(win)
						if err == nil {
							check(linked(t), "call %d needs no rank", calls)
							return fmt.Errorf("mpi: %w", context.DeadlineExceeded)
						}
						return err
					})
				}
				wait := func(r *Request, err error) error {
					if err != nil { // the context has ended that early
						return err
					}
					return second(r.Wait())
				}
				var puts, gets *Request
				func() {
					defer close(f.over) // also if a check fails
					freeze(c, 1, f)
					ended(func(win *Win[int64]) error { _, err := win.FetchOp(Sum, 1, 1, 1); return err })
					ended(func(win *Win[int64]) error { return win.GetAccumulate(Sum, []int64{1}, before, 1, 1) })
					ended(func(win *Win[int64]) error { _, err := win.CompareAndSwap(1, 1, 2, 3); return err })
					must(win.Put([]int64{4}, 1, 2))
					moves(func(win *Win[int64]) error { return win.Flush(1) })
					moves(func(win *Win[int64]) error { return win.FlushAll() })
					must(win.Get(dst(), 1, 3))
					moves(func(win *Win[int64]) error { return win.FlushLocal(1) })
					moves(func(win *Win[int64]) error { return win.FlushLocalAll() })
					moves(func(win *Win[int64]) error { return win.Flush(1) })
					moves(func(win *Win[int64]) error { return wait(win.RGet(dst(), 1, 3)) })
					moves(func(win *Win[int64]) error { return wait(win.RPut(src, 1, 3+n)) })
					// A library below may hold a request back that its peer has no answer for.
					if !sendsStay(t) {
						gets, puts = ok(win.RGet(dst(), 1, 3)), ok(win.RPut(src, 1, 3+n))
					}
					ended(func(win *Win[int64]) error {
						if unlock {
							return win.Unlock(1)
						}
						return win.UnlockAll()
					})
				}()
				must(WaitAll(gets, puts))
				same(before[0], 0) // the caller's since its call has returned
				is(win.Unlock(1), ErrEpoch)
				is(win.UnlockAll(), ErrEpoch)
				must(win.Lock(1, Exclusive)) // behind the lock that was let go
				steps := ok(win.FetchOp(NoOp, 0, 1, 1))
				check(steps >= 0 && steps <= 3, "3 steps, each of which is made once or not, give %d", steps)
				for i := range 100 {
					same(ok(win.FetchOp(NoOp, 0, 1, int64(i%3))), []int64{1, steps, 4}[i%3])
				}
				must(win.Unlock(1))
				sendSignal(w, 1)
				must(win.Free())
				must(c.Free())
			})
		}
	})
}

// So it is with the lock that LockAll gets at the first operation, while another rank has an exclusive one. The lock is
// let go when it comes after UnlockAll, and is the epoch's if it comes before.
func TestContextEndsLateLock(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			win := ok(WinCreate(w, make([]int64, 2)))
			for _, early := range []bool{true, false} {
				switch w.Rank() {
				case 1: // the others use its memory
				case 2:
					must(win.Lock(1, Exclusive))
					sendSignal(w, 0)
					awaitSignal(w, 0)
					must(win.Unlock(1))
					sendSignal(w, 0)
					must(win.Lock(1, Exclusive)) // also if what rank 0 has given up comes before
					must(win.Unlock(1))
				case 0:
					awaitSignal(w, 2)
					must(win.LockAll())
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					defer cancel()
					ended := func(err error) {
						check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
					}
					hasty := win.WithContext(ctx)
					ended(hasty.Put([]int64{1}, 1, 0))
					_, err := hasty.FetchOp(Sum, 1, 1, 0)
					ended(err)
					ended(hasty.Get(make([]int64, 1), 1, 0))
					ended(hasty.Accumulate(Sum, []int64{1}, 1, 0))
					if early {
						must(win.UnlockAll())
					}
					sendSignal(w, 2)
					awaitSignal(w, 2)
					if early {
						must(win.LockAll())
					}
					same(ok(win.FetchOp(Sum, 1, 1, 1)), map[bool]int64{true: 0, false: 1}[early])
					must(win.UnlockAll())
				}
				must(Barrier(w))
			}
			if w.Rank() == 1 {
				same(win.Local()[0], 0) // none of the operations has begun
			}
			must(win.Free())
		})
	})
}

// The locks of a LockAll whose context has ended, and of an UnlockAll, are not the locks of the next LockAll: that is
// let go by no other call than its own UnlockAll.
func TestLocksOfNextEpoch(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		ended := func(err error) { check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err) }
		within := func(win *Win[int64], d time.Duration, call func(win *Win[int64]) error) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			ended(call(win.WithContext(ctx)))
		}
		lockTwo := func(win *Win[int64]) error { return win.Lock(2, Exclusive) }
		f := &frozen{make(chan struct{}), make(chan struct{})}
		run(3, func(w *Comm) {
			c, win := ok(w.Dup()), ok(WinCreate(w, make([]int64, 1)))
			switch w.Rank() {
			case 0:
				must(win.Lock(2, Exclusive))
				sendSignal(w, 2)
				awaitSignal(w, 2)
				must(win.Unlock(2))
				awaitSignal(w, 2)
				within(win, 10*time.Millisecond, lockTwo)
				sendSignal(w, 2)

				awaitSignal(w, 1)
				must(win.LockAll())
				must(win.Put([]int64{1}, 1, 0))
				must(win.Put([]int64{1}, 2, 0))
				freeze(c, 1, f)
				within(win, 2*time.Millisecond, (*Win[int64]).UnlockAll)
				must(win.LockAll())
				same(ok(win.FetchOp(Sum, 1, 2, 0)), 1)
				close(f.over)
				awaitSignal(w, 1) // rank 1 has the first lock back
				sendSignal(w, 2)
				awaitSignal(w, 2)
				must(win.UnlockAll())
			case 1:
				freezes(c, f)
				sendSignal(w, 0)
				<-f.over
				must(win.Lock(1, Exclusive))
				must(win.Unlock(1))
				sendSignal(w, 0)
			case 2:
				awaitSignal(w, 0)
				within(win, 2*time.Millisecond, (*Win[int64]).LockAll)
				var all sync.WaitGroup
				all.Go(func() { must(win.LockAll()) })
				for {
					err := win.UnlockAll()
					if is(err, ErrEpoch); strings.Contains(err.Error(), "has not returned yet") {
						break
					}
				}
				sendSignal(w, 0)
				all.Wait()
				sendSignal(w, 0)
				awaitSignal(w, 0)
				must(win.UnlockAll())

				awaitSignal(w, 0)
				within(win, 10*time.Millisecond, lockTwo)
				sendSignal(w, 0)
			}
			must(Barrier(w))
			must(win.Free())
			must(c.Free())
		})
	})
}

// A Free behind calls whose contexts have ended waits for what they have asked other ranks.
func TestFreeAfterContexts(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			for range inShort(10, 2) {
				win := ok(WinCreate(w, make([]int64, 1)))
				if w.Rank() == 0 {
					must(win.Lock(0, Exclusive))
					sendSignal(w, 1)
					awaitSignal(w, 1)
					must(win.Unlock(0))
				} else {
					awaitSignal(w, 0)
					for range 20 { // which get the lock one by one when rank 0 lets it go
						ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/10)
						err := win.WithContext(ctx).Lock(0, Exclusive)
						cancel()
						check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
					}
					sendSignal(w, 0)
				}
				must(win.Free())
			}
		})
	})
}

// Whatever a rank has asked for and not received, the rank that is asked keeps a bounded number of requests, and serves
// the other ranks.
func TestHostileFloods(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		if testing.Short() && !strings.HasSuffix(t.Name(), "/loop") {
			t.Skip("each takes seconds")
		}
		request := func(r rma.Request) []byte { return r.Append(nil) }
		put := request(rma.Request{Kind: rma.PutAlone, Slot: 1 << 29, N: 1})
		for name, flood := range map[string][2][]byte{ // what is sent once, and many times
			"PutAlone": {nil, put},
			"Get":      {nil, request(rma.Request{Kind: rma.Get, Slot: 1 << 28, N: 10})},
			"Flush":    {put, request(rma.Request{Kind: rma.Flush})},
			"Put":      {put, request(rma.Request{Kind: rma.Put, Then: rma.Flush})},
			"Info":     {nil, request(rma.Request{Kind: rma.Info, Slot: 5})},
			"Lock":     {nil, request(rma.Request{Kind: rma.Lock, Op: uint8(rma.Shared), Slot: 5})},
		} {
			if testing.Short() && name != "Get" && name != "Flush" {
				continue
			}
			const floods = 30000
			var served sync.WaitGroup
			served.Add(3)
			run(3, func(w *Comm) {
				win := ok(WinCreate(w, make([]int64, 10)))
				e, ctx := win.comm.group.Engine, win.comm.group.Context
				switch w.Rank() {
				case 0:
					if flood[0] != nil {
						must(e.Send(nil, ctx, 1, 3, flood[0], pml.Standard))
					}
					for range floods {
						must(e.Send(nil, ctx, 1, 3, flood[1], pml.Standard))
					}
					answer := e.Irecv(nil, ctx, 1, 6, make([]byte, 100))
					must(e.Send(nil, ctx, 1, 3, request(rma.Request{Kind: rma.Info, Slot: 6}), pml.Standard))
					exchangeSignals(w, 1)
					if name == "Flush" || name == "Put" || name == "PutAlone" {
						done, _, err := answer.Test()
						check(!done, "%s: the rank is served still, %v", name, err)
					}
				case 1:
					echoSignals(w, 0)
					check(e.Pending() < floods/2, "%s: %d requests are under way", name, e.Pending())
					sendSignal(w, 2)
				case 2:
					awaitSignal(w, 1)
					if name != "Lock" { // of which rank 0 has as many as it has asked for
						must(win.Lock(1, Exclusive))
						must(win.Put([]int64{7}, 1, 9))
						same(ok(win.FetchOp(Sum, 1, 1, 9)), 7)
						must(win.Unlock(1))
					}
				}
				must(Barrier(w))
				served.Done()
				served.Wait()
				e.Fail(errors.New("what has been asked for and not received is under way for ever"))
			})
		}
	})
}

// A program may have as much under way as it likes.
func TestManyOperations(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			const n = 8192
			puts, small, gets := inShort(10000, 4500), inShort(100000, 5000), inShort(10000, 4500)
			win := ok(WinCreate(w, make([]int64, n)))
			if w.Rank() == 1 {
				must(Barrier(w))
				same(win.Local()[n-1], int64(puts-1))
				must(win.Free())
				return
			}
			must(win.Lock(1, Shared))
			src := make([][]int64, 2) // of 64 KiB, and of as much as goes in a message of its own
			src[0], src[1] = make([]int64, n), make([]int64, 1100)
			for i := range puts {
				s := src[min(i%16, 1)]
				if i == puts-1 {
					must(win.Flush(1))
					s[len(s)-1] = int64(i)
				}
				must(win.Put(s, 1, int64(n-len(s))))
			}
			must(win.Flush(1))
			for i := range small {
				must(win.Put([]int64{int64(i)}, 1, 0))
			}
			rs, dst := make([]*Request, gets), make([]int64, gets)
			for i := range rs {
				rs[i] = ok(win.RGet(dst[i:][:1], 1, n-1))
			}
			must(WaitAll(rs...))
			for _, v := range dst {
				same(v, int64(puts-1))
			}
			same(ok(win.FetchOp(NoOp, 0, 1, 0)), int64(small-1))
			const goroutines = 2500 // more than may wait for an answer
			var all sync.WaitGroup
			for range goroutines {
				all.Go(func() { ok(win.FetchOp(Sum, 1, 1, 1)) })
			}
			all.Wait()
			same(ok(win.FetchOp(NoOp, 0, 1, 1)), goroutines)
			must(win.Unlock(1))
			must(Barrier(w))
			must(win.Free())
		})
	})
}

// A rank asks for no more than the rank that is asked takes: further calls wait until that has answered.
func TestLimitsAreKept(t *testing.T) {
	f := &frozen{make(chan struct{}), make(chan struct{})}
	overLoop(t, misbehaving(0, unreached))(2, func(w *Comm) {
		c, mem := ok(w.Dup()), make([]int64, 2000)
		win := ok(WinCreate(w, mem))
		if w.Rank() == 1 {
			freezes(c, f)
			sendSignal(w, 0)
			<-f.over
			must(Barrier(w))
			must(win.Free())
			must(c.Free())
			return
		}
		awaitSignal(w, 1)
		must(win.Lock(1, Shared))
		must(win.Put(mem[:1], 1, 0))
		must(win.Flush(1))
		func() {
			defer close(f.over)
			freeze(c, 1, f)
			for range rma.AsksMost + 100 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Microsecond)
				_, err := win.WithContext(ctx).FetchOp(Sum, 1, 1, 0)
				cancel()
				check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
			}
		}()
		asked := ok(win.FetchOp(NoOp, 0, 1, 0))
		check(asked <= rma.AsksMost, "%d FetchOps go to a rank that does nothing", asked)
		before, dst := w.Stats().EagerSent, make([]int64, 2*rma.MovesMost)
		for i := range dst {
			must(win.Get(dst[i:][:1], 1, 0))
		}
		must(win.Flush(1))
		same(w.Stats().EagerSent-before, 2*rma.MovesMost) // with one pause in the middle, and no Flush
		must(win.Unlock(1))
		must(Barrier(w))
		must(win.Free())
		must(c.Free())
	})
}

// So it may give up a Lock as often as it likes.
func TestManyLocksGivenUp(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		if testing.Short() && !strings.HasSuffix(t.Name(), "/hosts") {
			t.Skip("each takes a second")
		}
		run(2, func(w *Comm) {
			win := ok(WinCreate(w, make([]int64, 1)))
			if w.Rank() == 0 {
				must(win.Lock(0, Exclusive))
				sendSignal(w, 1)
				awaitSignal(w, 1)
				must(win.Unlock(0))
			} else {
				awaitSignal(w, 0)
				for range inShort(5000, 2500) {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Microsecond)
					err := win.WithContext(ctx).Lock(0, Exclusive)
					cancel()
					check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
				}
				sendSignal(w, 0)
				must(win.Lock(0, Exclusive))
				must(win.Unlock(0))
			}
			must(win.Free())
		})
	})
}

// Memory that is not there is ErrNoMemory at all ranks, whichever asks for it, and says how much there is.
func TestWindowsTooLarge(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		free, _ := meminfo.Left()
		run(3, func(w *Comm) {
			for _, n := range []int64{1 << 50, 1 << 40, 1<<40 - 1, min(free, 1<<44) * 2} {
				for from := range 2 {
					mine := 1
					if w.Rank() >= from {
						mine = int(n)
					}
					_, err := WinAlloc[byte](w, mine)
					is(err, ErrNoMemory)
					check(strings.Contains(err.Error(), "bytes"), "%v", err)
				}
			}
			win := ok(WinAlloc[byte](w, 1))
			must(win.Free())
		})
		is(func() error { _, err := Alloc[byte](1 << 50); return err }(), ErrNoMemory)
	})
}

// A Lock that has not returned has no lock: a call of another goroutine that needs it is ErrEpoch, Unlock among them.
func TestUnlockBeforeLockReturns(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int64]) {
				for _, all := range []bool{false, true} {
					if all && !win.win.Mapped() {
						break // LockAll does not wait
					}
					if w.Rank() == 0 {
						must(win.Lock(0, Exclusive))
						sendSignal(w, 1)
						awaitSignal(w, 1)
						win.Local()[0]++
						must(win.Unlock(0))
						must(Barrier(w))
						continue
					}
					awaitSignal(w, 0)
					var waits sync.WaitGroup
					waits.Go(func() {
						if all {
							must(win.LockAll())
						} else {
							must(win.Lock(0, Exclusive))
						}
					})
					unlock := func() error {
						if all {
							return win.UnlockAll()
						}
						return win.Unlock(0)
					}
					for {
						err := unlock()
						is(err, ErrEpoch)
						if strings.Contains(err.Error(), "has not returned yet") {
							break
						}
					}
					is(win.Put([]int64{7}, 0, 0), ErrEpoch)
					_, err := win.FetchOp(Sum, 1, 0, 0)
					is(err, ErrEpoch)
					is(win.Flush(0), ErrEpoch)
					is(win.Lock(0, Shared), ErrEpoch)
					is(win.Fence(), ErrEpoch)
					is(win.Free(), ErrEpoch)
					sendSignal(w, 0)
					waits.Wait()
					same(ok(win.FetchOp(Sum, 1, 0, 0))%2, 1)
					must(unlock())
					must(Barrier(w))
				}
			})
		})
	})
}

// A rank's memory is not exposed by Post and locked by itself at once; §12.5.3.
func TestLockOfExposedMemory(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int64]) {
				me, none := w.Rank(), ok(w.Group().Incl())
				must(win.Post(none))
				is(win.Lock(me, Shared), ErrEpoch)
				is(win.LockAll(), ErrEpoch)
				must(win.Lock(1-me, Shared))
				must(win.Unlock(1 - me))
				must(win.Wait())
				must(win.Lock(me, Shared))
				is(win.Post(none), ErrEpoch)
				must(win.Unlock(me))
			})
			if w.Rank() == 0 {
				_, err := WinAlloc[int](w, 1, WinContiguous, WinOption(7))
				is(err, ErrUnavailable)
				check(strings.Contains(err.Error(), "there is no option 7"), "%v", err)
			} else {
				_, err := WinAlloc[int](w, 1, WinContiguous)
				is(err, ErrUnavailable)
			}
		})
	})
}

// A note that PutNotify has not sent is an error that names its rank, and the notes behind it come.
func TestHostileNotes(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int64]) {
				if w.Rank() == 0 {
					for _, n := range []int{0, 3, 5, 100} {
						note := make([]byte, n)
						must(win.comm.group.Engine.Send(nil, win.comm.group.Context, 1, 2, note, pml.Standard))
					}
					must(win.Lock(1, Shared))
					must(win.PutNotify([]int64{1}, 1, 0, 9))
					must(win.Unlock(1))
					return
				}
				for _, n := range []int{0, 3, 5, 100} {
					from, note, err := win.WaitNote(nil)
					is(err, ErrAborted)
					check(from == 0 && note == 0 && strings.Contains(err.Error(), fmt.Sprintf("a note of %d bytes", n)),
						"%d, %d, %v", from, note, err)
				}
				from, note, err := win.WaitNote(nil)
				must(err)
				same(from, 0)
				same(note, 9)
			})
		})
	})
}

// A rank that returns with a lock ends the waits for it, wherever the lock is, and later calls for it.
func TestReturnWithLock(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		for _, holds := range map[string]func(win *Win[int64]){
			"Lock":    func(win *Win[int64]) { must(win.Lock(0, Exclusive)) },
			"LockAll": func(win *Win[int64]) { must(win.LockAll()); must(win.Put([]int64{1}, 0, 0)) },
		} {
			for i := range 4 {
				holder, mapped := i%2, i/2 == 1 // the rank of the memory, or another
				run(3, func(w *Comm) {
					win := ok(WinAlloc[int64](w, 1))
					if !mapped {
						win = ok(WinCreate(w, make([]int64, 1)))
					}
					if w.Rank() == holder {
						holds(win)
						sendSignal(w, 2)
						return
					}
					if w.Rank() == 2 {
						awaitSignal(w, holder)
						for range 2 {
							err := win.Lock(0, Exclusive)
							is(err, ErrPeerFailed)
							returned(err, fmt.Sprint("rank ", holder))
							same(err.Error(), fmt.Sprintf("mpi: Lock at rank 0 on %s: rank %d has returned, and may have "+
								"had the lock; every rank calls Unlock, or UnlockAll, and Free before it returns", win.Name(), holder))
							is(win.Unlock(0), ErrEpoch)
						}
						sendSignal(w, 1-holder)
						return
					}
					awaitSignal(w, 2)
				})
			}
		}
	})
}

// What an error says, exactly: the call, the rank and the window, what is wrong, and what is due.
func TestWindowErrors(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			me, other := w.Rank(), 1-w.Rank()
			withWin(w, 2, func(win *Win[int64]) {
				must(win.SetName("halo"))
				says := func(err error, class error, text string) {
					is(err, class)
					text = strings.ReplaceAll(text, "ME", fmt.Sprint("rank ", me))
					text = strings.ReplaceAll(text, "OTHER", fmt.Sprint("rank ", other))
					check(err.Error() == "mpi: "+text, "got  %q\nwant %q", err, "mpi: "+text)
				}
				epoch := func(err error, text string) { says(err, ErrEpoch, text) }
				one, g := []int64{1}, ok(w.Group().Incl(other))
				fetch := func() error { _, err := win.FetchOp(Sum, 1, other, 0); return err }
				swap := func() error { _, err := win.CompareAndSwap(other, 0, 1, 2); return err }
				const noEpoch = "no epoch is open; call Fence, Start, Lock or LockAll first"
				epoch(win.Put(one, other, 0), "Put to OTHER on halo: "+noEpoch)
				epoch(win.Get(one, other, 0), "Get from OTHER on halo: "+noEpoch)
				epoch(win.Accumulate(Sum, one, other, 0), "Accumulate at OTHER on halo: "+noEpoch)
				epoch(fetch(), "FetchOp at OTHER on halo: "+noEpoch)
				epoch(swap(), "CompareAndSwap at OTHER on halo: "+noEpoch)
				epoch(win.PutNotify(one, other, 0, 1), "PutNotify to OTHER on halo: "+noEpoch)
				epoch(second(win.RPut(one, other, 0)), "RPut to OTHER on halo: "+noEpoch)
				epoch(win.Unlock(other),
					"Unlock at OTHER on halo: Lock has opened no epoch at OTHER; no epoch is open; call Lock first")
				epoch(win.UnlockAll(),
					"UnlockAll on halo: LockAll has opened no epoch; no epoch is open; call LockAll first")
				epoch(win.Complete(), "Complete on halo: Start has opened no epoch; no epoch is open; call Start first")
				epoch(win.Wait(), "Wait on halo: Post has opened no epoch; call Post first")
				epoch(second(win.Test()), "Test on halo: Post has opened no epoch; call Post first")
				epoch(win.Flush(other),
					"Flush at OTHER on halo: neither Lock nor LockAll has opened an epoch at OTHER; no epoch is "+
						"open; call Lock or LockAll first")
				epoch(win.FlushLocalAll(),
					"FlushLocalAll on halo: neither Lock nor LockAll has opened an epoch; no epoch is open; call "+
						"Lock or LockAll first")
				epoch(win.Lock(other, 9), "Lock at OTHER on halo: 9 is no kind of lock; use Shared or Exclusive")
				must(win.Lock(me, Shared))
				epoch(win.Put(one, other, 0),
					"Put to OTHER on halo: OTHER is not locked; Lock has opened an epoch at ME; call Lock for this "+
						"rank too")
				epoch(win.Flush(other),
					"Flush at OTHER on halo: OTHER is not locked; Lock has opened an epoch at ME; call Lock for "+
						"this rank too")
				epoch(win.Lock(me, Exclusive),
					"Lock at ME on halo: the caller has a shared lock of ME already; call Unlock first")
				epoch(win.LockAll(), "LockAll on halo: Lock has opened an epoch at ME; call Unlock first")
				epoch(win.Post(g),
					"Post on halo: the caller has a shared lock of its own memory, which Post would expose; call "+
						"Unlock first")
				epoch(win.Free(), "Free on halo: Lock has opened an epoch at ME; call Unlock first")
				must(win.Unlock(me))
				must(win.LockAll())
				epoch(win.Lock(other, Shared),
					"Lock at OTHER on halo: LockAll has opened an epoch; call UnlockAll first")
				epoch(win.Fence(), "Fence on halo: LockAll has opened an epoch; call UnlockAll first")
				epoch(win.Unlock(other),
					"Unlock at OTHER on halo: Lock has opened no epoch at OTHER; LockAll has opened an epoch; call "+
						"UnlockAll first")
				says(win.Put(one, other, 2), ErrRange,
					"Put to OTHER on halo: 1 element from element 2 on; the window has 2 elements there")
				says(win.Put(one, 5, 0), ErrRank, "Put to rank 5 on halo: the window has ranks 0–1")
				says(win.Accumulate(NoOp, one, other, 0), ErrOp, "Accumulate on halo: NoOp changes nothing; it is for "+
					"GetAccumulate and FetchOp")
				says(win.GetAccumulate(Sum, one, nil, other, 0), ErrCount,
					"GetAccumulate on halo: src and result have 1 and 0 elements; give both the same length")
				must(win.UnlockAll())
				must(win.Lock(me, Shared))
				epoch(win.Unlock(other), "Unlock at OTHER on halo: Lock has opened no epoch at OTHER, but one at ME; "+
					"call Unlock for each rank of a Lock")
				must(win.Unlock(me))
				for call, f := range map[string]func() error{
					"Lock":       func() error { return win.Lock(ProcNull, Shared) },
					"Unlock":     func() error { return win.Unlock(ProcNull) },
					"Flush":      func() error { return win.Flush(ProcNull) },
					"FlushLocal": func() error { return win.FlushLocal(ProcNull) },
				} {
					says(f(), ErrRank, call+" at no process on halo: ProcNull is for operations; name a rank of the "+
						"window, 0–1")
				}
				must(win.LockAll())
				gaps, twice := Vector(1, 1, 2, Of[int64]()), HVector(2, 1, 0, Of[int64]())
				two := Contiguous(2, Of[int64]())
				says(win.PutLayout([]int64{1, 2}, two, other, 0, twice), ErrType, "PutLayout to OTHER on halo: the "+
					"window: the layout names some memory twice, and only one value can be there; name it once")
				says(win.GetLayout([]int64{1, 2}, twice, other, 0, two), ErrType, "GetLayout from OTHER on halo: the "+
					"buffer: the layout names some memory twice, and only one value can be there; name it once")
				says(win.PutLayout(one, gaps, other, 2, gaps), ErrRange,
					"PutLayout to OTHER on halo: 1 element from element 2 on; the window has 2 elements there")
				must(win.UnlockAll())
				none := ok(w.Group().Incl())
				must(win.Post(none))
				epoch(win.Lock(me, Shared),
					"Lock at ME on halo: Post has exposed this rank's own memory to no rank; call Wait first")
				epoch(win.LockAll(), "LockAll on halo: Post has opened an epoch for no rank; call Wait first")
				epoch(win.Fence(), "Fence on halo: Post has opened an epoch for no rank; call Wait first")
				epoch(win.Free(), "Free on halo: Post has opened an epoch for no rank; call Wait first")
				must(win.Wait())
				must(win.Start(none))
				epoch(win.Put(one, other, 0),
					"Put to OTHER on halo: OTHER is not in the group of Start, which has no rank; call Complete first")
				epoch(win.Lock(me, Shared),
					"Lock at ME on halo: Start has opened an epoch for no rank; call Complete first")
				must(win.Complete())
				must(win.Fence())
				must(win.Put(one, me, 0))
				epoch(win.Lock(me, Shared),
					"Lock at ME on halo: a Fence has opened an epoch, and there have been operations since; call "+
						"Fence again first")
				must(win.Fence())
			})
			for _, c := range []struct {
				n     int
				class error
				text  string
			}{
				{-1, ErrCount, "-1 elements were asked for; a rank has 0 or more"},
				{1 << 60, ErrCount,
					"1152921504606846976 elements of 8 bytes were asked for; a rank has at most 2^62 bytes"},
				{1 << 45, ErrNoMemory, "rank 0 asks for 35184372088832 elements of 8 bytes, and the ranks of a " +
					"host can have 1099511627776 bytes together; ask for fewer elements"},
			} {
				_, err := WinAlloc[int64](w, c.n)
				is(err, c.class)
				same(err.Error(), "mpi: WinAlloc: "+c.text)
			}
			_, err := WinAlloc[*int](w, 1)
			is(err, ErrType)
			same(err.Error(), "mpi: WinAlloc: *int holds a pointer and means nothing to another process; use "+
				"numbers, or arrays and structs of them")
			sayOutside(w)
		})
	})
}

// preposition is the word between a call and a rank in the text of an error.
func preposition(call string) string {
	switch call {
	case "Put":
		return "to"
	case "Get":
		return "from"
	}
	return "at"
}

// sayOutside checks the errors of operations outside the memory that a rank has attached, and of a freed window.
func sayOutside(w *Comm) {
	const outside = "the rank has attached no memory with these; give what Attach has returned there"
	win, other := ok(WinDynamic[int64](w)), 1-w.Rank()
	must(win.SetName("list"))
	mem := make([]int64, 4)
	at := ok(win.Attach(mem))
	_, err := win.Attach(mem[3:])
	is(err, ErrBuffer)
	same(err.Error(), fmt.Sprintf("mpi: Attach on list: memory of 1 element shares some with the memory that is attached "+
		"at %d; call Detach there first", at))
	must(Barrier(w))
	must(win.Lock(other, Shared))
	says := func(err error, call, text string) {
		is(err, ErrRange)
		same(err.Error(), fmt.Sprintf("mpi: %s %s rank %d on list: %s from element %d on: %s", call, preposition(call), other,
			text, at+4, outside))
	}
	_, err = win.FetchOp(Sum, 1, other, at+4)
	says(err, "FetchOp", "1 element")
	must(win.Put(make([]int64, 2), other, at+4))
	must(win.Put(make([]int64, 3), other, at+4))
	says(win.Flush(other), "Flush", "a Put of 2 elements")
	must(win.Accumulate(Sum, make([]int64, 2), other, at+4))
	says(win.Flush(other), "Flush", "an Accumulate of 2 elements")
	r := ok(win.RGet(make([]int64, 2), other, at+4))
	must(win.Get(make([]int64, 1), other, at+4))
	says(win.FlushLocal(other), "FlushLocal", "a Get of 2 elements")
	_, err = r.Wait()
	is(err, ErrRange)
	check(strings.Contains(err.Error(), "2 elements from element"), "the error is %v", err)
	says(win.Unlock(other), "Unlock", "a Get of 2 elements")
	var waits sync.WaitGroup
	waits.Go(func() { _, _, err = win.WaitNote(nil) })
	must(win.Free())
	waits.Wait()
	is(err, ErrComm)
	if text := err.Error(); text != "mpi: WaitNote on list: the window was freed while this call waited" {
		same(text, "mpi: WaitNote on list: the window has been freed; use it before Free") // it has begun late
	}
}

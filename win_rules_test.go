package mpi

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// longOf is how many elements go by rendezvous, and mediumOf how many go in a message of their own, and eagerly.
func longOf[T any]() int   { return long/sizeOf[T]() + 3 }
func mediumOf[T any]() int { return 20_000/sizeOf[T]() + 3 }

// The accumulates of a rank at one element take effect in the order of its calls, without a flush between them: a write
// behind a write, a read behind a write, a write behind a read, and a read behind a read; §12.7.2.
func TestAccumulateOrder(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		rounds := int64(inShort(300, 8))
		for _, n := range []int{1, mediumOf[int64]()} {
			run(3, func(w *Comm) {
				withWin(w, 3*n, func(win *Win[int64]) {
					src, was := make([]int64, n), make([]int64, n)
					fill := func(v int64) []int64 {
						for i := range src {
							src[i] = v
						}
						return src
					}
					own := int64(w.Rank() * n)
					must(win.LockAll())
					for i := range rounds {
						must(win.Accumulate(Replace, fill(3*i+1), 0, own))
						must(win.Accumulate(Replace, fill(3*i+2), 0, own))
						must(win.GetAccumulate(NoOp, nil, was, 0, own))
						same(was[n-1], 3*i+2)
						must(win.GetAccumulate(Replace, fill(3*i+3), was, 0, own))
						same(was[0], 3*i+2)
						must(win.Accumulate(Sum, fill(1), 0, own))
						must(win.Accumulate(Sum, fill(-1), 0, own))
						same(ok(win.FetchOp(NoOp, 0, 0, own+int64(n)-1)), 3*i+3)
					}
					must(win.UnlockAll())
					must(Barrier(w))
					if w.Rank() == 0 {
						for _, v := range win.Local() {
							same(v, 3*rounds)
						}
					}
					must(Barrier(w))
				})
			})
		}
	})
}

// A rank that reads an element again and again, which others only add to, never reads less than before: read behind
// read; §12.7.2.
func TestReadsDoNotGoBack(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			withWin(w, 1, func(win *Win[uint16]) {
				must(win.LockAll())
				last := uint16(0)
				for range inShort(2000, 200) {
					if w.Rank() == 2 {
						v := ok(win.FetchOp(NoOp, 0, 1, 0))
						check(v >= last, "an element that was %d is %d", last, v)
						last = v
					} else {
						must(win.Accumulate(Sum, []uint16{1}, 1, 0))
					}
				}
				must(win.UnlockAll())
				must(Barrier(w))
				if w.Rank() == 1 {
					same(win.Local()[0], uint16(2*inShort(2000, 200)))
				}
				must(Barrier(w))
			})
		})
	})
}

// Every operation is complete after the Fence that ends its epoch, at both sides; §12.5.1. Each rank makes all of them
// at all ranks in one epoch, short ones and long ones.
func TestFenceWithAll(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 4
		long := mediumOf[int32]()
		part := long + 4 // of each origin
		run(n, func(w *Comm) {
			withWin(w, n*part, func(win *Win[int32]) {
				me := int32(w.Rank())
				src, got := make([]int32, long), make([][]int32, n)
				for i := range src {
					src[i] = int32(i) + me
				}
				for i := range win.Local() {
					win.Local()[i] = 7
				}
				must(win.Fence())
				for to := range n {
					at := int64(w.Rank() * part)
					must(win.Put([]int32{me}, to, at))
					must(win.Accumulate(Sum, []int32{me}, to, at+1))
					same(ok(win.FetchOp(Max, 9, to, at+2)), 7)
					same(ok(win.CompareAndSwap(to, at+3, 7, me)), 7)
					got[to] = make([]int32, long)
					if me%2 == 0 {
						must(win.Put(src, to, at+4))
						got[to] = nil
					} else if to%2 == 0 {
						must(win.Get(got[to], to, at+4))
					} else {
						must(win.Accumulate(Sum, src, to, at+4))
						got[to] = nil
					}
				}
				must(win.Fence())
				for from := range int32(n) {
					p := win.Local()[int(from)*part:][:part]
					check(p[0] == from && p[1] == 7+from && p[2] == 9 && p[3] == from, "from rank %d: %v", from, p[:4])
					for i, v := range p[4:] {
						want := int32(7)
						if from%2 == 0 {
							want = int32(i) + from
						} else if me%2 != 0 {
							want += int32(i) + from
						}
						if v != want {
							check(false, "element %d from rank %d is %d, not %d", i, from, v, want)
						}
					}
				}
				for to, p := range got {
					if i := slices.IndexFunc(p, func(v int32) bool { return v != 7 }); i >= 0 {
						check(false, "element %d of rank %d was %d, not 7", i, to, p[i])
					}
				}
				must(Barrier(w))
			})
		})
	})
}

// Elements that fill the link are there after the Fence too, though the ranks hear of each other in a barrier on other
// ways; §12.5.1.
func TestFenceWithLongPuts(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n, huge = 4, 1 << 18
		run(n, func(w *Comm) {
			withWin(w, huge, func(win *Win[int32]) {
				must(win.Fence())
				for round := range inShort(50, 4) {
					v := int32(round*n + w.Rank())
					must(win.Put(slices.Repeat([]int32{v}, huge), (w.Rank()+n-1)%n, 0)) // to which it sends no more
					must(win.Fence())
					want := int32(round*n + (w.Rank()+1)%n)
					for i := huge - 1; i >= 0; i -= 997 {
						check(win.Local()[i] == want, "element %d is %d, not %d", i, win.Local()[i], want)
					}
					must(win.Fence())
				}
			})
		})
	})
}

// Start returns when the target has called Post, and Wait when the origin has called Complete; §12.5.2. The groups of
// all ranks overlap, and are in any order.
func TestPostStartOrder(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 4
		var posted, completed [n]atomic.Int32
		run(n, func(w *Comm) {
			me := w.Rank()
			group := func(from int) *Group { return ok(w.Group().Incl((me+from+1)%n, me, (me+from)%n)) }
			withWin(w, n, func(win *Win[int]) {
				base := posted[me].Load()
				for round := range int32(inShort(30, 6)) {
					r := newRand(uint64(round), uint64(me))
					posted[me].Store(base + round + 1)
					must(win.Post(group(2))) // of the ranks me-2, me-1
					for range r.IntN(3) {
						runtime.Gosched()
					}
					must(win.Start(group(1)))
					for _, to := range []int{me, (me + 1) % n, (me + 2) % n} {
						check(posted[to].Load() > base+round, "Start has returned before Post of rank %d", to)
						must(win.Put([]int{int(round)}, to, int64(me)))
					}
					completed[me].Store(base + round + 1)
					must(win.Complete())
					must(win.Wait())
					for _, from := range []int{me, (me + 2) % n, (me + 3) % n} {
						check(completed[from].Load() > base+round, "Wait has returned before Complete of rank %d", from)
						same(win.Local()[from], int(round))
					}
				}
				must(Barrier(w))
			})
		})
	})
}

// A rank that waits for an exclusive lock gets it although two others always have a shared one, since they wait behind
// it; §12.5.3 leaves the order open.
func TestSharedLocksLetExclusiveOnesIn(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		begun := time.Now()
		run(3, func(w *Comm) {
			withWin(w, 1, func(win *Win[int]) {
				if w.Rank() == 2 {
					awaitSignal(w, 0)
					must(win.Lock(0, Exclusive))
					must(win.Unlock(0))
					sendSignal(w, 0)
					sendSignal(w, 1)
					return
				}
				other, over := 1-w.Rank(), ok(Irecv[byte](w, nil, 2, tagSignal))
				has, heard := w.Rank() == 0, false
				if has {
					must(win.Lock(0, Shared))
					sendSignal(w, 2)
				}
				for turn, last := 0, []byte{0}; last[0] == 0; turn++ {
					check(time.Since(begun) < hangs/2, "rank 2 has not got the lock in %d turns", turn)
					if has {
						next := ok(Irecv(w, last, other, 1))
						came := false
						for look := 0; look < 2000 && !came; look++ { // the other one has the lock too
							runtime.Gosched()
							came = finished(next)
						}
						must(win.Unlock(0)) // it may wait behind rank 2
						if !came {
							ok(next.Wait())
						}
					} else {
						must(win.Lock(0, Shared))
						if heard = finished(over); heard {
							last[0] = 1
						}
						must(Send(w, last, other, 1))
					}
					if has = !has; has && last[0] == 1 {
						must(win.Unlock(0))
					}
				}
				if !heard {
					ok(over.Wait())
				}
			})
		})
	})
}

// Ranks get and leave the lock of a rank that computes, and makes no call; §12.7.3.
func TestLocksOfComputingTarget(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		rounds := inShort(300, 30)
		computes := [2]computing{make(computing), make(computing)}
		var left atomic.Int32
		run(3, func(w *Comm) {
			for i, win := range []*Win[int64]{ok(WinAlloc[int64](w, 2)), ok(WinCreate(w, make([]int64, 2)))} {
				if w.Rank() == 2 {
					<-computes[i]
					must(win.Lock(2, Shared)) // by a call, so that the race detector sees an order
					same(win.Local()[0], int64(2*rounds))
					same(win.Local()[1], int64(-2*rounds))
					must(win.Unlock(2))
				} else {
					for range rounds {
						var v [2]int64
						must(win.Lock(2, Exclusive))
						must(win.Get(v[:], 2, 0))
						must(win.Flush(2))
						runtime.Gosched()
						must(win.Put([]int64{v[0] + 1, v[1] - 1}, 2, 0))
						must(win.Unlock(2))
					}
					if left.Add(1)%2 == 0 {
						close(computes[i])
					}
				}
				must(win.Free())
			}
		})
	})
}

// What Flush has returned for is there for a third rank that hears of it; §12.5.4. The third rank's way to the target
// is another one than the origin's.
func TestFlushIsAtTheTarget(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		for _, n := range []int{1, mediumOf[int64](), longOf[int64]()} {
			rounds := int64(inShort(100, 4))
			run(3, func(w *Comm) {
				withWin(w, 2*n, func(win *Win[int64]) {
					must(win.LockAll())
					buf := make([]int64, n)
					for i := range rounds {
						if w.Rank() == 0 {
							for j := range buf {
								buf[j] = i + 1
							}
							must(win.Put(buf, 1, 0))
							must(win.Accumulate(Replace, buf, 1, int64(n)))
							if i%2 == 0 {
								must(win.Flush(1))
							} else {
								must(win.FlushAll())
							}
							sendSignal(w, 2)
							awaitSignal(w, 2)
						} else if w.Rank() == 2 {
							awaitSignal(w, 0)
							for _, at := range []int64{0, int64(n)} {
								must(win.Get(buf, 1, at))
								must(win.Flush(1))
								check(buf[0] == i+1 && buf[n-1] == i+1, "element %d is %d, to %d, after Flush of %d", at,
									buf[0], buf[n-1], i+1)
							}
							sendSignal(w, 0)
						}
					}
					must(win.UnlockAll())
				})
			})
		}
	})
}

// A buffer is the caller's again when FlushLocal, FlushLocalAll or the wait for a request has returned: what the caller
// writes there then does not come to the target; §12.5.4, §12.3.5.
func TestFlushLocalGivesBuffersBack(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const forms = 5
		n := longOf[int32]()
		run(2, func(w *Comm) {
			withWin(w, forms*n, func(win *Win[int32]) {
				must(win.LockAll())
				for form := range forms * (1 - w.Rank()) {
					buf := make([]int32, n)
					for i := range buf {
						buf[i] = int32(form + 1)
					}
					at := int64(form * n)
					switch form {
					case 0:
						must(win.Put(buf, 1, at))
						must(win.FlushLocal(1))
					case 1:
						must(win.Put(buf, 1, at))
						must(win.FlushLocalAll())
					case 2:
						ok(ok(win.RPut(buf, 1, at)).Wait())
					case 3:
						must(win.Accumulate(Sum, buf, 1, at))
						must(win.FlushLocal(1))
					case 4:
						ok(ok(win.RAccumulate(Sum, buf, 1, at)).Wait())
					}
					for i := range buf {
						buf[i] = -1
					}
				}
				must(win.UnlockAll())
				must(Barrier(w))
				for i, v := range win.Local() {
					if want := int32(w.Rank() * (i/n + 1)); v != want {
						check(false, "element %d is %d, not %d", i, v, want)
					}
				}
				must(Barrier(w))
			})
		})
	})
}

// Windows over the same memory, in part or all of it, see each other's writes when their epochs are over, and one of
// them goes on without the other; §12.2.
func TestOverlappingWindows(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 10
		run(2, func(w *Comm) {
			other := 1 - w.Rank()
			whole := ok(WinAlloc[int32](w, n))
			for _, mem := range [][]int32{make([]int32, n), whole.Local()} {
				a, b := ok(WinCreate(w, mem)), ok(WinCreate(w, mem[2:7]))
				must(a.Lock(other, Exclusive))
				must(b.Lock(other, Exclusive)) // each has locks of its own
				must(a.Put([]int32{1, 2, 3}, other, 4))
				must(a.Unlock(other))
				same(ok(b.FetchOp(Sum, 40, other, 2)), 1)
				is(b.Put(mem[:1], other, 5), ErrRange)
				must(b.Unlock(other))
				must(Barrier(w))
				must(a.Free())
				got := make([]int32, 5)
				must(b.Lock(other, Shared))
				must(b.Get(got, other, 0))
				must(b.Unlock(other))
				check(got[2] == 41 && got[3] == 2 && got[4] == 3, "the other window has %v", got)
				must(b.Free())
			}
			must(whole.Free())
		})
	})
}

// A rank alone has windows, and is its own target, in every kind of epoch.
func TestWindowOfOneRank(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		n := longOf[uint16]()
		run(1, func(w *Comm) {
			withWin(w, n, func(win *Win[uint16]) {
				self := w.Group()
				src, dst := make([]uint16, n), make([]uint16, n)
				for i := range src {
					src[i] = uint16(i)
				}
				for name, epoch := range map[string][2]func() error{
					"Fence":   {win.Fence, win.Fence},
					"LockAll": {win.LockAll, win.UnlockAll},
					"Lock": {func() error { return win.Lock(0, Exclusive) },
						func() error { return win.Unlock(0) }},
					"Start": {func() error { return errors.Join(win.Post(self), win.Start(self)) },
						func() error { return errors.Join(win.Complete(), win.Wait()) }},
				} {
					clear(win.Local())
					clear(dst)
					must(epoch[0]())
					must(win.Put(src, 0, 0))
					must(epoch[1]())
					must(epoch[0]())
					must(win.Accumulate(Sum, src[:100], 0, 0))
					same(ok(win.CompareAndSwap(0, 200, 200, 9)), 200)
					must(epoch[1]())
					must(epoch[0]())
					must(win.Get(dst, 0, 0))
					must(epoch[1]())
					for i, v := range dst {
						want := src[i]
						if i < 100 {
							want *= 2
						} else if i == 200 {
							want = 9
						}
						check(v == want, "%s: element %d is %d, not %d", name, i, v, want)
					}
				}
			})
		})
	})
}

// Windows without elements at any rank, and of elements without bytes, allow all calls; §12.2.
func TestWindowsWithoutBytes(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			for _, win := range []*Win[int]{ok(WinAlloc[int](w, 0)), ok(WinCreate[int](w, nil)),
				ok(WinAlloc[int](w, 0, WinContiguous))} {
				nothing(w, win)
			}
			for _, win := range []*Win[struct{}]{ok(WinAlloc[struct{}](w, 5)), ok(WinCreate(w, make([]struct{}, 5)))} {
				must(win.Fence())
				must(win.Put(make([]struct{}, 3), 1-w.Rank(), 2))
				must(win.Get(make([]struct{}, 5), 1-w.Rank(), 0))
				is(win.Put(make([]struct{}, 3), 1-w.Rank(), 3), ErrRange)
				must(win.Fence())
				nothing(w, win)
			}
		})
	})
}

// nothing makes operations of no elements, and frees the window.
func nothing[T any](w *Comm, win *Win[T]) {
	other := 1 - w.Rank()
	for _, epoch := range [][2]func() error{{win.Fence, win.Fence}, {win.LockAll, win.UnlockAll}} {
		must(epoch[0]())
		must(win.Put(nil, other, 0))
		must(win.Get(nil, other, 0))
		ok(ok(win.RPut(nil, other, 0)).Wait())
		ok(ok(win.RGet([]T{}, other, 0)).Wait())
		must(epoch[1]())
	}
	must(Barrier(w)) // no rank has a lock, and waits for a note
	must(win.Lock(other, Exclusive))
	must(win.PutNotify(nil, other, 0, 5))
	_, note, err := win.WaitNote(nil)
	must(err)
	same(note, 5)
	must(win.Unlock(other))
	must(win.Free())
}

// A Put of 3 GiB, beyond what 32 bits count, arrives whole, and a Get gives it back.
func TestHugePut(t *testing.T) {
	const bytes, elem = 3<<30 + 8, 8
	switch {
	case testing.Short():
		t.Skip("4 s for each transport; without -short")
	case proc.Race:
		t.Skip("the race detector needs 4 times the memory, and sees nothing that a short Put has not")
	case availableMemory() < 4*bytes:
		t.Skipf("%d MiB of memory are available, %d are needed", availableMemory()>>20, 4*bytes>>20)
	}
	everyTransport(t, func(t *testing.T, run runner) {
		if strings.Contains(t.Name(), "/faulty") || strings.HasSuffix(t.Name(), "/tagged") ||
			strings.HasSuffix(t.Name(), "/stream") {
			return // these copy all that comes, and are slow
		}
		for _, create := range []bool{false, true} {
			runtime.GC()
			run(2, func(w *Comm) {
				n := (bytes / elem) * (1 - w.Rank())
				buf := make([]int64, bytes/elem-n) // of rank 1
				var win *Win[int64]
				if create {
					win = ok(WinCreate(w, make([]int64, n)))
				} else {
					win = ok(WinAlloc[int64](w, n))
				}
				for i := range buf {
					buf[i] = stirred(i)
				}
				must(win.Fence())
				must(win.Put(buf, 0, 0))
				must(win.Fence())
				for i, v := range win.Local() {
					if v != stirred(i) {
						check(false, "element %d is %d", i, v)
					}
				}
				must(win.Fence())
				clear(buf)
				must(win.Get(buf, 0, 0))
				must(win.Fence())
				for i, v := range buf {
					if v != stirred(i) {
						check(false, "element %d comes back as %d", i, v)
					}
				}
				must(win.Free())
			})
		}
	})
}

// stirred is a number that depends on each bit of i.
func stirred(i int) int64 { return int64(uint64(i) * 0x9e3779b97f4a7c15) }

// availableMemory is what this machine can give; 0: it does not say.
func availableMemory() (n int64) {
	text, _ := os.ReadFile("/proc/meminfo")
	_, after, _ := strings.Cut(string(text), "MemAvailable:")
	fields := strings.Fields(after)
	if len(fields) == 0 {
		return 0
	}
	for _, c := range fields[0] {
		n = 10*n + int64(c-'0')
	}
	return n << 10
}

// Goroutines of one rank make all operations in one window at once, in one epoch; each finds its own elements as it has
// left them, and what all add to is whole.
func TestGoroutinesInOneWindow(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const goroutines, ranks = 16, 2
		long := mediumOf[int32]()
		part := long + 2
		rounds := inShort(40, 2)
		run(ranks, func(w *Comm) {
			withWin(w, 1+goroutines*ranks*part, func(win *Win[int32]) {
				must(win.LockAll())
				var all sync.WaitGroup
				for g := range goroutines {
					all.Go(func() {
						other, at := 1-w.Rank(), int64(1+(w.Rank()*goroutines+g)*part)
						src, dst := make([]int32, long), make([]int32, long)
						for i := range int32(rounds) {
							for j := range src {
								src[j] = i + int32(j)
							}
							must(win.Put(src, other, at+2))
							must(win.Accumulate(Sum, []int32{1}, other, 0))
							same(ok(win.FetchOp(Sum, 2, other, at)), 2*i)
							same(ok(win.CompareAndSwap(other, at+1, i, i+1)), i)
							must(win.Flush(other))
							if g%2 == 0 {
								must(win.Get(dst, other, at+2))
								must(win.Flush(other))
							} else {
								ok(ok(win.RGet(dst, other, at+2)).Wait())
							}
							check(dst[0] == i && dst[long-1] == i+int32(long)-1, "goroutine %d has %d, to %d in round %d", g,
								dst[0], dst[long-1], i)
						}
					})
				}
				all.Wait()
				must(win.UnlockAll())
				must(Barrier(w))
				same(win.Local()[0], int32(goroutines*rounds))
				must(Barrier(w))
			})
		})
	})
}

// A Wait whose context ends goes on in the next call, with what it has heard; §12.5.2.
func TestWaitWithContext(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			withWin(w, 3, func(win *Win[int]) {
				if w.Rank() != 0 {
					g := ok(w.Group().Incl(0))
					must(win.Start(g))
					must(win.Put([]int{w.Rank()}, 0, int64(w.Rank())))
					if w.Rank() == 2 {
						awaitSignal(w, 0)
					}
					must(win.Complete())
					return
				}
				must(win.Post(ok(w.Group().Incl(1, 2))))
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				err := win.WithContext(ctx).Wait()
				check(errors.Is(err, context.DeadlineExceeded), "Wait: %v", err)
				same(ok(win.Test()), false)
				sendSignal(w, 2)
				must(win.Wait())
				check(win.Local()[1] == 1 && win.Local()[2] == 2, "the elements are %v", win.Local())
				is(win.Wait(), ErrEpoch)
			})
		})
	})
}

// Free ends the operations of a Fence's epoch: they are there when it has returned; §12.2.5.
func TestFreeWithOperations(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		n := longOf[int32]()
		run(3, func(w *Comm) {
			mem, got := make([]int32, 3*n+3), make([]int32, n)
			for i := range mem {
				mem[i] = 5
			}
			win := ok(WinCreate(w, mem))
			must(win.Fence())
			me, right := w.Rank(), (w.Rank()+1)%3
			src := make([]int32, n)
			for i := range src {
				src[i] = int32(me)
			}
			must(win.Put(src, right, 0))
			must(win.Get(got, right, int64(n)))
			must(win.Accumulate(Sum, src, right, int64(2*n)))
			for to := range 3 {
				must(win.Accumulate(Sum, []int32{int32(1 + me)}, to, int64(3*n)))
			}
			must(win.Put(src[:1], right, int64(3*n+1)))
			must(win.Free())
			left := int32((me + 2) % 3)
			check(mem[0] == left && mem[n-1] == left && mem[2*n] == 5+left && mem[3*n-1] == 5+left && mem[3*n] == 11 &&
				mem[3*n+1] == left && got[0] == 5 && got[n-1] == 5, "the elements are %v … %v, the others' %v", mem[:1],
				mem[3*n:], got[:1])
		})
	})
}

// Windows that are freed leave no memory: no mapping and nothing on the heap that grows with their number.
func TestWindowsLeaveNoMemory(t *testing.T) {
	if proc.Race {
		t.Skip("bytes are counted without the race detector")
	}
	everyWindow(t, func(t *testing.T, run runner) {
		windows, each := inShort(1000, 400), 0
		run(2, func(w *Comm) {
			use := func() {
				withWin(w, 1000, func(win *Win[int]) {
					must(win.LockAll())
					must(win.Put([]int{1}, 1-w.Rank(), 3))
					must(win.Accumulate(Sum, []int{1}, 1-w.Rank(), 4))
					must(win.UnlockAll())
				})
			}
			for range 20 { // of what is kept for reuse there is enough now
				use()
			}
			must(Barrier(w))
			before, mapped := heap(), mappings()
			for range windows {
				use()
			}
			must(Barrier(w))
			after, now := heap(), mappings()
			if w.Rank() == 0 {
				const noise = 128 << 10
				each = int(after-before-noise) / (2 * windows)
				check(now <= mapped+10, "%d mappings where %d were, after %d windows", now, mapped, 2*windows)
			}
			must(Barrier(w))
		})
		if each > 2500 { // numbers of communicators that are kept for a while take some hundred
			t.Errorf("each window leaves %d bytes", each)
		}
	})
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// mappings is how many this process has; 0: the system does not say.
func mappings() int {
	text, _ := os.ReadFile("/proc/self/maps")
	return strings.Count(string(text), "\n")
}

// A request of a window and one of a message are in one set: WaitAny returns that which is complete, whichever it is;
// §12.3.5.
func TestWaitAnyOfWindow(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		n := longOf[byte]()
		run(2, func(w *Comm) {
			withWin(w, n, func(win *Win[byte]) {
				other := 1 - w.Rank()
				must(win.LockAll())
				for round := range inShort(50, 5) {
					in, src, dst := make([]byte, 1), message(n, round), make([]byte, n)
					rs := []*Request{ok(Irecv(w, in, other, 1)), ok(win.RPut(src, other, 0)), ok(win.RGet(dst[:0], other, 0))}
					for range 2 { // the message is sent behind these
						i, _, err := WaitAny(rs...)
						must(err)
						check(i > 0, "request %d is complete", i)
						rs[i] = nil
					}
					must(win.Flush(other))
					sendSignal(w, other)
					awaitSignal(w, other)
					must(Send(w, []byte{byte(round)}, other, 1))
					i, st, err := WaitAny(rs...)
					must(err)
					check(i == 0 && st.Source == other && in[0] == byte(round), "request %d, from %d: %d", i, st.Source, in)
					ok(ok(win.RGet(dst, other, 0)).Wait())
					whole(dst, round)
					sendSignal(w, other)
					awaitSignal(w, other)
				}
				must(win.UnlockAll())
			})
		})
	})
}

// A window of some ranks, in another order than the world's, reaches the ranks that it names, also when the
// communicator that it was made of has been freed; §12.2.
func TestWindowOfSomeRanks(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 5
		run(n, func(w *Comm) {
			color := 0
			if w.Rank() == 2 {
				color = Undefined
			}
			c := ok(w.Split(color, -w.Rank()))
			if c == nil {
				return
			}
			all := []int{4, 3, 1, 0} // ranks of the world
			me := c.Rank()
			same(all[me], w.Rank())
			windows := []*Win[int]{ok(WinAlloc[int](c, n)), ok(WinCreate(c, make([]int, n)))}
			must(c.Free())
			for _, win := range windows {
				same(win.Group().Size(), n-1)
				must(win.LockAll())
				for to := range all {
					must(win.Put([]int{10*to + me + 1}, to, int64(me)))
				}
				must(win.PutNotify(nil, (me+1)%(n-1), 0, uint32(me)))
				must(win.UnlockAll())
				from, note, err := win.WaitNote(nil)
				must(err)
				check(from == (me+n-2)%(n-1) && int(note) == from, "note %d from rank %d", note, from)
				must(win.Fence())
				for from := range all {
					same(win.Local()[from], 10*me+from+1)
				}
				is(win.Put(nil, n-1, 0), ErrRank)
				must(win.Free())
			}
		})
	})
}

// A rank loads and stores its own elements in its own exclusive lock, and others read and write them in theirs: all
// locks are of one kind; §12.7.
func TestOwnLoadsAndStores(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 3
		rounds := inShort(300, 30)
		run(n, func(w *Comm) {
			withWin(w, 2, func(win *Win[float64]) {
				for range rounds {
					must(win.Lock(0, Exclusive))
					if w.Rank() == 0 {
						v := win.Local()
						same(v[0], -v[1])
						v[0]++
						runtime.Gosched()
						v[1]--
					} else {
						var v [2]float64
						must(win.Get(v[:], 0, 0))
						must(win.Flush(0))
						same(v[0], -v[1])
						runtime.Gosched()
						must(win.Put([]float64{v[0] + 1, v[1] - 1}, 0, 0))
					}
					must(win.Unlock(0))
				}
				must(Barrier(w))
				must(win.Lock(0, Shared))
				if w.Rank() == 0 {
					same(win.Local()[0], float64(n*rounds))
				}
				must(win.Unlock(0))
				must(Barrier(w))
			})
		})
	})
}

// Long accumulates of all ranks at ranges that overlap lose nothing, and GetAccumulate returns each element as it was
// in one step; §12.7.1.
func TestLongAccumulates(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		longAccumulates[int64](run)
		longAccumulates[uint16](run)
		longAccumulates[complex128](run)
	})
}

func longAccumulates[T Number](run runner) {
	const n = 3
	long, rounds := mediumOf[T](), inShort(20, 2)
	run(n, func(w *Comm) {
		withWin(w, long+n, func(win *Win[T]) {
			src, was := make([]T, long), make([]T, long)
			for i := range src {
				src[i] = 1
			}
			seen := make([]map[T]bool, 3) // what GetAccumulate has returned of three elements
			for i := range seen {
				seen[i] = map[T]bool{}
			}
			must(win.LockAll())
			for range rounds {
				must(win.Accumulate(Sum, src, 1, int64(w.Rank())))
				must(win.GetAccumulate(Sum, src, was, 1, int64(w.Rank())))
				for i, at := range []int{0, long / 2, long - 1} {
					check(!seen[i][was[at]], "element %d has been %v twice", at, was[at])
					seen[i][was[at]] = true
				}
			}
			must(win.UnlockAll())
			must(Barrier(w))
			if w.Rank() == 1 {
				for i, v := range win.Local() {
					var want T
					for rank := range n {
						if rank <= i && i < rank+long {
							for range 2 * rounds {
								want++
							}
						}
					}
					if v != want {
						check(false, "element %d is %v, not %v", i, v, want)
					}
				}
			}
			must(Barrier(w))
		})
	})
}

// The last of an odd number of short elements is updated like any other one, also under the race detector, which knows
// where the memory of large slices ends.
func TestLastShortElement(t *testing.T) {
	run := over(t)
	const n = 40_001
	run(1, func(w *Comm) {
		withWin(w, n, func(win *Win[uint16]) {
			must(win.LockAll())
			must(win.Accumulate(Sum, []uint16{5}, 0, n-1))
			same(ok(win.CompareAndSwap(0, n-1, 5, 6)), 5)
			must(win.UnlockAll())
			same(win.Local()[n-1], 6)
		})
		withWin(w, n, func(win *Win[int8]) {
			must(win.LockAll())
			same(ok(win.FetchOp(Max, 5, 0, n-1)), 0)
			must(win.UnlockAll())
			same(win.Local()[n-1], 5)
		})
	})
}

// A rank has locks of several ranks at once, of either kind, and leaves them in any order; §12.5.3.
func TestLocksOfSeveralRanks(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 4
		rounds := inShort(100, 20)
		run(n, func(w *Comm) {
			withWin(w, 2, func(win *Win[int]) {
				r := newRand(3, uint64(w.Rank()))
				for range rounds {
					from, to := r.IntN(n), r.IntN(n)
					if from == to {
						continue
					}
					must(win.Lock(min(from, to), Exclusive)) // in one order at all ranks
					must(win.Lock(max(from, to), Exclusive))
					var a, b [1]int
					must(win.Get(a[:], from, 0))
					must(win.Get(b[:], to, 0))
					must(win.FlushAll())
					runtime.Gosched()
					must(win.Put([]int{a[0] - 3}, from, 0))
					must(win.Put([]int{b[0] + 3}, to, 0))
					must(win.Unlock(from))
					must(win.Unlock(to))
				}
				must(Barrier(w))
				sum := make([]int, 1)
				for rank := range n {
					must(win.Lock(rank, Shared))
				}
				for rank := range n {
					var v [1]int
					must(win.Get(v[:], rank, 0))
					must(win.Unlock(rank))
					sum[0] += v[0]
				}
				same(sum[0], 0)
				must(Barrier(w))
			})
		})
	})
}

// LockAll waits for no lock while it has others: a rank with the exclusive lock of rank 1 waits for the lock of rank 0,
// and LockAll for that rank, so neither would go on; §12.7.3.
func TestLockAllBesideLocks(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		rounds := inShort(500, 50)
		run(3, func(w *Comm) {
			win := ok(WinAlloc[int](w, 1))
			for r := range rounds {
				if w.Rank() > 0 {
					must(Barrier(w))
					must(win.LockAll())
					must(win.UnlockAll())
				} else {
					must(win.Lock(1, Exclusive))
					must(Barrier(w))
					for range r % 10 {
						runtime.Gosched()
					}
					must(win.Lock(0, Exclusive))
					must(win.Unlock(1))
					must(win.Unlock(0))
				}
				must(Barrier(w))
			}
			must(win.Free())
		})
	})
}

// LockAll gets the locks although two ranks always have, or want, the exclusive lock of rank 0, and two others the lock
// of rank 1.
func TestLockAllIsFair(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		rounds := inShort(50, 5)
		run(5, func(w *Comm) {
			win := ok(WinAlloc[int](w, 1))
			if w.Rank() == 0 {
				for other := 1; other < 5; other++ {
					awaitSignal(w, other)
				}
				for range rounds {
					must(win.LockAll())
					must(win.UnlockAll())
				}
				for other := 1; other < 5; other++ {
					sendSignal(w, other)
				}
			} else {
				at, over := (w.Rank()-1)/2, ok(Irecv[byte](w, nil, 0, tagSignal))
				for turn := 0; !finished(over); turn++ {
					must(win.Lock(at, Exclusive))
					if turn == 10 {
						sendSignal(w, 0)
					}
					for range 10 {
						runtime.Gosched()
					}
					must(win.Unlock(at))
				}
			}
			must(win.Free())
		})
	})
}

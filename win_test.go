package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// withWin runs body on windows of n elements of this rank, of each kind.
func withWin[T any](w *Comm, n int, body func(win *Win[T])) {
	for _, win := range []*Win[T]{ok(WinAlloc[T](w, n)), ok(WinCreate(w, make([]T, n)))} {
		body(win)
		must(win.Free())
	}
}

// everyWindow is everyTransport, and ranks of several hosts.
func everyWindow(t *testing.T, test func(t *testing.T, run runner)) {
	everyTransport(t, test)
	t.Run("hosts", func(t *testing.T) {
		test(t, over(t, loopBeneath, onHosts(func(rank int) int { return rank % 2 })))
	})
}

// Operations of an epoch are there after the Fence that ends it; §12.5.1. Each rank writes to all, and reads from all.
func TestFence(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		for _, n := range []int{1, 2, 5} {
			run(n, func(w *Comm) {
				withWin(w, n+1, func(win *Win[int32]) {
					me, got := int32(w.Rank()), make([][]int32, n)
					for i := range got {
						got[i] = make([]int32, n)
					}
					must(win.Fence())
					must(win.Fence()) // an epoch with nothing
					for round := range int32(inShort(20, 5)) {
						for to := range n {
							must(win.Put([]int32{round*100 + me}, to, int64(me)))
						}
						must(win.Fence())
						for from := range n {
							same(win.Local()[from], round*100+int32(from))
							must(win.Get(got[from], from, 0))
						}
						must(win.Fence())
						same(got[0][n-1], round*100+int32(n)-1)
					}
				})
			})
		}
	})
}

// Ranks may have windows of different lengths, none among them; an operation of nothing is allowed at the end, and one
// beyond it is ErrRange and changes nothing; §12.3.
func TestRange(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			withWin(w, w.Rank()*3, func(win *Win[uint16]) {
				must(win.LockAll())
				for to := range 3 {
					end := int64(3 * to)
					must(win.Put(nil, to, end))
					must(win.Get(nil, to, end))
					must(win.Accumulate(Sum, nil, to, end))
					for _, at := range []int64{-1, -1 << 63, end, end + 1, 1<<63 - 1} {
						is(win.Put([]uint16{7}, to, at), ErrRange)
						is(win.Get(make([]uint16, 1), to, at), ErrRange)
						is(win.Accumulate(Sum, []uint16{7}, to, at), ErrRange)
						is(win.GetAccumulate(Sum, []uint16{7}, make([]uint16, 1), to, at), ErrRange)
						_, err := win.FetchOp(Sum, 7, to, at)
						is(err, ErrRange)
						_, err = win.CompareAndSwap(to, at, 0, 7)
						is(err, ErrRange)
						is(win.PutNotify([]uint16{7}, to, at, 1), ErrRange)
					}
					is(win.Put(make([]uint16, end+1), to, 0), ErrRange)
				}
				is(win.Put(nil, 3, 0), ErrRank)
				is(win.Get(nil, -7, 0), ErrRank)
				must(win.Put([]uint16{1}, ProcNull, 99))
				must(win.UnlockAll())
				for _, v := range win.Local() {
					same(v, 0)
				}
				must(Barrier(w)) // all have looked
			})
		})
	})
}

// What an epoch does not allow is ErrEpoch, and says which call is due; §12.5. MPI leaves it undefined.
func TestEpochs(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int]) {
				other := 1 - w.Rank()
				g := ok(w.Group().Incl(other))
				epoch := func(err error, text string) {
					is(err, ErrEpoch)
					check(strings.Contains(err.Error(), text), "%v does not say %q", err, text)
				}
				epoch(win.Put([]int{1}, other, 0), "no epoch is open; call Fence, Start, Lock or LockAll first")
				epoch(win.Unlock(other), "Lock has opened no epoch at rank")
				epoch(win.UnlockAll(), "LockAll has opened no epoch")
				epoch(win.Flush(other), "neither Lock nor LockAll")
				epoch(win.FlushLocalAll(), "neither Lock nor LockAll")
				epoch(win.Complete(), "Start has opened no epoch")
				epoch(win.Wait(), "Post has opened no epoch")
				_, err := win.Test()
				epoch(err, "Post has opened no epoch")
				must(win.Lock(w.Rank(), Exclusive))
				epoch(win.Put([]int{1}, other, 0), "is not locked")
				epoch(win.Lock(w.Rank(), Shared), "has an exclusive lock of rank")
				epoch(win.LockAll(), "call Unlock first")
				epoch(win.Fence(), "call Unlock first")
				epoch(win.Start(g), "call Unlock first")
				epoch(win.Free(), "call Unlock first")
				must(win.Unlock(w.Rank()))
				epoch(win.Lock(w.Rank(), 9), "9 is no kind of lock")
				must(win.LockAll())
				epoch(win.LockAll(), "call UnlockAll first")
				epoch(win.Lock(other, Shared), "call UnlockAll first")
				must(win.Flush(other))
				must(win.UnlockAll())
			})
		})
	})
}

// Counters that all ranks update at once lose nothing: FetchOp gives each value once; §12.7.1.
func TestFetchOpIsAtomic(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		countAll[int8](t, run, 10)
		countAll[uint16](t, run, inShort(1000, 30))
		countAll[int32](t, run, inShort(5000, 30))
		countAll[int64](t, run, inShort(5000, 30))
		countAll[float32](t, run, inShort(5000, 30))
		countAll[float64](t, run, inShort(5000, 30))
	})
}

func countAll[T Real](t *testing.T, run runner, each int) {
	const n = 4
	var mu sync.Mutex
	type fetched struct {
		window string
		v      T
	}
	seen := map[fetched]bool{}
	run(n, func(w *Comm) {
		withWin(w, 3, func(win *Win[T]) {
			must(win.LockAll())
			mine := make([]T, each)
			for i := range mine {
				mine[i] = ok(win.FetchOp(Sum, 1, 1, 1)) // its neighbours are in one word with it
				must(win.Accumulate(Sum, []T{1, 0, 1}, 1, 0))
			}
			must(win.UnlockAll())
			must(Barrier(w))
			if w.Rank() == 1 {
				for i, v := range win.Local() {
					check(v == T(n*each), "%v: element %d is %v after %d additions", reflect.TypeFor[T](), i, v, n*each)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for _, v := range mine {
				check(!seen[fetched{win.Name(), v}], "%v has been fetched twice", v)
				seen[fetched{win.Name(), v}] = true
			}
		})
	})
}

// Elements of 16 bytes are updated in one step too, by ranks that map the memory and by ranks that ask for it.
func TestComplexIsAtomic(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 4
		each := inShort(2000, 100)
		run(n, func(w *Comm) {
			withWin(w, 1, func(win *Win[complex128]) {
				must(win.LockAll())
				for range each {
					was := ok(win.FetchOp(Sum, 1+2i, 0, 0))
					same(2*real(was), imag(was))
					must(win.Accumulate(Sum, []complex128{1 + 2i}, 0, 0))
				}
				must(win.UnlockAll())
				must(Barrier(w))
				if w.Rank() == 0 {
					same(win.Local()[0], complex(2*n*float64(each), 4*n*float64(each)))
				}
				must(Barrier(w))
			})
		})
	})
}

// Every operator gives what it says, for every kind of element that it is for, and another operator or element is an
// error that says so; §12.3.4.
func TestAccumulateOperators(t *testing.T) {
	run := over(t)
	integers[int8](run)
	integers[uint8](run)
	integers[int16](run)
	integers[uint16](run)
	integers[int32](run)
	integers[uint32](run)
	integers[int64](run)
	integers[uint64](run)
	integers[int](run)
	integers[uint](run)
	integers[uintptr](run)
	reals[float32](run)
	reals[float64](run)
	numbers[complex64](run)
	numbers[complex128](run)
	type named int32
	integers[named](run)
	run(1, func(w *Comm) {
		withWin(w, 1, func(win *Win[bool]) {
			must(win.LockAll())
			same(ok(win.FetchOp(LogicalOr, true, 0, 0)), false)
			same(ok(win.FetchOp(LogicalAnd, true, 0, 0)), true)
			same(ok(win.FetchOp(LogicalXor, true, 0, 0)), true)
			same(ok(win.FetchOp(NoOp, true, 0, 0)), false)
			same(ok(win.CompareAndSwap(0, 0, false, true)), false)
			same(win.Local()[0], true)
			must(win.UnlockAll())
		})
		withWin(w, 1, func(win *Win[int32]) {
			must(win.LockAll())
			own := func(inout, in []int32) {
				for i := range inout {
					inout[i] = min(inout[i]+in[i], 1<<30)
				}
			}
			is(win.Accumulate(own, []int32{1}, 0, 0), ErrOp)
			is(win.Accumulate(nil, []int32{1}, 0, 0), ErrOp)
			upTo := func(limit int32) Op[int32] { // one function, which is Sum for one limit only
				return func(inout, in []int32) {
					for i := range inout {
						if inout[i] += in[i]; inout[i] > limit {
							inout[i] = limit
						}
					}
				}
			}
			is(win.Accumulate(upTo(5), []int32{1}, 0, 0), ErrOp)
			is(win.Accumulate(func(inout, in []int32) { Sum(inout, in) }, []int32{1}, 0, 0), ErrOp)
			_, err := win.FetchOp(own, 1, 0, 0)
			is(err, ErrOp)
			is(win.GetAccumulate(Sum, []int32{1}, nil, 0, 0), ErrCount)
			is(win.GetAccumulate(Sum, nil, []int32{1}, 0, 0), ErrCount)
			same(win.Local()[0], 0)
			must(win.UnlockAll())
		})
		withWin(w, 1, func(win *Win[[2]int32]) {
			must(win.LockAll())
			_, err := win.CompareAndSwap(0, 0, [2]int32{}, [2]int32{1})
			is(err, ErrType)
			_, err = win.FetchOp(Replace, [2]int32{1}, 0, 0)
			is(err, ErrOp)
			must(win.UnlockAll())
		})
	})
}

func numbers[T Number](run runner) {
	operators(run, map[string]Op[T]{"Sum": Sum[T], "Prod": Prod[T], "Replace": Replace[T], "NoOp": NoOp[T]})
}

func reals[T Real](run runner) {
	numbers[T](run)
	operators(run, map[string]Op[T]{"Min": Min[T], "Max": Max[T]})
}

func integers[T Integer](run runner) {
	reals[T](run)
	operators(run, map[string]Op[T]{"BitAnd": BitAnd[T], "BitOr": BitOr[T], "BitXor": BitXor[T],
		"LogicalAnd": LogicalAnd[T], "LogicalOr": LogicalOr[T], "LogicalXor": LogicalXor[T]})
}

// operators compares atomic operators with their loops, one element at a time and several.
func operators[T Number](run runner, all map[string]Op[T]) {
	run(1, func(w *Comm) {
		values := []T{0, 1, 3, 7, 100}
		withWin(w, len(values), func(win *Win[T]) {
			must(win.LockAll())
			for name, op := range all {
				for _, v := range values {
					copy(win.Local(), values)
					src := []T{v, v, v, v, v}
					want, before := append([]T(nil), values...), make([]T, len(values))
					if name == "Replace" {
						want = src
					} else {
						op(want, src)
					}
					must(win.GetAccumulate(op, src, before, 0, 0))
					check(reflect.DeepEqual(win.Local(), want) && reflect.DeepEqual(before, values),
						"%s of %v with %v is %v, was %v; want %v, %v", name, values, v, win.Local(), before, want,
						values)
					copy(win.Local(), values)
					if name == "NoOp" {
						is(win.Accumulate(op, src[1:], 0, 1), ErrOp)
						continue
					}
					must(win.Accumulate(op, src[1:], 0, 1))
					for i := range values {
						win.Local()[0] = values[i]
						if same(ok(win.FetchOp(op, v, 0, 0)), values[i]); i > 0 {
							same(win.Local()[0], want[i])
							same(win.Local()[i], want[i])
						}
					}
				}
			}
			must(win.UnlockAll())
		})
	})
}

// One of the ranks that swap at once finds the element as it was; §12.3.4. The ranks make a lock of that.
func TestCompareAndSwapIsAtomic(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 4
		rounds := inShort(300, 10)
		run(n, func(w *Comm) {
			withWin(w, 2, func(win *Win[uint32]) {
				must(win.LockAll())
				me := uint32(w.Rank() + 1)
				for range rounds {
					for ok(win.CompareAndSwap(2, 0, 0, me)) != 0 {
					}
					var v [1]uint32
					must(win.Get(v[:], 2, 1))
					must(win.Flush(2))
					v[0]++
					must(win.Put(v[:], 2, 1))
					must(win.Flush(2))
					same(ok(win.FetchOp(Replace, 0, 2, 0)), me)
				}
				must(win.UnlockAll())
				must(Barrier(w))
				if w.Rank() == 2 {
					same(win.Local()[1], uint32(n*rounds))
				}
				must(Barrier(w))
			})
		})
	})
}

// An exclusive lock keeps all others out, shared locks keep exclusive ones out, and what was written under a lock is
// there for its next holder; §12.5.3.
func TestLocksExclude(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 4
		rounds := inShort(400, 40)
		var writers, readers [n]atomic.Int32
		run(n, func(w *Comm) {
			withWin(w, 2, func(win *Win[int64]) {
				r := rand.New(rand.NewPCG(1, uint64(w.Rank())))
				wrote := 0
				for range rounds {
					switch to := r.IntN(2); r.IntN(4) {
					case 0:
						must(win.LockAll())
						for i := range n {
							must(win.Get(nil, i, 0)) // has the lock, which LockAll may get at the first operation
							readers[i].Add(1)
						}
						for i := range n {
							same(writers[i].Load(), 0)
							readers[i].Add(-1)
						}
						must(win.UnlockAll())
					case 1:
						must(win.Lock(to, Shared))
						readers[to].Add(1)
						same(writers[to].Load(), 0)
						var v [2]int64
						must(win.Get(v[:], to, 0))
						must(win.Flush(to))
						same(v[0], v[1])
						readers[to].Add(-1)
						must(win.Unlock(to))
					default:
						must(win.Lock(to, Exclusive))
						same(writers[to].Add(1), 1)
						same(readers[to].Load(), 0)
						var v [2]int64
						must(win.Get(v[:], to, 0))
						must(win.Flush(to))
						v[0]++
						v[1]++
						must(win.Put(v[:], to, 0))
						wrote++
						writers[to].Add(-1)
						must(win.Unlock(to))
					}
				}
				total := make([]int, 1)
				must(Allreduce(w, []int{wrote}, total, Sum))
				var a, b [1]int64
				must(win.LockAll())
				must(win.Get(a[:], 0, 0))
				must(win.Get(b[:], 1, 1))
				must(win.UnlockAll())
				same(int(a[0]+b[0]), total[0])
			})
		})
	})
}

// Ranks get a lock in the order in which they ask: one that takes and leaves it in a loop does not keep it.
func TestLockIsFair(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			withWin(w, 1, func(win *Win[int64]) {
				if w.Rank() != 0 {
					awaitSignal(w, 0)
					must(win.Lock(0, Exclusive))
					must(win.Unlock(0))
					sendSignal(w, 0)
					return
				}
				must(win.Lock(0, Exclusive))
				sendSignal(w, 1)
				sendSignal(w, 2)
				time.Sleep(50 * time.Millisecond) // both ask, as far as time can tell
				got := []*Request{ok(Irecv[byte](w, nil, 1, tagSignal)), ok(Irecv[byte](w, nil, 2, tagSignal))}
				for turns := 0; ; turns++ {
					must(win.Unlock(0))
					if finished(got[0]) {
						got = got[1:]
						if len(got) == 0 || finished(got[0]) {
							return
						}
					} else if len(got) == 2 && finished(got[1]) {
						got = got[:1]
					}
					check(turns < 100000, "the others have not got the lock in %d turns", turns)
					must(win.Lock(0, Exclusive))
				}
			})
		})
	})
}

// A rank that waits for a lock need not be alone: other goroutines of it take and leave other locks meanwhile, on which
// the holder of the first one waits.
func TestLocksOfGoroutines(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int64]) {
				if w.Rank() == 0 {
					must(win.Lock(0, Exclusive))
					sendSignal(w, 1)
					awaitSignal(w, 1) // that holds lock 1
					must(win.Lock(1, Exclusive))
					must(win.Unlock(1))
					must(win.Unlock(0))
					return
				}
				awaitSignal(w, 0)
				var both sync.WaitGroup
				both.Go(func() {
					must(win.Lock(0, Exclusive)) // waits for what the other goroutine does
					must(win.Unlock(0))
				})
				both.Go(func() {
					must(win.Lock(1, Exclusive))
					sendSignal(w, 0)
					time.Sleep(20 * time.Millisecond)
					must(win.Unlock(1))
				})
				both.Wait()
			})
		})
	})
}

// A Lock whose context ends returns, and the lock is let go when it comes.
func TestLockWithContext(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int64]) {
				if w.Rank() == 0 {
					must(win.Lock(0, Exclusive))
					sendSignal(w, 1)
					awaitSignal(w, 1)
					must(win.Unlock(0))
					must(win.Lock(0, Exclusive)) // behind what rank 1 has given up
					must(win.Unlock(0))
					return
				}
				awaitSignal(w, 0)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				err := win.WithContext(ctx).Lock(0, Exclusive)
				check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
				is(win.Unlock(0), ErrEpoch)
				err = win.WithContext(ctx).LockAll()
				check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
				is(win.UnlockAll(), ErrEpoch)
				sendSignal(w, 0)
				must(win.Lock(0, Shared))
				must(win.Unlock(0))
			})
		})
	})
}

// Post, Start, Complete and Wait by groups that overlap: each rank writes to its neighbours; §12.5.2.
func TestPostStart(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		n, rounds := inShort(5, 3), inShort(50, 8)
		run(n, func(w *Comm) {
			withWin(w, n, func(win *Win[int]) {
				me := w.Rank()
				left, right := (me+n-1)%n, (me+1)%n
				g := ok(w.Group().Incl(left, right))
				for round := range rounds {
					must(win.Post(g))
					must(win.Start(g))
					is(win.Put([]int{1}, me, 0), ErrEpoch) // not in the group
					for _, to := range []int{left, right} {
						must(win.Put([]int{round}, to, int64(me)))
					}
					must(win.Complete())
					if round%2 == 0 {
						must(win.Wait())
					} else {
						for !ok(win.Test()) {
						}
					}
					same(win.Local()[left], round)
					same(win.Local()[right], round)
				}
				none := ok(w.Group().Incl())
				must(win.Post(none))
				must(win.Start(none))
				must(win.Complete())
				must(win.Wait())
			})
		})
	})
}

// Notes come behind the data of their PutNotify, in the order of the calls of a rank.
func TestPutNotify(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 3
		rounds := uint32(inShort(500, 50))
		run(n, func(w *Comm) {
			withWin(w, n*int(rounds), func(win *Win[uint32]) {
				me := w.Rank()
				must(win.LockAll())
				if me != 0 {
					for i := range rounds {
						must(win.PutNotify([]uint32{i + 1}, 0, int64(me)*int64(rounds)+int64(i), i))
					}
				} else {
					var next [n]uint32
					for range rounds * (n - 1) {
						from, note, err := win.WaitNote(nil)
						must(err)
						same(note, next[from])
						next[from]++
						same(win.Local()[from*int(rounds)+int(note)], note+1)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					_, _, err := win.WaitNote(ctx)
					check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
					cancel()
				}
				must(win.UnlockAll())
			})
		})
	})
}

// Notes for which the rank has no room yet come later, in the order of the calls, also among longer ones, which may go
// another way.
func TestManyNotes(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		rounds, began := inShort(3000, 80), make(chan bool, 2)
		run(2, func(w *Comm) {
			withWin(w, 2, func(win *Win[uint64]) {
				must(win.LockAll())
				if w.Rank() == 1 {
					for i := range rounds {
						note := uint32(i)
						if i%7 == 3 {
							note |= 1 << 31
						}
						must(win.PutNotify([]uint64{uint64(i)}, 0, int64(i%2), note))
						if i == 0 {
							began <- true
						}
					}
				} else {
					<-began
					for i := range rounds {
						from, note, err := win.WaitNote(nil)
						must(err)
						same(from, 1)
						same(note&^(1<<31), uint32(i))
						same(note>>31 != 0, i%7 == 3)
					}
				}
				must(win.UnlockAll())
			})
		}, WithEnviron([]string{"GORUN_UNEXPECTED_MAX=1K"}))
	})
}

// Memory of WinShared is one array by option, of which each rank sees all.
func TestWinShared(t *testing.T) {
	whereBoards(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			for _, options := range [][]WinOption{nil, {WinContiguous}} {
				win := ok(WinShared[int16](w, 3+w.Rank(), options...))
				must(win.Fence())
				for i := range win.Local() {
					win.Local()[i] = int16(100*w.Rank() + i)
				}
				must(win.Fence())
				for from := range 3 {
					part := win.Of(from)
					same(len(part), 3+from)
					for i, v := range part {
						same(v, int16(100*from+i))
					}
				}
				adjoin := uintptr(addressOf(&win.Of(1)[0]))-uintptr(addressOf(&win.Of(0)[0])) == 6
				same(adjoin, options != nil)
				must(win.Fence())
				must(win.Free())
				check(win.Local() == nil && win.Of(1) == nil && win.Of(7) == nil, "there is memory after Free")
				is(win.Put(nil, 0, 0), ErrComm)
				is(win.Fence(), ErrComm)
				is(win.Free(), ErrComm)
			}
		})
	})
}

// A call on no window is ErrComm.
func TestNilWin(t *testing.T) {
	for _, win := range []*Win[int]{nil, {}} {
		for _, err := range []error{win.Put(nil, 0, 0), win.Get(nil, 0, 0), win.Accumulate(Sum, nil, 0, 0), win.Fence(),
			win.GetAccumulate(Sum, nil, nil, 0, 0), second(win.FetchOp(Sum, 1, 0, 0)), second(win.CompareAndSwap(0, 0,
				0, 1)),
			second(win.RPut(nil, 0, 0)), second(win.RGet(nil, 0, 0)), win.PutNotify(nil, 0, 0, 1), win.Start(nil),
			win.Post(nil),
			win.Complete(), win.Wait(), second(win.Test()), win.Lock(0, Shared), win.Unlock(0), win.LockAll(),
			win.UnlockAll(),
			win.Flush(0), win.FlushAll(), win.FlushLocal(0), win.FlushLocalAll(), win.Sync(), win.Free(),
			win.SetName("x")} {
			is(err, ErrComm)
		}
		_, _, err := win.WaitNote(nil)
		is(err, ErrComm)
		check(win.Local() == nil && win.Of(0) == nil && win.Group() == nil && win.Name() == "",
			"no window has something")
	}
}

// Fence and Free say that their barrier has failed: a context has ended, or a rank has returned.
func TestFenceFails(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		over := make(chan bool)
		run(2, func(w *Comm) {
			win := ok(WinAlloc[int](w, 1))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			if w.Rank() == 0 {
				err := win.WithContext(ctx).Fence()
				check(errors.Is(err, context.DeadlineExceeded), "Fence: %v", err)
				check(strings.Contains(fmt.Sprint(err), "mpi: Fence on world.win1"), "%v", err)
				over <- true
			} else {
				<-over
				must(win.Fence())
			}
			must(win.Fence())
			must(win.Free())
		})
	})
}

// A Flush returns when the operations are complete whose calls have returned, also while another goroutine flushes.
func TestFlushOfGoroutines(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const goroutines = 4
		for _, each := range []int{1, 20000} { // in the request, and in a message of their own
			rounds := inShort(2000, 200) / min(each, 10)
			mem := make([]int64, goroutines*each) // of rank 1, which rank 0 looks at
			run(2, func(w *Comm) {
				win := ok(WinCreate(w, mem[:w.Rank()*len(mem)]))
				must(win.LockAll())
				var all sync.WaitGroup
				for g := range goroutines * (1 - w.Rank()) {
					all.Go(func() {
						src := make([]int64, each)
						for i := range rounds {
							src[each-1] = int64(i) + 1
							must(win.Put(src, 1, int64(g*each)))
							must(win.Flush(1))
							if !proc.Race { // the detector does not see how ranks of several devices are ordered
								same(mem[(g+1)*each-1], int64(i)+1)
							}
						}
					})
				}
				all.Wait()
				must(win.UnlockAll())
				must(win.Free())
			})
		}
	})
}

// A Free whose context ends, and a second Free at the same time, leave the window to other ranks until these free it.
func TestFreeGoesOn(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			for _, win := range []*Win[int64]{ok(WinAlloc[int64](w, 1)), ok(WinCreate(w, make([]int64, 1)))} {
				if w.Rank() == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					err := win.WithContext(ctx).Free()
					cancel()
					check(errors.Is(err, context.DeadlineExceeded), "Free: %v", err)
					is(win.Free(), ErrComm)
					sendSignal(w, 1)
					continue
				}
				awaitSignal(w, 0)
				must(win.Lock(0, Exclusive))
				same(ok(win.FetchOp(Sum, 1, 0, 0)), 0)
				must(win.Unlock(0))
				must(win.Free())
			}
		})
	})
}

// Flush is for the epochs of locks alone, wherever the memory is; a note after Free is ErrComm.
func TestFlushInFence(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			withWin(w, 1, func(win *Win[int]) {
				must(win.Fence())
				must(win.Put([]int{1}, 1-w.Rank(), 0))
				is(win.Flush(1-w.Rank()), ErrEpoch)
				is(win.FlushLocal(1-w.Rank()), ErrEpoch)
				is(win.FlushAll(), ErrEpoch)
				must(win.Fence())
			})
			win := ok(WinAlloc[int](w, 1))
			must(win.Free())
			_, _, err := win.WaitNote(nil)
			is(err, ErrComm)
		})
	})
}

// All ranks hear of a mistake in a call that makes a window, and none has the window.
func TestWinAllocMistakes(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			n := 1
			if w.Rank() == 1 {
				n = -1
			}
			_, err := WinAlloc[int](w, n)
			is(err, ErrCount)
			_, err = WinAlloc[int](w, 1<<60)
			check(err != nil, "2^60 elements are there")
			_, err = WinAlloc[string](w, 1)
			is(err, ErrType)
			if w.Rank() == 1 {
				_, err = WinAlloc[int32](w, 1)
			} else {
				_, err = WinAlloc[uint32](w, 1)
			}
			is(err, ErrComm)
			withWin(w, 1, func(win *Win[int]) {
				must(win.SetName("counters"))
				must(win.LockAll())
				err := win.Put(make([]int, 2), 1, 0)
				same(fmt.Sprint(err),
					"mpi: Put to rank 1 on counters: 2 elements from element 0 on; the window has 1 element there")
				must(win.UnlockAll())
			})
		})
	})
}

// Windows that are freed leave nothing.
func TestManyWindows(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		before := leak.Take()
		defer func() {
			if err := before.Check(10 * time.Second); err != nil {
				t.Error(err)
			}
		}()
		for range inShort(5, 1) { // jobs, each of which has the time of one
			run(2, func(w *Comm) {
				for range inShort(2000, 10) {
					withWin(w, 10, func(win *Win[int]) {
						must(win.Fence())
						must(win.Put([]int{1}, 1-w.Rank(), 3))
						must(win.Fence())
					})
				}
			})
		}
	})
}

// Put, Get, Accumulate, FetchOp and CompareAndSwap allocate nothing, in mapped memory, by a link and by requests.
func TestOperationsAllocateNothing(t *testing.T) {
	if proc.Race {
		t.Skip("the race detector allocates; other tests make the same calls with it")
	}
	t.Run("loop", func(t *testing.T) { operationsAllocateNothing(t, overLoop(t)) })
	t.Run("tcp", func(t *testing.T) { operationsAllocateNothing(t, over(t, withDevices(tcpDevice))) })
}

func operationsAllocateNothing(t *testing.T, run runner) {
	run(2, func(w *Comm) {
		withWin(w, 10, func(win *Win[int64]) {
			must(win.LockAll())
			if w.Rank() != 0 { // allocations of all ranks are counted
				must(win.UnlockAll())
				return
			}
			buf, was := make([]int64, 5), make([]int64, 5)
			for name, f := range map[string]func(){
				"Put":            func() { must(win.Put(buf, 1, 2)); must(win.Flush(1)) },
				"several":        func() { must(win.Put(buf, 1, 2)); must(win.Put(buf, 1, 2)); must(win.Flush(1)) },
				"Get":            func() { must(win.Get(buf, 1, 2)); must(win.Flush(1)) },
				"Accumulate":     func() { must(win.Accumulate(Sum, buf, 1, 2)); must(win.Flush(1)) },
				"GetAccumulate":  func() { must(win.GetAccumulate(Max, buf, was, 1, 2)) },
				"FetchOp":        func() { ok(win.FetchOp(Sum, 1, 1, 2)) },
				"CompareAndSwap": func() { ok(win.CompareAndSwap(1, 2, 0, 1)) },
				"Flush":          func() { must(win.Flush(1)) },
			} {
				least := 1e9 // other goroutines of the process, such as the watcher, allocate now and then
				for range 5 {
					least = min(least, testing.AllocsPerRun(100, f))
				}
				if least != 0 {
					t.Errorf("%s: %v allocations", name, least)
				}
			}
			must(win.UnlockAll())
		})
	})
}

// Operations with requests are in one set with each other and with messages; §12.3.5.
func TestWinRequests(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 20000
		run(2, func(w *Comm) {
			withWin(w, n, func(win *Win[uint16]) {
				other := 1 - w.Rank()
				src, dst, was := make([]uint16, n), make([]uint16, n), make([]uint16, 3)
				for i := range src {
					src[i] = uint16(i)
				}
				must(win.LockAll())
				ok(ok(win.RPut(src, other, 0)).Wait())
				must(win.FlushAll())
				must(WaitAll(ok(win.RPut(src[:2], other, 5)), ok(win.RPut(nil, ProcNull, 0)),
					ok(Irecv(w, dst[:1], other, 0)), ok(Isend(w, src[:1], other, 0))))
				must(win.FlushAll())
				must(WaitAll(ok(win.RAccumulate(Sum, src[1:3], other, 0)), ok(win.RGetAccumulate(NoOp, nil, was, other,
					7))))
				same(was[2], 9)
				must(win.Flush(other))
				must(WaitAll(ok(win.RGet(dst, other, 0)), ok(win.RGet(was[:1], ProcNull, 0))))
				for i, v := range dst {
					want := src[i]
					switch i {
					case 0, 1:
						want += src[1+i]
					case 5, 6:
						want = src[i-5]
					}
					same(v, want)
				}
				_, err := win.RGet(dst, other, 1)
				is(err, ErrRange)
				_, err = win.RPut(dst, 2, 0)
				is(err, ErrRank)
				must(win.UnlockAll())
				must(Barrier(w))
			})
		})
	})
}

// A rank that computes, and makes no call, serves its window: every operation and the locks go on; §12.7.3. There are
// more operations than any credit, ring or queue holds.
func TestComputingTarget(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 1 << 17 // elements: more than a request or a fragment has
		floods := inShort(20000, 2000)
		computes := [2]computing{make(computing), make(computing)}
		run(2, func(w *Comm) {
			for i, win := range []*Win[int32]{ok(WinAlloc[int32](w, n)), ok(WinCreate(w, make([]int32, n)))} {
				if w.Rank() == 1 {
					<-computes[i]
				} else {
					computes[i].while(func() { useAll(win, n, floods) })
				}
				must(win.Free())
			}
		})
	})
}

// useAll makes all operations at rank 1, whose window has n elements.
func useAll(win *Win[int32], n, floods int) {
	src, dst := make([]int32, n), make([]int32, n)
	for i := range src {
		src[i] = int32(i)
	}
	must(win.Lock(1, Exclusive))
	must(win.Put(src, 1, 0))
	must(win.Flush(1))
	must(win.Accumulate(Sum, src, 1, 0))
	must(win.Flush(1))
	must(win.Get(dst, 1, 0))
	must(win.Flush(1))
	for i := range dst {
		same(dst[i], 2*int32(i))
	}
	must(win.GetAccumulate(Replace, src, dst, 1, 0))
	same(dst[n-1], 2*int32(n-1))
	for i := range floods {
		must(win.Put(src[i%n:][:1], 1, int64(i%n)))
		must(win.Accumulate(Max, src[:3], 1, 5))
	}
	must(win.Unlock(1))
	must(win.LockAll())
	same(ok(win.FetchOp(Sum, 1, 1, 7)), 7)
	same(ok(win.CompareAndSwap(1, 7, 8, 9)), 8)
	must(win.UnlockAll())
}

// A request that cannot be harms nothing: the window goes on, and its memory is as it was. The requests are random,
// some of them with a correct beginning.
func TestHostileRequests(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			win := ok(WinCreate(w, make([]int64, 10)))
			if w.Rank() == 0 {
				r := newRand(1, 2)
				for range inShort(3000, 300) {
					b := make([]byte, r.IntN(100))
					for i := range b {
						b[i] = byte(r.IntN(256))
					}
					if len(b) >= 24 {
						b[0], b[2], b[3], b[7] = byte(1+r.IntN(10)), 0, 0, b[7]&0x7f
						b[15], b[23] = 0x7f, 0 // far outside
						switch b[0] {
						case 3, 4:
							b[0] = 1 // a message with elements would be expected, or come
						case 8:
							b[1] |= 0x40 // it would have the lock
						}
						b[0] |= byte(r.IntN(4)) << 6 // then Flush, or Unlock
					}
					must(win.comm.group.Engine.Send(nil, win.comm.group.Context, 1, 3, b, 0))
				}
				must(win.Lock(1, Shared))
				same(ok(win.FetchOp(Sum, 1, 1, 9)), 0)
				err := win.Unlock(1)
				check(err == nil || errors.Is(err, ErrRange) || errors.Is(err, ErrAborted), "the error is %v", err)
				must(Send[byte](w, nil, 1, 0))
			} else {
				ok(Recv[byte](w, nil, 0, 0))
				for i, v := range win.Local() {
					same(v, int64(i/9))
				}
			}
			must(Barrier(w))
			must(win.Free())
		})
	})
}

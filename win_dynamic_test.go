package mpi

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/rma"
)

// withDynamic runs body on a dynamic window to which each rank has attached two regions of n elements, which adjoin in
// memory. at has their numbers, of all ranks.
func withDynamic[T any](w *Comm, n int, body func(win *Win[T], mem []T, at [][2]int64)) {
	win := ok(WinDynamic[T](w))
	mem := make([]T, 2*n)
	own := [2]int64{ok(win.Attach(mem[n:])), ok(win.Attach(mem[:n]))} // the second half is attached first
	own[0], own[1] = own[1], own[0]
	flat := make([]int64, 2*w.Size())
	must(Allgather(w, own[:], flat))
	at := make([][2]int64, w.Size())
	for i := range at {
		at[i] = [2]int64(flat[2*i:])
	}
	body(win, mem, at)
	must(win.Free())
}

// Every operation, in each kind of epoch, finds the regions that ranks have attached, this rank's own among them;
// §12.2.4.
func TestDynamic(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 3000 // elements: more than a request has
		run(3, func(w *Comm) {
			withDynamic(w, n, func(win *Win[int64], mem []int64, at [][2]int64) {
				me := int64(w.Rank())
				src, dst := make([]int64, n), make([]int64, n)
				for i := range src {
					src[i] = me*n + int64(i)
				}
				to, from := (w.Rank()+1)%3, (me+2)%3
				must(win.Fence())
				must(win.Put(src, to, at[to][1]))
				must(win.Put(src[:7], w.Rank(), at[me][0]))
				must(win.Fence())
				for i := range n {
					same(mem[n+i], from*n+int64(i))
				}
				same(mem[6], me*n+6)
				same(mem[7], 0)
				must(win.Get(dst, to, at[to][1]))
				must(win.Fence())
				same(dst[n-1], me*n+n-1)

				g := ok(w.Group().Incl(0, 1, 2))
				must(win.Post(g))
				must(win.Start(g))
				must(win.Accumulate(Sum, []int64{1, 1}, to, at[to][1]+n-2))
				must(win.Complete())
				must(win.Wait())
				same(mem[2*n-1], from*n+n)

				must(win.LockAll())
				for rank := range 3 {
					ok(win.FetchOp(Sum, 1, rank, at[rank][0]+n-1))
					for {
						old := ok(win.FetchOp(NoOp, 0, rank, at[rank][0]+n-2))
						if ok(win.CompareAndSwap(rank, at[rank][0]+n-2, old, old+1)) == old {
							break
						}
					}
				}
				must(WaitAll(ok(win.RPut(src[:n-2], to, at[to][0]))))
				must(win.FlushAll())
				must(WaitAll(ok(win.RGet(dst[:n-2], to, at[to][0]))))
				same(dst[n-3], me*n+n-3)
				must(win.UnlockAll())

				must(Barrier(w))
				must(win.Lock(to, Exclusive))
				must(win.GetAccumulate(Replace, src, dst, to, at[to][1]))
				must(win.PutNotify(src[:1], to, at[to][0], 77))
				must(win.Unlock(to))
				same(dst[0], me*n)
				same(dst[n-1], me*n+n)
				source, note, err := win.WaitNote(nil)
				must(err)
				same(source, int(from))
				same(note, 77)
				same(mem[0], from*n)
			})
		})
	})
}

// Counters of several regions lose nothing, and the ones of 16 bytes are updated in one step too.
func TestDynamicIsAtomic(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 3
		each := inShort(1000, 50)
		run(n, func(w *Comm) {
			withDynamic(w, 1, func(win *Win[complex128], mem []complex128, at [][2]int64) {
				must(win.LockAll())
				for range each {
					was := ok(win.FetchOp(Sum, 1+2i, 1, at[1][0]))
					same(2*real(was), imag(was))
					must(win.Accumulate(Sum, []complex128{1 + 2i}, 1, at[1][1]))
				}
				must(win.UnlockAll())
				must(Barrier(w))
				if w.Rank() == 1 {
					same(mem[0], complex(n*float64(each), 2*n*float64(each)))
					same(mem[1], mem[0])
				}
			})
		})
	})
}

// What is in no region, or in two, is ErrRange and changes nothing: of the call if it waits for an answer, and of the
// next Flush otherwise.
func TestDynamicRange(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const n = 3000
		run(2, func(w *Comm) {
			withDynamic(w, n, func(win *Win[int32], mem []int32, at [][2]int64) {
				to := 1 - w.Rank()
				one, two, many := []int32{7}, make([]int32, 2), make([]int32, n+1)
				must(win.LockAll())
				for _, to := range []int{to, w.Rank()} {
					ends := []int64{0, 1, at[to][0] - 1, at[to][1] - 1, at[to][0] + n, at[to][1] + n, math.MaxInt64 - 9}
					for _, at := range ends {
						must(win.Put(one, to, at))
						is(win.Flush(to), ErrRange)
						must(win.Flush(to)) // which is told once
						must(win.Get(two[:1], to, at))
						is(win.Flush(to), ErrRange)
						must(win.Accumulate(Sum, one, to, at))
						is(win.Flush(to), ErrRange)
						err := second(win.FetchOp(Sum, 7, to, at))
						is(err, ErrRange)
						check(strings.Contains(err.Error(), "the rank has attached no memory"), "the error is %v", err)
						is(second(win.CompareAndSwap(to, at, 0, 7)), ErrRange)
						is(win.GetAccumulate(Sum, one, two[:1], to, at), ErrRange)
						is(win.PutNotify(one, to, at, 1), ErrRange)
					}
					for _, last := range []int64{at[to][0] + n - 1, at[to][1] + n - 1} {
						must(win.Put([]int32{1, 1}, to, last))
						is(win.Flush(to), ErrRange)
						is(win.GetAccumulate(Sum, []int32{1, 1}, two, to, last), ErrRange)
					}
					must(win.Put(many, to, at[to][0])) // by a message of its own
					is(win.Flush(to), ErrRange)
					must(win.Get(many, to, at[to][0]))
					is(win.Flush(to), ErrRange)
					is(win.Put(one, to, -1), ErrRange)
					is(win.Put(two, to, math.MaxInt64-1), ErrRange)
					must(win.Put(nil, to, at[to][0]+n))
					must(win.Flush(to))
				}
				must(win.UnlockAll())
				for _, v := range mem {
					same(v, 0)
				}
				check(win.Local() == nil && win.Of(to) == nil, "a dynamic window has memory")
				must(Barrier(w))
			})
		})
	})
}

// Memory can be attached and detached at any time, by one rank alone; §12.2.4. What is wrong is an error.
func TestAttach(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			win := ok(WinDynamic[uint16](w))
			mem := make([]uint16, 100)
			if w.Rank() == 0 {
				a, none := ok(win.Attach(mem[10:20])), ok(win.Attach(mem[:0]))
				empty := ok(win.Attach(nil))
				for _, m := range [][]uint16{mem, mem[10:20], mem[9:11], mem[19:21], mem[12:13], mem[5:25]} {
					is(second(win.Attach(m)), ErrBuffer)
				}
				b, c := ok(win.Attach(mem[:10])), ok(win.Attach(mem[20:21]))
				is(win.Detach(a+1), ErrRange)
				is(win.Detach(0), ErrRange)
				must(win.Detach(a))
				is(win.Detach(a), ErrRange)
				is(second(win.Attach(mem[9:11])), ErrBuffer)
				again := ok(win.Attach(mem[10:20]))
				check(again != a, "the number %d has been used before", again)
				for _, at := range []int64{b, c, none, empty} {
					must(win.Detach(at))
				}
				must(Send(w, []int64{a, again}, 1, 0))
				awaitSignal(w, 1)
				for i, v := range mem {
					same(v, map[bool]uint16{true: 7}[i == 10])
				}
				buf := ok(Alloc[uint16](1000))
				must(Send(w, []int64{ok(win.Attach(buf.Slice())), again}, 1, 0))
				awaitSignal(w, 1)
				same(buf.Slice()[999], 9)
				must(win.Free())
				must(buf.Free())
			} else {
				var at [2]int64
				ok(Recv(w, at[:], 0, 0))
				must(win.Lock(0, Exclusive))
				must(win.Put([]uint16{8}, 0, at[0]))
				is(win.Flush(0), ErrRange)
				must(win.Put([]uint16{7}, 0, at[1]))
				must(win.Unlock(0))
				sendSignal(w, 0)
				ok(Recv(w, at[:], 0, 0))
				must(win.Lock(0, Shared))
				must(win.Put([]uint16{9}, 0, at[0]+999))
				must(win.Unlock(0))
				sendSignal(w, 0)
				must(win.Free())
			}
			is(second(win.Attach(mem)), ErrComm)
			is(win.Detach(1), ErrComm)
			withWin(w, 1, func(win *Win[uint16]) {
				is(second(win.Attach(mem)), ErrUnavailable)
				is(win.Detach(0), ErrUnavailable)
			})
			is(second(WinDynamic[string](w)), ErrType)
			var no *Win[uint16]
			is(second(no.Attach(mem)), ErrComm)
			is(no.Detach(0), ErrComm)
		})
	})
}

const tagRequest = 3 // of internal/window

// putAlone is a request whose elements are a message with tag 1<<29.
func putAlone(at, n int64) []byte {
	return (&rma.Request{Kind: rma.PutAlone, Slot: 1 << 29, At: at, N: n}).Append(nil)
}

// Detach returns when no operation is under way at its memory, or its context ends. An operation that comes after it
// is outside. A caller whose context has ended calls it again.
func TestDetachWaits(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) { detachWaits(t, w, false) })
		run(2, func(w *Comm) { detachWaits(t, w, true) })
	})
}

// late: Detach is called again after the operation.
func detachWaits(t *testing.T, w *Comm, late bool) {
	withDynamic(w, 1000, func(win *Win[byte], mem []byte, at [][2]int64) {
		e, ctx := win.comm.group.Engine, win.comm.group.Context+agree.CtxRequests
		if w.Rank() == 0 {
			must(win.LockAll())
			must(e.Send(nil, ctx, 1, tagRequest, putAlone(at[1][0], 1000), 0))
			same(ok(win.FetchOp(Sum, 0, 1, at[1][1])), 0) // so rank 1 has seen it
			sendSignal(w, 1)
			awaitSignal(w, 1)
			must(win.Put([]byte{1}, 1, at[1][0]))
			must(win.FlushLocal(1))
			must(e.Send(nil, ctx, 1, 1<<29, append(make([]byte, 999), 5), 0))
			is(win.Flush(1), ErrRange)
			must(win.UnlockAll())
			sendSignal(w, 1)
		} else {
			awaitSignal(w, 0)
			soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			err := win.WithContext(soon).Detach(at[1][0])
			check(errors.Is(err, context.DeadlineExceeded), "the error is %v", err)
			is(second(win.Attach(mem[:1])), ErrBuffer)
			sendSignal(w, 0)
			if late {
				awaitSignal(w, 0)
			}
			must(win.Detach(at[1][0]))
			same(mem[999], 5)
			same(mem[0], 0)
			is(win.Detach(at[1][0]), ErrRange)
			must(win.WithContext(soon).Detach(at[1][1])) // nothing is under way
			if !late {
				awaitSignal(w, 0)
			}
		}
	})
}

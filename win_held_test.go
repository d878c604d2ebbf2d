package mpi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// A short Put or Accumulate at a rank that is reached by messages may be held back until a later call (§12.5): that is
// for the tests of this file.

// counting counts the eager messages of a device.
type counting struct {
	transport.Device
	sent *atomic.Int64
}

func (d *counting) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := d.Device.Connect(ctx, peer, address)
	if err != nil {
		return l, err
	}
	return &countingLink{l, d.sent}, nil
}

// Facts implements transport.Device. Every link is made by Connect.
func (d *counting) Facts() *transport.Facts {
	f := *d.Device.Facts()
	f.ConnectNow = nil
	return &f
}

type countingLink struct {
	transport.Link
	sent *atomic.Int64
}

func (l *countingLink) TrySend(h *wire.Header, payload []byte) bool {
	if h.Kind != wire.Eager {
		return l.Link.TrySend(h, payload)
	}
	l.sent.Add(1) // before the other rank has it
	ok := l.Link.TrySend(h, payload)
	if !ok {
		l.sent.Add(-1)
	}
	return ok
}

// An operation and its Flush, or its Unlock, are one message to the target and one back. Puts after each other are a
// message each, and the last one is the Flush.
func TestOperationAndFlushAreOneMessage(t *testing.T) {
	for name, open := range map[string]func(rank int, d transport.Device) transport.Device{
		"stream": func(rank int, d transport.Device) transport.Device { return faulty.Wrap(d, int64(rank), unreached) },
		"tcp":    tcpDevice,
	} {
		t.Run(name, func(t *testing.T) {
			var sent [2]atomic.Int64
			over(t, withDevices(func(rank int, d transport.Device) transport.Device {
				return &counting{open(rank, d), &sent[rank]}
			}))(2, func(w *Comm) {
				win := ok(WinCreate(w, make([]int64, 9)))
				if w.Rank() == 1 {
					awaitSignal(w, 0) // it sends nothing of its own meanwhile
					must(win.Free())
					return
				}
				buf := make([]int64, 2)
				costs := func(what string, out, back int64, calls func()) {
					t.Helper()
					for range 3 {
						before := [2]int64{sent[0].Load(), sent[1].Load()}
						calls()
						for i, want := range []int64{out, back} {
							if got := sent[i].Load() - before[i]; got != want {
								t.Errorf("%s: rank %d sends %d messages, want %d", what, i, got, want)
							}
						}
					}
				}
				must(win.LockAll())
				must(win.Get(buf, 1, 0))
				must(win.Flush(1))
				flush := func() { must(win.Flush(1)) }
				put := func() { must(win.Put(buf, 1, 2)) }
				costs("FetchOp", 1, 1, func() { ok(win.FetchOp(Sum, 1, 1, 0)); flush() })
				costs("Put", 1, 1, func() { put(); flush() })
				costs("RPut", 1, 1, func() { ok(ok(win.RPut(buf, 1, 2)).Wait()); flush() })
				costs("Accumulate", 1, 1, func() { must(win.Accumulate(Sum, buf, 1, 2)); flush() })
				costs("PutLayout", 1, 1, func() {
					must(win.PutLayout(buf, Contiguous(2, Of[int64]()), 1, 2, Vector(2, 1, 2, Of[int64]())))
					flush()
				})
				costs("Get", 1, 1, func() { must(win.Get(buf, 1, 2)); flush() })
				costs("RGet", 1, 1, func() { ok(ok(win.RGet(buf, 1, 2)).Wait()); flush() })
				costs("3 Puts", 3, 1, func() { put(); put(); put(); flush() })
				costs("Put and FetchOp", 2, 1, func() { put(); ok(win.FetchOp(Sum, 1, 1, 0)) })
				flush()
				must(win.UnlockAll())
				costs("Lock", 2, 2, func() { must(win.Lock(1, Exclusive)); put(); must(win.Unlock(1)) })
				costs("LockAll", 2, 2, func() { must(win.LockAll()); put(); must(win.UnlockAll()) })
				sendSignal(w, 1)
				must(win.Free())
			})
		})
	}
}

// Each call that completes an operation at its target (§12.5) completes one that is held, also where another goroutine
// makes the call.
func TestHeldOperationIsCompleted(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			me, other := w.Rank(), 1-w.Rank()
			g := ok(w.Group().Incl(other))
			elsewhere := func(f func() error) {
				var all sync.WaitGroup
				all.Go(func() { must(f()) })
				all.Wait()
			}
			none := func(*Win[int32]) {}
			lock := func(win *Win[int32]) { must(win.Lock(1, Exclusive)) }
			lockAll := func(win *Win[int32]) { must(win.LockAll()) }
			fence := func(win *Win[int32]) { must(win.Fence()) }
			unlock := func(win *Win[int32]) { must(win.Unlock(1)) }
			unlockAll := func(win *Win[int32]) { must(win.UnlockAll()) }
			for _, c := range []struct {
				begin, complete, end func(win *Win[int32]) // of rank 0
				target               func(win *Win[int32]) // of rank 1, until rank 0 has called complete
			}{
				{lock, unlock, none, none},
				{lock, func(win *Win[int32]) { must(win.Flush(1)) }, unlock, none},
				{lockAll, func(win *Win[int32]) { must(win.UnlockAll()) }, none, none},
				{lockAll, func(win *Win[int32]) { elsewhere(win.UnlockAll) }, none, none},
				{lockAll, func(win *Win[int32]) { must(win.FlushAll()) }, unlockAll, none},
				{lockAll, func(win *Win[int32]) { elsewhere(func() error { return win.Flush(1) }) },
					unlockAll, none},
				{fence, fence, none, func(win *Win[int32]) { must(win.Fence()); must(win.Fence()) }},
				{fence, func(win *Win[int32]) { must(win.Free()) }, none,
					func(win *Win[int32]) { must(win.Fence()); must(win.Free()) }},
				{func(win *Win[int32]) { must(win.Start(g)) }, func(win *Win[int32]) { must(win.Complete()) }, none,
					func(win *Win[int32]) { must(win.Post(g)); must(win.Wait()) }},
			} {
				for _, op := range []func(win *Win[int32]) error{
					func(win *Win[int32]) error { return win.Put([]int32{7}, 1, 3) },
					func(win *Win[int32]) error { return win.Accumulate(Sum, []int32{7}, 1, 3) },
					func(win *Win[int32]) error {
						return errors.Join(win.Accumulate(Replace, []int32{3}, 1, 3),
							win.Accumulate(Sum, []int32{4}, 1, 3))
					},
				} {
					mem := make([]int32, 4)
					win := ok(WinCreate(w, mem))
					if me == 1 {
						c.target(win)
						awaitSignal(w, 0)
						same(mem[3], 7)
					} else {
						c.begin(win)
						must(op(win))
						c.complete(win)
						sendSignal(w, 1)
						c.end(win)
					}
					if win.comm.ended.Load() == 0 {
						must(win.Free())
					}
				}
			}
		})
	})
}

// Accumulates of a goroutine at one element are made in order (§12.7.2) while other goroutines flush, and so have what
// is held sent.
func TestHeldAccumulatesKeepOrder(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		rounds := int32(inShort(2000, 200))
		run(2, func(w *Comm) {
			win := ok(WinCreate(w, make([]int32, 3)))
			if w.Rank() == 0 {
				must(win.LockAll())
				var stop atomic.Bool
				var all sync.WaitGroup
				for at := range int64(2) {
					all.Go(func() {
						for !stop.Load() && errors.Join(win.Put([]int32{1}, 1, 1+at), win.Flush(1)) == nil {
						}
					})
				}
				for i := range rounds {
					must(win.Accumulate(Replace, []int32{3 * i}, 1, 0))
					must(win.Accumulate(Replace, []int32{3*i + 1}, 1, 0))
					must(win.Accumulate(Sum, []int32{1}, 1, 0))
					same(ok(win.FetchOp(NoOp, 0, 1, 0)), 3*i+2)
				}
				stop.Store(true)
				all.Wait()
				must(win.UnlockAll()) // which fails if a Flush has
			}
			must(win.Free())
		})
	})
}

// A context ends a Flush that has sent what was held: it is made once, and the next Flush completes it.
func TestContextEndsFlushOfHeld(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		f := &frozen{make(chan struct{}), make(chan struct{})}
		run(2, func(w *Comm) {
			c := ok(w.Dup())
			win := ok(WinCreate(w, make([]int64, 1)))
			if w.Rank() == 1 {
				freezes(c, f)
				sendSignal(w, 0)
				<-f.over
			} else {
				awaitSignal(w, 1)
				must(win.LockAll())
				must(win.Accumulate(Sum, []int64{1}, 1, 0))
				must(win.Flush(1))
				func() {
					defer close(f.over)
					freeze(c, 1, f)
					must(win.Accumulate(Sum, []int64{1}, 1, 0))
					over, cancel := context.WithCancel(t.Context())
					cancel()
					is(win.WithContext(over).Accumulate(Sum, []int64{100}, 1, 0), context.Canceled)
					is(win.WithContext(over).Flush(1), context.Canceled) // which sends nothing
					for range 2 {
						ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
						is(win.WithContext(ctx).Flush(1), context.DeadlineExceeded)
						cancel()
					}
				}()
				must(win.Flush(1))
				same(ok(win.FetchOp(NoOp, 0, 1, 0)), 2)
				must(win.UnlockAll())
			}
			must(Barrier(w))
			must(win.Free())
			must(c.Free())
		})
	})
}

// Where the target has died, an operation that is held makes each Flush, and the Unlock, ErrPeerFailed. None waits.
func TestHeldOperationAtTheDead(t *testing.T) {
	for _, heard := range []bool{false, true} { // the origin has heard of the death before it calls Flush
		var dies transport.Device
		died, over0 := make(chan struct{}), make(chan struct{})
		overLoop(t, withDevices(func(rank int, d transport.Device) transport.Device {
			if d = faulty.Wrap(d, int64(rank), unreached); rank == 1 {
				dies = d
			}
			return d
		}))(2, func(w *Comm) {
			win := ok(WinCreate(w, make([]int64, 1)))
			if w.Rank() == 1 {
				awaitSignal(w, 0)
				dies.Close() // as a kill does: the engine says nothing
				close(died)
				<-over0
				return
			}
			defer close(over0)
			must(win.LockAll())
			must(win.Put([]int64{1}, 1, 0))
			must(win.Flush(1))
			must(win.Put([]int64{2}, 1, 0))
			sendSignal(w, 1)
			<-died
			if heard {
				is(second(Recv[byte](w, nil, 1, 9)), ErrPeerFailed)
			}
			is(win.Flush(1), ErrPeerFailed)
			is(win.FlushAll(), ErrPeerFailed)
			is(win.UnlockAll(), ErrPeerFailed)
		})
	}
}

// The rank tells of a Get outside its memory in the next Flush that asks it. So a Flush asks after a FlushLocal that
// has failed, and the Flush of a later Put does not fail for that Get.
func TestGetOutsideIsToldOnce(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			win := ok(WinDynamic[int64](w))
			at := ok(win.Attach(make([]int64, 2)))
			must(Barrier(w))
			must(win.LockAll())
			other, buf := 1-w.Rank(), make([]int64, 2)
			must(win.Get(buf, other, at+1))
			is(win.FlushLocal(other), ErrRange)
			is(win.Flush(other), ErrRange)
			must(win.Get(buf, other, at+1))
			is(win.Flush(other), ErrRange)
			must(win.Put(buf, other, at))
			must(win.Flush(other))
			must(win.Get(buf, other, at))
			must(win.UnlockAll())
			must(win.Free())
		})
	})
}

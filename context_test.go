package mpi

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/agree"
)

// Contexts that end: the call returns the context's error, its operation is cancelled or completed and never half done,
// the buffer is the caller's again, and later messages are intact.

func TestContextAlreadyEnded(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	quiet(t, func(w *Comm) {
		for _, ctx := range []context.Context{ended, late} {
			c := w.WithContext(ctx)
			every(func(verb string, call func(c *Comm, to, tag int) error) {
				is(call(c, 1, 1), ctx.Err())
				is(call(c, ProcNull, 1), ctx.Err())
			})
		}
	})
}

// A rank that calls a collective after its deadline has entered it, as a rank that calls just before: otherwise its
// next call would be taken for that one, and a barrier would let ranks go that should wait.
func TestCollectiveAfterItsContext(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		var entered atomic.Int32
		run(3, func(w *Comm) {
			c := w
			if w.Rank() == 0 {
				c = w.WithContext(ended())
			}
			barrier := func() {
				if err := Barrier(c); w.Rank() == 0 {
					is(err, context.Canceled)
				} else {
					must(err)
				}
			}
			barrier()
			barrier()
			if d, err := c.Dup(); w.Rank() == 0 {
				is(err, context.Canceled)
			} else {
				must(err)
				must(d.Free())
			}
			if w.Rank() == 0 {
				for range 100 { // so that a wrong barrier lets the other ranks go before
					runtime.Gosched()
				}
			}
			entered.Add(1)
			must(Barrier(w))
			same(entered.Load(), 3)
			d := ok(w.Dup())
			in := []int{0}
			ok(Sendrecv(d, []int{w.Rank()}, (w.Rank()+1)%3, 1, in, (w.Rank()+2)%3, 1))
			same(in[0], (w.Rank()+2)%3)
			must(d.WithContext(ended()).Free()) // it returns at once
		})
		run(1, func(w *Comm) {
			late, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
			defer stop()
			for _, ctx := range []context.Context{ended(), late} {
				is(Barrier(w.WithContext(ctx)), ctx.Err())
				is(second(w.WithContext(ctx).Dup()), ctx.Err())
			}
			must(Barrier(w))
			must(ok(w.Dup()).Free())
		})
	})
}

// endsWith ends ctx as soon as something has begun, and not before.
func endsWith(begun func() bool, ctx context.Context, cancel func()) {
	for !begun() && ctx.Err() == nil {
		runtime.Gosched()
	}
	cancel()
}

// pending: w has so many operations under way.
func pending(w *Comm, operations int) func() bool {
	return func() bool { return w.group.Engine.Pending() >= operations }
}

// nextCollective: a collective call on w has begun that had not when nextCollective was called.
func nextCollective(w *Comm) func() bool {
	before := w.group.CallsBegun()
	return func() bool { return w.group.CallsBegun() > before }
}

// Every call that can wait, while its peer does not call the library and never will for this message.
func TestContextEndsWhileWaiting(t *testing.T) {
	buf := message(long, 1)
	in := make([]byte, long)
	calls := map[string]func(c *Comm) error{
		"Recv":            func(c *Comm) error { return second(Recv(c, in, 1, 1)) },
		"Recv from any":   func(c *Comm) error { return second(Recv(c, in, AnySource, AnyTag)) },
		"RecvAlloc":       func(c *Comm) error { _, _, err := RecvAlloc[byte](c, 1, 1); return err },
		"RecvObject":      func(c *Comm) error { _, _, err := RecvObject[int](c, 1, 1); return err },
		"Probe":           func(c *Comm) error { return second(Probe(c, 1, 1)) },
		"Mprobe":          func(c *Comm) error { _, _, err := Mprobe(c, AnySource, 1); return err },
		"Send, long":      func(c *Comm) error { return Send(c, buf, 1, 1) },
		"Ssend, short":    func(c *Comm) error { return Ssend(c, buf[:short], 1, 1) },
		"Ssend, empty":    func(c *Comm) error { return Ssend(c, buf[:0], 1, 1) },
		"Ssend to self":   func(c *Comm) error { return Ssend(c, buf, 0, 1) },
		"SendObject":      func(c *Comm) error { return SendObject(c, buf, 1, 1) },
		"Sendrecv":        func(c *Comm) error { return second(Sendrecv(c, buf, 1, 1, in, 1, 1)) },
		"SendrecvReplace": func(c *Comm) error { return second(SendrecvReplace(c, slices.Clone(buf), 1, 1, 1, 1)) },
		"Irecv, Wait":     func(c *Comm) error { return second(ok(Irecv(c, in, 1, 1)).Wait()) },
		"Isend, Wait":     func(c *Comm) error { return second(ok(Isend(c, buf, 1, 1)).Wait()) },
		"Issend, Wait":    func(c *Comm) error { return second(ok(Issend(c, buf[:short], 1, 1)).Wait()) },
		"RecvInit, Wait":  func(c *Comm) error { r := ok(RecvInit(c, in, 1, 1)); must(r.Start()); return second(r.Wait()) },
		"WaitAll":         func(c *Comm) error { return WaitAll(ok(Irecv(c, in, 1, 1)), nil, ok(Isend(c, buf, 1, 1))) },
		"WaitAny":         func(c *Comm) error { _, _, err := WaitAny(nil, ok(Irecv(c, in, 1, 1))); return err },
		"WaitSome":        func(c *Comm) error { _, _, err := WaitSome(ok(Irecv(c, in, 1, 1))); return err },
		"Test":            func(c *Comm) error { return untilTest(ok(Irecv(c, in, 1, 1))) },
		"Test of a send":  func(c *Comm) error { return untilTest(ok(Issend(c, buf[:short], 1, 1))) },
	}
	operations := map[string]int{"WaitAll": 2} // that a call starts before it waits; the others start one
	everywhere(t, func(t *testing.T, run runner) {
		over := make(chan bool) // the call of rank 0 is
		names := slices.Sorted(maps.Keys(calls))
		if testing.Short() && (strings.HasSuffix(t.Name(), "/stream") || strings.Contains(t.Name(), "/faulty-")) {
			names = names[len(names)/2:] // the engine waits for those as over loop
		}
		if sendsStay(t) {
			names = slices.DeleteFunc(names, func(name string) bool {
				lower := strings.ToLower(name)
				return strings.Contains(lower, "send") || name == "WaitAll"
			})
		}
		run(2, func(w *Comm) {
			for _, name := range names {
				if w.Rank() == 0 {
					exchangeSignals(w, 1) // connected
					ctx, cancel := context.WithCancel(t.Context())
					go endsWith(pending(w, max(operations[name], 1)), ctx, cancel)
					err := calls[name](w.WithContext(ctx))
					check(errors.Is(err, context.Canceled), "%s: %v", name, err)
					check(w.group.Engine.Pending() == 0, "%s: %d operations are left", name, w.group.Engine.Pending())
					over <- true
					must(Send(w, message(long, 2), 1, 1))
					ok(Recv(w, in, 1, 1))
					whole(in, 3)
					continue
				}
				echoSignals(w, 0)
				<-over // it does not call the library meanwhile
				got := make([]byte, long)
				same(ok(Recv(w, got, AnySource, AnyTag)), Status{Source: 0, Tag: 1, Bytes: long})
				whole(got, 2)
				_, found, err := Iprobe(w, AnySource, AnyTag)
				check(!found && err == nil, "%s: something is left: %v %v", name, found, err)
				must(Send(w, message(long, 3), 0, 1))
			}
		})
	})
}

func untilTest(r *Request) error {
	for {
		if done, _, err := r.Test(); done || err != nil {
			return err
		}
	}
}

// A send that waits for credit (the receiver's memory for unexpected messages is full) has sent nothing yet.
func TestContextEndsWhileWaitingForCredit(t *testing.T) {
	tiny := WithEnviron([]string{"GORUN_UNEXPECTED_MAX=8KiB"})
	everywhere(t, func(t *testing.T, run runner) {
		if sendsStay(t) {
			return // and it knows no credit
		}
		for _, size := range []int{0, short, inShort(long, 20_000)} {
			const n = 60 // more envelopes than there is credit
			over := make(chan bool)
			run(2, func(w *Comm) {
				if w.Rank() == 0 {
					var rs []*Request
					for i := range n {
						rs = append(rs, ok(Isend(w, message(size, i), 1, 1)))
					}
					// There is no credit however long it waits: no message is received before its deadline.
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					defer cancel()
					err := Send(w.WithContext(ctx), message(size, n), 1, 1)
					check(errors.Is(err, context.DeadlineExceeded), "%v", err)
					r := ok(Isend(w, message(size, n+1), 1, 1))
					close(over)
					must(WaitAll(append(rs, r)...))
					return
				}
				<-over
				buf := make([]byte, size)
				for i := range n {
					ok(Recv(w, buf, 0, 1))
					whole(buf, i)
				}
				ok(Recv(w, buf, 0, 1))
				whole(buf, n+1) // n was never sent
			}, tiny)
		}
	})
}

// At whatever moment a context ends, a message arrives whole or never, and sender and receiver agree which.
func TestContextEndsAtAnyMoment(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, size := range []int{short, long} {
			n := inShort(150, 40)
			delivered := make([]bool, n)
			sent := make(chan bool)
			run(2, func(w *Comm) {
				r := newRand(uint64(size), uint64(w.Rank()))
				if w.Rank() == 0 {
					for i := range n {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(200))*time.Microsecond)
						err := Ssend(w.WithContext(ctx), message(size, i), 1, i)
						cancel()
						check(err == nil || errors.Is(err, context.DeadlineExceeded), "%v", err)
						delivered[i] = err == nil
					}
					must(Send[byte](w, nil, 1, n)) // the last
					close(sent)
					return
				}
				last, count := -1, 0
				for {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(200))*time.Microsecond)
					buf := make([]byte, size)
					st, err := Recv(w.WithContext(ctx), buf, 0, AnyTag)
					cancel()
					if err != nil {
						check(errors.Is(err, context.DeadlineExceeded), "%v", err)
						check(bytes.Equal(buf, make([]byte, size)), "the buffer of a cancelled receive was written")
						continue
					}
					if st.Tag == n {
						break
					}
					check(st.Tag > last && st.Bytes == int64(size) && !st.Cancelled, "%+v after %d", st, last)
					whole(buf, st.Tag)
					last = st.Tag
					count++
				}
				<-sent
				want := 0
				for _, d := range delivered {
					if d {
						want++
					}
				}
				// What a library has been given it does not give back: a send that has ended may be received all the same.
				check(count == want || sendsStay(t) && count > want, "%d were received, %d were sent", count, want)
			})
		}
	})
}

// A set whose requests have different contexts: each context ends the waiting.
func TestWaitAnyWithSeveralContexts(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for ends := range 3 {
			run(1, func(w *Comm) {
				var rs []*Request
				var cancels []func()
				for tag := range 3 {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					cancels = append(cancels, cancel)
					rs = append(rs, ok(Irecv(w.WithContext(ctx), []int{0}, 0, tag)))
				}
				rs = append(rs, ok(Irecv(w, []int{0}, 0, 3))) // without a context
				go func() {
					runtime.Gosched()
					cancels[ends]()
				}()
				i, _, err := WaitAny(rs...)
				check(i == ends && errors.Is(err, context.Canceled), "%d %v", i, err)
				rs[i] = nil
				for _, tag := range []int{0, 1, 2, 3} {
					must(Send(w, []int{1}, 0, tag))
				}
				must(WaitAll(rs...))
			})
		}
	})
}

// A barrier whose context ends is finished in the background; the next one is a barrier all the same, and its own
// context counts although the one before is not over.
func TestContextEndsInBarrier(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		over := make(chan bool)
		var entered atomic.Int32
		run(3, func(w *Comm) {
			if w.Rank() == 0 {
				for range 2 {
					ctx, cancel := context.WithCancel(t.Context())
					go endsWith(nextCollective(w), ctx, cancel)
					err := Barrier(w.WithContext(ctx))
					check(errors.Is(err, context.Canceled), "%v", err)
				}
				r := ok(Irecv(w, make([]byte, long), 0, 1)) // the barrier does not hold up other calls
				must(Send(w, message(long, 1), 0, 1))
				ok(r.Wait())
				close(over)
			} else {
				<-over
				must(Barrier(w))
				must(Barrier(w))
			}
			entered.Add(1)
			must(Barrier(w))
			same(entered.Load(), 3)
			must(Barrier(w))
		})
	})
}

// Dup is collective too: when one rank's context ends in it the other ranks complete it, and the next Dup works.
func TestContextEndsInDup(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		over := make(chan bool)
		run(3, func(w *Comm) {
			if w.Rank() == 0 {
				ctx, cancel := context.WithCancel(t.Context())
				go endsWith(nextCollective(w), ctx, cancel)
				_, err := w.WithContext(ctx).Dup()
				check(errors.Is(err, context.Canceled), "%v", err)
				close(over)
			} else {
				<-over
				must(ok(w.Dup()).Free())
			}
			d := ok(w.Dup())
			in := []int{0}
			ok(Sendrecv(d, []int{w.Rank()}, (w.Rank()+1)%3, 1, in, (w.Rank()+2)%3, 1))
			same(in[0], (w.Rank()+2)%3)
			must(Barrier(d))
			must(d.Free())
		})
	})
}

// A communicator is freed by a rank whose calls on it have ended with their context: the other ranks, which come later,
// complete theirs, since that rank has entered.
func TestFreeAfterContextEndsInCollective(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, n := range []int{2, 3, 5} {
			freed := make(chan bool)
			run(n, func(w *Comm) {
				d := ok(w.Dup())
				all := d.Group()
				if w.Rank() == 0 {
					is(Barrier(d.WithContext(ended())), context.Canceled)
					is(second(d.WithContext(ended()).Dup()), context.Canceled)
					is(second(d.WithContext(ended()).CreateGroup(all, 1)), context.Canceled)
					must(d.Free())
					is(d.Free(), ErrComm)
					close(freed)
				} else {
					<-freed
					must(Barrier(d))
					must(ok(d.Dup()).Free())
					must(ok(d.CreateGroup(all, 1)).Free())
					must(d.Free())
				}
				must(Barrier(w))
				for isUsed(w.group.Numbers,
					d.group.Context/agree.ContextsEach) { // the last call has its answer, and is about to end
					runtime.Gosched()
				}
			})
		}
	})
}

// WithContext is a view: the same communicator, the same messages.
func TestWithContextIsTheSameCommunicator(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			c := w.WithContext(t.Context())
			same(c.Rank(), w.Rank())
			same(c.Size(), w.Size())
			same(c.Name(), w.Name())
			for i, size := range []int{0, short, long} {
				in := make([]byte, size)
				if w.Rank() == 0 {
					must(Send(c, message(size, i), 1, 1))
					ok(Recv(w, in, 1, 2))
				} else {
					ok(Recv(w, in, 0, 1))
					must(Ssend(c, message(size, i), 0, 2))
				}
				must(Barrier(c))
			}
			must(Barrier(w.WithContext(context.Background())))
			is(second(Recv(c.WithContext(ended()), []int{0}, 0, 1)), context.Canceled)
			must(Barrier(c)) // the other view is not ended
		})
	})
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A communicator says how its ranks reach each other.
func TestTransport(t *testing.T) {
	err := RunLocal(2, func(world *Comm) error {
		if got := world.Transport(); got != "loop" {
			t.Errorf("Transport under RunLocal is %q, want loop", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := (*Comm)(nil).Transport(); got != "" {
		t.Errorf("Transport of no communicator is %q", got)
	}
}

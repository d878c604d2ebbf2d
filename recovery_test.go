package mpi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/gorun-mpi/mpi/transport/faulty"
)

// outlive runs a body as ranks of which some die: die closes the engine of its rank, which the others see, and does not
// return. Each rank has a link to all others before: no launcher tells of deaths here.
func outlive(t *testing.T, n int, opt Option, body func(w *Comm, die func())) {
	t.Helper()
	defer watchdog(t)()
	errs := make([]error, n)
	var living sync.WaitGroup
	living.Add(n)
	RunLocal(n, func(w *Comm) (err error) {
		rank, dead := w.Rank(), false
		defer func() {
			switch p := recover(); {
			case dead:
				living.Wait() // with an error, RunLocal ends the other ranks
				err = errors.New("the rank has died")
			case p != nil:
				err = fmt.Errorf("%s: %v", testLines(), p)
				errs[rank] = fmt.Errorf("rank %d: %w", rank, err)
				fmt.Fprintf(os.Stderr, "%s: %v\n", t.Name(), errs[rank])
				fallthrough
			default:
				living.Done()
			}
		}()
		for other := range n {
			ok(Sendrecv(w, []byte{1}, other, 1, make([]byte, 1), other, 1))
		}
		body(w, func() {
			dead = true
			w.group.Engine.Close(errors.New("the rank has died"))
			living.Done()
			panic("the rank has died")
		})
		return nil
	}, opt)
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// whereRanksDie runs a test over fabrics whose ends can be seen.
func whereRanksDie(t *testing.T, test func(t *testing.T, opt func() Option)) {
	for name, opt := range map[string]func() Option{
		"loop":    func() Option { return loopBeneath },
		"2 hosts": func() Option { return onHosts(func(rank int) int { return rank % 2 }) },
		"stream":  func() Option { return misbehaving(0, unreached) },
		"tagged":  matchingItself,
		"faulty": func() Option {
			seed := faultySeeds(t.Name())[0]
			return misbehaving(seed, faulty.Random(seed))
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, opt) })
	}
}

// What random programs of package mpi_test use (recovery_random_test.go).
var (
	Outlive       = outlive
	WhereRanksDie = whereRanksDie
	OnTop         = onTop
	FewNumbers    = fewNumbers
)

// AddRole adds to what this test binary can be.
func AddRole(name string, role func() error) { roles[name] = role }

// WhereRanksDieToo runs a test over the transports between processes. The ranks are in one process all the same: the
// end of one is what its device says when it is closed.
func WhereRanksDieToo(t *testing.T, test func(t *testing.T, opt func() Option)) {
	for _, f := range betweenProcesses {
		t.Run(f.name, func(t *testing.T) { test(t, func() Option { return f.option(t) }) })
	}
}

// FailEngine ends the calls of a rank, as its death does.
func FailEngine(w *Comm) { w.group.Engine.Fail(errors.New("the rank is dying")) }

// EngineGone returns a function that reports whether the engine of a rank has been collected.
func EngineGone(w *Comm) func() bool {
	e := weak.Make(w.group.Engine)
	return func() bool { return e.Value() == nil }
}

// OpenOperations is how many operations a rank has under way that no goroutine of the library will end.
func OpenOperations(w *Comm) int {
	open, _ := w.group.Process.Finish(w.group.Engine.Flush, func() <-chan struct{} { return nil })
	return open
}

// NumbersInUse is how many communicators a rank has that are not freed, the world among them.
func NumbersInUse(w *Comm) (n int) {
	x := w.group.Numbers
	x.Mu.Lock()
	defer x.Mu.Unlock()
	for _, l := range x.Taken {
		if !l.Is() {
			n++
		}
	}
	return n
}

// outlived reports whether an error is one that a death or a revocation brings.
func outlived(err error) bool { return errors.Is(err, ErrPeerFailed) || errors.Is(err, ErrRevoked) }

// fails checks that f ends with a class, and with no other one.
func fails(what string, err, class error) {
	check(errors.Is(err, class), "%s: the error is %v, not of class %v", what, err, class)
}

// A program goes on without ranks that die, in the way of docs/recovery.md: who sees a failure revokes, and all shrink.
// The last two ranks that die do so while the others shrink, and agree.
func TestShrinkAndGoOn(t *testing.T) {
	whereRanksDie(t, func(t *testing.T, opt func() Option) {
		for _, first := range []int{0, 3} { // the rank that decides, and another one
			const n = 6
			outlive(t, n, opt(), func(w *Comm, die func()) {
				c, old, turn := w, w.Rank(), 0
				dies := map[int]int{first: 2, 5: 4}[old] // after so many calls
				for done := 0; done < 6; turn++ {
					if turn == dies && dies > 0 {
						die()
					}
					sum := []int{0}
					err := Allreduce(c, []int{1 << old}, sum, Sum)
					flags := uint32(1)
					if err != nil {
						check(outlived(err), "%v", err)
						must(c.Revoke())
						flags = 0
					}
					agreed, err := c.Agree(flags)
					if err == nil && agreed == 1 {
						want := 0
						for r := range c.Size() {
							want |= 1 << ok(c.Group().Translate([]int{r}, w.Group()))[0]
						}
						same(sum[0], want)
						done++
						continue
					}
					if old == 1 && turn > 3 {
						die()
					}
					d := ok(c.Shrink())
					if c != w {
						must(c.Free())
					}
					c = d
				}
				check(c.Size() >= n-3 && c.Size() < n, "%d ranks are left", c.Size())
				all := ok(c.Group().Translate(upTo(c.Size()), w.Group()))
				check(slices.IsSorted(all) && !slices.Contains(all, first), "the ranks are %v", all)
				ring(c, 7)
				must(c.Free())
			})
		}
	})
}

// Every call that waits on a communicator ends with ErrRevoked when one rank revokes it, and every later one.
func TestRevokeEndsCalls(t *testing.T) {
	buf := func() []byte { return make([]byte, long) }
	request := func(r *Request, err error) error {
		if err == nil {
			_, err = r.Wait()
		}
		return err
	}
	second := func(_ any, err error) error { return err }
	waits := map[string]func(c *Comm) error{
		"Recv":       func(c *Comm) error { return second(Recv(c, buf(), 0, 5)) },
		"Recv any":   func(c *Comm) error { return second(Recv(c, buf(), AnySource, AnyTag)) },
		"Irecv":      func(c *Comm) error { return request(Irecv(c, buf(), 0, 5)) },
		"Ssend":      func(c *Comm) error { return Ssend(c, []byte{1}, 0, 6) },
		"Send":       func(c *Comm) error { return Send(c, buf(), 0, 6) },
		"Isend":      func(c *Comm) error { return request(Isend(c, buf(), 0, 6)) },
		"Issend":     func(c *Comm) error { return request(Issend(c, []byte{1}, 0, 6)) },
		"Sendrecv":   func(c *Comm) error { return second(Sendrecv(c, buf(), 0, 6, buf(), 0, 5)) },
		"Probe":      func(c *Comm) error { return second(Probe(c, 0, 5)) },
		"Probe any":  func(c *Comm) error { return second(Probe(c, AnySource, 5)) },
		"Barrier":    Barrier,
		"Bcast":      func(c *Comm) error { return Bcast(c, buf(), 0) },
		"Allreduce":  func(c *Comm) error { return Allreduce(c, buf(), buf(), Sum) },
		"Iallreduce": func(c *Comm) error { return request(Iallreduce(c, []int{1}, []int{2}, Sum)) },
		"Ibcast":     func(c *Comm) error { return request(Ibcast(c, buf(), 0)) },
		"Dup":        func(c *Comm) error { return second(c.Dup()) },
		"Split":      func(c *Comm) error { return second(c.Split(0, 0)) },
		"with a context": func(c *Comm) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			return Barrier(c.WithContext(ctx))
		},
		"persistent": func(c *Comm) error {
			r, err := RecvInit(c, buf(), 0, 5)
			if err != nil {
				return err
			}
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
			is(r.Start(), ErrRevoked)
			must(r.Free())
			return err
		},
		"in a loop of tests": func(c *Comm) error {
			r, err := Irecv(c, buf(), 0, 5)
			for done := false; !done && err == nil; {
				done, _, err = r.Test()
			}
			return err
		},
		"in a set": func(c *Comm) error {
			var s Set
			s.Add(Irecv(c, buf(), 0, 5))
			s.Add(Isend(c, buf(), 0, 6))
			return s.Wait()
		},
	}
	// Over UCX and libfabric no sender takes back what it sends. The ranks that hear of the revocation first receive and
	// drop it, and the sends of a rank that has not heard yet end well.
	sends := []string{"Ssend", "Send", "Isend", "Issend"}
	everywhere(t, func(t *testing.T, run runner) {
		stay := sendsStay(t)
		run(4, func(w *Comm) {
			for _, name := range slices.Sorted(maps.Keys(waits)) {
				c := ok(w.Dup())
				must(Barrier(c)) // twice: the ranks have a board then
				must(Barrier(c))
				if err := Barrier(c); err != nil { // rank 0 may have left it
					is(err, ErrRevoked)
				}
				if w.Rank() == 0 {
					time.Sleep(time.Millisecond) // the others are in their calls, mostly
					must(c.Revoke())
				} else if err := waits[name](c); err != nil || !stay || !slices.Contains(sends, name) {
					fails(name, err, ErrRevoked)
				}
				is(Barrier(c), ErrRevoked)
				must(c.Revoke())
				same(ok(c.Agree(7)), 7)
				must(c.Free())
				is(c.Revoke(), ErrComm)
			}
		})
	})
}

// Later calls on a revoked communicator are ErrRevoked, calls of requests and messages too, and what needs no other
// rank still works.
func TestCallsAfterRevoke(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			c := ok(w.Dup())
			peer := 1 - c.Rank()
			send, recv := ok(SendInit(c, []byte{1}, peer, 1)), ok(RecvInit(c, []byte{1}, peer, 1))
			barrier := ok(BarrierInit(c))
			must(Send(c, []byte{9}, peer, 3))
			m, _, err := Mprobe(c, peer, 3)
			must(err)
			must(Barrier(w))
			must(c.Revoke())
			buf := []byte{0}
			for what, err := range map[string]error{
				"Send": Send(c, buf, peer, 1), "Ssend": Ssend(c, buf, peer, 1), "Bsend": Bsend(c, buf, peer, 1),
				"Start of a send": send.Start(), "Start of a receive": recv.Start(),
				"Start of a barrier": barrier.Start(), "Allreduce": Allreduce(c, []int{1}, []int{1}, Sum),
			} {
				fails(what, err, ErrRevoked)
			}
			_, err = Recv(c, buf, peer, 1)
			is(err, ErrRevoked)
			_, err = Irecv(c, buf, AnySource, AnyTag)
			is(err, ErrRevoked)
			_, _, err = Iprobe(c, peer, 1)
			is(err, ErrRevoked)
			_, err = Mrecv(m, buf)
			is(err, ErrRevoked)
			_, err = c.Dup()
			is(err, ErrRevoked)
			_, err = c.CreateGroup(c.Group(), 1)
			is(err, ErrRevoked)
			_, err = WinAlloc[int](c, 1)
			is(err, ErrRevoked)
			must(c.SetName("gone"))
			same(c.Size(), 2)
			same(ok(c.Compare(w)), Congruent)
			same(c.Failed().Size(), 0)
			same(ok(c.AckFailed(3)), 0)
			d := ok(c.Shrink())
			must(send.Free())
			must(recv.Free())
			must(barrier.Free())
			must(c.Free())
			is(Barrier(c), ErrComm)
			must(Barrier(d))
			must(d.Free())
		})
	})
}

// All ranks hear of a revocation also if the rank that has called Revoke dies when it returns, and where each of them
// waits for another rank.
func TestRevokeAndDie(t *testing.T) {
	whereRanksDie(t, func(t *testing.T, opt func() Option) {
		const n = 7
		outlive(t, n, opt(), func(w *Comm, die func()) {
			c := ok(w.Dup())
			if err := Barrier(c); err != nil { // others may be past it, and rank 3 dead
				check(outlived(err), "%v", err)
			}
			if w.Rank() == 3 {
				must(c.Revoke())
				die()
			}
			_, err := Recv(c, []byte{0}, (w.Rank()+1)%n, 9)
			check(outlived(err), "%v", err)
			if w.Rank() != 2 { // which waits for the rank that dies
				is(err, ErrRevoked)
			}
			d := ok(c.Shrink())
			check(d.Size() == n-1 || d.Size() == n, "%d ranks are left", d.Size())
		})
	})
}

// Agree gives all that live the same, with an error until all have acknowledged the failures.
func TestAgree(t *testing.T) {
	whereRanksDie(t, func(t *testing.T, opt func() Option) {
		outlive(t, 4, opt(), func(w *Comm, die func()) {
			flags := []uint32{0b1110, 0b0111, 0b1111, 0b0110}[w.Rank()]
			same(ok(w.Agree(flags)), 0b0110)
			if w.Rank() == 1 {
				die()
			}
			_, err := Recv(w, []byte{0}, 1, 9)
			is(err, ErrPeerFailed)
			same(w.Failed().Size(), 1)
			same(ok(w.Failed().Translate([]int{0}, w.Group()))[0], 1)
			got, err := w.Agree(flags)
			is(err, ErrPeerFailed)
			same(got, 0b0110)
			if w.Rank() == 2 {
				same(ok(w.AckFailed(5)), 1)
			}
			_, err = w.Agree(flags) // one has acknowledged
			is(err, ErrPeerFailed)
			same(ok(w.AckFailed(1)), 1)
			same(ok(w.AckFailed(0)), 1)
			_, err = w.AckFailed(-1)
			is(err, ErrCount)
			same(ok(w.Agree(flags)), 0b0110)
		})
	})
}

// A receive from any source waits for the ranks of its communicator that live and are not acknowledged to be dead: a
// failure elsewhere does not end it.
func TestAnySourceAfterAck(t *testing.T) {
	whereRanksDie(t, func(t *testing.T, opt func() Option) {
		outlive(t, 5, opt(), func(w *Comm, die func()) {
			me := w.Rank()
			half := ok(w.Split(me/3, me)) // 0, 1, 2 and 3, 4
			if me == 4 {
				die()
			}
			_, err := Recv(w, []byte{0}, AnySource, 9)
			is(err, ErrPeerFailed)
			_, err = Probe(w, AnySource, 9)
			is(err, ErrPeerFailed)
			if me < 3 { // no member has failed
				ring(half, 1)
				must(Barrier(half))
			} else {
				_, err = Recv(half, []byte{0}, AnySource, 9)
				is(err, ErrPeerFailed)
			}
			same(ok(w.AckFailed(1)), 1)
			got := []byte{0}
			if me == 0 {
				for range 3 {
					st := ok(Recv(w, got, AnySource, 8))
					same(int(got[0]), st.Source)
				}
				_, found, err := Iprobe(w, AnySource, 8)
				check(!found && err == nil, "%v", err)
			} else {
				must(Send(w, []byte{byte(me)}, 0, 8))
			}
			ok(w.Agree(0))
			if me == 3 {
				die()
			}
			_, err = Recv(w, got, AnySource, 9)
			is(err, ErrPeerFailed)
			failed := ok(w.Failed().Translate([]int{0, 1}, w.Group()))
			check(slices.Equal(failed, []int{4, 3}), "these have failed: %v", failed)
		})
	})
}

// Ranks that die at any moment of some agreements, the ones that decide and two at once among them, leave the others
// with equal values, and these go on.
func TestDeathsInAgree(t *testing.T) {
	whereRanksDie(t, func(t *testing.T, opt func() Option) {
		const n, calls = 6, 4
		for i := range inShort(120, 24) {
			victims := [][]int{{0}, {0, 1}, {4}, {0, 2}, {2, 3}, {5}, {1}, {0, 4}}[i%8]
			rnd := newRand(uint64(i), 1)
			after := map[int]time.Duration{}
			for _, v := range victims {
				after[v] = time.Duration(rnd.IntN(600)) * time.Microsecond
			}
			var mu sync.Mutex
			values := map[string]bool{}
			outlive(t, n, opt(), func(w *Comm, die func()) {
				var dying atomic.Bool
				if d, is := after[w.Rank()]; is {
					time.AfterFunc(d, func() {
						dying.Store(true)
						w.group.Engine.Fail(errors.New("the rank is dying"))
					})
				}
				var got string
				for k := range calls {
					flags, err := w.Agree(^uint32(1 << w.Rank() << (8 * k)))
					got += fmt.Sprintf("%x %v ", flags, errors.Is(err, ErrPeerFailed))
				}
				d, err := w.Shrink()
				for err == nil && d.Size() != n-len(victims) {
					d, err = d.Shrink()
				}
				if dying.Load() {
					die()
				}
				must(err)
				mu.Lock()
				values[got+fmt.Sprint(d.group.Context)] = true
				mu.Unlock()
				must(Barrier(d))
			})
			if len(values) != 1 {
				t.Errorf("ranks die after %v: %v", after, slices.Collect(maps.Keys(values)))
			}
		}
	})
}

// The ranks of both groups of an intercommunicator agree, and revoke and shrink it.
func TestRecoveryOfIntercomm(t *testing.T) {
	whereRanksDie(t, func(t *testing.T, opt func() Option) {
		outlive(t, 5, opt(), func(w *Comm, die func()) {
			me := w.Rank()
			side := ok(w.Split(me%2, me)) // 0, 2, 4 and 1, 3
			inter := ok(side.Intercomm(0, w, 1-me%2, 3))
			same(ok(inter.Agree(^uint32(1<<me))), ^uint32(0b11111))
			if me == 2 {
				must(inter.Revoke())
				die()
			}
			_, err := Recv(inter, []byte{0}, 0, 9)
			is(err, ErrRevoked)
			d := ok(inter.Shrink())
			for d.Size()+d.RemoteSize() == 5 && me%2 == 0 && d.Size() == 3 || d.RemoteSize() == 3 {
				d = ok(d.Shrink()) // the rank had not died yet
			}
			same(d.Size()+int(d.group.Local.N), 4)
			got := []byte{0}
			for i := range d.Size() {
				ok(Sendrecv(d, []byte{byte(me)}, i, 4, got, i, 4))
				same(int(got[0])%2, 1-me%2)
			}
			must(d.Free())
			must(inter.Free())
		})
	})
}

// Agree ends with ErrPeerFailed where a rank has returned, or has freed the communicator, and never calls it.
func TestAgreeWithoutACall(t *testing.T) {
	overLoop(t)(4, func(w *Comm) {
		c := ok(w.Dup())
		if w.Rank() == 2 {
			must(c.Free())
			return
		}
		_, err := c.Agree(1)
		is(err, ErrPeerFailed)
		if w.Rank() == 3 {
			return
		}
		got, err := w.Agree(3) // two ranks have returned, or will
		is(err, ErrPeerFailed)
		same(got, 3)
		same(ok(w.AckFailed(4)), 2)
		same(ok(w.Agree(2)), 2)
	})
}

// A rank that has the value, and has freed the communicator, tells it to a rank that has lost its way to it.
func TestLateAsk(t *testing.T) {
	whereRanksDie(t, func(t *testing.T, opt func() Option) {
		for range inShort(20, 5) {
			outlive(t, 8, opt(), func(w *Comm, die func()) {
				c := ok(w.Dup())
				d, err := c.Shrink()
				if me := w.Rank(); me == 0 || me == 4 { // ranks that tell others the result
					die()
				}
				must(err)
				must(c.Free())
				got := ok(d.Shrink())
				for got.Size() != 6 {
					got = ok(got.Shrink())
				}
				must(Barrier(got))
			})
		}
	})
}

// A context ends Agree and Shrink, and the call goes on for the others.
func TestContextEndsAgree(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if w.Rank() == 1 {
				_, err := w.WithContext(ctx).Agree(5)
				is(err, context.Canceled)
				_, err = w.WithContext(ctx).Shrink()
				is(err, context.Canceled)
				return
			}
			same(ok(w.Agree(7)), 5)
			same(ok(w.Shrink()).Size(), 3)
		})
	})
}

// Ranks that call Agree and Shrink at one time hear of the mistake.
func TestAgreeAgainstShrink(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		var err error
		if w.Rank() == 0 {
			_, err = w.Agree(1)
		} else {
			_, err = w.Shrink()
		}
		is(err, ErrComm)
		same(ok(w.Agree(1)), 1)
	})
}

// A shrunk communicator has a number of its own, however many the ranks have in use, and gives it back.
func TestShrinkNumbers(t *testing.T) {
	overLoop(t)(3, func(w *Comm) {
		var held []*Comm
		for i := range 5 {
			if c := ok(w.Split([]int{0, 0, Undefined}[(w.Rank()+i)%3], 0)); c != nil { // each pair has others
				held = append(held, c)
			}
		}
		for range 20 {
			c := ok(w.Shrink())
			must(Barrier(c))
			must(c.Free())
		}
		for _, c := range held {
			must(c.Free())
		}
		fewNumbers(w, 4)
		c := ok(w.Shrink()) // a number that is not small
		ring(c, 3)
	})
}

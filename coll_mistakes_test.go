package mpi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// Buffers of one call that share memory are an error: the result would be wrong, at some lengths.
func TestBuffersThatShareMemory(t *testing.T) {
	over(t)(2, func(w *Comm) {
		x := make([]int, 8)
		lists := func(a, b []int) [][]int { return [][]int{a, b} }
		for i, err := range []error{
			Allreduce(w, x, x, Sum),
			Allreduce(w, x[:4], x[3:7], Sum),
			Scan(w, x, x, Sum),
			Reduce(w, x[:1], x[:1], Sum, w.Rank()),
			ReduceScatterBlock(w, x[:2], x[1:2], Sum),
			ReduceScatter(w, x[:2], x[1:2], []int{1, 1}, Sum),
			Gather(w, x[:1], x[:2], w.Rank()),
			Scatter(w, x[:2], x[:1], w.Rank()),
			Allgather(w, x[:1], x[:2]),
			Alltoall(w, x[:2], x[:2]),
			Gatherv(w, x[:1], lists(x[:1], x[:1]), w.Rank()),
			Gatherv(w, []int{1}, lists(x[:1], x[:1]), w.Rank()), // two ranks' blocks
			Scatterv(w, lists(x[:1], x[:1]), x[:1], w.Rank()),
			Allgatherv(w, []int{1}, lists(x[:1], x[:1])),
			Alltoallv(w, lists(x[:1], x[1:2]), lists(x[2:3], x[1:2])),
		} {
			check(errors.Is(err, ErrBuffer), "call %d: %v", i, err)
		}
		must(Alltoallv(w, lists(x[:1], x[:1]), lists(x[2:3], x[1:2]))) // one block for both
		must(Allreduce(w, x[:4], x[4:], Sum))                          // neighbours
		must(Allreduce(w, x[:0], x[:0], Sum))
	})
}

// The root of a Bcast with a context only reads its buffer, as others may do at the same time.
func TestBcastReadsAtTheRoot(t *testing.T) {
	over(t)(2, func(w *Comm) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		buf, sum := make([]int, 100), 0
		var reads sync.WaitGroup
		if w.Rank() == 0 {
			reads.Go(func() {
				for _, x := range buf {
					sum += x
				}
			})
		}
		must(Bcast(w.WithContext(ctx), buf, 0))
		reads.Wait()
	})
}

// Counts of Gatherv, Scatterv and Alltoallv that differ between a sender and its receiver are an error at all ranks,
// which names the two. No rank waits for what is not sent.
func TestCountsOfPairsThatDiffer(t *testing.T) {
	const n = 5
	blocks := func(lengths func(i int) int) [][]int {
		all := make([][]int, n)
		for i := range all {
			all[i] = make([]int, lengths(i))
		}
		return all
	}
	for odd := range n {
		for _, its := range []int{0, 1, 3} {
			// The odd rank gives, or takes, its where another one is ready for 2.
			other := (odd + 2) % n
			for name, call := range map[string]func(w *Comm) error{
				"Gatherv": func(w *Comm) error {
					length := func(i int) int { return 2 }
					if w.Rank() == odd {
						return Gatherv(w, make([]int, its), nil, other)
					}
					return Gatherv(w, make([]int, 2), blocks(length), other)
				},
				"Scatterv": func(w *Comm) error {
					length := func(i int) int { return 2 }
					if w.Rank() == odd {
						return Scatterv(w, nil, make([]int, its), other)
					}
					return Scatterv(w, blocks(length), make([]int, 2), other)
				},
				"Alltoallv": func(w *Comm) error {
					return Alltoallv(w, blocks(func(i int) int {
						if w.Rank() == odd && i == other {
							return its
						}
						return 2
					}), blocks(func(int) int { return 2 }))
				},
			} {
				t.Run(fmt.Sprintf("%s, rank %d has %d", name, odd, its), func(t *testing.T) {
					over(t)(n, func(w *Comm) {
						err := call(w)
						is(err, ErrCount)
						from, to, gives, takes := odd, other, its, 2
						if name == "Scatterv" {
							from, to, gives, takes = other, odd, 2, its
						}
						text := fmt.Sprintf("rank %d calls %s with %d elements for rank %d, which calls it with %d from rank %d",
							from, strings.ToLower(name), gives, to, takes, from)
						check(strings.Contains(err.Error(), text), "%v does not say %q", err, text)
						must(Barrier(w))
					})
				})
			}
		}
	}
}

// What one rank's caller gives wrongly is an error at all ranks, which says whose mistake it is. All can go on.
func TestMistakeOfOneRank(t *testing.T) {
	const n = 5
	for odd := range n {
		over(t)(n, func(w *Comm) {
			pick := func(right, wrong int) int {
				if w.Rank() == odd {
					return wrong
				}
				return right
			}
			x, y := make([]int, n), make([]int, n)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, m := range []struct {
				err, class error
				text       string
			}{
				{Bcast(w, x, pick(0, 9)), ErrRoot, "the root is 9"},
				{Bcast(w.WithContext(ctx), x, pick(0, 9)), ErrRoot, "the root is 9"},
				{Allgather(w, x[:1], y[:pick(n, n-1)]), ErrCount, "recv has 4 elements"},
				{Allreduce(w, x, y, []Op[int]{Sum[int], nil}[pick(0, 1)]), ErrOp, "the operator is nil"},
				{Allreduce(w, [][]int{x, y}[pick(0, 1)], y, Sum), ErrBuffer, "shares memory"},
			} {
				is(m.err, m.class)
				texts := []string{m.text, fmt.Sprintf("rank %d calls it wrongly", odd)}
				if w.Rank() == odd {
					texts = texts[:1]
				}
				for _, text := range texts {
					check(strings.Contains(m.err.Error(), text), "%v does not say %q", m.err, text)
				}
			}
			must(Barrier(w))
		})
	}
	// Calls are not compared: it is an error of this rank only, which makes the call when it is right.
	over(t, unchecked())(2, func(w *Comm) {
		if w.Rank() == 1 {
			is(Bcast(w, []int{1}, 2), ErrRoot)
		}
		must(Bcast(w, []int{1}, 0))
	})
}

// What one rank calls wrongly, and the others do not call at all, is that rank's error alone: all end well.
func TestMistakeThatOthersNeverMeet(t *testing.T) {
	over(t)(2, func(w *Comm) {
		if w.Rank() == 1 {
			return
		}
		x := []int{1}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		is(second(Ibcast(w, x, 9)), ErrRoot)
		is(second(BcastInit(w, x, 9)), ErrRoot)
		is(Bcast(w.WithContext(ctx), x, 9), ErrRoot)
	})
}

// A call that one rank makes persistent and another one does not is an error at both.
func TestWaysThatDiffer(t *testing.T) {
	for _, blocking := range []bool{true, false} {
		over(t)(3, func(w *Comm) {
			x := []int{w.Rank()}
			var err error
			switch {
			case w.Rank() == 1:
				r := ok(BcastInit(w, x, 0))
				if err = r.Start(); err == nil {
					_, err = r.Wait()
				}
			case blocking:
				err = Bcast(w, x, 0)
			default:
				err = waited(Ibcast(w, x, 0))
			}
			check(err != nil && strings.Contains(err.Error(), "calls Bcast"), "%v", err)
			must(Barrier(w))
		})
	}
}

// A rank that makes a communicator, where others make another collective call, is an error at all ranks.
func TestCreationWhereOthersCall(t *testing.T) {
	creations := []func(c *Comm) error{
		func(c *Comm) error { return second(c.Dup()) },
		func(c *Comm) error { return second(c.Split(0, 0)) },
		func(c *Comm) error { return second(c.Cart([]int{3}, []bool{true}, false)) },
		func(c *Comm) error { return second(c.Cart([]int{7}, []bool{true}, false)) },
		func(c *Comm) error { return second(c.Intercomm(0, nil, 0, 0)) },
	}
	calls := []func(c *Comm) error{
		Barrier,
		func(c *Comm) error { return waited(Ibarrier(c)) },
		func(c *Comm) error { return Bcast(c, []int{1}, 7) },
		func(c *Comm) error { return second(c.Create(c.Group())) },
	}
	over(t)(3, func(w *Comm) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, c := range []*Comm{w, w.WithContext(ctx)} {
			for i, create := range creations {
				for k, call := range calls {
					for odd := range c.Size() {
						err := call
						if c.Rank() == odd {
							err = create
						}
						check(err(c) != nil, "creation %d, call %d, rank %d: no error at %d", i, k, odd, c.Rank())
						must(Barrier(c))
					}
				}
			}
		}
		half := ok(w.Split(w.Rank()%2, 0))
		if w.Rank() == 2 {
			is(Barrier(half), ErrComm)
		} else {
			is(second(half.Intercomm(0, w, 1-w.Rank()%2, 5)), ErrComm) // at rank 1 too, of the other group
		}
	})
}

// Counts whose sum cannot be are an error, and no panic.
func TestSumOfCounts(t *testing.T) {
	over(t)(3, func(w *Comm) {
		is(ReduceScatter(w, []int{1}, make([]int, 3), []int{math.MaxInt, math.MaxInt, 3}, Sum), ErrCount)
	})
}

// What is kept of a call for the next one does not keep what its operator holds.
func TestOperatorsAreNotKept(t *testing.T) {
	over(t)(1, func(w *Comm) {
		gone := make(chan bool)
		func() {
			held := new([1 << 10]int)
			runtime.AddCleanup(held, func(int) { close(gone) }, 0)
			must(Allreduce(w, []int{1}, []int{0}, func(inout, in []int) { Sum(inout, held[:len(in)]) }))
		}()
		for {
			runtime.GC()
			select {
			case <-gone:
				return
			default:
			}
		}
	})
}

// A persistent call whose context has ended goes on. It cannot be started meanwhile, and what it works with is used for
// no other call, also after Free.
func TestPersistentCallGoesOnWithoutItsContext(t *testing.T) {
	over(t, unchecked())(2, func(w *Comm) {
		buf := []int{w.Rank(), w.Rank()}
		if w.Rank() == 0 {
			r := ok(BcastInit(w, buf, 0))
			awaitSignal(w, 1)
			must(Bcast(w, []int{7, 7}, 0))
			must(r.Start())
			ok(r.Wait())
			must(r.Free())
		} else {
			ctx, cancel := context.WithCancel(t.Context())
			r := ok(BcastInit(w.WithContext(ctx), buf, 0))
			must(r.Start())
			cancel()
			_, err := r.Wait()
			check(errors.Is(err, context.Canceled), "%v", err)
			is(r.Start(), ErrRequest)
			must(r.Free())
			sendSignal(w, 0)
			must(Bcast(w, buf, 0))
			equal("buf", buf, []int{7, 7})
		}
		must(Barrier(w))
	})
}

// A mistake of one rank, in a call in which another one fails at any step of the comparison, is an error at all others;
// none waits for the one with the mistake, or for those that have heard of it, while these do something else.
func TestMistakeAndFailure(t *testing.T) {
	calls := map[string]func(w *Comm, root int) error{
		"blocking":    func(w *Comm, root int) error { return Bcast(w, make([]int, 5000), root) },
		"nonblocking": func(w *Comm, root int) error { return waited(Ibcast(w, make([]int, 5000), root)) },
	}
	const n = 5
	for name, call := range calls {
		for turn := range n * n * inShort(7, 3) {
			odd, victim, after := turn%n, turn/n%n, turn/n/n
			if victim == odd {
				continue
			}
			t.Run(fmt.Sprintf("%s, rank %d is wrong, %d fails after %d", name, odd, victim, after), func(t *testing.T) {
				var returned sync.WaitGroup
				returned.Add(n)
				over(t, withDevices(func(rank int, d transport.Device) transport.Device {
					var plan faulty.Plan
					for r := range n {
						if (r == victim) != (rank == victim) {
							plan.Cuts = append(plan.Cuts, faulty.Cut{Peer: r, After: after})
						}
					}
					return faulty.Wrap(d, 1, plan)
				}))(n, func(w *Comm) {
					root := 0
					if w.Rank() == odd {
						root = n
					}
					err := call(w, root)
					check(err != nil, "rank %d: no error", w.Rank())
					check(w.Rank() != odd || errors.Is(err, ErrRoot), "rank %d: %v", w.Rank(), err)
					returned.Done()
					returned.Wait()
				})
			})
		}
	}
}

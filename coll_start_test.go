package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// Every nonblocking and every persistent call gives what the blocking one does.
func TestCollectivesEveryWay(t *testing.T) {
	for _, ranks := range few([]int{1, 2, 3, 5, 8}, 1, 3, 4) {
		for _, env := range []string{"", "GORUN_COLL_CHECK=0"} {
			if testing.Short() && (env == "") != (ranks < 4) {
				continue
			}
			t.Run(fmt.Sprintf("%d ranks %s", ranks, env), func(t *testing.T) {
				over(t, WithEnviron([]string{env}))(ranks, func(w *Comm) {
					for _, h := range []coll.Way{coll.Nonblocking, coll.Persistent} {
						for _, n := range []int{0, 1, 70, 9000} {
							movesBy[int64](h, w, n)
							reductionsBy[int32](h, w, n)
						}
					}
				})
			})
		}
	}
}

// So they do over every way to move messages, and with a context.
func TestNonblockingEverywhere(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for i, n := range []int{3000, 40_000, 5} {
				if testing.Short() && i > 0 {
					break
				}
				movesBy[int64](coll.Nonblocking, w, n)
				reductionsBy[int32](coll.Nonblocking, w.WithContext(ctx), n)
				movesBy[uint8](coll.Persistent, w.WithContext(ctx), n)
			}
		})
	})
}

// program is a call of a random program, and what checks that it has given what it should.
type program struct {
	r  *Request
	ok func()
}

// someCall starts a call, which all ranks choose by generators of one seed.
func someCall(w *Comm, rng *rand.Rand) program {
	me, size := w.Rank(), w.Size()
	n, to, root := []int{0, 1, 30, 2000, 20_000}[rng.IntN(5)], rng.IntN(100), rng.IntN(size)
	switch rng.IntN(8) {
	case 0:
		return program{ok(Ibarrier(w)), func() {}}
	case 1:
		buf := make([]int64, n)
		if me == root {
			buf = vector[int64](root, to, n)
		}
		return program{ok(Ibcast(w, buf, root)), func() { equal("Ibcast", buf, vector[int64](root, to, n)) }}
	case 2:
		sum := make([]int64, n)
		return program{ok(Iallreduce(w, vector[int64](me, to, n), sum, Sum)),
			func() { equal("Iallreduce", sum, summed[int64](0, size, to, n)) }}
	case 3:
		got := make([]affine, n)
		return program{ok(Iscan(w, affines(me, n), got, compose, Ordered)),
			func() { equal("Iscan", got, composed(0, me+1, n)) }}
	case 4:
		all := make([]uint16, n*size)
		return program{ok(Iallgather(w, vector[uint16](me, to, n), all)),
			func() { equal("Iallgather", all, joined[uint16](size, to, n)) }}
	case 5:
		var send []int32
		for i := range size {
			send = append(send, vector[int32](me, i, n)...)
		}
		recv := make([]int32, n*size)
		return program{ok(Ialltoall(w, send, recv)),
			func() { equal("Ialltoall", recv, joined[int32](size, me, n)) }}
	case 6:
		sum := make([]int64, n)
		return program{ok(Ireduce(w, vector[int64](me, to, n), sum, Sum, root)), func() {
			if me == root {
				equal("Ireduce", sum, summed[int64](0, size, to, n))
			}
		}}
	}
	var all []int64
	if me == root {
		all = make([]int64, n*size)
	}
	return program{ok(Igather(w, vector[int64](me, to, n), all, root)), func() {
		if me == root {
			equal("Igather", all, joined[int64](size, to, n))
		}
	}}
}

// Many calls are under way at once on one communicator, with blocking ones and messages of any tag between them, and
// each rank completes them in an order of its own.
func TestNonblockingAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for seed := range uint64(inShort(6, 1)) {
			run(4, func(w *Comm) {
				same, mine := newRand(seed, 99), newRand(seed, uint64(w.Rank()))
				me, size := w.Rank(), w.Size()
				for range inShort(6, 2) {
					var open []program
					tokens := make([]int, 1)
					open = append(open, program{ok(Irecv(w, tokens, AnySource, AnyTag)), func() {}})
					for range 25 {
						if open = append(open, someCall(w, same)); same.IntN(5) == 0 {
							must(Barrier(w))
						}
						if mine.IntN(3) == 0 {
							open[mine.IntN(len(open))].r.Done() // the other goroutine that may want it
						}
					}
					must(Send(w, []int{me}, (me+1)%size, coll.FirstTag+me))
					mine.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
					for len(open) > 0 {
						open = completeSome(open, mine)
					}
					check(tokens[0] == (me+size-1)%size, "the message has %d", tokens[0])
				}
			})
		}
	})
}

// completeSome completes some of open in one of the ways that there are.
func completeSome(open []program, rng *rand.Rand) []program {
	rs := make([]*Request, len(open))
	for i := range open {
		rs[i] = open[i].r
	}
	var done []int
	switch rng.IntN(6) {
	case 0:
		i, _, err := WaitAny(rs...)
		must(err)
		done = []int{i}
	case 1:
		is, _, err := WaitSome(rs...)
		must(err)
		done = is
	case 2:
		n := 1 + rng.IntN(len(rs))
		must(WaitAll(rs[:n]...))
		for i := range n {
			done = append(done, i)
		}
	case 3:
		is, _, err := TestSome(rs...)
		must(err)
		done = is
		runtime.Gosched()
	case 4:
		for {
			over, _, err := rs[0].Test()
			must(err)
			if over {
				break
			}
		}
		done = []int{0}
	default:
		<-rs[len(rs)-1].Done()
		ok(rs[len(rs)-1].Wait())
		done = []int{len(rs) - 1}
	}
	var left []program
	for i, p := range open {
		if !slices.Contains(done, i) {
			left = append(left, p)
			continue
		}
		p.ok()
	}
	return left
}

// Calls complete, with user operators and several rounds, while no rank calls the library.
func TestProgressOfCollectives(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		for _, n := range few([]int{1, 3000, 200_000}, 1, 40_000) {
			run(3, func(w *Comm) {
				me, sum, all := w.Rank(), make([]int64, n), make([]int64, 3*n)
				rs := []*Request{ok(Iallreduce(w, vector[int64](me, 0, n), sum, Sum)),
					ok(Iallgather(w, vector[int64](me, 1, n), all)), ok(Ibarrier(w))}
				for w.group.Engine.Pending() != 0 {
					time.Sleep(time.Millisecond)
				}
				equal("Iallreduce", sum, summed[int64](0, 3, 0, n))
				equal("Iallgather", all, joined[int64](3, 1, n))
				must(WaitAll(rs...))
			})
		}
	})
}

// An operator may take long, and other calls go on meanwhile; it may panic, which ends the call alone; and one that
// calls the library, which none should, does not stop it.
func TestOperatorsOfNonblockingCalls(t *testing.T) {
	for _, env := range []string{"1", "0"} {
		over(t, WithEnviron([]string{"GORUN_COLL_CHECK=" + env}))(3, func(w *Comm) {
			me, d := w.Rank(), ok(w.Dup())
			held := make(chan bool)
			waits := func(inout, in []int64) {
				<-held
				Sum(inout, in)
			}
			sum := make([]int64, 100)
			long := ok(Iallreduce(w, vector[int64](me, 0, 100), sum, waits))
			for range 20 {
				reductionsBy[int64](coll.Nonblocking, w, 50)
			}
			close(held)
			ok(long.Wait())
			equal("Iallreduce", sum, summed[int64](0, 3, 0, 100))

			r := ok(Ireduce(w, make([]int64, 1), make([]int64, 1), func(inout, in []int64) { panic("no such number") }, 0))
			if _, err := r.Wait(); me == 0 {
				check(err != nil, "an operator has panicked")
				is(err, err.(*Error).Class)
				check(strings.HasPrefix(err.Error(), "mpi: Ireduce"), "%v", err)
			}
			must(Barrier(w))

			talks := func(inout, in []int64) {
				r := ok(Irecv(d, make([]int, 1), me, 7))
				must(Send(d, []int{1}, me, 7))
				ok(r.Wait())
				Sum(inout, in)
			}
			for range 10 {
				must(waited(Iallreduce(w, vector[int64](me, 0, 100), sum, talks)))
				equal("Iallreduce", sum, summed[int64](0, 3, 0, 100))
			}
		})
	}
}

// A caller that waits for one request does not hold up another one, whose rounds have local work: neither where it
// waits for both, nor where the operator does not return and the other one is complete.
func TestWaitHoldsUpNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			me, leads := w.Rank(), make(chan error)
			go func() { leads <- second(Recv(w, make([]int, 1), me, 3)) }()
			defer func() {
				must(Send(w, []int{1}, me, 3))
				must(<-leads)
			}()
			for turn := range 30 {
				sum, got := make([]int64, 200), make([]int, 1)
				if me == 1 {
					ok(ok(Iallreduce(w, vector[int64](me, turn, 200), sum, Sum)).Wait())
					must(Send(w, []int{turn}, 0, 1)) // after that
				} else {
					message := ok(Irecv(w, got, 1, 1))
					must(WaitAll(message, ok(Iallreduce(w, vector[int64](me, turn, 200), sum, Sum))))
					same(got[0], turn)
				}
				equal("Iallreduce", sum, summed[int64](0, 2, turn, 200))

				held := make(chan bool)
				long := ok(Iallreduce(w, []int64{1}, sum[:1], func(inout, in []int64) {
					<-held
					Sum(inout, in)
				}))
				message := ok(Irecv(w, got, 1-me, 2))
				must(Send(w, []int{turn}, 1-me, 2))
				i, _, err := WaitAny(long, message)
				must(err)
				check(i == 1, "the call is complete, and its operator has not returned")
				close(held)
				ok(long.Wait())
				check(sum[0] == 2, "the sum is %d", sum[0])
			}
		}, WithEnviron([]string{"GORUN_SPIN=0"}))
	})
}

// The context of a nonblocking call ends: its request does, the caller's buffers are the caller's, and the other ranks
// get what this one had.
func TestContextEndsInNonblocking(t *testing.T) {
	const n = 20_000
	for late := range 3 {
		for _, env := range []string{"1", "0"} {
			for _, h := range []coll.Way{coll.Nonblocking, coll.Persistent} {
				t.Run(fmt.Sprintf("rank %d is late, check %s, way %d", late, env, h), func(t *testing.T) {
					ended := make(chan bool, 2)
					over(t, WithEnviron([]string{"GORUN_COLL_CHECK=" + env}))(3, func(w *Comm) {
						me, sum := w.Rank(), make([]int64, n)
						if me == late {
							var r *Request
							if h == coll.Persistent {
								r = ok(AllreduceInit(w, vector[int64](me, 0, n), sum, Sum))
								must(r.Start())
							} else {
								r = ok(Iallreduce(w, vector[int64](me, 0, n), sum, Sum))
							}
							if env == "0" {
								<-ended
								<-ended
							}
							ok(r.Wait())
							equal("Iallreduce", sum, summed[int64](0, 3, 0, n))
						} else {
							ctx, cancel := context.WithCancel(t.Context())
							send := vector[int64](me, 0, n)
							var r *Request
							if h == coll.Persistent {
								r = ok(AllreduceInit(w.WithContext(ctx), send, sum, Sum))
								must(r.Start())
							} else {
								r = ok(Iallreduce(w.WithContext(ctx), send, sum, Sum))
							}
							other := ok(Irecv(w, make([]int, 1), AnySource, 5))
							cancel()
							if _, _, err := WaitAny(nil, r); err != nil {
								is(err, context.Canceled)
							} else {
								equal("Iallreduce", sum, summed[int64](0, 3, 0, n))
							}
							clear(send)
							clear(sum)
							must(other.Cancel())
							ok(other.Wait())
							ended <- true
							for i := range sum {
								check(sum[i] == 0, "the buffer is written to")
							}
						}
						must(Barrier(w))
						reductionsBy[int64](h, w, 100)
					})
				})
			}
		}
	}
}

// A communicator may be freed while calls on it are under way, and communicators are made meanwhile.
func TestFreeWhileCollectivesAreUnderWay(t *testing.T) {
	over(t)(4, func(w *Comm) {
		for turn := range inShort(20, 6) {
			c, me := ok(w.Dup()), w.Rank()
			sums := [5][]int64{}
			var rs []*Request
			for i := range sums {
				sums[i] = make([]int64, 3000)
				rs = append(rs, ok(Iallreduce(c, vector[int64](me, i, 3000), sums[i], Sum)))
			}
			d := ok(c.Dup())
			e := ok(w.Split(me%2, 0))
			must(c.Free())
			_, err := Ibarrier(c)
			is(err, ErrComm)
			must(Barrier(d))
			if turn%2 == 0 {
				must(WaitAll(rs...))
			} else {
				for i := range rs {
					ok(rs[len(rs)-1-i].Wait())
				}
			}
			for i := range sums {
				equal("Iallreduce", sums[i], summed[int64](0, 4, i, 3000))
			}
			must(d.Free())
			must(e.Free())
		}
	})
}

// Persistent calls are started again and again, by each rank in an order of its own, with other calls between.
func TestPersistentCollectives(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		const n = 500
		run(3, func(w *Comm) {
			me := w.Rank()
			in, sum, all, buf := make([]int64, n), make([]int64, n), make([]int64, 3*n), make([]int64, n)
			rs := []*Request{ok(AllreduceInit(w, in, sum, Sum)), ok(AllgatherInit(w, in, all)),
				ok(BcastInit(w, buf, 1)), ok(BarrierInit(w))}
			rng := newRand(7, uint64(me))
			for turn := range inShort(40, 15) {
				copy(in, vector[int64](me, turn, n))
				if clear(buf); me == 1 {
					copy(buf, vector[int64](9, turn, n))
				}
				order := rng.Perm(len(rs))
				for _, i := range order {
					must(rs[i].Start())
				}
				extra := make([]int64, 3)
				must(Allreduce(w, vector[int64](me, 3, 3), extra, Sum))
				equal("Allreduce", extra, summed[int64](0, 3, 3, 3))
				for _, i := range rng.Perm(len(rs)) {
					ok(rs[i].Wait())
				}
				equal("AllreduceInit", sum, summed[int64](0, 3, turn, n))
				equal("AllgatherInit", all, joined[int64](3, turn, n))
				equal("BcastInit", buf, vector[int64](9, turn, n))
			}
			must(StartAll(rs...))
			must(WaitAll(rs...))
			for _, r := range rs {
				must(r.Free())
				is(r.Free(), ErrRequest)
				is(r.Start(), ErrRequest)
			}
		})
	})
}

// Calls among neighbours, a rank that is its own included, are started and completed as others are.
func TestNeighborsNonblocking(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			for _, dims := range few([][]int{{3}, {3, 1}}, []int{3, 1}) {
				periodic := []bool{true, true}[:len(dims)]
				c := ok(w.Cart(dims, periodic, false))
				_, to, err := c.Neighbors()
				must(err)
				for _, n := range few([]int{1, 20_000}, 1, 9000) {
					send, all := vector[int64](c.Rank(), 0, n*len(to)), make([]int64, n*len(to))
					want := make([]int64, n*len(to))
					must(NeighborAlltoall(c, send, want))
					must(waited(IneighborAlltoall(c, send, all)))
					equal("IneighborAlltoall", all, want)
					clear(all)
					must(startedOnce(NeighborAlltoallInit(c, send, all)))
					equal("NeighborAlltoallInit", all, want)

					must(NeighborAllgather(c, send[:n], want))
					must(waited(IneighborAllgather(c, send[:n], all)))
					equal("IneighborAllgather", all, want)
					clear(all)
					must(startedOnce(NeighborAllgatherInit(c, send[:n], all)))
					equal("NeighborAllgatherInit", all, want)

					parts := func(buf []int64) (list [][]int64) {
						for i := range to {
							list = append(list, buf[i*n:][:n])
						}
						return list
					}
					must(waited(IneighborAllgatherv(c, send[:n], parts(all))))
					equal("IneighborAllgatherv", all, want)
					must(startedOnce(NeighborAllgathervInit(c, send[:n], parts(all))))
					must(NeighborAlltoall(c, send, want))
					must(waited(IneighborAlltoallv(c, parts(send), parts(all))))
					equal("IneighborAlltoallv", all, want)
					must(startedOnce(NeighborAlltoallvInit(c, parts(send), parts(all))))
				}
			}
		})
	})
}

// A rank that fails while nonblocking calls are under way is an error at every rank that needs it, and none waits for
// ever.
func TestRankFailsInNonblocking(t *testing.T) {
	const n = 4
	for victim := range n {
		for _, checked := range []string{"0", "1"} {
			if testing.Short() && victim%2 == 1 {
				continue
			}
			t.Run(fmt.Sprintf("rank %d, check %s", victim, checked), func(t *testing.T) {
				cut := withDevices(func(rank int, d transport.Device) transport.Device {
					var plan faulty.Plan
					for r := range n {
						if (r == victim) != (rank == victim) {
							plan.Cuts = append(plan.Cuts, faulty.Cut{Peer: r, After: 25})
						}
					}
					return faulty.Wrap(d, 1, plan)
				})
				over(t, cut, WithEnviron([]string{"GORUN_COLL_CHECK=" + checked}))(n, func(w *Comm) {
					p := ok(AllgatherInit(w, make([]int64, 100), make([]int64, n*100)))
					var failed error
					for turn := range 20 {
						size := []int{1, 500, 10_000}[turn%3]
						must(p.Start())
						rs := []*Request{ok(Iallreduce(w, make([]int64, size), make([]int64, size), Sum)), p,
							ok(Ibarrier(w)), ok(Ibcast(w, make([]int64, size), turn%n)),
							ok(Iscan(w, make([]int64, size), make([]int64, size), Sum))}
						if err := WaitAll(rs...); err != nil {
							failed = err
						}
					}
					check(errors.Is(failed, ErrPeerFailed), "%v", failed)
					must(p.Free())
				})
			})
		}
	}
}

// What cannot be done with the request of a collective call, and what its mistakes are called.
func TestMisuseOfCollectiveRequests(t *testing.T) {
	over(t)(2, func(w *Comm) {
		r := ok(BarrierInit(w))
		st, err := r.Wait() // not started
		must(err)
		check(st == emptyStatus, "%+v", st)
		one := ok(Ibarrier(w))
		is(one.Cancel(), ErrRequest)
		is(one.Start(), ErrRequest)
		if w.Rank() == 0 { // the other rank starts after this one has tried
			must(r.Start())
			is(r.Start(), ErrRequest)
			is(r.Free(), ErrRequest)
			is(r.Cancel(), ErrRequest)
			sendSignal(w, 1)
		} else {
			awaitSignal(w, 0)
			must(r.Start())
		}
		must(WaitAll(one, r))
		_, err = one.Wait()
		is(err, ErrRequest)
		must(r.Free())
		for _, m := range []struct {
			err   error
			class error
			text  string
		}{
			{second(Ibcast(w, []int{1}, 2)), ErrRoot, "mpi: Ibcast: the root is 2"},
			{second(BcastInit(w, []int{1}, 2)), ErrRoot, "mpi: BcastInit: the root is 2"},
			{second(IreduceScatterBlock(w, []int{1}, []int{1}, Sum)), ErrCount, "mpi: IreduceScatterBlock"},
			{second(Iallreduce[int](w, nil, nil, nil)), ErrOp, "mpi: Iallreduce: the operator is nil"},
			{second(Ibarrier(nil)), ErrComm, "mpi: Ibarrier"},
			{second(BarrierInit(nil)), ErrComm, "mpi: BarrierInit"},
		} {
			is(m.err, m.class)
			check(strings.Contains(m.err.Error(), m.text), "%v does not say %q", m.err, m.text)
		}
	})
	err := local(t, 2, func(w *Comm) {
		if w.Rank() == 0 {
			ok(Ibarrier(w))
		}
	})
	is(err, ErrRequest)
}

// Nonblocking and persistent calls that do not go together are an error at all ranks, and so is one that goes with a
// blocking call.
func TestNonblockingThatDiffer(t *testing.T) {
	over(t)(3, func(w *Comm) {
		odd := w.Rank() == 1
		for range 3 {
			var r *Request
			if odd {
				r = ok(Ibcast(w, []int{1}, 0))
			} else {
				r = ok(Ibarrier(w))
			}
			next := ok(Iallreduce(w, []int{1}, make([]int, 1), Sum))
			_, err := r.Wait()
			is(err, ErrComm)
			check(strings.Contains(err.Error(), "calls Ibarrier") && strings.Contains(err.Error(), "calls Ibcast"), "%v", err)
			ok(next.Wait())
			if odd {
				err = Barrier(w)
			} else {
				err = waited(Ibarrier(w))
			}
			is(err, ErrComm)
			if odd {
				err = startedOnce(BcastInit(w, []int{1}, 0))
			} else {
				err = startedOnce(BcastInit(w, []int{1}, 2))
			}
			is(err, ErrRoot)
		}
		must(Barrier(w))
	})
}

// In steady state a nonblocking call allocates once at most, a blocking or persistent one not at all.
func TestCollectivesAllocate(t *testing.T) {
	if proc.Race {
		t.Skip("the race detector allocates")
	}
	over(t, unchecked())(2, func(w *Comm) {
		in, out, all := make([]float64, 8), make([]float64, 8), make([]float64, 16)
		p := ok(AllreduceInit(w, in, out, Sum))
		b := ok(BarrierInit(w))
		calls := []struct {
			name string
			most float64
			call func()
		}{
			{"blocking", 0, func() {
				must(Barrier(w))
				must(Allreduce(w, in, out, Sum))
				must(Allgather(w, in, all))
				must(Bcast(w, in, 1))
			}},
			{"nonblocking", 0, func() {
				a, g, i := ok(Iallreduce(w, in, out, Sum)), ok(Iallgather(w, in, all)), ok(Ibarrier(w))
				ok(a.Wait())
				ok(g.Wait())
				ok(i.Wait())
			}},
			{"persistent", 0, func() {
				must(p.Start())
				must(b.Start())
				ok(p.Wait())
				ok(b.Wait())
			}},
		}
		for _, c := range calls {
			const rounds = 2000
			for range rounds {
				c.call()
			}
			var before, after runtime.MemStats
			must(Barrier(w))
			runtime.ReadMemStats(&before)
			for range rounds {
				c.call()
			}
			must(Barrier(w))
			runtime.ReadMemStats(&after)
			each := float64(after.Mallocs-before.Mallocs) / rounds / 2
			check(each < c.most+0.2, "%s: %v allocations", c.name, each)
		}
		must(p.Free())
		must(b.Free())
	})
}

// An operator that ends its goroutine (runtime.Goexit, as t.FailNow does) ends its call alone, with ErrOp, whether a
// caller waits or none does: the other ranks hear of it, another goroutine gets the error, and all calls go on.
func TestOperatorEndsItsGoroutine(t *testing.T) {
	for _, env := range []string{"1", "0"} {
		over(t, WithEnviron([]string{"GORUN_COLL_CHECK=" + env}))(2, func(w *Comm) {
			me := w.Rank()
			for turn := range inShort(20, 8) {
				n, bad := []int{10, 100_000}[turn%2], turn/2%2
				r := ok(Iallreduce(w, make([]int64, n), make([]int64, n), func(inout, in []int64) {
					if me == bad {
						runtime.Goexit()
					}
					Sum(inout, in)
				}))
				waits := make(chan bool)
				var err error
				returned := false
				go func() { // it is this one that ends, if it does the work
					defer close(waits)
					if turn%4 < 2 {
						_, err = r.Wait()
						returned = true
					}
				}()
				<-waits
				for !returned {
					returned, _, err = r.Test()
					runtime.Gosched()
				}
				if me == bad {
					check(err != nil, "the operator has not returned")
					is(err, ErrOp)
					check(strings.Contains(err.Error(), "Goexit"), "%v", err)
				} else if err != nil || n > 10 {
					is(err, ErrPeerFailed)
				}
				must(Barrier(w))
			}
			reductionsBy[int64](coll.Nonblocking, w, 50)
		})
	}
}

// A rank that ends with a nonblocking call under way is told so, and no rank hangs: neither where the others make the
// call too, nor where they do not.
func TestAbandonedCollective(t *testing.T) {
	for _, join := range []bool{true, false} {
		for _, env := range []string{"1", "0"} {
			off := watchdog(t)
			err := RunLocal(3, func(w *Comm) error {
				sum := make([]int64, 50_000)
				if w.Rank() == 0 || join {
					ok(Iallreduce(w, vector[int64](w.Rank(), 0, len(sum)), sum, Sum))
				}
				if w.Rank() != 0 {
					return second(Recv(w, make([]int, 1), 0, 1)) // until rank 0 has failed
				}
				return nil
			}, WithEnviron([]string{"GORUN_COLL_CHECK=" + env}))
			off()
			// Rank 0's call had completed: it has returned, and is waited for.
			over := join && errors.Is(err, ErrPeerFailed)
			if err == nil || !over && (!errors.Is(err, ErrRequest) ||
				!strings.Contains(err.Error(), "rank 0: mpi: RunLocal")) {
				t.Errorf("join %v, GORUN_COLL_CHECK=%s: %v", join, env, err)
			}
		}
	}
}

// An operator that ends the goroutine of a rank in a blocking call ends the rank: that is an error, and no rank hangs.
func TestRankEndsItsGoroutine(t *testing.T) {
	for _, n := range []int{1, 100_000} {
		off := watchdog(t)
		err := RunLocal(3, func(w *Comm) error {
			op := func(inout, in []int64) { runtime.Goexit() }
			if err := Reduce(w, make([]int64, n), make([]int64, n), op, 0); err != nil {
				return err
			}
			return Barrier(w)
		})
		off()
		if !errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), "mpi: RunLocal: the goroutine") {
			t.Errorf("%d elements: %v", n, err)
		}
	}
}

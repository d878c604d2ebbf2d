package mpi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// onBoard has every call that can go through the board do so; byMessages none.
var (
	onBoard = WithEnviron([]string{"GORUN_COLL_CHECK=0",
		"GORUN_COLL=barrier:shared,bcast:shared,allgather:shared,alltoall:shared,reduce:shared,allreduce:shared"})
	byMessages = "GORUN_COLL=barrier:dissemination,bcast:knomial,allgather:ring,alltoall:linear,reduce:knomial," +
		"allreduce:doubling"
)

// whereBoards is everyTransport where there are boards.
func whereBoards(t *testing.T, test func(t *testing.T, run runner)) {
	everyTransport(t, func(t *testing.T, run runner) {
		if strings.HasSuffix(t.Name(), "/loop") || strings.HasSuffix(t.Name(), "/shm") {
			test(t, run)
		}
	})
}

// meetOnBoard makes the board of w.
func meetOnBoard(w *Comm) {
	for range coll.BoardSetup {
		must(Barrier(w))
	}
	check(w.Size() == 1 || w.Transport() != "loop" || w.group.Board.On != nil, "no board: %+v", &w.group.Board)
}

// Every call through a board gives what it should, at each number of ranks and around the sizes at which it is done in
// another way: in the line, in a slot, in parts, in pieces; also over devices that misbehave.
func TestShared(t *testing.T) { sharedBy(t, onBoard) }

func sharedBy(t *testing.T, how Option) {
	everywhere(t, func(t *testing.T, run runner) {
		ranks := few([]int{1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17}, 2, 3, 8)
		if !strings.HasSuffix(t.Name(), "/loop") { // what differs is how a board is agreed on, and who wakes whom
			ranks = few([]int{2, 3, 8, 17}, 3)
		}
		for _, n := range ranks {
			run(n, func(w *Comm) {
				meetOnBoard(w)
				slot := max(w.group.Board.Slot, coll.SlotLeast) / 8
				sizes := []int{0, 1, coll.LineRoom / 8, coll.LineRoom/8 + 1, coll.SplitMin / 8, coll.WholeMost/8 + 1}
				sizes = append(sizes, slot-1, slot, slot+1, 2*slot+1)
				if n < 4 {
					sizes = append(sizes, 1<<17)
				}
				for _, size := range few(sizes, 0, 1, coll.LineRoom/8+1, coll.SplitMin/8, slot+1) {
					moves[int64](w, size)
					reductions[int64](w, size)
					reductions[uint8](w, size)
				}
			}, how)
		}
	})
}

// Crowded ranks combine all of a short vector in one step; others, and longer vectors, take two.
func TestSharedCrowded(t *testing.T) {
	type steps struct{ apart, crowded uint64 } // of ranks with a processor each; of ranks that share processors
	want := map[int]map[int]steps{             // by ranks, and by bytes
		3:  {2040: {1, 1}, 2048: {2, 1}, 8192: {2, 1}, 8200: {2, 2}},
		5:  {2040: {1, 1}, 2048: {2, 1}, 8192: {2, 1}, 8200: {2, 2}},
		32: {2040: {1, 1}, 2048: {2, 1}, 8184: {2, 1}, 8192: {2, 2}},
	}
	for _, ranks := range few([]int{3, 5, 32}, 3) {
		overLoop(t)(ranks, func(w *Comm) {
			meetOnBoard(w)
			for _, crowded := range []bool{false, true} {
				must(Barrier(w))
				w.group.Board.SetCrowded(crowded) // at all ranks
				for _, size := range slices.Sorted(maps.Keys(want[ranks])) {
					steps := want[ranks][size].apart
					if crowded {
						steps = want[ranks][size].crowded
					}
					sum, before := make([]int64, size/8), w.group.Board.Step
					for i := range sum {
						sum[i] = int64(i + w.Rank())
					}
					must(Allreduce(w, nil, sum, Sum))
					took := w.group.Board.Step - before
					check(took == steps, "%d bytes, crowded %v: %d steps, want %d", size, crowded, took, steps)
					for i, got := range sum {
						same(got, int64(i*ranks+ranks*(ranks-1)/2))
					}
				}
			}
		}, onBoard)
	}
}

// few is all, or with -short some.
func few[T any](all []T, some ...T) []T {
	if testing.Short() {
		return some
	}
	return all
}

// Communicators that overlap, and calls on them in any order, are apart; freed ones give their memory back.
func TestSharedOverlap(t *testing.T) {
	overLoop(t)(6, func(w *Comm) {
		for round := range 4 {
			half := ok(w.Split(w.Rank()/3, 0))
			odd := ok(w.Split(w.Rank()%2, -w.Rank()))
			dup := ok(w.Dup())
			for i := range 6 {
				for _, c := range []*Comm{half, odd, dup, w} {
					sum := []int{c.Rank(), i}
					must(Allreduce(c, nil, sum, Sum))
					check(sum[0] == c.Size()*(c.Size()-1)/2 && sum[1] == i*c.Size(), "round %d, call %d: %v", round, i, sum)
					// and messages between
					next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
					got := make([]int, 1)
					ok(Sendrecv(c, []int{c.Rank()}, next, i, got, before, i))
					check(got[0] == before, "%v from %d", got, before)
				}
			}
			for _, c := range []*Comm{half, odd, dup} {
				check(c.group.Board.On != nil, "no board")
				must(c.Free())
				check(c.group.Board.On == nil, "the board of a communicator that is freed is there")
			}
		}
	}, onBoard)
}

// A call whose context has ended is finished by the board all the same, and later calls wait for their turn.
func TestSharedContextEnds(t *testing.T) {
	overLoop(t)(3, func(w *Comm) {
		meetOnBoard(w)
		for i := range 20 {
			c, cancel := context.WithCancel(context.Background())
			cancel()
			if w.Rank() == i%3 {
				err := Allreduce(w.WithContext(c), []int{1}, make([]int, 1), Sum)
				check(errors.Is(err, context.Canceled), "%v", err)
			} else {
				sum := make([]int, 1)
				must(Allreduce(w, []int{1}, sum, Sum))
				check(sum[0] == 3, "%v", sum)
			}
			buf := []int{i * w.Rank()}
			must(Bcast(w, buf, 1))
			check(buf[0] == i, "call %d: %v", i, buf)
		}
		must(Barrier(w))
	}, onBoard)
}

// A rank that ends, between calls or in the middle of one, is ErrPeerFailed at all others.
func TestSharedRankEnds(t *testing.T) {
	rankEnds(t, 5, []int{1, 100, 5000}, onBoard, func(w *Comm, i, size int, op Op[int]) error {
		all, root := make([]int, w.Size()*size), i%w.Size()
		return errors.Join(Allreduce(w, make([]int, size), make([]int, size), op),
			Reduce(w, make([]int, size), make([]int, size), op, root), Bcast(w, all, root),
			Allgather(w, nil, all), Alltoall(w, nil, all), Barrier(w))
	})
}

// rankEnds has each rank in turn end before or in one of its calls. round makes some with vectors of a size, for the
// i-th time.
func rankEnds(t *testing.T, n int, sizes []int, how Option, round func(w *Comm, i, size int, op Op[int]) error) {
	for victim := range n {
		for after := 1; after <= 12; after += len(few([]int{1}, 1, 2, 3, 4)) {
			t.Run(fmt.Sprintf("rank %d after %d", victim, after), func(t *testing.T) {
				overLoop(t)(n, func(w *Comm) {
					meetOnBoard(w)
					left := after
					end := func() {
						if left--; left == 0 && w.Rank() == victim {
							w.group.Engine.Close(mpierr.New("", ErrAborted, "the test ends it"))
						}
					}
					op := func(inout, in []int) {
						end()
						Sum(inout, in)
					}
					var err error
					for i := 0; err == nil; i++ {
						end()
						err = round(w, i, sizes[i%len(sizes)], op)
					}
					check(w.Rank() == victim || errors.Is(err, ErrPeerFailed), "%v", err)
				}, how)
			})
		}
	}
}

// noBoards are those of a device that can have none.
func noBoards() *transport.Boards {
	refuse := errors.New("no memory of that kind")
	return &transport.Boards{
		Make: func([]int32, int, int) (*transport.Board, []byte, error) { return nil, nil, refuse },
		Join: func([]int32, int, int, []byte) (*transport.Board, error) { return nil, refuse },
	}
}

// Where one rank cannot join, all go on by messages, and the maker's memory is given back.
func TestSharedNotEverywhere(t *testing.T) {
	for _, bad := range []int{0, 1, 3} {
		refusing := withDevices(func(rank int, d transport.Device) transport.Device {
			if rank != bad {
				return d
			}
			d.Facts().Boards = noBoards()
			return faulty.Wrap(d, 1, faulty.Plan{})
		})
		overLoop(t, refusing)(4, func(w *Comm) {
			for i := range 5 {
				sum := []int{i}
				must(Allreduce(w, nil, sum, Sum))
				check(sum[0] == 4*i, "%v", sum)
			}
			check(w.group.Board.On == nil, "%+v", &w.group.Board)
		}, onBoard)
	}
}

// An operator that panics at one rank is an error at all ranks that need its part, and the next call is as before.
func TestSharedOperatorPanics(t *testing.T) {
	overLoop(t)(4, func(w *Comm) {
		meetOnBoard(w)
		w.group.Board.SetCrowded(false) // else they combine a short vector in one step
		for victim := range w.Size() {
			for _, size := range []int{coll.SplitMin / 8, coll.SlotMost/8 + 500} {
				op := func(inout, in []int) {
					if w.Rank() == victim {
						panic("the test wants it")
					}
					Sum(inout, in)
				}
				err := Allreduce(w, make([]int, size), make([]int, size), op)
				if w.Rank() == victim {
					check(errors.Is(err, ErrOp), "%v", err)
				} else {
					check(errors.Is(err, ErrPeerFailed), "%v", err)
				}
				sum := []int{1}
				must(Allreduce(w, nil, sum, Sum))
				check(sum[0] == w.Size(), "%v", sum)
			}
		}
	}, onBoard)
}

// A rank dies while the board is agreed on, and another one cannot have it: those below the dead one in the tree do not
// hear that there is none, and the others do not wait for them in the calls that they make by messages.
func TestSharedDeathAndRefusal(t *testing.T) {
	const n, victim = 8, 4
	for _, bad := range []int{0, 1} {
		for after := range 24 {
			t.Run(fmt.Sprintf("rank %d after %d", bad, after), func(t *testing.T) {
				var done sync.WaitGroup
				done.Add(n - 1)
				overLoop(t, withDevices(func(rank int, d transport.Device) transport.Device {
					var plan faulty.Plan
					for r := range n {
						if (r == victim) != (rank == victim) {
							plan.Cuts = append(plan.Cuts, faulty.Cut{Peer: r, After: after})
						}
					}
					if rank == bad {
						d.Facts().Boards = noBoards()
					}
					return faulty.Wrap(d, int64(after), plan)
				}))(n, func(w *Comm) {
					for range 12 {
						if err := Barrier(w); err != nil {
							check(errors.Is(err, ErrPeerFailed), "%v", err)
						}
					}
					if w.Rank() != victim { // no rank's end is what ends another's wait
						done.Done()
						done.Wait()
					}
				}, onBoard)
			})
		}
	}
}

// A rank that has slept in a call by messages, and has made only calls by the board since, differs from no other one,
// however many calls that are.
func TestLongAfterMessages(t *testing.T) {
	whereBoards(t, func(t *testing.T, run runner) {
		var asleep, late sync.WaitGroup
		asleep.Add(1)
		late.Add(1)
		run(2, func(w *Comm) {
			short := func() { must(Allreduce(w, make([]byte, 1024), make([]byte, 1024), Sum)) }
			for range coll.BoardSetup {
				short()
			}
			check(w.group.Board.On != nil, "no board")
			if w.Rank() == 0 {
				asleep.Wait()
			} else {
				go func() {
					defer asleep.Done()
					for w.group.Board.Mark(1).Word.Load() == 0 {
						time.Sleep(time.Millisecond)
					}
				}()
			}
			must(Bcast(w, make([]byte, 32), 0)) // by messages
			short()
			w.group.SkipCalls(coll.Numbers/2 + 10)
			if w.Rank() == 0 {
				go func() {
					defer late.Done()
					time.Sleep(20 * time.Millisecond)
				}()
			} else {
				late.Wait()
			}
			short()
		}, WithEnviron([]string{"GORUN_COLL_CHECK=0"}))
	})
}

// Rank 0 hears that a rank of the board has failed, leaves out the step of its next call, and waits for messages in the
// one after. All that goes on after rank 1, in the next call, has looked for failed ranks, and before it compares
// calls: theirs do not differ.
func TestFailedBoardIsNotCompared(t *testing.T) {
	var looked, over sync.WaitGroup
	looked.Add(1)
	over.Add(2)
	overLoop(t)(3, func(w *Comm) {
		for range coll.BoardSetup {
			must(Barrier(w))
		}
		on := w.group.Board.On
		switch w.Rank() {
		case 0:
			go func() {
				looked.Wait()
				on.Give(2, &pml.PeerError{Rank: 2, Err: transport.ErrPeerGone})
			}()
		case 1:
			failed := on.Failed
			var once sync.Once
			on.Failed = func() (int, []byte) {
				defer once.Do(func() {
					looked.Done()
					for i := 0; i < 20 && w.group.Board.Mark(0).Word.Load() == 0; i++ {
						time.Sleep(time.Millisecond)
					}
				})
				return failed()
			}
		case 2:
			over.Wait()
		}
		sum := make([]byte, 8)
		err := Reduce(w, make([]byte, 8), sum, Sum, 0)
		check(w.Rank() > 0 || errors.Is(err, ErrPeerFailed), "the call in which rank 0 hears of it: %v", err)
		err = Barrier(w)
		check(errors.Is(err, ErrPeerFailed), "the call after it: %v", err)
		if w.Rank() < 2 {
			over.Done()
		}
		must(Scatter(w, make([]byte, 3), make([]byte, 1), 2)) // by messages
	}, onBoard)
}

// A call that goes through the board at one rank and by messages at another one, since what they give differs, is an
// error at all ranks, whichever of them goes on to another call; so are later calls by the board, and others end.
func TestOneByMessagesOneByTheBoard(t *testing.T) {
	alltoall := func(n int, inPlace bool) func(c *Comm) error {
		return func(c *Comm) error {
			if inPlace {
				return Alltoall(c, nil, make([]byte, n*c.Size()))
			}
			return Alltoall(c, make([]byte, n*c.Size()), make([]byte, n*c.Size()))
		}
	}
	bcast := func(n, root int) func(c *Comm) error {
		return func(c *Comm) error { return Bcast(c, make([]byte, n), root) }
	}
	allreduce := func(n int) func(c *Comm) error {
		return func(c *Comm) error { return Allreduce(c, make([]byte, n), make([]byte, n), Sum) }
	}
	withContext := func(f func(c *Comm) error) func(c *Comm) error {
		return func(c *Comm) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			return f(c.WithContext(ctx))
		}
	}
	started := func(c *Comm) error {
		r, err := Iallreduce(c, make([]byte, 1024), make([]byte, 1024), Sum)
		if err == nil {
			_, err = r.Wait()
		}
		return err
	}
	const large = 20 << 10
	for name, c := range map[string]struct {
		ranks         int
		one, theOther func(c *Comm) error
		ends          bool // theOther may end well: it needs nothing from the one
	}{
		"Alltoall in place":       {2, alltoall(large, true), alltoall(large, false), false},
		"Alltoall of 4 in place":  {4, alltoall(100_000, true), alltoall(100_000, false), false},
		"Bcast short":             {2, bcast(32, 1), bcast(512, 1), true},
		"Bcast long":              {2, bcast(1<<20, 1), bcast(large, 1), false},
		"Bcast long from the one": {2, bcast(1<<20, 0), bcast(large, 0), false},
		"Allreduce":               {2, allreduce(32), allreduce(1024), false},
		"Allreduce with contexts": {2, withContext(allreduce(32)), withContext(allreduce(1024)), false},
		"nonblocking":             {2, started, allreduce(1024), false},
		"Barrier":                 {2, Barrier, allreduce(1024), false},
	} {
		t.Run(name, func(t *testing.T) {
			whereBoards(t, func(t *testing.T, run runner) {
				var warm, returned, again sync.WaitGroup
				warm.Add(c.ranks)
				returned.Add(c.ranks)
				again.Add(c.ranks)
				run(c.ranks, func(w *Comm) {
					for range coll.BoardSetup {
						must(Allreduce(w, make([]byte, 1024), make([]byte, 1024), Sum))
					}
					check(w.group.Board.On != nil, "no board")
					warm.Done()
					warm.Wait()
					call := c.theOther
					if w.Rank() == 0 {
						call = c.one
					}
					err := call(w)
					if c.ends && err == nil {
						err = Barrier(w)
					}
					is(err, ErrComm)
					returned.Done()
					returned.Wait() // no rank's end is what ends another's wait
					is(Allreduce(w, make([]byte, 1024), make([]byte, 1024), Sum), ErrComm)
					err = Allreduce(w, make([]byte, 8), make([]byte, 8), Sum) // of 2 ranks: by messages
					if err != nil {
						is(err, ErrComm)
					}
					again.Done()
					again.Wait()
				}, WithEnviron([]string{"GORUN_COLL_CHECK=0"}))
			})
		})
	}
}

// A rank waits at the board for one whose own call went by messages and is over, and which has gone on to wait for the
// first one elsewhere: by messages or at the board of another communicator, for one message or for one of several, or
// at the end of the rank. The one at the board has an error, the other one's waits end, well but for those of the same
// communicator, and both have an error in their next call by this board.
func TestLeftAtTheBoard(t *testing.T) {
	zeros := func(n int) []byte { return make([]byte, n) }
	mistakes := map[string]struct {
		waits, leaves func(c *Comm, waiting int) error
	}{
		"Reduce": {
			func(c *Comm, waiting int) error { return Reduce(c, zeros(64<<10), zeros(64<<10), Sum, waiting) },
			func(c *Comm, waiting int) error { return Reduce(c, zeros(8<<10), nil, Sum, waiting) },
		},
		"Bcast": {
			func(c *Comm, waiting int) error { return Bcast(c, zeros(64<<10), 1-waiting) },
			func(c *Comm, waiting int) error { return Bcast(c, zeros(8<<10), 1-waiting) },
		},
		"another call": {
			func(c *Comm, _ int) error { return Allreduce(c, zeros(1024), zeros(1024), Sum) },
			func(c *Comm, waiting int) error { return Gather(c, zeros(1), nil, waiting) },
		},
	}
	elsewhere := map[string]func(c, d *Comm){
		"messages": func(_, d *Comm) { must(Barrier(d)) },
		"board":    func(_, d *Comm) { must(Allreduce(d, zeros(1024), zeros(1024), Sum)) },
		"receive": func(_, d *Comm) {
			must(Send(d, []int{1}, 1-d.Rank(), 0))
			ok(Recv(d, []int{0}, 1-d.Rank(), 0))
		},
		"probe": func(_, d *Comm) {
			must(Send(d, []int{1}, 1-d.Rank(), 0))
			ok(Probe(d, 1-d.Rank(), 0))
			ok(Recv(d, []int{0}, 1-d.Rank(), 0))
		},
		"any": func(_, d *Comm) {
			from, to := ok(Irecv(d, []int{0}, 1-d.Rank(), 0)), ok(Irecv(d, []int{0}, d.Rank(), 0))
			must(Send(d, []int{1}, 1-d.Rank(), 0))
			i, _, err := WaitAny(to, from)
			check(i == 1 && err == nil, "%d, %v", i, err)
			must(Send(d, []int{1}, d.Rank(), 0))
			must(second(to.Wait()))
		},
		"test": func(_, d *Comm) {
			for r, done := ok(Ibarrier(d)), false; !done; runtime.Gosched() {
				done, _, _ = r.Test()
			}
		},
		"test of several": func(_, d *Comm) {
			for r, done := ok(Ibarrier(d)), false; !done; runtime.Gosched() {
				done = ok(TestAll(nil, r))
			}
		},
		"probe again": func(_, d *Comm) {
			must(Send(d, []int{1}, 1-d.Rank(), 0))
			for there := false; !there; runtime.Gosched() {
				_, there, _ = Iprobe(d, 1-d.Rank(), 0)
			}
			ok(Recv(d, []int{0}, 1-d.Rank(), 0))
		},
		"nonblocking": func(_, d *Comm) { must(waited(Ibarrier(d))) },
		"creation":    func(_, d *Comm) { must(ok(d.Dup()).Free()) },
		"the same": func(c, _ *Comm) {
			if _, err := c.Dup(); err != nil { // what it waits for may have come
				is(err, ErrComm)
			}
		},
		"end": func(_, _ *Comm) {},
	}
	for name, goesOn := range elsewhere {
		for mistake, calls := range mistakes {
			if testing.Short() && mistake != "Reduce" && name != "end" {
				continue
			}
			t.Run(name+" after "+mistake, func(t *testing.T) {
				whereBoards(t, func(t *testing.T, run runner) {
					for waiting := range inShort(2, 1) {
						run(2, func(w *Comm) {
							d := ok(w.Dup())
							for _, c := range []*Comm{w, d} {
								for range coll.BoardSetup {
									must(Allreduce(c, zeros(1024), zeros(1024), Sum))
								}
								check(c.group.Board.On != nil, "no board")
							}
							if w.Rank() == waiting {
								is(calls.waits(w, waiting), ErrComm)
							} else {
								must(calls.leaves(w, waiting))
							}
							if goesOn(w, d); name != "end" {
								is(Allreduce(w, zeros(1024), zeros(1024), Sum), ErrComm)
							}
						}, WithEnviron([]string{"GORUN_COLL_CHECK=0"}))
					}
				})
			})
		}
	}
}

// A goroutine of rank 0 waits for a call that rank 2 does not make until that wait has ended. Another goroutine finds
// that the ranks' calls do not go together as it goes to sleep, and ends it. A third one leads, so that nothing of the
// device wakes the first.
func TestRefusedByAnotherGoroutine(t *testing.T) {
	overLoop(t)(3, func(w *Comm) {
		c, d := ok(w.Dup()), ok(w.Dup())
		meetOnBoard(c)
		asleep := func() { time.Sleep(20 * time.Millisecond) }
		switch w.Rank() {
		case 0:
			var all sync.WaitGroup
			all.Go(func() { ok(Recv(d, []int{0}, 2, 3)) })
			asleep()
			r := ok(Ibarrier(c))
			all.Go(func() {
				is(second(r.Wait()), ErrComm)
				must(Send(d, []int{1}, 2, 2))
			})
			must(Send(d, []int{1}, 1, 0))
			asleep()
			must(Gather(c, []byte{1}, nil, 1)) // by messages, and over, where rank 1 calls Allreduce
			ok(Recv(d, []int{0}, 1, 1))
			all.Wait()
		case 1:
			r := ok(Ibarrier(c))
			ok(Recv(d, []int{0}, 0, 0))
			is(Allreduce(c, make([]int, 10), make([]int, 10), Sum), ErrComm)
			is(second(r.Wait()), ErrComm)
			must(Send(d, []int{1}, 0, 1))
		case 2:
			ok(Recv(d, []int{0}, 0, 2))
			must(Send(d, []int{1}, 0, 3))
		}
	}, onBoard)
}

// A goroutine waits for one of several requests, of which a persistent call is not started; another one starts that and
// waits for it, and hears that the ranks' calls do not go together also when the first one's wait is over.
func TestStartedBesideAWaitForIt(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		meetOnBoard(w)
		r := ok(AllreduceInit(w, []byte{1}, []byte{0}, Sum))
		if w.Rank() == 1 {
			ok(Recv(w, []int{0}, 0, 0))
			is(Barrier(w), ErrComm)
			return
		}
		must(Scatter(w, []byte{1, 2}, []byte{0}, 0)) // by messages, and over, where rank 1 calls Barrier
		mine := ok(Irecv(w, []int{0}, 0, 1))
		asleep := func() { time.Sleep(20 * time.Millisecond) }
		var all sync.WaitGroup
		all.Go(func() {
			i, _, err := WaitAny(r, mine)
			check(i == 1 && err == nil, "%d, %v", i, err)
			must(Send(w, []int{1}, 1, 0))
		})
		asleep()
		all.Go(func() {
			must(r.Start())
			is(second(r.Wait()), ErrComm)
		})
		asleep()
		must(Send(w, []int{1}, 0, 1))
		all.Wait()
	}, onBoard)
}

// A goroutine that sleeps for messages while another one makes calls by the board says nothing wrong of these: not that
// the rank has left out a call that has its number, and is about to be made.
func TestSleepsBetweenSharedCalls(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		meetOnBoard(w)
		d, other := ok(w.Dup()), 1-w.Rank()
		rounds := inShort(2000, 300)
		var sleepers sync.WaitGroup
		for tag := range 2 {
			sleepers.Go(func() {
				for i := range rounds {
					if (i+tag+w.Rank())%2 == 0 {
						time.Sleep(time.Duration(i%7) * 10 * time.Microsecond)
						must(Send(d, []int{i}, other, tag))
					} else {
						ok(Recv(d, []int{0}, other, tag))
					}
				}
			})
		}
		for range rounds * 10 {
			must(Barrier(w))
		}
		sleepers.Wait()
	}, onBoard)
}

// Ranks whose calls differ, in what they call, with which root, with how many elements, or by a call that one does not
// make, all get an error, which says which call each of two ranks is in, and none waits.
func TestSharedApart(t *testing.T) {
	const slot = coll.SlotMost / 8
	bcast := func(n, root int) func(*Comm) error {
		return func(c *Comm) error { return Bcast(c, make([]int, n), root) }
	}
	reduce := func(n, root int) func(*Comm) error {
		return func(c *Comm) error { return Reduce(c, make([]int, n), make([]int, n), Sum, root) }
	}
	allreduce := func(n int) func(*Comm) error {
		return func(c *Comm) error { return Allreduce(c, nil, make([]int, n), Sum) }
	}
	for _, x := range []struct {
		name      string
		one, rest func(*Comm) error
		class     error
		says      string
	}{
		{"counts of a root", bcast(3*slot, 1), bcast(1, 1), ErrCount,
			fmt.Sprintf("Bcast with root 1 of %d elements of 8 bytes", 3*slot)},
		{"counts of another", bcast(3*slot, 0), bcast(1, 0), ErrCount, "Bcast with root 0 of 1 elements of 8 bytes"},
		{"roots of Bcast", bcast(10, 0), bcast(10, 2), ErrComm, "gives nothing to that"},
		{"roots of Reduce", reduce(10, 1), reduce(10, 2), ErrComm, "Reduce with root"}, // or ErrRoot: see below
		{"roots and counts", bcast(5*slot, 1), bcast(10, 2), ErrComm, "Bcast with root"},
		{"counts of Allreduce", allreduce(2 * slot), allreduce(100), ErrCount, "Allreduce of 100 elements"},
		{"calls", Barrier, bcast(10, 0), ErrComm, "Barrier; "},
		{"calls of several steps", allreduce(5 * slot), reduce(5*slot, 0), ErrComm, "of 40960 elements"},
		{"a call too few", func(*Comm) error { return nil }, allreduce(20), ErrComm, "call 3, Allreduce"},
	} {
		t.Run(x.name, func(t *testing.T) {
			var met, told sync.WaitGroup
			met.Add(3)
			told.Add(3)
			overLoop(t)(3, func(w *Comm) {
				c := ok(w.Dup())
				for range coll.BoardSetup {
					must(Barrier(c))
				}
				met.Done()
				met.Wait() // a rank that still waits in the Barrier could hear of the next call
				call := x.rest
				if c.Rank() == 1 {
					call = x.one
				}
				err := call(c)
				for range 6 {
					if err == nil {
						err = Barrier(c)
					}
				}
				later := Barrier(c)
				told.Done()
				told.Wait() // no rank's end is what ends another's wait
				// Of two roots the one that finds it first may have read what a third rank gives for the other one.
				class := x.class
				if errors.Is(err, ErrRoot) && strings.Contains(x.says, "Reduce with root") {
					class = ErrRoot
				}
				check(errors.Is(err, class), "rank %d: %v", c.Rank(), err)
				check(strings.Contains(err.Error(), x.says), "rank %d: %v", c.Rank(), err)
				check(errors.Is(later, class), "rank %d: a later call: %v", c.Rank(), later)
			}, onBoard)
		})
	}
}

// Every rank has the same bits, whatever the order in which they come.
func TestSharedSameBits(t *testing.T) {
	const n = 7
	var first atomic.Pointer[[]float64]
	overLoop(t)(n, func(w *Comm) {
		meetOnBoard(w)
		for _, size := range []int{1, 300, 9000} {
			in, out := make([]float64, size), make([]float64, size)
			for i := range in {
				in[i] = 1 / float64(1+i*n+w.Rank())
			}
			must(Allreduce(w, in, out, Sum))
			first.CompareAndSwap(nil, &out)
			must(Barrier(w))
			check(slices.Equal(*first.Load(), out), "%v and %v", *first.Load(), out)
			must(Barrier(w))
			first.Store(nil)
			must(Barrier(w))
		}
	}, onBoard)
}

// A call through the board makes no allocation.
func TestSharedAllocates(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		meetOnBoard(w)
		in, out := make([]float64, 4000), make([]float64, 8000)
		calls := func() {
			must(Barrier(w))
			must(Bcast(w, in, 0))
			must(Reduce(w, in, out[:4000], Sum, 1))
			must(Allreduce(w, in[:1000], out[:1000], Sum))
			must(Allgather(w, in, out))
		}
		neverAllocates(w, calls)
	}, onBoard)
}

// neverAllocates checks that calls, which ranks 0 and 1 make together, allocate nothing once they have been made before.
func neverAllocates(w *Comm, calls func()) {
	for range 20 {
		calls()
	}
	if w.Rank() == 1 {
		for range 101 {
			calls()
		}
		return
	}
	if per := testing.AllocsPerRun(100, calls); per >= 1 && !proc.Race {
		check(false, "%v allocations", per)
	}
}

// Elements of which a slot has no room for one for each rank go by messages.
func TestSharedLargeElements(t *testing.T) {
	type large [1024]byte
	overLoop(t)(17, func(w *Comm) {
		for i := range 2 + coll.BoardSetup {
			send, recv := make([]large, w.Size()), make([]large, w.Size())
			for to := range send {
				send[to] = large{byte(w.Rank()), 1023: byte(to)}
			}
			must(Alltoall(w, send, recv))
			for from, got := range recv {
				check(got == large{byte(from), 1023: byte(w.Rank())}, "call %d, from %d: %v", i, from, got[0])
			}
		}
	})
}

// A wait at a board that ends with an error leaves the watcher to see to what else is under way.
func TestSharedErrorLeavesOthersGoing(t *testing.T) {
	returned := make(chan struct{})
	overLoop(t)(3, func(w *Comm) {
		meetOnBoard(w)
		switch w.Rank() {
		case 0:
			got := make([]int, 1)
			r := ok(Irecv(w, got, 1, 0))
			done := r.Done()
			err := Barrier(w)
			check(errors.Is(err, ErrPeerFailed), "%v", err)
			close(returned)
			<-done
			ok(r.Wait())
			check(got[0] == 7, "%v", got)
		case 1:
			<-returned
			must(Send(w, []int{7}, 0, 0))
		default:
			w.group.Engine.Close(mpierr.New("", ErrAborted, "the test ends it"))
		}
	}, onBoard)
}

// Calls of roomy ranks, each by the line of the table that holds for it, give what they should; and a reduction has the
// same bits as where ranks are crowded, and as before they have a board.
func TestRoomy(t *testing.T) {
	whereBoards(t, func(t *testing.T, run runner) {
		roomy(t, run, "GORUN_COLL_CHECK=0", few([]int{3, 4, 8, 9}, 3, 5))
	})
	if !testing.Short() {
		roomy(t, overLoop(t), "GORUN_COLL_CHECK=1", []int{4, 16})
	}
}

func roomy(t *testing.T, run runner, setting string, ranks []int) {
	for _, ranks := range ranks {
		run(ranks, func(w *Comm) {
			meetOnBoard(w)
			if w.group.Board.On == nil {
				return
			}
			w.group.Board.SetCrowded(false)
			sizes := few([]int{1, 1<<9 + 1, 1<<11 + 1, 1<<13 + 1, 1<<15 + 1}, 1<<9+1, 1<<13+1)
			for _, size := range sizes {
				moves[int64](w, size)
				reductions[int64](w, size)
			}
			for _, size := range sizes {
				const times = 4 // without a board twice, crowded, roomy
				c := ok(w.Dup())
				in, all, root := make([]float64, size), [times][]float64{}, [times][]float64{}
				for i := range in {
					in[i] = math.Pow(10, float64((w.Rank()*7+i)%31)) / 3
				}
				for i := range times {
					if i >= coll.BoardSetup {
						c.group.Board.SetCrowded(i == coll.BoardSetup)
					}
					all[i], root[i] = make([]float64, size), make([]float64, size)
					must(Allreduce(c, in, all[i], Sum))
					if i == 0 || i >= coll.BoardSetup { // it is one more call in which the board may be made
						must(Reduce(c, in, root[i], Sum, size%ranks))
					} else {
						root[i] = root[0]
					}
					check(slices.Equal(all[i], all[0]), "Allreduce of %d, call %d, has other bits", size, i)
					check(slices.Equal(root[i], root[0]), "Reduce of %d, call %d, has other bits", size, i)
				}
				must(c.Free())
			}
		}, WithEnviron([]string{setting}))
	}
}

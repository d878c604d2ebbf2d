package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/mpi/internal/coll"
)

// acrossGroups makes every collective call that there is on an intercommunicator of the even ranks of w and the odd
// ones (halves), with n elements.
func acrossGroups[T Integer](w, half, inter *Comm, n int) {
	me, mine, far := inter.Rank(), inter.Size(), inter.RemoteSize()
	odd := w.Rank() % 2
	must(Barrier(inter))
	for side := range 2 { // whose rank is the root
		size := far
		if side == odd {
			size = mine
		}
		for root := range size {
			named, buf := root, make([]T, n)
			switch {
			case side != odd:
			case root == me:
				named, buf = Root, vector[T](root, side, n)
			default:
				named = ProcNull
			}
			must(Bcast(inter, buf, named))
			if named != ProcNull {
				equal("Bcast", buf, vector[T](root, side, n))
			}
			switch named {
			case Root:
				all := make([]T, n*far)
				must(Gather(inter, nil, all, Root))
				equal("Gather", all, joined[T](far, root, n))
			case ProcNull:
				must(Gather[T](inter, nil, nil, ProcNull))
			default:
				must(Gather(inter, vector[T](me, root, n), nil, root))
			}
		}
	}
	got := make([]T, n)
	must(Allreduce(inter, vector[T](me, odd, n), got, Sum))
	equal("Allreduce", got, summed[T](0, far, 1-odd, n))
	product := make([]affine, n)
	must(Allreduce(inter, affines(me, n), product, compose, Ordered))
	equal("Allreduce, Ordered", product, composed(0, far, n))
	must(Barrier(half))
}

// §6.2.3: what each group gets of the other, by each number of ranks.
func TestIntercommCollectives(t *testing.T) {
	for ranks := 2; ranks <= 17; ranks++ {
		if testing.Short() && ranks > 5 {
			continue
		}
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			over(t, WithEnviron([]string{[]string{"", "GORUN_COLL_CHECK=0"}[ranks/2%2]}))(ranks, func(w *Comm) {
				half, inter := halves(w, 3)
				for _, n := range []int{0, 1, 3, 900} {
					acrossGroups[int64](w, half, inter, n)
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				acrossGroups[uint8](w, half, inter.WithContext(ctx), 7)
				must(inter.Free())
				is(Barrier(inter), ErrComm)
			})
		})
	}
}

func TestIntercommCollectivesEverywhere(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		run(5, func(w *Comm) {
			half, inter := halves(w, 3)
			for _, n := range []int{5, 9000} {
				acrossGroups[int64](w, half, inter, n)
			}
		})
	})
}

// §6.3: no rank leaves a Barrier before all ranks of the other group have entered.
func TestIntercommBarrierWaits(t *testing.T) {
	var entered atomic.Int32
	over(t)(5, func(w *Comm) {
		_, inter := halves(w, 3)
		if w.Rank() == 3 { // it enters when the others have waited for a while
			for range 3 {
				ok(Recv(w, make([]int, 1), AnySource, 1))
			}
		} else if w.Rank() > 0 {
			must(Send(w, []int{1}, 3, 1))
		}
		entered.Add(1)
		must(Barrier(inter))
		same(entered.Load(), 5)
	})
}

// Roots, lengths and operations that do not go together are errors at all ranks where calls are compared.
func TestIntercommMistakes(t *testing.T) {
	over(t)(5, func(w *Comm) {
		_, inter := halves(w, 3)
		even := w.Rank()%2 == 0
		last := inter.Rank() == inter.Size()-1 // ranks 0 and 1 of the world
		root := func(of bool, other int) int {
			switch {
			case even != of:
				return other
			case last:
				return Root
			}
			return ProcNull
		}
		buf := make([]int, 3)
		expect := func(err error, class error, text string) {
			is(err, class)
			check(strings.Contains(err.Error(), text), "%v", err)
		}
		expect(Bcast(inter, buf, 9), ErrRoot, "mpi.ProcNull at the other ranks")
		expect(Bcast(inter, buf, root(true, 0)), ErrRoot, "mpi.Root is given as root 0") // rank 0 is rank 2 there
		expect(Bcast(inter, buf, map[bool]int{true: ProcNull, false: 1}[even]), ErrRoot, "no rank calls it with mpi.Root")
		expect(Bcast(inter, buf, ProcNull), ErrRoot, "the root in the group of")
		expect(Bcast(inter, buf, map[bool]int{true: Root, false: 2}[even]), ErrRoot, "root ")
		n := 3
		if !even && last {
			n = 2
		}
		expect(Bcast(inter, buf[:n], root(true, 2)), ErrCount, "elements")
		expect(Gather(inter, buf[:n], make([]int, 4), root(true, 2)), ErrCount, "elements")
		expect(Allreduce(inter, buf[:n], make([]int, n), Sum), ErrCount, "elements")
		expect(Allreduce(inter, nil, buf, Sum), ErrCount, "in place")
		expect(Allreduce(inter, buf, buf, nil), ErrOp, "nil")
		if even {
			expect(Barrier(inter), ErrComm, "Bcast")
		} else {
			expect(Bcast(inter, buf, 2), ErrComm, "Barrier")
		}
		must(Bcast(inter, buf, root(true, 2)))
	})
}

// Calls on an intercommunicator and others at one time do not take each other's messages.
func TestIntercommAmongOthers(t *testing.T) {
	over(t, unchecked())(4, func(w *Comm) {
		half, inter := halves(w, 3)
		other := ok(inter.Merge(false))
		done := make(chan error, 1)
		go func() {
			defer func() {
				if p := recover(); p != nil {
					done <- fmt.Errorf("%v", p)
					return
				}
				done <- nil
			}()
			for range 20 {
				moves[int32](other, 3)
			}
		}()
		for i := range 20 {
			buf := []int{i, w.Rank()}
			switch {
			case w.Rank()%2 == 1:
				must(Bcast(inter, buf, i%inter.RemoteSize()))
				check(slices.Equal(buf, []int{i, w.Rank()}) == false, "nothing has come")
				same(buf[0], i)
			case inter.Rank() == i%inter.Size():
				must(Bcast(inter, buf, Root))
			default:
				must(Bcast(inter, buf, ProcNull))
			}
			acrossGroups[int16](w, half, inter, i)
		}
		must(<-done)
	})
}

// An error names a rank as the caller can know it, not by its place among those that have a part in the call.
func TestIntercommErrorsNameRanksOfTheWorld(t *testing.T) {
	over(t, unchecked())(2, func(w *Comm) {
		_, inter := halves(w, 3)
		if w.Rank() == 0 {
			must(Bcast(inter, []int64{1, 2, 3}, Root))
			return
		}
		err := Bcast(inter, make([]int64, 4), 0)
		is(err, ErrCount)
		check(strings.Contains(err.Error(), "rank 0 of the world sends 24 bytes where 32"), "%v", err)
	})
}

// An error of a call on an intercommunicator has the name that SetName gave, in whichever way the call is made.
func TestIntercommErrorsHaveItsName(t *testing.T) {
	over(t)(4, func(w *Comm) {
		_, inter := halves(w, 3)
		named := func(err error) {
			var e *Error
			check(errors.As(err, &e), "%v", err)
			same(e.Comm, inter.Name())
		}
		root := 9 * (w.Rank() % 2) // one group names a root that there is not, and the other group hears of that
		for _, name := range []string{"bridge", "new bridge"} {
			must(inter.SetName(name))
			for range 2 {
				named(Bcast(inter, make([]int, 3), root))
				named(waited(Ibcast(inter, make([]int, 3), root)))
				named(startedOnce(BcastInit(inter, make([]int, 3), root)))
				n := 3 + w.Rank()%2
				named(Allreduce(inter, make([]int, n), make([]int, n), Sum))
				named(waited(Iallreduce(inter, make([]int, n), make([]int, n), Sum)))
			}
		}
	})
}

// The other two ways to make each call; calls of both groups overtake none.
func TestIntercommWays(t *testing.T) {
	for _, env := range []string{"GORUN_COLL_CHECK=1", "GORUN_COLL_CHECK=0"} {
		over(t, WithEnviron([]string{env}))(5, func(w *Comm) {
			_, inter := halves(w, 3)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for _, c := range []*Comm{inter, inter.WithContext(ctx)} {
				inTwoWays(c, w.Rank()%2, 5)
				inTwoWays(c, w.Rank()%2, 9000)
			}
		})
	}
}

// inTwoWays makes each call that there is on an intercommunicator nonblocking, all at one time, and persistent, twice.
func inTwoWays(c *Comm, odd, n int) {
	far, root, sender := c.RemoteSize(), 1, odd == 0 // rank 1 of the even ranks is the root
	if sender {
		if root = ProcNull; c.Rank() == 1 {
			root = Root
		}
	}
	for _, w := range []coll.Way{coll.Nonblocking, coll.Persistent} {
		word, all, sum := make([]int64, n), make([]int64, n*far), make([]int64, n)
		mine := vector[int64](c.Rank(), odd, n)
		if root == Root {
			copy(word, mine)
		}
		var rs []*Request
		if w == coll.Nonblocking {
			rs = []*Request{ok(Ibcast(c, word, root)), ok(Igather(c, mine, all, root)), ok(Iallreduce(c, mine, sum, Sum)),
				ok(Ibarrier(c))}
			must(WaitAll(rs...))
		} else {
			rs = []*Request{ok(BcastInit(c, word, root)), ok(GatherInit(c, mine, all, root)),
				ok(AllreduceInit(c, mine, sum, Sum)), ok(BarrierInit(c))}
			for range 2 {
				clear(all)
				clear(sum)
				if root >= 0 {
					clear(word)
				}
				must(StartAll(rs...))
				must(WaitAll(rs...))
			}
			for _, r := range rs {
				must(r.Free())
			}
		}
		if root != ProcNull {
			equal("Bcast", word, vector[int64](1, 0, n))
		}
		if root == Root {
			for r := range far {
				equal("Gather", all[r*n:(r+1)*n], vector[int64](r, 1, n))
			}
		}
		equal("Allreduce", sum, summed[int64](0, far, 1-odd, n))
	}
}

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
	for _, by := range []callBy{callBlocking, callNonblocking, callPersistent} {
		eachAcross(inter, odd, n, by)
	}
	layoutsAcross(inter, odd, 1+n%5)
	product := make([]affine, n)
	must(Allreduce(inter, affines(me, n), product, compose, Ordered))
	equal("Allreduce, Ordered", product, composed(0, far, n))
	must(Barrier(half))
}

// ofSide is what a rank of one of the two groups has for rank to of the other one.
func ofSide(side, rank, to, n int) []int64 { return vector[int64](rank+50*side, to, n) }

// rootOf is how a rank names a root, which is rank root of the group own of the two.
func rootOf(c *Comm, own bool, root int) int {
	switch {
	case !own:
		return root
	case root == c.Rank():
		return Root
	}
	return ProcNull
}

// eachAcross makes, in one way, the calls for elements that acrossGroups and inTwoWays do not.
func eachAcross(c *Comm, odd, n int, by callBy) {
	for side := range 2 {
		size := c.RemoteSize()
		if side == odd {
			size = c.Size()
		}
		for root := range size {
			rootedAcross(c, odd, root, rootOf(c, side == odd, root), n, by)
		}
	}
	me, own, far := c.Rank(), c.Size(), c.RemoteSize()
	mine, theirs := n+odd, n+1-odd // lengths differ by direction
	got := make([]int64, far*theirs)
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) {
		return planAllgather(c, v, ofSide(odd, me, 0, mine), got)
	}))
	for i, b := range split(got, far) {
		equal("Allgather", b, ofSide(1-odd, i, 0, theirs))
	}
	var give, take [][]int64
	for i := range far {
		give, take = append(give, ofSide(odd, me, i, mine)), append(take, make([]int64, uneven(i, 1, n)))
	}
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) {
		return planAllgatherv(c, v, ofSide(odd, me, 0, uneven(me, 1, n)), take)
	}))
	for i, b := range take {
		equal("Allgatherv", b, ofSide(1-odd, i, 0, len(b)))
	}
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) {
		return planAlltoall(c, v, slices.Concat(give...), got)
	}))
	for i, b := range split(got, far) {
		equal("Alltoall", b, ofSide(1-odd, i, me, theirs))
	}
	length := func(from, to, side int) int { return uneven(from, to+side, n) }
	for i := range far {
		give[i], take[i] = ofSide(odd, me, i, length(me, i, odd)), make([]int64, length(i, me, 1-odd))
	}
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) { return planAlltoallv(c, v, give, take) }))
	for i, b := range take {
		equal("Alltoallv", b, ofSide(1-odd, i, me, len(b)))
	}

	total := n * own * far
	sum := make([]int64, total)
	for i := range far {
		Sum(sum, ofSide(1-odd, i, 0, total))
	}
	part := make([]int64, total/own)
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) {
		return planReduceScatterBlock(c, v, ofSide(odd, me, 0, total), part, Sum, nil)
	}))
	equal("ReduceScatterBlock", part, split(sum, own)[me])
	counts, left, at := make([]int, own), total, 0
	for i := range own {
		if counts[i] = min(left, uneven(i, 1, n)); i == own-1 {
			counts[i] = left
		}
		left -= counts[i]
		if i < me {
			at += counts[i]
		}
	}
	part = make([]int64, counts[me])
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) {
		return planReduceScatter(c, v, ofSide(odd, me, 0, total), part, counts, Sum, nil)
	}))
	equal("ReduceScatter", part, sum[at:at+counts[me]])
}

// rootedAcross makes the calls with a root, which has this number in its group. named is how this rank names it.
func rootedAcross(c *Comm, odd, root, named, n int, by callBy) {
	me, far := c.Rank(), c.RemoteSize()
	length := func(i int) int { return uneven(i, root, n) }
	var in, out [][]int64 // of the root
	for i := range far {
		in, out = append(in, make([]int64, length(i))), append(out, ofSide(odd, me, i, length(i)))
	}
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) {
		return planGatherv(c, v, ofSide(odd, me, root, length(me)), in, named)
	}))
	for i := range far {
		if named == Root {
			equal("Gatherv", in[i], ofSide(1-odd, i, root, length(i)))
		}
	}
	got := make([]int64, length(me))
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) { return planScatterv(c, v, out, got, named) }))
	if named >= 0 {
		equal("Scatterv", got, ofSide(1-odd, root, me, length(me)))
	}
	got, all := make([]int64, n), make([]int64, n*far)
	for i, b := range split(all, far) {
		copy(b, ofSide(odd, me, i, n))
	}
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) { return planScatter(c, v, all, got, named) }))
	if named >= 0 {
		equal("Scatter", got, ofSide(1-odd, root, me, n))
	}
	clear(got)
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) {
		return planReduce(c, v, ofSide(odd, me, 0, n), got, Sum, named, nil)
	}))
	want := make([]int64, n)
	for i := range far {
		if named == Root {
			Sum(want, ofSide(1-odd, i, 0, n))
		}
	}
	equal("Reduce", got, want)
	product := make([]affine, n)
	must(by(c, func(c *Comm, v coll.Way) (*coll.Plan, error) {
		return planReduce(c, v, affines(me, n), product, compose, named, []Reduction{Ordered})
	}))
	if named == Root {
		equal("Reduce, Ordered", product, composed(0, far, n))
	}
}

// layoutsAcross makes the calls with layouts, of k rows.
func layoutsAcross(c *Comm, odd, k int) {
	me, far := c.Rank(), c.RemoteSize()
	id := func(side, rank int) int { return rank + 50*side }
	one, second := Contiguous(k, Of[float64]()), column(k, 2, 1)
	mine := cells(id(odd, me), k, 2)
	// gathered is second of each rank of the other group, as columns.
	gathered := func(name string, got []float64) {
		for i := range got {
			same(got[i], 1e6*float64(id(1-odd, i%far))+1000*float64(i/far)+1)
		}
	}
	for side := range 2 {
		for root := range []int{c.Size(), far}[side^odd] {
			named := rootOf(c, side == odd, root)
			buf, l := make([]float64, 2*k), one
			if named == Root {
				copy(buf, mine)
				l = second
			}
			must(BcastLayout(c, buf, l, named))
			if named >= 0 {
				for i := range k {
					same(buf[i], 1e6*float64(id(1-odd, root))+1000*float64(i)+1)
				}
			}
			out := make([]float64, k*far)
			must(Gatherw(c, mine, second, out, columns(k, far), named))
			if named == Root {
				gathered("Gatherw", out)
			}
			in := make([]float64, 2*k)
			must(Scatterw(c, cells(id(odd, me), k, far), columns(k, far), in, second, named))
			for i := range in {
				want := 0.0
				if named >= 0 && i%2 == 1 {
					want = 1e6*float64(id(1-odd, root)) + 1000*float64(i/2) + float64(me)
				}
				same(in[i], want)
			}
		}
	}
	out := make([]float64, k*far)
	must(Allgatherw(c, mine, second, out, columns(k, far)))
	gathered("Allgatherw", out)
	must(Alltoallw(c, cells(id(odd, me), k, far), columns(k, far), out, rowsOf(far, k)))
	for i := range out {
		same(out[i], 1e6*float64(id(1-odd, i/k))+1000*float64(i%k)+float64(me))
	}
}

// The calls of one value, of objects and of slices of unknown lengths between two groups.
func TestIntercommValues(t *testing.T) {
	for _, env := range []string{"GORUN_COLL_CHECK=1", "GORUN_COLL_CHECK=0"} {
		over(t, WithEnviron([]string{env}))(5, func(w *Comm) {
			_, inter := halves(w, 3)
			odd, me, own, far := w.Rank()%2, inter.Rank(), inter.Size(), inter.RemoteSize()
			value := func(side, rank int) int { return 10*side + rank }
			var theirs []int
			sum := 0
			for i := range far {
				theirs = append(theirs, value(1-odd, i))
				sum += value(1-odd, i)
			}
			lists := func(side, rank int) []string { return slices.Repeat([]string{fmt.Sprint(side)}, rank) }
			same(ok(AllreduceValue(inter, value(odd, me), Sum)), sum)
			equal("AllgatherValues", ok(AllgatherValues(inter, value(odd, me))), theirs)
			for i, b := range ok(AllgatherAlloc(inter, vector[int](me, odd, me))) {
				equal("AllgatherAlloc", b, vector[int](i, 1-odd, i))
			}
			for i, o := range ok(AllgatherObjects(inter, lists(odd, me))) {
				equal("AllgatherObjects", o, lists(1-odd, i))
			}
			for side := range 2 {
				for root := range []int{own, far}[side^odd] {
					named := rootOf(inter, side == odd, root)
					one, all, objects := ok(ReduceValue(inter, value(odd, me), Sum, named)),
						ok(GatherValues(inter, value(odd, me), named)), ok(GatherObjects(inter, lists(odd, me), named))
					blocks := ok(GatherAlloc(inter, vector[int](me, odd, me), named))
					if named == Root {
						same(one, sum)
						equal("GatherValues", all, theirs)
						for i := range far {
							equal("GatherObjects", objects[i], lists(1-odd, i))
							equal("GatherAlloc", blocks[i], vector[int](i, 1-odd, i))
						}
					} else {
						check(all == nil && objects == nil && blocks == nil, "%v, %v, %v", all, objects, blocks)
					}
					v, o := ok(BcastValue(inter, value(odd, me), named)), ok(BcastObject(inter, lists(odd, me), named))
					vs, os := make([]int, far), make([][]string, far)
					for i := range far {
						vs[i], os[i] = value(odd, i), lists(odd, i)
					}
					mine, object := ok(ScatterValues(inter, vs, named)), ok(ScatterObjects(inter, os, named))
					if named >= 0 {
						same(v, value(1-odd, root))
						equal("BcastObject", o, lists(1-odd, root))
						same(mine, value(1-odd, me))
						equal("ScatterObjects", object, lists(1-odd, me))
					}
					// An object that its rank cannot encode: the ranks of the root's group do not hear of that.
					_, err := BcastObject(inter, func() {}, named)
					if named == ProcNull {
						must(err)
					} else {
						is(err, ErrType)
					}
					p := new(int)
					if named < 0 {
						p = nil // which gob cannot encode, and nothing asks for
					}
					must(second(GatherObjects(inter, p, named)))
				}
			}
			must(Barrier(inter))
		})
	}
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
		far, blocks := inter.RemoteSize(), make([][]int, inter.RemoteSize())
		for i := range blocks {
			blocks[i] = buf
		}
		expect(Allgather(inter, nil, make([]int, far)), ErrCount, "with 0 elements for rank") // nil is no data here
		expect(ReduceScatterBlock(inter, nil, buf, Sum), ErrCount, "in place")
		expect(Alltoall(inter, buf[:1], make([]int, far)), ErrCount, "send has 1 elements")
		expect(Alltoallv(inter, blocks[1:], blocks), ErrCount, "slices")
		expect(Gatherv(inter, buf, blocks[1:], root(true, 2)), ErrCount, "slices")
		expect(ReduceScatter(inter, buf, buf, nil, Sum), ErrCount, "the caller's group")
		expect(ReduceScatterBlock(inter, buf[:2], buf, Sum), ErrCount, "the sum of all parts")
		expect(Reduce(inter, buf, buf, nil, root(true, 2)), ErrOp, "nil")
		if even { // 3 and 2 elements in all
			expect(ReduceScatterBlock(inter, make([]int, 3), buf[:1], Sum), ErrCount, "3 elements in send")
			expect(Allgather(inter, buf, make([]int, far)), ErrComm, "Alltoall")
		} else {
			expect(ReduceScatterBlock(inter, make([]int, 2), buf[:1], Sum), ErrCount, "2 elements in send")
			expect(Alltoall(inter, make([]int, far), make([]int, 3*far)), ErrComm, "Allgather")
		}
		expect(Allgather(inter, buf, make([]int, far)), ErrCount, "with 3 elements for rank")
		order := []Reduction{Ordered}
		expect(Reduce(inter, buf, buf, Sum, root(true, 2), order[:w.Rank()/3%2]...), ErrOp, "an operator that commutes")
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

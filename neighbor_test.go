package mpi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/coll"
)

// hood is a topology of n ranks, as the test knows it.
type hood struct {
	name         string
	make         func(w *Comm) (*Comm, error)
	sources      func(r int) []int
	destinations func(r int) []int
	grid         *cart // nil: a graph
}

// origin is which block of which rank arrives in block i of rank r; -1: none.
func (h hood) origin(r, i int) (from, block int) {
	s := h.sources(r)[i]
	switch {
	case s < 0:
		return -1, 0
	case h.grid != nil: // what comes from below was sent upwards
		return s, i ^ 1
	}
	before := 0
	for _, x := range h.sources(r)[:i] {
		if x == s {
			before++
		}
	}
	for k, x := range h.destinations(s) {
		if x == r {
			if before == 0 {
				return s, k
			}
			before--
		}
	}
	panic("the test's graph is wrong")
}

func gridHood(dims []int, periodic ...bool) hood {
	g := &cart{dims, periodic}
	around := func(r int) (all []int) { // as MPI_Cart_shift says it, dimension by dimension; §8.6
		for d, at := range g.coords(r) {
			stride := 1
			for _, n := range dims[d+1:] {
				stride *= n
			}
			for _, to := range []int{at - 1, at + 1} {
				switch {
				case to >= 0 && to < dims[d]:
					all = append(all, r+(to-at)*stride)
				case periodic[d]:
					all = append(all, r+((to+dims[d])%dims[d]-at)*stride)
				default:
					all = append(all, ProcNull)
				}
			}
		}
		return all
	}
	return hood{fmt.Sprint("grid ", dims, periodic), func(w *Comm) (*Comm, error) { return w.Cart(dims, periodic, false) },
		around, around, g}
}

// hoods are topologies of n ranks: grids with dimensions of 1 and 2, in which neighbours are one rank or the rank
// itself, and graphs in which an edge is there more than once, and ranks that have none.
func hoods(n int) []hood {
	two, three := make([]int, 2), make([]int, 3)
	must(Dims(n, two))
	must(Dims(n, three))
	all := []hood{gridHood([]int{n}, true), gridHood([]int{n}, false), gridHood([]int{1, n}, true, true),
		gridHood(two, true, false), gridHood(three, true, true, false), gridHood(nil)}
	if n > 1 {
		all = all[:5]
	}
	double := func(r int) []int { return []int{r, (r + 1) % n, (r + n - 1) % n, (r + 1) % n, (r + n - 1) % n} }
	lists := make([][]int, n)
	for r := range lists {
		lists[r] = double(r)
	}
	all = append(all, hood{"graph", func(w *Comm) (*Comm, error) { return w.Graph(lists) }, double, double, nil})

	random := rand.New(rand.NewPCG(uint64(n), 3))
	in, out, edges := make([][]int, n), make([][]int, n), []Edge{}
	for range 3 * n {
		e := Edge{From: random.IntN(n), To: random.IntN(max(1, n-1))} // the last rank receives nothing
		edges = append(edges, e)
		in[e.To], out[e.From] = append(in[e.To], e.From), append(out[e.From], e.To)
	}
	of := func(lists [][]int) func(int) []int { return func(r int) []int { return lists[r] } }
	all = append(all, hood{"adjacent", func(w *Comm) (*Comm, error) {
		return w.DistGraphAdjacent(in[w.Rank()], out[w.Rank()])
	}, of(in), of(out), nil})
	inOrder, outOrder := make([][]int, n), make([][]int, n)
	for r := range n {
		inOrder[r], outOrder[r] = slices.Sorted(slices.Values(in[r])), slices.Sorted(slices.Values(out[r]))
	}
	return append(all, hood{"edges", func(w *Comm) (*Comm, error) {
		var mine []Edge
		for i, e := range edges {
			if i%n == w.Rank() {
				mine = append(mine, e)
			}
		}
		return w.DistGraph(mine...)
	}, of(inOrder), of(outOrder), nil})
}

// neighbors makes every call among neighbours, with n elements.
func neighbors[T Integer](c *Comm, h hood, w coll.Way, n int) {
	me := c.Rank()
	in, out := h.sources(me), h.destinations(me)
	blank := func(n int) []T { // what is there before, and stays if there is no neighbour
		return slices.Repeat([]T{77}, n)
	}
	var wantOne, wantEach, give []T
	var one, each, ones, eachs, gives [][]T
	for i := range in {
		s, k := h.origin(me, i)
		if s < 0 {
			wantOne, wantEach = append(wantOne, blank(n)...), append(wantEach, blank(n)...)
			one, each = append(one, blank(2)), append(each, blank(2))
			ones, eachs = append(ones, blank(2)), append(eachs, blank(2))
			continue
		}
		wantOne, wantEach = append(wantOne, vector[T](s, 50, n)...), append(wantEach, vector[T](s, k, n)...)
		one, each = append(one, vector[T](s, 50, uneven(s, 2, n))), append(each, vector[T](s, k, uneven(s, k, n)))
		ones, eachs = append(ones, blank(uneven(s, 2, n))), append(eachs, blank(uneven(s, k, n)))
	}
	for k := range out {
		give = append(give, vector[T](me, k, n)...)
		gives = append(gives, vector[T](me, k, uneven(me, k, n)))
	}
	gotOne, gotEach := blank(n*len(in)), blank(n*len(in))
	mine, mines := vector[T](me, 50, n), vector[T](me, 50, uneven(me, 2, n))
	switch w {
	case coll.Blocking:
		must(NeighborAllgather(c, mine, gotOne))
		must(NeighborAlltoall(c, give, gotEach))
		must(NeighborAllgatherv(c, mines, ones))
		must(NeighborAlltoallv(c, gives, eachs))
	case coll.Nonblocking:
		must(WaitAll(ok(IneighborAllgather(c, mine, gotOne)), ok(IneighborAlltoall(c, give, gotEach)),
			ok(IneighborAllgatherv(c, mines, ones)), ok(IneighborAlltoallv(c, gives, eachs))))
	case coll.Persistent:
		rs := []*Request{ok(NeighborAllgatherInit(c, mine, gotOne)), ok(NeighborAlltoallInit(c, give, gotEach)),
			ok(NeighborAllgathervInit(c, mines, ones)), ok(NeighborAlltoallvInit(c, gives, eachs))}
		for range 2 {
			must(StartAll(rs...))
			must(WaitAll(rs...))
		}
		for _, r := range rs {
			must(r.Free())
		}
	}
	equal(h.name+": NeighborAllgather", gotOne, wantOne)
	equal(h.name+": NeighborAlltoall", gotEach, wantEach)
	for i := range in {
		equal(h.name+": NeighborAllgatherv", ones[i], one[i])
		equal(h.name+": NeighborAlltoallv", eachs[i], each[i])
	}
}

// §8.6: what arrives where, by each number of ranks.
func TestNeighborCollectives(t *testing.T) {
	for ranks := 1; ranks <= 17; ranks++ {
		if testing.Short() && ranks > 4 && ranks != 8 {
			continue
		}
		for i, h := range hoods(ranks) {
			env := []string{"", "GORUN_COLL_CHECK=0"}[(ranks+i)%2]
			t.Run(fmt.Sprintf("%d ranks, %s %s", ranks, h.name, env), func(t *testing.T) {
				over(t, WithEnviron([]string{env}))(ranks, func(w *Comm) {
					c := ok(h.make(w))
					for _, n := range []int{0, 1, 3, 900} {
						neighbors[int64](c, h, coll.Blocking, n)
						neighbors[uint16](c, h, coll.Nonblocking, n)
						neighbors[uint8](ok(c.Dup()), h, coll.Persistent, n)
					}
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					for _, w := range []coll.Way{coll.Blocking, coll.Nonblocking, coll.Persistent} {
						neighbors[int16](c.WithContext(ctx), h, w, 5)
					}
				})
			})
		}
	}
}

func TestNeighborCollectivesEverywhere(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		const ranks = 4
		all := hoods(ranks)
		run(ranks, func(w *Comm) {
			for i, h := range all {
				if testing.Short() && i != 1 && h.name != "adjacent" {
					continue
				}
				c := ok(h.make(w))
				neighbors[int64](c, h, coll.Blocking, 9000)
				neighbors[int64](c, h, coll.Nonblocking, 9000)
				neighbors[int64](c, h, coll.Persistent, 5)
				must(c.Free())
			}
		})
	})
}

// What a rank gets wrong it hears with the numbers.
func TestNeighborMistakes(t *testing.T) {
	over(t, unchecked())(3, func(w *Comm) {
		for _, err := range []error{
			NeighborAlltoall(w, []int{1}, []int{1}), NeighborAllgatherv(w, []int{1}, nil),
		} {
			is(err, ErrTopology)
			check(strings.Contains(err.Error(), "DistGraph"), "%v", err)
		}
		c := ok(w.Cart([]int{3}, []bool{true}, false))
		for _, err := range []error{
			NeighborAllgather(c, []int{1}, []int{1}), NeighborAllgather(c, []int{1, 2}, make([]int, 3)),
			NeighborAllgatherv(c, []int{1}, make([][]int, 1)), NeighborAlltoall(c, []int{1, 2}, []int{1}),
			NeighborAlltoall(c, []int{1, 2, 3}, []int{1, 2}), NeighborAlltoallv(c, make([][]int, 2), make([][]int, 3)),
			NeighborAlltoallv(c, make([][]int, 1), make([][]int, 2)),
		} {
			is(err, ErrCount)
			check(strings.Contains(err.Error(), "neighbours"), "%v", err)
		}
		is(NeighborAllgather(c, []*int{nil}, make([]*int, 2)), ErrType)
		is(NeighborAllgather[int](nil, nil, nil), ErrComm)
		lopsided := ok(w.Graph([][]int{{1}, {2, 0}, {}}))
		err := NeighborAlltoall(lopsided, nil, []int{})
		is(err, ErrTopology)
		check(strings.Contains(err.Error(), "node 1") && strings.Contains(err.Error(), "node 2"), "%v", err)
	})
}

// Lengths that do not go together along an edge are an error at all ranks where calls are compared.
func TestNeighborLengthsThatDiffer(t *testing.T) {
	over(t)(5, func(w *Comm) {
		c := ok(w.Cart([]int{5}, []bool{false}, false))
		n := 3
		if c.Rank() == 3 {
			n = 4
		}
		for _, err := range []error{
			NeighborAllgather(c, make([]int, n), make([]int, 2*n)), NeighborAlltoall(c, make([]int, 2*n), make([]int, 2*n)),
			NeighborAllgatherv(c, make([]int, n), [][]int{make([]int, 3), make([]int, 3)}),
			NeighborAlltoallv(c, [][]int{make([]int, 3), make([]int, n)}, [][]int{make([]int, 3), make([]int, 3)}),
		} {
			is(err, ErrCount)
			check(strings.Contains(err.Error(), "rank 3"), "%v", err)
		}
		must(Barrier(c))
	})
}

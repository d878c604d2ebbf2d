package mpi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// §8.5.2: MPI_Dims_create: the product is n, what is given stays, what is filled in does not grow, and no other such
// grid is closer to a cube.
func TestDims(t *testing.T) {
	for n := 1; n <= 400; n++ {
		for k := 1; k <= 4; k++ {
			dims := make([]int, k)
			must(Dims(n, dims))
			product := 1
			for i, d := range dims {
				product *= d
				check(i == 0 || d <= dims[i-1], "%d in %v", n, dims)
			}
			check(product == n, "%d in %v", n, dims)
			check(spread(dims) == leastSpread(n, k, n, 0), "%d in %v: %d can be", n, dims, leastSpread(n, k, n, 0))
		}
	}
	for _, c := range []struct {
		n          int
		dims, want []int
	}{
		{6, []int{0, 0}, []int{3, 2}}, {7, []int{0, 0}, []int{7, 1}}, {6, []int{0, 3, 0}, []int{2, 3, 1}}, {7, []int{0, 3, 0}, nil},
		{0, []int{0}, nil}, {4, []int{-1, 0}, nil}, {4, []int{2, 2}, []int{2, 2}}, {5, []int{2, 2}, nil}, {8, []int{2, 2}, nil},
		{1 << 20, []int{0, 0, 0}, []int{128, 128, 64}}, {1, nil, nil}, {2, nil, nil},
		{2 * 3 * 5 * 7 * 11 * 13 * 17 * 19, make([]int, 5), []int{55, 51, 42, 39, 38}}, // 9 699 690
	} {
		given := slices.Clone(c.dims)
		err := Dims(c.n, c.dims)
		if c.want == nil && len(given) > 0 {
			is(err, ErrDims)
			continue
		}
		if len(given) == 0 {
			check((err == nil) == (c.n == 1), "%d ranks without a dimension: %v", c.n, err)
			continue
		}
		must(err)
		product := 1
		for _, d := range c.dims {
			product *= d
		}
		check(product == c.n, "%d in %v", c.n, c.dims)
		if len(given) < 5 {
			check(slices.Equal(c.dims, c.want), "%d in %v: %v, want %v", c.n, given, c.dims, c.want)
		}
	}
}

// leastSpread tries every way to cut n into k factors up to limit; first is the largest, 0: not chosen yet.
func leastSpread(n, k, limit, first int) int {
	best := 1 << 30
	for d := 1; d <= min(n, limit); d++ {
		if n%d != 0 {
			continue
		}
		f := first
		if f == 0 {
			f = d
		}
		if k == 1 {
			if d == n {
				best = min(best, f-d)
			}
			continue
		}
		best = min(best, leastSpread(n/d, k-1, d, f))
	}
	return best
}

// §8.5.1, §8.5.5 to §8.5.7: coordinates are in row-major order; shifts stop at ends that are no rings; a part of the
// dimensions is a grid of its own.
func TestCart(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(7, func(w *Comm) {
			c := ok(w.Cart([]int{2, 3}, []bool{false, true}, false))
			if w.Rank() == 6 {
				check(c == nil, "a rank beyond the grid is in it")
				is(second((*Comm)(nil).Coords(0)), ErrComm)
				is(second(w.Coords(0)), ErrTopology)
				return
			}
			same(c.Rank(), w.Rank())
			x, y := c.Rank()/3, c.Rank()%3
			check(slices.Equal(ok(c.Coords(c.Rank())), []int{x, y}), "coordinates")
			same(ok(c.CartRank(x, y-3)), c.Rank())
			is(second(c.CartRank(2, 0)), ErrDims)
			is(second(c.CartRank(0)), ErrDims)
			is(second(c.Coords(6)), ErrRank)
			from, to, err := c.Shift(0, 1)
			must(err)
			same([2]int{from, to}, [2]int{[]int{ProcNull, y}[x], []int{3 + y, ProcNull}[x]})
			for _, steps := range []int{1, -5, 3, 1<<63 - 1, -1 << 63} {
				from, to, err = c.Shift(1, steps)
				must(err)
				in := []int{0}
				ok(Sendrecv(c, []int{c.Rank()}, to, 1, in, from, 1))
				same(in[0], from)
			}
			_, _, err = c.Shift(2, 1)
			is(err, ErrDims)
			row := ok(c.CartSub(false, true))
			same([2]int{row.Rank(), row.Size()}, [2]int{y, 3})
			ring(row, x)
			dims, periodic, err := row.CartDims()
			must(err)
			check(slices.Equal(dims, []int{3}) && slices.Equal(periodic, []bool{true}), "%v %v", dims, periodic)
			same(ok(c.CartSub(false, false)).Size(), 1)
			is(second(c.CartSub(true)), ErrDims)
			d := ok(c.Dup())
			in, out, err := d.Neighbors()
			must(err)
			check(slices.Equal(in, out) && len(in) == 4 && in[2] == x*3+(y+2)%3, "neighbours %v %v", in, out)
		})
	})
}

// Dimensions that cannot be are refused by all ranks, also those that were given right ones.
func TestBadGrids(t *testing.T) {
	over(t)(4, func(w *Comm) {
		for _, dims := range [][]int{{5}, {2, 0}, {-1}, {2, 2, 2}, {1 << 62, 4}} {
			is(second(w.Cart(dims, make([]bool, len(dims)), true)), ErrDims)
		}
		is(second(w.Cart([]int{2, 2}, nil, true)), ErrDims)
		dims := []int{2, 2}
		if w.Rank() == 2 {
			dims = []int{4, 1}
		}
		err := second(w.Cart(dims, []bool{true, true}, false))
		is(err, ErrComm)
		check(strings.Contains(err.Error(), "different arguments"), "%v", err)
		same(ok(w.Cart(nil, nil, false)) != nil, w.Rank() == 0)
		must(Barrier(w))
	})
}

// With reorder each host has a block of the grid, whatever the order in which ranks were started.
func TestCartByHosts(t *testing.T) {
	for _, hostOf := range []func(r int) int{
		func(r int) int { return r / 4 }, func(r int) int { return r % 4 }, func(r int) int { return r * 7 % 16 / 4 },
	} {
		over(t, onHosts(hostOf))(16, func(w *Comm) {
			c := ok(w.Cart([]int{8, 2}, []bool{true, true}, true))
			hosts := make([]int, 1)
			away := 0
			_, to, err := c.Neighbors()
			must(err)
			for i, r := range to {
				ok(Sendrecv(c, []int{w.group.Host()}, r, 1, hosts, to[i^1], 1))
				if hosts[0] != w.group.Host() {
					away++
				}
			}
			same(away, 1)
			at := ok(c.Coords(c.Rank()))
			block := ok(c.Split(at[0]/2, 0))
			shared := ok(block.SplitShared(0))
			same(shared.Size(), 4)
		})
	}
	// Hosts of unequal size keep their ranks together.
	over(t, onHosts(func(r int) int { return r % 2 }))(7, func(w *Comm) {
		c := ok(w.Cart([]int{7}, []bool{false}, true))
		same(c.Rank(), []int{0, 4, 1, 5, 2, 6, 3}[w.Rank()])
	})
}

// §8.5.3, §8.5.4: graphs that all ranks know, and such of which each knows a part.
func TestGraphs(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		run(5, func(w *Comm) {
			lists := [][]int{{1, 3}, {0}, {3}, {0, 2}}
			g := ok(w.Graph(lists))
			if w.Rank() == 4 {
				check(g == nil, "a rank beyond the graph is in it")
			} else {
				in, out, err := g.Neighbors()
				must(err)
				check(slices.Equal(in, lists[g.Rank()]) && slices.Equal(out, in), "%v %v", in, out)
				check(slices.Equal(ok(g.GraphNeighbors(3)), lists[3]), "neighbours of 3")
				is(second(g.GraphNeighbors(4)), ErrRank)
			}
			is(second(w.GraphNeighbors(0)), ErrTopology)
			is(second(w.Graph([][]int{{1}})), ErrTopology)
			is(second(w.Graph(make([][]int, 6))), ErrTopology)
			_, _, err := w.Neighbors()
			is(err, ErrTopology)

			next, self := (w.Rank()+1)%5, w.Rank()
			a := ok(w.DistGraphAdjacent([]int{next, self}, []int{self, (self + 4) % 5}))
			in, out, err := a.Neighbors()
			must(err)
			check(slices.Equal(in, []int{next, self}) && slices.Equal(out, []int{self, (self + 4) % 5}), "%v %v", in, out)

			var edges []Edge // each rank gives those of another, and rank 0 all that go to itself
			r := (w.Rank() + 2) % 5
			edges = append(edges, Edge{r, (r + 1) % 5}, Edge{r, (r + 3) % 5}, Edge{r, r})
			if w.Rank() == 0 {
				edges = append(edges, Edge{3, 0}, Edge{3, 0})
			}
			d := ok(w.DistGraph(edges...))
			in, out, err = d.Neighbors()
			must(err)
			me := w.Rank()
			wantIn, wantOut := []int{me, (me + 4) % 5, (me + 2) % 5}, []int{me, (me + 1) % 5, (me + 3) % 5}
			if me == 0 {
				wantIn = append(wantIn, 3, 3)
			}
			if me == 3 {
				wantOut = append(wantOut, 0, 0)
			}
			slices.Sort(wantIn)
			slices.Sort(wantOut)
			check(fmt.Sprint(in, out) == fmt.Sprint(wantIn, wantOut), "%v %v, want %v %v", in, out, wantIn, wantOut)
			ring(d, 3)
			bad := Edge{0, 1}
			if me == 2 {
				bad = Edge{0, 5}
			}
			is(second(w.DistGraph(bad)), ErrTopology)
		})
	})
}

// An edge that only one of its ranks gives is an error at all ranks where calls are compared, and no later hang.
func TestEdgesThatOneEndGives(t *testing.T) {
	over(t)(5, func(world *Comm) {
		w := ok(world.Split(0, -world.Rank()))
		me, next, before := w.Rank(), (w.Rank()+1)%5, (w.Rank()+4)%5
		for _, c := range []struct {
			who                   int
			sources, destinations []int
			text                  string
		}{
			{2, []int{before}, nil, "rank 2 gives rank 3 as a destination 0 times, which gives rank 2 as a source 1 times"},
			{2, nil, []int{next}, "rank 1 gives rank 2 as a destination 1 times, which gives rank 1 as a source 0 times"},
			{0, []int{before}, []int{next, next}, "rank 0 gives rank 1 as a destination 2 times"},
			{4, []int{before, 4}, []int{next}, "rank 4 gives rank 4 as a destination 0 times"},
			{4, []int{before, 1}, []int{next, 4}, "which gives rank"},
		} {
			sources, destinations := []int{before}, []int{next}
			if me == c.who {
				sources, destinations = c.sources, c.destinations
			}
			err := second(w.DistGraphAdjacent(sources, destinations))
			is(err, ErrTopology)
			check(strings.Contains(err.Error(), c.text), "%v", err)
		}
		g := ok(w.DistGraphAdjacent([]int{before, me, before}, []int{me, next, next}))
		must(NeighborAllgather(g, []int{me}, make([]int, 3)))
	})
	over(t, unchecked())(2, func(w *Comm) { // nothing is compared
		ok(w.DistGraphAdjacent([]int{0, 1}[:w.Rank()], nil))
	})
}

// §8.5.4, §8.5.5: weights are told again at both ranks of an edge, in the order of its neighbours; that there are
// none is something else than weights of 0, or none of a rank without neighbours.
func TestWeights(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		run(5, func(world *Comm) {
			w := ok(world.Split(0, -world.Rank()))
			me := w.Rank()
			wants := func(c *Comm, in, out Weights) {
				sources, destinations, err := c.Neighbors()
				must(err)
				weights, weighted, err := c.NeighborWeights()
				must(err)
				check(weighted, "rank %d: there are no weights", me)
				got := fmt.Sprint(sources, weights.Sources, destinations, weights.Destinations)
				want := fmt.Sprint(in.Sources, in.Destinations, out.Sources, out.Destinations)
				check(got == want, "rank %d: %s, want %s", me, got, want)
			}
			// All edges lead from 1 to the others, two of them to 3; rank 4 has none.
			to, of := []int{3, 0, 2, 3}, []int{7, 0, 1 << 40, 5}
			var edges []Edge
			var weights []int
			for i := range to {
				if i%5 == (me+2)%5 { // given by another rank
					edges, weights = append(edges, Edge{1, to[i]}), append(weights, of[i])
				}
			}
			in, out := Weights{}, Weights{}
			switch me {
			case 0:
				in = Weights{[]int{1}, []int{0}}
			case 1:
				out = Weights{[]int{0, 2, 3, 3}, []int{0, 1 << 40, 5, 7}}
			case 2:
				in = Weights{[]int{1}, []int{1 << 40}}
			case 3:
				in = Weights{[]int{1, 1}, []int{5, 7}}
			}
			g := ok(w.DistGraphWeighted(edges, weights))
			wants(g, in, out)
			wants(ok(g.Dup()), in, out)

			// The same, by its neighbours, in orders of their own.
			if slices.Reverse(in.Sources); me == 3 {
				in.Destinations = []int{7, 5}
			}
			slices.Reverse(out.Sources)
			slices.Reverse(out.Destinations)
			given := Weights{in.Destinations, out.Destinations}
			wants(ok(w.DistGraphAdjacentWeighted(in.Sources, out.Sources, given)), in, out)

			for _, c := range []*Comm{ok(w.DistGraph()), ok(w.DistGraphAdjacent(nil, nil)),
				ok(w.Cart([]int{5}, []bool{false}, false))} {
				_, weighted, err := c.NeighborWeights()
				check(err == nil && !weighted, "weighted: %v, %v", weighted, err)
			}
			_, _, err := w.NeighborWeights()
			is(err, ErrTopology)

			// Mistakes of rank 2 are errors at all.
			pick := func(right, wrong []int) []int {
				if me == 2 {
					return wrong
				}
				return right
			}
			is(second(w.DistGraphWeighted([]Edge{{0, 1}}, pick([]int{1}, []int{-1}))), ErrTopology)
			is(second(w.DistGraphWeighted([]Edge{{0, 1}}, pick([]int{1}, nil))), ErrTopology)
			one, self := []int{1}, []int{me}
			is(second(w.DistGraphAdjacentWeighted(self, self, Weights{pick(one, nil), one})), ErrTopology)
			is(second(w.DistGraphAdjacentWeighted(self, self, Weights{one, pick(one, []int{-1})})), ErrTopology)
			if me == 2 { // MPI_UNWEIGHTED at one rank alone
				err = second(w.DistGraph())
			} else {
				err = second(w.DistGraphWeighted(nil, nil))
			}
			is(err, ErrComm)
			check(strings.Contains(err.Error(), "calls DistGraphWeighted"), "%v", err)
		})
	})
	over(t)(3, func(w *Comm) { // where calls are compared, so are weights
		next, before, of := []int{(w.Rank() + 1) % 3}, []int{(w.Rank() + 2) % 3}, []int{5}
		if w.Rank() == 1 {
			of = []int{6}
		}
		err := second(w.DistGraphAdjacentWeighted(before, next, Weights{[]int{5}, of}))
		is(err, ErrTopology)
		text := "rank 1 gives its edges to rank 2 the weights [6], which gives them [5]"
		check(strings.Contains(err.Error(), text), "%v", err)
	})
}

package collectives

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// trial is one call at all ranks.
type trial struct {
	algorithm   *Algorithm
	size, root  int
	count       int64
	segment     int64
	commutative bool
	inPlace     bool
	hosts       Hosts
	graph       int   // which neighbourhood, or which two groups
	elemSize    int64 // 0: 8
}

func (c trial) String() string {
	return fmt.Sprintf("%v, %d ranks, root %d, count %d, segment %d, commutative %v, in place %v, hosts %v, graph %d",
		c.algorithm, c.size, c.root, c.count, c.segment, c.commutative, c.inPlace, c.hosts, c.graph)
}

// between is the count of what rank i sends to rank j in the v forms: skewed, with zeros.
func (c trial) between(i, j int) int64 {
	if c.inPlace {
		i, j = min(i, j), max(i, j)
	}
	return c.count * int64((i*7+j*3+i*j)%4) / 2
}

// of is the count of rank i where each has one.
func (c trial) of(i int) int64 { return c.between(i, i+1) }

func (c trial) each(f func(int) int64, n int) (counts []int64) {
	for i := range n {
		counts = append(counts, f(i))
	}
	return counts
}

// value is element k of what rank has for block.
func value(rank, block int, k int64) element {
	return element{1 << rank, int64(block)<<32 | k, uint64(rank+1) * 0xd1342543de82ef95}
}

// block is what rank has for block.
func block(rank, number int, n int64) (all []element) {
	for k := range n {
		all = append(all, value(rank, number, k))
	}
	return all
}

// expected is one rank's buffers before, and Out after; nil: the rank has no such buffer.
type expected struct {
	params  Params
	in, out memory
	after   memory
}

// neighbours of a rank in graph number g, in terms of ranks of both directions.
func neighboursOf(g, rank, size int) (sources, destinations []int, cartesian bool) {
	switch g {
	case 0: // a ring, as a Cartesian topology of one dimension
		around := []int{(rank - 1 + size) % size, (rank + 1) % size}
		return around, around, true
	case 1: // a line
		around := []int{rank - 1, rank + 1}
		if rank == size-1 {
			around[1] = -1
		}
		return around, around, true
	}
	for i := range size { // an uneven graph: rank r sends to all s with (r + 2s) % 3 = 0
		if (i+2*rank)%3 == 0 {
			sources = append(sources, i)
		}
		if (rank+2*i)%3 == 0 {
			destinations = append(destinations, i)
		}
	}
	return sources, destinations, false
}

// whole is a vector of which all ranks from low to below high are combined.
func whole(low, high int, number int, n int64) []element {
	all := block(0, number, n)
	for k := range all {
		all[k].ranks = (^uint64(0) >> (64 - (high - low))) << low
	}
	return all
}

// rank says what rank r has before and after.
func (c trial) rank(r int) expected {
	p := Params{Rank: r, Size: c.size, Root: c.root, Count: c.count, ElemSize: cmp.Or(c.elemSize, 8),
		Segment: c.segment, Commutative: c.commutative, Hosts: c.hosts}
	p.Unattended = c.segment == 0 && c.algorithm.Needs&Attended == 0 // in one segment anyway, as few elements are
	e := expected{}
	n := c.count
	blank := func(n int64) []element { return make([]element, n) }
	one := func(v []element) memory { return memory{v} }
	join := func(m memory) memory { return memory{slices.Concat(m...)} }
	var input, output memory // before In and after Out; for each block
	put := -1                // in place: the block of Out that has the input; -2: Out as a whole has it
	switch o := c.algorithm.Operation; o {
	case Barrier:
	case Bcast:
		p.InPlace = false
		e.out, e.after = one(blank(n)), one(block(c.root, 0, n))
		if r == c.root {
			e.out = one(block(c.root, 0, n))
		}
		e.params = p
		return e
	case Gather, Gatherv, Allgather, Allgatherv:
		v := o == Gatherv || o == Allgatherv
		if v {
			p.Count = c.of(r)
		}
		input = one(block(r, 0, p.Count))
		for i := range c.size {
			m := n
			if v {
				m = c.of(i)
			}
			output = append(output, block(i, 0, m))
		}
		if v {
			p.OutCounts = c.each(c.of, c.size)
		}
		if put = r; (o == Gather || o == Gatherv) && r != c.root {
			output, put, p.OutCounts = nil, -1, nil
		}
	case Scatter, Scatterv:
		if o == Scatterv {
			p.Count = c.of(r)
		}
		output = one(block(c.root, r, p.Count))
		if r == c.root {
			for i := range c.size {
				m := n
				if o == Scatterv {
					m = c.of(i)
				}
				input = append(input, block(c.root, i, m))
			}
			if o == Scatterv {
				p.InCounts = c.each(c.of, c.size)
			}
			if p.InPlace = c.inPlace; c.inPlace {
				output = nil
			}
		}
	case Alltoall, Alltoallv, Alltoallw:
		v := o != Alltoall
		for i := range c.size {
			give, take := n, n
			if v {
				give, take = c.between(r, i), c.between(i, r)
			}
			input, output = append(input, block(r, i, give)), append(output, block(i, r, take))
		}
		if v {
			p.InCounts = c.each(func(i int) int64 { return c.between(r, i) }, c.size)
			p.OutCounts = c.each(func(i int) int64 { return c.between(i, r) }, c.size)
		}
		put = -2
	case Reduce, Allreduce, Scan, Exscan:
		input, put = one(block(r, 0, n)), -2
		low, high := 0, c.size
		if o == Scan {
			high = r + 1
		}
		if o == Exscan {
			high = r
		}
		switch {
		case o == Reduce && r != c.root:
			put = -1
		case high == 0:
			output = one(blank(n)) // not written
		default:
			output = one(whole(low, high, 0, n))
		}
	case ReduceScatter, ReduceScatterBlock:
		if o == ReduceScatter {
			p.InCounts = c.each(c.of, c.size)
		}
		var vector []element
		for i := range c.size {
			m := n
			if o == ReduceScatter {
				m = c.of(i)
			}
			vector = append(vector, block(r, i, m)...)
			if i == r {
				output = one(whole(0, c.size, r, m))
			}
		}
		input, put = one(vector), -2
	case InterAllreduce:
		p.Low = []int{1, (c.size + 1) / 2, c.size - 1}[c.graph]
		input, output = one(block(r, 0, n)), one(whole(0, p.Low, 0, n))
		if r < p.Low {
			output = one(whole(p.Low, c.size, 0, n))
		}
	case InterReduce:
		input, output = one(block(r, 0, n)), nil
		if r == c.size-1 {
			input, output = nil, one(whole(0, r, 0, n))
		}
	case InterReduceScatter, InterReduceScatterBlock:
		p.Low = []int{1, (c.size + 1) / 2, c.size - 1}[c.graph]
		first, last, from, to := 0, p.Low, p.Low, c.size
		if r >= p.Low {
			first, last, from, to = from, to, first, last
		}
		p.InCounts = make([]int64, last-first)
		for i := range n { // any blocks whose sum is n
			p.InCounts[i*i%int64(last-first)]++
		}
		at := int64(0)
		for i := range r - first {
			at += p.InCounts[i]
		}
		e.in, e.after = one(block(r, 0, n)), one(whole(from, to, 0, n)[at:at+p.InCounts[r-first]])
		e.out, e.params = one(blank(p.InCounts[r-first])), p
		return e
	case InterAllgather, InterAllgatherv, InterAlltoall, InterAlltoallv, InterAlltoallw:
		p.Low = []int{1, (c.size + 1) / 2, c.size - 1}[c.graph]
		for i := range c.size {
			give, take := c.between(r, i), c.between(i, r)
			if (r < p.Low) == (i < p.Low) {
				give, take = 0, 0
			}
			p.InCounts, p.OutCounts = append(p.InCounts, give), append(p.OutCounts, take)
			input, output = append(input, block(r, i, give)), append(output, block(i, r, take))
		}
	default:
		p.Sources, p.Destinations, p.Cartesian = neighboursOf(c.graph, r, c.size)
		return c.neighbourhood(p)
	}
	joined := p.InCounts == nil
	if joined {
		input = join(input)
	}
	if p.OutCounts == nil {
		output = join(output)
	}
	e.in, e.after = input, output
	for _, b := range output {
		e.out = append(e.out, blank(int64(len(b))))
	}
	if c.inPlace && put != -1 {
		p.InPlace = true
		e.in = nil
		if put == -2 {
			e.out = nil
			for _, b := range input {
				e.out = append(e.out, slices.Clone(b))
			}
			if len(input) > 0 && len(e.after) > 0 && len(input[0]) > len(e.after[0]) { // a reduce-scatter
				e.after[0] = append(e.after[0], input[0][len(e.after[0]):]...)
			}
			if c.algorithm.Operation == Exscan && r == 0 {
				e.after = input
			}
		} else {
			off := int64(0)
			b := 0
			if p.OutCounts == nil {
				off = int64(put) * n
			} else {
				b = put
			}
			copy(e.out[b][off:], input[0])
		}
	}
	e.params = p
	return e
}

// neighbourhood is rank for the neighbourhood operations.
func (c trial) neighbourhood(p Params) expected {
	r, o := p.Rank, c.algorithm.Operation
	gather := o == NeighborAllgather || o == NeighborAllgatherv
	v := o != NeighborAllgather && o != NeighborAlltoall
	count := func(from, edge int) int64 {
		if !v {
			return c.count
		}
		if gather {
			return c.of(from)
		}
		return c.between(from, edge)
	}
	e := expected{}
	var input, output memory
	var ins, outs []int64
	for i, peer := range p.Destinations {
		n := count(r, i)
		ins = append(ins, n)
		if peer < 0 && gather {
			continue
		}
		input = append(input, block(r, i, n))
	}
	if gather {
		p.Count = count(r, 0)
		input = memory{block(r, 0, p.Count)}
	}
	for i, peer := range p.Sources {
		if peer < 0 {
			outs = append(outs, c.count)
			output = append(output, make([]element, c.count))
			continue
		}
		edge := i ^ 1 // the lower source's message was sent upward
		if !p.Cartesian {
			_, theirs, _ := neighboursOf(c.graph, peer, c.size)
			edge = slices.Index(theirs, r)
		}
		if gather {
			edge = 0
		}
		n := count(peer, edge)
		outs = append(outs, n)
		output = append(output, block(peer, edge, n))
	}
	e.in, e.after = input, output
	if v {
		p.OutCounts = outs
		if !gather {
			p.InCounts = ins
		}
	} else {
		e.in, e.after = memory{slices.Concat(input...)}, memory{slices.Concat(output...)}
	}
	for _, b := range e.after {
		e.out = append(e.out, make([]element, len(b)))
	}
	e.params = p
	return e
}

// try runs a trial.
func (c trial) try(random *rand.Rand) error {
	w := network{random: random}
	var all []expected
	for r := range c.size {
		e := c.rank(r)
		if err := c.algorithm.Fits(&e.params); err != nil {
			return nil
		}
		s := new(Builder).Build(c.algorithm, &e.params)
		p := &process{params: e.params, schedule: s}
		p.spaces = [3]memory{In: e.in, Out: e.out, Tmp: {make([]element, s.Tmp)}}
		w.ranks, all = append(w.ranks, p), append(all, e)
	}
	if err := w.run(); err != nil {
		return err
	}
	inOrder := orderByPairs(0, c.size, c.commutative)
	for r, e := range all {
		for b := range e.after {
			got, want := w.ranks[r].spaces[Out][b], e.after[b]
			same := func(x, y element) bool { return x.ranks == y.ranks && x.index == y.index }
			if !slices.EqualFunc(got, want, same) {
				return fmt.Errorf("rank %d has in block %d of Out\n%v, not\n%v", r, b, got, want)
			}
			o := c.algorithm.Operation
			if o != Allreduce && (o != Reduce || r != c.root) || c.algorithm.Needs&OwnOrder != 0 {
				continue
			}
			for i := range got {
				if got[i].order != inOrder {
					return fmt.Errorf("element %d of rank %d is not combined by pairs", i, r)
				}
			}
		}
	}
	return nil
}

var (
	rankCounts = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 64}
	counts     = []int64{0, 1, 2, 7, 64, 129}
)

// hostsOf are the layouts of ranks on hosts to try.
func hostsOf(a *Algorithm, size int) []Hosts {
	if a.Needs&(KnownHosts|ConsecutiveHosts) == 0 {
		return []Hosts{nil}
	}
	return []Hosts{Blocks{size, 1}, Blocks{size, 3}, Blocks{size, 8}, HostsOf(size, inTurn(3)), HostsOf(size, uneven)}
}

func rooted(o Operation) bool {
	switch o {
	case Bcast, Gather, Gatherv, Scatter, Scatterv, Reduce:
		return true
	}
	return false
}

func reduces(o Operation) bool { return o.Facts().Reduces }

// trials calls f for each trial of an algorithm.
func trials(a *Algorithm, f func(trial)) {
	for _, size := range rankCounts {
		if a.Operation.BetweenGroups() && size == 1 {
			continue // there are two groups
		}
		roots := []int{0}
		if rooted(a.Operation) {
			roots = slices.Compact([]int{0, min(1, size-1), size / 2, size - 1})
		}
		orders, places, graphs := []bool{true}, []bool{false, true}, 1
		if reduces(a.Operation) {
			orders = []bool{true, false}
		}
		if a.Operation.Neighborhood() || a.Operation.BetweenGroups() {
			places, graphs = places[:1], 3
		}
		for _, count := range counts {
			if a.Operation == Barrier && count > 0 || size > 17 && count > 64 {
				continue
			}
			for _, hosts := range hostsOf(a, size) {
				for _, root := range roots {
					for _, commutative := range orders {
						for _, inPlace := range places {
							for graph := range graphs {
								for _, segment := range []int64{0, 5} {
									f(trial{a, size, root, count, segment, commutative, inPlace, hosts, graph, 0})
								}
							}
						}
					}
				}
			}
		}
	}
}

// Every algorithm gives what a naive truth gives.
func TestCatalogue(t *testing.T) {
	for i := range catalogue {
		a := &catalogue[i]
		if a.Needs&OnBoard != 0 {
			continue
		}
		t.Run(strings.ReplaceAll(a.String(), ":", "/"), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(i), 1))
			n := 0
			trials(a, func(c trial) {
				if n++; testing.Short() && n%7 != 0 || t.Failed() {
					return
				}
				order := random
				if n%2 == 0 {
					order = nil
				}
				if err := c.try(order); err != nil {
					t.Errorf("%v: %v", c, err)
				}
			})
		})
	}
}

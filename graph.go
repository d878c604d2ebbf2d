package mpi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// graph is what Graph has been given: the neighbours of each rank.
type graph struct {
	lists    [][]int
	lopsided string // two nodes with more edges in one direction than in the other; "": there are none
}

// Neighbours implements coll.Topology.
func (g *graph) Neighbours(rank int) (sources, destinations []int) {
	return g.lists[rank], g.lists[rank]
}

// Degree implements coll.Topology.
func (g *graph) Degree(rank int) (in, out int) { return len(g.lists[rank]), len(g.lists[rank]) }

// IsGrid implements coll.Topology.
func (g *graph) IsGrid() bool { return false }

// distGraph is the neighbours of this rank.
type distGraph struct {
	sources, destinations []int
	weights               Weights // of the edges from and to these
	weighted              bool
}

// Neighbours implements coll.Topology.
func (g *distGraph) Neighbours(int) (sources, destinations []int) { return g.sources, g.destinations }

// Degree implements coll.Topology.
func (g *distGraph) Degree(int) (in, out int) { return len(g.sources), len(g.destinations) }

// IsGrid implements coll.Topology.
func (g *distGraph) IsGrid() bool { return false }

// Edge is an edge of a DistGraph: rank From sends to rank To.
type Edge struct{ From, To int }

// Weights are the weights of a rank's edges: one for each source and one for each destination, in their order.
type Weights struct{ Sources, Destinations []int }

// Graph makes a communicator whose ranks are the nodes of a graph; §8.5.3. Every rank of c calls it with the same
// argument: neighbours[i] lists the neighbours of node i. There are at most as many nodes as ranks; the ranks beyond
// get nil. Ranks keep their places. A neighbour that is not a node is ErrTopology at all ranks. Neighbourhood
// collective calls need a graph whose edges lead both ways. DistGraph has no such restriction, and no rank needs to
// know the whole graph.
func (c *Comm) Graph(neighbours [][]int) (*Comm, error) {
	if err := c.intra("Graph"); err != nil {
		return nil, err
	}
	n := len(neighbours)
	var bad *Error
	if n > c.group.Size {
		bad = mpierr.New("Graph", ErrTopology, "the graph has %d nodes, and each needs one of %s", n,
			ranksText(c.group.Size))
	}
	g := &graph{}
	args := agree.AppendInts(nil, int64(n))
	for r, list := range neighbours {
		bad = firstError(bad, outside("Graph", list, n, fmt.Sprintf("node %d", r)))
		g.lists = append(g.lists, slices.Clone(list))
		args = agree.AppendInts(args, int64(len(list)))
		for _, to := range list {
			args = agree.AppendInts(args, int64(to))
		}
	}
	if bad == nil {
		g.lopsided = lopsided(g.lists)
	}
	members := func() *ranks.Set {
		if n == 0 {
			return nil
		}
		var b ranks.Builder
		for r := range n {
			b.AddRank(int32(c.group.ToWorld(r)))
		}
		return b.Done()
	}
	return c.create(plan{kind: agree.MakeGraph, args: agree.AppendInts(nil, agree.HashOf(args)), bad: bad,
		members: members,
		finish:  func(s *commState) { s.group.Topology = g }})
}

// lopsided names two nodes, one of which has the other more often as a neighbour.
func lopsided(lists [][]int) string {
	edges := map[Edge]int{}
	for r, list := range lists {
		for _, to := range list {
			edges[Edge{r, to}]++
		}
	}
	for r, list := range lists {
		for _, to := range list {
			if n, back := edges[Edge{r, to}], edges[Edge{to, r}]; n > back {
				return fmt.Sprintf("node %d has node %d %d times as a neighbour, and is one of node %[2]d %d times", r, to, n, back)
			}
		}
	}
	return ""
}

func firstError(a, b *Error) *Error {
	if a != nil {
		return a
	}
	return b
}

// outside reports the first of list that is no rank below n.
func outside(op string, list []int, n int, of string) *Error {
	for _, r := range list {
		if r < 0 || r >= n {
			return mpierr.New(op, ErrTopology, "%s has the neighbour %d; there are %d ranks, from 0 on", of, r, n)
		}
	}
	return nil
}

// DistGraphAdjacent makes a communicator in which each rank names the ranks that it receives from and sends to; §8.5.4.
// Every rank of c calls it, and the two ranks of an edge both name it. Ranks keep their places, and neighbours keep the
// order given. A rank that does not exist is ErrTopology at all ranks. With GORUN_COLL_CHECK, an edge that only one of
// its ranks names is ErrTopology too; without it, later neighbourhood calls wait for such an edge.
func (c *Comm) DistGraphAdjacent(sources, destinations []int) (*Comm, error) {
	g := &distGraph{sources: sources, destinations: destinations,
		weights: Weights{make([]int, len(sources)), make([]int, len(destinations))}}
	return c.adjacent(agree.MakeDistGraphAdjacent, g)
}

// DistGraphAdjacentWeighted is DistGraphAdjacent with a weight, 0 or more, for each edge; §8.5.4. NeighborWeights
// returns the weights. Both ranks of an edge give it the same weight, which is compared as the edges are. A rank
// without neighbours gives no weights. The weights do not move ranks.
func (c *Comm) DistGraphAdjacentWeighted(sources, destinations []int, weights Weights) (*Comm, error) {
	return c.adjacent(agree.MakeDistGraphAdjacentWeighted,
		&distGraph{sources: sources, destinations: destinations, weights: weights, weighted: true})
}

func (c *Comm) adjacent(kind agree.Creation, given *distGraph) (*Comm, error) {
	op := kind.String()
	if err := c.intra(op); err != nil {
		return nil, err
	}
	bad := firstError(outside(op, given.sources, c.group.Size, "the caller"), outside(op, given.destinations,
		c.group.Size,
		"the caller"))
	bad = firstError(bad, notWeights(op, "source", given.weights.Sources, len(given.sources)))
	bad = firstError(bad, notWeights(op, "destination", given.weights.Destinations, len(given.destinations)))
	g := &distGraph{slices.Clone(given.sources), slices.Clone(given.destinations),
		Weights{slices.Clone(given.weights.Sources), slices.Clone(given.weights.Destinations)}, given.weighted}
	p := plan{kind: kind, bad: bad, members: func() *ranks.Set { return c.group.Members() },
		finish: func(s *commState) { s.group.Peers, s.group.Topology = c.group.Peers, g }}
	if c.group.Setup.Check {
		p.after = func(m *agree.Exchange, made *Comm) *agree.Veto { return matchEdges(m, made, g) }
	}
	return c.create(p)
}

// notWeights reports why a list is not that of the weights of n edges.
func notWeights(op, of string, weights []int, n int) *Error {
	if len(weights) != n {
		return mpierr.New(op, ErrTopology, "there are %d weights for %d edges; give each %s a weight", len(weights), n,
			of)
	}
	for _, w := range weights {
		if w < 0 {
			return mpierr.New(op, ErrTopology, "the weight of a %s is %d; weights are 0 or more", of, w)
		}
	}
	return nil
}

// matchEdges compares what the two ranks of each edge say of it: each rank tells those that it sends to, over c, which
// weights the edges have that lead there. So a rank hears of all that it should receive from. A rank that hears
// of a difference votes against the communicator.
func matchEdges(m *agree.Exchange, c *Comm, g *distGraph) *agree.Veto {
	words := map[int32][]byte{}
	for to, weights := range byRank(g.destinations, g.weights.Destinations) {
		words[int32(c.group.ToWorld(to))] = agree.AppendInts(agree.AppendInts(nil, int64(c.group.Rank),
			int64(len(weights))), weights...)
	}
	told, bad := map[int][]int64{}, false
	no := m.ScatterSparsely(&c.group.Group, words, func(b []byte) {
		d := agree.Decoder{B: b}
		from := int(d.Within(0, int64(c.group.Size)-1))
		for range d.Count() {
			told[from] = append(told[from], d.Int())
		}
		bad = bad || !d.Over()
	})
	if no == nil && bad {
		no = &agree.Veto{Class: ErrAborted, Text: "another rank has sent what are no edges"}
	}
	if no == nil {
		no = unmatched(m, byRank(g.sources, g.weights.Sources), told)
	}
	return no
}

// byRank is the weights of the edges to or from each rank, in ascending order.
func byRank(neighbours, weights []int) map[int][]int64 {
	edges := map[int][]int64{}
	for i, r := range neighbours {
		edges[r] = append(edges[r], int64(weights[i]))
	}
	for _, w := range edges {
		slices.Sort(w)
	}
	return edges
}

// unmatched finds a rank that has told of other edges to this one than are given here.
func unmatched(m *agree.Exchange, given, told map[int][]int64) *agree.Veto {
	all := maps.Clone(given)
	maps.Copy(all, told)
	for _, from := range slices.Sorted(maps.Keys(all)) {
		its, mine := told[from], given[from]
		if n := len(its); n != len(mine) {
			return &agree.Veto{Class: ErrTopology,
				Text: fmt.Sprintf("rank %d gives rank %d as a destination %d times, which "+
					"gives rank %[1]d as a source %[4]d times; both ranks of an edge must give it", from, m.Me, n,
					len(mine))}
		}
		if !slices.Equal(its, mine) {
			return &agree.Veto{Class: ErrTopology, Text: fmt.Sprintf("rank %d gives its edges to rank %d the weights "+
				"%v, which gives them %v; both ranks of an edge must give it the same weight", from, m.Me, its, mine)}
		}
	}
	return nil
}

// DistGraph is DistGraphAdjacent in which any one rank may name an edge; §8.5.4. Neighbours are ordered by rank. An
// edge that is named twice makes two neighbours. An edge costs one message to each of its two ranks; the edges that one
// rank names for another go in one message.
func (c *Comm) DistGraph(edges ...Edge) (*Comm, error) {
	return c.distGraph(agree.MakeDistGraph, edges, make([]int, len(edges)))
}

// DistGraphWeighted is DistGraph with a weight, 0 or more, for each edge; §8.5.4. NeighborWeights returns the weights
// at both ranks of the edge. Edges between the same two ranks are ordered by weight.
func (c *Comm) DistGraphWeighted(edges []Edge, weights []int) (*Comm, error) {
	return c.distGraph(agree.MakeDistGraphWeighted, edges, weights)
}

func (c *Comm) distGraph(kind agree.Creation, edges []Edge, weights []int) (*Comm, error) {
	op := kind.String()
	if err := c.intra(op); err != nil {
		return nil, err
	}
	bad := notWeights(op, "edge", weights, len(edges))
	for _, e := range edges {
		bad = firstError(bad, outside(op, []int{e.From, e.To}, c.group.Size, "an edge of the caller"))
	}
	if bad != nil {
		edges = nil
	}
	g := &distGraph{weighted: kind == agree.MakeDistGraphWeighted}
	return c.create(plan{kind: kind, bad: bad, members: func() *ranks.Set { return c.group.Members() },
		finish: func(s *commState) { s.group.Peers, s.group.Topology = c.group.Peers, g },
		after:  func(m *agree.Exchange, made *Comm) *agree.Veto { return tellEdges(m, made, edges, weights, g) }})
}

// end is one end of an edge, as the rank at the other one is told of it.
type end struct{ rank, weight int }

// tellEdges tells the ranks of each edge, over c, that it is theirs.
func tellEdges(m *agree.Exchange, c *Comm, edges []Edge, weights []int, g *distGraph) *agree.Veto {
	in, out := map[int][]int64{}, map[int][]int64{} // of each rank: from which, and to which, and the weights
	for i, e := range edges {
		in[e.To] = append(in[e.To], int64(e.From), int64(weights[i]))
		out[e.From] = append(out[e.From], int64(e.To), int64(weights[i]))
	}
	to := map[int32][]byte{}
	for _, lists := range []map[int][]int64{in, out} {
		for r := range maps.Keys(lists) {
			b := agree.AppendInts(nil, int64(len(in[r])/2))
			b = agree.AppendInts(agree.AppendInts(b, in[r]...), int64(len(out[r])/2))
			to[int32(c.group.ToWorld(r))] = agree.AppendInts(b, out[r]...)
		}
	}
	var mu sync.Mutex
	var ends [2][]end
	bad := false
	no := m.ScatterSparsely(&c.group.Group, to, func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		d := agree.Decoder{B: b}
		for i := range ends {
			for range d.Count() {
				ends[i] = append(ends[i], end{int(d.Within(0, int64(c.group.Size)-1)), int(d.Int())})
			}
		}
		bad = bad || !d.Over()
	})
	g.sources, g.weights.Sources = inOrder(ends[0])
	g.destinations, g.weights.Destinations = inOrder(ends[1])
	if bad && no == nil {
		no = &agree.Veto{Class: ErrAborted, Text: "another rank has sent what are no edges"}
	}
	return no
}

func inOrder(ends []end) (ranks, weights []int) {
	slices.SortFunc(ends, func(a, b end) int { return cmp.Or(a.rank-b.rank, a.weight-b.weight) })
	for _, e := range ends {
		ranks, weights = append(ranks, e.rank), append(weights, e.weight)
	}
	return ranks, weights
}

// Neighbors returns the ranks that the caller receives from, and the ranks that it sends to, in the communicator's
// topology; §8.5.5, §8.6. In a grid they are the ranks below and above along each dimension, and ProcNull beyond its
// ends. A communicator without a topology is ErrTopology.
func (c *Comm) Neighbors() (sources, destinations []int, err error) {
	if err := c.valid("Neighbors"); err != nil {
		return nil, nil, err
	}
	if c.group.Topology == nil {
		return nil, nil, c.noTopology("Neighbors")
	}
	sources, destinations = c.group.Topology.Neighbours(c.group.Rank)
	return slices.Clone(sources), slices.Clone(destinations), nil
}

// NeighborWeights returns the weights of the caller's edges, in the order of Neighbors; §8.5.5. weighted is false, and
// w is empty, unless DistGraphWeighted or DistGraphAdjacentWeighted made the communicator. A communicator without a
// topology is ErrTopology.
func (c *Comm) NeighborWeights() (w Weights, weighted bool, err error) {
	if err := c.valid("NeighborWeights"); err != nil {
		return Weights{}, false, err
	}
	if c.group.Topology == nil {
		return Weights{}, false, c.noTopology("NeighborWeights")
	}
	g, is := c.group.Topology.(*distGraph)
	if !is || !g.weighted {
		return Weights{}, false, nil
	}
	return Weights{slices.Clone(g.weights.Sources), slices.Clone(g.weights.Destinations)}, true, nil
}

// GraphNeighbors returns the neighbours of a rank in a communicator that Graph made; §8.5.5. Another communicator is
// ErrTopology.
func (c *Comm) GraphNeighbors(rank int) ([]int, error) {
	if err := c.valid("GraphNeighbors"); err != nil {
		return nil, err
	}
	g, isGraph := c.group.Topology.(*graph)
	switch {
	case !isGraph:
		return nil, c.opError("GraphNeighbors", ErrTopology,
			"the communicator is no graph that all ranks know; Graph makes one")
	case rank < 0 || rank >= c.group.Size:
		return nil, c.rankError("GraphNeighbors", rank, false)
	}
	return slices.Clone(g.lists[rank]), nil
}

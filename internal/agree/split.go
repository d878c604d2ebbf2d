package agree

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// span is ranks of a communicator that gave one color, each a stride from the one before, and so their keys.
type span struct {
	rank, stride, n int64
	key, dkey       int64
}

func (s span) last() (rank, key int64) { return s.rank + s.stride*(s.n-1), s.key + s.dkey*(s.n-1) }

// colored is the ranks that gave one color, in order.
type colored struct {
	color      int64
	spans      []span
	size, hash int64 // of a Create: of the group that they give; else 0
}

// add adds ranks that come after those that are there.
func (c *colored) add(s span) {
	if len(c.spans) == 0 {
		c.spans = append(c.spans, s)
		return
	}
	last := &c.spans[len(c.spans)-1]
	rank, key := last.last()
	step, dkey := s.rank-rank, s.key-key
	goesOn := func(x span) bool { return x.n == 1 || x.stride == step && x.dkey == dkey }
	if overflows := (dkey >= 0) != (s.key >= key); goesOn(*last) && goesOn(s) && !overflows {
		last.stride, last.dkey = step, dkey
		last.n += s.n
		return
	}
	c.spans = append(c.spans, s)
}

// order is the ranks in the order of their keys.
func (c *colored) order() []ranks.Run {
	runs := make([]ranks.Run, len(c.spans))
	inOrder := true
	for i, s := range c.spans {
		runs[i] = ranks.Strided(int32(s.rank), int32(s.stride), int32(s.n))
		if i > 0 {
			_, before := c.spans[i-1].last()
			inOrder = inOrder && before <= s.key
		}
		inOrder = inOrder && s.dkey >= 0
	}
	if inOrder {
		return ranks.Of(runs...).Runs
	}
	type member struct {
		rank int32
		key  int64
	}
	var all []member
	for _, s := range c.spans {
		for i := range s.n {
			all = append(all, member{int32(s.rank + i*s.stride), s.key + i*s.dkey})
		}
	}
	slices.SortStableFunc(all, func(a, b member) int {
		switch {
		case a.key < b.key:
			return -1
		case a.key > b.key:
			return 1
		}
		return 0
	})
	var b ranks.Builder
	for _, m := range all {
		b.AddRank(m.rank)
	}
	return b.Runs
}

// Split is the payload of an exchange that makes a communicator of the ranks that give one color.
type Split struct {
	group  *Group
	color  int64
	colors map[int64]*colored    // of this rank and those that it has heard
	below  map[int][]int64       // of each child: the colors that it has told
	groups map[int64][]ranks.Run // of each of these colors: ranks of c, in the order of the new communicator
	// Members are the ranks of this rank's communicator, in the world; nil: this rank has given no color.
	Members *ranks.Set
	// Arrange makes one group of the ranks of each color, which are in the order of their keys; nil: each color is a
	// group.
	Arrange func(byColor [][]ranks.Run) []ranks.Run
}

// NewSplit returns the payload of a rank that gives a color, or ranks.Undefined, and a key.
func NewSplit(g *Group, color, key int) *Split {
	s := &Split{group: g, color: int64(color), colors: map[int64]*colored{}, below: map[int][]int64{},
		groups: map[int64][]ranks.Run{}}
	if color != ranks.Undefined {
		s.colors[s.color] = &colored{color: s.color, spans: []span{{rank: int64(g.Rank), stride: 1, n: 1,
			key: int64(key)}}}
	}
	return s
}

// Want notes the group that this rank's caller expects. All ranks of one color give the same.
func (s *Split) Want(group *ranks.Set) {
	if own := s.colors[s.color]; own != nil {
		own.size, own.hash = int64(group.N), HashOf(AppendRanks(nil, group))
	}
}

// sorted are the colors in the order of their first ranks.
func (s *Split) sorted() []*colored {
	var all []*colored
	for _, c := range s.colors {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *colored) int { return int(a.spans[0].rank - b.spans[0].rank) })
	return all
}

// Up implements Payload.
func (s *Split) Up() []byte {
	b := AppendInts(nil, int64(len(s.colors)))
	for _, c := range s.sorted() {
		b = AppendInts(b, c.color, c.size, c.hash, int64(len(c.spans)))
		for _, x := range c.spans {
			b = AppendInts(b, x.rank, x.stride, x.n, x.key, x.dkey)
		}
	}
	return b
}

// Take implements Payload.
func (s *Split) Take(child int, d *Decoder) *Veto {
	for range d.Count() {
		peer := colored{color: d.Int(), size: d.Int(), hash: d.Int()}
		s.below[child] = append(s.below[child], peer.color)
		into := s.colors[peer.color]
		if into == nil {
			into = &peer
			s.colors[peer.color] = into
		}
		if into.size != peer.size || into.hash != peer.hash {
			return unlikeGroups(into)
		}
		if !s.takeSpans(into, child, d) {
			d.Bad = true
			return nil
		}
	}
	return nil
}

// takeSpans adds ranks, which come after the ranks of into, and reports whether there is one at least and all are in
// order.
func (s *Split) takeSpans(into *colored, child int, d *Decoder) bool {
	size := int64(s.group.Members().N)
	for range d.Count() {
		x := span{d.Within(int64(child), size-1), d.Within(1, size), d.Within(1, size), d.Int(), d.Int()}
		if last, _ := x.last(); d.Bad || last >= size {
			return false
		}
		if k := len(into.spans); k > 0 {
			if last, _ := into.spans[k-1].last(); last >= x.rank {
				return false
			}
		}
		into.add(x)
	}
	return len(into.spans) > 0
}

func unlikeGroups(c *colored) *Veto {
	return &Veto{Class: mpierr.ErrGroup,
		Text: fmt.Sprintf("rank %d gives a group in which another rank gives another group; "+
			"ranks give the same group, or groups that have no rank in common", c.spans[0].rank)}
}

// Decide implements Payload.
func (s *Split) Decide() *Veto {
	if s.Arrange != nil {
		var byColor [][]ranks.Run
		for _, c := range s.sorted() {
			byColor = append(byColor, c.order())
		}
		s.groups[0] = s.Arrange(byColor)
	} else {
		for color, c := range s.colors {
			s.groups[color] = c.order()
			if c.size != 0 && int64(ranks.Of(s.groups[color]...).N) != c.size {
				return unlikeGroups(c)
			}
		}
	}
	s.choose()
	return nil
}

// choose finds this rank's group.
func (s *Split) choose() {
	color := s.color
	if s.Arrange != nil {
		color = 0
	}
	if runs, ok := s.groups[color]; ok {
		s.Members = s.inWorld(runs)
	}
}

// inWorld translates ranks of the communicator, or of an intercommunicator's local group.
func (s *Split) inWorld(runs []ranks.Run) *ranks.Set {
	if s.group.Peers == nil {
		return ranks.Of(runs...)
	}
	members := s.group.Members()
	var b ranks.Builder
	ranks.Of(runs...).All(func(r int32) bool {
		b.AddRank(int32(members.At(int(r))))
		return true
	})
	return b.Done()
}

// Table says which ranks of the world have given each color, in the order of their keys. It is known at the first rank
// of the exchange, after that.
func (s *Split) Table() []byte {
	b := AppendInts(nil, int64(len(s.groups)))
	for _, color := range slices.Sorted(maps.Keys(s.groups)) {
		b = AppendRanks(AppendInts(b, color), s.inWorld(s.groups[color]))
	}
	return b
}

// ReadTable returns the ranks that have given a color by the Table of another group, far, in a world of so many ranks;
// nil: none have. ok reports whether it is a table.
func ReadTable(table []byte, color int64, far *ranks.Set, world int) (found *ranks.Set, ok bool) {
	d := Decoder{B: table}
	for range d.Count() {
		c, members := d.Int(), d.Ranks(world)
		if d.Bad || members.N == 0 || !members.Within(far) {
			return nil, false
		}
		if c == color {
			found = members
		}
	}
	return found, d.Over()
}

// Down implements Payload.
func (s *Split) Down(child int) []byte {
	colors := s.below[child]
	if s.Arrange != nil {
		colors = []int64{0}
	}
	b := AppendInts(nil, int64(len(colors)))
	for _, color := range colors {
		b = AppendRuns(AppendInts(b, color), s.groups[color])
	}
	return b
}

// ReadVerdict implements Payload.
func (s *Split) ReadVerdict(d *Decoder) {
	for range d.Count() {
		color := d.Int()
		s.groups[color] = d.Ranks(int(s.group.Members().N)).Runs
	}
	if !d.Bad {
		s.choose()
	}
}

package mpi

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Dup makes a communicator of the same ranks in the same order, whose messages are apart from c's; §7.4.2. Every rank
// of c calls it. The name is new, attributes are not inherited (§7.7), a topology is (§8.5). If c's context ends first,
// or has ended, Dup returns its error, and this rank has no part in a communicator that the other ranks may make all
// the same; the call counts, as that of Barrier does.
func (c *Comm) Dup() (*Comm, error) {
	return c.create(plan{kind: agree.MakeDup, members: func() *ranks.Set { return c.group.Members() },
		finish: func(s *shared) { c.group.Duplicate(&s.group) }})
}

// plan is a collective call that makes a communicator.
type plan struct {
	kind    agree.Creation
	args    []byte // what all ranks must give alike
	bad     *Error // the mistake of this caller, or nil
	g       agree.Payload
	members func() *ranks.Set // of the communicator of this rank, when all have been heard; nil: there is none
	finish  func(*shared)     // adds what it has beyond ranks and a number; may be nil
	// after is what the ranks do when they have it; may be nil.
	after func(m *agree.Exchange, made *Comm) *agree.Veto
}

// create makes a communicator in a collective call of c.
func (c *Comm) create(p plan) (*Comm, error) {
	if err := c.intra(p.kind.String()); err != nil {
		return nil, err
	}
	var made handover
	err := c.group.Create(c.ctx, p.kind, func(_ uint64, tag int32) error {
		m := c.group.Exchange(p.kind)
		if no := c.group.CompareCreation(p.kind, tag); no != nil {
			return m.Failed(no)
		}
		id, no := m.Number(c.group.Next, p.args, m.Refuse(p.bad), p.g)
		if no != nil {
			return m.Failed(no)
		}
		c.group.Next = id + 1
		d := c.child(p.kind, id, p.members(), p.finish)
		if p.after != nil {
			no = p.after(m, d)
		}
		if no = m.Vote(id, no); d == nil {
			c.group.Numbers.Release(id, nil) // other ranks have the number
		} else if no != nil {
			d.free()
		}
		if no != nil {
			return m.Failed(no)
		}
		made.give(d)
		return nil
	})
	return made.take(c, p.kind, err)
}

// child is the communicator with a number that its ranks have agreed upon; nil: this rank is none of them, and keeps
// the number until all have voted.
func (c *Comm) child(kind agree.Creation, id uint32, members *ranks.Set, finish func(*shared)) *Comm {
	if members == nil || members.Find(c.group.WorldRank) == Undefined {
		return nil
	}
	s := &shared{}
	c.group.Derive(&s.group, members, id)
	name := fmt.Sprintf("%s.%s%d", c.Name(), suffixes[kind], c.made.Add(1))
	s.group.SetName(name)
	if finish != nil {
		finish(s)
	}
	return newComm(s, c.ctx)
}

var suffixes = [agree.MakeEnd]string{agree.MakeDup: "dup", agree.MakeSplit: "split", agree.MakeSplitShared: "shared",
	agree.MakeCreate:      "group",
	agree.MakeCreateGroup: "group", agree.MakeCart: "cart", agree.MakeCartSub: "cart", agree.MakeGraph: "graph",
	agree.MakeDistGraph:         "graph",
	agree.MakeDistGraphAdjacent: "graph", agree.MakeDistGraphWeighted: "graph",
	agree.MakeDistGraphAdjacentWeighted: "graph", agree.MakeIntercomm: "inter", agree.MakeMerge: "merged"}

// handover passes a communicator to a caller that may have gone away. Then it is freed: the messages that other ranks
// send on it are dropped.
type handover struct {
	mu      sync.Mutex
	c       *Comm
	refused bool
}

func (h *handover) give(c *Comm) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.c = c; h.refused && c != nil {
		c.free()
	}
}

// take is what the caller of c gets.
func (h *handover) take(c *Comm, kind agree.Creation, err error) (*Comm, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		return h.c, nil
	}
	if h.refused = true; h.c != nil {
		h.c.free()
	}
	return nil, c.group.Wrap(kind.String(), Undefined, Undefined, err)
}

// intra reports why a call that is for communicators of one group cannot be made. It does not regard the context: see
// Barrier.
func (c *Comm) intra(op string) *Error {
	if err := c.valid(op); err != nil {
		return err
	}
	if c.group.Local != nil {
		return c.opError(op, ErrComm, "this is an intercommunicator, on which Barrier, Bcast, Gather and Allreduce can be "+
			"called, and no other collective call; use Merge to make a communicator of both groups")
	}
	return nil
}

// Create makes a communicator of the ranks of g, which is a part of c's group; §7.4.2. Every rank of c calls it. Ranks
// give the same group, or groups that have no rank in common; a rank that is not in the group it gives, which may be
// empty, gets nil. It is Split with the group's first rank as color and the place in the group as key: see there for
// what it costs. Groups that overlap are ErrGroup at all ranks.
func (c *Comm) Create(g *Group) (*Comm, error) {
	if err := c.intra("Create"); err != nil {
		return nil, err
	}
	bad := c.part("Create", g)
	color, key := Undefined, 0
	if bad == nil && g.Rank() != Undefined {
		color, key = g.ranks.At(0), g.Rank()
	}
	return c.split(agree.MakeCreate, bad, color, key, g)
}

// part reports why g is not a part of c's group.
func (c *Comm) part(op string, g *Group) *Error {
	if err := c.Group().both(op, g); err != nil {
		return err
	}
	if !g.ranks.Within(c.group.Members()) {
		return mpierr.New(op, ErrGroup, "the group %v has ranks of the world that %s has not", g, c.Name())
	}
	return nil
}

// CreateGroup is Create that only the ranks of g call, all with the same group and tag; §7.4.2. Calls at one time that
// have a rank in common have different tags.
func (c *Comm) CreateGroup(g *Group, tag int) (*Comm, error) {
	const op = "CreateGroup"
	if err := c.intra(op); err != nil {
		return nil, err
	}
	err := c.part(op, g)
	switch {
	case err != nil:
	case g.Rank() == Undefined:
		err = mpierr.New(op, ErrGroup,
			"the caller, rank %d of the communicator, is not in the group; only its ranks call this",
			c.group.Rank)
	case tag < 0 || tag > MaxTag:
		err = mpierr.New(op, ErrTag, "the tag is %d; tags are 0 to %d", tag, MaxTag)
	}
	if err != nil {
		return nil, mpierr.On(err, c.Name())
	}
	var made handover
	fail := c.group.RunDetached(c.ctx, op, func() error {
		m := c.group.ExchangePart(agree.MakeCreateGroup, g.ranks, int32(tag))
		id, no := m.Number(c.group.Context/agree.ContextsEach+1, agree.AppendRanks(nil, g.ranks), nil, nil)
		if no != nil {
			return m.Failed(no)
		}
		if no = m.Vote(id, nil); no != nil {
			c.group.Abandon(id, g.ranks)
			return m.Failed(no)
		}
		made.give(c.child(agree.MakeCreateGroup, id, g.ranks, nil))
		return nil
	})
	return made.take(c, agree.MakeCreateGroup, fail)
}

// Compare is Ident if c and d are one communicator, Congruent if they have the same ranks in the same order, Similar if
// in another one, else Unequal; §7.4.1. No other rank takes part.
func (c *Comm) Compare(d *Comm) (Comparison, error) {
	for _, x := range []*Comm{c, d} {
		if err := x.valid("Compare"); err != nil {
			return Unequal, err
		}
	}
	if c.shared == d.shared {
		return Ident, nil
	}
	if (c.group.Local == nil) != (d.group.Local == nil) {
		return Unequal, nil
	}
	result, err := c.Group().Compare(d.Group())
	if err == nil && c.group.Local != nil {
		result = max(result, compareSets(c.group.Peers, d.group.Peers))
	}
	if err == nil && result == Ident {
		result = Congruent
	}
	return result, err
}

// Split makes a communicator of the ranks that give the same color, in the order of their keys and, where these are
// equal, of their ranks in c; §7.4.2. Every rank of c calls it. The color is not negative, or Undefined: then there is
// no communicator at this rank, and no error.
//
// Colors go up a binomial tree and groups down it: two messages for a rank, and two more where the number that the
// communicators get is not the first one tried. Ranks whose colors or keys follow a rule (rank/8, rank%8, all the same)
// are told and kept as one; so a message has some 10 bytes for each such part among the ranks that it speaks of, and
// for each group of theirs on the way down. Where there is no rule that is linear in the ranks at rank 0, in half of
// them at the next, and so on; no other rank learns of groups other than its own and those of the ranks below it.
func (c *Comm) Split(color, key int) (*Comm, error) {
	if err := c.intra("Split"); err != nil {
		return nil, err
	}
	var bad *Error
	if color < 0 && color != Undefined {
		bad = mpierr.New("Split", ErrCount, "the color is %d; a color is 0 or more, or Undefined", color)
	}
	return c.split(agree.MakeSplit, bad, color, key, nil)
}

// SplitShared is Split by hosts: the ranks that can share memory, in the order of their keys; §7.4.2
// (MPI_COMM_TYPE_SHARED). The launcher says which ranks share a host (PMI_process_mapping), or else the kernel's boot
// id and namespaces do, which ranks tell each other in Init.
func (c *Comm) SplitShared(key int) (*Comm, error) {
	if err := c.intra("SplitShared"); err != nil {
		return nil, err
	}
	return c.split(agree.MakeSplitShared, nil, c.group.Host(), key, nil)
}

// split makes communicators by color. want, if any, is the group that the caller gives.
func (c *Comm) split(kind agree.Creation, bad *Error, color, key int, want *Group) (*Comm, error) {
	s := newSplitting(c, color, key)
	if mine := s.colors[s.color]; bad == nil && want != nil && mine != nil {
		mine.size, mine.hash = int64(want.Size()), agree.HashOf(agree.AppendRanks(nil, want.ranks))
	}
	return c.create(plan{kind: kind, bad: bad, g: s, members: func() *ranks.Set { return s.mine }})
}

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

// splitting is the payload of a Split.
type splitting struct {
	c      *Comm
	color  int64
	colors map[int64]*colored    // of this rank and those that it has heard
	below  map[int][]int64       // of each child: the colors that it has told
	groups map[int64][]ranks.Run // of each of these colors: ranks of c, in the order of the new communicator
	mine   *ranks.Set            // in the world; nil: this rank gave no color
	// arrange, of a Cart, makes one group of what has been told by hosts; nil: each color is a group.
	arrange func([]*colored) []ranks.Run
}

func newSplitting(c *Comm, color, key int) *splitting {
	s := &splitting{c: c, color: int64(color), colors: map[int64]*colored{}, below: map[int][]int64{},
		groups: map[int64][]ranks.Run{}}
	if color != Undefined {
		s.colors[s.color] = &colored{color: s.color, spans: []span{{rank: int64(c.group.Rank), stride: 1, n: 1,
			key: int64(key)}}}
	}
	return s
}

// sorted are the colors in the order of their first ranks.
func (s *splitting) sorted() []*colored {
	var all []*colored
	for _, c := range s.colors {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *colored) int { return int(a.spans[0].rank - b.spans[0].rank) })
	return all
}

func (s *splitting) Up() []byte {
	b := agree.AppendInts(nil, int64(len(s.colors)))
	for _, c := range s.sorted() {
		b = agree.AppendInts(b, c.color, c.size, c.hash, int64(len(c.spans)))
		for _, x := range c.spans {
			b = agree.AppendInts(b, x.rank, x.stride, x.n, x.key, x.dkey)
		}
	}
	return b
}

func (s *splitting) Take(child int, d *agree.Decoder) *agree.Veto {
	for range d.Count() {
		its := colored{color: d.Int(), size: d.Int(), hash: d.Int()}
		s.below[child] = append(s.below[child], its.color)
		into := s.colors[its.color]
		if into == nil {
			into = &its
			s.colors[its.color] = into
		}
		if into.size != its.size || into.hash != its.hash {
			return unlikeGroups(into)
		}
		if !s.takeSpans(into, child, d) {
			d.Bad = true
			return nil
		}
	}
	return nil
}

// takeSpans adds ranks that come after those that are there, one at least.
func (s *splitting) takeSpans(into *colored, child int, d *agree.Decoder) bool {
	size := int64(s.c.group.Size)
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

func unlikeGroups(c *colored) *agree.Veto {
	return &agree.Veto{Class: ErrGroup,
		Text: fmt.Sprintf("rank %d gives a group in which another rank gives another group; "+
			"ranks give the same group, or groups that have no rank in common", c.spans[0].rank)}
}

func (s *splitting) Decide() *agree.Veto {
	if s.arrange != nil {
		s.groups[0] = s.arrange(s.sorted())
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
func (s *splitting) choose() {
	color := s.color
	if s.arrange != nil {
		color = 0
	}
	runs, ok := s.groups[color]
	if !ok {
		return
	}
	if s.c.group.Peers == nil {
		s.mine = ranks.Of(runs...)
		return
	}
	var b ranks.Builder
	ranks.Of(runs...).All(func(r int32) bool {
		b.AddRank(int32(s.c.group.Peers.At(int(r))))
		return true
	})
	s.mine = b.Done()
}

func (s *splitting) Down(child int) []byte {
	colors := s.below[child]
	if s.arrange != nil {
		colors = []int64{0}
	}
	b := agree.AppendInts(nil, int64(len(colors)))
	for _, color := range colors {
		b = agree.AppendRuns(agree.AppendInts(b, color), s.groups[color])
	}
	return b
}

func (s *splitting) ReadVerdict(d *agree.Decoder) {
	for range d.Count() {
		color := d.Int()
		s.groups[color] = d.Ranks(s.c.group.Size).Runs
	}
	if !d.Bad {
		s.choose()
	}
}

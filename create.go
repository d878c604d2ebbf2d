package mpi

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Dup makes a communicator of the same ranks in the same order; §7.4.2. Every rank of c calls it. The new communicator
// has its own messages and its own name. It does not inherit attributes (§7.7), and it inherits the topology (§8.5). If
// c's context has ended, or ends first, Dup returns the context's error. The other ranks may then make a communicator
// without this rank, and the call counts as in Barrier. Of an intercommunicator, Dup makes another one between the same
// groups, and every rank of both groups calls it.
func (c *Comm) Dup() (*Comm, error) {
	if c.IsInter() {
		return c.dupInter()
	}
	return c.create(plan{kind: agree.MakeDup, members: func() *ranks.Set { return c.group.Members() },
		finish: func(s *commState) { c.group.Duplicate(&s.group) }})
}

// plan is a collective call that makes a communicator.
type plan struct {
	kind    agree.Creation
	args    []byte // what all ranks must give alike
	bad     *Error // the mistake of this caller, or nil
	g       agree.Payload
	members func() *ranks.Set // the ranks of this rank's communicator, once all are heard; nil: it gets none
	finish  func(*commState)  // adds what it has beyond ranks and a number; may be nil
	// after is what the ranks do when they have it; may be nil.
	after func(m *agree.Exchange, made *Comm) *agree.Veto
}

// create makes a communicator in a collective call of c.
func (c *Comm) create(p plan) (*Comm, error) {
	if h := c.hook(); h != nil {
		return h.creates(p.kind.String(), func(c *Comm) (*Comm, error) { return c.create(p) })
	}
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
func (c *Comm) child(kind agree.Creation, id uint32, members *ranks.Set, finish func(*commState)) *Comm {
	if members == nil || members.Find(c.group.WorldRank) == Undefined {
		return nil
	}
	s := &commState{}
	s.self, s.isWin = c.self, suffixes[kind] == "win"
	c.group.Derive(&s.group, members, id)
	s.group.SetName(c.nameOf(kind))
	if finish != nil {
		finish(s)
	}
	return newComm(s, c.ctx)
}

// nameOf is the name of another communicator that is made of c.
func (c *Comm) nameOf(kind agree.Creation) string {
	return fmt.Sprintf("%s.%s%d", c.Name(), suffixes[kind], c.made.Add(1))
}

// renewedName is the name of a communicator in whose place the count-th one of this rank comes, by Shrink or Replace.
// It takes the place of the suffix of an earlier call: a program that outlives a hundred deaths has short names.
func (c *Comm) renewedName(kind agree.Creation, count uint32) string {
	name := c.Name()
	stem, last := name, name[strings.LastIndexByte(name, '.')+1:]
	for _, kind := range [...]agree.Creation{agree.MakeShrink, agree.MakeReplace} {
		digits, renewed := strings.CutPrefix(last, suffixes[kind])
		if _, err := strconv.ParseUint(digits, 10, 32); renewed && err == nil && len(last) < len(name) {
			stem = name[:len(name)-len(last)-1]
		}
	}
	return fmt.Sprintf("%s.%s%d", stem, suffixes[kind], count)
}

var suffixes = [agree.MakeEnd]string{agree.MakeDup: "dup", agree.MakeSplit: "split", agree.MakeSplitShared: "shared",
	agree.MakeCreate:      "group",
	agree.MakeCreateGroup: "group", agree.MakeCart: "cart", agree.MakeCartSub: "cart", agree.MakeGraph: "graph",
	agree.MakeDistGraph:         "graph",
	agree.MakeDistGraphAdjacent: "graph", agree.MakeDistGraphWeighted: "graph",
	agree.MakeDistGraphAdjacentWeighted: "graph", agree.MakeIntercomm: "inter", agree.MakeMerge: "merged",
	agree.MakeWinAlloc: "win", agree.MakeWinShared: "win", agree.MakeWinCreate: "win",
	agree.MakeWinDynamic: "win", agree.MakeShrink: "shrunk", agree.MakeSpawn: "spawn", agree.MakeReplace: "replaced"}

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
	switch h.c = c; {
	case c == nil:
	case h.refused:
		c.free()
	default:
		c.publish()
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

// Create makes a communicator of the ranks of g, a subset of c's group; §7.4.2. Every rank of c calls it. All ranks
// give one group, or groups without a common rank. A rank outside the group that it gives gets nil; the group may be
// empty. The cost is the cost of Split. Groups that overlap are ErrGroup at all ranks.
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

// CreateGroup is Create that only the ranks of g call, all with the same group and tag; §7.4.2. Two calls at the same
// time that have a rank in common need different tags.
func (c *Comm) CreateGroup(g *Group, tag int) (*Comm, error) {
	const op = "CreateGroup"
	if h := c.hook(); h != nil {
		return h.creates(op, func(c *Comm) (*Comm, error) { return c.CreateGroup(g, tag) })
	}
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

// Compare returns Ident if c and d are one communicator, Congruent if they have the same ranks in the same order,
// Similar if they have the same ranks in another order, and Unequal otherwise; §7.4.1. It communicates with no rank.
func (c *Comm) Compare(d *Comm) (Comparison, error) {
	for _, x := range []*Comm{c, d} {
		if err := x.exists("Compare"); err != nil {
			return Unequal, err
		}
	}
	if c.commState == d.commState {
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

// Split makes a communicator of the ranks that give the same color, ordered by key and then by rank in c; §7.4.2. Every
// rank of c calls it. A color is 0 or more; a negative color is ErrCount. A rank whose color is Undefined gets nil and
// no error.
//
// Colors go up a binomial tree and groups go down it: two messages for a rank, and two more if the first number tried
// for the new communicators is taken. Split keeps ranks as one part if their colors or keys follow a linear rule
// (rank/8, rank%8, all equal). A message has about 10 bytes for each part among its ranks, and on the way down for each
// group of them. Without such a rule rank 0 keeps an entry for every rank, the next rank in the tree for half of them,
// and so on. Other ranks learn only of their own group and of the groups of the ranks below them.
//
// Of an intercommunicator, Split makes an intercommunicator for each color, between the ranks of both groups that give
// it. Every rank of both groups calls Split. A rank whose color no rank of the other group gives gets nil and no error.
func (c *Comm) Split(color, key int) (*Comm, error) {
	var bad *Error
	if color < 0 && color != Undefined {
		bad = mpierr.New("Split", ErrCount, "the color is %d; a color is 0 or more, or Undefined", color)
	}
	if c.IsInter() {
		return c.splitInter(bad, color, key)
	}
	if err := c.intra("Split"); err != nil {
		return nil, err
	}
	return c.split(agree.MakeSplit, bad, color, key, nil)
}

// SplitShared is Split by host, ordered by key: the ranks of one communicator can share memory; §7.4.2
// (MPI_COMM_TYPE_SHARED). The launcher says which ranks share a host (PMI_process_mapping). Without that, ranks compare
// the kernel's boot id and namespaces in Init.
func (c *Comm) SplitShared(key int) (*Comm, error) {
	if err := c.intra("SplitShared"); err != nil {
		return nil, err
	}
	return c.split(agree.MakeSplitShared, nil, c.group.Host(), key, nil)
}

// split makes communicators by color. want, if any, is the group that the caller gives.
func (c *Comm) split(kind agree.Creation, bad *Error, color, key int, want *Group) (*Comm, error) {
	s := agree.NewSplit(&c.group.Group, color, key)
	if bad == nil && want != nil {
		s.Want(want.ranks)
	}
	return c.create(plan{kind: kind, bad: bad, g: s, members: func() *ranks.Set { return s.Members }})
}

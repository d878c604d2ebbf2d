package agree

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// Creation is a call that makes a communicator.
type Creation uint8

const (
	MakeDup Creation = iota
	MakeSplit
	MakeSplitShared
	MakeCreate
	MakeCreateGroup
	MakeCart
	MakeCartSub
	MakeGraph
	MakeDistGraph
	MakeDistGraphAdjacent
	MakeDistGraphWeighted
	MakeDistGraphAdjacentWeighted
	MakeIntercomm
	MakeMerge
	MakeWinAlloc
	MakeWinShared
	MakeWinCreate
	MakeWinDynamic
	MakeShrink
	MakeSpawn
	MakeReplace
	MakeEnd
)

var creations = [MakeEnd]string{"Dup", "Split", "SplitShared", "Create", "CreateGroup", "Cart", "CartSub", "Graph",
	"DistGraph", "DistGraphAdjacent", "DistGraphWeighted", "DistGraphAdjacentWeighted", "Intercomm", "Merge",
	"WinAlloc", "WinShared", "WinCreate", "WinDynamic", "Shrink", "Spawn", "Replace"}

func (k Creation) String() string { return creations[k] }

// Exchange connects ranks that make a communicator together. Their reports go up a binomial tree to the first of them,
// and its verdict goes down again: a round is two messages for each rank, for any number of ranks. If one rank cannot
// agree, also after its caller's mistake, all ranks hear of it. Every rank takes part in a round, and no rank waits for
// one that has given up.
type Exchange struct {
	Group   *Group // whose engine it uses, and whose names of ranks it tells
	kind    Creation
	ctx     uint32
	Tag     int32
	Me      int
	members *ranks.Set
	Name    func(i int) int // what the caller calls a member
}

// Exchange returns an exchange of all ranks of g, or of the local group of an intercommunicator. Calls on g that make a
// communicator have one at a time.
func (g *Group) Exchange(kind Creation) *Exchange {
	if g.Both != nil && g.Local == nil { // for a call on an intercommunicator
		g = g.Both
		return &Exchange{Group: g, kind: kind, ctx: g.Context + CtxCollective, Tag: tagAgree, Me: g.Rank,
			members: g.Members(),
			Name:    g.Peers.At}
	}
	return &Exchange{Group: g, kind: kind, ctx: g.Context + CtxCollective, Tag: tagAgree, Me: g.Rank,
		members: g.Members(),
		Name:    func(i int) int { return i }}
}

// ExchangePart is an exchange of some ranks of g, of which this one is one. No other call of theirs has the tag
// meanwhile.
func (g *Group) ExchangePart(kind Creation, members *ranks.Set, tag int32) *Exchange {
	return &Exchange{Group: g, kind: kind, ctx: g.Context + ctxCreate, Tag: tag, Me: members.Find(g.WorldRank),
		members: members,
		Name:    func(i int) int { return g.RankOf(int32(members.At(i))) }}
}

// Part is an exchange of some members within m, of which this one is one: it goes on between rounds of m. What ends m
// ends it, such as a revocation: a member may have left m after a failure, and never comes.
func (m *Exchange) Part(members *ranks.Set) *Exchange {
	return &Exchange{Group: m.Group, kind: m.kind, ctx: m.ctx, Tag: tagPart, Me: members.Find(m.Group.WorldRank),
		members: members,
		Name:    func(i int) int { return m.Group.RankOf(int32(members.At(i))) }}
}

// Veto is why no communicator is made, at any rank.
type Veto struct {
	Class error
	Text  string
	Cause error // what this rank has met itself; nil: it has been told
	Alone bool  // it is not known what the first rank has decided
}

// Unknown marks r as the veto of a rank that does not know the decision of the first rank.
func (r *Veto) Unknown() *Veto {
	r.Alone = true
	return r
}

// refused are the classes that are told to other ranks.
var refused = []error{mpierr.ErrAborted, mpierr.ErrPeerFailed, mpierr.ErrRevoked, mpierr.ErrNoMemory, mpierr.ErrTimeout,
	mpierr.ErrUnavailable, mpierr.ErrDevice, mpierr.ErrComm, mpierr.ErrGroup, mpierr.ErrRank,
	mpierr.ErrCount, mpierr.ErrDims, mpierr.ErrTopology, mpierr.ErrTag, mpierr.ErrRoot, mpierr.ErrType, mpierr.ErrOp,
	mpierr.ErrBuffer, mpierr.ErrSpawn}

// Refuse is the veto of a rank whose caller has made a mistake, or nil. That caller gets err, and the other ranks hear
// whose mistake it is. Where several ranks have made mistakes, each caller gets its own.
func (m *Exchange) Refuse(err *mpierr.Error) *Veto {
	if err == nil {
		return nil
	}
	return &Veto{Class: err.Class, Text: fmt.Sprintf("rank %d: %v", m.Name(m.Me), err.Err),
		Cause: mpierr.On(err, m.Group.Name())}
}

// Met is the veto of a rank that cannot reach another one.
func (m *Exchange) Met(err error) *Veto {
	class := mpierr.ClassOf(err)
	var already *mpierr.Error
	if errors.As(err, &already) {
		class = already.Class
	}
	return &Veto{Class: class, Text: m.Group.describe(err).Error(), Cause: err}
}

// Failed is what the caller gets.
func (m *Exchange) Failed(r *Veto) error { return m.FailedIn(m.kind.String(), r) }

// FailedIn is failed for a caller of op, or "", which wrap replaces by the call that returns the error.
func (m *Exchange) FailedIn(op string, r *Veto) error {
	if r.Cause != nil {
		return m.Group.Wrap(op, ranks.Undefined, ranks.Undefined, r.Cause)
	}
	err := &mpierr.Error{Op: op, Class: r.Class, Comm: m.Group.Name(), Peer: ranks.Undefined, Tag: ranks.Undefined,
		Err: errors.New(r.Text)}
	m.Group.Heard(err)
	return err
}

// MaybeMade reports whether another rank may have made the communicator in spite of the veto. After a caller's mistake
// no rank has.
func (r *Veto) MaybeMade() bool {
	return slices.Index(refused, r.Class) < slices.Index(refused, mpierr.ErrComm)
}

// numberOf is the place of a class in refused; of a class that is not told, of ErrAborted.
func numberOf(class error) int { return max(0, slices.Index(refused, class)) }

// Append writes the veto; nil is written too.
func (r *Veto) Append(b []byte) []byte {
	if r == nil {
		return AppendInts(b, -1)
	}
	class := 2 * numberOf(r.Class)
	if r.Alone {
		class++
	}
	return AppendBytes(AppendInts(b, int64(class)), r.Text)
}

// Veto reads the veto that Veto.Append has written, or nil.
func (d *Decoder) Veto() *Veto {
	class := d.Within(-1, int64(2*len(refused)-1))
	if class < 0 {
		return nil
	}
	return &Veto{Class: refused[class/2], Text: string(d.Bytes()), Alone: class%2 != 0}
}

// Payload is what a round brings together beyond a number. nil: nothing.
type Payload interface {
	Take(child int, d *Decoder) *Veto // what the ranks from child to the next one say
	Up() []byte
	Decide() *Veto          // at the first rank, when all have been heard
	Down(child int) []byte  // what these ranks have to know
	ReadVerdict(d *Decoder) // the same, of this rank
}

// report is a message up.
type report struct {
	kind  Creation
	value uint32
	args  []byte // what all ranks must give alike
	no    *Veto
}

func (s *report) append(b []byte) []byte {
	b = AppendInts(b, int64(s.kind), int64(s.value))
	return s.no.Append(AppendBytes(b, s.args))
}

// Report reads a message up.
func (d *Decoder) Report() report {
	return report{kind: Creation(d.Within(0, int64(MakeEnd)-1)), value: uint32(d.Within(0, 1<<32-1)), args: d.Bytes(),
		no: d.Veto()}
}

// Round returns the largest value of all members, unless one of them refuses.
func (m *Exchange) Round(value uint32, args []byte, no *Veto, g Payload) (uint32, *Veto) {
	mine := report{m.kind, value, args, no}
	var children []int
	for child := range m.Children() {
		b, err := m.Receive(child)
		if err != nil {
			mine.merge(m.Met(err))
			continue
		}
		children = append(children, child)
		m.hear(child, b, &mine, g)
	}
	if m.Me != 0 {
		return m.follow(children, &mine, g)
	}
	if g != nil && mine.no == nil {
		mine.no = g.Decide()
	}
	m.Tell(children, mine.value, mine.no, g)
	return mine.value, mine.no
}

// Children are the members that say to this one what they and those up to the next one say.
func (m *Exchange) Children() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for step := 1; step < int(m.members.N) && m.Me&step == 0; step *= 2 {
			if m.Me+step < int(m.members.N) && !yield(m.Me+step) {
				return
			}
		}
	}
}

// follow asks the member that is nearer to the first one.
func (m *Exchange) follow(children []int, mine *report, g Payload) (uint32, *Veto) {
	b := mine.append(nil)
	if g != nil {
		b = append(b, g.Up()...)
	}
	parent := m.Me & (m.Me - 1)
	err := m.Send(parent, b)
	if err == nil {
		b, err = m.Receive(parent)
	}
	if err != nil {
		no := m.Met(err).Unknown()
		m.Tell(children, 0, no, nil)
		return 0, no
	}
	d := Decoder{B: b}
	value, no := uint32(d.Within(0, 1<<32-1)), d.Veto()
	if g != nil && no == nil {
		g.ReadVerdict(&d)
	}
	if !d.Over() {
		no = m.Nonsense(parent)
	}
	if no != nil && mine.no != nil && mine.no.Cause != nil {
		no.Cause = mine.no.Cause // this rank knows best
	}
	m.Tell(children, value, no, g)
	return value, no
}

// Tell hands on what has been decided. A rank that cannot be told has failed, and finds that out by itself.
func (m *Exchange) Tell(children []int, value uint32, no *Veto, g Payload) {
	for _, child := range children {
		b := no.Append(AppendInts(nil, int64(value)))
		if g != nil && no == nil {
			b = append(b, g.Down(child)...)
		}
		m.Send(child, b)
	}
}

// hear adds what a child says.
func (m *Exchange) hear(child int, b []byte, mine *report, g Payload) {
	d := Decoder{B: b}
	its := d.Report()
	if d.Bad {
		mine.merge(m.Nonsense(child))
		return
	}
	mine.value = max(mine.value, its.value)
	mine.merge(its.no)
	switch a, b := m.Name(m.Me), m.Name(child); {
	case its.kind != m.kind:
		mine.merge(&Veto{Class: mpierr.ErrComm, Text: fmt.Sprintf("rank %d calls %v and rank %d calls %v; all ranks "+
			"make the same collective calls in the same order", a, m.kind, b, its.kind)})
	case string(its.args) != string(mine.args):
		mine.merge(&Veto{Class: mpierr.ErrComm,
			Text: fmt.Sprintf("ranks %d and %d give different arguments, which must be "+
				"the same at all ranks", a, b)})
	case g == nil || its.no != nil:
	default:
		if mine.merge(g.Take(child, &d)); !d.Over() {
			mine.merge(m.Nonsense(child))
		}
	}
}

func (s *report) merge(no *Veto) {
	if s.no == nil {
		s.no = no
	}
}

// Nonsense is the veto of a rank that another one has sent what is no part of the call.
func (m *Exchange) Nonsense(from int) *Veto {
	return &Veto{Class: mpierr.ErrAborted, Text: fmt.Sprintf("rank %d has sent what is no part of this call",
		m.Name(from))}
}

// Send sends b to a member.
func (m *Exchange) Send(to int, b []byte) error {
	return m.Group.Engine.Send(nil, m.ctx, m.members.At(to), m.Tag, b, pml.Standard)
}

// Lost says why nothing can come from a member, or nil.
func (m *Exchange) Lost(member int) error {
	_, _, _, err := m.Group.Engine.Iprobe(m.ctx, m.members.At(member), m.Tag, false)
	return err
}

// Receive receives the next message of a member.
func (m *Exchange) Receive(from int) ([]byte, error) {
	found, st, err := m.Group.Engine.Probe(nil, m.ctx, m.members.At(from), m.Tag, true)
	if err != nil {
		return nil, err
	}
	return receiveFound(m.Group.Engine, found, st.Bytes)
}

// receiveFound receives a message of the library's own, of n bytes.
func receiveFound(eng *pml.Engine, found *pml.Message, n int64) ([]byte, error) {
	b := make([]byte, n)
	r, err := eng.Imrecv(nil, found, b)
	if err == nil {
		_, err = r.Wait()
	}
	return b, err
}

// agreement is the search of the members of a meeting for a number that is free at all of them.
type agreement struct {
	*Exchange
	want uint32 // what is tried next; the same at all members
	try  int
	seed uint32 // what this agreement scatters by
	// wrapped: the lowest numbers have been asked for again. recycled: late numbers have been made free.
	wrapped, recycled bool
}

// tries is after how many numbers in vain the members give up.
const tries = 100

// Number finds the number of the communicator. guess is the same at all members. Each try is a number that all members
// claim; if one of them cannot, what it has free instead is the base of the next one. Goroutines that make
// communicators of overlapping groups at once can take each other's numbers away: what is tried next is scattered then,
// over more numbers each time, so that they part.
func (m *Exchange) Number(guess uint32, args []byte, no *Veto, g Payload) (uint32, *Veto) {
	a := agreement{Exchange: m, want: guess, seed: m.ctx}
	if a.want >= m.Group.Numbers.Small {
		a.want, a.wrapped = 1, true
	}
	if no == nil {
		if err := m.Group.Engine.Closed(); err != nil { // in a world of one nothing below notices
			return 0, m.Met(err)
		}
	}
	return a.find(func(mine uint32) (uint32, *Veto) {
		free, other := m.Round(mine, args, no, g)
		args, g = nil, nil // they are known
		return free, other
	}, func() *ranks.Set { return m.members })
}

// find tries numbers. ask tells the others which number this rank offers and returns the largest that any does. senders
// are the ranks that may have sent with a number that has not come to be here.
func (a *agreement) find(ask func(mine uint32) (uint32, *Veto), senders func() *ranks.Set) (uint32, *Veto) {
	ids := a.Group.Numbers
	for ; a.try < tries; a.try++ {
		mine := ids.Reserve(a.want)
		free, no := ask(mine)
		if no == nil && free == a.want {
			return free, nil
		}
		if mine == a.want {
			if no != nil && no.MaybeMade() {
				a.Group.Abandon(mine, senders())
			} else {
				ids.Release(mine, nil)
			}
		}
		if no != nil {
			if no.Alone { // others may go on, to recycle: they are not to wait for this rank
				a.Group.Engine.DropContext(a.Group.Context+CtxFlush, a.Failed(no))
			}
			return 0, no
		}
		a.advance(free)
	}
	return 0, &Veto{Class: mpierr.ErrComm,
		Text: fmt.Sprintf("%d ranks could not agree on a number for a new communicator in "+
			"%d tries; free some of those you have", a.members.N, tries)}
}

// advance chooses the next number; free is the largest that a member offers instead of the last one.
func (a *agreement) advance(free uint32) {
	small := a.Group.Numbers.Small
	a.want = free
	if a.try > 0 {
		a.want += scatter(a.seed, a.want) % (1 << min(a.try, 10))
	}
	switch {
	case a.want < small:
	case !a.wrapped:
		a.wrapped, a.want = true, 1
	case a.recycled || a.kind == MakeCreateGroup || a.Group.Local != nil || a.kind == MakeIntercomm:
	case a.Group.barren > 0:
		a.Group.barren--
	default:
		if a.recycled = true; a.recycle() {
			a.want = 1
		} else {
			a.Group.barren = InVain
		}
	}
}

// InVain is the number of creations without a new attempt after an attempt has freed no number.
const InVain = 256

// scatter makes a number of two that looks random.
func scatter(a, b uint32) uint32 {
	x := uint64(a)<<32 | uint64(b)
	x += 0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return uint32(x ^ x>>31)
}

// recycle makes numbers free that are late, and reports whether there were any. All members take part. Each sends a
// last message to every member that it has ever spoken to. Messages of a pair arrive in the order in which they were
// sent; so, once all these are matched, no message of a communicator that all of its ranks had freed before is under
// way among them. That costs as many messages as a rank has links, once in 16,382 communicators.
func (m *Exchange) recycle() bool {
	c := m.Group
	bits, then := c.Numbers.Usable(m.members) // another goroutine may send and free meanwhile, behind the last messages
	no := m.flushLinks()
	if _, no = m.Round(0, nil, no, nil); no != nil {
		return false
	}
	if c.Engine.Draining() {
		clear(bits)
	}
	common := numbersInCommon{bits: bits}
	if _, no := m.Round(0, nil, nil, &common); no != nil {
		return false
	}
	c.Numbers.Free(common.bits, then, func(id uint32) { c.Engine.ReuseContexts(id*ContextsEach, ContextsEach) })
	return slices.ContainsFunc(common.bits, func(b byte) bool { return b != 0 })
}

// flushLinks returns when all that this rank has sent to other members has arrived.
func (m *Exchange) flushLinks() *Veto {
	peers, ordered := m.Group.Engine.Contacts()
	if !ordered {
		no := &Veto{Class: mpierr.ErrUnavailable, Text: "the transport lets messages overtake each other"}
		_, no = m.Round(0, nil, no, nil)
		return no
	}
	last := map[int32][]byte{}
	for _, p := range peers {
		if m.members.Find(p) != ranks.Undefined {
			last[p] = nil
		}
	}
	return m.ScatterSparsely(m.Group, last, func([]byte) {})
}

// ScatterSparsely sends over c what each member has for some of the others, by ranks of the world, and returns when all
// members have got theirs. A rank does not know which ranks have something for it: a goroutine takes what comes, until
// this rank has heard that it was all. It takes its own part at once.
func (m *Exchange) ScatterSparsely(g *Group, to map[int32][]byte, take func([]byte)) *Veto {
	ctx := g.Context + CtxFlush
	if b, self := to[g.WorldRank]; self {
		take(b)
	}
	taken := make(chan error, 1)
	go func() { taken <- takeAll(g, take) }()
	var sent []*pml.Request
	for world, b := range to {
		if world != g.WorldRank {
			sent = append(sent, g.Engine.Isend(nil, ctx, int(world), tagFlush, b, pml.Synchronous))
		}
	}
	var no *Veto
	for _, r := range sent {
		if _, err := r.Wait(); err != nil && no == nil {
			no = m.Met(err)
		}
	}
	// All that this rank has sent has been taken. When that is so of all, nothing is under way to this one.
	if _, other := m.Round(0, nil, no, nil); other != nil {
		no = other
	}
	if err := g.Engine.Send(nil, ctx, int(g.WorldRank), tagFlushed, nil, pml.Standard); err != nil && no == nil {
		no = m.Met(err)
	}
	if err := <-taken; err != nil && no == nil {
		no = m.Met(err)
	}
	if no != nil { // others that live may go on to send, and must not wait for this rank
		g.Engine.DropContext(ctx, m.Failed(no))
	}
	return no
}

// takeAll receives what other ranks send until this rank says that there is no more. It returns why a message has not
// come whole. A rank that has failed sends nothing any more, and does not end it: others may live.
func takeAll(g *Group, take func([]byte)) (lost error) {
	ctx := g.Context + CtxFlush
	for {
		if err := g.Engine.ProbeAny(nil, ctx, int(g.WorldRank), pml.AnyTag); err != nil {
			return err
		}
		found, st, is, _ := g.Engine.Iprobe(ctx, pml.AnySource, pml.AnyTag, true)
		if !is {
			continue
		}
		switch b, err := receiveFound(g.Engine, found, st.Bytes); {
		case st.Tag == tagFlushed:
			return lost
		case err == nil:
			take(b)
		case lost == nil:
			lost = err
		}
	}
}

// numbersInCommon is the payload that says which numbers all members can use.
type numbersInCommon struct{ bits []byte }

func (n *numbersInCommon) Take(_ int, d *Decoder) *Veto {
	its := d.Bytes()
	if len(its) != len(n.bits) {
		d.Bad = true
		return nil
	}
	for i := range n.bits {
		n.bits[i] &= its[i]
	}
	return nil
}

func (n *numbersInCommon) Up() []byte      { return AppendBytes(nil, n.bits) }
func (n *numbersInCommon) Decide() *Veto   { return nil }
func (n *numbersInCommon) Down(int) []byte { return n.Up() }

func (n *numbersInCommon) ReadVerdict(d *Decoder) {
	its := d.Bytes()
	if len(its) != len(n.bits) {
		d.Bad = true
		return
	}
	copy(n.bits, its)
}

// HashOf makes arguments short that must be the same at all ranks.
func HashOf(args []byte) int64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range args {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return int64(h)
}

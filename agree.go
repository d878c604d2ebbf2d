package mpi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// creation is a call that makes a communicator.
type creation uint8

const (
	makeDup creation = iota
	makeSplit
	makeSplitShared
	makeCreate
	makeCreateGroup
	makeCart
	makeCartSub
	makeGraph
	makeDistGraph
	makeDistGraphAdjacent
	makeDistGraphWeighted
	makeDistGraphAdjacentWeighted
	makeIntercomm
	makeMerge
	makeEnd
)

var creations = [makeEnd]string{"Dup", "Split", "SplitShared", "Create", "CreateGroup", "Cart", "CartSub", "Graph",
	"DistGraph", "DistGraphAdjacent", "DistGraphWeighted", "DistGraphAdjacentWeighted", "Intercomm", "Merge"}

func (k creation) String() string { return creations[k] }

// meeting is ranks that make a communicator together. What they say goes up a binomial tree to the first of them, and
// what follows from it down again: a round is two messages for each rank, whatever their number. What one rank cannot
// agree to, its caller's mistake included, all hear: every rank takes part in a round, and none waits for one that has
// given up.
type meeting struct {
	c       *Comm // whose engine it uses, and whose names of ranks it tells
	kind    creation
	ctx     uint32
	tag     int32
	me      int
	members *ranks.Set
	name    func(i int) int // what the caller calls a member
}

// meet is a meeting of all ranks of c, of an intercommunicator those of the local group. It is called in c.collective.
func (c *Comm) meet(kind creation) *meeting {
	if c.groups != nil && c.local == nil { // for a call on an intercommunicator
		c = c.groups.both
		return &meeting{c: c, kind: kind, ctx: c.cid + ctxCollective, tag: tagAgree, me: c.rank, members: c.members(),
			name: c.group.At}
	}
	return &meeting{c: c, kind: kind, ctx: c.cid + ctxCollective, tag: tagAgree, me: c.rank, members: c.members(),
		name: func(i int) int { return i }}
}

// refusal is why no communicator is made, at any rank.
type refusal struct {
	class error
	text  string
	cause error // what this rank has met itself; nil: it has been told
	alone bool  // it is not known what the first rank has decided
}

func (r *refusal) unknown() *refusal {
	r.alone = true
	return r
}

// refused are the classes that are told to other ranks.
var refused = []error{ErrAborted, ErrPeerFailed, ErrNoMemory, ErrTimeout, ErrUnavailable, ErrComm, ErrGroup, ErrRank,
	ErrCount, ErrDims, ErrTopology, ErrTag, ErrRoot, ErrType, ErrOp, ErrBuffer}

// refuse is the refusal of a rank whose caller has made a mistake, or nil.
func (m *meeting) refuse(err *Error) *refusal {
	if err == nil {
		return nil
	}
	return &refusal{class: err.Class, text: fmt.Sprintf("rank %d: %v", m.name(m.me), err.Err)}
}

// met is the refusal of a rank that cannot reach another one.
func (m *meeting) met(err error) *refusal {
	class := mpierr.ClassOf(err)
	var already *Error
	if errors.As(err, &already) {
		class = already.Class
	}
	return &refusal{class: class, text: m.c.describe(err).Error(), cause: err}
}

// failed is what the caller gets.
func (m *meeting) failed(r *refusal) error { return m.failedIn(m.kind.String(), r) }

// failedIn is failed for a caller of op, or "", which wrap replaces by the call that returns the error.
func (m *meeting) failedIn(op string, r *refusal) error {
	if r.cause != nil {
		return m.c.wrap(op, Undefined, Undefined, r.cause)
	}
	err := &Error{Op: op, Class: r.class, Comm: m.c.Name(), Peer: Undefined, Tag: Undefined, Err: errors.New(r.text)}
	hear(m.c.eng, err)
	return err
}

// maybeMade: another rank may have made the communicator all the same. That is not so when a caller has made a mistake.
func (r *refusal) maybeMade() bool {
	return slices.Index(refused, r.class) < slices.Index(refused, ErrComm)
}

func (r *refusal) append(b []byte) []byte {
	if r == nil {
		return appendInts(b, -1)
	}
	class := 0
	for i, c := range refused {
		if c == r.class {
			class = i
		}
	}
	class *= 2
	if r.alone {
		class++
	}
	return appendBytes(appendInts(b, int64(class)), r.text)
}

func (d *decoder) refusal() *refusal {
	class := d.within(-1, int64(2*len(refused)-1))
	if class < 0 {
		return nil
	}
	return &refusal{class: refused[class/2], text: string(d.bytes()), alone: class%2 != 0}
}

// gathering is what a round brings together beyond a number. nil: nothing.
type gathering interface {
	take(child int, d *decoder) *refusal // what the ranks from child to the next one say
	up() []byte
	decide() *refusal      // at the first rank, when all have been heard
	down(child int) []byte // what these ranks have to know
	told(d *decoder)       // the same, of this rank
}

// said is a message up.
type said struct {
	kind  creation
	value uint32
	args  []byte // what all ranks must give alike
	no    *refusal
}

func (s *said) append(b []byte) []byte {
	b = appendInts(b, int64(s.kind), int64(s.value))
	return s.no.append(appendBytes(b, s.args))
}

func (d *decoder) said() said {
	return said{kind: creation(d.within(0, int64(makeEnd)-1)), value: uint32(d.within(0, 1<<32-1)), args: d.bytes(),
		no: d.refusal()}
}

// round returns the largest value of all members, unless one of them refuses.
func (m *meeting) round(value uint32, args []byte, no *refusal, g gathering) (uint32, *refusal) {
	mine := said{m.kind, value, args, no}
	var children []int
	for child := range m.children() {
		b, err := m.receive(child)
		if err != nil {
			mine.merge(m.met(err))
			continue
		}
		children = append(children, child)
		m.hear(child, b, &mine, g)
	}
	if m.me != 0 {
		return m.follow(children, &mine, g)
	}
	if g != nil && mine.no == nil {
		mine.no = g.decide()
	}
	m.tell(children, mine.value, mine.no, g)
	return mine.value, mine.no
}

// children are the members that say to this one what they and those up to the next one say.
func (m *meeting) children() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for step := 1; step < int(m.members.N) && m.me&step == 0; step *= 2 {
			if m.me+step < int(m.members.N) && !yield(m.me+step) {
				return
			}
		}
	}
}

// follow asks the member that is nearer to the first one.
func (m *meeting) follow(children []int, mine *said, g gathering) (uint32, *refusal) {
	b := mine.append(nil)
	if g != nil {
		b = append(b, g.up()...)
	}
	parent := m.me & (m.me - 1)
	err := m.send(parent, b)
	if err == nil {
		b, err = m.receive(parent)
	}
	if err != nil {
		no := m.met(err).unknown()
		m.tell(children, 0, no, nil)
		return 0, no
	}
	d := decoder{b: b}
	value, no := uint32(d.within(0, 1<<32-1)), d.refusal()
	if g != nil && no == nil {
		g.told(&d)
	}
	if !d.over() {
		no = m.nonsense(parent)
	}
	if no != nil && mine.no != nil && mine.no.cause != nil {
		no.cause = mine.no.cause // this rank knows best
	}
	m.tell(children, value, no, g)
	return value, no
}

// tell hands on what has been decided. A rank that cannot be told has failed, and finds that out by itself.
func (m *meeting) tell(children []int, value uint32, no *refusal, g gathering) {
	for _, child := range children {
		b := no.append(appendInts(nil, int64(value)))
		if g != nil && no == nil {
			b = append(b, g.down(child)...)
		}
		m.send(child, b)
	}
}

// hear adds what a child says.
func (m *meeting) hear(child int, b []byte, mine *said, g gathering) {
	d := decoder{b: b}
	its := d.said()
	if d.bad {
		mine.merge(m.nonsense(child))
		return
	}
	mine.value = max(mine.value, its.value)
	mine.merge(its.no)
	switch a, b := m.name(m.me), m.name(child); {
	case its.kind != m.kind:
		mine.merge(&refusal{class: ErrComm, text: fmt.Sprintf("rank %d calls %v and rank %d calls %v; all ranks "+
			"make the same collective calls in the same order", a, m.kind, b, its.kind)})
	case string(its.args) != string(mine.args):
		mine.merge(&refusal{class: ErrComm, text: fmt.Sprintf("ranks %d and %d give different arguments, which must be "+
			"the same at all ranks", a, b)})
	case g == nil || its.no != nil:
	default:
		if mine.merge(g.take(child, &d)); !d.over() {
			mine.merge(m.nonsense(child))
		}
	}
}

func (s *said) merge(no *refusal) {
	if s.no == nil {
		s.no = no
	}
}

func (m *meeting) nonsense(from int) *refusal {
	return &refusal{class: ErrAborted, text: fmt.Sprintf("rank %d has sent what is no part of this call", m.name(from))}
}

func (m *meeting) send(to int, b []byte) error {
	return m.c.eng.Send(nil, m.ctx, m.members.At(to), m.tag, b, pml.Standard)
}

// lost says why nothing can come from a member, or nil.
func (m *meeting) lost(member int) error {
	_, _, _, err := m.c.eng.Iprobe(m.ctx, m.members.At(member), m.tag, false)
	return err
}

func (m *meeting) receive(from int) ([]byte, error) {
	found, st, err := m.c.eng.Probe(nil, m.ctx, m.members.At(from), m.tag, true)
	if err != nil {
		return nil, err
	}
	return receiveFound(m.c.eng, found, st.Bytes)
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
	*meeting
	want uint32 // what is tried next; the same at all members
	try  int
	seed uint32 // what this agreement scatters by
	// wrapped: the lowest numbers have been asked for again. recycled: late numbers have been made free.
	wrapped, recycled bool
}

// tries is after how many numbers in vain the members give up.
const tries = 100

// number finds the number of the communicator. guess is the same at all members. Each try is a number that all members
// claim; if one of them cannot, what it has free instead is the base of the next one. Goroutines that make
// communicators of overlapping groups at once can take each other's numbers away: what is tried next is scattered then,
// over more numbers each time, so that they part.
func (m *meeting) number(guess uint32, args []byte, no *refusal, g gathering) (uint32, *refusal) {
	a := agreement{meeting: m, want: guess, seed: m.ctx}
	if a.want >= m.c.ids.small {
		a.want, a.wrapped = 1, true
	}
	if no == nil {
		if err := m.c.eng.Closed(); err != nil { // in a world of one nothing below notices
			return 0, m.met(err)
		}
	}
	return a.find(func(mine uint32) (uint32, *refusal) {
		free, other := m.round(mine, args, no, g)
		args, g = nil, nil // they are known
		return free, other
	}, func() *ranks.Set { return m.members })
}

// find tries numbers. ask tells the others which number this rank offers and returns the largest that any does. senders
// are the ranks that may have sent with a number that has not come to be here.
func (a *agreement) find(ask func(mine uint32) (uint32, *refusal), senders func() *ranks.Set) (uint32, *refusal) {
	ids := a.c.ids
	for ; a.try < tries; a.try++ {
		mine := ids.claim(a.want)
		free, no := ask(mine)
		if no == nil && free == a.want {
			return free, nil
		}
		if mine == a.want {
			if no != nil && no.maybeMade() {
				a.c.abandon(mine, senders())
			} else {
				ids.release(mine, nil)
			}
		}
		if no != nil {
			if no.alone { // others may go on, to recycle: they are not to wait for this rank
				a.c.eng.DropContext(a.c.cid+ctxFlush, a.failed(no))
			}
			return 0, no
		}
		a.advance(free)
	}
	return 0, &refusal{class: ErrComm, text: fmt.Sprintf("%d ranks could not agree on a number for a new communicator in "+
		"%d tries; free some of those you have", a.members.N, tries)}
}

// advance chooses the next number; free is the largest that a member offers instead of the last one.
func (a *agreement) advance(free uint32) {
	small := a.c.ids.small
	a.want = free
	if a.try > 0 {
		a.want += scatter(a.seed, a.want) % (1 << min(a.try, 10))
	}
	switch {
	case a.want < small:
	case !a.wrapped:
		a.wrapped, a.want = true, 1
	case a.recycled || a.kind == makeCreateGroup || a.c.local != nil || a.kind == makeIntercomm:
	case a.c.barren > 0:
		a.c.barren--
	default:
		if a.recycled = true; a.recycle() {
			a.want = 1
		} else {
			a.c.barren = inVain
		}
	}
}

// inVain is in how many creations no numbers are made free after there was none.
const inVain = 256

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
// way among them. That costs as many messages as a rank has links, once in 16,383 communicators.
func (m *meeting) recycle() bool {
	c := m.c
	bits, then := c.ids.usable(m.members) // another goroutine may send and free meanwhile, behind the last messages
	no := m.flushLinks()
	if _, no = m.round(0, nil, no, nil); no != nil {
		return false
	}
	if c.eng.Draining() {
		clear(bits)
	}
	common := numbersInCommon{bits: bits}
	if _, no := m.round(0, nil, nil, &common); no != nil {
		return false
	}
	c.ids.free(common.bits, then, func(id uint32) { c.eng.ReuseContexts(id*contextsEach, contextsEach) })
	return slices.ContainsFunc(common.bits, func(b byte) bool { return b != 0 })
}

// flushLinks returns when all that this rank has sent to other members has arrived.
func (m *meeting) flushLinks() *refusal {
	peers, ordered := m.c.eng.Contacts()
	if !ordered {
		no := &refusal{class: ErrUnavailable, text: "the transport lets messages overtake each other"}
		_, no = m.round(0, nil, no, nil)
		return no
	}
	last := map[int32][]byte{}
	for _, p := range peers {
		if m.members.Find(p) != Undefined {
			last[p] = nil
		}
	}
	return m.scatterSparsely(m.c, last, func([]byte) {})
}

// scatterSparsely sends over c what each member has for some of the others, by ranks of the world, and returns when all
// members have got theirs. A rank does not know which ranks have something for it: a goroutine takes what comes, until
// this rank has heard that it was all. What is for the rank itself it takes at once.
func (m *meeting) scatterSparsely(c *Comm, to map[int32][]byte, take func([]byte)) *refusal {
	ctx := c.cid + ctxFlush
	if b, self := to[c.me]; self {
		take(b)
	}
	taken := make(chan error, 1)
	go func() { taken <- takeAll(c, take) }()
	var sent []*pml.Request
	for world, b := range to {
		if world != c.me {
			sent = append(sent, c.eng.Isend(nil, ctx, int(world), tagFlush, b, pml.Synchronous))
		}
	}
	var no *refusal
	for _, r := range sent {
		if _, err := r.Wait(); err != nil && no == nil {
			no = m.met(err)
		}
	}
	// All that this rank has sent has been taken. When that is so of all, nothing is under way to this one.
	if _, other := m.round(0, nil, no, nil); other != nil {
		no = other
	}
	if err := c.eng.Send(nil, ctx, int(c.me), tagFlushed, nil, pml.Standard); err != nil && no == nil {
		no = m.met(err)
	}
	if err := <-taken; err != nil && no == nil {
		no = m.met(err)
	}
	if no != nil { // others that live may go on to send, and must not wait for this rank
		c.eng.DropContext(ctx, m.failed(no))
	}
	return no
}

// takeAll receives what other ranks send until this rank says that there is no more. It returns why a message has not
// come whole. A rank that has failed sends nothing any more, and does not end it: others may live.
func takeAll(c *Comm, take func([]byte)) (lost error) {
	ctx := c.cid + ctxFlush
	for {
		if err := c.eng.ProbeAny(nil, ctx, int(c.me), AnyTag); err != nil {
			return err
		}
		found, st, is, _ := c.eng.Iprobe(ctx, AnySource, AnyTag, true)
		if !is {
			continue
		}
		switch b, err := receiveFound(c.eng, found, st.Bytes); {
		case st.Tag == tagFlushed:
			return lost
		case err == nil:
			take(b)
		case lost == nil:
			lost = err
		}
	}
}

// numbersInCommon is the gathering of which numbers all members can use.
type numbersInCommon struct{ bits []byte }

func (n *numbersInCommon) take(_ int, d *decoder) *refusal {
	its := d.bytes()
	if len(its) != len(n.bits) {
		d.bad = true
		return nil
	}
	for i := range n.bits {
		n.bits[i] &= its[i]
	}
	return nil
}

func (n *numbersInCommon) up() []byte       { return appendBytes(nil, n.bits) }
func (n *numbersInCommon) decide() *refusal { return nil }
func (n *numbersInCommon) down(int) []byte  { return n.up() }

func (n *numbersInCommon) told(d *decoder) {
	its := d.bytes()
	if len(its) != len(n.bits) {
		d.bad = true
		return
	}
	copy(n.bits, its)
}

// hashOf makes arguments short that must be the same at all ranks.
func hashOf(args []byte) int64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range args {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return int64(h)
}

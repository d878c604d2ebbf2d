package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/truth"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// Random programs on ranks of which up to two die, between two calls or behind a packet in the middle of one. A program
// follows from its seed: all ranks throw the same dice for a turn, so that each knows what the others do in it. A rank
// whose collective call fails revokes the communicator, as docs/recovery.md has it, and goes on with the next turn.
//
// The model says which results a call may have: the right data; ErrPeerFailed, if a rank that the call may need is
// dying; ErrRevoked, if a rank has called Revoke on that communicator. Where both are so either is right: the rank may
// have heard of the one or the other first. A rank that leaves a call since it has heard of a revocation is not dying,
// and the others end with ErrRevoked. The model says too what must be alike at all ranks that live on: what Agree
// gives, whom Shrink leaves, and whether a communicator is made.

const (
	turns      = 36
	round      = 6 // after so many turns all ranks agree, and shrink if something has failed
	mostGroups = 6
)

// mortals is a program.
type mortals struct {
	seed    uint64
	ranks   int
	beneath string
	env     []string
	plan    faulty.Plan
	numbers uint32         // of communicators, which are used again; 0: there are enough
	fates   map[int]fate   // by rank: those that die
	devices []*mortal      // by rank
	linked  sync.WaitGroup // all ranks are; none revokes the world before
	book    *book
}

// ledger is what the ranks of a program tell each other by another way than messages, so that each knows which results
// its calls may have.
type ledger interface {
	does(rank int, what string)
	dies(rank int) // it is dying: it says so before another rank can see it
	dying(rank int) bool
	enters(rank int, key string)
	entered(rank int, key string) bool
	gives(rank int, key string, flags uint32) // to an agreement
	says(rank int, key, what string)          // what is to be alike
	revokes(key string)                       // before Revoke on that communicator
	revoked(key string) bool
}

// book is a ledger in memory. Ranks that are processes have another rank's number when they take its place: there, the
// author of what is given and said is a process.
type book struct {
	mu     sync.Mutex
	doing  map[int]string
	dead   map[int]bool // ranks that are dying
	begun  map[string]map[int]bool
	given  map[string]map[int]uint32 // by author
	said   map[string]map[int]string // by author
	broken map[string]bool           // communicators on which a rank has called Revoke
}

func newBook() *book {
	return &book{doing: map[int]string{}, dead: map[int]bool{}, begun: map[string]map[int]bool{},
		given: map[string]map[int]uint32{}, said: map[string]map[int]string{}, broken: map[string]bool{}}
}

// locked calls f when no other goroutine reads or writes the book.
func locked[T any](b *book, f func() T) T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f()
}

// write adds to what ranks, or authors, have told.
func write[K comparable, T any](b *book, all map[K]T, key K, value T) {
	b.mu.Lock()
	all[key] = value
	b.mu.Unlock()
}

// writeBy adds to what ranks, or authors, have told of a key.
func writeBy[T any](b *book, all map[string]map[int]T, key string, by int, value T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all[key] == nil {
		all[key] = map[int]T{}
	}
	all[key][by] = value
}

func (b *book) does(rank int, what string) { write(b, b.doing, rank, what) }
func (b *book) dies(rank int)              { write(b, b.dead, rank, true) }
func (b *book) dying(rank int) bool        { return locked(b, func() bool { return b.dead[rank] }) }

func (b *book) enters(rank int, key string) { writeBy(b, b.begun, key, rank, true) }
func (b *book) entered(rank int, key string) bool {
	return locked(b, func() bool { return b.begun[key][rank] })
}

func (b *book) gives(author int, key string, flags uint32) { writeBy(b, b.given, key, author, flags) }
func (b *book) says(author int, key, what string)          { writeBy(b, b.said, key, author, what) }

func (b *book) revokes(key string)      { write(b, b.broken, key, true) }
func (b *book) revoked(key string) bool { return locked(b, func() bool { return b.broken[key] }) }

// fate is when a rank dies: in a turn, before its call if packets is below 0, or else behind so many packets.
type fate struct{ turn, packets int }

// newMortals is a program of n ranks of which none dies.
func newMortals(seed uint64, beneath string, n int) *mortals {
	p := &mortals{seed: seed, ranks: n, beneath: beneath, fates: map[int]fate{}, devices: make([]*mortal, n),
		book: newBook()}
	p.linked.Add(n)
	return p
}

// randomMortals is a program that follows from its seed.
func randomMortals(seed uint64, beneath string) *mortals {
	dice := rand.New(rand.NewPCG(seed, 0))
	n, choices := 3+dice.IntN(5), truth.Choices()
	p := newMortals(seed, beneath, n)
	p.env = []string{fmt.Sprintf("GORUN_COLL_CHECK=%d", dice.IntN(2)), "GORUN_COLL=" + choices[dice.IntN(len(choices))]}
	if dice.IntN(4) == 0 {
		p.plan = faulty.Random(int64(seed))
	}
	if dice.IntN(3) == 0 {
		p.numbers = 4 + dice.Uint32N(8)
	}
	first := dice.IntN(turns)
	for _, rank := range dice.Perm(n)[:min(2, dice.IntN(4))] {
		f := fate{first, dice.IntN(24) - 6}
		if dice.IntN(2) == 0 {
			f.turn = dice.IntN(turns)
		}
		p.fates[rank] = f
	}
	return p
}

// String says how to run the program again, and what each rank does.
func (p *mortals) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "GORUN_TEST_SEED=%d over %s: %d ranks, of which these die: %+v; %q, %d numbers, %v", p.seed, p.beneath,
		p.ranks, p.fates, p.env, p.numbers, p.plan)
	for rank := range p.ranks {
		if what := locked(p.book, func() string { return p.book.doing[rank] }); what != "" {
			fmt.Fprintf(&s, "\nrank %d, dying %v: %s", rank, p.book.dying(rank), what)
		}
	}
	return s.String()
}

// option puts devices that may die over others.
func (p *mortals) option(beneath mpi.Option) mpi.Option {
	return func(o *join.Options) {
		beneath(o)
		o.Environ = p.env
		mpi.OnTop(func(rank int, d transport.Device) transport.Device {
			if p.plan.String() != "{}" {
				d = faulty.Wrap(d, int64(p.seed)*1000+int64(rank), p.plan)
			}
			left := &atomic.Int64{}
			left.Store(math.MaxInt64)
			p.devices[rank] = newMortal(d, left)
			return p.devices[rank]
		})(o)
	}
}

// mortal is the device of a rank that may die: after so many packets it says so, and what it sends then is lost.
type mortal struct {
	transport.Device
	facts transport.Facts
	left  *atomic.Int64 // packets
	dies  func()        // is called under the engine's lock
}

func newMortal(d transport.Device, left *atomic.Int64) *mortal {
	m := &mortal{Device: d, facts: *d.Facts(), left: left}
	m.facts.ConnectNow = nil // every link is made by Connect
	if m.facts.Tagged != nil {
		m.facts.Tagged = mortalTagged{m.facts.Tagged, m}
	}
	return m
}

func (m *mortal) Facts() *transport.Facts { return &m.facts }

// leaves reports whether a packet leaves the rank.
func (m *mortal) leaves() bool {
	left := m.left.Add(-1)
	if left == -1 {
		m.dies()
	}
	return left >= 0
}

func (m *mortal) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := m.Device.Connect(ctx, peer, address)
	if err != nil {
		return nil, err
	}
	return mortalLink{l, m}, nil
}

type mortalLink struct {
	transport.Link
	m *mortal
}

func (l mortalLink) TrySend(h *wire.Header, payload []byte) bool {
	return !l.m.leaves() || l.Link.TrySend(h, payload)
}

type mortalTagged struct {
	transport.Tagged
	m *mortal
}

func (t mortalTagged) TrySend(peer int32, m transport.Match, buf transport.Mem, now bool) (sent, held bool) {
	if !t.m.leaves() {
		return true, false
	}
	return t.Tagged.TrySend(peer, m, buf, now)
}

func (t mortalTagged) Send(peer int32, m transport.Match, buf transport.Mem, sync bool,
	cookie uint64) (transport.State, error) {
	if !t.m.leaves() {
		return transport.Done, nil
	}
	return t.Tagged.Send(peer, m, buf, sync, cookie)
}

// agreement is what a rank has got from Agree, as it says it.
func agreement(flags uint32, failed bool) string {
	return fmt.Sprintf("agreed on %#x, deaths: %v", flags, failed)
}

// verdict compares what the authors have told that live on.
func (b *book) verdict(mortal func(author int) bool) (wrong error) {
	for key, by := range b.said {
		first := ""
		for author, v := range by {
			switch {
			case mortal(author):
			case first == "":
				first = v
			case first != v:
				wrong = errors.Join(wrong, fmt.Errorf("%s: by rank: %v", key, by))
			}
		}
		var flags uint32
		if n, _ := fmt.Sscanf(first, "agreed on %v,", &flags); n == 1 && !b.possible(mortal, key, flags) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: the flags are %#x, and the ranks gave %#x", key, flags,
				b.given[key]))
		}
	}
	return wrong
}

// mortal reports whether a rank is to die.
func (p *mortals) mortal(rank int) bool {
	_, dies := p.fates[rank]
	return dies
}

// possible reports whether flags are the bits that all have given who live on, and perhaps others.
func (b *book) possible(mortal func(author int) bool, key string, flags uint32) bool {
	all, ways := ^uint32(0), []uint32{^uint32(0)}
	for author, f := range b.given[key] {
		if !mortal(author) {
			all &= f
			continue
		}
		for _, w := range ways {
			ways = append(ways, w&f)
		}
	}
	return slices.ContainsFunc(ways, func(w uint32) bool { return all&w == flags })
}

// circle is a communicator as a rank knows it. All ranks have the same list of them.
type circle struct {
	comm    *mpi.Comm // nil: it was not made, or this rank is no member
	key     string
	members []int // in the world; a member knows them
	broken  bool  // this rank has revoked it, or has heard that it is revoked
	failed  []int // in the world, as this rank has heard
	acked   int
	window  bool // a Free revokes it, if a rank has failed by then
}

// mortalRank is a rank of a program.
type mortalRank struct {
	*mortals
	ledger ledger
	w      *mpi.Comm
	base   *mpi.Group // of the numbers in the world
	me     int
	die    func()        // does not return
	left   *atomic.Int64 // packets until it dies
	own    *rand.Rand    // dice of this rank alone
	dice   *rand.Rand    // of all, for this turn
	turn   int
	what   string    // it does
	groups []*circle // the first has all ranks that live
	again  *again    // how dead ranks are replaced; nil: they are not
}

// again has new ranks take the places of dead ones, and go on from a checkpoint.
type again struct {
	replace func(x *circle) *circle // does not fail
	save    func(x *circle)
}

// rank begins a program at a rank.
func (p *mortals) rank(w *mpi.Comm, die func()) *mortalRank {
	d := p.devices[w.Rank()]
	d.dies = func() {
		p.book.dies(w.Rank())
		go mpi.FailEngine(w)
	}
	r := p.rankBy(p.book, w, die, d.left)
	p.linked.Done()
	p.linked.Wait()
	return r
}

func (p *mortals) rankBy(l ledger, w *mpi.Comm, die func(), left *atomic.Int64) *mortalRank {
	r := &mortalRank{mortals: p, ledger: l, w: w, base: w.Group(), me: w.Rank(), die: die, left: left,
		own: rand.New(rand.NewPCG(p.seed, 1+uint64(w.Rank())))}
	if p.numbers > 0 {
		mpi.FewNumbers(w, p.numbers)
	}
	r.groups = []*circle{{comm: w, key: "world", members: r.inWorld(w.Group())}}
	return r
}

// begins begins a turn, at which this rank may die.
func (r *mortalRank) begins(turn int) {
	r.turn, r.dice = turn, rand.New(rand.NewPCG(r.seed, 100+uint64(turn)))
	if f, dies := r.fates[r.me]; dies && f.turn == turn {
		if f.packets < 0 {
			r.perish()
		}
		r.left.Store(int64(f.packets))
	}
}

func (p *mortals) run(w *mpi.Comm, die func()) {
	r := p.rank(w, die)
	r.play(0)
	r.finish()
}

// play makes the turns from one on.
func (r *mortalRank) play(turn int) {
	for ; turn < turns; turn++ {
		if r.begins(turn); turn%round == round-1 {
			r.goOn()
		} else {
			r.move()
		}
	}
}

// perish ends this rank.
func (r *mortalRank) perish() {
	r.ledger.dies(r.me)
	r.die()
}

// alive ends the call that the rank was in when it died.
func (r *mortalRank) alive() {
	if r.ledger.dying(r.me) {
		r.perish()
	}
}

// does says what this rank is about to do.
func (r *mortalRank) does(x *circle, format string, args ...any) {
	r.what = fmt.Sprintf("turn %d, on %s: ", r.turn, x.key) + fmt.Sprintf(format, args...)
	r.ledger.does(r.me, r.what)
}

func (r *mortalRank) check(right bool, format string, args ...any) {
	if r.alive(); !right {
		panic(fmt.Errorf("%s: %s", r.what, fmt.Sprintf(format, args...)))
	}
}

// judge reports whether a call on x went well. needs are the ranks whose death may end it.
func (r *mortalRank) judge(x *circle, err error, needs ...int) bool {
	r.alive()
	switch {
	case err == nil:
		return true
	case errors.Is(err, mpi.ErrRevoked):
		r.check(r.ledger.revoked(x.key) && (!x.window || r.anyDies(x.members)), "no rank has revoked it: %v", err)
		r.heard(x)
	case errors.Is(err, mpi.ErrPeerFailed):
		r.check(r.anyDies(needs), "none of ranks %v is dying: %v", needs, err)
	default:
		r.check(false, "%v", err)
	}
	return false
}

// heard says that a rank has revoked x. This rank may have it from another one's word in a call that makes something,
// and may not have heard of the revocation itself: Revoke sees to that.
func (r *mortalRank) heard(x *circle) {
	x.broken = true
	if x.comm != nil {
		r.well(x.comm.Revoke())
	}
}

// well must be so of a call that no death ends.
func (r *mortalRank) well(err error) { r.check(err == nil, "%v", err) }

func (r *mortalRank) anyDies(ranks []int) bool {
	return slices.ContainsFunc(ranks, func(rank int) bool { return rank != r.me && r.ledger.dying(rank) })
}

// enters says that this rank begins what has a key.
func (r *mortalRank) enters(key string) { r.ledger.enters(r.me, key) }

// allIn checks that all members of x have begun it, or with orDie else are dying.
func (r *mortalRank) allIn(x *circle, key string, orDie bool) {
	for _, rank := range x.members {
		dying := r.ledger.dying(rank)
		r.check(r.ledger.entered(rank, key) || orDie && dying, "it is over, and rank %d has not begun it", rank)
	}
}

func (r *mortalRank) revoke(x *circle) {
	if x.broken {
		return
	}
	r.ledger.revokes(x.key)
	r.heard(x)
}

// refused checks that x, which is broken, is revoked.
func (r *mortalRank) refused(x *circle) {
	if r.own.IntN(2) == 0 {
		return
	}
	r.does(x, "calls on a revoked communicator")
	_, irecv := mpi.Irecv(x.comm, []byte{0}, 0, 1)
	_, dup := x.comm.Dup()
	for i, err := range []error{mpi.Barrier(x.comm), mpi.Send(x.comm, []byte{1}, 0, 1), irecv, dup} {
		r.check(errors.Is(err, mpi.ErrRevoked), "call %d: %v", i, err)
	}
}

func (r *mortalRank) inWorld(g *mpi.Group) []int {
	all := make([]int, g.Size())
	for i := range all {
		all[i] = i
	}
	all, err := g.Translate(all, r.base)
	if err != nil {
		panic(err)
	}
	return all
}

// move is a turn.
func (r *mortalRank) move() {
	i := 0
	if r.dice.IntN(2) == 0 {
		i = r.dice.IntN(len(r.groups))
	}
	x, kind := r.groups[i], r.dice.IntN(100)
	child := r.dice.IntN(len(r.groups)) // 0: none
	switch {
	case kind >= 94 && child > 0:
		r.replace(child)
	case kind >= 88 && child > 0:
		r.free(child)
	case kind < 12:
		r.create(x)
	case x.comm == nil:
	case kind < 20:
		r.window(x)
	case kind < 28:
		r.agree(x, r.own.Uint32()|r.own.Uint32())
	case kind < 33:
		r.revocation(x)
	case kind < 38:
		r.acknowledge(x, r.own.IntN(4))
	case x.broken:
		r.refused(x)
	case kind < 60:
		r.message(x)
	case kind < 70:
		r.burst(x)
	default:
		r.collective(x)
	}
}

func (r *mortalRank) length() int {
	switch dice := r.dice.IntN(20); {
	case dice < 12:
		return r.dice.IntN(20)
	case dice < 19:
		return r.dice.IntN(2000)
	}
	return r.dice.IntN(40_000)
}

// call is any collective call.
func (r *mortalRank) call(x *circle) *truth.Call {
	c := &truth.Call{Operation: truth.Operations[r.dice.IntN(len(truth.Operations))], Kind: r.dice.IntN(4),
		Operator: r.dice.IntN(100), Ordered: r.dice.IntN(4) == 0, Root: r.dice.IntN(len(x.members)), Count: r.length(),
		Way: truth.Way(r.dice.IntN(int(truth.Ways))), Key: r.dice.Uint64()}
	c.InPlace = r.dice.IntN(3) == 0 && truth.InPlace(c.Operation)
	return c
}

func (r *mortalRank) collective(x *circle) {
	c := r.call(x)
	r.does(x, "%v", c)
	key := fmt.Sprintf("turn %d, a call on %s", r.turn, x.key)
	r.enters(key)
	if !r.judge(x, c.Make(x.comm), x.members...) {
		r.revoke(x)
		return
	}
	switch c.Operation {
	case collectives.Barrier:
		r.allIn(x, key, false)
	case collectives.Allreduce, collectives.Allgather, collectives.Alltoall:
		if c.Count > 0 { // else there is nothing to wait for
			r.allIn(x, key, false)
		}
	}
}

// letter is a message. from and to are ranks of its communicator.
type letter struct{ from, to, tag, size, key, out, in int }

func (l letter) bytes() []byte {
	b := make([]byte, l.size)
	for i := range b {
		b[i] = byte(l.key + 7*i + i>>8)
	}
	return b
}

func (r *mortalRank) letter(x *circle, i int) letter {
	n := len(x.members)
	return letter{r.dice.IntN(n), r.dice.IntN(n), r.turn*20 + i, r.length(), r.dice.IntN(256), r.dice.IntN(3),
		r.dice.IntN(6)}
}

// message is one that its ranks wait for.
func (r *mortalRank) message(x *circle) {
	l := r.letter(x, 0)
	if r.does(x, "message %+v", l); l.from == l.to {
		return
	}
	good := true
	switch r.me {
	case x.members[l.from]:
		good = r.judge(x, r.send(x.comm, l), x.members[l.to])
	case x.members[l.to]:
		if l.in < 2 {
			r.receiveAny(x, l)
		} else {
			good = r.received(x, l, x.members[l.from])
		}
	}
	if !good && r.own.IntN(3) == 0 {
		r.revoke(x)
	}
}

func (r *mortalRank) send(c *mpi.Comm, l letter) error {
	switch l.out {
	case 0:
		return mpi.Send(c, l.bytes(), l.to, l.tag)
	case 1:
		return mpi.Ssend(c, l.bytes(), l.to, l.tag)
	}
	q, err := mpi.Isend(c, l.bytes(), l.to, l.tag)
	if err == nil {
		_, err = q.Wait()
	}
	return err
}

// received receives a letter, and reports whether it went well.
func (r *mortalRank) received(x *circle, l letter, needs ...int) bool {
	var st mpi.Status
	var err error
	source, buf := l.from, make([]byte, l.size)
	if l.in < 2 {
		source = mpi.AnySource
	}
	switch {
	case l.in%2 == 0:
		st, err = mpi.Recv(x.comm, buf, source, l.tag)
	case l.in == 5:
		var m *mpi.Message
		if m, _, err = mpi.Mprobe(x.comm, source, l.tag); err == nil {
			st, err = mpi.Mrecv(m, buf)
		}
	default:
		if _, err = mpi.Probe(x.comm, source, l.tag); err == nil {
			var q *mpi.Request
			if q, err = mpi.Irecv(x.comm, buf, source, l.tag); err == nil {
				st, err = q.Wait()
			}
		}
	}
	if !r.judge(x, err, needs...) {
		return false
	}
	r.arrived(l, st, buf)
	return true
}

func (r *mortalRank) arrived(l letter, st mpi.Status, buf []byte) {
	r.check(st.Source == l.from && st.Tag == l.tag && st.Bytes == int64(l.size), "the status is %+v", st)
	r.check(slices.Equal(buf, l.bytes()), "the bytes are wrong")
}

// receiveAny receives from any source: it acknowledges failures until the letter is here, or its sender has failed.
func (r *mortalRank) receiveAny(x *circle, l letter) {
	for !x.broken && !slices.Contains(x.failed[:x.acked], x.members[l.from]) {
		if r.received(x, l, x.members...) || x.broken {
			return
		}
		before := x.acked
		r.acknowledge(x, len(x.members))
		r.check(x.acked > before, "the failure that ends it cannot be acknowledged")
	}
}

// burst is messages and perhaps a collective call that are under way at once.
func (r *mortalRank) burst(x *circle) {
	var waits []func() bool
	begin := func(what string, peer int, q *mpi.Request, err error, then func(st mpi.Status)) {
		if r.does(x, "%s", what); !r.judge(x, err, x.members[peer]) {
			return
		}
		waits = append(waits, func() bool {
			r.does(x, "%s", what)
			st, err := q.Wait()
			if !r.judge(x, err, x.members[peer]) {
				return false
			}
			then(st)
			return true
		})
	}
	me := slices.Index(x.members, r.me)
	for i := range 1 + r.dice.IntN(6) {
		l := r.letter(x, i)
		if l.to == me {
			buf := make([]byte, l.size)
			q, err := mpi.Irecv(x.comm, buf, l.from, l.tag)
			begin(fmt.Sprintf("receive %+v", l), l.from, q, err, func(st mpi.Status) { r.arrived(l, st, buf) })
		}
		if l.from == me {
			send := mpi.Isend[byte]
			if l.out == 0 {
				send = mpi.Issend[byte]
			}
			q, err := send(x.comm, l.bytes(), l.to, l.tag)
			begin(fmt.Sprintf("send %+v", l), l.to, q, err, func(mpi.Status) {})
		}
	}
	if r.dice.IntN(2) == 0 {
		c := r.call(x)
		c.Way = truth.Nonblocking
		r.does(x, "%v in a burst", c)
		switch under, err := c.Start(x.comm); {
		case r.judge(x, err, x.members...):
			waits = append(waits, func() bool {
				r.does(x, "%v in a burst", c)
				if !r.judge(x, under.Finish(), x.members...) {
					r.revoke(x)
				}
				return true
			})
		default:
			r.revoke(x)
		}
	}
	good := true
	for _, i := range r.own.Perm(len(waits)) {
		good = waits[i]() && good
	}
	if !good && r.own.IntN(3) == 0 {
		r.revoke(x)
	}
}

// create makes communicators of the members of x, by Dup or by Split.
func (r *mortalRank) create(x *circle) {
	colors := r.dice.IntN(3) // 0: Dup
	if len(r.groups)+max(1, colors) > mostGroups {
		return
	}
	var made []*circle
	for color := range max(1, colors) {
		made = append(made, &circle{key: fmt.Sprintf("%s/%d.%d", x.key, r.turn, color)})
	}
	r.groups = append(r.groups, made...)
	if x.comm == nil {
		return
	}
	key := fmt.Sprintf("turn %d, whether %s is divided", r.turn, x.key)
	color, rank := 0, slices.Index(x.members, r.me)
	var d *mpi.Comm
	ok := r.makes(x, key, func() (err error) {
		if colors == 0 {
			made[0].members = x.members
			d, err = x.comm.Dup()
			return err
		}
		for i, m := range x.members {
			its := r.dice.IntN(colors)
			made[its].members = append(made[its].members, m)
			if i == rank {
				color = its
			}
		}
		slices.Reverse(made[color].members)
		d, err = x.comm.Split(color, -rank)
		return err
	})
	if ok {
		made[color].comm = d
		r.check(slices.Equal(r.inWorld(d.Group()), made[color].members), "ranks %v, want %v", r.inWorld(d.Group()),
			made[color].members)
	}
}

// makes makes a call that makes something of x at all members that live on, or at none.
func (r *mortalRank) makes(x *circle, key string, call func() error) bool {
	if r.does(x, "%s", key); x.broken {
		r.ledger.says(r.me, key, "false")
		r.refused(x)
		return false
	}
	r.enters(key)
	ok := r.judge(x, call(), x.members...)
	r.ledger.says(r.me, key, fmt.Sprint(ok))
	if !ok {
		r.revoke(x)
		return false
	}
	r.allIn(x, key, false)
	return true
}

// window makes a window and frees it.
func (r *mortalRank) window(x *circle) {
	n, k, me, salt := len(x.members), 1+r.dice.IntN(300), slices.Index(x.members, r.me), r.dice.Int64()
	var win *mpi.Win[int64]
	key := fmt.Sprintf("turn %d, whether %s has a window", r.turn, x.key)
	if !r.makes(x, key, func() (err error) {
		win, err = mpi.WinAlloc[int64](x.comm, n*k)
		return err
	}) {
		return
	}
	// It is not revoked with x.
	y := &circle{key: fmt.Sprintf("%s window %d", x.key, r.turn), members: x.members, window: true}
	good := true
	// Behind a Fence that has failed, ranks that are behind may still put: what this one reads then says nothing.
	right := func(from, to int, got []int64) {
		if !good {
			return
		}
		for _, v := range got {
			r.check(v == salt+int64(100*from+to), "rank %d reads %d of rank %d at rank %d, want %d", me, v, from, to,
				salt+int64(100*from+to))
		}
	}
	steps := []func() error{win.Fence, func() error {
		var errs []error
		for to := range n {
			errs = append(errs, win.Put(slices.Repeat([]int64{salt + int64(100*me+to)}, k), to, int64(me*k)))
		}
		return errors.Join(errs...)
	}, win.Fence, func() error {
		for from := range n {
			right(from, me, win.Local()[from*k:][:k])
		}
		return nil
	}}
	of, into := r.own.IntN(n), make([]int64, k)
	steps = append(steps, func() error {
		if !good {
			return nil
		}
		return win.Get(into, of, int64(of*k))
	}, win.Fence, func() error {
		right(of, of, into)
		return nil
	})
	for i, step := range steps {
		r.does(y, "step %d", i)
		good = r.judge(y, step(), y.members...) && good
		if !good && r.own.IntN(2) == 0 {
			break // Free ends what other ranks still do
		}
	}
	r.does(y, "Free")
	r.ledger.revokes(y.key) // if a rank dies before Free is over
	r.judge(y, win.Free(), y.members...)
}

// revocation is Revoke by one rank, which may die behind it.
func (r *mortalRank) revocation(x *circle) {
	if r.dice.IntN(len(x.members)) != slices.Index(x.members, r.me) {
		return
	}
	r.does(x, "Revoke")
	r.revoke(x)
	if r.mortal(r.me) && r.own.IntN(3) == 0 {
		r.perish()
	}
}

// failures looks at what this rank has heard of failures.
func (r *mortalRank) failures(x *circle) {
	all := r.inWorld(x.comm.Failed())
	r.check(len(all) >= len(x.failed) && slices.Equal(all[:len(x.failed)], x.failed), "%v have failed, and %v earlier",
		all, x.failed)
	for _, rank := range all {
		r.check(slices.Contains(x.members, rank) && r.anyDies([]int{rank}), "%v have failed of %v", all, x.members)
	}
	x.failed = all
}

func (r *mortalRank) acknowledge(x *circle, n int) {
	r.does(x, "AckFailed of %d", n)
	r.failures(x)
	least := max(x.acked, min(n, len(x.failed)))
	acked, err := x.comm.AckFailed(n)
	r.well(err)
	r.failures(x)
	r.check(acked >= least && acked <= max(x.acked, n) && acked <= len(x.failed), "%d of %v are acknowledged, after %d",
		acked, x.failed, x.acked)
	x.acked = acked
}

// agree gives flags to an agreement on x. It reports what has been agreed, and whether no failure was.
func (r *mortalRank) agree(x *circle, flags uint32) (uint32, bool) {
	key := fmt.Sprintf("turn %d, an agreement on %s", r.turn, x.key)
	r.does(x, "Agree with %#x", flags)
	r.failures(x)
	r.ledger.gives(r.me, key, flags)
	r.enters(key)
	got, err := x.comm.Agree(flags)
	r.alive()
	failed := errors.Is(err, mpi.ErrPeerFailed)
	r.check(err == nil || failed && r.anyDies(x.members), "%v", err)
	r.check(failed || len(x.failed) == x.acked, "no error, and of %v only %d are acknowledged", x.failed, x.acked)
	r.check(got&^flags == 0, "it gives %#x", got)
	r.allIn(x, key, true)
	r.ledger.says(r.me, key, agreement(got, failed))
	return got, !failed
}

// shrink returns what Shrink makes of x.
func (r *mortalRank) shrink(x *circle, what string) *circle {
	key := fmt.Sprintf("%s, what Shrink makes of %s", what, x.key)
	r.does(x, "Shrink")
	r.failures(x)
	r.enters(key)
	c, err := x.comm.Shrink()
	r.well(err)
	d := &circle{comm: c, key: fmt.Sprintf("%s/%s", x.key, what), members: r.inWorld(c.Group())}
	var left []int
	for _, rank := range x.members {
		switch {
		case slices.Contains(d.members, rank):
			left = append(left, rank)
			r.check(!slices.Contains(x.failed, rank), "rank %d had failed, and is one of %v", rank, d.members)
		default:
			r.check(rank != r.me && r.anyDies([]int{rank}), "rank %d lives, and %v do not have it", rank, d.members)
		}
	}
	r.check(slices.Equal(left, d.members), "%v become %v", x.members, d.members)
	r.allIn(x, key, true)
	r.ledger.says(r.me, key, fmt.Sprint(d.members))
	return d
}

// replace shrinks a communicator that has not all ranks.
func (r *mortalRank) replace(i int) {
	x := r.groups[i]
	d := &circle{}
	if x.comm != nil {
		d = r.shrink(x, fmt.Sprintf("turn %d", r.turn))
		r.drop(x)
	}
	d.key = fmt.Sprintf("%s/%d", x.key, r.turn)
	r.groups[i] = d
}

func (r *mortalRank) free(i int) {
	x := r.groups[i]
	r.groups = slices.Delete(r.groups, i, i+1)
	r.drop(x)
}

func (r *mortalRank) drop(x *circle) {
	if x.comm != nil && x.comm != r.w {
		r.does(x, "Free")
		r.well(x.comm.Free())
	}
}

// goOn is the end of a round: if a rank has failed, or a call, the ranks that live shrink.
func (r *mortalRank) goOn() {
	x, flags := r.groups[0], r.own.Uint32()|1
	if x.broken {
		flags &^= 1
	}
	if flags, ok := r.agree(x, flags); ok && flags&1 == 1 {
		if r.again != nil {
			r.again.save(x)
		}
		return
	}
	if r.again != nil { // other communicators do not go together with the new one
		for len(r.groups) > 1 {
			r.free(1)
		}
		r.groups[0] = r.again.replace(x)
		return
	}
	r.groups[0] = r.shrink(x, fmt.Sprintf("turn %d", r.turn))
	r.drop(x)
	for i := len(r.groups) - 1; i > 0; i-- {
		if r.dice.IntN(2) == 0 {
			r.free(i)
		}
	}
}

// finish ends the program: all that are to die do so, and the others have a communicator that works.
func (r *mortalRank) finish() {
	if r.mortal(r.me) {
		r.perish()
	}
	x := r.groups[0]
	for i := 0; i == 0 || len(x.members) > r.ranks-len(r.fates); i++ {
		d := r.shrink(x, fmt.Sprintf("at the end, time %d", i))
		r.drop(x)
		x = d
	}
	r.groups[0] = x
	r.part()
	open := mpi.OpenOperations(r.w)
	r.check(open == 0, "%d operations are under way", open)
	for began := time.Now(); mpi.NumbersInUse(r.w) > 1; time.Sleep(time.Millisecond) {
		r.check(time.Since(began) < time.Minute, "%d communicators have not been freed", mpi.NumbersInUse(r.w)-1)
	}
}

// part ends a program whose ranks all live.
func (r *mortalRank) part() {
	x := r.groups[0]
	r.dice = rand.New(rand.NewPCG(r.seed, 99))
	for range 3 {
		c := r.call(x)
		r.does(x, "%v at the end", c)
		r.well(c.Make(x.comm))
	}
	for len(r.groups) > 0 {
		r.free(len(r.groups) - 1)
	}
	r.does(x, "the end")
}

// A rank that dies behind each packet of a window: all others free it.
func TestDeathBehindEachPacketOfAWindow(t *testing.T) {
	mpi.WhereRanksDie(t, func(t *testing.T, opt func() mpi.Option) {
		const ranks, dies = 7, 4
		for packets, left := 0, int64(0); left <= 0 && !t.Failed(); packets++ {
			p := newMortals(uint64(packets), t.Name(), ranks)
			p.fates[dies] = fate{0, packets}
			stuck := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("this hangs: %v", p)) })
			mpi.Outlive(t, ranks, p.option(opt()), func(w *mpi.Comm, die func()) {
				r := p.rank(w, die)
				r.begins(0)
				if r.window(r.groups[0]); r.mortal(r.me) {
					left = p.devices[r.me].left.Load()
					r.perish()
				}
			})
			stuck.Stop()
			if t.Failed() {
				t.Log(p)
			}
		}
	})
}

// Random programs of ranks that die: each call of the others ends as the model allows, they come to one result where
// they agree, and nothing is left of the engines. GORUN_TEST_SEED repeats one.
func TestRandomDeaths(t *testing.T) {
	test := func(t *testing.T, opt func() mpi.Option) {
		from, programs := uint64(crc32.ChecksumIEEE([]byte(t.Name()))), uint64(400)
		if testing.Short() {
			programs = 12
		}
		if seed, is := givenSeed(); is {
			from, programs = seed, 1
		}
		var gone []func() bool // engines
		for seed := from; seed < from+programs && !t.Failed(); seed++ {
			p, before := randomMortals(seed, t.Name()), leak.Take()
			stuck := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("this hangs: %v", p)) })
			engines := make([]func() bool, p.ranks)
			mpi.Outlive(t, p.ranks, p.option(opt()), func(w *mpi.Comm, die func()) {
				engines[w.Rank()] = mpi.EngineGone(w)
				p.run(w, die)
			})
			stuck.Stop()
			if err := errors.Join(p.book.verdict(p.mortal), before.Check(time.Minute)); err != nil {
				t.Error(err)
			}
			if gone = append(gone, engines...); t.Failed() {
				t.Log(p)
			}
		}
		for began := time.Now(); !t.Failed() && slices.ContainsFunc(gone, func(is func() bool) bool { return !is() }); {
			if runtime.GC(); time.Since(began) > time.Minute {
				t.Errorf("engines of %d ranks are still in memory, %d for each program of seeds from %d on", len(gone), programs,
					from)
			}
		}
	}
	mpi.WhereRanksDie(t, test)
	mpi.WhereRanksDieToo(t, test)
}

package mpi

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/pml"
)

// Every rank of a communicator makes the same collective calls in the same order. The n-th call of each rank has number
// n, which is in the tag of all its messages, on context cid+1: so any number of them is in flight, and none takes the
// messages of another. The operation is in the tag too: ranks whose orders differ wait, and never take what is of
// another operation.
//
// Each operation has one function that checks the arguments, and takes a plan that fits them from the communicator or
// makes one: plan… in collmove.go and collreduce.go. Each way to make the call is one line that hands the plan on. A
// blocking call runs the plan's schedule (collplan.go). Every rank runs its schedule to the end whatever happens: one
// that cannot go on, for a rank has failed or its operator has panicked, sends to those that wait for it that it has
// given up. So no live rank waits in vain.

// collTag is the lowest number by which a call is known: on boards, and to those that compare calls. Its messages have
// other tags: see next.
const collTag = 1 << 30

// way is how a call of an operation is made.
type way uint8

const (
	blocking    way = iota
	nonblocking     // I…, which returns a request
	persistent      // …Init, which returns one that can be started again and again
)

// callNames are what the operations are called here.
var callNames = func() (names [persistent + 1][collectives.Operations]string) {
	for w := range names {
		for o := range names[w] {
			names[w][o] = way(w).named(collectives.Operation(o).Facts().Call)
		}
	}
	return names
}()

// call is the name of a call.
func (w way) call(o collectives.Operation) string { return callNames[w][o] }

// named is what a call is called: name if it is blocking.
func (w way) named(name string) string {
	switch w {
	case nonblocking:
		return "I" + string(name[0]|0x20) + name[1:]
	case persistent:
		return name + "Init"
	}
	return name
}

// collSetup is how the ranks of this process make collective calls.
type collSetup struct {
	join.Collectives
	via collectives.Via
	scratch
	boards boardRoom
}

func setupOf(e *pml.Engine, how join.Collectives) *collSetup {
	s := &collSetup{Collectives: how, via: collectives.Network}
	if t := e.Transport(); t == "shm" || t == "loop" && how.Hosts.Len() == 1 {
		s.via = collectives.SharedMemory
	}
	return s
}

// colls are the collective calls of a rank on a communicator.
type colls struct {
	number atomic.Uint32 // how many calls there were
	of     *colls        // those whose numbers these take; nil: their own
	mu     sync.Mutex
	idle   []*collPlan // plans that no call uses, the latest last
	kept   int64       // bytes that they take
	over   bool        // the communicator has been freed: nothing is kept

	recent [collectives.Operations]atomic.Pointer[collPlan] // of each operation's last call, not in idle; nil: none
}

// What is kept for later calls on one communicator: so many plans, and together no more memory than that.
const (
	plansKept  = 16
	memoryKept = 4 << 20
	// recentMost is what a plan takes at most that is in recent, and does not count for memoryKept.
	recentMost = 64 << 10
)

// scratch is memory in which calls by messages combine, and which no call uses. All communicators of the process share
// it. A plan keeps what is short by itself.
type scratch struct {
	mu    sync.Mutex // guards what follows
	spare [][]byte   // each longer than scratchLeast, the latest last
	bytes int64      // of all; ≤ scratchMost
}

const (
	scratchLeast = recentMost
	scratchMost  = 64 << 20
)

// take is n bytes. What they hold is undefined.
func (s *scratch) take(n int) []byte {
	if n <= scratchLeast {
		return aligned(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	best := -1
	for i, b := range s.spare {
		if cap(b) >= n && cap(b)/2 <= n && (best < 0 || cap(b) < cap(s.spare[best])) {
			best = i
		}
	}
	if best < 0 {
		return aligned(n)
	}
	b := s.spare[best]
	s.spare = slices.Delete(s.spare, best, best+1)
	s.bytes -= int64(cap(b))
	return b[:n]
}

// give takes back what take has given.
func (s *scratch) give(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cap(b) > scratchMost {
		return
	}
	s.spare = append(s.spare, b)
	for s.bytes += int64(cap(b)); s.bytes > scratchMost; s.spare = slices.Delete(s.spare, 0, 1) {
		s.bytes -= int64(cap(s.spare[0]))
	}
}

// The kind of a message is in its tag above the number of the call: the operation and 1, and so much more of persistent
// calls. Kind 0 has the tags of internal/agree.
const (
	persistentKind = int32(collectives.Operations)
	meetingKind    = 2*persistentKind + 1 // in which the ranks compare their calls, or make a board
)

// kindTag is the tag of messages of a call.
func kindTag(kind int32, number uint32) int32 {
	return kind<<agree.NumberBits | int32(number%(1<<agree.NumberBits))
}

// meetingTag is that by which the ranks of a call meet, in whichever way each of them makes it.
func meetingTag(tag int32) int32 { return kindTag(meetingKind, uint32(tag)) }

// next gives p's call its number. A call that is a mistake takes one too (mistaken), whichever call it is at each rank, so
// that the ranks count alike afterwards.
func (k *colls) next(p *collPlan, w way) {
	p.tag = k.nextTag(w)
	kind := 1 + int32(p.operation)
	if w == persistent {
		kind += persistentKind
	}
	p.messageTag = kindTag(kind, uint32(p.tag))
}

// nextTag is what a call is known by: its number. A persistent request may live until numbers begin again: its tag is of
// another kind.
func (k *colls) nextTag(w way) int32 {
	if k.of != nil {
		k = k.of
	}
	tag := int32(collTag + (k.number.Add(1)-1)%numbers)
	if w == persistent {
		tag += numbers
	}
	return tag
}

// plan finds or makes a plan for a call. The plan is the call's until it is given back. want has no counts; in and out
// are those of the v forms.
func (c *Comm) plan(want *planKey, in, out []int64) *collPlan {
	k := &c.colls
	if p := k.recent[want.operation].Swap(nil); p != nil {
		if p.fits(want, in, out) {
			return p
		}
		k.keep(p)
	}
	if p := k.take(want, in, out); p != nil {
		return p
	}
	return newCollPlan(c, want, slices.Clone(in), slices.Clone(out))
}

// fits: p is a plan for such a call.
func (p *collPlan) fits(want *planKey, in, out []int64) bool {
	return p.planKey == *want && slices.Equal(p.params.InCounts, in) && slices.Equal(p.params.OutCounts, out)
}

// take takes a plan that is kept; nil: there is none for such a call.
func (k *colls) take(want *planKey, in, out []int64) *collPlan {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := len(k.idle) - 1; i >= 0; i-- {
		if p := k.idle[i]; p.fits(want, in, out) {
			k.idle = slices.Delete(k.idle, i, i+1)
			k.kept -= p.memory()
			return p
		}
	}
	return nil
}

// give takes a plan back.
func (k *colls) give(p *collPlan) {
	for s, blocks := range p.spaces[:collectives.Tmp] { // the caller's buffers
		if len(blocks) == 1 {
			blocks[0] = nil
		} else {
			clear(blocks)
		}
		p.spaces[s] = p.spaces[s][:0]
	}
	clear(p.scattered)
	p.scattered, p.failed, p.comm, p.theirs = p.scattered[:0], nil, nil, nil
	p.over, p.claimed, p.alone = nil, nil, nil
	if p.operator != nil {
		p.operator.forget() // it may hold memory
	}
	p.giveScratch()
	switch n := p.memory(); {
	case n <= recentMost:
		if p = k.recent[p.operation].Swap(p); p != nil {
			k.keep(p)
		}
	case n <= memoryKept:
		k.keep(p)
	}
}

// keep keeps a plan that no call uses, and no more of them than may be.
func (k *colls) keep(p *collPlan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return
	}
	k.idle = append(k.idle, p)
	k.kept += p.memory()
	for len(k.idle) > plansKept || k.kept > memoryKept {
		k.kept -= k.idle[0].memory()
		k.idle = slices.Delete(k.idle, 0, 1)
	}
}

// end gives all plans up: the communicator has been freed.
func (k *colls) end() {
	for i := range k.recent {
		k.recent[i].Store(nil)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.idle, k.kept, k.over = nil, 0, true
}

// perform makes a blocking call, whose buffers are in p, and gives p back. err is that of its arguments; then there is
// no p.
func (c *Comm) perform(p *collPlan, err error) error {
	if err != nil {
		return c.mistaken(blocking, err)
	}
	c = p.of(c)
	op := p.operation
	switch {
	case p.ways.any():
		err = c.performShared(p)
	case c.ctx == nil:
		c.colls.next(p, blocking)
		p.pack()
		if err = p.run(c); err == nil {
			p.unpack()
		}
		c.colls.give(p)
	default:
		err = c.performApart(p)
	}
	if err != nil {
		return c.group.Wrap(blocking.call(op), Undefined, Undefined, err)
	}
	return nil
}

// aligned is n bytes of memory that elements of any type can lie in.
func aligned(n int) []byte { return bytesOf(make([]uint64, (n+7)/8))[:n] }

// checkColl reports why a collective call on c with elements of T cannot be made.
func checkColl[T any](c *Comm, op string) error {
	if err := c.intra(op); err != nil {
		return err
	}
	return checkElements[T](c, op)
}

// checkElements reports why a T cannot be sent.
func checkElements[T any](c *Comm, op string) error {
	if known[T]() {
		return nil
	}
	if err := fixedType[T](); err != nil {
		return c.collError(op, ErrType, "%w", err)
	}
	knownTypes.add(typeOf[T]())
	return nil
}

func (c *Comm) collError(op string, class error, format string, args ...any) error {
	return c.opError(op, class, format, args...)
}

// checkRoot is checkColl of a call that has a root.
func checkRoot[T any](c *Comm, op string, root int) error {
	if err := checkColl[T](c, op); err != nil {
		return err
	}
	return c.isRoot(op, root)
}

// isRoot reports that there is no such root.
func (c *Comm) isRoot(op string, root int) error {
	if uint(root) >= uint(c.group.Size) {
		return c.collError(op, ErrRoot, "the root is %d; the communicator has %s", root, c.ranksText())
	}
	return nil
}

func (c *Comm) ranksText() string {
	if c.group.Size == 1 {
		return "1 rank (0)"
	}
	return fmt.Sprintf("%d ranks (0–%d)", c.group.Size, c.group.Size-1)
}

// lengthError is that of two buffers whose lengths do not go together.
func (c *Comm) lengthError(op, format string, args ...any) error {
	return c.collError(op, ErrCount, format, args...)
}

// share is the length of a block where all has one for each rank.
func (c *Comm) share(op, name string, all int) (int, error) {
	if all%c.group.Size != 0 {
		return 0, c.lengthError(op, "%s has %d elements, which cannot be the same number for each of %d ranks; "+
			"use the form with v, or another length", name, all, c.group.Size)
	}
	return all / c.group.Size, nil
}

// blocks reports that a list with a slice for each rank has another length.
func (c *Comm) blocks(op, name string, n int) error {
	if n != c.group.Size {
		return c.lengthError(op, "%s has %d slices; it must have one for each of %d ranks, which may be empty", name, n,
			c.group.Size)
	}
	return nil
}

// keyOf is what all calls of an operation with elements of T have in common. A T without size is sent as nothing.
func keyOf[T any](o collectives.Operation) planKey {
	return planKey{operation: o, elemSize: int64(max(1, sizeOf[T]())), commutative: true}
}

// elements is how many elements a schedule sees of n.
func elements[T any](n int) int64 {
	if sizeOf[T]() == 0 {
		return 0
	}
	return int64(n)
}

// fewRanks is for how many ranks the counts of a call are kept on the stack.
const fewRanks = 64

// countsOf appends the lengths of blocks to counts. Of no block the result is not nil: there are counts.
func countsOf[T any](counts []int64, blocks [][]T) []int64 {
	for _, b := range blocks {
		counts = append(counts, elements[T](len(b)))
	}
	return counts
}

// apart returns p with the buffers of a call, unless they share memory: then a rank would read what it has written.
func apart[T any](c *Comm, op string, p *collPlan, send, recv []T) (*collPlan, error) {
	buffer(p, collectives.In, send)
	buffer(p, collectives.Out, recv)
	in, out := p.spaces[collectives.In][0], p.spaces[collectives.Out][0]
	if len(in) > 0 && len(out) > 0 && address(in) < address(out)+uintptr(len(out)) &&
		address(out) < address(in)+uintptr(len(in)) {
		return nil, c.sharing(op, p)
	}
	return p, nil
}

// oneToBlocks is the plan of a call that has one buffer to send, and a block to receive for each rank or neighbour.
func oneToBlocks[T any](c *Comm, w way, op string, key planKey, send []T, recv [][]T) (*collPlan, error) {
	var few [fewRanks]int64
	p := planned[T](c, w, key, nil, countsOf(few[:0], recv))
	buffer(p, collectives.In, send)
	list(p, collectives.Out, recv)
	return c.apartBlocks(op, p)
}

// buffer and list are what a space of the call is.
func buffer[T any](p *collPlan, s collectives.Space, buf []T) {
	p.spaces[s] = append(p.spaces[s][:0], bytesOf(buf))
}

func list[T any](p *collPlan, s collectives.Space, blocks [][]T) {
	p.spaces[s] = p.spaces[s][:0]
	for _, b := range blocks {
		p.spaces[s] = append(p.spaces[s], bytesOf(b))
	}
}

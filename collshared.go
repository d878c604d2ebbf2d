package mpi

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
)

// Blocking calls of ranks that share a host go, where the table says so (algorithm "shared"), through a board: memory
// that all of them have mapped (transport.Board). A call is a number of steps, the same at all ranks. In a step each
// rank raises the word of its line, and with it publishes what it contributes, if it does; then it waits for the words
// of those whose contributions it needs. To have begun a step means to have read all that one needs of the step before.
// So what a rank has written in a step stays until all have begun the next one, and a rank can be boardDepth-1 steps
// ahead of the last.
//
// The board is made in the second such call on a communicator, by messages, which is then made by messages as the first
// was. If it cannot be made, at whichever rank, all calls are made by messages, and in the fourth, the eighth and so on
// the ranks try again: that follows from their calls on this communicator alone, so all do it in the same one.

const (
	// boardDepth is for how many steps a rank has lines and slots.
	boardDepth = 4
	// boardLines is how many lines a rank has: one for each of these steps, and its mark (collapart.go).
	boardLines = boardDepth + 1
	// A slot has slotMost bytes, or less where that would be more than boardMost for all ranks. What is longer takes
	// two.
	slotMost  = 64 << 10
	boardMost = 2 << 20
	slotLeast = 4 << 10
	// slotGap lies between slots, so that short contributions of many ranks are not all in one set of a cache.
	slotGap = 512
	// boardRanks is how many ranks can have a board at most.
	boardRanks = 64
	// boardSetup is the call in which the board is made.
	boardSetup = 2
	// boardsMost is how many bytes the boards of a process take at most, but for what a device adds to each (2 %): as
	// much as its scratch (coll.go). That is 29 boards of the most ranks, or 63 of 4 ranks: more than the communicators
	// on which a program makes calls by turns, and little compared with the memory of a process.
	boardsMost = 64 << 20

	// lineRoom is how much of a contribution a line holds, behind the signature and what enter says: as much as is in
	// the same line of the cache as the word. The next one a processor may fetch for those that look at the word.
	lineRoom  = 32
	signed    = 24
	enteredAt = 16
	lineBytes = 8 + len(transport.Line{}.Bytes)
)

// common is what the ranks of a communicator have in common.
type common struct {
	turns
	calls int   // that could have used the board, while there was none
	none  bool  // there will be none: the communicator has been freed
	err   error // there may be one, at other ranks, but this rank is not of it
	on    *pml.Board

	slot  int
	step  uint64    // that this rank has begun
	wide  [2]uint64 // the last even one, and odd one, in which this rank has used two slots
	begun uint64    // all ranks have begun this one
	own   []byte    // what this rank combines, if it is not where the result is to be
	its   []byte    // what another rank has written: it may change while it is read
	pairs []collectives.Pair
	most  int      // sums that combine has at one time
	sums  [][]byte // all of them but the result's; nil: nothing has been combined
	lent  []lends  // by each rank; nil: they cannot read and write each other's memory

	crowded bool // all ranks are
}

// boardRoom is how many bytes the boards of a process take, and those that it is about to have: ≤ boardsMost.
type boardRoom struct{ used atomic.Int64 }

// take is the veto of a rank that has no room for n bytes more.
func (b *boardRoom) take(n int) *agree.Veto {
	if b.used.Add(int64(n)) <= boardsMost {
		return nil
	}
	b.give(n)
	return cannot(fmt.Errorf("a board of %d bytes more than the %d that the boards of a process may take", n, boardsMost))
}

// give takes back what take has allowed.
func (b *boardRoom) give(n int) { b.used.Add(-int64(n)) }

// turns are one call's at a time, in the order in which they were asked for.
type turns struct {
	state atomic.Uint32 // turnTaken: a call has its turn; turnLook: there is more to do when it is over
	mu    sync.Mutex    // guards what follows, and is held by the caller that sets turnLook
	queue []chan struct{}
	stop  func() // what makes the call whose turn it is end; nil: nothing
	over  func() // what is to be done when no call has a turn
}

const (
	turnTaken = 1 << iota
	turnLook
)

// ask returns what is closed when the caller has its turn; nil: it has it.
func (t *turns) ask() <-chan struct{} {
	if t.state.CompareAndSwap(0, turnTaken) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.Or(turnTaken|turnLook)&turnTaken == 0 {
		return nil
	}
	turn := make(chan struct{})
	t.queue = append(t.queue, turn)
	return turn
}

func (t *turns) done() {
	if t.state.CompareAndSwap(turnTaken, 0) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) > 0 {
		close(t.queue[0])
		t.queue = t.queue[1:]
		return
	}
	if over := t.over; over != nil {
		t.over = nil
		over()
	}
	t.state.Store(0) // nothing else is to be done
}

// end does f when no call has a turn.
func (t *turns) end(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop != nil {
		t.stop()
	}
	if t.over = f; t.state.Or(turnTaken|turnLook)&turnTaken == 0 {
		t.over = nil
		f()
		t.state.Store(0)
	}
}

// mayShare: the ranks of c can have a board, as far as all of them know alike. Those of an intercommunicator have none:
// its calls are of several sets of ranks.
func (c *Comm) mayShare() bool {
	return c.groups == nil && c.group.Size > 1 && c.group.Size <= boardRanks && c.via() == collectives.SharedMemory
}

// performShared makes a call that can use the board, and gives p back. If c's context ends it is finished in the
// background, on memory of the library's own; then p is not given back.
func (c *Comm) performShared(p *collPlan) error {
	turn := c.common.ask() // before the number: see strays.look
	c.colls.next(p, blocking)
	if c.ctx == nil {
		p.takeIn()
		err := p.runShared(c, turn)
		if err == nil {
			p.takeOut()
		}
		c.colls.give(p)
		return err
	}
	p.setApart()
	p.takeIn()
	err := c.outliving(blocking.call(p.operation), func() error { return p.runShared(c, turn) })
	if err == nil {
		p.takeOut()
		c.colls.give(p)
	}
	return err
}

// runShared makes the call when it has its turn, through the board or, without one, by messages.
func (p *collPlan) runShared(c *Comm, turn <-chan struct{}) error {
	if turn != nil {
		<-turn
	}
	s := &c.common
	if refused, alone := p.check(c); refused != nil {
		if alone && s.on == nil { // else those that make the call hear of the failed rank through the board
			c.goOnAlone(p, refused)
		}
		s.done()
		return refused
	}
	if s.err == nil && s.on != nil && (p.ways.shared || s.reads()) {
		defer s.done()
		return p.share(c)
	}
	if s.err != nil {
		defer s.done()
		if s.on == nil { // others may have agreed on none, and make their calls by messages
			p.failed = s.err
			p.giveUp(c)
		}
		return s.err
	}
	if s.on == nil && s.due() && !s.none {
		if failed := s.setUp(c, p.tag); p.failed == nil {
			p.failed = failed
		}
	}
	s.done()
	return p.runByMessages(c)
}

// due counts a call, and reports whether the ranks are to make the board in it.
func (s *common) due() bool {
	s.calls++
	return s.calls >= boardSetup && s.calls&(s.calls-1) == 0
}

// setUp makes the board, if all ranks can. The error is that a rank has failed. Then this rank meets the others no
// more, and none of them waits for it: all below it in the tree of the meeting have heard the same, and so has the one
// above it, unless that one is lost to it.
func (s *common) setUp(c *Comm, tag int32) error {
	m := c.group.Exchange(agree.MakeDup)
	m.Tag = meetingTag(tag)
	t := &ticketing{c: c, lines: c.group.Size * boardLines, size: dataOf(c.group.Size)}
	full := c.setup.boards.take(boardBytes(c.group.Size))
	_, no := m.Round(0, nil, full, t)
	var mine *agree.Veto
	if no == nil {
		mine = t.join()
	}
	if no == nil {
		_, no = m.Round(0, nil, mine, nil)
	}
	if no == nil {
		s.on, s.slot = t.on, slotOf(c.group.Size)
		s.on.Joined()
		s.mu.Lock()
		s.stop = func() { t.on.End(agree.FreedError()) }
		s.mu.Unlock()
		s.own, s.its = aligned(s.slot), aligned(s.slot)
		s.pairs, s.most = collectives.Pairs(c.group.Size)
		if s.err = s.agree(c); s.err == nil && !c.setup.Check {
			s.on.Watch(c.group.Context+agree.CtxCollective, (&strays{c: c, common: s}).look)
		}
		return s.err
	}
	if no.Class != ErrGroup { // else all have heard that it cannot be made now
		// All ranks have failed here, or this one has joined and others have the board: these it tells.
		if s.err = m.FailedIn("", no); t.on != nil {
			t.on.Give(c.group.Rank, s.err)
		}
	}
	if t.close(); full == nil {
		c.setup.boards.give(boardBytes(c.group.Size))
	}
	return s.err
}

// slotOf is how many bytes a slot has.
func slotOf(ranks int) int {
	slot := slotMost
	for slot > slotLeast && slot*ranks*boardDepth > boardMost {
		slot /= 2
	}
	return slot
}

// dataOf is how many bytes the slots of a board take, and boardBytes how many it takes with its lines.
func dataOf(ranks int) int     { return (slotOf(ranks) + slotGap) * ranks * boardDepth }
func boardBytes(ranks int) int { return dataOf(ranks) + ranks*boardLines*lineBytes }

// goesThroughSlots: each piece of the call has at least one element.
func (k *planKey) goesThroughSlots(ranks int) bool {
	room := slotOf(ranks)
	if k.operation == collectives.Alltoall {
		room /= ranks
	}
	return k.elemSize <= int64(room)
}

// ticketing is the payload that makes a board at the first rank, and hands its ticket on.
type ticketing struct {
	c           *Comm
	size, lines int
	on          *pml.Board
	ticket      []byte
}

func (t *ticketing) members() []int32 {
	all := make([]int32, t.c.group.Size)
	for i := range all {
		all[i] = int32(t.c.group.ToWorld(i))
	}
	return all
}

// cannot is the veto of a rank that makes or joins no board.
func cannot(err error) *agree.Veto { return &agree.Veto{Class: ErrGroup, Text: err.Error()} }

func (t *ticketing) Take(int, *agree.Decoder) *agree.Veto { return nil }
func (t *ticketing) Up() []byte                           { return nil }

func (t *ticketing) Decide() *agree.Veto {
	var err error
	if t.on, t.ticket, err = pml.MakeBoard(t.c.group.Engine, t.members(), t.lines, t.size); err != nil {
		return cannot(err)
	}
	return nil
}

func (t *ticketing) Down(int) []byte              { return agree.AppendBytes(nil, t.ticket) }
func (t *ticketing) ReadVerdict(d *agree.Decoder) { t.ticket = d.Bytes() }

func (t *ticketing) join() *agree.Veto {
	if t.on != nil {
		return nil // this rank has made it
	}
	var err error
	if t.on, err = pml.JoinBoard(t.c.group.Engine, t.members(), t.lines, t.size, t.ticket); err != nil {
		return cannot(err)
	}
	return nil
}

func (t *ticketing) close() {
	if t.on != nil {
		t.on.Close()
	}
}

// closeBoard gives the board back, when no call uses it.
func (c *Comm) closeBoard() {
	s := &c.common
	s.end(func() {
		if s.on != nil {
			s.on.Close()
			s.on = nil
			c.setup.boards.give(boardBytes(c.group.Size))
		}
		s.none, s.own, s.its, s.sums = true, nil, nil, nil
	})
}

// signature is what a contribution says of the call that it is for. call: the step in 8 bits, the call's tag in 32,
// whether the ranks read each other's buffers, the operation in 7, the root in 8, which step of the call it is in 7,
// and whether its rank has given up. length: how many elements, and in 16 bits how long they are, less 1: an element
// can be as long as a slot.
type signature struct{ call, length uint64 }

const (
	sharedGaveUp = 1
	stepOfCall   = 0x7f
	readBuffers  = 0x80 << operationAt

	rootAt, operationAt, tagAt, stepAt = 8, 16, 24, 56 // where they begin
)

func (p *collPlan) signature() signature {
	return signature{uint64(uint32(p.tag))<<tagAt | uint64(p.operation)<<operationAt | uint64(p.root)<<rootAt,
		uint64(p.count)<<16 | uint64(p.elemSize-1)&(slotMost-1)}
}

// sharedCall is one call through the board.
type sharedCall struct {
	*common
	p     *collPlan
	n     int
	me    int
	first uint64 // the step before its first one
	size  int    // of the contribution that is written
	sign  signature
	err   error // the board is of no use any more
}

// share makes the call through the board.
func (p *collPlan) share(c *Comm) error {
	returned := false
	defer p.leftBoard(c, &returned)
	c.common.unmark(c.group.Rank)
	s := sharedCall{common: &c.common, p: p, n: c.group.Size, me: c.group.Rank, first: c.common.step, sign: p.signature()}
	switch {
	case p.ways.direct && s.reads():
		s.direct()
	default:
		s.shared()
	}
	returned = true
	if s.err != nil {
		c.common.err = s.err
		return s.err
	}
	return p.failed
}

// shared makes the call by copies through the board.
func (s *sharedCall) shared() {
	switch s.p.operation {
	case collectives.Barrier:
		s.begin(nil)
		s.awaitAll()
	case collectives.Bcast:
		s.bcast()
	case collectives.Reduce:
		s.reduce(false)
	case collectives.Allreduce:
		s.reduce(true)
	case collectives.Allgather:
		s.allgather()
	case collectives.Alltoall:
		s.alltoall()
	}
}

// leftBoard is deferred: if an operator has ended the goroutine, the steps that are left are not made, so the board is
// of no use to the others, and what is lent is the caller's again.
func (p *collPlan) leftBoard(c *Comm, returned *bool) {
	if !*returned && p.failed != nil {
		c.common.err = p.failed
		c.common.on.Give(c.group.Rank, p.failed)
		c.common.takeBack(c.group.Rank)
	}
}

// line is that of a rank in a step.
func (s *common) line(rank int, step uint64) int { return rank*boardLines + int(step%boardDepth) }

// enter begins the next step without a contribution.
func (s *sharedCall) enter() {
	if s.err != nil {
		return // a step has been left out
	}
	s.step++
	line := s.line(s.me, s.step)
	binary.LittleEndian.PutUint64(s.on.Lines[line].Bytes[enteredAt:], s.step<<32|uint64(uint32(s.p.tag)))
	s.on.Raise(line, s.step)
}

// begin begins the next step with a contribution of the length of data, if it is not nil.
func (s *sharedCall) begin(data []byte) {
	copy(s.room(len(data)), data)
	s.publish()
}

// room is where n bytes of the next step are to be written, before publish. Two slots are free when all ranks have
// begun this step, as is a slot of two that were used in the step before it.
func (s *sharedCall) room(n int) []byte {
	next, behind := s.step+1, uint64(boardDepth-1)
	if n > s.slot || n > lineRoom && next > 2 && s.wide[next%2] == next-2 {
		behind = 1
	}
	if next > behind && s.begun < next-behind && !s.otherIsIn() {
		s.awaitBegun(next - behind)
	}
	if s.err != nil {
		return make([]byte, n) // a rank that does not know yet may read what is there
	}
	if s.size = n; n > s.slot {
		s.wide[next%2] = next
	}
	return s.view(s.me, next, n)
}

// publish begins the next step with what is in room. Once the board is of no use it would be no right contribution, and
// those that wait for it hear of the failure by themselves.
func (s *sharedCall) publish() {
	if s.err != nil {
		return
	}
	s.step++
	line := s.line(s.me, s.step)
	call := s.thisStep()
	if s.p.failed != nil {
		call |= sharedGaveUp
	}
	b := &s.on.Lines[line].Bytes
	binary.LittleEndian.PutUint64(b[:], call)
	binary.LittleEndian.PutUint64(b[8:], s.sign.length)
	s.on.Raise(line, s.step)
	if s.n > 2 {
		return // crowded ranks lost by it: docs/decisions/boards.md
	}
	// The next contribution is likely to be as long. Its stores would wait for each line that the other one has read.
	next := s.step + 1
	if s.size > lineRoom {
		s.on.PrefetchW(s.view(s.me, next, s.size))
	}
	b = &s.on.Lines[s.line(s.me, next)].Bytes
	s.on.PrefetchW(b[:min(signed+s.size, len(b))])
}

// thisStep is what contributions to this step say of the call.
func (s *sharedCall) thisStep() uint64 {
	return s.sign.call | s.step<<stepAt | (s.step-s.first)&stepOfCall<<1
}

// view is the memory of a rank's contribution of n bytes. Even steps have one half of a rank's slots, odd ones the
// other: a contribution to one step that takes both of a half leaves that to the next step where it is.
func (s *sharedCall) view(rank int, step uint64, n int) []byte {
	if n <= lineRoom {
		return s.on.Lines[s.line(rank, step)].Bytes[signed:][:n:n]
	}
	slot := rank*boardDepth + int(step%2)*2
	if n <= s.slot {
		slot += int(step / 2 % 2)
	}
	return s.on.Data[slot*(s.slot+slotGap):][:n:n]
}

func (s *sharedCall) await(rank int, step uint64) bool {
	if s.err == nil {
		s.err = s.on.Await(s.line(rank, step), step)
	}
	return s.err == nil
}

// otherIsIn: of two ranks the other one has begun this step. That spares looks at its words in the next steps, each of
// which takes a line from it. Crowded ranks lose by each word that they look at.
func (s *sharedCall) otherIsIn() bool {
	if s.n > 2 || s.on.Lines[s.line(1-s.me, s.step)].Word.Load() < s.step {
		return false
	}
	s.begun = s.step
	return true
}

// awaitBegun returns when all ranks have begun a step.
func (s *sharedCall) awaitBegun(step uint64) {
	for i := range s.n {
		if i != s.me && !s.await(i, step) {
			return
		}
	}
	s.begun = step
}

// awaitAll returns when all ranks have begun this step, and contribute to this call.
func (s *sharedCall) awaitAll() {
	for i := 1; i < s.n; i++ {
		s.read((s.me+i)%s.n, 0)
	}
	s.all()
}

// all: this rank has waited for all others in this step.
func (s *sharedCall) all() {
	if s.err == nil {
		s.begun = s.step
	}
}

// read is a rank's contribution of n bytes to this step; nil: it gives none.
func (s *sharedCall) read(rank, n int) []byte {
	if !s.await(rank, s.step) {
		return nil
	}
	b := &s.on.Lines[s.line(rank, s.step)].Bytes
	its := signature{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
	switch mine := (signature{s.thisStep(), s.sign.length}); {
	case s.p.failed != nil:
		return nil
	case its == mine:
		return s.view(rank, s.step, n)
	case its.call == mine.call|sharedGaveUp:
		s.p.failed = gaveUpError(fmt.Sprintf("rank %d", rank))
	default:
		s.refuse(rank, mine, its)
	}
	return nil
}

// refuse ends the call at all ranks, and every later one on this board: what another rank contributes is not for the
// same step of the same call, so the ranks' steps do not go together from now on.
func (s *sharedCall) refuse(rank int, mine, its signature) {
	class, gives := ErrComm, "gives nothing to that: it makes another call, or names another root"
	if its.call>>stepAt == mine.call>>stepAt {
		class, gives = mine.differs(its), fmt.Sprintf("gives something for %v", its)
	}
	no := &agree.Veto{Class: class, Text: fmt.Sprintf("rank %d is at %v; rank %d %s; all ranks make the same collective "+
		"calls in the same order, with counts that go together (GORUN_COLL_CHECK=1 compares them)",
		s.me, mine, rank, gives)}
	s.err = mpierr.New("", no.Class, "%s", no.Text)
	s.p.failed = s.err
	s.on.Refuse(rank, no.Append(nil), s.err)
}

// differs is the class of the error of two ranks that contribute differently.
func (s signature) differs(t signature) error {
	form := (s.call ^ t.call) & readBuffers
	switch apart := s.call ^ t.call ^ form; {
	case apart>>operationAt == 0 && apart>>rootAt != 0:
		return ErrRoot
	case apart>>rootAt == 0 && s.length != t.length:
		return ErrCount
	case apart>>rootAt == 0 && form != 0:
		return ErrBuffer
	}
	return ErrComm
}

// String says which call it is. The signature is hostile.
func (s signature) String() string {
	o, name := collectives.Operation(s.call>>operationAt&0x7f), "no call"
	if int(o) < collectives.Operations {
		name = blocking.call(o)
	}
	if o == collectives.Bcast || o == collectives.Reduce {
		name += fmt.Sprintf(" with root %d", s.call>>rootAt&0xff)
	}
	if o != collectives.Barrier {
		name += fmt.Sprintf(" of %d elements of %d bytes", s.length>>16, s.length&(slotMost-1)+1)
	}
	if o == collectives.Alltoall && s.call&readBuffers != 0 {
		name += " from a send buffer" // in place it is never so
	}
	return fmt.Sprintf("step %d of call %d, %s", s.call>>1&stepOfCall, int32(s.call>>tagAt)-collTag+1, name)
}

func gaveUpError(rank string) *Error {
	return mpierr.New("", ErrPeerFailed, "%s could not go on, and its own error says why: a rank that it needs has "+
		"failed, its operator has panicked, or the counts of the ranks do not go together", rank)
}

// pieces are the parts of a vector of n bytes that go through slots of so many bytes, each of whole elements. A vector
// of no bytes has one.
func (s *sharedCall) pieces(n, slot int) func(yield func(from, to int) bool) {
	size := slot - slot%int(s.p.elemSize)
	return func(yield func(from, to int) bool) {
		for from := 0; s.err == nil && (from < n || n == 0 && from == 0); from += size {
			if !yield(from, min(from+size, n)) {
				return
			}
		}
	}
}

// space is the caller's buffer; nil: there is none at this rank.
func (p *collPlan) space(s collectives.Space) []byte {
	if len(p.spaces[s]) == 0 {
		return nil
	}
	return p.spaces[s][0]
}

func (s *sharedCall) bcast() {
	buf := s.p.space(collectives.Out)
	for from, to := range s.pieces(len(buf), s.slot) {
		if s.me == s.p.root {
			s.begin(buf[from:to])
			continue
		}
		s.enter()
		copy(buf[from:to], s.read(s.p.root, to-from))
	}
}

func (s *sharedCall) allgather() {
	out := s.p.space(collectives.Out)
	block := len(out) / s.n
	mine := s.p.space(collectives.In)
	if s.p.inPlace {
		mine = out[s.me*block:][:block]
	} else {
		copy(out[s.me*block:], mine)
	}
	for from, to := range s.pieces(block, 2*s.slot) {
		s.begin(mine[from:to])
		for i := 1; i < s.n; i++ {
			rank := (s.me + i) % s.n
			copy(out[rank*block+from:rank*block+to], s.read(rank, to-from))
		}
		s.all()
	}
}

func (s *sharedCall) alltoall() {
	in, out := s.p.space(collectives.In), s.p.space(collectives.Out)
	block := len(out) / s.n
	if s.p.inPlace {
		in = out
	} else {
		copy(out[s.me*block:][:block], in[s.me*block:])
	}
	for from, to := range s.pieces(block, 2*s.slot/s.n) {
		n := to - from
		room := s.room(n * s.n)
		for i := range s.n {
			if i != s.me {
				copy(room[i*n:][:n], in[i*block+from:])
			}
		}
		s.publish()
		for i := 1; i < s.n; i++ {
			rank := (s.me + i) % s.n
			if its := s.read(rank, n*s.n); its != nil {
				copy(out[rank*block+from:], its[s.me*n:][:n])
			}
		}
		s.all()
	}
}

// splitMin is from how many bytes on each of more than two ranks combines a part of the vector for all, where all want
// it. A root combines alone: the others need not wait for it. Parts are a second step, in which each crowded rank needs
// a turn of its processor: they combine all of up to wholeMost bytes, of all ranks less than allMost.
const (
	splitMin  = 2 << 10
	wholeMost = 8 << 10
	allMost   = 256 << 10
)

// inParts: a piece of n bytes that all want is combined in parts.
func (s *sharedCall) inParts(n int) bool {
	if s.crowded && n <= wholeMost && n*s.n < allMost {
		return false
	}
	return n >= splitMin && s.n > 2
}

func (s *sharedCall) reduce(all bool) {
	in, out := s.p.space(collectives.In), s.p.space(collectives.Out)
	if s.p.inPlace {
		in = out
	}
	for from, to := range s.pieces(len(in), s.slot) {
		mine := in[from:to]
		var result []byte
		if all || s.me == s.p.root {
			result = out[from:to]
		}
		if all && s.inParts(to-from) {
			s.reduceParts(mine, result)
		} else {
			s.reduceWhole(mine, result, all)
		}
	}
}

// reduceWhole combines a piece at each rank that wants the result.
func (s *sharedCall) reduceWhole(mine, result []byte, all bool) {
	if result != nil && !all {
		s.enter() // the root's is read by no other rank
	} else {
		s.begin(mine)
	}
	if result != nil {
		s.combineShared(mine, result, 0, len(mine))
		s.all()
	}
}

// reduceParts combines a part of a piece at each rank, for all.
func (s *sharedCall) reduceParts(mine, result []byte) {
	s.begin(mine)
	from, to := s.part(s.me, len(mine))
	sum := s.own[from:to]
	s.combineShared(mine[from:to], sum, from, len(mine))
	s.all()
	s.begin(sum)
	copy(result[from:to], sum)
	for i := 1; i < s.n; i++ {
		rank := (s.me + i) % s.n
		from, to := s.part(rank, len(mine))
		copy(result[from:to], s.read(rank, to-from))
	}
	s.all()
}

// part is what rank combines of a vector of n bytes.
func (s *sharedCall) part(rank, n int) (from, to int) {
	elem := int(s.p.elemSize)
	count := n / elem
	return rank * count / s.n * elem, (rank + 1) * count / s.n * elem
}

// fetch fills dst with what another rank contributes; false: it does not.
type fetch func(rank int, dst []byte) bool

// contribution fetches what is at from of the whole that each rank has published.
func (s *sharedCall) contribution(from, whole int) fetch {
	return func(rank int, dst []byte) bool {
		shared := s.read(rank, whole)
		if shared != nil {
			copy(dst, shared[from:])
		}
		return shared != nil
	}
}

// combinedAtOnce is how much is combined at once, but for longer elements: it stays in the processor's cache.
const combinedAtOnce = 32 << 10

// combineShared makes result of what is at from of the whole that each rank has published.
func (s *sharedCall) combineShared(mine, result []byte, from, whole int) {
	for at, to := range s.combined(len(mine)) {
		s.combine(mine[at:to], result[at:to], s.contribution(from+at, whole))
	}
}

// combined are the pieces of n bytes that are combined at once.
func (s *sharedCall) combined(n int) func(yield func(from, to int) bool) {
	return s.pieces(n, min(s.slot, max(combinedAtOnce, int(s.p.elemSize))))
}

// combine makes result of what all ranks contribute, by pairs: mine, and what get fetches. Messages combine in the same
// order, so a result does not depend on whether there is a board.
func (s *sharedCall) combine(mine, result []byte, get fetch) {
	sum := result
	if s.me < s.n-1 && sameStart(mine, result) {
		sum = s.own[:len(mine)] // mine is read before the result is complete
	}
	if s.sums == nil || len(mine) > len(s.sums[0]) {
		s.takeSums(len(mine))
	}
	last := sum
	open := 0 // sums under the last one: the result's, and those before it in sums
	for rank := s.n - 1; rank >= 0; rank-- {
		switch how := &s.pairs[rank]; {
		case how.Upper:
			if rank < s.n-1 {
				last = s.sums[open][:len(mine)]
				open++
			}
			if rank == s.me {
				copy(last, mine)
			} else {
				get(rank, last)
			}
		case rank == s.me:
			s.apply(last, mine)
		default:
			its := s.its[:len(mine)]
			get(rank, its)
			s.apply(last, its)
		}
		for range s.pairs[rank].Closes {
			lower := last
			if open--; open > 0 {
				last = s.sums[open-1][:len(mine)]
			} else {
				last = sum
			}
			s.apply(last, lower)
		}
	}
	if s.err == nil && s.p.failed == nil && !sameStart(sum, result) {
		copy(result, sum)
	}
}

// takeSums takes memory for all sums but that of the result, of n bytes each or what is combined at once.
func (s *common) takeSums(n int) {
	n = max(n, min(s.slot, combinedAtOnce))
	s.sums = make([][]byte, max(1, s.most-1))
	for i := range s.sums {
		s.sums[i] = aligned(n)
	}
}

func sameStart(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

// apply combines inout with in.
func (s *sharedCall) apply(inout, in []byte) {
	if s.err != nil || s.p.failed != nil || len(inout) == 0 {
		return
	}
	returned := false
	defer s.p.operated(&returned)
	s.p.operator.combine(inout, in)
	returned = true
}

package coll

import (
	"encoding/binary"
	"fmt"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// signature describes the call of a contribution. call has the step in 8 bits, the call's tag in 32, a bit that says
// whether the ranks read each other's buffers, the operation in 7, the root in 8, the number of the step within the
// call in 7, and a bit that says whether the rank has given up. length has the number of elements, and in 16 bits their
// size less 1: an element can be as long as a slot.
type signature struct{ call, length uint64 }

const (
	sharedGaveUp = 1
	stepOfCall   = 0x7f
	readBuffers  = 0x80 << operationAt

	rootAt, operationAt, tagAt, stepAt = 8, 16, 24, 56 // the lowest bit of each
)

func (p *Plan) signature() signature {
	return signature{uint64(uint32(p.tag))<<tagAt | uint64(p.Operation)<<operationAt | uint64(p.Root)<<rootAt,
		uint64(p.Count)<<16 | uint64(p.ElemSize-1)&(SlotMost-1)}
}

// boardCall is one call through the board.
type boardCall struct {
	*boardState
	p     *Plan
	n     int
	me    int
	first uint64 // the step before its first one
	size  int    // bytes of the contribution that is being written
	sign  signature
	err   error // the board is of no use any more
}

// runOnBoard makes the call through the board, in one of ways.
func (p *Plan) runOnBoard(ways boardWays) error {
	g, returned := p.group, false
	defer p.leftBoard(&returned)
	g.Board.unmark(g.Rank)
	s := boardCall{boardState: &g.Board, p: p, n: g.Size, me: g.Rank, first: g.Board.Step, sign: p.signature()}
	if ways&anyDirect != 0 {
		s.direct()
	} else {
		s.shared()
	}
	returned = true
	if s.err != nil {
		g.Board.err = s.err
		return s.err
	}
	return p.failed
}

// leftBoard is deferred: if an operator has ended the goroutine, this rank does not make the steps that are left, so
// the board is of no use to the others. The caller has its buffers again.
func (p *Plan) leftBoard(returned *bool) {
	if g := p.group; !*returned && p.failed != nil {
		g.Board.err = p.failed
		g.Board.On.Give(g.Rank, p.failed)
		g.Board.takeBack(g.Rank)
	}
}

// line returns the index of a rank's line in a step.
func (s *boardState) line(rank int, step uint64) int { return rank*boardLines + int(step%boardDepth) }

// enter begins the next step without a contribution.
func (s *boardCall) enter() {
	if s.err != nil {
		return // a step has been left out
	}
	s.Step++
	line := s.line(s.me, s.Step)
	binary.LittleEndian.PutUint64(s.On.Lines[line].Bytes[enteredAt:], s.Step<<32|uint64(uint32(s.p.tag)))
	s.On.Raise(line, s.Step)
}

// begin begins the next step with a contribution of the length of data, if it is not nil.
func (s *boardCall) begin(data []byte) {
	copy(s.room(len(data)), data)
	s.publish()
}

// room returns memory for a contribution of n bytes to the next step, to be filled before publish. Two slots are free
// when all ranks have begun this step. So is a slot of two that the rank has used in the step before it.
func (s *boardCall) room(n int) []byte {
	next, behind := s.Step+1, uint64(boardDepth-1)
	if n > s.Slot || n > LineRoom && next > 2 && s.wide[next%2] == next-2 {
		behind = 1
	}
	if next > behind && s.begun < next-behind && !s.otherIsIn() {
		s.awaitBegun(next - behind)
	}
	if s.err != nil {
		return make([]byte, n) // a rank that does not know yet may read what is there
	}
	if s.size = n; n > s.Slot {
		s.wide[next%2] = next
	}
	return s.view(s.me, next, n)
}

// publish begins the next step with the contribution in room. On a board of no use it does nothing: the contribution
// could be wrong, and the ranks that wait for it hear of the failure by themselves.
func (s *boardCall) publish() {
	if s.err != nil {
		return
	}
	s.Step++
	line := s.line(s.me, s.Step)
	call := s.thisStep()
	if s.p.failed != nil {
		call |= sharedGaveUp
	}
	b := &s.On.Lines[line].Bytes
	binary.LittleEndian.PutUint64(b[:], call)
	binary.LittleEndian.PutUint64(b[8:], s.sign.length)
	s.On.Raise(line, s.Step)
	if s.n > 2 {
		return // crowded ranks lost by it: docs/decisions/boards.md
	}
	// The next contribution is likely to be as long. Its stores would wait for each line that the other one has read.
	next := s.Step + 1
	if s.size > LineRoom {
		s.On.PrefetchW(s.view(s.me, next, s.size))
	}
	b = &s.On.Lines[s.line(s.me, next)].Bytes
	s.On.PrefetchW(b[:min(signed+s.size, len(b))])
}

// thisStep returns the call of a signature in this step.
func (s *boardCall) thisStep() uint64 {
	return s.sign.call | s.Step<<stepAt | (s.Step-s.first)&stepOfCall<<1
}

// view returns the memory of a rank's contribution of n bytes. Even steps use one half of a rank's slots, odd steps the
// other half. So a contribution that takes both slots of a half does not overwrite the one of the step before.
func (s *boardCall) view(rank int, step uint64, n int) []byte {
	if n <= LineRoom {
		return s.On.Lines[s.line(rank, step)].Bytes[signed:][:n:n]
	}
	slot := rank*boardDepth + int(step%2)*2
	if n <= s.Slot {
		slot += int(step / 2 % 2)
	}
	return s.On.Data[slot*(s.Slot+slotGap):][:n:n]
}

// await reports whether a rank has begun a step, after it has waited for that. Otherwise the board is of no use.
func (s *boardCall) await(rank int, step uint64) bool {
	if s.err == nil {
		s.err = s.On.Await(s.line(rank, step), step)
	}
	return s.err == nil
}

// otherIsIn reports whether there are two ranks, and the other one has begun this step. If so, the next steps need no
// look at its words: each look takes a cache line from it. Crowded ranks lose by each look.
func (s *boardCall) otherIsIn() bool {
	if s.n > 2 || s.On.Lines[s.line(1-s.me, s.Step)].Word.Load() < s.Step {
		return false
	}
	s.begun = s.Step
	return true
}

// awaitBegun returns when all ranks have begun a step.
func (s *boardCall) awaitBegun(step uint64) {
	for i := range s.n {
		if i != s.me && !s.await(i, step) {
			return
		}
	}
	s.begun = step
}

// awaitAll returns when all ranks have begun this step, and contribute to this call.
func (s *boardCall) awaitAll() {
	for i := 1; i < s.n; i++ {
		s.read((s.me+i)%s.n, 0)
	}
	s.all()
}

// all notes that this rank has waited for all others in this step.
func (s *boardCall) all() {
	if s.err == nil {
		s.begun = s.Step
	}
}

// read returns a rank's contribution of n bytes to this step; nil: there is none.
func (s *boardCall) read(rank, n int) []byte {
	if !s.await(rank, s.Step) {
		return nil
	}
	b := &s.On.Lines[s.line(rank, s.Step)].Bytes
	peer := signature{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
	switch own := (signature{s.thisStep(), s.sign.length}); {
	case s.p.failed != nil:
		return nil
	case peer == own:
		return s.view(rank, s.Step, n)
	case peer.call == own.call|sharedGaveUp:
		s.p.failed = gaveUpError(fmt.Sprintf("rank %d", rank))
	default:
		s.refuse(rank, own, peer)
	}
	return nil
}

// refuse ends the call at all ranks, and every later call on this board: the contribution of another rank belongs to
// another call or step, so the ranks' steps do not go together from now on.
func (s *boardCall) refuse(rank int, own, peer signature) {
	class, gives := mpierr.ErrComm, "gives nothing to that: it makes another call, or names another root"
	if peer.call>>stepAt == own.call>>stepAt {
		class, gives = own.differs(peer), fmt.Sprintf("gives something for %v", peer)
	}
	no := &agree.Veto{Class: class, Text: fmt.Sprintf("rank %d is at %v; rank %d %s; all ranks make the same "+
		"collective calls in the same order, with counts that go together (GORUN_COLL_CHECK=1 compares them)",
		s.me, own, rank, gives)}
	s.err = mpierr.New("", no.Class, "%s", no.Text)
	s.p.failed = s.err
	s.On.Refuse(rank, no.Append(nil), s.err)
}

// differs returns the class of the error of two ranks whose signatures differ.
func (s signature) differs(t signature) error {
	form := (s.call ^ t.call) & readBuffers
	switch diff := s.call ^ t.call ^ form; {
	case diff>>operationAt == 0 && diff>>rootAt != 0:
		return mpierr.ErrRoot
	case diff>>rootAt == 0 && s.length != t.length:
		return mpierr.ErrCount
	case diff>>rootAt == 0 && form != 0:
		return mpierr.ErrBuffer
	}
	return mpierr.ErrComm
}

// String names the call. It accepts any bits: another rank may have written them.
func (s signature) String() string {
	o, name := collectives.Operation(s.call>>operationAt&0x7f), "no call"
	if int(o) < collectives.Operations {
		name = Blocking.Call(o)
	}
	if o == collectives.Bcast || o == collectives.Reduce {
		name += fmt.Sprintf(" with root %d", s.call>>rootAt&0xff)
	}
	if o != collectives.Barrier {
		name += fmt.Sprintf(" of %d elements of %d bytes", s.length>>16, s.length&(SlotMost-1)+1)
	}
	if o == collectives.Alltoall && s.call&readBuffers != 0 {
		name += " from a send buffer" // in place it is never so
	}
	return fmt.Sprintf("step %d of call %d, %s", s.call>>1&stepOfCall, int32(s.call>>tagAt)-FirstTag+1, name)
}

func gaveUpError(rank string) *mpierr.Error {
	return mpierr.New("", mpierr.ErrPeerFailed, "%s could not go on, and its own error says why: a rank that it "+
		"needs has failed, or its device, its operator has panicked, or the counts of the ranks do not go together", rank)
}

// pieces yields the parts of a vector of n bytes that go through slots of so many bytes, each of whole elements. An
// empty vector has one part.
func (s *boardCall) pieces(n, slot int) func(yield func(from, to int) bool) {
	size := slot - slot%int(s.p.ElemSize)
	return func(yield func(from, to int) bool) {
		for from := 0; s.err == nil && (from < n || n == 0 && from == 0); from += size {
			if !yield(from, min(from+size, n)) {
				return
			}
		}
	}
}

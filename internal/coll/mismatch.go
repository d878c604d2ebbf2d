package coll

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
)

// The counts of a call decide whether it goes through the board or by messages. All ranks give the same counts, or one
// rank may wait at the board while another one waits for messages. A rank that goes on does not look for that. A rank
// looks when it is about to sleep, or has tested again and again. Calls have numbers, and each step has the number of
// its call. So the calls of two ranks differ if one of them has begun a step of a call that the other one is past, or
// is in by messages, without that step.
//
// A rank that sleeps outside of the board has a mark with the number of calls that it has begun: it is past the last of
// them, or in it by messages. Of two ranks, the one that goes to sleep later sees the steps and the mark of the other
// one. It says on the board that they differ, which ends the waits of all.
//
// With GORUN_COLL_CHECK the ranks compare a call before it, so nothing is left to find. They wait for messages then
// that do not say which call they belong to.

// mismatchDetector finds ranks whose calls do not go together. Its methods are called with the engine's lock.
type mismatchDetector struct {
	g *Group
	*boardState
	marked uint32 // the number of calls that this rank had begun at its last look outside of the board
}

// by reports whether call i is not after call k.
func by(i, k uint32) bool { return (k-i)%Numbers < Numbers/2 }

// Mark is the line that says which call a rank that sleeps has begun last, by its number plus 1. 0: it does not say.
func (s *boardState) Mark(rank int) *transport.Line { return s.On.Lines[rank*boardLines+boardDepth] }

// unmark clears the mark of a rank. A rank that makes calls by the board, and does not sleep in between, would keep its
// mark, and after half of all numbers the mark would seem to belong to a later call.
func (s *boardState) unmark(me int) {
	if mark := &s.Mark(me).Word; mark.Load() != 0 {
		mark.Store(0)
	}
}

// look finds a rank whose calls differ from this one's. This rank is about to sleep, at the board (at) or in another
// wait. The others get why. err is nil if there is no such rank.
func (a *mismatchDetector) look(at bool) (rank int, why []byte, err error) {
	if at {
		return a.compare(0)
	}
	// A call that can use the board joins the queue before it takes its number. So if no call has its turn, all calls
	// that have a number are over, or go by messages. Between two calls there is nothing new: the others look when they
	// sleep.
	begun := a.g.numbers.count.Load()
	if begun == a.marked || !a.state.CompareAndSwap(0, queueTaken) {
		return 0, nil, nil
	}
	defer a.looked()
	a.marked = begun
	mark := (begun-1)%Numbers + 1
	a.Mark(a.g.Rank).Word.Store(uint64(mark))
	return a.compare(mark)
}

// looked gives up the turn that look has taken in the queue. Requests that came meanwhile may need the engine's lock.
func (a *mismatchDetector) looked() {
	if !a.state.CompareAndSwap(queueTaken, 0) {
		go a.leave()
	}
}

// compare compares this rank with the others. mark is its mark; 0: it waits at the board.
func (a *mismatchDetector) compare(mark uint32) (rank int, why []byte, err error) {
	me := a.g.Rank
	for i := range a.g.Size {
		if i == me {
			continue
		}
		if mark > 0 {
			if call, ok := a.callOf(i, a.Step+1); ok && by(call, mark-1) {
				return a.refused(me, i, mark-1, call)
			}
		}
		if peer := a.Mark(i).Word.Load(); peer > 0 && peer <= Numbers {
			if own, ok := a.callOf(me, a.stepOf(i)+1); ok && by(own, uint32(peer-1)) {
				return a.refused(i, me, uint32(peer-1), own)
			}
		}
	}
	return 0, nil, nil
}

// stepOf returns the last step that a rank has begun.
func (a *mismatchDetector) stepOf(rank int) (last uint64) {
	for step := range uint64(boardDepth) {
		last = max(last, a.On.Lines[a.line(rank, step)].Word.Load())
	}
	return last
}

// callOf returns the number of the call to which a step of a rank belongs, if the rank has begun it.
func (a *mismatchDetector) callOf(rank int, step uint64) (number uint32, ok bool) {
	l := a.On.Lines[a.line(rank, step)]
	if l.Word.Load() != step {
		return 0, false
	}
	tag := int64(int32(binary.LittleEndian.Uint64(l.Bytes[:]) >> tagAt)) // of what it gives
	if e := binary.LittleEndian.Uint64(l.Bytes[enteredAt:]); uint32(e>>32) == uint32(step) {
		tag = int64(int32(e)) // it gives nothing
	}
	return uint32(tag - FirstTag), tag >= FirstTag && tag < FirstTag+Numbers
}

// refused returns the error: rank i has begun call in, without a step that rank k has made at the board in call made,
// which is not after call in.
func (a *mismatchDetector) refused(i, k int, in, made uint32) (rank int, why []byte, err error) {
	text := fmt.Sprintf("rank %d has come to collective call %d of %s without a step that rank %d has made on the "+
		"board in call %d; all ranks make the same collective calls in the same order, with counts that go together "+
		"(GORUN_COLL_CHECK=1 compares them)", i, in+1, a.g.Name(), k, made+1)
	no := &agree.Veto{Class: mpierr.ErrComm, Text: text}
	return i, no.Append(nil), mpierr.New("", no.Class, "%s", no.Text)
}

// callEnded reports whether a call by messages is over, since nothing comes any more: the communicator has been freed
// here or revoked, or its ranks have found that their calls do not go together.
func callEnded(failed error) bool {
	if failed == nil {
		return false
	}
	var told *pml.BoardError // on the heap
	return errors.Is(failed, mpierr.ErrComm) || errors.Is(failed, mpierr.ErrRevoked) || errors.As(failed, &told)
}

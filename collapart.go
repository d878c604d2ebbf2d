package mpi

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
)

// A call goes through the board or by messages as its counts say, which all ranks give alike. If they do not, one
// rank may wait at the board while another one waits for messages, or each for what the other one will never do. No
// rank that goes on pays for that to be seen: one that is about to sleep looks. Calls have numbers, and each step
// says of which call it is. So two ranks do not go together if one of them has begun a step of a call that the other
// one is past, or is in by messages, without that step.
//
// A rank that sleeps in a call by messages has a mark, which says which call that is. Of two ranks the one that goes
// to sleep later sees what the other one has done: it says so on the board, which ends the waits of all.
//
// With GORUN_COLL_CHECK calls are compared before, and in that messages are waited for that say nothing of the call.

// strays is how a rank sees that. Its methods are called with the engine's lock, in no call of this rank by the
// board, or in the one that waits.
type strays struct {
	c *Comm
	*common
}

// numbers is how many numbers blocking and nonblocking calls have before they begin again.
const numbers = collTag / 2

// by reports whether call i is not after call k.
func by(i, k uint32) bool { return (k-i)%numbers < numbers/2 }

// mark is the line that says in which call by messages a rank sleeps: its number plus 1; 0: in none.
func (s *common) mark(rank int) *transport.Line { return s.on.Lines[rank*boardLines+boardDepth] }

// unmark: a rank that makes a call by the board sleeps in none by messages. Its mark would seem to be of a call to come
// when half of the numbers are over.
func (s *common) unmark(me int) {
	if mark := &s.mark(me).Word; mark.Load() != 0 {
		mark.Store(0)
	}
}

// look finds a rank that does not go together with this one, which waits for a message of a call, or, if tag is
// negative, at the board. why is what the others are told; err is nil if there is none.
func (a *strays) look(tag int32) (rank int, why []byte, err error) {
	me, in := a.c.rank, int64(-1)
	if tag >= 0 {
		if in = int64(tag) - collTag; in < 0 || in >= numbers || a.state.Load() != 0 {
			return 0, nil, nil // a call without a number of this kind, or one by the board goes on
		}
		a.mark(me).Word.Store(uint64(in) + 1)
	}
	for i := range a.c.size {
		if i == me {
			continue
		}
		if in >= 0 {
			if its, is := a.callOf(i, a.step+1); is && by(its, uint32(in)) {
				return a.refused(me, i, uint32(in), its)
			}
		}
		if its := a.mark(i).Word.Load(); its > 0 && its <= numbers {
			if mine, is := a.callOf(me, a.stepOf(i)+1); is && by(mine, uint32(its-1)) {
				return a.refused(i, me, uint32(its-1), mine)
			}
		}
	}
	return 0, nil, nil
}

// stepOf is the last step that a rank has begun.
func (a *strays) stepOf(rank int) (last uint64) {
	for step := range uint64(boardDepth) {
		last = max(last, a.on.Lines[a.line(rank, step)].Word.Load())
	}
	return last
}

// callOf is the number of the call to which a step of a rank belongs, if it has begun it.
func (a *strays) callOf(rank int, step uint64) (number uint32, is bool) {
	l := a.on.Lines[a.line(rank, step)]
	if l.Word.Load() != step {
		return 0, false
	}
	tag := int64(int32(binary.LittleEndian.Uint64(l.Bytes[:]) >> tagAt)) // of what it gives
	if e := binary.LittleEndian.Uint64(l.Bytes[enteredAt:]); uint32(e>>32) == uint32(step) {
		tag = int64(int32(e)) // it gives nothing
	}
	return uint32(tag - collTag), tag >= collTag && tag < collTag+numbers
}

// refused: rank i is in a call by messages, and rank k has made one at the board, not after that, without it.
func (a *strays) refused(i, k int, in, made uint32) (rank int, why []byte, err error) {
	text := fmt.Sprintf("rank %d waits for messages in collective call %d of %s, and rank %d has made call %d by the "+
		"board, in which rank %[1]d is not; all ranks make the same collective calls in the same order, with counts "+
		"that go together (GORUN_COLL_CHECK=1 compares them)", i, in+1, a.c.Name(), k, made+1)
	no := &refusal{class: ErrComm, text: text}
	return i, no.append(nil), opError("", no.class, "%s", no.text)
}

// callOver reports whether a call by messages is over, since nothing comes any more: the communicator has been freed
// here, or its ranks have found that their calls do not go together.
func callOver(failed error) bool {
	if failed == nil {
		return false
	}
	var told *pml.BoardError // on the heap
	return errors.Is(failed, ErrComm) || errors.As(failed, &told)
}

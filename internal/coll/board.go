package coll

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
)

// Where the table says so (algorithm "shared"), blocking calls of ranks that share a host go through a board: memory
// that all of them have mapped (transport.Board). A call is a number of steps, the same at all ranks. In a step each
// rank raises the word of its line. With the word it publishes its contribution, if it has one. Then it waits for the
// words of the ranks whose contributions it needs. A rank that has begun a step has read all that it needs of the step
// before. So a contribution stays until all ranks have begun the next step, and a rank can be boardDepth-1 steps ahead
// of the last one.
//
// The ranks make the board by messages, in the second such call on a communicator, and make this call by messages like
// the first. If a rank cannot make or join it, all calls go by messages, and the ranks try again in the fourth call,
// the eighth and so on. Each rank counts its calls on the communicator, so all try in the same call.

const (
	// boardDepth is the number of steps for which a rank has lines and slots.
	boardDepth = 4
	// boardLines is the number of lines of a rank: one for each of these steps, and its mark (mismatch.go).
	boardLines = boardDepth + 1
	// A slot has SlotMost bytes, or less where that would be more than boardMost for all ranks. A longer contribution
	// takes two slots.
	SlotMost  = 64 << 10
	boardMost = 2 << 20
	SlotLeast = 4 << 10
	// slotGap lies between slots, so that short contributions of many ranks do not share one set of a cache.
	slotGap = 512
	// boardRanks is the largest number of ranks that can have a board.
	boardRanks = 64
	// BoardSetup is the call in which the board is made.
	BoardSetup = 2
	// BoardsMost is the limit of the bytes that the boards of a process take, as much as its scratch (scratch.go); a
	// device adds 2 % to each. It has room for 29 boards of the most ranks, or 63 of 4 ranks: more than the
	// communicators on which a program makes calls by turns, and little compared with the memory of a process.
	BoardsMost = 64 << 20

	// LineRoom is how many bytes of a contribution a line holds, behind the signature and the bytes of enter: as many
	// as lie in the cache line of the word. A processor may fetch the next cache line for the ranks that look at the
	// word.
	LineRoom  = 32
	signed    = 24
	enteredAt = 16
	lineBytes = 8 + len(transport.Line{}.Bytes)
)

// boardState is the board of a communicator, as this rank uses it.
type boardState struct {
	callQueue
	calls int   // which could have used the board, while there was none
	none  bool  // there will be no board: the communicator has been freed
	err   error // other ranks may have a board, and this rank has no part in it
	// revoked, which mu guards, is why all calls fail: the communicator is revoked. nil: it is not.
	revoked *mpierr.Error
	On      *pml.Board
	// The ways of calls through it; 0: it is not made, or this rank has not agreed with the others on them.
	able boardWays

	Slot  int       // bytes of a slot
	Step  uint64    // the last one that this rank has begun
	wide  [2]uint64 // the last even one, and odd one, in which this rank has used two slots
	begun uint64    // a step that all ranks have begun
	own   []byte    // sums of this rank that are not combined in the place of the result
	peer  []byte    // a copy of another rank's contribution, which may change while it is read
	pairs []collectives.Pair
	most  int      // buffers that combine uses
	sums  [][]byte // all except the result's; nil: nothing has been combined
	lent  []lends  // by each rank; nil: they cannot read and write each other's memory
}

// BoardRoom counts the bytes of the boards that a process has and is about to have: ≤ BoardsMost.
type BoardRoom struct{ used atomic.Int64 }

// Take reserves n bytes, or returns the veto of a rank that has no room for them.
func (b *BoardRoom) Take(n int) *agree.Veto {
	if b.used.Add(int64(n)) <= BoardsMost {
		return nil
	}
	b.Give(n)
	return cannot(fmt.Errorf("a board of %d bytes more than the %d that the boards of a process may take", n,
		BoardsMost))
}

// Used returns how many bytes are reserved.
func (b *BoardRoom) Used() int { return int(b.used.Load()) }

// Give gives n bytes back.
func (b *BoardRoom) Give(n int) { b.used.Add(-int64(n)) }

// mayHaveBoard reports whether the ranks of g can have a board, as far as all of them know alike. The ranks of an
// intercommunicator have none: its calls are of several sets of ranks.
func (g *Group) mayHaveBoard() bool {
	return g.Both == nil && g.Size > 1 && g.Size <= boardRanks && g.Via() == collectives.SharedMemory
}

// runQueued makes the call when it has its turn, through the board or, without one, by messages.
func (p *Plan) runQueued(turn <-chan struct{}) error {
	if turn != nil {
		<-turn
	}
	s := &p.group.Board
	ways := p.ways & s.able
	if refused, alone := p.check(); refused != nil {
		if alone && ways == 0 { // else the ranks that make the call hear of the failed rank through the board
			p.continueAlone(p.byMessages(), refused)
		}
		s.leave()
		return refused
	}
	if ways != 0 && s.err == nil {
		defer s.leave()
		return p.runOnBoard(ways)
	}
	if s.err != nil && (ways != 0 || s.able == 0) {
		defer s.leave()
		// Others may have agreed on no board, or on other ways, and make their calls by messages. If this rank has heard
		// of a revocation, all hear of that.
		if s.able == 0 && !errors.Is(s.err, mpierr.ErrRevoked) {
			p.failed = s.err
			if p.giveUp(p.algorithm); p.roomy != p.algorithm {
				p.giveUp(p.roomy) // others may have the board
			}
		}
		return s.err
	}
	a := p.byMessages() // before the agreement: it may fail at one rank alone, and all take the same
	if s.On == nil && s.due() && !s.none {
		if failed := s.setUp(p.group, p.tag); p.failed == nil {
			p.failed = failed
		}
	}
	s.leave()
	return p.runByMessages(a)
}

// byMessages returns the algorithm of the call that has its turn, if it goes by messages.
func (p *Plan) byMessages() *collectives.Algorithm {
	if !p.group.Board.crowded() {
		return p.roomy
	}
	return p.algorithm
}

// due counts a call, and reports whether the ranks are to make the board in it.
func (s *boardState) due() bool {
	s.calls++
	return s.calls >= BoardSetup && s.calls&(s.calls-1) == 0
}

// setUp makes the board, if all ranks can. The error is that a rank has failed. Then this rank leaves the exchange, and
// no rank waits for it: all ranks below it in the tree of the exchange have heard the same, and so has its parent,
// unless it has lost that.
func (s *boardState) setUp(g *Group, tag int32) error {
	m := g.Exchange(agree.MakeDup)
	m.Tag = exchangeTag(tag)
	t := &ticketing{g: g, lines: g.Size * boardLines, size: dataOf(g.Size)}
	full := g.Setup.Boards.Take(BoardBytes(g.Size))
	_, no := m.Round(0, nil, full, t)
	var own *agree.Veto
	if no == nil {
		own = t.join()
	}
	if no == nil {
		_, no = m.Round(0, nil, own, nil)
	}
	if no == nil {
		s.On, s.Slot = t.on, slotOf(g.Size)
		s.On.Joined()
		s.mu.Lock()
		s.stop = func() { t.on.End(agree.FreedError("communicator")) }
		if s.revoked != nil {
			s.revoke(g)
		}
		s.mu.Unlock()
		s.own, s.peer = aligned(s.Slot), aligned(s.Slot)
		s.err = s.agree(g)
		first := g.Rank
		if s.crowded() {
			first = g.Size - 1 // 0.97 of the time: their processors are the bound, not the memory of one rank
		}
		s.pairs, s.most = collectives.Pairs(first, g.Size)
		if s.err == nil {
			look := (&mismatchDetector{g: g, boardState: s}).look
			if g.Setup.Check {
				look = nil
			}
			s.On.Watch(g.context(), look)
		}
		return s.err
	}
	if no.Class != mpierr.ErrGroup { // else all have heard that it cannot be made now
		// All ranks have failed here, or this one has joined and others have the board: these it tells.
		switch s.err = m.FailedIn("", no); {
		case t.on == nil:
		case no.Class == mpierr.ErrRevoked: // this rank lives
			t.on.Refuse(g.Rank, no.Append(nil), s.err)
		default:
			t.on.Give(g.Rank, s.err)
		}
	}
	if t.close(); full == nil {
		g.Setup.Boards.Give(BoardBytes(g.Size))
	}
	return s.err
}

// slotOf returns the size of a slot.
func slotOf(ranks int) int {
	slot := SlotMost
	for slot > SlotLeast && slot*ranks*boardDepth > boardMost {
		slot /= 2
	}
	return slot
}

// dataOf returns how many bytes the slots of a board take.
func dataOf(ranks int) int { return (slotOf(ranks) + slotGap) * ranks * boardDepth }

// BoardBytes returns how many bytes a board takes.
func BoardBytes(ranks int) int { return dataOf(ranks) + ranks*boardLines*lineBytes }

// goesThroughSlots reports whether each piece of the call has at least one element.
func (k *Key) goesThroughSlots(ranks int) bool {
	room := slotOf(ranks)
	if k.Operation == collectives.Alltoall {
		room /= ranks
	}
	return k.ElemSize <= int64(room)
}

// ticketing is the payload of an exchange: the first rank makes a board, and hands its ticket on.
type ticketing struct {
	g           *Group
	size, lines int
	on          *pml.Board
	ticket      []byte
}

func (t *ticketing) members() []int32 {
	all := make([]int32, t.g.Size)
	for i := range all {
		all[i] = int32(t.g.ToWorld(i))
	}
	return all
}

// cannot returns the veto of a rank that cannot make or join a board.
func cannot(err error) *agree.Veto { return &agree.Veto{Class: mpierr.ErrGroup, Text: err.Error()} }

func (t *ticketing) Take(int, *agree.Decoder) *agree.Veto { return nil }
func (t *ticketing) Up() []byte                           { return nil }

func (t *ticketing) Decide() *agree.Veto {
	var err error
	if t.on, t.ticket, err = pml.MakeBoard(t.g.Engine, t.members(), t.lines, t.size); err != nil {
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
	if t.on, err = pml.JoinBoard(t.g.Engine, t.members(), t.lines, t.size, t.ticket); err != nil {
		return cannot(err)
	}
	return nil
}

func (t *ticketing) close() {
	if t.on != nil {
		t.on.Close()
	}
}

// Revoke ends the calls at the board, here and at the other members, now and later.
func (g *Group) Revoke(err *mpierr.Error) {
	s := &g.Board
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked = err; s.stop != nil && !s.none {
		s.revoke(g)
	}
}

// revoke ends the calls at the board, which is there. The caller holds mu. The others hear of it on the board: they
// must not use what this rank has lent them.
func (s *boardState) revoke(g *Group) {
	no := &agree.Veto{Class: s.revoked.Class, Text: s.revoked.Err.Error()}
	s.On.Refuse(g.Rank, no.Append(nil), s.revoked)
}

// closeBoard gives the board back when no call uses it.
func (g *Group) closeBoard() {
	s := &g.Board
	s.whenIdle(func() {
		if s.On != nil {
			s.On.Close()
			s.On, s.able = nil, 0
			g.Setup.Boards.Give(BoardBytes(g.Size))
		}
		s.none, s.own, s.peer, s.sums = true, nil, nil, nil
	})
}

package mpi

import (
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// heldBoards are the boards that a rank has of its device, one for each communicator with a board.
type heldBoards struct{ boards, bytes, most int }

func (h *heldBoards) hold(b *transport.Board) {
	n, unmap := len(b.Data)+len(b.Lines)*(8+len(transport.Line{}.Bytes)), b.Close
	h.boards++
	h.bytes += n
	h.most = max(h.most, h.bytes)
	b.Close = func() {
		h.boards--
		h.bytes -= n
		unmap()
	}
}

// holding counts in held, by rank, what is made and joined.
func holding(held []heldBoards) Option {
	return withBoards(func(rank int, b *transport.Board) { held[rank].hold(b) })
}

// tellingSum is an Allreduce whose result tells in which order the ranks' contributions were combined.
func tellingSum(c *Comm) []uint64 {
	mine := make([]uint64, 300)
	for i := range mine {
		mine[i] = uint64(c.Rank()+1)*0xd1342543de82ef95 + uint64(i)*0xaf251af3b0f025b5
	}
	return tellingCalls["Allreduce"](coll.Blocking, c, mine, false, tellsPairs)
}

// The boards of a process take no more than coll.BoardsMost, however many communicators there are. Communicators
// without room for a board give the same results by messages. Free makes room: for a later communicator, and for one
// that had none, once it has made twice as many calls.
func TestBoardsAreBounded(t *testing.T) {
	if proc.Race {
		t.Skip("bytes are counted without the race detector; other tests make boards with it")
	}
	const ranks, many, calls = 4, 200, coll.BoardSetup + 1
	room := coll.BoardsMost / coll.BoardBytes(ranks) // for so many boards, of which the world has one
	whereBoards(t, func(t *testing.T, run runner) {
		held := make([]heldBoards, ranks)
		run(ranks, func(w *Comm) {
			mine, want := &held[w.Rank()], tellingSum(w)
			with := func(c *Comm) bool {
				check(slices.Equal(tellingSum(c), want), "other bits on %s, with a board: %v", c.Name(),
					c.group.Board.On != nil)
				return c.group.Board.On != nil
			}
			again := func(c *Comm, times int) (has bool) {
				for range times {
					has = with(c)
				}
				return has
			}
			check(again(w, calls), "the world has no board")
			for i := range room + 10 {
				c := ok(w.Dup())
				check(again(c, calls), "communicator %d has no board, when those before it are freed", i)
				must(c.Free())
			}
			same(mine.boards, 1)
			comms := make([]*Comm, many)
			for i := range comms {
				comms[i] = ok(w.Dup())
				again(comms[i], calls)
				check(mine.most <= coll.BoardsMost, "the boards of rank %d take %d bytes with communicator %d, want "+
					"%d at most", w.Rank(), mine.most, i, coll.BoardsMost)
			}
			for i, c := range comms {
				same(again(c, 1), i < room-1)
			}
			same(mine.boards, room)
			must(comms[0].Free())
			must(comms[1].Free())
			must(Barrier(w)) // all ranks have room
			late, refused := ok(w.Dup()), comms[many-1]
			check(again(late, calls), "no board for a communicator that is made when others are freed")
			check(again(refused, calls+1), "no board by call %d of a communicator, when others are freed", 2*(calls+1))
			same(mine.boards, room)
			for _, c := range append(comms[2:], late) {
				must(c.Free())
			}
			same(mine.boards, 1)
			same(w.group.Setup.Boards.Used(), mine.bytes)
		}, onBoard, holding(held))
	})
}

// One rank has no room: all ranks go by messages until it has, and those that have made or joined the board, or could
// have, give the room back.
func TestOneRankHasNoRoomForABoard(t *testing.T) {
	const ranks = 5
	for full := range few([]int{0, 1, 2, 3, 4}, 0, 1, 2) {
		overLoop(t)(ranks, func(w *Comm) {
			room := &w.group.Setup.Boards
			if w.Rank() == full {
				check(room.Take(coll.BoardsMost) == nil, "no room")
			}
			for range 7 {
				must(Barrier(w))
				check(w.group.Board.On == nil, "a board although rank %d has no room", full)
			}
			if w.Rank() == full {
				room.Give(coll.BoardsMost)
			}
			same(room.Used(), 0)
			must(Barrier(w))
			check(w.group.Board.On != nil, "no board in the eighth call")
			same(room.Used(), coll.BoardBytes(ranks))
			must(Barrier(w))
		}, onBoard)
	}
}

package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// A board of two: line i is raised by rank i.
const (
	boardLines = 2
	boardBytes = 10_001
)

// board makes a board for the two ends.
func (f *fixture) board(a, b *end) (onA, onB *transport.Board) {
	f.Helper()
	members := []int32{int32(a.rank), int32(b.rank)}
	onA, ticket, err := a.dev.Facts().Boards.Make(members, boardLines, boardBytes)
	f.must(err)
	onB, err = b.dev.Facts().Boards.Join(members, boardLines, boardBytes, ticket)
	f.must(err)
	onA.Joined()
	f.Cleanup(func() { onA.Close(); onB.Close() })
	return onA, onB
}

// boardContents checks that a board is zeroed, as large as was asked for, and one memory for both; several are apart.
func boardContents(f *fixture) {
	a, b := f.linked()
	for range 3 {
		onA, onB := f.board(a, b)
		for _, x := range []*transport.Board{onA, onB} {
			if len(x.Lines) != boardLines || len(x.Data) != boardBytes || !bytes.Equal(x.Data, make([]byte, boardBytes)) ||
				x.Lines[0].Word.Load()|x.Lines[1].Word.Load() != 0 || failed(x) != -1 {
				f.Fatalf("%d lines and %d bytes, or they are not all zero; want %d and %d", len(x.Lines), len(x.Data), boardLines,
					boardBytes)
			}
		}
		fill(onA.Data, 1)
		fill(onB.Lines[1].Bytes[:], 2)
		fill(onA.Lines[0].Bytes[:], 3)
		onB.Raise(1, 7)
		switch {
		case !bytes.Equal(onA.Data, onB.Data) || !bytes.Equal(onA.Lines[1].Bytes[:], pattern(120, 2)) ||
			!bytes.Equal(onB.Lines[0].Bytes[:], pattern(120, 3)):
			f.Error("what one rank has written the other does not read")
		case onA.Lines[1].Word.Load() != 7 || onA.Lines[0].Word.Load() != 0:
			f.Errorf("the words are %d and %d; want 0 and 7", onA.Lines[0].Word.Load(), onA.Lines[1].Word.Load())
		}
	}
}

// failed is the member that has.
func failed(b *transport.Board) int {
	i, _ := b.Failed()
	return i
}

// boardWakes checks that a word that is raised ends a sleep, whatever comes first, and Poll reports it once. Packets
// pass.
func boardWakes(f *fixture, thread bool) {
	a, b := f.linked()
	onA, onB := f.board(a, b)
	w := watch(f, a, b)
	rounds := uint64(f.rounds(5000))
	side := func(e *end, board *transport.Board, own, peer int, seed uint64) func() error {
		rng := rand.New(rand.NewPCG(seed, 1))
		return func() error {
			for i := uint64(1); i <= rounds; i++ {
				if pause(rng.IntN(3000)); own == 0 {
					board.Raise(own, i)
				}
				if rng.IntN(4) == 0 { // this one is forgotten
					board.Expect(peer, i+10, ^i)
				}
				if rng.IntN(4) == 0 {
					board.Forget()
				}
				if err := e.reached(w, board, peer, i, thread); err != nil {
					return err
				}
				if own == 1 {
					board.Raise(own, i)
				}
			}
			return e.quiet()
		}
	}
	f.drive(side(a, onA, 0, 1, 1), side(b, onB, 1, 0, 2))
}

// reached waits until Poll says that a word is so far.
func (e *end) reached(w *proc.Watchdog, board *transport.Board, line int, least uint64, thread bool) error {
	board.Expect(line, least, least)
	p, err := e.await(w, transport.Any, thread)
	if err == nil && (p.Event != transport.Reached || p.Cookie != least || int(p.Peer) != e.rank) {
		err = fmt.Errorf("rank %d: event %d, cookie %d, peer %d; want Reached with cookie %d", e.rank, p.Event, p.Cookie,
			p.Peer, least)
	}
	if now := board.Lines[line].Word.Load(); err == nil && now < least && failed(board) < 0 {
		err = fmt.Errorf("rank %d: Reached, and the word is %d; want at least %d", e.rank, now, least)
	}
	return err
}

// boardFails checks that the failure of a member ends a wait, and every later one.
func boardFails(f *fixture) {
	a, b := f.linked()
	w := watch(f, b)
	for i := range max(f.rounds(100), 2) {
		onA, onB := f.board(a, b)
		why := pattern(i*100, uint64(i))
		f.drive(func() error {
			pause(rand.IntN(3000))
			onA.Fail(0, why)
			onA.Fail(1, nil)
			return nil
		}, func() error {
			return errors.Join(b.reached(w, onB, 0, 1, i%2 == 0), b.reached(w, onB, 0, 1, i%2 == 0))
		})
		for _, x := range []*transport.Board{onA, onB} {
			if first, says := x.Failed(); first != 0 || !bytes.Equal(says, why[:min(len(why), transport.WhyMost)]) {
				f.Fatalf("the first to fail is %d, for %q; want 0, for %q", first, says, why)
			}
		}
	}
}

// boardHostileTicket checks that what is no ticket of a board of that shape gives an error, and nothing else.
func boardHostileTicket(f *fixture) {
	a, b := f.linked()
	members := []int32{int32(a.rank), int32(b.rank)}
	make, join := a.dev.Facts().Boards.Make, b.dev.Facts().Boards.Join
	board, ticket, err := make(members, boardLines, boardBytes)
	f.must(err)
	defer board.Close()
	refused := func(members []int32, lines, bytes int, ticket []byte) {
		f.Helper()
		if got, err := join(members, lines, bytes, ticket); err == nil || err.Error() == "" {
			got.Close()
			f.Errorf("Join of %v, %d lines, %d bytes by ticket %x has succeeded", members, lines, bytes, ticket)
		}
	}
	for n := range len(ticket) {
		refused(members, boardLines, boardBytes, ticket[:n])
		other := bytes.Clone(ticket)
		other[n] ^= 0x55
		refused(members, boardLines, boardBytes, other)
	}
	refused(members, boardLines, boardBytes, append(bytes.Clone(ticket), 0))
	for _, m := range [][]int32{nil, {0}, {0, 0, 1}, {0, 1, 1 << 20}, {-1, 1}} {
		refused(m, boardLines, boardBytes, ticket)
		if got, _, err := make(m[:min(1, len(m))], -1, 1); err == nil {
			got.Close()
			f.Error("Make of -1 lines has succeeded")
		}
	}
	for _, shape := range [][2]int{{1, boardBytes}, {boardLines, boardBytes - 1}, {boardLines, -1}, {-1, boardBytes},
		{boardLines, 1 << 60}, {1 << 60, 1}} {
		refused(members, shape[0], shape[1], ticket)
	}
	got, err := join(members, boardLines, boardBytes, ticket)
	f.must(err)
	got.Close()
}

// boardLends checks that a member reads what another one lends, from any place and of any length, and no more than
// that. Any loan may be asked for.
func boardLends(f *fixture) {
	a, b := f.linked()
	onA, onB := f.board(a, b)
	from, to := onA.Lending, onB.Lending
	if from == nil || to == nil {
		f.Fatal("members that reach each other's memory cannot lend")
	}
	f.must(from.Try())
	f.must(to.Try())
	const size = 3<<20 + 5
	mem, got := pattern(size, 1), make([]byte, size)
	loan := from.Lend(mem)
	for _, r := range [][2]int{{0, size}, {0, 0}, {1, 1}, {size - 1, 1}, {4095, 4098}, {1 << 20, 1<<20 + 1},
		{size, 0}} {
		clear(got)
		f.must(to.Read(0, got[:r[1]], loan, r[0]))
		if !bytes.Equal(got[:r[1]], mem[r[0]:][:r[1]]) || !bytes.Equal(got[r[1]:], make([]byte, size-r[1])) {
			f.Errorf("%d bytes at %d are not what is lent", r[1], r[0])
		}
	}
	want := bytes.Clone(mem)
	for _, w := range [][2]int{{0, 1}, {1, 4097}, {size - 1, 1}, {1<<20 - 1, 1<<20 + 2}, {size, 0}} {
		other := pattern(w[1], 3)
		f.must(to.Write(0, other, loan, w[0]))
		if copy(want[w[0]:], other); !bytes.Equal(mem, want) {
			f.Errorf("%d bytes at %d are not what was written, or others are not what they were", w[1], w[0])
		}
	}
	for _, l := range []transport.Loan{{}, {Addr: 1}, {Addr: 1<<63 - 1, Key: loan.Key},
		{Addr: ^uint64(0), Key: ^uint64(0)}} {
		for _, err := range []error{to.Read(0, got, l, 0), to.Write(0, got, l, 0)} {
			if err == nil || errors.Is(err, transport.ErrPeerGone) {
				f.Errorf("moving what is not lent, %+v: %v; want an error, and not that the member has ended", l, err)
			}
		}
	}
	from.Return(loan)
	other := pattern(1000, 2)
	loan = from.Lend(other)
	f.must(to.Read(0, got[:1000], loan, 0))
	if !bytes.Equal(got[:1000], other) {
		f.Error("the second loan is not what is lent")
	}
	want = bytes.Clone(other)
	onA.Fail(0, nil)
	from.Return(loan)
	if err := to.Write(0, mem[:1000], loan, 0); err == nil || !bytes.Equal(other, want) {
		f.Errorf("writing to a member that has failed: %v", err)
	}
}

package coll

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// meetOnBoard makes the board of g.
func meetOnBoard(g *Group) error {
	for range BoardSetup {
		if err := barrier(g); err != nil {
			return err
		}
	}
	if g.Board.On == nil {
		return fmt.Errorf("no board: %+v", &g.Board)
	}
	return nil
}

// What a rank contributes to a step stays until all others have begun the next one, whether it is in a line, in a slot
// or in two, and whatever the steps before and after it have. That is so where one rank writes and is never waited for,
// and where all write and read.
func TestContributionsStay(t *testing.T) {
	run(t, 3, onBoard, func(w *Group) error {
		if err := meetOnBoard(w); err != nil {
			return err
		}
		p := &Plan{Key: Key{ElemSize: 1}, tag: agreeTag}
		s := boardCall{boardState: &w.Board, p: p, n: w.Size, me: w.Rank, first: w.Board.Step, sign: p.signature()}
		lengths := []int{1, LineRoom, LineRoom + 1, s.Slot, s.Slot + 1, 2 * s.Slot}
		same := rand.New(rand.NewPCG(1, 2))
		for i := range 600 {
			n, all := lengths[same.IntN(len(lengths))], i >= 500
			slow, gives := same.IntN(3*s.n), same.IntN(8) != 0 // in most steps no rank is slow, in some none gives
			if !gives {
				s.enter()
				continue
			}
			if fill := byte(s.Step + 1); all || s.me == 0 {
				s.begin(bytes.Repeat([]byte{fill}, n))
			} else {
				s.enter()
			}
			for from := 0; from < s.n; from++ {
				if from == s.me || from != 0 && !all {
					continue
				}
				peer := s.read(from, n)
				if slow == s.me {
					time.Sleep(time.Millisecond) // the others go on as far as they may
				}
				at := slices.IndexFunc(peer, func(b byte) bool { return b != byte(s.Step) })
				if len(peer) != n || at >= 0 {
					return fmt.Errorf("step %d, %d bytes of rank %d: %d at %d", s.Step, n, from, len(peer), at)
				}
			}
			if all {
				s.all()
			}
		}
		if s.err != nil {
			return s.err
		}
		return barrier(w)
	})
}

// What another rank has written may be anything: a call ends, with an error or without, and touches no other memory.
func TestHostileBoard(t *testing.T) {
	if proc.Race {
		t.Skip("it races on purpose")
	}
	run(t, 3, onBoard, func(w *Group) error {
		for i := range 40 {
			g := derive(w, i+1)
			if err := meetOnBoard(g); err != nil {
				return err
			}
			lies := i%4 == 3 // about the call, and not only in what it gives
			if g.Rank == 1 { // it spoils what it is about to publish, and what others have published
				spoil(&g.Board, i, lies)
			}
			var err error
			if g.Rank != 1 || !lies {
				err = barrier(g)
			}
			if (err != nil) != (lies && g.Rank != 1) || err != nil && !errors.Is(err, mpierr.ErrComm) {
				return fmt.Errorf("call %d: %w", i, err)
			}
			g.Free()
		}
		return nil
	})
}

func spoil(s *boardState, i int, lies bool) {
	for k, l := range s.On.Lines {
		if k/boardLines == 1 || i%2 == 0 {
			for b := range l.Bytes[signed:] {
				l.Bytes[signed+b] = byte(i * b)
			}
		}
	}
	if lies {
		next := s.Step + 1
		line := boardLines + int(next%boardDepth)
		s.On.Raise(line, next)
		for b := range signed {
			s.On.Lines[line].Bytes[b] = byte(i * (b + 1))
		}
	}
}

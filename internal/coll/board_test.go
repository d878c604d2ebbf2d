package coll

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/collectives"
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

// Ranks are roomy where each has a CPU, and where all of them have found that.
func TestRoomyIsAgreed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for cpus, roomy := range map[int]bool{2: false, 3: true} {
		runtime.GOMAXPROCS(cpus)
		run(t, 3, onBoard, func(w *Group) error {
			if !w.Board.crowded() {
				return errors.New("ranks without a board are roomy")
			}
			if err := meetOnBoard(w); err != nil {
				return err
			}
			if w.Board.crowded() == roomy {
				return fmt.Errorf("3 ranks on %d CPUs: crowded is %v", cpus, !roomy)
			}
			if first := w.Board.pairs[0].Rank; roomy && first != w.Rank || !roomy && first != 2 {
				return fmt.Errorf("3 ranks on %d CPUs: rank %d is combined first", cpus, first)
			}
			return nil
		})
	}
}

// A call goes by the lines of the table that hold when it has its turn, whichever held when its plan was made: the plan
// of the first call, before there is a board, is the plan of all. A rank that is alone in its choice would wait for
// ever.
func TestRoomyChoice(t *testing.T) {
	run(t, 3, "GORUN_COLL_CHECK=0", func(w *Group) error {
		buf := make([]byte, 16<<10) // roomy ranks send it by messages
		var first *Plan
		for i := range 10 {
			if i >= BoardSetup {
				w.Board.SetCrowded(i%3 == 0)
			}
			buf[len(buf)-1] = byte(i * (1 - min(1, w.Rank)))
			before, messages := w.Board.Step, i < BoardSetup || !w.Board.crowded()
			if err := bcast(w, buf); err != nil {
				return err
			}
			took := w.Board.Step - before
			if i == BoardSetup-1 {
				took-- // in it the ranks have agreed
			}
			if buf[len(buf)-1] != byte(i) || (took == 0) != messages {
				return fmt.Errorf("call %d, by messages %v: %d steps, %d", i, messages, took, buf[len(buf)-1])
			}
			p := w.plans.recent[collectives.Bcast].Load()
			if first == nil {
				first = p
			}
			if p != first {
				return fmt.Errorf("call %d has made another plan", i)
			}
		}
		return nil
	})
}

// A board of no use does not matter to roomy ranks whose call goes by messages: the ranks that do not know yet make it.
func TestRoomyWithoutBoard(t *testing.T) {
	run(t, 3, "GORUN_COLL_CHECK=0", func(w *Group) error {
		if err := meetOnBoard(w); err != nil {
			return err
		}
		w.Board.SetCrowded(false)
		if w.Rank == 1 {
			w.Board.err = errors.New("of no use")
		}
		return bcast(w, make([]byte, 16<<10))
	})
}

package coll

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
)

// The memory in which calls combine is bounded for all communicators together, and the next call finds it.
func TestPlansKept(t *testing.T) {
	run(t, 2, "GORUN_COLL=allreduce:doubling", func(w *Group) error {
		s := &w.Setup.scratch
		kept := func() (last *byte, err error) {
			sum := 0
			for _, b := range s.spare {
				sum += cap(b)
				last = &b[0]
			}
			if int64(sum) != s.bytes || sum > ScratchMost {
				err = fmt.Errorf("%d bytes are kept, counted as %d", sum, s.bytes)
			}
			return last, err
		}
		for i := range 10 {
			g := derive(w, i+1)
			buf := make([]byte, 8*(1<<20<<(i%3)+i))
			first := allreduce(g, buf)
			last, bad := kept()
			second := allreduce(g, buf)
			again, alsoBad := kept()
			if err := errors.Join(first, second, bad, alsoBad); err != nil {
				return err
			}
			if last == nil || last != again {
				return errors.New("the second call has taken other memory than the first")
			}
			if n := g.plans.kept + g.plans.recent[collectives.Allreduce].Load().memory(); n >= recentMost {
				return fmt.Errorf("the plan keeps %d bytes", n)
			}
		}
		if len(s.spare) < 2 {
			return fmt.Errorf("%d blocks are kept", len(s.spare))
		}
		if err := allreduce(w, make([]byte, ScratchMost+8)); err != nil {
			return err
		}
		if s.bytes == 0 {
			return errors.New("a long call has driven out all others")
		}
		_, err := kept()
		return err
	})
}

// Small calls of two lengths by turns find the plan that each has left, whichever was the latest.
func TestPlansByTurns(t *testing.T) {
	run(t, 2, "GORUN_COLL=allreduce:doubling", func(w *Group) error {
		plans := map[*Plan]int{}
		for i := range 12 {
			if err := errors.Join(allreduce(w, make([]byte, 8+8*(i%2))), bcast(w, make([]byte, 1+i%2))); err != nil {
				return err
			}
			for _, o := range []collectives.Operation{collectives.Allreduce, collectives.Bcast} {
				p := w.plans.recent[o].Load()
				if p == nil || p.Operation != o || p.params.Count != int64(1+i%2) {
					return fmt.Errorf("call %d has left %+v", i, p)
				}
				if p.spaces[collectives.Out][:1][0] != nil {
					return fmt.Errorf("call %d: the plan keeps its caller's buffer", i)
				}
				plans[p]++
			}
		}
		if len(plans) != 4 {
			return fmt.Errorf("%d plans for 4 kinds of calls", len(plans))
		}
		return nil
	})
}

// A rank knows by which algorithms its calls were made: one row for all lengths of one algorithm, whatever plans are
// kept.
func TestChosen(t *testing.T) {
	run(t, 2, "GORUN_COLL=allreduce:doubling,bcast:binomial", func(w *Group) error {
		for _, elements := range []int{1, 5, 100, 5} {
			if err := errors.Join(allreduce(w, make([]byte, 8*elements)), bcast(w, make([]byte, elements))); err != nil {
				return err
			}
		}
		want := []Chosen{{collectives.Bcast, "binomial", 1, 100}, {collectives.Allreduce, "doubling", 8, 800}}
		if got := w.Setup.Chosen(); !slices.Equal(got, want) {
			return fmt.Errorf("the calls were made by %+v, want %+v", got, want)
		}
		return nil
	})
}

package truth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/collectives"
)

// slip is what one rank calls in the place of what the others do.
type slip struct {
	call *Call // nil: it splits the communicator
	odd  int   // the rank in the group
	sure bool  // the ranks can see it, whatever the lengths of the blocks are
	late bool  // the ranks look at the result later
}

func (s *slip) String() string {
	if s.call == nil {
		return "a split"
	}
	return s.call.String()
}

// slip draws one: another root, or none of the group, another count, operation, operator, order, type of elements, or
// way, or a call that makes a communicator.
func (p *program) slip(c *Call, g group) *slip {
	n := len(g.members)
	odd, late, k := p.random.IntN(n), p.random.IntN(2) == 0, kinds[c.Kind]
	for {
		its := *c
		switch what := p.random.IntN(9); {
		case what == 0 && rooted(c.Operation):
			its.Root = (c.Root + 1 + p.random.IntN(n-1)) % n
			return &slip{&its, odd, true, late}
		case what == 1 && rooted(c.Operation):
			its.Root = n + p.random.IntN(3)
			return &slip{&its, odd, true, late}
		case what == 2 && c.Operation != collectives.Barrier:
			its.Count += 1 + p.random.IntN(20)
			// Elements of no bytes are not counted.
			return &slip{&its, odd, !unequal(c.Operation) && k.String() != nothing.name, late}
		case what == 3:
			its.Operation = Operations[p.random.IntN(len(Operations))]
			its.InPlace = its.InPlace && InPlace(its.Operation)
			if its.Operation != c.Operation {
				return &slip{&its, odd, true, late}
			}
		case what == 4 && reduces(c.Operation):
			its.Operator++ // operators of users have no names to compare
			if k.named(c.Operator) && k.named(its.Operator) && k.operator(c.Operator) != k.operator(its.Operator) {
				return &slip{&its, odd, true, late}
			}
		case what == 5 && c.Operation != collectives.Barrier:
			its.Kind = (c.Kind + 1 + p.random.IntN(len(kinds)-1)) % len(kinds)
			return &slip{&its, odd, true, late}
		case what == 6 && reduces(c.Operation) && k.named(c.Operator): // these commute
			its.Ordered = !c.Ordered
			return &slip{&its, odd, true, late}
		case what == 7:
			return &slip{nil, odd, true, late}
		case what == 8:
			its.Way = (c.Way + 1 + Way(p.random.IntN(int(Ways)-1))) % Ways
			return &slip{&its, odd, true, late}
		}
	}
}

// verdict is what a rank has of a call.
type verdict byte

const (
	succeeded verdict = iota
	refused
	left // its context has ended before
)

var ofMistakes = []error{mpi.ErrRoot, mpi.ErrCount, mpi.ErrType, mpi.ErrOp, mpi.ErrBuffer, mpi.ErrComm}

// verdictOf is the verdict on a call. A wrong result is an error.
func verdictOf(err error, leaves bool) (verdict, error) {
	var its *mpi.Error
	switch {
	case err == nil:
		return succeeded, nil
	case leaves && errors.Is(err, context.Canceled):
		return left, nil
	case errors.As(err, &its) && slices.Contains(ofMistakes, its.Class):
		return refused, nil
	}
	return 0, fmt.Errorf("not the error of a wrong call: %w", err)
}

// wrong makes a call that one rank makes in another way. All ranks are refused; where it may go together all the same,
// all or none.
func (p *program) wrong(c *Call, g group, s *slip, leaver int) error {
	splits := g.comm.Rank() == s.odd && s.call == nil
	if g.comm.Rank() == s.odd {
		c = s.call
	}
	on, what := g.comm, p.what
	if leaver == p.world {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		on = on.WithContext(ctx)
	}
	finish := func(f *Pending, err error) (verdict, error) {
		if err == nil && f != nil {
			err = f.Finish()
		}
		v, err := verdictOf(err, leaver == p.world)
		if err == nil && s.sure && v == succeeded {
			err = errors.New("no error")
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return v, err
	}
	var f *Pending
	var err error
	if splits {
		_, err = on.Split(0, 0)
	} else {
		f, err = c.Start(on)
	}
	if s.late && s.sure && leaver < 0 {
		if err != nil { // others hear of it as they wait, and no rank makes the call after it here
			_, err = finish(nil, err)
			return err
		}
		p.flights = append(p.flights, flight{g.comm, func() error { _, err := finish(f, nil); return err }})
		return nil
	}
	mine, err := finish(f, err)
	if err != nil {
		return err
	}
	verdicts := make([]verdict, len(g.members))
	if err := mpi.Allgather(g.comm, []verdict{mine}, verdicts); err != nil {
		return fmt.Errorf("the call after it: %w", err)
	}
	verdicts = slices.DeleteFunc(verdicts, func(v verdict) bool { return v == left })
	if slices.Contains(verdicts, succeeded) && slices.Contains(verdicts, refused) {
		return fmt.Errorf("some ranks succeed: %v", verdicts)
	}
	return nil
}

// splitWrongly splits a group where one rank gives a color that is none, or makes another communicator.
func (p *program) splitWrongly(g group, place func(i int) (color, key int)) error {
	odd, dup := p.random.IntN(len(g.members)), p.random.IntN(2) == 0
	p.does("splitting ranks %v, while rank %d of them does it wrongly (by Dup: %v)", g.members, odd, dup)
	if g.comm == nil {
		return nil
	}
	color, key := place(g.comm.Rank())
	var err error
	switch {
	case g.comm.Rank() != odd:
		_, err = g.comm.Split(color, key)
	case dup:
		_, err = g.comm.Dup()
	default:
		_, err = g.comm.Split(-7, key)
	}
	v, err := verdictOf(err, false)
	if err == nil && v == succeeded {
		err = errors.New("no error")
	}
	return err
}

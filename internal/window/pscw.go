package window

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// Epochs of groups; §12.5.2. Post and Complete give a signal to each rank of a group, which Start and Wait there take.
// It is a message, or a bit on the board: a rank gives one to another again only when that has taken the last one.

type signal uint8

const (
	posted signal = iota
	completed
	signals // how many there are
)

func (s signal) tag() int32 { return [...]int32{tagPost, tagComplete}[s] }

// A rank that gets a signal has a line which counts those that have come, and others with a bit for each member.
func linesOfSignal(members int) int { return 1 + (members+63)/64 }

// arrivals is the line that counts the signals of a kind that p's rank gets.
func (p *part) arrivals(s signal) int {
	return p.lines + linesOfLock + int(s)*linesOfSignal(len(p.w.parts))
}

// bit is what from's rank sets to give p's rank a signal.
func (p *part) bit(s signal, from *part) (word *atomic.Uint64, mask uint64) {
	return &p.w.board.Lines[p.arrivals(s)+1+from.place/64].Word, 1 << (from.place % 64)
}

// tell gives a signal to each rank of a group. No rank waits for a receiver.
func (w *Window) tell(ctx context.Context, op string, s signal, group []int32) error {
	if w.mapped {
		me := w.parts[w.group.Rank]
		for _, r := range group {
			p := w.parts[r]
			word, mask := p.bit(s, me)
			word.Or(mask)
			line := p.arrivals(s)
			w.board.Lines[line].Word.Add(1) // behind the bit, which a rank looks for when this has changed
			w.board.Wake(line)
		}
		return nil
	}
	var errs []error
	for _, r := range group { // all of them: one that has failed is no reason for the others to wait
		err := w.group.Engine.Send(ctx, w.messages(), w.group.ToWorld(int(r)), s.tag(), nil, pml.Standard)
		errs = append(errs, w.group.Wrap(op, int(r), ranks.Undefined, err))
	}
	return errors.Join(errs...)
}

// taken takes signals, and returns the ranks of a group whose signal has not come, in the place of the group. It does
// not wait.
func (w *Window) taken(op string, s signal, group []int32) (left []int32, err error) {
	left = group[:0]
	for i, r := range group {
		came := false
		if w.mapped {
			if word, mask := w.parts[w.group.Rank].bit(s, w.parts[r]); word.Load()&mask != 0 {
				word.And(^mask)
				came = true
			}
		} else if came, err = w.look(op, s, int(r)); err != nil {
			return append(left, group[i:]...), err
		}
		if !came {
			left = append(left, r)
		}
	}
	return left, nil
}

// look takes the message of a signal that has come.
func (w *Window) look(op string, s signal, rank int) (came bool, err error) {
	e, from := w.group.Engine, w.group.ToWorld(rank)
	if _, _, came, err = e.Iprobe(w.messages(), from, s.tag(), false); came && err == nil {
		_, err = e.Recv(nil, w.messages(), from, s.tag(), nil)
	}
	return came, w.group.Wrap(op, rank, ranks.Undefined, err)
}

// hear returns when the signals of all ranks of a group have come. Otherwise left are those of which none has, in the
// place of the group: ctx has ended, or the first of them is gone.
func (w *Window) hear(ctx context.Context, op string, s signal, group []int32) (left []int32, err error) {
	if !w.mapped {
		for i, r := range group {
			_, err := w.group.Engine.Recv(ctx, w.messages(), w.group.ToWorld(int(r)), s.tag(), nil)
			if err != nil {
				return group[i:], w.group.Wrap(op, int(r), ranks.Undefined, err)
			}
		}
		return nil, nil
	}
	line := w.parts[w.group.Rank].arrivals(s)
	for {
		count := w.board.Lines[line].Word.Load()
		if group, _ = w.taken(op, s, group); len(group) == 0 {
			return nil, nil
		}
		from := make([]int32, len(group))
		for i, r := range group {
			from[i] = int32(w.group.ToWorld(int(r)))
		}
		if err := w.await(ctx, line, count+1, from); err != nil {
			return w.goneFirst(op, group, err)
		}
	}
}

// goneFirst puts a rank of a group first that is gone, if one is, and names it in the error.
func (w *Window) goneFirst(op string, group []int32, err error) ([]int32, error) {
	var failed *pml.PeerError // of a member of the board: the engine may not know of it yet
	at := slices.IndexFunc(group, func(r int32) bool {
		return errors.As(err, &failed) && w.group.ToWorld(int(r)) == failed.Rank || w.gone(r) != nil
	})
	if at < 0 {
		return group, w.group.Wrap(op, ranks.Undefined, ranks.Undefined, err)
	}
	group[0], group[at] = group[at], group[0]
	return group, w.group.Wrap(op, int(group[0]), ranks.Undefined, err)
}

func (w *Window) gone(r int32) error { return w.group.Engine.Gone(w.group.ToWorld(int(r))) }

// Start opens an epoch for the ranks of a group, of the window, when each of them has called Post.
func (w *Window) Start(ctx context.Context, group []int32) error {
	const op = "Start"
	var due []int32 // without those that a Start has heard before
	err := w.change(op, ranks.Undefined, func(e *rma.Epochs) error {
		for _, r := range group {
			if !slices.Contains(w.early, r) {
				due = append(due, r)
			}
		}
		return e.Start(group)
	})
	if err != nil {
		return err
	}
	left, err := w.hear(ctx, op, posted, due)
	if err == nil {
		if w.mapped {
			w.allow(group, accessStarted)
		}
		return w.change(op, ranks.Undefined, func(*rma.Epochs) error {
			w.early = slices.DeleteFunc(w.early, func(r int32) bool { return slices.Contains(group, r) })
			return nil
		})
	}
	w.change(op, ranks.Undefined, func(e *rma.Epochs) error {
		for _, r := range group {
			if !slices.Contains(left, r) && !slices.Contains(w.early, r) {
				w.early = append(w.early, r)
			}
		}
		_, err := e.Complete()
		return err
	})
	return err
}

// allow notes why operations at the ranks of a group are allowed, in mapped memory.
func (w *Window) allow(group []int32, access uint32) {
	for _, r := range group {
		w.parts[r].access.Store(access)
	}
}

// Complete ends the epoch of Start. If ctx ends first, that goes on in the background: other ranks wait for it.
func (w *Window) Complete(ctx context.Context) error {
	const op = "Complete"
	var group []int32
	err := w.change(op, ranks.Undefined, func(e *rma.Epochs) (err error) {
		group, err = e.Complete()
		return err
	})
	if err != nil {
		return err
	}
	if w.mapped { // where the operations are over
		w.allow(group, accessNone)
		return w.tell(nil, op, completed, group)
	}
	if ctx == nil {
		return w.finishGroup(op, group)
	}
	return w.finish(ctx, op, ranks.Undefined, func() error { return w.finishGroup(op, group) })
}

// finishGroup returns when the operations at a group are complete there, and tells it so.
func (w *Window) finishGroup(op string, group []int32) (err error) {
	for _, r := range group {
		if failed := w.flush(op, int(r)); err == nil {
			err = failed
		}
	}
	return errors.Join(err, w.tell(nil, op, completed, group))
}

// Post opens an epoch in which the ranks of a group, of the window, may make operations at this rank.
func (w *Window) Post(ctx context.Context, group []int32) error {
	const op = "Post"
	if err := w.change(op, ranks.Undefined, func(e *rma.Epochs) error { return e.Post(group) }); err != nil {
		return err
	}
	return w.tell(ctx, op, posted, group)
}

// Wait ends the epoch of Post when the ranks of its group have called Complete, or are gone.
func (w *Window) Wait(ctx context.Context) error {
	_, err := w.wait(ctx, "Wait", w.hear)
	return err
}

// Test is Wait that does not wait. It reports whether the epoch is over.
func (w *Window) Test() (bool, error) {
	return w.wait(nil, "Test", func(_ context.Context, op string, s signal, group []int32) ([]int32, error) {
		left, err := w.taken(op, s, group)
		if err == nil && len(left) > 0 && w.mapped { // the engine goes on, and asks a rank whether it has returned
			_, err = w.look(op, s, int(left[0]))
		}
		return left, err
	})
}

// wait takes the ranks off the group of Post that have called Complete, as from says, or that are gone.
func (w *Window) wait(ctx context.Context, op string,
	from func(ctx context.Context, op string, s signal, group []int32) ([]int32, error)) (bool, error) {
	var left []int32
	err := w.change(op, ranks.Undefined, func(e *rma.Epochs) error {
		group, err := e.Posted()
		left = slices.Clone(group)
		return err
	})
	if err != nil {
		return false, err
	}
	var errs []error
	for {
		left, err = from(ctx, op, completed, left)
		errs = append(errs, err)
		if len(left) == 0 || !errors.Is(err, mpierr.ErrPeerFailed) {
			break
		}
		left = left[1:] // it calls nothing any more
	}
	err = errors.Join(errs...)
	over := len(left) == 0
	return over, errors.Join(err, w.change(op, ranks.Undefined, func(e *rma.Epochs) error {
		if e.Remain(left); over {
			e.Waited()
		}
		return nil
	}))
}

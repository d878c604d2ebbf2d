package window

import (
	"context"
	"errors"
	"slices"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// Epochs of groups; §12.5.2. Post and Complete give a signal to each rank of a group, which Start and Wait there take.
// It is a message, or a change of a word (signals.go): a rank gives one to another again only when that has taken the
// last one.

type signal uint8

const (
	posted signal = iota
	completed
	signals // how many there are
)

func (s signal) tag() int32 { return [...]int32{tagPost, tagComplete}[s] }

// send gives a signal to each rank of a group of a window that is not mapped. No rank waits for a receiver.
func (w *Window) send(op string, s signal, group []int32) error {
	var errs []error
	for _, r := range group { // all of them: one that has failed is no reason for the others to wait
		err := w.group.Engine.Send(nil, w.messages(), w.group.ToWorld(int(r)), s.tag(), nil, pml.Standard)
		errs = append(errs, w.group.Wrap(op, int(r), ranks.Undefined, err))
	}
	return errors.Join(errs...)
}

// taken takes messages, and returns the ranks of a group whose message has not come, in the place of the group. It does
// not wait. With an error the rank that is gone is the first.
func (w *Window) taken(op string, s signal, group []int32) (left []int32, err error) {
	left = group[:0]
	for i, r := range group {
		came, err := w.look(op, s, int(r))
		if err != nil {
			return slices.Concat([]int32{r}, left, group[i+1:]), err
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

// receive returns when the messages of all ranks of a group have come. Otherwise left are the ranks whose message has
// not, in the place of the group: ctx has ended, or the first of them is gone.
func (w *Window) receive(ctx context.Context, op string, s signal, group []int32) (left []int32, err error) {
	for i, r := range group {
		_, err := w.group.Engine.Recv(ctx, w.messages(), w.group.ToWorld(int(r)), s.tag(), nil)
		if err != nil {
			return group[i:], w.group.Wrap(op, int(r), ranks.Undefined, err)
		}
	}
	return nil, nil
}

// goneFirst puts a rank of a group first that is gone, if one is, and names it in the error.
func (w *Window) goneFirst(op string, group []int32, err error) ([]int32, error) {
	var failed *pml.PeerError
	errors.As(err, &failed)
	at := slices.IndexFunc(group, func(r int32) bool { return w.isGone(r, failed) })
	if at < 0 {
		return group, w.group.Wrap(op, ranks.Undefined, ranks.Undefined, err)
	}
	group[0], group[at] = group[at], group[0]
	return group, w.group.Wrap(op, int(group[0]), ranks.Undefined, err)
}

// isGone reports whether a rank is gone. by may name it: of a member of the board the engine may not know it yet.
func (w *Window) isGone(r int32, by *pml.PeerError) bool {
	rank := w.group.ToWorld(int(r))
	return by != nil && by.Rank == rank || w.group.Engine.Gone(rank) != nil
}

// Start opens an epoch for the ranks of a group, of the window, when each of them has called Post.
func (w *Window) Start(ctx context.Context, group []int32) error {
	const op = "Start"
	if w.mapped {
		return w.startMapped(ctx, op, group)
	}
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
	left, err := w.receive(ctx, op, posted, due)
	if err == nil {
		return w.change(op, ranks.Undefined, func(e *rma.Epochs) error {
			e.StartReturns(true)
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
		e.StartReturns(false)
		return nil
	})
	return err
}

// Complete ends the epoch of Start. If ctx ends first, that goes on in the background: other ranks wait for it.
func (w *Window) Complete(ctx context.Context) error {
	const op = "Complete"
	if w.mapped {
		return w.completeMapped(op)
	}
	var group []int32
	err := w.change(op, ranks.Undefined, func(e *rma.Epochs) (err error) {
		group, err = e.Complete()
		return err
	})
	if err != nil {
		return err
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
	return errors.Join(err, w.send(op, completed, group))
}

// Post opens an epoch in which the ranks of a group, of the window, may make operations at this rank. If ctx ends
// first, the ranks hear of that in the background: Wait waits for them.
func (w *Window) Post(ctx context.Context, group []int32) error {
	const op = "Post"
	if w.mapped {
		return w.postMapped(op, group)
	}
	if err := w.change(op, ranks.Undefined, func(e *rma.Epochs) error { return e.Post(group) }); err != nil {
		return err
	}
	if ctx == nil {
		return w.send(op, posted, group)
	}
	return w.finish(ctx, op, ranks.Undefined, func() error { return w.send(op, posted, group) })
}

// Wait ends the epoch of Post when the ranks of its group have called Complete, or are gone.
func (w *Window) Wait(ctx context.Context) error {
	if w.mapped {
		_, err := w.waitMapped(ctx, "Wait", true)
		return err
	}
	_, err := w.wait(ctx, "Wait", w.receive)
	return err
}

// Test is Wait that does not wait. It reports whether the epoch is over.
func (w *Window) Test() (bool, error) {
	if w.mapped {
		return w.waitMapped(nil, "Test", false)
	}
	return w.wait(nil, "Test", func(_ context.Context, op string, s signal, group []int32) ([]int32, error) {
		return w.taken(op, s, group)
	})
}

// wait takes the ranks off the group of Post that have called Complete, as from says, or that are gone.
func (w *Window) wait(ctx context.Context, op string,
	from func(ctx context.Context, op string, s signal, group []int32) ([]int32, error)) (bool, error) {
	var left []int32
	err := w.change(op, ranks.Undefined, func(e *rma.Epochs) error {
		group, err := e.Waits()
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

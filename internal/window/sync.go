package window

import (
	"context"
	"errors"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// Fence ends the operations of all ranks, and begins an epoch for more; §12.5.1.
func (w *Window) Fence(ctx context.Context) error {
	const op = "Fence"
	if err := w.change(op, ranks.Undefined, (*rma.Epochs).Fence); err != nil {
		return err
	}
	return errors.Join(w.flushAll(op), w.barrier(ctx, op)) // other ranks count on this one, also after an error
}

// barrier returns when all ranks have called it. An operation that a rank has made before is there for all ranks then.
func (w *Window) barrier(ctx context.Context, op string) error {
	key := coll.Key{Operation: collectives.Barrier, ElemSize: 1, Commutative: true}
	err := w.group.Plan(coll.Blocking, &key, nil, nil).Perform(ctx)
	var barrier *mpierr.Error
	if errors.As(err, &barrier) {
		own := *barrier
		own.Op = op
		return &own
	}
	return err
}

// Start opens an epoch for the ranks of a group, of the window, when each of them has called Post; §12.5.2.
func (w *Window) Start(ctx context.Context, group []int32) error {
	const op = "Start"
	if err := w.change(op, ranks.Undefined, func(e *rma.Epochs) error { return e.Start(group) }); err != nil {
		return err
	}
	for _, r := range group {
		if err := w.hear(ctx, op, int(r), tagPost); err != nil {
			return err
		}
	}
	return nil
}

// Complete ends the epoch of Start.
func (w *Window) Complete() error {
	const op = "Complete"
	var group []int32
	err := w.change(op, ranks.Undefined, func(e *rma.Epochs) (err error) {
		group, err = e.Complete()
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range group {
		if failed := w.flush(op, int(r)); err == nil {
			err = failed
		}
	}
	return errors.Join(err, w.tell(nil, op, group, tagComplete)) // other ranks wait for it, whatever ctx says
}

// Post opens an epoch in which the ranks of a group, of the window, may make operations at this rank; §12.5.2.
func (w *Window) Post(ctx context.Context, group []int32) error {
	const op = "Post"
	if err := w.change(op, ranks.Undefined, func(e *rma.Epochs) error { return e.Post(group) }); err != nil {
		return err
	}
	return w.tell(ctx, op, group, tagPost)
}

// Wait ends the epoch of Post when the ranks of its group have called Complete.
func (w *Window) Wait(ctx context.Context) error {
	_, err := w.wait(ctx, "Wait", func(op string, rank int) (bool, error) {
		return true, w.hear(ctx, op, rank, tagComplete)
	})
	return err
}

// Test is Wait that does not wait. It reports whether the epoch is over.
func (w *Window) Test() (bool, error) {
	return w.wait(nil, "Test", func(op string, rank int) (bool, error) {
		_, _, there, err := w.group.Engine.Iprobe(w.messages(), w.group.ToWorld(rank), tagComplete, false)
		if err != nil || !there {
			return false, w.group.Wrap(op, rank, ranks.Undefined, err)
		}
		return true, w.hear(nil, op, rank, tagComplete)
	})
}

// wait takes the ranks off the group of Post that have called Complete, as from says.
func (w *Window) wait(ctx context.Context, op string, from func(op string, rank int) (bool, error)) (bool, error) {
	var group []int32
	err := w.change(op, ranks.Undefined, func(e *rma.Epochs) (err error) {
		group, err = e.Posted()
		return err
	})
	if err != nil {
		return false, err
	}
	for i, r := range group {
		done, err := from(op, int(r))
		if !done || err != nil {
			return false, errors.Join(err, w.change(op, ranks.Undefined, func(e *rma.Epochs) error {
				e.Remain(group[i:])
				return nil
			}))
		}
	}
	return true, w.change(op, ranks.Undefined, func(e *rma.Epochs) error { e.Waited(); return nil })
}

// hear receives a message without content.
func (w *Window) hear(ctx context.Context, op string, rank int, tag int32) error {
	_, err := w.group.Engine.Recv(ctx, w.messages(), w.group.ToWorld(rank), tag, nil)
	return w.group.Wrap(op, rank, ranks.Undefined, err)
}

// tell sends one to each rank of a group. Post and Complete do not wait for a receiver.
func (w *Window) tell(ctx context.Context, op string, group []int32, tag int32) error {
	var errs []error
	for _, r := range group { // all of them: one that has failed is no reason for the others to wait
		err := w.group.Engine.Send(ctx, w.messages(), w.group.ToWorld(int(r)), tag, nil, pml.Standard)
		errs = append(errs, w.group.Wrap(op, int(r), ranks.Undefined, err))
	}
	return errors.Join(errs...)
}

// Flush returns when this rank's operations at a rank are complete there; §12.5.4. In mapped memory they are.
func (w *Window) Flush(op string, rank int) error {
	if w.passive.Load() && uint(rank) < uint(w.group.Size) {
		return nil
	}
	if err := w.change(op, rank, func(e *rma.Epochs) error { return e.Flush(int32(rank)) }); err != nil {
		return err
	}
	return w.flush(op, rank)
}

// FlushAll is Flush of all ranks.
func (w *Window) FlushAll(op string) error {
	if err := w.change(op, ranks.Undefined, (*rma.Epochs).FlushAll); err != nil {
		return err
	}
	return w.flushAll(op)
}

// FlushLocal returns when the buffers of this rank's operations at a rank are the caller's again.
func (w *Window) FlushLocal(op string, rank int) error {
	if w.passive.Load() && uint(rank) < uint(w.group.Size) {
		return nil
	}
	if err := w.change(op, rank, func(e *rma.Epochs) error { return e.Flush(int32(rank)) }); err != nil || w.mapped {
		return err
	}
	return w.settled(op, rank)
}

// FlushLocalAll is FlushLocal of all ranks.
func (w *Window) FlushLocalAll(op string) error {
	if err := w.change(op, ranks.Undefined, (*rma.Epochs).FlushAll); err != nil {
		return err
	}
	return w.eachRemote(func(rank int, _ *Remote) error { return w.settled(op, rank) })
}

// Sync orders the loads and stores of this rank; §12.5.4. Taking the lock does.
func (w *Window) Sync() error {
	return w.change("Sync", ranks.Undefined, func(*rma.Epochs) error { return nil })
}

// Free ends the window when all ranks have called it; §12.2.5. first: this is the call that does so, and its caller
// frees the communicator.
func (w *Window) Free(ctx context.Context) (first bool, err error) {
	const op = "Free"
	err = w.change(op, ranks.Undefined, func(e *rma.Epochs) error {
		err := e.Free()
		if err == nil {
			w.state = freeing
		}
		return err
	})
	if err != nil {
		return false, err
	}
	w.Open.Store(false)
	w.passive.Store(false)
	return true, errors.Join(w.flushAll(op), w.barrier(ctx, op))
}

// Close gives the memory back when no message of another rank touches it: such a rank may live although Free has
// failed. No call uses it.
func (w *Window) Close() {
	w.mu.Lock()
	first := w.state != freed
	w.state = freed
	w.Open.Store(false)
	w.passive.Store(false)
	w.mu.Unlock()
	switch {
	case !first || w.board == nil:
	case w.served == nil:
		w.board.Close()
	default:
		w.served.port.WhenIdle(w.board.Close)
	}
}

// Notify sends a note to a rank, behind this rank's operations there.
func (w *Window) Notify(ctx context.Context, op string, rank int, note []byte) error {
	if err := w.flush(op, rank); err != nil {
		return err
	}
	err := w.group.Engine.Send(ctx, w.messages(), w.group.ToWorld(rank), tagNote, note, pml.Standard)
	return w.group.Wrap(op, rank, ranks.Undefined, err)
}

// WaitNote receives a note, and says from which rank it is.
func (w *Window) WaitNote(ctx context.Context, op string, note []byte) (rank int, err error) {
	if err := w.change(op, ranks.Undefined, func(*rma.Epochs) error { return nil }); err != nil {
		return ranks.Undefined, err
	}
	st, err := w.group.Engine.Recv(ctx, w.messages(), pml.AnySource, tagNote, note)
	if err != nil {
		return ranks.Undefined, w.group.Wrap(op, ranks.Undefined, ranks.Undefined, err)
	}
	return w.group.RankOf(st.Source), nil
}

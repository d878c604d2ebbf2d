package window

import (
	"context"
	"encoding/binary"
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
	if w.mapped {
		return w.meetAll(ctx, op)
	}
	before, over := w.nextFence(ctx != nil)
	if ctx == nil {
		return w.fence(op, before, over)
	}
	return w.finish(ctx, op, ranks.Undefined, func() error { return w.fence(op, before, over) })
}

// fence is Fence of a window that is not mapped. It follows the fence that closes before. Other ranks count on this
// one, also after an error.
func (w *Window) fence(op string, before, over chan struct{}) error {
	if over != nil {
		defer close(over)
	}
	if before != nil {
		<-before
	}
	return errors.Join(w.flushAll(op), w.barrier(nil, op))
}

// nextFence returns what the Fence before this one closes, and what this one is to close. If its context may end it
// goes on in the background: then the next one must not overtake it.
func (w *Window) nextFence(mayEnd bool) (before, over chan struct{}) {
	if mayEnd {
		over = make(chan struct{})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before, w.fences = w.fences, over
	return before, over
}

// meetAll is barrier in mapped memory. Each rank counts its calls in a word of its own, and waits for the words of all.
func (w *Window) meetAll(ctx context.Context, op string) error {
	count := w.own.word(lineFences).Add(1)
	w.board.Wake(w.own.lines + int(lineFences))
	if ctx != nil && ctx.Err() != nil {
		return w.wrap(op, ranks.Undefined, ctx.Err())
	}
	// Each rank begins with another one, so not all of them look at one word at a time.
	for _, parts := range [][]*part{w.parts[w.own.rank+1:], w.parts[:w.own.rank]} {
		for _, p := range parts {
			line := p.lines + int(lineFences)
			for p.word(lineFences).Load() < count && !w.board.Spin(line, count) {
				_, err := w.sleep(ctx, op, line, count, func() []int32 { return w.behind(count) })
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// behind are the ranks that have called meetAll less often than so.
func (w *Window) behind(count uint64) (left []int32) {
	for i, p := range w.parts {
		if p.word(lineFences).Load() < count {
			left = append(left, int32(i))
		}
	}
	return left
}

// barrier returns when all ranks have called it. An operation that a rank has made before is there for all ranks then.
func (w *Window) barrier(ctx context.Context, op string) error {
	if w.mapped {
		return w.meetAll(ctx, op)
	}
	key := coll.Key{Operation: collectives.Barrier, ElemSize: 1, Commutative: true}
	err := w.group.Plan(coll.Blocking, &key, nil, nil).Perform(ctx)
	if err == nil {
		return nil
	}
	var barrier *mpierr.Error
	if errors.As(err, &barrier) {
		own := *barrier
		own.Op = op
		return &own
	}
	return err
}

// nothing reports whether there is nothing to flush at a rank, and Flush is allowed.
func (w *Window) nothing(rank int) bool {
	if uint(rank) >= uint(len(w.parts)) ||
		!w.passive.Load() && !w.short.isOf(rank) && w.parts[rank].access.Load() != accessLocked {
		return false
	}
	w.order()
	return true
}

// order has what this rank has stored be there before it loads anything more: a processor may load first, also on
// amd64. An atomic store and a load behind it are in order, and each keeps its side of what is before and behind them.
func (w *Window) order() {
	w.barred.Store(true)
	w.barred.Load()
}

// Flush returns when this rank's operations at a rank are complete there; §12.5.4. In mapped memory they are.
func (w *Window) Flush(ctx context.Context, op string, rank int) error {
	if w.nothing(rank) {
		return nil
	}
	if err := w.change(op, rank, func(e *rma.Epochs) error { return e.Flush(int32(rank)) }); err != nil {
		return err
	}
	w.order()
	return w.flushWithin(ctx, op, rank)
}

// FlushAll is Flush of all ranks.
func (w *Window) FlushAll(ctx context.Context, op string) error {
	if err := w.change(op, ranks.Undefined, (*rma.Epochs).FlushAll); err != nil {
		return err
	}
	w.order()
	return w.flushAllWithin(ctx, op)
}

// FlushLocal returns when the buffers of this rank's operations at a rank are the caller's again.
func (w *Window) FlushLocal(ctx context.Context, op string, rank int) error {
	if w.nothing(rank) {
		return nil
	}
	if err := w.change(op, rank, func(e *rma.Epochs) error { return e.Flush(int32(rank)) }); err != nil || w.mapped {
		return err
	}
	return w.settled(ctx, op, rank)
}

// FlushLocalAll is FlushLocal of all ranks.
func (w *Window) FlushLocalAll(ctx context.Context, op string) error {
	if err := w.change(op, ranks.Undefined, (*rma.Epochs).FlushAll); err != nil {
		return err
	}
	return w.eachRemote(func(rank int, _ *Remote) error { return w.settled(ctx, op, rank) })
}

// Sync orders the loads and stores of this rank; §12.5.4.
func (w *Window) Sync() error {
	w.order()
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
	end := func() error {
		w.awaitLate()
		return errors.Join(w.quiesce(op), w.flushAll(op), w.depart(op))
	}
	switch {
	case ctx == nil:
		return true, end()
	case w.mapped:
		return true, w.barrier(ctx, op)
	}
	done := w.group.InBackground(op, end) // for which Free does not wait, unlike background
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return true, w.wrap(op, ranks.Undefined, err)
}

// Stays reports whether requests are to be answered as long as this rank lives: ranks may live that have not freed the
// window, since its Free has failed.
func (w *Window) Stays() bool { return w.served != nil && !w.departed.Load() }

// Close gives the memory back when no message of another rank touches it. No call uses it. stays: requests may come.
func (w *Window) Close(stays bool) {
	w.mu.Lock()
	w.takeOver()
	first := w.state != freed
	w.state = freed
	w.Open.Store(false)
	w.passive.Store(false)
	w.mu.Unlock()
	switch {
	case !first:
	case w.served != nil:
		w.giveBack(stays)
	case w.board != nil:
		w.board.Close()
	}
}

// PutNotify is Put and Notify.
func (w *Window) PutNotify(ctx context.Context, op string, r *Remote, rank int, at int64, src, note []byte) error {
	if l := r.link.Load(); l != nil && w.caughtUp(r) {
		ok, err := l.PutNote(ctx, src, at*int64(w.elem), binary.LittleEndian.Uint32(note))
		if ok {
			return w.wrap(op, rank, err)
		}
	}
	if err := w.Put(ctx, op, r, rank, at, src); err != nil {
		return err
	}
	return w.Notify(ctx, op, rank, note)
}

// caughtUp reports whether all that a rank has been asked by requests is done.
func (w *Window) caughtUp(r *Remote) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return r.handled == r.sent && r.moves == 0
}

// Notify sends a note to a rank, behind this rank's operations there.
func (w *Window) Notify(ctx context.Context, op string, rank int, note []byte) error {
	if err := w.flushWithin(ctx, op, rank); err != nil {
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
	for {
		st, err := w.group.Engine.Recv(ctx, w.messages(), pml.AnySource, tagNote, note)
		if err != nil && !errors.Is(err, pml.ErrTruncate) {
			return ranks.Undefined, w.wrap(op, ranks.Undefined, err)
		}
		size := st.Bytes
		if long := new(pml.TruncateError); errors.As(err, &long) {
			size = long.Size
		}
		switch rank = w.group.RankOf(st.Source); {
		case rank < 0: // of no rank of the window
		case size != int64(len(note)):
			return rank, w.fail(op, mpierr.ErrAborted, rank, "the rank has sent a note of %d bytes; a note has %d",
				size, len(note))
		default:
			return rank, nil
		}
	}
}

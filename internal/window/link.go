package window

import (
	"context"
	"errors"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// Where the link to a rank reads and writes memory there by itself, puts and gets are operations of the link, and the
// rank has no part in them. Its answer to the first request lends this rank the memory. Everything else, and what the
// link refuses, goes by messages.

// borrow asks a rank about its memory, and finds the link that reaches it, or nil.
func (w *Window) borrow(op string, rank int) (m rma.Region, link *pml.Reach, err error) {
	var b [rma.RegionSize]byte
	if err := w.ask(op, rank, &rma.Request{Kind: rma.Info}, nil, b[:]); err != nil {
		return m, nil, err
	}
	if err := m.Decode(b[:]); err != nil {
		return m, nil, w.fail(op, mpierr.ErrAborted, rank, "%w", err)
	}
	lent := pml.Lent{Addr: m.Addr, Key: m.Key, Reads: m.Reads, Writes: m.Writes, Steps: m.Steps, ByDevice: m.ByDevice,
		Notes: m.Notes}
	return m, w.group.Engine.Reach(w.group.ToWorld(rank), lent), nil
}

// flushLink returns when the link's operations at a rank are over, and so complete there. ended: ctx has ended before.
func (w *Window) flushLink(ctx context.Context, op string, rank int, r *Remote) (ended bool, err error) {
	l := r.link.Load()
	if l == nil {
		return false, nil
	}
	err = l.Flush(ctx)
	return ctx != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()), w.wrap(op, rank, err)
}

// lend answers Info.
func (s *served) lend(source, slot int32) {
	own := s.w.own
	s.port.Lend(source, own.mem, func(l pml.Lent) {
		m := rma.Region{Count: own.count, Addr: l.Addr, Key: l.Key, Reads: l.Reads, Writes: l.Writes, Steps: l.Steps,
			ByDevice: l.ByDevice, Notes: l.Notes}
		s.answer(source, slot, rma.Answer{}, len(m.Append(s.out[rma.AnswerSize:rma.AnswerSize])))
	})
}

// depart is the last barrier of a window: when it is over no rank makes an operation any more. It is not so after the
// failure of a rank: others may have left out calls, and may make calls that need this one, which answers no more.
// These end.
func (w *Window) depart(op string) error {
	err := w.barrier(nil, op)
	if err == nil && !w.group.HasLost() {
		w.departed.Store(true)
		return nil
	}
	if !w.mapped {
		w.group.Group.Revoke()
	}
	if errors.Is(err, mpierr.ErrRevoked) {
		err = w.fail(op, mpierr.ErrPeerFailed, ranks.Undefined, "a rank has failed, and another one has freed the window")
	}
	return err
}

// giveBack ends what other ranks may do with the memory of this one, and gives the memory back. If some of them may not
// have freed the window, since its last barrier has failed, a link that reaches the memory does so as long as this rank
// lives: without the key the next operation of such a rank would break the link.
func (w *Window) giveBack() {
	port := w.served.port
	if w.accel != nil {
		port.WhenIdle(w.accel.Release)
		return
	}
	if !w.departed.Load() && port.Keep() {
		return
	}
	port.Withdraw()
	if w.board != nil {
		port.WhenIdle(w.board.Close)
	}
}

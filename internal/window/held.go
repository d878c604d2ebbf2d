package window

import (
	"context"

	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// A short Put, or an Accumulate, at a rank that is asked has no answer, and an operation need not be at its target
// before a call of the origin completes it (MPI 4.1 §12.5). So the window holds the last such request for each rank: a
// Flush or an Unlock that follows goes in one message with it (rma.Request.Then), and is answered when it is done. Any
// other request to the rank sends it first, so requests keep their order.

// hold makes an operation of a request with elements. It copies them, so the buffer is the caller's.
func (w *Window) hold(ctx context.Context, op string, rank int, r *Remote, want *rma.Request, elements []byte) error {
	if ctx != nil && ctx.Err() != nil {
		return w.wrap(op, rank, ctx.Err())
	}
	s := w.take()
	s.want = *want
	s.out = append(want.Append(s.out[:0]), elements...)
	r.order.Lock()
	m, before := w.sendHeld(rank, r)
	r.held.Store(s)
	w.began(r)
	r.order.Unlock()
	if m == nil {
		return nil
	}
	_, err := w.awaitSent(ctx, op, rank, m, before) // so a program has no more under way than the rank has granted
	return err
}

// sendHeld begins to send what is held for a rank; nil: nothing is. r.order is held: no later request of another
// goroutine overtakes it.
func (w *Window) sendHeld(rank int, r *Remote) (m *pml.Request, s *scratch) {
	if s = r.held.Load(); s != nil {
		m = w.startRequest(rank, s)
		r.held.Store(nil)
	}
	return m, s
}

// release sends what is held for a rank, since another request follows.
func (w *Window) release(ctx context.Context, op string, rank int, r *Remote) error {
	if r.held.Load() == nil {
		return nil
	}
	r.order.Lock()
	m, s := w.sendHeld(rank, r)
	r.order.Unlock()
	if m == nil {
		return nil
	}
	_, err := w.awaitSent(ctx, op, rank, m, s)
	return err
}

// askEnd sends a Flush or an Unlock, in one message with what is held for the rank, and waits for the answer.
func (w *Window) askEnd(ctx context.Context, op string, rank int, far *Remote, kind rma.Kind) error {
	want := rma.Request{Kind: kind}
	if far.held.Load() == nil {
		return w.askWithin(ctx, op, rank, &want, nil, nil)
	}
	if err := enter(ctx, far.asks); err != nil {
		return w.wrap(op, rank, err)
	}
	if ctx != nil && ctx.Err() != nil {
		<-far.asks
		return w.wrap(op, rank, ctx.Err())
	}
	far.order.Lock()
	s := far.held.Load()
	if s == nil { // another goroutine has sent it
		far.order.Unlock()
		<-far.asks
		return w.askWithin(ctx, op, rank, &want, nil, nil)
	}
	want.Slot = w.slot(tagAnswers)
	s.want.Then, s.want.Slot = kind, want.Slot
	s.want.Append(s.out[:0])
	m, _ := w.sendHeld(rank, far)
	far.order.Unlock()
	in, from := w.take(), w.group.ToWorld(rank)
	if ctx != nil {
		answer := w.group.Engine.Irecv(nil, w.requests(), from, want.Slot, in.in[:])
		sent, err := w.awaitSent(ctx, op, rank, m, s)
		return w.awaitAnswer(ctx, op, rank, &want, asked{answer, in, far.asks, sent, err}, nil)
	}
	defer w.give(in, far.asks)
	if _, err := w.awaitSent(nil, op, rank, m, s); err != nil {
		return err
	}
	st, err := w.group.Engine.Recv(nil, w.requests(), from, want.Slot, in.in[:])
	if err != nil {
		return w.wrap(op, rank, err)
	}
	return w.answered(op, rank, &want, in.in[:st.Bytes], nil)
}

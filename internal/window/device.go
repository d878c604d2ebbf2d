package window

import (
	"context"
	"encoding/binary"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// Atomic steps by a device, in a window that asks for them (Spec.NIC). A device need not be atomic with respect to a
// CPU. So the device of the rank that has the memory makes all steps there. A link has it make them by itself. A rank
// that has no such link sends a request, and the rank has its own device make the step. Where a rank's device cannot,
// CPUs make all steps on the memory of this rank, as in any other window.
//
// A device adds, and compares and swaps. Another operator is a read and then compare-and-swaps, until one succeeds.

// stepBytes is how many bytes an element has.
const stepBytes = 8

// stepByDevice has the device make the steps on this rank's memory, if it can.
func (w *Window) stepByDevice() {
	w.device = w.served.port.StepByDevice(w.own.mem)
}

// stepsByDevice reports whether the device of a rank that this one knows makes all steps on its memory.
func (w *Window) stepsByDevice(r *Remote) bool { return w.nic && r != nil && r.device }

// unguarded is the Guard of memory that no other rank knows.
type unguarded struct{}

func (unguarded) Begin(bool) error { return nil }
func (unguarded) End(bool)         {}
func (unguarded) Worth(int) bool   { return false }

// next is what an operator makes of an element. It uses tmp. ok: there is such an operator.
func (w *Window) next(op uint8, now uint64, operand, tmp []byte) (value uint64, ok bool) {
	binary.NativeEndian.PutUint64(tmp, now)
	ok, _ = w.update.Update(op, tmp, operand, nil, unguarded{})
	return binary.NativeEndian.Uint64(tmp), ok
}

// ordered returns the link that makes steps at a rank, if it does so behind all that this rank has asked there before:
// requests may be on their way. nil: it does not.
func (w *Window) ordered(rank int) *pml.Reach {
	r := w.remote(rank)
	l := r.link.Load()
	if l == nil || !l.Steps() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.handled != r.sent {
		return nil
	}
	return l
}

// stepAsked is askWithin of an atomic step. A rank that has answered has handled what was sent before.
func (w *Window) stepAsked(ctx context.Context, call string, rank int, want *rma.Request,
	elements, before []byte) error {
	if !w.nic {
		return w.askWithin(ctx, call, rank, want, elements, before)
	}
	r := w.remote(rank)
	w.mu.Lock()
	sent := r.sent
	w.mu.Unlock()
	err := w.askWithin(ctx, call, rank, want, elements, before)
	if err == nil {
		w.mu.Lock()
		r.handled = max(r.handled, sent)
		w.mu.Unlock()
	}
	return err
}

// stepByLink is Fetch of one element by the link. ok: it has been done, or failed; otherwise nothing has.
func (w *Window) stepByLink(ctx context.Context, call string, rank int, at int64, op uint8, src, before []byte) (ok bool,
	err error) {
	l := w.ordered(rank)
	if l == nil {
		return false, nil
	}
	s := w.take()
	defer w.scratch.Put(s)
	off := at * stepBytes
	step := pml.Step{}
	if w.update.Adds(op) {
		step.By = binary.NativeEndian.Uint64(src)
	}
	was, ok, err := l.Step(ctx, step, off)
	for adds := w.update.Adds(op); ok && err == nil && !adds; {
		next, _ := w.next(op, was, src, s.in[:stepBytes])
		if next == was {
			break
		}
		step = pml.Step{Swap: true, By: was, To: next}
		was, ok, err = l.Step(ctx, step, off)
		if adds = was == step.By; !ok && err == nil {
			err = w.fail("", mpierr.ErrAborted, rank, "the device makes no atomic steps any more")
			ok = true
		}
	}
	binary.NativeEndian.PutUint64(before, was)
	return ok, w.wrap(call, rank, err)
}

// swapByLink is likewise Swap.
func (w *Window) swapByLink(ctx context.Context, call string, rank int, at int64, two, before []byte) (ok bool,
	err error) {
	l := w.ordered(rank)
	if l == nil {
		return false, nil
	}
	was, ok, err := l.Step(ctx, swapOf(two), at*stepBytes)
	binary.NativeEndian.PutUint64(before, was)
	return ok, w.wrap(call, rank, err)
}

func swapOf(two []byte) pml.Step {
	return pml.Step{Swap: true, By: binary.NativeEndian.Uint64(two), To: binary.NativeEndian.Uint64(two[stepBytes:])}
}

// steps are the steps that this rank's device makes for the request that is being handled, one at a time. The request
// is handled again until all are made.
type steps struct {
	done   int // elements
	under  bool
	step   pml.Step
	result pml.Result
	was    []byte // of the elements that are done
	tmp    []byte
}

// abandon forgets the request. It reports whether that must wait, since the device works.
func (s *steps) abandon() (wait bool) {
	if s.under && !s.result.Over {
		return true
	}
	s.under, s.done = false, 0
	return false
}

// update is combine of size bytes.
func (s *steps) update(w *Window, op uint8, at int64, size int, src, before []byte) (ok bool, err error) {
	if len(src) != size && len(src) != 0 || size%stepBytes != 0 {
		return false, nil
	}
	if s.tmp == nil {
		s.tmp = make([]byte, stepBytes)
	}
	adds := w.update.Adds(op)
	for s.done < size {
		var operand []byte
		if len(src) > 0 {
			operand = src[s.done:][:stepBytes]
		}
		if !s.under {
			if _, ok := w.next(op, 0, operand, s.tmp); !ok {
				s.abandon()
				return false, nil
			}
			first := pml.Step{}
			if adds {
				first.By = binary.NativeEndian.Uint64(operand)
			}
			s.start(w, at+int64(s.done), first)
		}
		if !s.result.Over {
			return false, errBusy
		}
		if s.under = false; s.result.Err != nil {
			s.abandon()
			return false, nil
		}
		now := s.result.Value
		if !adds && !(s.step.Swap && s.step.By == now) {
			if next, _ := w.next(op, now, operand, s.tmp); next != now {
				s.start(w, at+int64(s.done), pml.Step{Swap: true, By: now, To: next})
				continue
			}
		}
		s.was = binary.NativeEndian.AppendUint64(s.was[:s.done], now)
		s.done += stepBytes
	}
	copy(before, s.was)
	s.done = 0
	return true, nil
}

// swap is a request to compare and swap.
func (s *steps) swap(w *Window, at int64, two, before []byte) (ok bool, err error) {
	if !s.under {
		s.start(w, at, swapOf(two))
	}
	if !s.result.Over {
		return false, errBusy
	}
	s.under = false
	binary.NativeEndian.PutUint64(before, s.result.Value)
	return s.result.Err == nil, nil
}

func (s *steps) start(w *Window, at int64, step pml.Step) {
	s.step, s.under = step, true
	w.device.StartStep(step, at, &s.result)
}

package mpi

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/gorun-mpi/mpi/internal/reduce"
	"github.com/gorun-mpi/mpi/internal/window"
)

// PutLayout is Put of the elements that from names in src, into the elements that to names at a rank, where its
// displacement 0 is element at; §12.3.1, §5.1.11. Both name as many bytes, of the same types, or it is ErrCount or
// ErrType. A to that names an element twice is ErrType; one that reaches out of the rank's elements is ErrRange.
func (w *Win[T]) PutLayout(src []T, from Layout, rank int, at int64, to Layout) error {
	const call = "PutLayout"
	if err := w.checkLayouts(call, src, from, rank, to, true); err != nil || rank == ProcNull {
		return err
	}
	return w.win.PutLayout(w.ctx, call, window.Strewn{Type: from.is.Type, Mem: bytesOf(src)}, rank, at, to.is.Type)
}

// GetLayout is Get of the elements that from names at a rank, into the elements that into names in dst: see PutLayout;
// §12.3.2. It may wait for the rank's answer.
func (w *Win[T]) GetLayout(dst []T, into Layout, rank int, at int64, from Layout) error {
	const call = "GetLayout"
	if err := w.checkLayouts(call, dst, into, rank, from, false); err != nil || rank == ProcNull {
		return err
	}
	return w.win.GetLayout(w.ctx, call, window.Strewn{Type: into.is.Type, Mem: bytesOf(dst)}, rank, at, from.is.Type)
}

// AccumulateLayout is Accumulate of the elements that from names in src, with the elements that to names at a rank: see
// PutLayout; §12.3.4. Both layouts consist of whole elements, or it is ErrType.
func (w *Win[T]) AccumulateLayout(op Op[T], src []T, from Layout, rank int, at int64, to Layout) error {
	const call = "AccumulateLayout"
	o, err := w.atomic(call, op)
	if err == nil {
		err = w.checkLayouts(call, src, from, rank, to, true)
	}
	if err != nil || rank == ProcNull {
		return err
	}
	if o.is == reduce.AtomicNoOp {
		return w.comm.opError(call, ErrOp, "NoOp changes nothing; it is for GetAccumulate and FetchOp")
	}
	if !w.win.Elements(from.is.Type) || !w.win.Elements(to.is.Type) {
		return w.layoutError(call, ErrType, rank, "a layout divides an element; make it with Of[%v], and strides in "+
			"bytes that are multiples of %d", reflect.TypeFor[T](), sizeOf[T]())
	}
	own := window.Strewn{Type: from.is.Type, Mem: bytesOf(src)}
	return w.win.AccumulateLayout(w.ctx, call, uint8(o.is), own, rank, at, to.is.Type)
}

// checkLayouts reports what is wrong with the layout of the caller's buffer, or of a rank's elements. write: these are
// written to, and not the buffer.
func (w *Win[T]) checkLayouts(call string, base []T, own Layout, rank int, there Layout, write bool) error {
	if err := w.valid(call); err != nil {
		return err
	}
	if err := checkLayout(call, base, own, !write); err != nil {
		if errors.Is(err, errOverlap) {
			err.Err = errOverlapInWindow
		}
		return w.layoutError(call, err.Class, rank, "the buffer: %w", err.Err)
	}
	err := there.Err()
	if err == nil {
		err = there.is.matches(reflect.TypeFor[T](), contentsOf(reflect.TypeFor[T]()))
	}
	if err == nil && write && there.is.overlapping() {
		err = errOverlapInWindow
	}
	bytes := own.is.numbers == justBytes || there.is != nil && there.is.numbers == justBytes
	switch {
	case err != nil:
		return w.layoutError(call, ErrType, rank, "the window: %w", err)
	case own.Size() != there.Size():
		return w.layoutError(call, ErrCount, rank, "the layout of the buffer has %d bytes, and the layout of the "+
			"window %d; make them equal", own.Size(), there.Size())
	case own.is.numbers != there.is.numbers && !bytes && own.Size() > 0:
		return w.layoutError(call, ErrType, rank, "the layout of the buffer has elements of %v, and the layout of the "+
			"window elements of %v; make them equal", own.is.numbers, there.is.numbers)
	}
	return nil
}

func (w *Win[T]) layoutError(call string, class error, rank int, format string, args ...any) error {
	e := w.comm.opError(call, class, "%w", fmt.Errorf(format, args...))
	e.Peer = rank
	return e
}

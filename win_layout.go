package mpi

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/gorun-mpi/mpi/internal/reduce"
	"github.com/gorun-mpi/mpi/internal/window"
	"github.com/gorun-mpi/mpi/pml"
)

// PutLayout is Put of the elements that from names in src, into the elements that to names at a rank, where its
// displacement 0 is element at; §12.3.1, §5.1.11. Both name as many bytes, of the same types, or it is ErrCount or
// ErrType. A to that names an element twice is ErrType; one that reaches out of the rank's elements is ErrRange.
func (w *Win[T]) PutLayout(src []T, from Layout, rank int, at int64, to Layout) error {
	_, err := w.putLayout("PutLayout", src, from, rank, at, to, false)
	if err != nil {
		return w.observed(err, "PutLayout", CallPut, rank, elementsIn[T](from), func(w *Win[T]) error {
			return w.PutLayout(src, from, rank, at, to)
		})
	}
	return nil
}

// RPutLayout is PutLayout with a request: see RPut.
func (w *Win[T]) RPutLayout(src []T, from Layout, rank int, at int64, to Layout) (*Request, error) {
	r, err := w.putLayout(opRPutLayout.String(), src, from, rank, at, to, true)
	if err == errHooked {
		return w.begun(err, "RPutLayout", CallPut, rank, elementsIn[T](from), func(w *Win[T]) (*Request, error) {
			return w.RPutLayout(src, from, rank, at, to)
		})
	}
	return w.requested(opRPutLayout, rank, r, err)
}

func (w *Win[T]) putLayout(call string, src []T, from Layout, rank int, at int64, to Layout, start bool) (*pml.Request,
	error) {
	if err := w.checkLayouts(call, src, from, rank, to, true); err != nil || rank == ProcNull {
		return nil, err
	}
	own := window.Strewn{Type: from.is.Type, Mem: bytesOf(src)}
	return w.win.PutLayout(w.ctx, call, own, rank, at, to.is.Type, start)
}

// GetLayout is Get of the elements that from names at a rank, into the elements that into names in dst: see PutLayout;
// §12.3.2. It may wait for the rank's answer.
func (w *Win[T]) GetLayout(dst []T, into Layout, rank int, at int64, from Layout) error {
	_, err := w.getLayout("GetLayout", dst, into, rank, at, from, false)
	if err != nil {
		return w.observed(err, "GetLayout", CallGet, rank, elementsIn[T](into), func(w *Win[T]) error {
			return w.GetLayout(dst, into, rank, at, from)
		})
	}
	return nil
}

// RGetLayout is GetLayout with a request: see RGet.
func (w *Win[T]) RGetLayout(dst []T, into Layout, rank int, at int64, from Layout) (*Request, error) {
	r, err := w.getLayout(opRGetLayout.String(), dst, into, rank, at, from, true)
	if err == errHooked {
		return w.begun(err, "RGetLayout", CallGet, rank, elementsIn[T](into), func(w *Win[T]) (*Request, error) {
			return w.RGetLayout(dst, into, rank, at, from)
		})
	}
	return w.requested(opRGetLayout, rank, r, err)
}

func (w *Win[T]) getLayout(call string, dst []T, into Layout, rank int, at int64, from Layout, start bool) (
	*pml.Request, error) {
	if err := w.checkLayouts(call, dst, into, rank, from, false); err != nil || rank == ProcNull {
		return nil, err
	}
	own := window.Strewn{Type: into.is.Type, Mem: bytesOf(dst)}
	return w.win.GetLayout(w.ctx, call, own, rank, at, from.is.Type, start)
}

// AccumulateLayout is Accumulate of the elements that from names in src, with the elements that to names at a rank: see
// PutLayout; §12.3.4. Both layouts consist of whole elements, or it is ErrType.
func (w *Win[T]) AccumulateLayout(op Op[T], src []T, from Layout, rank int, at int64, to Layout) error {
	err := w.accumulateLayout("AccumulateLayout", op, src, from, rank, at, to)
	if err != nil {
		return w.observed(err, "AccumulateLayout", CallPut, rank, elementsIn[T](from), func(w *Win[T]) error {
			return w.AccumulateLayout(op, src, from, rank, at, to)
		})
	}
	return nil
}

// RAccumulateLayout is AccumulateLayout with a request: see RAccumulate.
func (w *Win[T]) RAccumulateLayout(op Op[T], src []T, from Layout, rank int, at int64, to Layout) (*Request, error) {
	err := w.accumulateLayout(opRAccumulateLayout.String(), op, src, from, rank, at, to)
	if err == errHooked {
		return w.begun(err, "RAccumulateLayout", CallPut, rank, elementsIn[T](from), func(w *Win[T]) (*Request, error) {
			return w.RAccumulateLayout(op, src, from, rank, at, to)
		})
	}
	return w.requested(opRAccumulateLayout, rank, nil, err)
}

func (w *Win[T]) accumulateLayout(call string, op Op[T], src []T, from Layout, rank int, at int64, to Layout) error {
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
	if err := w.wholeElements(call, rank, from, to); err != nil {
		return err
	}
	own := window.Strewn{Type: from.is.Type, Mem: bytesOf(src)}
	return w.win.AccumulateLayout(w.ctx, call, uint8(o.is), own, rank, at, to.is.Type)
}

// GetAccumulateLayout is GetAccumulate of the elements that from names in src, with the elements that to names at a
// rank; result has them as they were where into names it: see AccumulateLayout; §12.3.4. All three layouts name as many
// bytes. With NoOp src may be nil, and from is not used then. It returns when result has the elements.
func (w *Win[T]) GetAccumulateLayout(op Op[T], src []T, from Layout, result []T, into Layout, rank int, at int64,
	to Layout) error {
	err := w.getAccumulateLayout("GetAccumulateLayout", op, src, from, result, into, rank, at, to)
	if err != nil {
		return w.observed(err, "GetAccumulateLayout", CallGet, rank, elementsIn[T](into), func(w *Win[T]) error {
			return w.GetAccumulateLayout(op, src, from, result, into, rank, at, to)
		})
	}
	return nil
}

// RGetAccumulateLayout is GetAccumulateLayout with a request: see RGetAccumulate.
func (w *Win[T]) RGetAccumulateLayout(op Op[T], src []T, from Layout, result []T, into Layout, rank int, at int64,
	to Layout) (*Request, error) {
	err := w.getAccumulateLayout(opRGetAccumulateLayout.String(), op, src, from, result, into, rank, at, to)
	if err == errHooked {
		return w.begun(err, "RGetAccumulateLayout", CallGet, rank, elementsIn[T](into), func(w *Win[T]) (*Request, error) {
			return w.RGetAccumulateLayout(op, src, from, result, into, rank, at, to)
		})
	}
	return w.requested(opRGetAccumulateLayout, rank, nil, err)
}

func (w *Win[T]) getAccumulateLayout(call string, op Op[T], src []T, from Layout, result []T, into Layout, rank int,
	at int64, to Layout) error {
	o, err := w.atomic(call, op)
	if err != nil {
		return err
	}
	if err := w.checkLayouts(call, result, into, rank, to, false); err != nil {
		return err
	}
	layouts := []Layout{into, to}
	var own window.Strewn
	if src != nil || o.is != reduce.AtomicNoOp {
		if err := w.checkLayouts(call, src, from, rank, to, true); err != nil {
			return err
		}
		layouts = append(layouts, from)
		own = window.Strewn{Type: from.is.Type, Mem: bytesOf(src)}
	}
	if rank == ProcNull {
		return nil
	}
	if overlap(src, result) {
		return w.comm.opError(call, ErrBuffer, "src and result share memory; give each a slice of its own")
	}
	if err := w.wholeElements(call, rank, layouts...); err != nil {
		return err
	}
	was := window.Strewn{Type: into.is.Type, Mem: bytesOf(result)}
	return w.win.GetAccumulateLayout(w.ctx, call, uint8(o.is), own, was, rank, at, to.is.Type)
}

// wholeElements reports a layout that does not consist of whole elements.
func (w *Win[T]) wholeElements(call string, rank int, layouts ...Layout) error {
	for _, l := range layouts {
		if !w.win.Elements(l.is.Type) {
			return w.layoutError(call, ErrType, rank, "a layout divides an element; make it with Of[%v], and strides "+
				"in bytes that are multiples of %d", reflect.TypeFor[T](), sizeOf[T]())
		}
	}
	return nil
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

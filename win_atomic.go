package mpi

import (
	"context"
	"encoding/binary"
	"reflect"

	"github.com/gorun-mpi/mpi/internal/reduce"
)

// Replace is the operator of Accumulate, GetAccumulate and FetchOp that writes the new element; §12.3.4.
func Replace[T any](inout, in []T) { copy(inout, in) }

// NoOp is the operator of GetAccumulate and FetchOp that leaves the element as it is; §12.3.4.
func NoOp[T any](inout, in []T) {}

// winOp is an operator that a window has been called with.
type winOp struct {
	code  uintptr        // codePointer
	fetch reduce.Fetcher // nil: elements are too long for an atomic step
}

// atomic finds an operator. The error says why it cannot be used.
func (w *Win[T]) atomic(call string, op Op[T]) (winOp, error) {
	if op == nil {
		return winOp{}, w.comm.nilOp(call)
	}
	code := codePointer(op)
	known := w.ops.Load()
	if known != nil {
		for _, o := range *known {
			if o.code == code {
				return o, nil
			}
		}
	}
	a, is := recognize(op)
	if !is {
		return winOp{}, w.comm.opError(call, ErrOp, "the operator is not one of Sum, Prod, Min, Max, BitAnd, BitOr, BitXor, "+
			"LogicalAnd, LogicalOr, LogicalXor, Replace and NoOp, or not for elements of %v; take Lock, Get and Put for others",
			reflect.TypeFor[T]())
	}
	o := winOp{code: code, fetch: reduce.FetcherOf(a, reduce.AtomicKind[T]())}
	all := []winOp{o}
	if known != nil {
		all = append(all, *known...)
	}
	w.ops.CompareAndSwap(known, &all) // another goroutine may have added one: then this one is added in a later call
	return o, nil
}

// recognize finds the operator of this package that op is. In a generic function an operator has a name of its own: it
// is known by what it does with samples.
func recognize[T any](op Op[T]) (reduce.Atomic, bool) {
	kind := reduce.AtomicKind[T]()
	if reflect.TypeFor[T]().Kind() == reflect.Complex128 {
		return reduce.RecognizeComplex(func(inout, in []complex128) {
			op(sliceOf[T](bytesOf(inout), len(inout)), sliceOf[T](bytesOf(in), len(in)))
		})
	}
	if kind == reflect.Invalid {
		return 0, false
	}
	if a, is := reduce.AtomicOf(operatorName(op)); is {
		return a, reduce.FetcherOf(a, kind) != nil
	}
	var inout, in []T
	samples := reduce.Samples(kind)
	for _, x := range samples {
		for _, y := range samples {
			inout, in = append(inout, valueOf[T](x)), append(in, valueOf[T](y))
		}
	}
	op(inout, in)
	results := make([]uint64, len(inout))
	for i, v := range inout {
		results[i] = bitsOf(v)
	}
	return reduce.Recognize(kind, results)
}

// Accumulate combines src with a rank's elements from element at on, each in one atomic step; §12.3.4. op is Sum,
// another operator of this package for numbers and bool, or Replace; another one is ErrOp.
func (w *Win[T]) Accumulate(op Op[T], src []T, rank int, at int64) error {
	return w.update("Accumulate", op, src, nil, rank, at)
}

// GetAccumulate is Accumulate that returns the elements as they were before in result; §12.3.4. With NoOp src may be
// nil.
func (w *Win[T]) GetAccumulate(op Op[T], src, result []T, rank int, at int64) error {
	const call = "GetAccumulate"
	if len(src) != len(result) && (src != nil || operatorName(op) != "NoOp") {
		return w.comm.opError(call, ErrCount, "src has %d elements and result %d; both must have the same length",
			len(src), len(result))
	}
	return w.update(call, op, src, result, rank, at)
}

// update is Accumulate, and GetAccumulate if result is not nil.
func (w *Win[T]) update(call string, op Op[T], src, result []T, rank int, at int64) error {
	o, err := w.atomic(call, op)
	if err != nil {
		return err
	}
	n := max(len(src), len(result))
	if !w.there(rank, at, n) {
		if null, err := w.op(call, rank, at, n); null || err != nil {
			return err
		}
	}
	dst := w.parts[rank][at:]
	if o.fetch == nil {
		return w.win.Guard(call, rank, func() {
			copy(result, dst)
			if src != nil {
				op(dst[:n], src)
			}
		})
	}
	var operand uint64
	for i := range n {
		if src != nil {
			operand = bitsOf(src[i])
		}
		before := o.fetch(addressOf(&dst[i]), operand)
		if result != nil {
			result[i] = valueOf[T](before)
		}
	}
	return nil
}

// FetchOp combines v with an element of a rank in one atomic step, and returns the element as it was before; §12.3.4
// (MPI_Fetch_and_op). op is as in Accumulate, or NoOp.
func (w *Win[T]) FetchOp(op Op[T], v T, rank int, at int64) (T, error) {
	const call = "FetchOp"
	var zero T
	o, err := w.atomic(call, op)
	if err != nil {
		return zero, err
	}
	if !w.there(rank, at, 1) {
		if null, err := w.op(call, rank, at, 1); null || err != nil {
			return zero, err
		}
	}
	if o.fetch == nil {
		var src, before [1]T
		src[0] = v
		err := w.update(call, op, src[:], before[:], rank, at)
		return before[0], err
	}
	return valueOf[T](o.fetch(addressOf(&w.parts[rank][at]), bitsOf(v))), nil
}

// CompareAndSwap sets an element of a rank to after if it is before, in one atomic step, and returns what it was;
// §12.3.4. Elements are numbers of at most 8 bytes, or bool, and are compared bit by bit.
func (w *Win[T]) CompareAndSwap(rank int, at int64, before, after T) (T, error) {
	const call = "CompareAndSwap"
	var zero T
	if reduce.AtomicKind[T]() == reflect.Invalid {
		return zero, w.comm.opError(call, ErrType, "the elements are %v; they must be numbers of at most 8 bytes, or bool",
			reflect.TypeFor[T]())
	}
	if !w.there(rank, at, 1) {
		if null, err := w.op(call, rank, at, 1); null || err != nil {
			return zero, err
		}
	}
	return valueOf[T](reduce.CompareAndSwap(addressOf(&w.parts[rank][at]), uintptr(sizeOf[T]()), bitsOf(before),
		bitsOf(after))), nil
}

// PutNotify is Put and then a note for the rank, which WaitNote there returns when src is in its elements.
func (w *Win[T]) PutNotify(src []T, rank int, at int64, note uint32) error {
	const call = "PutNotify"
	if null, err := w.op(call, rank, at, len(src)); null || err != nil {
		return err
	}
	copy(w.parts[rank][at:], src)
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], note)
	return w.win.Notify(w.ctx, call, rank, b[:])
}

// WaitNote returns the next note that PutNotify of another rank has sent here, and that rank. Notes of one rank come in
// the order of its calls. It needs no epoch. ctx may be nil.
func (w *Win[T]) WaitNote(ctx context.Context) (source int, note uint32, err error) {
	var b [4]byte
	if source, err = w.win.WaitNote(ctx, "WaitNote", b[:]); err != nil {
		return source, 0, err
	}
	return source, binary.LittleEndian.Uint32(b[:]), nil
}

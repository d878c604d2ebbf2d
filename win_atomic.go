package mpi

import (
	"context"
	"encoding/binary"
	"reflect"
	"runtime"
	"strings"

	"github.com/gorun-mpi/mpi/internal/reduce"
	"github.com/gorun-mpi/mpi/internal/window"
)

// Replace is the operator of Accumulate, GetAccumulate and FetchOp that writes the new element; §12.3.4.
func Replace[T any](inout, in []T) { copy(inout, in) }

// NoOp is the operator of GetAccumulate and FetchOp that leaves the element as it is; §12.3.4.
func NoOp[T any](inout, in []T) {}

// winOp is an operator that a window has been called with.
type winOp struct {
	code uintptr // codePointer of a function of this package
	is   reduce.Atomic
	// fetch is for elements of at most 8 bytes; nil: they are longer.
	fetch reduce.Fetcher
}

// atomic finds an operator. The error says why it cannot be used.
func (w *Win[T]) atomic(call string, op Op[T]) (winOp, error) {
	if err := w.valid(call); err != nil {
		return winOp{}, err
	}
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
	a, named := reduce.AtomicOf(operatorName(op))
	is := named && reduce.Has[T](a)
	if !named && inGeneric(op) {
		a, is = recognize(op)
	}
	if !is {
		return winOp{}, w.comm.opError(call, ErrOp,
			"the operator is not one of Sum, Prod, Min, Max, BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, "+
				"LogicalXor, Replace and NoOp, or not for elements of %v; for others call Lock with Exclusive, Get, "+
				"Flush, Put and Unlock",
			reflect.TypeFor[T]())
	}
	o := winOp{code: code, is: a, fetch: reduce.FetcherOf(a, reduce.AtomicKind[T]())}
	if !named {
		return o, nil // functions of one code may differ by their variables
	}
	all := []winOp{o}
	if known != nil {
		all = append(all, *known...)
	}
	w.ops.CompareAndSwap(known, &all) // another goroutine may have added one: then this one is added in a later call
	return o, nil
}

// inGeneric reports whether op is a function that a generic function has made, as Go does when an operator of this
// package is passed there. A function of the program's own that is made there cannot be told from that.
func inGeneric[T any](op Op[T]) bool {
	name := runtime.FuncForPC(reflect.ValueOf(op).Pointer()).Name()
	return strings.Contains(name, "[...]") && !strings.HasSuffix(name, "[...]")
}

// recognize finds the operator of this package that op is, by what it does with samples: in a generic function an
// operator is passed as a function of that one, which has another name.
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
	samples := reduce.Samples(kind)
	pairs := len(samples) * len(samples)
	inout, in := make([]T, 0, pairs), make([]T, 0, pairs)
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
// another operator of this package for numbers and bool, or Replace; another one is ErrOp. The elements are updated
// when the epoch ends or Flush returns, and perhaps not before.
func (w *Win[T]) Accumulate(op Op[T], src []T, rank int, at int64) error {
	err := w.update("Accumulate", op, src, nil, rank, at)
	if err != nil {
		return w.observed(err, "Accumulate", CallPut, rank, len(src), func(w *Win[T]) error {
			return w.Accumulate(op, src, rank, at)
		})
	}
	return nil
}

// GetAccumulate is Accumulate that returns the elements as they were before in result; §12.3.4. With NoOp src may be
// nil. src and result that share memory are ErrBuffer. It returns when result has the elements.
func (w *Win[T]) GetAccumulate(op Op[T], src, result []T, rank int, at int64) error {
	err := w.getAccumulate("GetAccumulate", op, src, result, rank, at)
	if err != nil {
		return w.observed(err, "GetAccumulate", CallGet, rank, len(result), func(w *Win[T]) error {
			return w.GetAccumulate(op, src, result, rank, at)
		})
	}
	return nil
}

func (w *Win[T]) getAccumulate(call string, op Op[T], src, result []T, rank int, at int64) error {
	if err := w.valid(call); err != nil {
		return err
	}
	if len(src) != len(result) && src != nil {
		return w.comm.opError(call, ErrCount, "src and result have %d and %d elements; give both the same length",
			len(src), len(result))
	}
	if overlap(src, result) {
		return w.comm.opError(call, ErrBuffer, "src and result share memory; give each a slice of its own")
	}
	return w.update(call, op, src, result, rank, at)
}

// RAccumulate is Accumulate with a request, which is done when src can be used again; §12.3.5.
func (w *Win[T]) RAccumulate(op Op[T], src []T, rank int, at int64) (*Request, error) {
	err := w.update(opRAccumulate.String(), op, src, nil, rank, at)
	if err == errHooked {
		return w.begun(err, "RAccumulate", CallPut, rank, len(src), func(w *Win[T]) (*Request, error) {
			return w.RAccumulate(op, src, rank, at)
		})
	}
	return w.updated(opRAccumulate, rank, err)
}

// RGetAccumulate is GetAccumulate with a request; §12.3.5. It returns when result has the elements.
func (w *Win[T]) RGetAccumulate(op Op[T], src, result []T, rank int, at int64) (*Request, error) {
	err := w.getAccumulate(opRGetAccumulate.String(), op, src, result, rank, at)
	if err == errHooked {
		return w.begun(err, "RGetAccumulate", CallGet, rank, len(result), func(w *Win[T]) (*Request, error) {
			return w.RGetAccumulate(op, src, result, rank, at)
		})
	}
	return w.updated(opRGetAccumulate, rank, err)
}

// updated returns the request of an operation that is over.
func (w *Win[T]) updated(op opCode, rank int, err error) (*Request, error) {
	return w.requested(op, rank, nil, err)
}

// update is Accumulate, and GetAccumulate if result is not nil.
func (w *Win[T]) update(call string, op Op[T], src, result []T, rank int, at int64) error {
	o, err := w.atomic(call, op)
	if err != nil || rank == ProcNull {
		return err
	}
	if o.is == reduce.AtomicNoOp && result == nil {
		return w.comm.opError(call, ErrOp, "NoOp changes nothing; it is for GetAccumulate and FetchOp")
	}
	if len(src) == 0 && len(result) > 0 && o.is != reduce.AtomicNoOp {
		return w.comm.opError(call, ErrCount, "src is empty, and the length of result is %d; only NoOp needs no src",
			len(result))
	}
	n := max(len(src), len(result))
	if dst, ok := w.there(rank, at, n); ok && o.fetch != nil && !w.win.Worth(n) && w.win.Enter(rank) {
		fetchAll(o.fetch, dst, src, result)
		w.win.Leave()
		return nil
	}
	mem, far, err := w.win.AtomicOperation(w.ctx, call, rank, at, n)
	switch {
	case err != nil:
		return err
	case far == nil:
		return w.win.Update(call, rank, uint8(o.is), mem, bytesOf(src), bytesOf(result))
	case result == nil:
		return w.win.Accumulate(w.ctx, call, far, rank, at, uint8(o.is), bytesOf(src))
	}
	return w.win.Fetch(w.ctx, call, rank, at, uint8(o.is), bytesOf(src), bytesOf(result))
}

// fetchAll updates dst, of which src and result, which may be nil, have the length.
func fetchAll[T any](f reduce.Fetcher, dst, src, result []T) {
	var operand uint64
	for i := range dst {
		if len(src) > 0 {
			operand = bitsOf(src[i])
		}
		before := f(addressOf(&dst[i]), operand)
		if len(result) > 0 {
			result[i] = valueOf[T](before)
		}
	}
}

// updater is window.Updater for elements of T.
type updater[T any] struct{}

// Update implements window.Updater.
func (updater[T]) Update(op uint8, dst, src, before []byte, g window.Guard) (bool, error) {
	size := max(1, sizeOf[T]())
	n, is := len(dst)/size, reduce.Atomic(op)
	to, from, was := sliceOf[T](dst, n), sliceOf[T](src, len(src)/size), sliceOf[T](before, len(before)/size)
	if !reduce.Has[T](is) || len(from) != n && is != reduce.AtomicNoOp && n > 0 {
		return false, nil
	}
	fetch := reduce.FetcherOf(is, reduce.AtomicKind[T]())
	alone := fetch == nil || g.Worth(n)
	if err := g.Begin(alone); err != nil {
		return true, err
	}
	if alone {
		copy(was, to)
		reduce.Apply(is, to, from)
	} else {
		fetchAll(fetch, to, from, was)
	}
	g.End(alone)
	return true, nil
}

// Adds implements window.Updater.
func (updater[T]) Adds(op uint8) bool {
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64:
		return reduce.Atomic(op) == reduce.AtomicSum && sizeOf[T]() == 8
	}
	return false
}

// Swap implements window.Updater.
func (updater[T]) Swap(dst, src, before []byte, g window.Guard) (bool, error) {
	size := sizeOf[T]()
	if reduce.AtomicKind[T]() == reflect.Invalid || len(dst) != size || len(src) != 2*size || len(before) != size {
		return false, nil
	}
	if err := g.Begin(false); err != nil {
		return true, err
	}
	two := sliceOf[T](src, 2)
	was := reduce.CompareAndSwap(addressOf(&dst[0]), uintptr(size), bitsOf(two[0]), bitsOf(two[1]))
	sliceOf[T](before, 1)[0] = valueOf[T](was)
	g.End(false)
	return true, nil
}

// FetchOp combines v with an element of a rank in one atomic step, and returns the element as it was before; §12.3.4
// (MPI_Fetch_and_op). op is as in Accumulate, or NoOp.
func (w *Win[T]) FetchOp(op Op[T], v T, rank int, at int64) (T, error) {
	const call = "FetchOp"
	o, err := w.atomic(call, op)
	if err != nil {
		var was T
		err = w.observed(err, call, CallGet, rank, 1, func(w *Win[T]) (err error) {
			was, err = w.FetchOp(op, v, rank, at)
			return err
		})
		return was, err
	}
	if dst, ok := w.there(rank, at, 1); ok && o.fetch != nil && w.win.Enter(rank) {
		before := o.fetch(addressOf(&dst[0]), bitsOf(v))
		w.win.Leave()
		return valueOf[T](before), nil
	}
	buf := w.pairs.Get().(*[4]T)
	defer w.pairs.Put(buf)
	buf[0], buf[2] = v, *new(T)
	err = w.update(call, op, buf[:1], buf[2:3], rank, at)
	return buf[2], err
}

// CompareAndSwap sets an element of a rank to after if it is before, in one atomic step, and returns what it was;
// §12.3.4. Elements are numbers of at most 8 bytes, or bool, and are compared bit by bit.
func (w *Win[T]) CompareAndSwap(rank int, at int64, before, after T) (T, error) {
	const call = "CompareAndSwap"
	var zero T
	if err := w.valid(call); err != nil {
		var was T
		err = w.observed(err, call, CallGet, rank, 1, func(w *Win[T]) (err error) {
			was, err = w.CompareAndSwap(rank, at, before, after)
			return err
		})
		return was, err
	}
	if reduce.AtomicKind[T]() == reflect.Invalid {
		return zero, w.comm.opError(call, ErrType,
			"the elements are %v; they must be numbers of at most 8 bytes, or bool", reflect.TypeFor[T]())
	}
	if dst, ok := w.there(rank, at, 1); ok && w.win.Enter(rank) {
		was := reduce.CompareAndSwap(addressOf(&dst[0]), uintptr(sizeOf[T]()), bitsOf(before), bitsOf(after))
		w.win.Leave()
		return valueOf[T](was), nil
	}
	if rank == ProcNull {
		return zero, nil
	}
	buf := w.pairs.Get().(*[4]T)
	defer w.pairs.Put(buf)
	buf[0], buf[1], buf[2] = before, after, zero
	mem, far, err := w.win.AtomicOperation(w.ctx, call, rank, at, 1)
	switch {
	case err != nil:
	case far != nil:
		err = w.win.Swap(w.ctx, call, rank, at, bytesOf(buf[:2]), bytesOf(buf[2:3]))
	default:
		err = w.win.SwapHere(call, rank, mem, bytesOf(buf[:2]), bytesOf(buf[2:3]))
	}
	return buf[2], err
}

// PutNotify is Put and then a note for the rank, which WaitNote there returns when src is in its elements. An RDMA
// device does both in one operation, if the note is less than 1<<22 and there are elements. What is known to follow
// from the note, such as an answer of the rank, ends the library's use of src as FlushLocal does.
func (w *Win[T]) PutNotify(src []T, rank int, at int64, note uint32) error {
	const call = "PutNotify"
	if err := w.valid(call); err != nil || rank == ProcNull {
		return w.observed(err, call, CallPut, rank, len(src), func(w *Win[T]) error {
			return w.PutNotify(src, rank, at, note)
		})
	}
	mem, far, err := w.win.Operation(w.ctx, call, rank, at, len(src))
	if err != nil {
		return err
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], note)
	if far != nil {
		return w.win.PutNotify(w.ctx, call, far, rank, at, bytesOf(src), b[:])
	}
	move(mem, bytesOf(src))
	return w.win.Notify(w.ctx, call, rank, b[:])
}

// WaitNote returns the next note that PutNotify of another rank has sent here, and that rank. Notes of one rank come in
// the order of its calls, and notes of different ranks in any order. It needs no epoch. It waits for ever if no rank
// sends one; Free drops the notes that no WaitNote has returned. A nil ctx is the context of WithContext.
func (w *Win[T]) WaitNote(ctx context.Context) (source int, note uint32, err error) {
	if err := w.valid("WaitNote"); err != nil {
		source = ProcNull
		err = w.observed(err, "WaitNote", CallSync, Undefined, 0, func(w *Win[T]) (err error) {
			source, note, err = w.WaitNote(ctx)
			return err
		})
		return source, note, err
	}
	if ctx == nil {
		ctx = w.ctx
	}
	var b [4]byte
	if source, err = w.win.WaitNote(ctx, "WaitNote", b[:]); err != nil {
		return source, 0, err
	}
	return source, binary.LittleEndian.Uint32(b[:]), nil
}

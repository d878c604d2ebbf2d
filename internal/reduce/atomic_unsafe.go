package reduce

import (
	"reflect"
	"sync/atomic"
	"unsafe"
)

// Fetcher combines the element at addr with an operand in one atomic step, and returns the element as it was before. An
// element has at most 8 bytes; the operand and the result have it in their first bytes. addr is a multiple of the size.
type Fetcher func(addr unsafe.Pointer, operand uint64) (before uint64)

// Atomic is an operator of atomic steps.
type Atomic uint8

const (
	AtomicSum Atomic = iota
	AtomicProd
	AtomicMin
	AtomicMax
	AtomicBitAnd
	AtomicBitOr
	AtomicBitXor
	AtomicLogicalAnd
	AtomicLogicalOr
	AtomicLogicalXor
	AtomicReplace // with the operand
	AtomicNoOp    // leaves the element as it is
	Atomics       // how many there are
)

var atomicNames = [Atomics]string{"Sum", "Prod", "Min", "Max", "BitAnd", "BitOr", "BitXor", "LogicalAnd", "LogicalOr",
	"LogicalXor", "Replace", "NoOp"}

func (a Atomic) String() string { return atomicNames[a] }

// AtomicOf finds the operator with a name.
func AtomicOf(name string) (a Atomic, ok bool) {
	for i, n := range atomicNames {
		if n == name {
			return Atomic(i), true
		}
	}
	return 0, false
}

// fetchers has the Fetcher, or nil, for each operator and kind.
var fetchers [Atomics][reflect.UnsafePointer]Fetcher

// FetcherOf returns the Fetcher of an operator for elements of a kind; nil: the operator has none for these.
func FetcherOf(a Atomic, k reflect.Kind) Fetcher {
	if a >= Atomics || int(k) >= len(fetchers[0]) {
		return nil
	}
	return fetchers[a][k]
}

// loops has what Apply does, or nil, for each operator and kind, with n elements.
var loops [Atomics][reflect.UnsafePointer]func(inout, in unsafe.Pointer, n int)

// Has reports whether elements of T can be combined by an operator: with Apply, and with its Fetcher if they have at
// most 8 bytes.
func Has[T any](a Atomic) bool {
	k := kindOf[T]()
	return a < Atomics && int(k) < len(loops[0]) && loops[a][k] != nil
}

// Apply combines in with inout, which is as long, element by element, without atomic steps. Has(a) is true.
// AtomicNoOp uses no in.
func Apply[T any](a Atomic, inout, in []T) {
	loops[a][kindOf[T]()](unsafe.Pointer(unsafe.SliceData(inout)), unsafe.Pointer(unsafe.SliceData(in)), len(inout))
}

// applied is what Apply does by way of f.
func applied[T any](f func(dst, a, b []T)) func(inout, in unsafe.Pointer, n int) {
	return func(inout, in unsafe.Pointer, n int) {
		dst := unsafe.Slice((*T)(inout), n)
		f(dst, dst, unsafe.Slice((*T)(in), n))
	}
}

// AtomicKind is the kind of T for FetcherOf; Invalid: T is no number of at most 8 bytes, and no bool.
func AtomicKind[T any]() reflect.Kind {
	if k := kindOf[T](); FetcherOf(AtomicNoOp, k) != nil {
		return k
	}
	return reflect.Invalid
}

func init() {
	integer[int8](reflect.Int8)
	integer[int16](reflect.Int16)
	integer[int32](reflect.Int32)
	integer[int64](reflect.Int64)
	integer[uint8](reflect.Uint8)
	integer[uint16](reflect.Uint16)
	integer[uint32](reflect.Uint32)
	integer[uint64](reflect.Uint64)
	real[float32](reflect.Float32)
	real[float64](reflect.Float64)
	number[complex64](reflect.Complex64)
	copies[complex128](reflect.Complex128) // which is too long for atomic steps
	sums[complex128](reflect.Complex128)
	moves[bool](reflect.Bool)
	logical(reflect.Bool, func(b bool) bool { return b }, func(b bool) bool { return b })
	for _, k := range []reflect.Kind{reflect.Int32, reflect.Uint32} {
		fetchers[AtomicSum][k] = func(addr unsafe.Pointer, v uint64) uint64 {
			return uint64((*atomic.Uint32)(addr).Add(uint32(v)) - uint32(v))
		}
	}
	for _, k := range []reflect.Kind{reflect.Int64, reflect.Uint64} {
		fetchers[AtomicSum][k] = func(addr unsafe.Pointer, v uint64) uint64 {
			return (*atomic.Uint64)(addr).Add(v) - v
		}
	}
}

func copies[T any](k reflect.Kind) {
	loops[AtomicReplace][k] = applied(func(dst, _, b []T) { copy(dst, b) })
	loops[AtomicNoOp][k] = func(_, _ unsafe.Pointer, _ int) {}
}

func sums[T Number](k reflect.Kind) {
	loops[AtomicSum][k], loops[AtomicProd][k] = applied(Sum[T]), applied(Prod[T])
}

func moves[T any](k reflect.Kind) {
	copies[T](k)
	fetchers[AtomicReplace][k] = fetcher(func(_, b T) T { return b })
	fetchers[AtomicNoOp][k] = func(addr unsafe.Pointer, _ uint64) uint64 { return load(addr, unsafe.Sizeof(*new(T))) }
}

func number[T Number](k reflect.Kind) {
	moves[T](k)
	sums[T](k)
	fetchers[AtomicSum][k] = fetcher(func(a, b T) T { return a + b })
	fetchers[AtomicProd][k] = fetcher(func(a, b T) T { return a * b })
}

func real[T Real](k reflect.Kind) {
	number[T](k)
	fetchers[AtomicMin][k] = fetcher(func(a, b T) T { return min(a, b) })
	fetchers[AtomicMax][k] = fetcher(func(a, b T) T { return max(a, b) })
	loops[AtomicMin][k], loops[AtomicMax][k] = applied(Min[T]), applied(Max[T])
}

func integer[T Integer](k reflect.Kind) {
	real[T](k)
	fetchers[AtomicBitAnd][k] = fetcher(func(a, b T) T { return a & b })
	fetchers[AtomicBitOr][k] = fetcher(func(a, b T) T { return a | b })
	fetchers[AtomicBitXor][k] = fetcher(func(a, b T) T { return a ^ b })
	loops[AtomicBitAnd][k], loops[AtomicBitOr][k] = applied(BitAnd[T]), applied(BitOr[T])
	loops[AtomicBitXor][k] = applied(BitXor[T])
	logical(k, func(a T) bool { return a != 0 }, func(b bool) T {
		if b {
			return 1
		}
		return 0
	})
}

func logical[T Logical](k reflect.Kind, is func(T) bool, of func(bool) T) {
	fetchers[AtomicLogicalAnd][k] = fetcher(func(a, b T) T { return of(is(a) && is(b)) })
	fetchers[AtomicLogicalOr][k] = fetcher(func(a, b T) T { return of(is(a) || is(b)) })
	fetchers[AtomicLogicalXor][k] = fetcher(func(a, b T) T { return of(is(a) != is(b)) })
	loops[AtomicLogicalAnd][k], loops[AtomicLogicalOr][k] = applied(LogicalAnd[T]), applied(LogicalOr[T])
	loops[AtomicLogicalXor][k] = applied(LogicalXor[T])
}

// fetcher replaces an element a by f(a, operand).
func fetcher[T any](f func(a, b T) T) Fetcher {
	size := unsafe.Sizeof(*new(T))
	return func(addr unsafe.Pointer, operand uint64) uint64 {
		b := *(*T)(unsafe.Pointer(&operand))
		for {
			before := load(addr, size)
			var after uint64
			*(*T)(unsafe.Pointer(&after)) = f(*(*T)(unsafe.Pointer(&before)), b)
			if swap(addr, size, before, after) {
				return before
			}
		}
	}
}

// load loads an element atomically.
func load(addr unsafe.Pointer, size uintptr) uint64 {
	if size == 8 {
		return (*atomic.Uint64)(addr).Load()
	}
	word, shift := around(addr)
	return uint64(word.Load()>>shift) & (1<<(8*size) - 1)
}

// swap sets an element to after if it is before, atomically, and reports whether it has. before and after have nothing
// beyond the size.
func swap(addr unsafe.Pointer, size uintptr, before, after uint64) bool {
	if size == 8 {
		return (*atomic.Uint64)(addr).CompareAndSwap(before, after)
	}
	word, shift := around(addr)
	mask := uint32(1<<(8*size)-1) << shift
	for {
		was := word.Load()
		if was&mask != uint32(before)<<shift {
			return false
		}
		if word.CompareAndSwap(was, was&^mask|uint32(after)<<shift) {
			return true
		}
	}
}

// around is the word of four bytes that holds an element of at most as many, and where in it the element begins. An
// element of one or two bytes may have neighbours in the word that other atomic steps change. All machines that the
// module is built for are little-endian. The last word of a slice may end behind it, and no other word of the machine
// begins there; the race detector's check of pointers would end the program.
//
//go:nocheckptr
func around(addr unsafe.Pointer) (word *atomic.Uint32, shift uintptr) {
	at := uintptr(addr) % 4
	return (*atomic.Uint32)(unsafe.Add(addr, -int(at))), 8 * at
}

// CompareAndSwap sets the element of size bytes at addr, 1, 2, 4 or 8 and a divisor of addr, to after if it is before.
// It returns what the element was.
func CompareAndSwap(addr unsafe.Pointer, size uintptr, before, after uint64) (was uint64) {
	if size < 8 {
		before, after = before&(1<<(8*size)-1), after&(1<<(8*size)-1)
	}
	for {
		if was = load(addr, size); was != before || swap(addr, size, before, after) {
			return was
		}
	}
}

// gives reports whether f has these results for each pair of samples.
func gives(f Fetcher, k reflect.Kind, samples, results []uint64) bool {
	var sum uint64
	for i, x := range samples {
		for j, y := range samples {
			sum = x
			if f(unsafe.Pointer(&sum), y); !alike(k, sum, results[i*len(samples)+j]) {
				return false
			}
		}
	}
	return true
}

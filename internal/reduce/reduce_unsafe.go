package reduce

import (
	"reflect"
	"unsafe"
)

// op names a kernel.
type op uint8

const (
	opSum op = iota
	opProd
	opMin
	opMax
	opBitAnd
	opBitOr
	opBitXor
	opLogicalAnd
	opLogicalOr
	opLogicalXor
	ops
)

// blockLen is the number of bytes that a kernel takes in one step.
const blockLen = 128

// kernel does what its op says for blocks × blockLen bytes.
type kernel = func(dst, a, b unsafe.Pointer, blocks int)

// table has a kernel, or nil, for each operator and kind.
type table [ops][reflect.UnsafePointer]kernel

// run lets a kernel combine the front of the slices, which have one length, and returns how many elements those are: 0
// where there is no kernel.
func run[T any](o op, dst, a, b []T) int {
	size := int(unsafe.Sizeof(*new(T)))
	blocks := len(dst) * size / blockLen
	if blocks == 0 {
		return 0
	}
	k := kernels[o][kindOf[T]()]
	if k == nil {
		return 0
	}
	k(unsafe.Pointer(&dst[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), blocks)
	return blocks * blockLen / size
}

// kindOf is what T is, with the size of an int said.
func kindOf[T any]() reflect.Kind {
	k := reflect.TypeFor[T]().Kind()
	switch k {
	case reflect.Int:
		return reflect.Int32 + reflect.Kind(unsafe.Sizeof(0)/8)
	case reflect.Uint, reflect.Uintptr:
		return reflect.Uint32 + reflect.Kind(unsafe.Sizeof(0)/8)
	}
	return k
}

// bySize gives the slices to the function for elements of their size.
func bySize[T Logical](dst, a, b []T,
	f8 func(dst, a, b []uint8), f16 func(dst, a, b []uint16), f32 func(dst, a, b []uint32), f64 func(dst, a, b []uint64),
) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch unsafe.Sizeof(*new(T)) {
	case 1:
		f8(as[uint8](dst), as[uint8](a), as[uint8](b))
	case 2:
		f16(as[uint16](dst), as[uint16](a), as[uint16](b))
	case 4:
		f32(as[uint32](dst), as[uint32](a), as[uint32](b))
	case 8:
		f64(as[uint64](dst), as[uint64](a), as[uint64](b))
	}
}

// as is s with elements of another type of the same size.
func as[U, T any](s []T) []U { return unsafe.Slice((*U)(unsafe.Pointer(unsafe.SliceData(s))), len(s)) }

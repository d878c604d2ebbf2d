//go:build amd64

package reduce

import (
	"reflect"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// kernels are what this CPU can run.
var kernels = avx2()

// avx2 is empty on a CPU without AVX2.
func avx2() (t table) {
	if !cpu.X86.HasAVX2 {
		return t
	}
	for _, k := range []struct {
		op    op
		run   kernel
		kinds []reflect.Kind
	}{
		{opSum, sumI8, []reflect.Kind{reflect.Int8, reflect.Uint8}},
		{opSum, sumI16, []reflect.Kind{reflect.Int16, reflect.Uint16}},
		{opSum, sumI32, []reflect.Kind{reflect.Int32, reflect.Uint32}},
		{opSum, sumI64, []reflect.Kind{reflect.Int64, reflect.Uint64}},
		{opSum, sumF32, []reflect.Kind{reflect.Float32, reflect.Complex64}},
		{opSum, sumF64, []reflect.Kind{reflect.Float64, reflect.Complex128}},
		{opProd, prodI16, []reflect.Kind{reflect.Int16, reflect.Uint16}},
		{opProd, prodI32, []reflect.Kind{reflect.Int32, reflect.Uint32}},
		{opProd, prodF32, []reflect.Kind{reflect.Float32}},
		{opProd, prodF64, []reflect.Kind{reflect.Float64}},
		{opMin, minI8, []reflect.Kind{reflect.Int8}},
		{opMin, minI16, []reflect.Kind{reflect.Int16}},
		{opMin, minI32, []reflect.Kind{reflect.Int32}},
		{opMin, minU8, []reflect.Kind{reflect.Uint8}},
		{opMin, minU16, []reflect.Kind{reflect.Uint16}},
		{opMin, minU32, []reflect.Kind{reflect.Uint32}},
		{opMin, minI64, []reflect.Kind{reflect.Int64}},
		{opMin, minU64, []reflect.Kind{reflect.Uint64}},
		{opMin, minF32, []reflect.Kind{reflect.Float32}},
		{opMin, minF64, []reflect.Kind{reflect.Float64}},
		{opMax, maxI8, []reflect.Kind{reflect.Int8}},
		{opMax, maxI16, []reflect.Kind{reflect.Int16}},
		{opMax, maxI32, []reflect.Kind{reflect.Int32}},
		{opMax, maxU8, []reflect.Kind{reflect.Uint8}},
		{opMax, maxU16, []reflect.Kind{reflect.Uint16}},
		{opMax, maxU32, []reflect.Kind{reflect.Uint32}},
		{opMax, maxI64, []reflect.Kind{reflect.Int64}},
		{opMax, maxU64, []reflect.Kind{reflect.Uint64}},
		{opMax, maxF32, []reflect.Kind{reflect.Float32}},
		{opMax, maxF64, []reflect.Kind{reflect.Float64}},
		{opBitAnd, bitAnd, integers},
		{opBitOr, bitOr, integers},
		{opBitXor, bitXor, integers},
		{opLogicalAnd, logicalAnd8, []reflect.Kind{reflect.Uint8}},
		{opLogicalAnd, logicalAnd16, []reflect.Kind{reflect.Uint16}},
		{opLogicalAnd, logicalAnd32, []reflect.Kind{reflect.Uint32}},
		{opLogicalAnd, logicalAnd64, []reflect.Kind{reflect.Uint64}},
		{opLogicalOr, logicalOr8, []reflect.Kind{reflect.Uint8}},
		{opLogicalOr, logicalOr16, []reflect.Kind{reflect.Uint16}},
		{opLogicalOr, logicalOr32, []reflect.Kind{reflect.Uint32}},
		{opLogicalOr, logicalOr64, []reflect.Kind{reflect.Uint64}},
		{opLogicalXor, logicalXor8, []reflect.Kind{reflect.Uint8}},
		{opLogicalXor, logicalXor16, []reflect.Kind{reflect.Uint16}},
		{opLogicalXor, logicalXor32, []reflect.Kind{reflect.Uint32}},
		{opLogicalXor, logicalXor64, []reflect.Kind{reflect.Uint64}},
	} {
		for _, kind := range k.kinds {
			t[k.op][kind] = k.run
		}
	}
	return t
}

var integers = []reflect.Kind{
	reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
	reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
}

// kernels_amd64.s has these.

//go:noescape
func sumI8(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func sumI16(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func sumI32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func sumI64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func sumF32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func sumF64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func prodI16(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func prodI32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func prodF32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func prodF64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func minI8(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func minI16(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func minI32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func minU8(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func minU16(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func minU32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func minI64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func minU64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func minF32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func minF64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func maxI8(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func maxI16(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func maxI32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func maxU8(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func maxU16(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func maxU32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func maxI64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func maxU64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func maxF32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func maxF64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func bitAnd(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func bitOr(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func bitXor(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalAnd8(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalAnd16(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalAnd32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalAnd64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalOr8(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalOr16(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalOr32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalOr64(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalXor8(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalXor16(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalXor32(dst, a, b unsafe.Pointer, blocks int)

//go:noescape
func logicalXor64(dst, a, b unsafe.Pointer, blocks int)

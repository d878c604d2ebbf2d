package reduce

import (
	"math"
	"reflect"
	"slices"
)

// Samples are elements of a kind, which has Fetchers: the bits of numbers that tell its operators apart, the greatest
// and the least among them. They are not NaN.
func Samples(k reflect.Kind) []uint64 {
	switch k {
	case reflect.Bool:
		return []uint64{0, 1}
	case reflect.Float32, reflect.Complex64:
		var s []uint64
		for i, f := range sampleFloats {
			b := uint64(math.Float32bits(float32(f)))
			if k == reflect.Complex64 {
				b |= uint64(math.Float32bits(float32(sampleFloats[(i+3)%len(sampleFloats)]))) << 32
			}
			s = append(s, b)
		}
		return s
	case reflect.Float64:
		var s []uint64
		for _, f := range sampleFloats {
			s = append(s, math.Float64bits(f))
		}
		return s
	}
	size := 8 * uint(sizes[k])
	s := []uint64{0, 1, 2, 3, 7, 100, 1<<(size-1) - 1, 1 << (size - 1), 1<<size - 1, 0x5555555555555555,
		0x123456789abcdef}
	for i := range s {
		s[i] &= 1<<size - 1
	}
	return s
}

// sampleFloats have no sum and no product that is NaN.
var sampleFloats = []float64{math.MaxFloat32, 1e30, 3e20, -math.MaxFloat32, -1e30, -3e20, 0, 1, 2.5, -1, -7.25, 1e-30,
	3}

var sizes = map[reflect.Kind]int{reflect.Int8: 1, reflect.Uint8: 1, reflect.Int16: 2, reflect.Uint16: 2,
	reflect.Int32: 4, reflect.Uint32: 4, reflect.Int64: 8, reflect.Uint64: 8}

// Recognize finds the operator whose results are these: results[i*n+j] is sample i ∘ sample j of n.
func Recognize(k reflect.Kind, results []uint64) (a Atomic, ok bool) {
	s := Samples(k)
	for a = range Atomics {
		if f := FetcherOf(a, k); f != nil && gives(f, s, results) {
			return a, true
		}
	}
	return 0, false
}

// RecognizeComplex is Recognize of an operator of elements of 16 bytes, which has no Fetcher.
func RecognizeComplex(op func(inout, in []complex128)) (a Atomic, ok bool) {
	var x, y []complex128
	for i, f := range sampleFloats {
		for j, g := range sampleFloats {
			x = append(x, complex(f, sampleFloats[(i+3)%len(sampleFloats)]))
			y = append(y, complex(g, sampleFloats[(j+5)%len(sampleFloats)]))
		}
	}
	got := slices.Clone(x)
	op(got, y)
	for a = range Atomics {
		f, want := ComplexOf(a), slices.Clone(x)
		if f == nil {
			continue
		}
		if f(want, y); slices.EqualFunc(got, want, func(v, w complex128) bool {
			return v == w || v != v && w != w // a product of infinities
		}) {
			return a, true
		}
	}
	return 0, false
}

// ComplexOf is the loop of an operator of complex128; nil: it has none.
func ComplexOf(a Atomic) func(inout, in []complex128) {
	switch a {
	case AtomicSum:
		return func(inout, in []complex128) { Sum(inout, inout, in) }
	case AtomicProd:
		return func(inout, in []complex128) { Prod(inout, inout, in) }
	case AtomicReplace:
		return func(inout, in []complex128) { copy(inout, in) }
	case AtomicNoOp:
		return func(inout, in []complex128) {}
	}
	return nil
}

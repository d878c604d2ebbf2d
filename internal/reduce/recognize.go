package reduce

import (
	"math"
	"reflect"
	"slices"
)

// Samples are elements of a kind, which has Fetchers: the bits of numbers that tell its operators apart. Of a number
// that is not complex the greatest and the least are among them, and NaN.
func Samples(k reflect.Kind) []uint64 {
	var s []uint64
	switch k {
	case reflect.Bool:
		return []uint64{0, 1}
	case reflect.Float32:
		for _, f := range slices.Concat(exactFloats, extremeFloats) {
			s = append(s, uint64(math.Float32bits(float32(f))))
		}
		return s
	case reflect.Float64:
		for _, f := range slices.Concat(exactFloats, extremeFloats) {
			s = append(s, math.Float64bits(f))
		}
		return s
	case reflect.Complex64:
		for i, f := range exactFloats {
			im := exactFloats[(i+3)%len(exactFloats)]
			s = append(s, uint64(math.Float32bits(float32(f)))|uint64(math.Float32bits(float32(im)))<<32)
		}
		return s
	}
	size := 8 * uint(sizes[k])
	s = []uint64{0, 1, 2, 3, 7, 100, 1<<(size-1) - 1, 1 << (size - 1), 1<<size - 1, 0x5555555555555555,
		0x123456789abcdef}
	for i := range s {
		s[i] &= 1<<size - 1
	}
	return s
}

// The sums and products of exactFloats are exact, so an operator may round as it likes. float32 has infinities in the
// place of the largest of extremeFloats.
var (
	exactFloats   = []float64{0, 1, 2.5, -1, -7.25, 3, 1024}
	extremeFloats = []float64{math.MaxFloat64, -math.MaxFloat64, math.MaxFloat32, -math.MaxFloat32, 1e30, -1e30, 1e-30,
		math.NaN()}
)

// alike reports whether two results of a kind are one: any NaN is like another one.
func alike(k reflect.Kind, a, b uint64) bool {
	switch k {
	case reflect.Float32:
		x, y := math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b))
		return a == b || x != x && y != y
	case reflect.Float64:
		x, y := math.Float64frombits(a), math.Float64frombits(b)
		return a == b || x != x && y != y
	}
	return a == b
}

var sizes = map[reflect.Kind]int{reflect.Int8: 1, reflect.Uint8: 1, reflect.Int16: 2, reflect.Uint16: 2,
	reflect.Int32: 4, reflect.Uint32: 4, reflect.Int64: 8, reflect.Uint64: 8}

// Recognize finds the operator whose results are these: results[i*n+j] is sample i ∘ sample j of n.
func Recognize(k reflect.Kind, results []uint64) (a Atomic, ok bool) {
	s := Samples(k)
	for a = range Atomics {
		if f := FetcherOf(a, k); f != nil && gives(f, k, s, results) {
			return a, true
		}
	}
	return 0, false
}

// RecognizeComplex is Recognize of an operator of elements of 16 bytes, which has no Fetcher.
func RecognizeComplex(op func(inout, in []complex128)) (a Atomic, ok bool) {
	all := []complex128{0x1p400, complex(0, -0x1p400), -0x1p400, complex(0, 0x1p400)}
	for i, f := range exactFloats {
		all = append(all, complex(f, exactFloats[(i+3)%len(exactFloats)]))
	}
	var x, y []complex128
	for _, v := range all {
		for _, w := range all {
			x, y = append(x, v), append(y, w)
		}
	}
	got := slices.Clone(x)
	op(got, y)
	for a = range Atomics {
		if !Has[complex128](a) {
			continue
		}
		want := slices.Clone(x)
		if Apply(a, want, y); slices.Equal(got, want) {
			return a, true
		}
	}
	return 0, false
}

package truth

import (
	"unicode"

	"github.com/gorun-mpi/mpi"
)

// kind is a type of elements, and the operators that it has.
type kind[T comparable] struct {
	name      string
	of        func(h uint64, rank int) T // h looks random
	operators []operator[T]
}

// operator is one of mpi, or a user's, and what it does to two elements. low comes from the lower ranks.
type operator[T comparable] struct {
	name  string
	op    mpi.Op[T]
	plain func(low, high T) T
	order bool // it does not commute
}

// user makes an operator of what it does to two elements.
func user[T comparable](name string, order bool, plain func(low, high T) T) operator[T] {
	return operator[T]{name, func(inout, in []T) {
		for i := range inout {
			inout[i] = plain(in[i], inout[i])
		}
	}, plain, order}
}

// affine is x ↦ A·x + B, modulo 2^32: to do one after the other is associative and does not commute.
type affine struct{ A, B uint32 }

func after(low, high affine) affine { return affine{low.A * high.A, low.B*high.A + high.B} }

type odd [3]byte

func truth(ok bool) uint64 {
	if ok {
		return 1
	}
	return 0
}

var (
	numbers = kind[uint64]{"uint64", func(h uint64, _ int) uint64 { return h }, []operator[uint64]{
		{"Sum", mpi.Sum[uint64], func(a, b uint64) uint64 { return a + b }, false},
		{"Prod", mpi.Prod[uint64], func(a, b uint64) uint64 { return a * b }, false},
		{"Min", mpi.Min[uint64], func(a, b uint64) uint64 { return min(a, b) }, false},
		{"Max", mpi.Max[uint64], func(a, b uint64) uint64 { return max(a, b) }, false},
		{"BitAnd", mpi.BitAnd[uint64], func(a, b uint64) uint64 { return a & b }, false},
		{"BitOr", mpi.BitOr[uint64], func(a, b uint64) uint64 { return a | b }, false},
		{"BitXor", mpi.BitXor[uint64], func(a, b uint64) uint64 { return a ^ b }, false},
		{"LogicalAnd", mpi.LogicalAnd[uint64], func(a, b uint64) uint64 { return truth(a != 0 && b != 0) }, false},
		{"LogicalOr", mpi.LogicalOr[uint64], func(a, b uint64) uint64 { return truth(a != 0 || b != 0) }, false},
		{"LogicalXor", mpi.LogicalXor[uint64], func(a, b uint64) uint64 { return truth((a != 0) != (b != 0)) }, false},
		user("a formal group", false, func(a, b uint64) uint64 { return a + b + 3*a*b }),
		user("the last one", true, func(_, b uint64) uint64 { return b }),
	}}
	// Values of which every sum and product is exact.
	floats = kind[float64]{"float64", func(h uint64, _ int) float64 { return float64(int64(h%5) - 2) },
		[]operator[float64]{
			{"Sum", mpi.Sum[float64], func(a, b float64) float64 { return a + b }, false},
			{"Prod", mpi.Prod[float64], func(a, b float64) float64 { return a * b }, false},
			{"Min", mpi.Min[float64], func(a, b float64) float64 { return min(a, b) }, false},
			{"Max", mpi.Max[float64], func(a, b float64) float64 { return max(a, b) }, false},
		}}
	small = kind[int32]{"int32", func(h uint64, _ int) int32 { return int32(h) }, []operator[int32]{
		{"Sum", mpi.Sum[int32], func(a, b int32) int32 { return a + b }, false},
		{"Max", mpi.Max[int32], func(a, b int32) int32 { return max(a, b) }, false},
	}}
	// Many ranks have the same value.
	places = kind[mpi.Loc[float64]]{"Loc[float64]",
		func(h uint64, rank int) mpi.Loc[float64] { return mpi.Loc[float64]{Value: float64(h % 3), Index: rank} },
		[]operator[mpi.Loc[float64]]{
			{"MinLoc", mpi.MinLoc[float64], func(a, b mpi.Loc[float64]) mpi.Loc[float64] {
				if b.Value < a.Value || b.Value == a.Value && b.Index < a.Index {
					return b
				}
				return a
			}, false},
			{"MaxLoc", mpi.MaxLoc[float64], func(a, b mpi.Loc[float64]) mpi.Loc[float64] {
				if b.Value > a.Value || b.Value == a.Value && b.Index < a.Index {
					return b
				}
				return a
			}, false},
		}}
	functions = kind[affine]{"affine", func(h uint64, _ int) affine { return affine{uint32(h) | 1, uint32(h >> 32)} },
		[]operator[affine]{user("after", true, after)}}
	odds = kind[odd]{"[3]byte", func(h uint64, _ int) odd { return odd{byte(h), byte(h >> 8), byte(h >> 16)} },
		[]operator[odd]{
			user("sum of bytes", false, func(a, b odd) odd { return odd{a[0] + b[0], a[1] + b[1], a[2] + b[2]} }),
			user("the first one", true, func(a, _ odd) odd { return a }),
		}}
	octets = kind[byte]{"byte", func(h uint64, _ int) byte { return byte(h) }, []operator[byte]{
		{"BitXor", mpi.BitXor[byte], func(a, b byte) byte { return a ^ b }, false},
	}}
	nothing = kind[struct{}]{"struct{}", func(uint64, int) struct{} { return struct{}{} },
		[]operator[struct{}]{user("of nothing", false, func(a, _ struct{}) struct{} { return a })}}
)

// kinds are all types of elements.
var kinds = []interface {
	begin(c *mpi.Comm, call *Call) (*Pending, error)
	many() int // operators
	operator(i int) string
	named(i int) bool // the operator is one of package mpi, whose names are compared
	String() string
}{&numbers, &floats, &small, &places, &functions, &odds, &octets, &nothing}

func (k *kind[T]) many() int             { return len(k.operators) }
func (k *kind[T]) operator(i int) string { return k.operators[i%len(k.operators)].name }
func (k *kind[T]) String() string        { return k.name }

func (k *kind[T]) named(i int) bool { return unicode.IsUpper(rune(k.operator(i)[0])) }

// mix makes a number that looks random of others.
func mix(numbers ...uint64) (x uint64) {
	for _, n := range numbers {
		x = (x ^ n) + 0x9e3779b97f4a7c15 // splitmix64
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
	}
	return x
}

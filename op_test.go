package mpi_test

import (
	"math"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi"
)

// combine has the parameters of a reduction, which decide how Go finds the operator's type.
func combine[T any](send, recv []T, op mpi.Op[T]) []T {
	if send != nil {
		op(recv, send)
	}
	return recv
}

func wantOp[T comparable](t *testing.T, name string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", name, got, want)
	}
}

type metres float64

// TestOps passes every operator as it is, uninstantiated, with operands of each class of types; MPI 4.1 §6.9.2, §6.9.4.
func TestOps(t *testing.T) {
	ints := func() ([]int, []int) { return []int{6, 0, -5}, []int{3, 7, 4} }
	a, b := ints()
	wantOp(t, "Sum", combine(a, b, mpi.Sum), 9, 7, -1)
	a, b = ints()
	wantOp(t, "Prod", combine(a, b, mpi.Prod), 18, 0, -20)
	a, b = ints()
	wantOp(t, "Min", combine(a, b, mpi.Min), 3, 0, -5)
	a, b = ints()
	wantOp(t, "Max", combine(a, b, mpi.Max), 6, 7, 4)
	a, b = ints()
	wantOp(t, "BitAnd", combine(a, b, mpi.BitAnd), 6&3, 0, -5&4)
	a, b = ints()
	wantOp(t, "BitOr", combine(a, b, mpi.BitOr), 6|3, 7, -5|4)
	a, b = ints()
	wantOp(t, "BitXor", combine(a, b, mpi.BitXor), 6^3, 7, -5^4)
	a, b = ints()
	wantOp(t, "LogicalAnd", combine(a, b, mpi.LogicalAnd), 1, 0, 1)
	a, b = ints()
	wantOp(t, "LogicalOr", combine(a, b, mpi.LogicalOr), 1, 1, 1)
	a, b = ints()
	wantOp(t, "LogicalXor", combine(a, b, mpi.LogicalXor), 0, 1, 0)

	wantOp(t, "Sum", combine([]metres{1.5}, []metres{2}, mpi.Sum), 3.5)
	wantOp(t, "Prod", combine([]complex128{2i}, []complex128{3i}, mpi.Prod), -6)
	wantOp(t, "LogicalOr", combine([]bool{true, false}, []bool{false, false}, mpi.LogicalOr), true, false)
	wantOp(t, "in place", combine(nil, []float64{4}, mpi.Sum), 4)

	at := func(v float64, i int) mpi.Loc[float64] { return mpi.Loc[float64]{Value: v, Index: i} }
	low := []mpi.Loc[float64]{at(1, 2), at(5, 0), at(3, 0)}
	high := []mpi.Loc[float64]{at(2, 1), at(5, 1), at(math.Inf(1), 1)}
	wantOp(t, "MinLoc", combine(low, slices.Clone(high), mpi.MinLoc), at(1, 2), at(5, 0), at(3, 0))
	wantOp(t, "MaxLoc", combine(low, slices.Clone(high), mpi.MaxLoc), at(2, 1), at(5, 0), at(math.Inf(1), 1))

	// An operator of the caller's, which does not commute: a is from the lower rank.
	left := func(inout, in []string) {
		for i := range inout {
			inout[i] = in[i] + inout[i]
		}
	}
	wantOp(t, "the caller's", combine([]string{"a"}, []string{"b"}, left), "ab")
}

// TestOpLengths: what an operator is given too much of stays as it is, and it does not panic.
func TestOpLengths(t *testing.T) {
	got := []int32{1, 2, 3}
	mpi.Sum(got, []int32{10, 10})
	wantOp(t, "a short operand", got, 11, 12, 3)
	mpi.Sum(got, nil)
	wantOp(t, "no operand", got, 11, 12, 3)
	mpi.Sum(got[:1], []int32{1, 1})
	wantOp(t, "a long operand", got, 12, 12, 3)
}

package mpi

import "github.com/gorun-mpi/mpi/internal/reduce"

// Op combines two vectors of the same length: inout[i] = in[i] ∘ inout[i] for all i, where in comes from lower ranks;
// §6.9. It must be associative. The length may be shorter than the call's vectors, because the library may combine a
// piece at a time. The library may call an Op on any goroutine, and on several at once for different calls. An Op must
// not keep the slices, and must not call this package.
//
// Pass Sum and the other operators of this package as they are: mpi.Sum is an Op of every number type.
type Op[T any] func(inout, in []T)

// Integer, Real, Number and Logical are the element types of the operators, and include named types of these kinds.
type (
	Integer = reduce.Integer
	Real    = reduce.Real
	Number  = reduce.Number
	Logical = reduce.Logical
)

// Loc is an element of MinLoc and MaxLoc: a value, and its index, such as the rank that has it.
type Loc[T Real] = reduce.Loc[T]

// Sum adds; §6.9.2. Integers wrap around.
func Sum[T Number](inout, in []T) { reduce.Sum(operands(inout, in)) }

// Prod multiplies; §6.9.2. Integers wrap around.
func Prod[T Number](inout, in []T) { reduce.Prod(operands(inout, in)) }

// Min returns the lesser element, as Go's min: NaN if one is NaN, and −0 is less than +0; §6.9.2.
func Min[T Real](inout, in []T) { reduce.Min(operands(inout, in)) }

// Max returns the greater element, as Go's max: NaN if one is NaN, and −0 is less than +0; §6.9.2.
func Max[T Real](inout, in []T) { reduce.Max(operands(inout, in)) }

// BitAnd is the bitwise and; §6.9.2.
func BitAnd[T Integer](inout, in []T) { reduce.BitAnd(operands(inout, in)) }

// BitOr is the bitwise or; §6.9.2.
func BitOr[T Integer](inout, in []T) { reduce.BitOr(operands(inout, in)) }

// BitXor is the bitwise exclusive or; §6.9.2.
func BitXor[T Integer](inout, in []T) { reduce.BitXor(operands(inout, in)) }

// LogicalAnd is true if both elements are true; §6.9.2. An integer is true if it is not 0, and a true result is 1.
func LogicalAnd[T Logical](inout, in []T) { reduce.LogicalAnd(operands(inout, in)) }

// LogicalOr is true if at least one element is true; §6.9.2. An integer is true if it is not 0, and a true result is 1.
func LogicalOr[T Logical](inout, in []T) { reduce.LogicalOr(operands(inout, in)) }

// LogicalXor is true if exactly one element is true; §6.9.2. An integer is true if it is not 0, and a true result is 1.
func LogicalXor[T Logical](inout, in []T) { reduce.LogicalXor(operands(inout, in)) }

// MinLoc returns the element with the lesser value, and of equal values the one with the lesser index; §6.9.4. A NaN
// counts as less than every number.
func MinLoc[T Real](inout, in []Loc[T]) { reduce.MinLoc(operands(inout, in)) }

// MaxLoc returns the element with the greater value, and of equal values the one with the lesser index; §6.9.4. A NaN
// counts as greater than every number.
func MaxLoc[T Real](inout, in []Loc[T]) { reduce.MaxLoc(operands(inout, in)) }

// operands are what package reduce is called with: the destination and the two operands, of as many elements as both
// have.
func operands[T any](inout, in []T) (dst, a, b []T) {
	n := min(len(inout), len(in))
	return inout[:n], in[:n], inout[:n]
}

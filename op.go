package mpi

import "github.com/gorun-mpi/mpi/internal/reduce"

// Op combines two vectors: inout[i] = in[i] ∘ inout[i] for all i, where in comes from the lower ranks; §6.9. It must be
// associative. The two have the same length, which need not be that of the vectors of the call: the library may combine
// a piece at a time. An Op may be called on any goroutine, and on several at once for different calls. It must not keep
// the slices, nor call this package.
//
// Sum and the other operators of this package are passed as they are: mpi.Sum is an Op of every type of number.
type Op[T any] func(inout, in []T)

// Integer, Real, Number and Logical are the types of elements of the operators, with their named types.
type (
	Integer = reduce.Integer
	Real    = reduce.Real
	Number  = reduce.Number
	Logical = reduce.Logical
)

// Loc is an element of MinLoc and MaxLoc: a value, and where it was found, for instance on which rank.
type Loc[T Real] = reduce.Loc[T]

// Sum adds; §6.9.2. Integers wrap around.
func Sum[T Number](inout, in []T) { reduce.Sum(operands(inout, in)) }

// Prod multiplies; §6.9.2. Integers wrap around.
func Prod[T Number](inout, in []T) { reduce.Prod(operands(inout, in)) }

// Min takes the lesser element, as Go's min does: NaN if one is NaN, and −0 is less than +0; §6.9.2.
func Min[T Real](inout, in []T) { reduce.Min(operands(inout, in)) }

// Max takes the greater element, as Go's max does: NaN if one is NaN, and −0 is less than +0; §6.9.2.
func Max[T Real](inout, in []T) { reduce.Max(operands(inout, in)) }

// BitAnd is &; §6.9.2.
func BitAnd[T Integer](inout, in []T) { reduce.BitAnd(operands(inout, in)) }

// BitOr is |; §6.9.2.
func BitOr[T Integer](inout, in []T) { reduce.BitOr(operands(inout, in)) }

// BitXor is ^; §6.9.2.
func BitXor[T Integer](inout, in []T) { reduce.BitXor(operands(inout, in)) }

// LogicalAnd is true, for an integer 1, where both are true, that is not 0; §6.9.2.
func LogicalAnd[T Logical](inout, in []T) { reduce.LogicalAnd(operands(inout, in)) }

// LogicalOr is true, for an integer 1, where one or both are true, that is not 0; §6.9.2.
func LogicalOr[T Logical](inout, in []T) { reduce.LogicalOr(operands(inout, in)) }

// LogicalXor is true, for an integer 1, where exactly one is true, that is not 0; §6.9.2.
func LogicalXor[T Logical](inout, in []T) { reduce.LogicalXor(operands(inout, in)) }

// MinLoc takes the element with the lesser value, of equal ones that with the lesser index; §6.9.4. A NaN is taken
// before every number.
func MinLoc[T Real](inout, in []Loc[T]) { reduce.MinLoc(operands(inout, in)) }

// MaxLoc takes the element with the greater value, of equal ones that with the lesser index; §6.9.4. A NaN is taken
// before every number.
func MaxLoc[T Real](inout, in []Loc[T]) { reduce.MaxLoc(operands(inout, in)) }

// operands are what package reduce is called with: the destination and the two operands, of as many elements as both
// have.
func operands[T any](inout, in []T) (dst, a, b []T) {
	n := min(len(inout), len(in))
	return inout[:n], in[:n], inout[:n]
}

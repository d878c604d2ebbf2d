package reduce

// The kinds of elements. Named types count as the type below them.
type (
	// Integer has the types for operators of bits and logic.
	Integer interface {
		~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
	}

	// Real has the types with an order.
	Real interface {
		Integer | ~float32 | ~float64
	}

	// Number has the types that can be added and multiplied.
	Number interface {
		Real | ~complex64 | ~complex128
	}

	// Logical has the types that are true or false: an integer is true if it is not 0, and a true result is 1.
	Logical interface {
		Integer | ~bool
	}
)

// Sum is a + b.
func Sum[T Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := run(opSum, dst, a, b); i < len(dst); i++ {
		dst[i] = a[i] + b[i]
	}
}

// Prod is a · b.
func Prod[T Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := run(opProd, dst, a, b); i < len(dst); i++ {
		dst[i] = a[i] * b[i]
	}
}

// Min is the lesser of a and b.
func Min[T Real](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := run(opMin, dst, a, b); i < len(dst); i++ {
		dst[i] = min(a[i], b[i])
	}
}

// Max is the greater of a and b.
func Max[T Real](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := run(opMax, dst, a, b); i < len(dst); i++ {
		dst[i] = max(a[i], b[i])
	}
}

// BitAnd is a & b.
func BitAnd[T Integer](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := run(opBitAnd, dst, a, b); i < len(dst); i++ {
		dst[i] = a[i] & b[i]
	}
}

// BitOr is a | b.
func BitOr[T Integer](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := run(opBitOr, dst, a, b); i < len(dst); i++ {
		dst[i] = a[i] | b[i]
	}
}

// BitXor is a ^ b.
func BitXor[T Integer](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := run(opBitXor, dst, a, b); i < len(dst); i++ {
		dst[i] = a[i] ^ b[i]
	}
}

// LogicalAnd is 1, or true, where both are true, and 0, or false, elsewhere.
func LogicalAnd[T Logical](dst, a, b []T) {
	bySize(dst, a, b, and[uint8], and[uint16], and[uint32], and[uint64])
}

// LogicalOr is 1, or true, where one of the two is true or both are, and 0, or false, elsewhere.
func LogicalOr[T Logical](dst, a, b []T) {
	bySize(dst, a, b, or[uint8], or[uint16], or[uint32], or[uint64])
}

// LogicalXor is 1, or true, where exactly one of the two is true, and 0, or false, elsewhere.
func LogicalXor[T Logical](dst, a, b []T) {
	bySize(dst, a, b, xor[uint8], xor[uint16], xor[uint32], xor[uint64])
}

// unsigned is what Logical is for the loops: the bits of an int and of a bool alike.
type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}

func and[T unsigned](dst, a, b []T) {
	for i := run(opLogicalAnd, dst, a, b); i < len(dst); i++ {
		dst[i] = truth[T](a[i] != 0 && b[i] != 0)
	}
}

func or[T unsigned](dst, a, b []T) {
	for i := run(opLogicalOr, dst, a, b); i < len(dst); i++ {
		dst[i] = truth[T](a[i] != 0 || b[i] != 0)
	}
}

func xor[T unsigned](dst, a, b []T) {
	for i := run(opLogicalXor, dst, a, b); i < len(dst); i++ {
		dst[i] = truth[T]((a[i] != 0) != (b[i] != 0))
	}
}

func truth[T unsigned](ok bool) T {
	if ok {
		return 1
	}
	return 0
}

// Loc is a value and where it was found, for instance on which rank.
type Loc[T Real] struct {
	Value T
	Index int
}

// MinLoc is the element with the lesser value, and of equal values the one with the lesser index. NaN is less than
// every number here, so that it is found, and −0 and +0 are equal.
func MinLoc[T Real](dst, a, b []Loc[T]) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		p, q := a[i], b[i]
		pn, qn := p.Value != p.Value, q.Value != q.Value
		if p.Value < q.Value || pn && !qn || (p.Value == q.Value || pn && qn) && p.Index < q.Index {
			q = p
		}
		dst[i] = q
	}
}

// MaxLoc is the element with the greater value, and of equal values the one with the lesser index. NaN is greater than
// every number here, so that it is found, and −0 and +0 are equal.
func MaxLoc[T Real](dst, a, b []Loc[T]) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		p, q := a[i], b[i]
		pn, qn := p.Value != p.Value, q.Value != q.Value
		if p.Value > q.Value || pn && !qn || (p.Value == q.Value || pn && qn) && p.Index < q.Index {
			q = p
		}
		dst[i] = q
	}
}

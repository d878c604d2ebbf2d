package layout

import (
	"errors"
	"fmt"
)

// Type is a typemap. It does not change once it is made.
type Type struct {
	size   int64 // bytes of data
	lo, hi int64 // the first byte of data and the one behind the last; both 0 if there is none
	align  int64 // the largest alignment of an element, at least 1
	depth  int   // of the program

	marked         bool  // Resized has set bounds, of the Type or of a part of it; then they are these:
	markLo, markHi int64 // the lowest and the highest of those set

	sum   uint64 // a polynomial over the kinds of the elements, in order
	power uint64 // its base to the number of elements

	at   int64 // where the program begins
	prog *node // nil if there is no data
}

// maxDepth bounds how lists may be nested. Loops cannot be nested so deep: each doubles the size.
const maxDepth = 1000

// errLarge is why a Type cannot be made.
var errLarge = errors.New("the layout spans more than 2⁶³ bytes; use smaller counts, strides or displacements")

// Basic is one element of size bytes that should lie at a multiple of align. kind is what its signature shows.
func Basic(kind uint8, size, align int64) *Type {
	t := &Type{align: max(align, 1), power: 1}
	if size > 0 {
		t.size, t.hi, t.prog = size, size, run(size)
		t.sum, t.power = uint64(kind)+1, base
	}
	return t
}

// Size is the number of bytes of data.
func (t *Type) Size() int64 { return t.size }

// Bounds are the lower and the upper bound; the difference is the extent, by which repeated elements are apart; §5.1.7.
// Without Resized they are the true bounds, the upper one moved up so that the extent is a multiple of the alignment.
func (t *Type) Bounds() (lb, ub int64) {
	if t.marked {
		return t.markLo, t.markHi
	}
	if over := (t.hi - t.lo) % t.align; over != 0 {
		return t.lo, t.hi + t.align - over
	}
	return t.lo, t.hi
}

// TrueBounds returns the bounds of the data, whatever Resized set; §5.1.8.
func (t *Type) TrueBounds() (lb, ub int64) { return t.lo, t.hi }

// Extent is the upper bound less the lower one.
func (t *Type) Extent() int64 {
	lb, ub := t.Bounds()
	return ub - lb
}

// Contiguous reports whether the data has no gaps and lies in order, and where it begins.
func (t *Type) Contiguous() (at int64, ok bool) {
	return t.at, t.prog == nil || t.prog.form == isRun
}

// Signature is equal for Types with the same sequence of kinds, and almost never for others; §5.1.1.
func (t *Type) Signature() uint64 { return t.sum ^ t.power*0x9e37_79b9_7f4a_7c15 }

// Fits reports whether the data lies within memory of length bytes whose byte number origin has displacement 0.
func (t *Type) Fits(length, origin int64) error {
	switch {
	case t.size == 0:
		return nil
	case origin < 0 || origin > length:
		return fmt.Errorf("displacement 0 is at byte %d of %d", origin, length)
	case t.lo < -origin:
		return fmt.Errorf("the layout begins %d bytes before the buffer; move it up, or begin the buffer earlier",
			-origin-t.lo)
	case t.hi > length-origin:
		return fmt.Errorf("the layout needs %d bytes, the buffer has %d; use a longer buffer or a smaller layout",
			t.hi, length-origin)
	}
	return nil
}

// Part is Count copies of Type: copy i has its displacement 0 at byte At + i·Stride of the whole.
type Part struct {
	Type              *Type
	Count, Stride, At int64
}

// like reports whether p is q at another place.
func (p Part) like(q Part) bool {
	return p.Type == q.Type && p.Count == q.Count && p.Stride == q.Stride
}

// Of is the typemap of the parts, one after the other. Every constructor is one of it.
func Of(parts ...Part) (*Type, error) {
	t := &Type{align: 1, power: 1}
	var c checked
	var prog *node // that of the part before
	pieces := make([]piece, 0, len(parts))
	for i, p := range parts {
		if p.Count < 0 {
			return nil, fmt.Errorf("a count is %d, of part %d; counts are 0 or more", p.Count, i)
		}
		if p.Count == 0 {
			continue
		}
		// The first copy and the last one; a loop may go either way.
		end := c.mul(p.Count-1, p.Stride)
		low, high := c.add(p.At, min(end, 0)), c.add(p.At, max(end, 0))
		t.mark(&c, p.Type, low, high)
		if p.Type.size == 0 {
			continue
		}
		lo, hi := c.add(low, p.Type.lo), c.add(high, p.Type.hi)
		if t.size == 0 {
			t.lo, t.hi = lo, hi
		}
		t.lo, t.hi = min(t.lo, lo), max(t.hi, hi)
		t.align = max(t.align, p.Type.align)
		t.size = c.add(t.size, c.mul(p.Count, p.Type.size))
		if c.bad {
			return nil, errLarge
		}
		sum, power := repeatSum(p.Type.sum, p.Type.power, p.Count)
		t.sum, t.power = t.sum*power+sum, t.power*power
		if i == 0 || !p.like(parts[i-1]) {
			prog = repeat(p.Type.prog, p.Count, p.Stride)
		}
		pieces = appendPiece(pieces, piece{at: c.add(p.At, p.Type.at), node: prog})
	}
	c.add(c.sub(t.hi, t.lo), t.align) // Bounds and Extent add less
	c.add(t.hi, t.align)
	c.sub(t.markHi, t.markLo)
	if c.bad {
		return nil, errLarge
	}
	if t.size > 0 {
		t.at, t.prog = list(pieces)
		if t.depth = t.prog.depth; t.depth > maxDepth {
			return nil, fmt.Errorf("layouts are nested more than %d deep; say it with fewer", maxDepth)
		}
	}
	return t, nil
}

// mark takes over the bounds that Resized has set for p, copies of which begin at low … high.
func (t *Type) mark(c *checked, p *Type, low, high int64) {
	if !p.marked {
		return
	}
	lo, hi := c.add(low, p.markLo), c.add(high, p.markHi)
	if !t.marked {
		t.marked, t.markLo, t.markHi = true, lo, hi
	}
	t.markLo, t.markHi = min(t.markLo, lo), max(t.markHi, hi)
}

// Resized returns t with other bounds, which also hold in the types that contain it; §5.1.7.
func Resized(t *Type, lb, extent int64) (*Type, error) {
	var c checked
	r := *t
	r.marked, r.markLo, r.markHi = true, lb, c.add(lb, extent)
	if c.bad {
		return nil, errLarge
	}
	return &r, nil
}

// base is that of the signatures' polynomial.
const base = 0x100_0000_01b3

// repeatSum is the sum and the power of n copies.
func repeatSum(sum, power uint64, n int64) (s, p uint64) {
	p = 1
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			s, p = s*power+sum, p*power
		}
		sum, power = sum*power+sum, power*power
	}
	return s, p
}

// checked calculates, and remembers whether a result did not fit.
type checked struct{ bad bool }

func (c *checked) add(a, b int64) int64 {
	s := a + b
	if (a^s)&(b^s) < 0 {
		c.bad = true
	}
	return s
}

func (c *checked) sub(a, b int64) int64 {
	s := a - b
	if (a^b)&(a^s) < 0 {
		c.bad = true
	}
	return s
}

func (c *checked) mul(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	p := a * b
	if p/b != a || a == -1 && b == -1<<63 || b == -1 && a == -1<<63 {
		c.bad = true
	}
	return p
}

package mpi

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/layout"
)

// Layout says where in a buffer the elements of a message lie, and in which order: a derived datatype; §5.1. The first
// element of a buffer has displacement 0. Of makes a Layout of one element; the functions below make Layouts from
// others. A Layout never changes and needs neither commit nor free. Any number of calls may use it at once.
//
// The elements of a layout have the type of the buffer's elements, or of fields and array elements in them; §3.3.1. int
// and int64 are two types. A layout of bytes, Of[byte], names the bytes of any type, and a []byte is memory for
// elements of any type. Calls return ErrType for other combinations. A buffer's structs may hold strings and pointers
// if the layout names none of their bytes.
//
// A constructor that gets an impossible argument, such as a negative count, makes a Layout with that error. Err returns
// the error, and so does every call that gets the Layout or one made from it.
type Layout struct{ is *derived }

// derived is a Layout's contents.
type derived struct {
	*layout.Type
	err      error // why there is no Type
	numbers  kindSet
	overlaps atomic.Int32           // 0: not looked yet; else one of the two below
	between  atomic.Pointer[beside] // of the last type of a buffer that has pointers; nil: there was none
}

// beside is whether a layout names bytes of pointers in a buffer of a type.
type beside struct {
	of  reflect.Type
	err error
}

const (
	noOverlap = iota + 1
	anOverlap
)

var errNoLayout = errors.New("the layout is the zero value; make one with Of, Vector or another constructor, and one " +
	"of no elements with Contiguous(0, Of[byte]())")

// overlapping reports whether two elements share memory. It looks once.
func (d *derived) overlapping() bool {
	if d.overlaps.Load() == 0 {
		answer := int32(noOverlap)
		if d.Type.Overlaps() {
			answer = anOverlap
		}
		d.overlaps.Store(answer)
	}
	return d.overlaps.Load() == anOverlap
}

// touches reports that an element shares memory with a pointer, or what has one, in a buffer of t. It remembers the last
// answer.
func (d *derived) touches(t reflect.Type) error {
	if b := d.between.Load(); b != nil && b.of == t {
		return b.err
	}
	b := &beside{of: t}
	path := ""
	if d.Type.Within(int64(t.Size()), func(lo, hi int64) bool {
		path = pointerWithin(t, t.String(), uintptr(lo), uintptr(hi))
		return path == ""
	}); path != "" {
		b.err = fmt.Errorf("the layout covers %s which holds a pointer and means nothing to another process; name the "+
			"numbers alone, by a Struct with unsafe.Offsetof, Resized to the size of a %v", path, t)
	}
	d.between.Store(b)
	return b.err
}

// matches reports that there are elements of a type that a buffer of t does not have.
func (d *derived) matches(t reflect.Type, has contents) error {
	if has.numbers == justBytes && !has.pointers || d.Size() == 0 {
		return nil
	}
	if other := d.numbers &^ has.numbers &^ justBytes; other != 0 {
		return fmt.Errorf("the layout has elements of %v, and %v has none; make it with Of[%v]() or of a part of that, or "+
			"name bytes with Of[byte]()", other, t, t)
	}
	return nil
}

// made is the Layout of a constructor.
func made(t *layout.Type, n kindSet, err error) Layout {
	return Layout{&derived{Type: t, numbers: n, err: err}}
}

// from is the Layout that f makes of of, unless that has an error.
func from(of Layout, f func(t *layout.Type) (*layout.Type, error)) Layout {
	if err := of.Err(); err != nil {
		return made(nil, 0, err)
	}
	t, err := f(of.is.Type)
	return made(t, of.is.numbers, err)
}

// Err returns the reason why the Layout cannot be used, or nil.
func (l Layout) Err() error {
	if l.is == nil {
		return errNoLayout
	}
	return l.is.err
}

// Size returns the number of bytes of a message with this layout, 0 if the layout has an error; §5.1.5.
func (l Layout) Size() int64 {
	if l.Err() != nil {
		return 0
	}
	return l.is.Type.Size()
}

// Extent returns the lower bound, and the number of bytes from there to the upper bound; §5.1.7. Copies of the layout
// that follow each other are extent bytes apart.
func (l Layout) Extent() (lb, extent int64) {
	if l.Err() != nil {
		return 0, 0
	}
	lb, ub := l.is.Bounds()
	return lb, ub - lb
}

// TrueExtent returns the offset of the first byte of data, and the number of bytes from there to the end of the data,
// whatever Resized set; §5.1.8.
func (l Layout) TrueExtent() (lb, extent int64) {
	if l.Err() != nil {
		return 0, 0
	}
	lb, ub := l.is.TrueBounds()
	return lb, ub - lb
}

// Of returns the layout of one T, padding included: a basic datatype; §3.2.2.
func Of[T any]() Layout {
	if err := fixedType[T](); err != nil {
		return made(nil, 0, err)
	}
	t := reflect.TypeFor[T]()
	return made(layout.Basic(uint8(t.Kind()), int64(t.Size()), int64(t.Align())), contentsOf(t).numbers, nil)
}

// Contiguous returns count copies of layout of, one behind the other; §5.1.2 (MPI_Type_contiguous).
func Contiguous(count int, of Layout) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) { return layout.Contiguous(int64(count), t) })
}

// Vector returns count blocks, each of blocklen copies of layout of; §5.1.2 (MPI_Type_vector). A block begins stride
// extents of of behind the block before it. A column of a matrix with n columns is Vector(rows, 1, n, Of[float64]()).
func Vector(count, blocklen, stride int, of Layout) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) {
		return layout.Vector(int64(count), int64(blocklen), int64(stride), t)
	})
}

// HVector is Vector with the stride in bytes; §5.1.2 (MPI_Type_create_hvector).
func HVector(count, blocklen, stride int, of Layout) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) {
		return layout.HVector(int64(count), int64(blocklen), int64(stride), t)
	})
}

// Indexed returns one block for each displacement; §5.1.2 (MPI_Type_indexed). Block i has blocklens[i] copies of layout
// of, and begins displacements[i] extents of of from the beginning. A single blocklen holds for all blocks
// (MPI_Type_create_indexed_block).
func Indexed(blocklens, displacements []int, of Layout) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) {
		return layout.Indexed(int64s(blocklens), int64s(displacements), t)
	})
}

// HIndexed is Indexed with the displacements in bytes; §5.1.2 (MPI_Type_create_hindexed).
func HIndexed(blocklens, displacements []int, of Layout) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) {
		return layout.HIndexed(int64s(blocklens), int64s(displacements), t)
	})
}

// Field is a part of a Struct: Count copies of layout Of, which begin At bytes from the beginning.
type Field struct {
	Count, At int
	Of        Layout
}

// Struct returns the fields, one after the other; §5.1.2 (MPI_Type_create_struct). unsafe.Offsetof gives the
// displacement of a field of a Go struct. Resized to unsafe.Sizeof of the struct, a Contiguous of it names those fields
// of every struct in a slice; the struct's other fields may be strings and pointers.
func Struct(fields ...Field) Layout {
	parts := make([]layout.Part, len(fields))
	var all kindSet
	for i, f := range fields {
		if err := f.Of.Err(); err != nil {
			return made(nil, 0, fmt.Errorf("field %d: %w", i, err))
		}
		t := f.Of.is.Type
		if f.Count > 0 && t.Size() > 0 {
			all |= f.Of.is.numbers
		}
		parts[i] = layout.Part{Type: t, Count: int64(f.Count), Stride: t.Extent(), At: int64(f.At)}
	}
	t, err := layout.Of(parts...)
	return made(t, all, err)
}

// Resized returns layout of with another lower bound and another extent, in bytes; §5.1.7 (MPI_Type_create_resized).
func Resized(of Layout, lb, extent int) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) {
		return layout.Resized(t, int64(lb), int64(extent))
	})
}

// Order is the order of an array's dimensions in memory.
type Order = layout.Order

// In OrderC, as in Go, elements that differ by 1 in the last index are neighbours in memory; in OrderFortran, elements
// that differ by 1 in the first index.
const (
	OrderC       = layout.C
	OrderFortran = layout.Fortran
)

// Subarray returns the part of an array that begins at starts and has the lengths subsizes; §5.1.3
// (MPI_Type_create_subarray). sizes are the lengths of the whole array, and its size is the extent of the layout.
func Subarray(sizes, subsizes, starts []int, order Order, of Layout) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) {
		return layout.Subarray(int64s(sizes), int64s(subsizes), int64s(starts), order, t)
	})
}

// ArrayDim is a dimension of an array that is distributed over a grid of processes: its Size, How it is distributed,
// the length of a Block (0: the standard's default), and the number of processes, Procs.
type ArrayDim = layout.Dimension

// The ways to distribute a dimension of an array: not at all, in one block for each process, or in blocks in turn.
const (
	DistributeNone   = layout.None
	DistributeBlock  = layout.Block
	DistributeCyclic = layout.Cyclic
)

// Darray returns the part of a distributed array that process rank of a grid has; §5.1.4 (MPI_Type_create_darray). The
// last dimension of the grid changes fastest in the numbering of processes. The size of the whole array is the extent
// of the layout.
func Darray(rank int, dims []ArrayDim, order Order, of Layout) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) {
		return layout.Darray(int64(rank), dims, order, t)
	})
}

func int64s(from []int) []int64 {
	to := make([]int64, len(from))
	for i, n := range from {
		to[i] = int64(n)
	}
	return to
}

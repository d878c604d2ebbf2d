package mpi

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/layout"
)

// Layout says where in a buffer the elements of a message lie, and in which order: a derived datatype; §5.1. A buffer's
// first element has displacement 0. A Layout is made from others, at first from Of, by the functions below; it does not
// change, needs no commit and no free, and any number of calls may use it.
//
// Its elements have the type of those in the buffer, §3.3.1, which may be parts of structs and arrays there; int and
// int64 are two types. A layout of bytes, Of[byte], names bytes of any type, and a []byte is memory for elements of any
// type. Calls return ErrType for others. A buffer's structs may hold strings and pointers if the layout names none of
// their bytes.
//
// A constructor that is given what cannot be, such as a negative count, makes a Layout with that error: Err returns it,
// and so does every call that is given the Layout or one made from it.
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

// Err is why the Layout cannot be used, or nil.
func (l Layout) Err() error {
	if l.is == nil {
		return errNoLayout
	}
	return l.is.err
}

// Size is the number of bytes of a message with this layout; §5.1.5. It is 0 if there is an error.
func (l Layout) Size() int64 {
	if l.Err() != nil {
		return 0
	}
	return l.is.Type.Size()
}

// Extent is the lower bound, and the bytes from there to the upper bound, by which repeated layouts are apart; §5.1.7.
func (l Layout) Extent() (lb, extent int64) {
	if l.Err() != nil {
		return 0, 0
	}
	lb, ub := l.is.Bounds()
	return lb, ub - lb
}

// TrueExtent is the first byte of data, and the bytes from there to the last, whatever Resized says; §5.1.8.
func (l Layout) TrueExtent() (lb, extent int64) {
	if l.Err() != nil {
		return 0, 0
	}
	lb, ub := l.is.TrueBounds()
	return lb, ub - lb
}

// Of is the layout of one T, padding included: a basic datatype, from which others are made; §3.2.2.
func Of[T any]() Layout {
	if err := fixedType[T](); err != nil {
		return made(nil, 0, err)
	}
	t := reflect.TypeFor[T]()
	return made(layout.Basic(uint8(t.Kind()), int64(t.Size()), int64(t.Align())), contentsOf(t).numbers, nil)
}

// Contiguous is count of of, one behind the other; §5.1.2 (MPI_Type_contiguous).
func Contiguous(count int, of Layout) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) { return layout.Contiguous(int64(count), t) })
}

// Vector is count blocks, each blocklen of of; a block begins stride extents of of behind the one before it; §5.1.2
// (MPI_Type_vector). A column of a matrix of n columns is Vector(rows, 1, n, Of[float64]()).
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

// Indexed is blocks of blocklens[i] of of, displacements[i] extents of of from the beginning; §5.1.2
// (MPI_Type_indexed). One blocklen is that of all blocks (MPI_Type_create_indexed_block).
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

// Field is a part of a Struct: Count of Of, the first At bytes from the beginning.
type Field struct {
	Count, At int
	Of        Layout
}

// Struct is the fields, one after the other; §5.1.2 (MPI_Type_create_struct). unsafe.Offsetof gives the displacement of
// a field of a Go struct. Resized gives it the size of the struct, unsafe.Sizeof, so that a Contiguous of it names those
// fields of all in a slice; the struct's other fields may be strings and pointers.
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

// Resized is of with another lower bound and another extent, in bytes; §5.1.7 (MPI_Type_create_resized).
func Resized(of Layout, lb, extent int) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) {
		return layout.Resized(t, int64(lb), int64(extent))
	})
}

// Order is that of an array's dimensions.
type Order = layout.Order

// OrderC: the last index is that of neighbours in memory, as in Go. OrderFortran: the first is.
const (
	OrderC       = layout.C
	OrderFortran = layout.Fortran
)

// Subarray is the part of an array of sizes that begins at starts and has subsizes; its extent is the whole array's;
// §5.1.3 (MPI_Type_create_subarray).
func Subarray(sizes, subsizes, starts []int, order Order, of Layout) Layout {
	return from(of, func(t *layout.Type) (*layout.Type, error) {
		return layout.Subarray(int64s(sizes), int64s(subsizes), int64s(starts), order, t)
	})
}

// ArrayDim is a dimension of an array that is distributed over a grid of processes: its Size and How it is distributed,
// the length of a Block (0: the standard's default) and the number of processes, Procs.
type ArrayDim = layout.Dimension

// How the dimension of an array is distributed: not at all, in one block for each process, or in blocks in turn.
const (
	DistributeNone   = layout.None
	DistributeBlock  = layout.Block
	DistributeCyclic = layout.Cyclic
)

// Darray is what process rank of a grid has of a distributed array; the processes are numbered with the last dimension
// first; §5.1.4 (MPI_Type_create_darray). Its extent is the whole array's.
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

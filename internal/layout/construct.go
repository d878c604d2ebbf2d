package layout

import "fmt"

// The constructors of MPI 4.1 §5.1.2–5.1.4. A displacement or a stride is in extents of of, or in bytes where the
// constructor's name has an H.

// Contiguous is count elements, each where the one before it ends; MPI_Type_contiguous.
func Contiguous(count int64, elem *Type) (*Type, error) {
	return Of(Part{Type: elem, Count: count, Stride: elem.Extent()})
}

// Vector is count blocks of blocklen elements, stride elements apart; MPI_Type_vector.
func Vector(count, blocklen, stride int64, elem *Type) (*Type, error) {
	var c checked
	if stride = c.mul(stride, elem.Extent()); c.bad {
		return nil, errLarge
	}
	return HVector(count, blocklen, stride, elem)
}

// HVector is Vector with the stride in bytes; MPI_Type_create_hvector.
func HVector(count, blocklen, stride int64, elem *Type) (*Type, error) {
	block, err := Contiguous(blocklen, elem)
	if err != nil {
		return nil, err
	}
	return Of(Part{Type: block, Count: count, Stride: stride})
}

// Indexed returns blocks of blocklens[i] elements at displacements[i]; MPI_Type_indexed. A single blocklen holds for
// all blocks; MPI_Type_create_indexed_block.
func Indexed(blocklens, displacements []int64, elem *Type) (*Type, error) {
	return indexed(blocklens, displacements, elem.Extent(), elem)
}

// HIndexed is Indexed with the displacements in bytes; MPI_Type_create_hindexed, MPI_Type_create_hindexed_block.
func HIndexed(blocklens, displacements []int64, elem *Type) (*Type, error) {
	return indexed(blocklens, displacements, 1, elem)
}

func indexed(blocklens, displacements []int64, unit int64, elem *Type) (*Type, error) {
	if len(blocklens) != len(displacements) && len(blocklens) != 1 {
		return nil, fmt.Errorf("there are %d lengths of blocks and %d displacements; give one length, or one for each",
			len(blocklens), len(displacements))
	}
	var c checked
	parts := make([]Part, len(displacements))
	for i, d := range displacements {
		parts[i] = Part{Type: elem, Count: blocklens[min(i, len(blocklens)-1)], Stride: elem.Extent(),
			At: c.mul(d, unit)}
	}
	if c.bad {
		return nil, errLarge
	}
	return Of(parts...)
}

// Order is the order of an array's dimensions in memory.
type Order uint8

// In C, elements that differ by 1 in the last index are neighbours in memory; in Fortran, elements that differ by 1 in
// the first index.
const (
	C Order = iota
	Fortran
)

// inner returns the dimensions from that of neighbours to the outermost.
func (o Order) inner(dims int) []int {
	d := make([]int, dims)
	for i := range d {
		d[i] = i
		if o == C {
			d[i] = dims - 1 - i
		}
	}
	return d
}

// Subarray is the part of an array of sizes that begins at starts and has subsizes; its extent is the whole array's;
// MPI_Type_create_subarray.
func Subarray(sizes, subsizes, starts []int64, order Order, elem *Type) (*Type, error) {
	if len(sizes) == 0 || len(subsizes) != len(sizes) || len(starts) != len(sizes) {
		return nil, fmt.Errorf("there are %d sizes, %d sizes of the part and %d starts; give one of each for every dimension",
			len(sizes), len(subsizes), len(starts))
	}
	for d := range sizes {
		if subsizes[d] < 1 || starts[d] < 0 || subsizes[d] > sizes[d] || starts[d] > sizes[d]-subsizes[d] {
			return nil, fmt.Errorf("dimension %d: a part of %d from %d on is not within 0 … %d",
				d, subsizes[d], starts[d], sizes[d]-1)
		}
	}
	return array(sizes, order, elem, func(d int, row *Type, stride int64) (*Type, error) {
		return Of(Part{Type: row, Count: subsizes[d], Stride: stride, At: starts[d] * stride})
	})
}

// array builds a layout in an array of sizes, dimension by dimension from the inside: dimension makes that of
// dimension d from one of its rows, where rows are stride bytes apart. The extent is the array's.
func array(sizes []int64, order Order, elem *Type, dimension func(d int, row *Type, stride int64) (*Type, error),
) (*Type, error) {
	var c checked
	stride, t := elem.Extent(), elem
	for _, d := range order.inner(len(sizes)) {
		next := c.mul(stride, sizes[d])
		if c.bad {
			return nil, errLarge
		}
		var err error
		if t, err = dimension(d, t, stride); err != nil {
			return nil, err
		}
		stride = next
	}
	return Resized(t, 0, stride)
}

// Distribution says which indices of one dimension a process of a grid has.
type Distribution uint8

// The distributions; §5.1.4.
const (
	None   Distribution = iota // all
	Block                      // one block
	Cyclic                     // blocks in turn
)

// Dimension is one of a distributed array.
type Dimension struct {
	Size  int64 // of the array
	How   Distribution
	Block int64 // the length of a block; 0: the standard's default, equal blocks or, of Cyclic, 1
	Procs int64 // of the grid
}

// Darray is what process rank of a grid has of a distributed array; processes are numbered with the last dimension
// first, as in MPI_Cart_create. Its extent is the whole array's; MPI_Type_create_darray.
func Darray(rank int64, dims []Dimension, order Order, elem *Type) (*Type, error) {
	if len(dims) == 0 {
		return nil, fmt.Errorf("the array has no dimensions; give at least one")
	}
	sizes, coords := make([]int64, len(dims)), make([]int64, len(dims))
	left := rank
	for d := len(dims) - 1; d >= 0; d-- {
		if err := dims[d].valid(d); err != nil {
			return nil, err
		}
		sizes[d], coords[d], left = dims[d].Size, left%dims[d].Procs, left/dims[d].Procs
	}
	if rank < 0 || left != 0 {
		return nil, fmt.Errorf("rank %d is not in the grid of processes", rank)
	}
	return array(sizes, order, elem, func(d int, row *Type, stride int64) (*Type, error) {
		return dims[d].portion(coords[d], row, stride)
	})
}

func (d Dimension) valid(number int) error {
	switch {
	case d.Size < 1 || d.Procs < 1 || d.Block < 0:
		return fmt.Errorf("dimension %d: size %d, processes %d, block %d; they are at least 1, 1 and 0",
			number, d.Size, d.Procs, d.Block)
	case d.How > Cyclic:
		return fmt.Errorf("dimension %d: there is no distribution %d", number, d.How)
	case d.How == None && d.Procs != 1:
		return fmt.Errorf("dimension %d is not distributed, and has %d processes; it needs 1", number, d.Procs)
	case d.How == Block && d.Block != 0 && d.Block < (d.Size-1)/d.Procs+1:
		return fmt.Errorf("dimension %d: %d blocks of %d do not hold %d; use longer blocks, or Cyclic",
			number, d.Procs, d.Block, d.Size)
	}
	return nil
}

// portion is what the process at coord has of the dimension: whole blocks, then one that the array's end cuts.
func (d Dimension) portion(coord int64, row *Type, stride int64) (*Type, error) {
	length := d.Block
	switch {
	case d.How == None:
		length = d.Size
	case length == 0 && d.How == Block:
		length = (d.Size-1)/d.Procs + 1
	case length == 0:
		length = 1
	}
	length = min(length, d.Size)
	if coord > (d.Size-1)/length { // not even one
		return Of()
	}
	first := coord * length
	whole, rest := (d.Size-first)/length, int64(0) // blocks of all processes from there on
	if whole%d.Procs == 0 {                        // the cut one is this process's
		rest = (d.Size - first) % length
	}
	block, err := Of(Part{Type: row, Count: length, Stride: stride})
	if err != nil {
		return nil, err
	}
	own := whole / d.Procs
	if whole%d.Procs != 0 {
		own++
	}
	var c checked
	spacing := int64(0)
	if own > 1 || own == 1 && rest > 0 {
		spacing = c.mul(c.mul(length, d.Procs), stride)
	}
	if c.bad {
		return nil, errLarge
	}
	return Of(Part{Type: block, Count: own, Stride: spacing, At: first * stride},
		Part{Type: row, Count: rest, Stride: stride, At: first*stride + own*spacing})
}

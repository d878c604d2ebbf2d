// Matmul multiplies two matrices on a grid of ranks (SUMMA). Each rank has a block of A, of B and of the product C. For
// each panel, a few columns of A and the same rows of B, the ranks that have them send their part of A along their row
// of the grid and their part of B along their column. Every rank then adds the product of the two to its block of C.
//
//	gorun -n 6 ./examples/matmul -size 600
//
// In the end each rank computes its block of C again, without the others, and compares.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/gorun-mpi/mpi"
)

var size = flag.Int("size", 480, "rows and columns of the matrices")

func main() {
	flag.Parse()
	mpi.Main(run)
}

// The elements of the matrices: small whole numbers, so that sums in any order are the same.
func elementA(i, j int) float64 { return float64((i*3+j*5)%17 - 8) }
func elementB(i, j int) float64 { return float64((i*7+j*2)%13 - 6) }

func run(_ context.Context, world *mpi.Comm) error {
	n := *size
	dims := make([]int, 2)
	if err := mpi.Dims(world.Size(), dims); err != nil {
		return err
	}
	if n < dims[0] {
		return fmt.Errorf("matmul: -size %d on %d ranks, a grid of %d × %d: every rank needs a row and a column",
			n, world.Size(), dims[0], dims[1])
	}
	grid, err := world.Cart(dims, []bool{false, false}, true)
	if err != nil {
		return err
	}
	at, err := grid.Coords(grid.Rank())
	if err != nil {
		return err
	}
	alongRow, err := grid.CartSub(false, true) // the ranks of this row, ordered by their columns
	if err != nil {
		return err
	}
	alongColumn, err := grid.CartSub(true, false)
	if err != nil {
		return err
	}
	rows, columns := share(n, at[0], dims[0]), share(n, at[1], dims[1])
	a := fill(rows, columns, elementA)
	b := fill(rows, columns, elementB)
	c := newMatrix(rows.n, columns.n)

	start := time.Now()
	for k := 0; k < n; {
		// The panel is what one column of the grid has of A, and one row of B.
		acol, brow := owner(n, k, dims[1]), owner(n, k, dims[0])
		ashare, bshare := share(n, acol, dims[1]), share(n, brow, dims[0])
		width := min(ashare.end(), bshare.end()) - k
		left, upper := newMatrix(rows.n, width), newMatrix(width, columns.n)
		if at[1] == acol {
			left.take(a, 0, k-ashare.first)
		}
		if at[0] == brow {
			upper.take(b, k-bshare.first, 0)
		}
		if err := mpi.Bcast(alongRow, left.elements, acol); err != nil {
			return err
		}
		if err := mpi.Bcast(alongColumn, upper.elements, brow); err != nil {
			return err
		}
		c.addProduct(left, upper)
		k += width
	}
	took := time.Since(start)

	everything := part{0, n}
	want := newMatrix(rows.n, columns.n)
	want.addProduct(fill(rows, everything, elementA), fill(everything, columns, elementB))
	wrong := []int{want.differing(c)}
	if err := mpi.Allreduce(world, nil, wrong, mpi.Sum); err != nil {
		return err
	}
	if wrong[0] > 0 {
		return fmt.Errorf("matmul: %d of %d elements are wrong", wrong[0], n*n)
	}
	if world.Rank() == 0 {
		fmt.Printf("%d × %d on a grid of %d × %d ranks: %.1f GFlop/s, all elements are right\n",
			n, n, dims[0], dims[1], 2*float64(n)*float64(n)*float64(n)/took.Seconds()/1e9)
	}
	return nil
}

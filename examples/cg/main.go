// Cg solves a system of linear equations by the method of conjugate gradients. The matrix is the Laplacian of a square
// grid (4 on the diagonal, -1 for each neighbour), and is never stored. Each rank has some rows of the grid. To
// multiply by the matrix it exchanges its first and last row with its neighbours; scalar products are added by
// Allreduce.
//
//	gorun -n 4 ./examples/cg -cells 300
//
// In the end the program computes the residual again from the solution, and compares the solution with the known one.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"

	"github.com/gorun-mpi/mpi"
)

var (
	cells     = flag.Int("cells", 200, "cells along each side of the grid: there are cells² unknowns")
	tolerance = flag.Float64("tolerance", 1e-10, "the residual to reach, relative to the right-hand side")
)

const (
	upTag = iota + 1 // a row that travels to the rank above
	downTag
)

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(_ context.Context, world *mpi.Comm) error {
	if *cells < world.Size() || *tolerance <= 0 {
		return fmt.Errorf("cg: -cells %d -tolerance %g on %d ranks: every rank needs a row, and the tolerance is positive",
			*cells, *tolerance, world.Size())
	}
	g := newGrid(world, *cells)
	known, right := g.vector(), g.vector()
	for r := 1; r <= g.rows; r++ {
		for c := range g.row(known, r) {
			g.row(known, r)[c] = float64(((g.first+r)*7 + c*13) % 11)
		}
	}
	if err := g.multiply(right, known); err != nil {
		return err
	}
	solution, iterations, err := g.solve(right)
	if err != nil {
		return err
	}
	residual := g.vector()
	if err := g.multiply(residual, solution); err != nil {
		return err
	}
	add(residual, -1, right)
	add(known, -1, solution) // the error
	norms, err := g.dots([2][]float64{residual, residual}, [2][]float64{right, right}, [2][]float64{known, known})
	if err != nil {
		return err
	}
	reached, off := math.Sqrt(norms[0]/norms[1]), math.Sqrt(norms[2])/float64(g.cells)
	if reached > 10**tolerance { // rounding: solve's own residual drifts away from the true one
		return fmt.Errorf("cg: after %d iterations the residual is %.1e, not %.1e", iterations, reached, *tolerance)
	}
	if world.Rank() == 0 {
		fmt.Printf("%d unknowns on %d ranks: %d iterations, residual %.1e, mean error %.1e\n",
			g.cells*g.cells, world.Size(), iterations, reached, off)
	}
	return nil
}

// solve finds the x whose product with the matrix is right.
func (g *grid) solve(right []float64) (x []float64, iterations int, err error) {
	x, residual, direction, product := g.vector(), g.vector(), g.vector(), g.vector()
	copy(residual, right)
	copy(direction, right)
	sum, err := g.dots([2][]float64{residual, residual})
	if err != nil {
		return nil, 0, err
	}
	rest := sum[0]
	for goal := rest * *tolerance * *tolerance; rest > goal && iterations < 20*g.cells; iterations++ {
		if err := g.multiply(product, direction); err != nil {
			return nil, 0, err
		}
		if sum, err = g.dots([2][]float64{direction, product}); err != nil {
			return nil, 0, err
		}
		step := rest / sum[0]
		add(x, step, direction)
		add(residual, -step, product)
		if sum, err = g.dots([2][]float64{residual, residual}); err != nil {
			return nil, 0, err
		}
		for i := range direction {
			direction[i] = residual[i] + sum[0]/rest*direction[i]
		}
		rest = sum[0]
	}
	return x, iterations, nil
}

// add adds by·v to sum.
func add(sum []float64, by float64, v []float64) {
	for i := range sum {
		sum[i] += by * v[i]
	}
}

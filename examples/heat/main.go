// Heat solves the two-dimensional heat equation on a square plate: hot and cold discs keep their temperature, the rim
// is kept at zero, and heat spreads from cell to cell. The rows of the plate are divided over the ranks. In each step
// a rank sends its first and last row to its neighbours and receives theirs, and computes all rows that do not need
// these meanwhile. The result does not depend on the number of ranks, to the last bit.
//
//	gorun -n 4 ./examples/heat -cells 400 -steps 6000
//
// Rank 0 prints the residual, the time per step and the share of it that was spent in communication, and writes
// heat.png. The files: main.go (the run), block.go (a rank's rows, the step, the exchange), picture.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/gorun-mpi/mpi"
)

var (
	cells  = flag.Int("cells", 400, "cells along each side of the plate")
	steps  = flag.Int("steps", 6000, "time steps")
	report = flag.Int("report", 1000, "print the residual every so many steps; 0: only at the end")
	output = flag.String("o", "heat.png", "where the picture goes; empty: no picture")
)

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(_ context.Context, world *mpi.Comm) error {
	if *cells < world.Size() || *steps < 1 {
		return fmt.Errorf("heat: -cells %d -steps %d on %d ranks: every rank needs a row, and there is at least one step",
			*cells, *steps, world.Size())
	}
	root := world.Rank() == 0
	if root {
		fmt.Printf("%d × %d cells, %d steps, %d ranks\n", *cells, *cells, *steps, world.Size())
	}
	b := newBlock(world, *cells)
	start := time.Now()
	for step := 1; step <= *steps; step++ {
		if err := b.step(); err != nil {
			return err
		}
		if *report > 0 && step%*report == 0 && step < *steps {
			residual, err := maxToRoot(world, b.residual())
			if err != nil {
				return err
			}
			if root {
				fmt.Printf("step %6d  residual %.6e\n", step, residual[0])
			}
		}
	}
	took := time.Since(start)
	share := b.communicating.Seconds() / took.Seconds()
	worst, err := maxToRoot(world, b.residual(), took.Seconds(), share)
	if err != nil {
		return err
	}
	if root {
		fmt.Printf("step %6d  residual %.6e\n", *steps, worst[0])
		fmt.Printf("time per step %.1f µs\ncommunication %.1f %% of the time on the rank with the most\n",
			worst[1]/float64(*steps)*1e6, worst[2]*100)
	}
	plate, err := b.gather()
	if err != nil || !root {
		return err
	}
	fmt.Printf("mean temperature %.15f\n", mean(plate))
	if *output == "" {
		return nil
	}
	if err := writePicture(*output, plate, *cells); err != nil {
		return err
	}
	fmt.Println("wrote", *output)
	return nil
}

func mean(plate []float64) float64 {
	sum := 0.0
	for _, temperature := range plate {
		sum += temperature
	}
	return sum / float64(len(plate))
}

// maxToRoot brings the greatest of each value to rank 0.
func maxToRoot(world *mpi.Comm, values ...float64) ([]float64, error) {
	greatest := make([]float64, len(values))
	return greatest, mpi.Reduce(world, values, greatest, mpi.Max, 0)
}

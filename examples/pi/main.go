// Pi integrates 4/(1+x²) from 0 to 1. Each rank sums every size-th strip, then the partial sums are added along a
// binomial tree: with n ranks the result is at rank 0 after log₂(n) messages one after the other.
//
//	gorun -n 4 ./examples/pi -strips 100000000
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"time"

	"github.com/gorun-mpi/mpi"
)

var strips = flag.Int("strips", 50_000_000, "number of strips that the area is cut into")

const sumTag = 1

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(_ context.Context, world *mpi.Comm) error {
	start := time.Now()
	pi, err := sumToRoot(world, integrate(*strips, world.Rank(), world.Size()))
	if err != nil || world.Rank() != 0 {
		return err
	}
	fmt.Printf("pi = %.12f, off by %.1e, %d strips on %d ranks in %v\n",
		pi, math.Abs(pi-math.Pi), *strips, world.Size(), time.Since(start).Round(time.Millisecond))
	return nil
}

// integrate sums the strips first, first+step, first+2·step, … of n.
func integrate(n, first, step int) float64 {
	width := 1 / float64(n)
	sum := 0.0
	for i := first; i < n; i += step {
		x := (float64(i) + 0.5) * width
		sum += 4 / (1 + x*x)
	}
	return sum * width
}

// sumToRoot adds one number of each rank; rank 0 gets the sum. In round k each rank whose bit k is set sends its sum to
// the rank without that bit, and is done.
func sumToRoot(world *mpi.Comm, mine float64) (float64, error) {
	rank, other := world.Rank(), make([]float64, 1)
	for bit := 1; bit < world.Size(); bit <<= 1 {
		if rank&bit != 0 {
			return mine, mpi.Send(world, []float64{mine}, rank-bit, sumTag)
		}
		if rank+bit < world.Size() {
			if _, err := mpi.Recv(world, other, rank+bit, sumTag); err != nil {
				return 0, err
			}
			mine += other[0]
		}
	}
	return mine, nil
}

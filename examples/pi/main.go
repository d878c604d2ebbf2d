// Pi integrates 4/(1+x²) from 0 to 1. Each rank sums every size-th strip, and Reduce adds these sums at rank 0.
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

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(_ context.Context, world *mpi.Comm) error {
	start := time.Now()
	part, sum := []float64{integrate(*strips, world.Rank(), world.Size())}, make([]float64, 1)
	if err := mpi.Reduce(world, part, sum, mpi.Sum, 0); err != nil || world.Rank() != 0 {
		return err
	}
	pi := sum[0]
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

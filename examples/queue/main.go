// Queue counts primes with a work queue that has no master: the next piece of work is a counter of rank 0's window, and
// each rank takes a piece by adding one to it. Rank 0 does its share of the work meanwhile.
//
//	gorun -n 4 ./examples/queue -below 10000000
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/gorun-mpi/mpi"
)

var (
	below    = flag.Int64("below", 3_000_000, "count the primes below this number")
	interval = flag.Int64("interval", 50_000, "numbers in one piece of work")
)

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(ctx context.Context, world *mpi.Comm) error {
	if *interval < 1 {
		return fmt.Errorf("queue: -interval %d: a piece has at least one number", *interval)
	}
	next, err := mpi.WinAlloc[int64](world, 1) // every rank has one, and all use the counter of rank 0
	if err != nil {
		return err
	}
	if err := next.LockAll(); err != nil {
		return err
	}
	var sums [2]int64 // primes, and pieces
	for {
		piece, err := next.FetchOp(mpi.Sum, 1, 0, 0)
		if err != nil {
			return err
		}
		low := piece * *interval
		if low >= *below {
			break
		}
		sums[0] += count(low, min(low+*interval, *below))
		sums[1]++
	}
	if err := next.UnlockAll(); err != nil {
		return err
	}
	if err := mpi.Allreduce(world, nil, sums[:], mpi.Sum); err != nil {
		return err
	}
	if pieces := (*below + *interval - 1) / *interval; sums[1] != pieces {
		return fmt.Errorf("queue: %d pieces were done; there are %d", sums[1], pieces)
	}
	if world.Rank() == 0 {
		fmt.Printf("%d primes below %d, in %d pieces on %d ranks\n", sums[0], *below, sums[1], world.Size())
	}
	return next.Free()
}

// count returns how many primes there are from low up to, not including, high.
func count(low, high int64) (n int64) {
	for v := max(low, 2); v < high; v++ {
		prime := true
		for d := int64(2); d*d <= v && prime; d++ {
			prime = v%d != 0
		}
		if prime {
			n++
		}
	}
	return n
}

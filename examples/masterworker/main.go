// Masterworker counts primes with a work queue: rank 0 hands out intervals, and each other rank asks for another one
// when it has done its own, so that a slow rank gets less to do. The master receives from AnySource and answers the
// rank in the Status. A worker receives with AnyTag, and the tag says whether the message is work or the end.
//
//	gorun -n 4 ./examples/masterworker -below 10000000
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/gorun-mpi/mpi"
)

var (
	below    = flag.Int("below", 3_000_000, "count the primes below this number")
	interval = flag.Int("interval", 50_000, "numbers in one piece of work")
)

// The tag of a message says its purpose.
const (
	workTag   = iota + 1 // master to worker: a piece
	stopTag              // master to worker: there is no more
	resultTag            // worker to master: a result; the worker is free
)

// piece is the numbers from Low up to, not including, High.
type piece struct{ Low, High int64 }

// result is a piece that is done. The first one of each worker is empty: it asks for work.
type result struct {
	piece
	Primes int64
}

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(ctx context.Context, world *mpi.Comm) error {
	if *interval < 1 {
		return fmt.Errorf("masterworker: -interval %d: a piece has at least one number", *interval)
	}
	switch {
	case world.Rank() > 0:
		return work(world)
	case world.Size() > 1:
		return master(world)
	default: // there is no worker
		fmt.Printf("%d primes below %d\n", count(piece{0, int64(*below)}), *below)
		return nil
	}
}

// master answers every result with the next piece, or with the end if there is none, until all workers have ended.
func master(world *mpi.Comm) error {
	primes, next := int64(0), int64(0)
	pieces := make([]int, world.Size())
	for busy := world.Size() - 1; busy > 0; {
		r, status, err := mpi.RecvValue[result](world, mpi.AnySource, resultTag)
		if err != nil {
			return err
		}
		primes += r.Primes
		if r.High > r.Low {
			pieces[status.Source]++
		}
		p := piece{next, min(next+int64(*interval), int64(*below))}
		tag := workTag
		if p.Low >= p.High {
			tag, busy = stopTag, busy-1
		}
		if err := mpi.SendValue(world, p, status.Source, tag); err != nil {
			return err
		}
		next = max(next, p.High)
	}
	fmt.Printf("%d primes below %d\n", primes, *below)
	for worker := 1; worker < world.Size(); worker++ {
		fmt.Printf("rank %d did %d pieces\n", worker, pieces[worker])
	}
	return nil
}

// work asks for pieces until there are none.
func work(world *mpi.Comm) error {
	var done result
	for {
		if err := mpi.SendValue(world, done, 0, resultTag); err != nil {
			return err
		}
		p, status, err := mpi.RecvValue[piece](world, 0, mpi.AnyTag)
		if err != nil || status.Tag == stopTag {
			return err
		}
		done = result{p, count(p)}
	}
}

// count counts primes by trial division: slow on purpose, and slower for greater numbers.
func count(p piece) (primes int64) {
	for n := max(p.Low, 2); n < p.High; n++ {
		if isPrime(n) {
			primes++
		}
	}
	return primes
}

func isPrime(n int64) bool {
	for d := int64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

var (
	duration  = flag.Duration("time", time.Minute, "how long")
	seed      = flag.Uint64("seed", 0, "of all rounds; 0: draw one")
	maxLength = size("max", 8<<20, "greatest message, in bytes")
	messages  = flag.Int("messages", 1500, "messages of a round with small ones; a round with large ones has fewer")
	rounds    = flag.Int("rounds", 0, "stop after so many; 0: only by time")
	limits    = flag.Bool("limits", false, "lower and raise the limit of open files all the time")
	hang      = flag.Duration("hang", 5*time.Minute, "report a rank that has got nowhere for so long, with its goroutines")
	pause     = flag.String("pause", "", "between rounds, for as long as this file is there, all ranks wait, and "+
		"rank 0 prints \"stress: idle\", and \"stress: goes on\" afterwards")
)

const (
	startTag = iota + 1
	wordTag
)

// size is a flag with a number of bytes.
func size(name string, value harness.Size, usage string) *int {
	p := &value
	flag.Var(p, name, usage)
	return (*int)(p)
}

func main() { bench.MainWithFlags(run) }

// run is the same on every rank, except that rank 0 draws the seed and decides when to stop.
func run(_ context.Context, world *mpi.Comm) error {
	drawn, err := fromRoot(world, startTag, func() uint64 {
		if *seed == 0 {
			return rand.Uint64()
		}
		return *seed
	})
	if err != nil {
		return err
	}
	r, err := newRank(world, drawn)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(drawn, 1))
	start, sent, bytes := time.Now(), 0, int64(0)
	round := 0
	var at atomic.Int64
	defer watch(*hang, func() { hung(drawn, &at, world.Rank()) })()
	for ; ; round++ {
		at.Store(int64(round))
		if *pause != "" { // rank 0 may have ended its round before the others
			if err := mpi.Barrier(world); err != nil {
				return err
			}
		}
		more, err := fromRoot(world, wordTag, func() bool {
			awaitPause()
			return time.Since(start) < *duration && (*rounds == 0 || round < *rounds)
		})
		if err != nil {
			return err
		}
		if !more {
			break
		}
		count, longest := *messages, min(*maxLength, 64<<10)
		if round%2 == 1 {
			count, longest = max(1, *messages/20), *maxLength
		}
		plan := newPlan(random, round, world.Size(), count, longest)
		if err := r.play(plan); err != nil {
			return fmt.Errorf("stress: -seed %d, round %d, rank %d: %w", drawn, round, world.Rank(), err)
		}
		sent += count
		for _, m := range plan.messages {
			bytes += int64(m.length)
		}
	}
	if world.Rank() == 0 {
		fmt.Printf("stress: %d ranks, seed %d: %d rounds, %d messages, %.1f GB in %v; rank 0 took back %d of %d, "+
			"missed %d of %d by deadlines and freed %d shared buffers; every byte was right\n", world.Size(), drawn, round,
			sent, float64(bytes)/1e9, time.Since(start).Round(time.Second), r.cancelled, r.tried, r.late, round*hurried,
			r.freed)
	}
	return r.free()
}

// awaitPause waits while the file of -pause is there: a test then tries what becomes of idle connections.
func awaitPause() {
	for printed := false; *pause != ""; time.Sleep(time.Millisecond) {
		progress.Add(1)
		if _, err := os.Stat(*pause); err != nil {
			if printed {
				fmt.Println("stress: goes on")
			}
			return
		}
		if !printed {
			fmt.Println("stress: idle")
			printed = true
		}
	}
}

// fromRoot brings the value of rank 0 to every rank.
func fromRoot[T any](world *mpi.Comm, tag int, value func() T) (T, error) {
	if world.Rank() != 0 {
		v, _, err := mpi.RecvValue[T](world, 0, tag)
		return v, err
	}
	v := value()
	for rank := 1; rank < world.Size(); rank++ {
		if err := mpi.SendValue(world, v, rank, tag); err != nil {
			return v, err
		}
	}
	return v, nil
}

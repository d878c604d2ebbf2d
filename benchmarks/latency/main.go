// Latency measures how long a message takes from one rank to another, for each size.
//
//	gorun -n 2 ./benchmarks/latency [-m MIN:MAX] [-i N] [-x N] [-c] [-f] [--alloc]
//
// Two ranks play ping-pong with Send and Recv. Rank 0 reads the clock before the first of the measured round trips
// and after the last one, so that the clock costs nothing per message; half of the mean round trip is printed. The
// same buffer is used for every message of a direction, its pages are touched before, nothing is allocated while
// the clock runs. With -f or -c each round trip is timed by itself: -f adds the extremes and percentiles, -c fills
// the buffers before and compares them after every round trip, outside of the timed part.
//
// Options, rounds and output are those of osu_latency 7.4; -m 0:… measures the empty message too.
//
// Owns: the ping-pong.
// May call: mpi, benchmarks/harness.
// Never: reaches inside of the runtime.
package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

var program = harness.Program{
	Name: "latency", Title: "OSU MPI Latency Test", Ranks: 2, Takes: "mixMcfa",
	About:    "Measures the time of a message from one rank to another: half of a round trip.",
	Defaults: harness.LatencyDefaults(),
	Buffers:  func(harness.Options) int64 { return 2 },
}

const (
	dataTag  = 1
	errorTag = 2
)

func main() { mpi.Main(run) }

func run(_ context.Context, world *mpi.Comm) error {
	opts, ok, err := program.Start(os.Args[1:], world.Rank(), world.Size(), os.Stdout)
	if !ok {
		return err
	}
	b, err := newBench(world, opts)
	if err != nil {
		return err
	}
	defer b.free()
	report := program.Report(os.Stdout, harness.Microseconds, opts)
	if b.rank == 0 {
		if err := report.Header(); err != nil {
			return err
		}
	}
	for _, size := range opts.Sizes(2) {
		result, err := b.measure(size)
		if err != nil {
			return err
		}
		if b.rank == 0 {
			if err := report.Row(result); err != nil {
				return err
			}
		}
	}
	return nil
}

// bench is one rank's side. The buffers are its own; a message of n bytes uses the first n of them.
type bench struct {
	world      *mpi.Comm
	rank       int
	opts       harness.Options
	send, recv []byte
	each       []int64
	free       func()
}

func newBench(world *mpi.Comm, opts harness.Options) (*bench, error) {
	b := &bench{world: world, rank: world.Rank(), opts: opts, free: func() {}}
	if opts.PerIteration() {
		b.each = make([]int64, max(opts.Small.Iterations, opts.Large.Iterations))
	}
	n := int(opts.MaxSize)
	if !opts.Alloc {
		b.send, b.recv = make([]byte, n), make([]byte, n)
	} else {
		both, err := mpi.Alloc[byte](2*n + 1)
		if err != nil {
			return nil, err
		}
		b.free = func() { both.Free() }
		b.send, b.recv = both.Slice()[:n:n], both.Slice()[n:2*n]
	}
	harness.Touch(b.send)
	harness.Touch(b.recv)
	return b, nil
}

// measure runs all rounds of one size. Both ranks get the number of wrong messages; the times are rank 0's.
func (b *bench) measure(size int64) (harness.Result, error) {
	rounds := b.opts.Rounds(size)
	send, recv := b.send[:size], b.recv[:size]
	result := harness.Result{Size: size, PerRound: 2}
	runtime.GC() // no collection of the previous size's leftovers while the clock runs
	if err := mpi.Barrier(b.world); err != nil {
		return result, err
	}
	if err := b.rally(send, recv, rounds.Warmup); err != nil {
		return result, err
	}
	if b.opts.PerIteration() {
		return b.measureEach(result, send, recv, rounds.Iterations)
	}
	start := time.Now()
	err := b.rally(send, recv, rounds.Iterations)
	result.Iteration = float64(time.Since(start)) / float64(rounds.Iterations)
	return result, err
}

// rally is n round trips. Rank 0 serves.
func (b *bench) rally(send, recv []byte, n int) error {
	if b.rank == 0 {
		for range n {
			if err := mpi.Send(b.world, send, 1, dataTag); err != nil {
				return err
			}
			if _, err := mpi.Recv(b.world, recv, 1, dataTag); err != nil {
				return err
			}
		}
		return nil
	}
	for range n {
		if _, err := mpi.Recv(b.world, recv, 0, dataTag); err != nil {
			return err
		}
		if err := mpi.Send(b.world, send, 0, dataTag); err != nil {
			return err
		}
	}
	return nil
}

// measureEach times every round trip by itself, filling before and comparing after it when that was asked for.
func (b *bench) measureEach(result harness.Result, send, recv []byte, n int) (harness.Result, error) {
	var wrong [1]int64
	var total time.Duration
	for i := range n {
		if b.opts.Validate {
			harness.Fill(send, i, b.rank)
			clear(recv)
			// Neither side may still be filling while the other one's clock runs.
			if err := mpi.Barrier(b.world); err != nil {
				return result, err
			}
		}
		start := time.Now()
		if err := b.rally(send, recv, 1); err != nil {
			return result, err
		}
		took := time.Since(start)
		b.each[i] = int64(took)
		total += took
		if b.opts.Validate && !harness.Check(recv, i, 1-b.rank) {
			wrong[0]++
		}
	}
	result.Each = b.each[:n]
	result.Iteration = float64(total) / float64(n)
	result.Errors = wrong[0]
	return b.addErrors(result, wrong[:])
}

// addErrors brings rank 1's count of wrong messages to rank 0.
func (b *bench) addErrors(result harness.Result, wrong []int64) (harness.Result, error) {
	if b.rank == 1 {
		return result, mpi.Send(b.world, wrong, 0, errorTag)
	}
	_, err := mpi.Recv(b.world, wrong, 1, errorTag)
	result.Errors += wrong[0]
	return result, err
}

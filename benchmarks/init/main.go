// Init measures how long the ranks of a job take to join it.
//
//	gorun -n N ./benchmarks/init [--json]
//
// Each rank reads the clock around mpi.Init and around the first Barrier, which is the first moment that every rank
// is known to be there. Rank 0 collects the times and prints the extremes and the mean of both in the line of
// osu_init 7.4, and the greatest resident size of a rank. The time that the launcher needs, and the end of the job,
// are seen from outside: time the whole command.
//
// Owns: two readings of the clock.
// May call: mpi, benchmarks/harness, benchmarks/internal/bench.
// Never: reach into the runtime.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

var program = harness.Program{
	Name: "init", Title: "OSU MPI Init Test",
	About: "Measures how long the ranks of a job take to join it.",
}

const reportTag = 1

// report is what one rank sends to rank 0.
type report struct {
	Init, Barrier int64 // nanoseconds
	PeakKiB       int64 // resident
}

func main() {
	bench.Before(program)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		mpi.Abort(1)
	}
}

func run() error {
	start := time.Now()
	world, err := mpi.Init()
	if err != nil {
		return err
	}
	joined := time.Now()
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	met := time.Now()
	own := report{Init: int64(joined.Sub(start)), Barrier: int64(met.Sub(joined)), PeakKiB: harness.PeakKiB()}
	opts, ok, err := program.Start(os.Args[1:], world.Rank(), world.Size(), os.Stdout)
	if err != nil {
		return err
	}
	if ok {
		if err := collect(world, bench.OutputOf(world, opts), own); err != nil {
			return err
		}
	}
	return mpi.Finalize()
}

// collect brings the ranks' reports to rank 0 and prints them there.
func collect(world *mpi.Comm, out harness.Output, own report) error {
	if world.Rank() != 0 {
		return mpi.SendValue(world, own, 0, reportTag)
	}
	n := world.Size()
	inits, barriers, peak := []int64{own.Init}, []int64{own.Barrier}, own.PeakKiB
	for range n - 1 {
		r, _, err := mpi.RecvValue[report](world, mpi.AnySource, reportTag)
		if err != nil {
			return err
		}
		inits, barriers, peak = append(inits, r.Init), append(barriers, r.Barrier), max(peak, r.PeakKiB)
	}
	return harness.PrintInit(out, program, inits, barriers, peak)
}

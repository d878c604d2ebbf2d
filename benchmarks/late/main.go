// Late measures the time of messages after one rank was late.
//
//	gorun -n 2 ./benchmarks/late [-m MIN:MAX] [-i N | --time SECONDS] [--warm-time SECONDS] [--json] [--plot FILE]
//
// The ranks play ping-pong with 8 bytes. After 100 round trips rank 0 computes for 30 us, 100 us, 1 ms or 10 ms (the
// times between MIN and MAX microseconds) without any call of the library, while rank 1 waits in Recv. Then rank 0
// reads the clock around ten round trips, which show the cost of a rank that has waited. The program does this -i
// times, or for --time (0.5 s) but at least 20 times. It prints the mean, the median, and the 90th and the 99th
// percentile of the ten round trips.
//
// Owns: the lateness.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "late", Title: "OSU MPI Late Rank Test", Ranks: 2, Takes: "miXT",
	About:  "Measures ten round trips after one of two ranks was late.",
	Counts: "how often a rank is late", Range: "lateness in us; those of 30, 100, 1000 and 10000 that are in it",
	Defaults: harness.Options{
		MinSize: 30, MaxSize: 10000, WarmTime: harness.DefaultWarmTime, Time: 500 * time.Millisecond,
	},
	Draw: picture.Draw,
}

const (
	bytes  = 8
	before = 100 // round trips before each lateness
	after  = 10  // round trips that are timed

	least, most = 20, 2000 // times that a rank is late
)

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	sized := *j
	sized.Options.MaxSize = bytes
	pair, err := bench.NewPair(&sized, 1-j.Rank, j.Rank == 0)
	if err != nil {
		return err
	}
	if err := pair.Resize(bytes); err != nil {
		return err
	}
	table := program.Table(j.Output, "MPI_CHAR", "Late(us)", harness.Column{Head: "Mean(us)"},
		harness.Column{Head: "Median(us)"}, harness.Column{Head: "P90(us)"}, harness.Column{Head: "P99(us)"})
	table.Note("[ round trips: %d ]", after)
	pace := bench.NewPace(j)
	return table.Run(lateness(j.Options), func(us int64) ([]any, error) {
		runtime.GC()
		if err := mpi.Barrier(j.World); err != nil {
			return nil, err
		}
		if err := pace.Warm(pair.Play); err != nil {
			return nil, err
		}
		late := time.Duration(us) * time.Microsecond
		n := bench.Fit(j.Options, late, least, most)
		if j.Rank != 0 {
			return nil, pair.Play(n * (before + after))
		}
		return lead(pair, late, n)
	})
}

// lateness lists the first column.
func lateness(o harness.Options) (list []int64) {
	for _, us := range []int64{30, 100, 1000, 10000} {
		if o.MinSize <= us && us <= o.MaxSize {
			list = append(list, us)
		}
	}
	return list
}

// lead is rank 0, which is late n times.
func lead(pair *bench.Pair, late time.Duration, n int) ([]any, error) {
	took := make([]int64, n)
	for i := range took {
		if err := pair.Play(before); err != nil {
			return nil, err
		}
		bench.Compute(late)
		start := time.Now()
		if err := pair.Play(after); err != nil {
			return nil, err
		}
		took[i] = int64(time.Since(start))
	}
	s := harness.Summarize(took)
	return []any{float64(s.Mean) / 1e3, float64(s.P50) / 1e3, float64(s.P90) / 1e3, float64(s.P99) / 1e3}, nil
}

// Multi_lat measures how long a message takes while many pairs of ranks exchange messages at once, for each size.
//
//	gorun -n N ./benchmarks/multi_lat [-p PAIRS] [-m MIN:MAX] [-i N | --time SECONDS] [-x N]
//	                                  [--warm-time SECONDS] [-c] [-f] [--alloc] [--json] [--plot FILE]
//
// Rank i and rank i + PAIRS play the ping-pong of benchmarks/latency, all pairs at the same time: they meet in a
// barrier after the warm-up. Each first rank of a pair reads the clock around its own round trips; half of the mean
// round trip, averaged over the pairs, is printed. Without -p half of the ranks are pairs; ranks after the last pair
// only take part in the barriers. With -f the extremes and percentiles are the figures of rank 0's pair.
//
// Output and rounds are as in osu_multi_lat 7.4, which has no -p.
//
// Owns: which ranks are a pair.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "multi_lat", Title: "OSU MPI Multi Latency Test", Takes: "mixXTpMcfazY",
	About:    "Measures the time of a message while many pairs of ranks play ping-pong at once.",
	Defaults: harness.LatencyDefaults(),
	Buffers:  func(harness.Options) int64 { return 2 },
	Draw:     picture.Draw,
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	pairs, err := j.Options.PairsOf(j.Ranks)
	if err != nil {
		return j.Refuse(err)
	}
	partner, first := bench.PartnerIn(pairs, j.Rank)
	pair, err := bench.PingPong(j, partner, first)
	if err != nil {
		return err
	}
	return bench.NewMeter(j, first, true).Latency(pair)
}

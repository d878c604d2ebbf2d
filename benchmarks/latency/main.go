// Latency measures how long a message takes from one rank to another, for each size.
//
//	gorun -n 2 ./benchmarks/latency [-m MIN:MAX] [-i N | --time SECONDS] [-x N] [--warm-time SECONDS] [-c]
//	                                [-f] [--alloc] [-d cuda [D|H D|H]] [--json] [--plot FILE]
//
// Two ranks play ping-pong with Send and Recv. Rank 0 reads the clock before the first of the measured round trips
// and after the last one, so that the clock costs nothing per message; half of the mean round trip is printed. The
// same buffer is used for every message of a direction, its pages are touched before, nothing is allocated while
// the clock runs. With -f or -c each round trip is timed by itself: -f adds the extremes and percentiles, -c fills
// the buffers before and compares them after every round trip, outside of the timed part.
//
// With -d cuda the buffers of both ranks are in the memory of GPUs; D H and H D say which rank's alone. Each rank takes
// the GPU that gpu.Local returns. The program must be built with cgo.
//
// Options, rounds and output are as in osu_latency 7.4; -m 0:… measures the empty message too.
//
// Owns: nothing but its name.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/device"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "latency", Title: "OSU MPI Latency Test", Ranks: 2, Takes: "mixXTMcfazYd", Places: true,
	About:    "Measures the time of a message from one rank to another: half of a round trip.",
	Defaults: harness.LatencyDefaults(),
	Buffers:  func(harness.Options) int64 { return 2 },
	Draw:     picture.Draw,
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	where, ok, err := device.Open(j)
	if !ok || err != nil {
		return err
	}
	pair, err := device.PingPong(j, where, 1-j.Rank, j.Rank == 0)
	if err != nil {
		return err
	}
	return bench.NewMeter(j, j.Rank == 0, false).Latency(pair)
}

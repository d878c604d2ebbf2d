// Bw measures how many bytes a second one rank can send to another, for each size.
//
//	gorun -n 2 ./benchmarks/bw [-m MIN:MAX] [-i N | --time SECONDS] [-x N] [--warm-time SECONDS] [-W N]
//	                           [-b single|multiple] [-c] [-f] [--alloc] [-d cuda [D|H D|H]] [--json] [--plot FILE]
//
// Rank 0 starts a window of Isend and waits for all of them; rank 1 has posted as many Irecv, waits for all, and
// answers the whole window with four bytes. One iteration is one window and its answer. Rank 0 reads the clock
// before the first and after the last iteration; bytes sent divided by that time are printed, in 10^6 bytes per
// second. Buffers and requests are made before, nothing is allocated while the clock runs. All messages of a window
// share one buffer, as in OSU, unless -b multiple is given. With -f or -c each iteration is timed by itself; -c
// checks every buffer after each window (with one buffer: the last message to be stored), outside of the timed part.
//
// With -d cuda the buffers are in the memory of GPUs, as in benchmarks/latency; the answer is not.
//
// Options, rounds and output are as in osu_bw 7.4.
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
	Name: "bw", Title: "OSU MPI Bandwidth Test", Ranks: 2, Takes: "mixXTWbMcfazYd", Places: true,
	About:    "Measures the bandwidth from one rank to another, with a window of messages in flight.",
	Defaults: harness.BandwidthDefaults(),
	Buffers:  bench.BuffersOf(1),
	Draw:     picture.Draw,
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	where, ok, err := device.Open(j)
	if !ok || err != nil {
		return err
	}
	window, err := device.Windows(j, where, 1-j.Rank, j.Rank == 0)
	if err != nil {
		return err
	}
	report := program.Report(j.Output, harness.Megabytes)
	return bench.NewMeter(j, j.Rank == 0, false).Bandwidth(report, window, j.Options.Window)
}

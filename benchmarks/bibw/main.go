// Bibw measures how many bytes a second two ranks can send to each other at the same time, for each size.
//
//	gorun -n 2 ./benchmarks/bibw [-m MIN:MAX] [-i N | --time SECONDS] [-x N] [--warm-time SECONDS] [-W N]
//	                             [-b single|multiple] [-c] [-f] [--alloc] [-d cuda [D|H D|H]] [--json] [--plot FILE]
//
// Each rank posts a window of Irecv, starts a window of Isend, and waits for the sends and then the receives; that is
// one iteration. There is no answer: a rank begins the next window when its own is complete. Rank 0 reads the clock
// before the first and after the last iteration; the bytes of both directions divided by that time are printed, in
// 10^6 bytes per second. Buffers, -b, -d, -f and -c are as in benchmarks/bw; sends and receives have buffers of their
// own.
//
// Options, rounds and output are as in osu_bibw 7.4.
//
// Owns: the order of the two windows.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"errors"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/device"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "bibw", Title: "OSU MPI Bi-Directional Bandwidth Test", Ranks: 2, Takes: "mixXTWbMcfazd", Places: true,
	About:    "Measures the bandwidth between two ranks that send to each other at the same time.",
	Defaults: harness.BandwidthDefaults(),
	Buffers:  bench.BuffersOf(2),
	Draw:     picture.Draw,
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	where, ok, err := device.Open(j)
	if !ok || err != nil {
		return err
	}
	both := &bothWays{rank: j.Rank, window: j.Options.Window}
	for _, f := range []*flight{&both.out, &both.in} {
		if where == mpi.Undefined {
			*f, err = bench.NewFlight(j, j.Options.Window)
		} else {
			*f, err = device.NewFlight(j, where, j.Options.Window)
		}
		if err != nil {
			return err
		}
	}
	report := program.Report(j.Output, harness.Megabytes)
	return bench.NewMeter(j, j.Rank == 0, false).Bandwidth(report, both, 2*j.Options.Window)
}

// flight is a window's messages, in memory of the host or of a device.
type flight interface {
	Resize(size int64) error
	Isend(from, n, to int) error
	Irecv(from, n, source int) error
	Wait() error
	Stamp(round, sender int)
	Clear()
	Wrong(round, sender int) int64
}

// bothWays is one rank's two windows.
type bothWays struct {
	out, in      flight
	rank, window int
}

// Resize implements bench.Rounds.
func (b *bothWays) Resize(size int64) error {
	return errors.Join(b.out.Resize(size), b.in.Resize(size))
}

// Play implements bench.Rounds.
func (b *bothWays) Play(n int) error {
	for range n {
		if err := b.in.Irecv(0, b.window, 1-b.rank); err != nil {
			return err
		}
		if err := b.out.Isend(0, b.window, 1-b.rank); err != nil {
			return err
		}
		if err := b.out.Wait(); err != nil {
			return err
		}
		if err := b.in.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// Fill implements bench.Rounds.
func (b *bothWays) Fill(round int) {
	b.out.Stamp(round, b.rank)
	b.in.Clear()
}

// Check implements bench.Rounds.
func (b *bothWays) Check(round int) int64 { return b.in.Wrong(round, 1-b.rank) }

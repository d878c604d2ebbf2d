// Fan_out measures how many bytes and messages a second one rank can send to all others, for each size.
//
//	gorun -n N ./benchmarks/fan_out [-m MIN:MAX] [-i N | --time SECONDS] [-x N] [--warm-time SECONDS]
//	                                [-W N] [-b single|multiple] [-c] [-f] [--alloc] [--json] [--plot FILE]
//
// Rank 0 starts a window of Isend to each of the other ranks in turn, waits for all of them, and for the answer of
// every receiver; that is one iteration. A receiver has posted a window of Irecv, waits for all, and answers with four
// bytes. Rank 0 reads the clock before the first and after the last iteration and prints what it sent in that time:
// 10^6 bytes per second and messages per second. -b, -f and -c are as in benchmarks/bw.
//
// osu_bw_fan_out measures the same between hosts; the columns are from osu_mbw_mr.
//
// Owns: rank 0's side.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "fan_out", Title: "OSU MPI Bandwidth Congestion Out Test", MinRanks: 2, Takes: "mixXTWbMcfaz",
	About:    "Measures the bandwidth and the message rate from rank 0 to all ranks.",
	Defaults: harness.BandwidthDefaults(),
	Buffers:  bench.BuffersOf(1),
	Draw:     picture.Draw,
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	receivers, window := j.Ranks-1, j.Options.Window
	if err := j.Options.CheckMemory(program.Buffers(j.Options) * int64(receivers)); err != nil && j.Options.Multiple {
		return j.Refuse(err)
	}
	var side bench.Rounds
	if j.Rank == 0 {
		flight, err := bench.NewFlight(j, receivers*window)
		if err != nil {
			return err
		}
		side = &source{Flight: flight, receivers: receivers, window: window}
	} else {
		window, err := bench.NewWindow(j, 0, false)
		if err != nil {
			return err
		}
		side = window
	}
	report := program.Report(j.Output, harness.Rates)
	report.Under("[ receivers: %d ] [ window size: %d ]", receivers, window)
	return bench.NewMeter(j, j.Rank == 0, false).Bandwidth(report, side, receivers*window)
}

// source is rank 0.
type source struct {
	*bench.Flight
	receivers, window int
	answer            [4]byte
}

// Play implements bench.Rounds.
func (s *source) Play(n int) error {
	for range n {
		for r := range s.receivers {
			if err := s.Isend(r*s.window, s.window, r+1); err != nil {
				return err
			}
		}
		if err := s.Wait(); err != nil {
			return err
		}
		for r := range s.receivers {
			if err := bench.RecvAnswer(s.World, s.answer[:], r+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// Fill implements bench.Rounds: every receiver gets the same window.
func (s *source) Fill(round int) {
	for i, buf := range s.Buffers {
		harness.Fill(buf, round, i%s.window)
	}
}

// Check implements bench.Rounds.
func (s *source) Check(int) int64 { return 0 }

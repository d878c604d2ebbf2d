// Fan_in measures how many bytes and messages a second one rank can receive from all others at once, for each size.
//
//	gorun -n N ./benchmarks/fan_in [-m MIN:MAX] [-i N | --time SECONDS] [-x N] [--warm-time SECONDS]
//	                               [-W N] [-b single|multiple] [-c] [-f] [--alloc] [--json] [--plot FILE]
//
// Every rank but 0 starts a window of Isend to rank 0, waits for all, and for an answer of four bytes. Rank 0 posts
// the receives of all windows with AnySource, waits for all of them, and answers every sender: that is one iteration.
// Rank 0 reads the clock before the first and after the last iteration and prints what it received in that time: 10^6
// bytes per second and messages per second. -b, -f and -c are as in benchmarks/bw. With -b multiple -c also counts
// that as many messages came from each sender as it sent.
//
// osu_bw_fan_in measures the same between hosts; the columns are from osu_mbw_mr.
//
// Owns: rank 0's side.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "fan_in", Title: "OSU MPI Bandwidth Congestion In Test", MinRanks: 2, Takes: "mixXTWbMcfaz",
	About:    "Measures the bandwidth and the message rate from all ranks to rank 0.",
	Defaults: harness.BandwidthDefaults(),
	Buffers:  bench.BuffersOf(1),
	Draw:     picture.Draw,
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	senders := j.Ranks - 1
	if err := j.Options.CheckMemory(program.Buffers(j.Options) * int64(senders)); err != nil && j.Options.Multiple {
		return j.Refuse(err)
	}
	var side bench.Rounds
	if j.Rank == 0 {
		flight, err := bench.NewFlight(j, senders*j.Options.Window)
		if err != nil {
			return err
		}
		side = &sink{Flight: flight, senders: senders}
	} else {
		window, err := bench.NewWindow(j, 0, true)
		if err != nil {
			return err
		}
		side = &source{Window: window}
	}
	report := program.Report(j.Output, harness.Rates)
	report.Under("[ senders: %d ] [ window size: %d ]", senders, j.Options.Window)
	return bench.NewMeter(j, j.Rank == 0, false).Bandwidth(report, side, senders*j.Options.Window)
}

// source is a rank that sends. All its messages of a round are alike, since AnySource leaves open which of them will
// be in which buffer.
type source struct{ *bench.Window }

// Fill implements bench.Rounds.
func (s *source) Fill(round int) {
	for _, buf := range s.Buffers {
		harness.Fill(buf, round, s.World.Rank())
	}
}

// sink is rank 0.
type sink struct {
	*bench.Flight
	senders int
	answer  [4]byte
}

// Play implements bench.Rounds.
func (s *sink) Play(n int) error {
	for range n {
		if err := s.Irecv(0, len(s.Requests), mpi.AnySource); err != nil {
			return err
		}
		if err := s.Wait(); err != nil {
			return err
		}
		for sender := 1; sender <= s.senders; sender++ {
			if err := bench.SendAnswer(s.World, s.answer[:], sender); err != nil {
				return err
			}
		}
	}
	return nil
}

// Fill implements bench.Rounds.
func (s *sink) Fill(int) { s.Clear() }

// Check implements bench.Rounds: every buffer holds what one of the senders sent, and as many of them what each did.
func (s *sink) Check(round int) (wrong int64) {
	left := make([]int, s.senders+1)
	for sender := range left {
		left[sender] = len(s.Requests) / s.senders
	}
	for _, buf := range s.Buffers {
		sender := 1
		for sender <= s.senders && !harness.Check(buf, round, sender) {
			sender++
		}
		if sender > s.senders || len(buf) > 7 && left[sender] == 0 { // short messages may look alike
			wrong++
			continue
		}
		left[sender]--
	}
	return wrong
}

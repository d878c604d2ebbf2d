// Consumer measures how much of its time a slow receiver computes while its sender runs ahead.
//
//	gorun -n 2 ./benchmarks/consumer [-m MIN:MAX] [-i N | --time SECONDS] [-x N] [--warm-time SECONDS] [--alloc]
//	                                 [--json] [--plot FILE]
//
// Rank 0 sends messages of the size (8 bytes unless -m says otherwise) one after the other with Send. Rank 1 receives
// each with Recv and then computes for 7 us without any call of the library: the sender is faster and fills every
// buffer. Rank 0 reads the clock before the first message and when rank 1 has answered the last one. The program prints
// the part of that time in which rank 1 computes, 7 us a message, and the messages per second.
//
// Owns: both loops.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "consumer", Title: "OSU MPI Slow Consumer Test", Ranks: 2, Takes: "mixXTMa",
	About:    "Measures how much of its time a slow receiver computes while its sender runs ahead.",
	Counts:   "messages measured",
	Defaults: defaults(),
	Buffers:  func(harness.Options) int64 { return 1 },
	Draw:     picture.Draw,
}

const (
	computation = 7 * time.Microsecond // for each message
	dataTag     = 1
)

func defaults() harness.Options {
	o := harness.LatencyDefaults()
	o.MinSize, o.MaxSize, o.Large = 8, 8, o.Small
	return o
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	memory, err := j.Memory(int(j.Options.MaxSize))
	if err != nil {
		return err
	}
	s, meter := &side{world: j.World, rank: j.Rank, memory: memory}, bench.NewMeter(j, j.Rank == 0, false)
	table := program.Table(j.Output, "MPI_CHAR", "Size", harness.Column{Head: "Computes(%)"},
		harness.Column{Head: "Messages/s"})
	table.Note("[ computation: %v a message ]", computation)
	return table.Run(j.Options.Sizes(2), func(size int64) ([]any, error) {
		result, err := meter.Measure(s, size)
		return []any{100 * float64(computation) / result.Iteration, 1e9 / result.Iteration}, err
	})
}

// side is one rank's part.
type side struct {
	world       *mpi.Comm
	rank        int
	memory, buf []byte // buf is the beginning of memory
	answer      [4]byte
}

// Resize implements bench.Rounds.
func (s *side) Resize(size int64) error {
	s.buf = s.memory[:size]
	return nil
}

// Play implements bench.Rounds: n messages, and the answer to the last one.
func (s *side) Play(n int) error {
	if s.rank == 0 {
		for range n {
			if err := mpi.Send(s.world, s.buf, 1, dataTag); err != nil {
				return err
			}
		}
		return bench.RecvAnswer(s.world, s.answer[:], 1)
	}
	for range n {
		if _, err := mpi.Recv(s.world, s.buf, 0, dataTag); err != nil {
			return err
		}
		bench.Compute(computation)
	}
	return bench.SendAnswer(s.world, s.answer[:], 0)
}

// Fill implements bench.Rounds: contents are not looked at.
func (s *side) Fill(int) {}

// Check implements bench.Rounds.
func (s *side) Check(int) int64 { return 0 }

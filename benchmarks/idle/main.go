// Idle measures the cost of a rank that waits for a message.
//
//	gorun -n N ./benchmarks/idle [-i SECONDS] [--json]
//
// Every rank but 0 blocks in Recv from rank 0, which sleeps for -i seconds (2) and then sends to all. Each blocked rank
// asks the kernel before and after its Recv how much processor time it has used, user and system together. Rank 0
// prints the greatest of these as seconds of processor time in a second of waiting (0: it slept, 1: it kept a processor
// busy), and the greatest resident size of a rank, rank 0 included.
//
// Owns: the sleep and the reading of the kernel's clocks.
// May call: mpi, benchmarks/harness, benchmarks/internal/bench.
// Never: reach into the runtime.
package main

import (
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

var program = harness.Program{
	Name: "idle", Title: "OSU MPI Idle Test", MinRanks: 2, Takes: "i",
	About:    "Measures the processor time that a rank uses while it is blocked in Recv.",
	Counts:   "seconds of waiting",
	Defaults: harness.Options{Small: harness.Rounds{Iterations: 2}, Large: harness.Rounds{Iterations: 2}},
}

const (
	wakeTag   = 100
	reportTag = 1
)

// report is what one rank sends to rank 0.
type report struct {
	Cost    float64 // processor seconds in a second of waiting
	PeakKiB int64   // resident
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	table := program.Table(j.Output, "MPI_CHAR", "Ranks", harness.Column{Head: "CPU(s/s)", Precision: 4},
		harness.Column{Head: "Max RSS(KiB)"})
	return table.Run([]int64{int64(j.Ranks)}, func(int64) ([]any, error) {
		if err := mpi.Barrier(j.World); err != nil {
			return nil, err
		}
		if j.Rank == 0 {
			return lead(j)
		}
		return nil, follow(j)
	})
}

// lead is rank 0.
func lead(j *bench.Job) ([]any, error) {
	time.Sleep(time.Duration(j.Options.Small.Iterations) * time.Second)
	for other := 1; other < j.Ranks; other++ {
		if err := mpi.Send(j.World, []byte{1}, other, wakeTag); err != nil {
			return nil, err
		}
	}
	worst := report{PeakKiB: harness.PeakKiB()}
	for range j.Ranks - 1 {
		r, _, err := mpi.RecvValue[report](j.World, mpi.AnySource, reportTag)
		if err != nil {
			return nil, err
		}
		worst.Cost, worst.PeakKiB = max(worst.Cost, r.Cost), max(worst.PeakKiB, r.PeakKiB)
	}
	return []any{worst.Cost, worst.PeakKiB}, nil
}

// follow is a rank that waits.
func follow(j *bench.Job) error {
	var word [1]byte
	before, err := bench.ProcessorTime()
	if err != nil {
		return err
	}
	start := time.Now()
	if _, err := mpi.Recv(j.World, word[:], 0, wakeTag); err != nil {
		return err
	}
	waited := time.Since(start)
	after, err := bench.ProcessorTime()
	if err != nil {
		return err
	}
	return mpi.SendValue(j.World, report{float64(after-before) / float64(waited), harness.PeakKiB()}, 0, reportTag)
}

// Halo measures the cost of each step of a program whose ranks compute unevenly and then exchange halos.
//
//	gorun -n N ./benchmarks/halo [-m MIN:MAX] [-i STEPS | --time SECONDS] [--warm-time SECONDS] [--json] [--plot FILE]
//
// In each step a rank computes for a drawn time without any call of the library. Then it exchanges halos of 4 KiB with
// the rank before it and the rank after it, in a ring: two Irecv, two Isend, WaitAll. Every tenth step ends with a
// Barrier. The first column is the time of the computation, from MIN to MAX (20:20000) microseconds by powers of ten.
// It is drawn between 0, 10 and 50 % less and as much more, by a generator with the same seed in every run and library.
//
// For each of the three, columns are
//
//	Beyond   the mean time of a step minus the slowest rank's computation: the cost of communication, and
//	         waiting ranks that are not there at once
//	CPU      processor seconds that a rank uses in a second, user and system, the mean of all ranks
//
// A cell has -i steps, or as many as take --time (0.3 s) without communication, but at least 10.
//
// Owns: the steps.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "halo", Title: "OSU MPI Halo Exchange Test", MinRanks: 2, Takes: "miXT",
	About: "Measures the time of a step beyond the slowest rank's computation, where ranks compute for drawn times " +
		"and exchange halos.",
	Counts: "steps of each cell, in tens", Range: "computation in us, by powers of ten",
	Defaults: harness.Options{
		MinSize: 20, MaxSize: 20000, WarmTime: harness.DefaultWarmTime, Time: 300 * time.Millisecond,
	},
	Check: check,
	Draw:  picture.Draw,
}

const (
	haloBytes = 4096
	meetEvery = 10 // steps

	leastSteps, mostSteps = 10, 3000

	forwardTag  = 1 // to the rank after
	backwardTag = 2 // to the rank before
	cpuTag      = 3
)

// spreads are how much the computation varies, in percent.
var spreads = []int{0, 10, 50}

func main() { bench.Main(program, run) }

func check(o harness.Options) error {
	if o.MinSize < 1 {
		return fmt.Errorf("-m %d: a rank computes for at least 1 us", o.MinSize)
	}
	return nil
}

func run(j *bench.Job) error {
	var cols []harness.Column
	for _, s := range spreads {
		cols = append(cols, harness.Column{Head: fmt.Sprintf("%d%% Beyond(us)", s)},
			harness.Column{Head: fmt.Sprintf("%d%% CPU(s/s)", s)})
	}
	table := program.Table(j.Output, "MPI_CHAR", "Compute", cols...)
	table.Note("[ ranks: %d ] [ halo: %d bytes ]", j.Ranks, haloBytes)
	h, err := newHalo(j)
	if err != nil {
		return err
	}
	return table.Run(j.Options.Sizes(10), func(us int64) (values []any, err error) {
		compute := time.Duration(us) * time.Microsecond
		steps := bench.Fit(j.Options, compute, leastSteps, mostSteps)
		steps = (steps + meetEvery - 1) / meetEvery * meetEvery
		for _, spread := range spreads {
			beyond, cpu, err := h.measure(compute, spread, steps)
			if err != nil {
				return nil, err
			}
			values = append(values, beyond, cpu)
		}
		return values, nil
	})
}

// halo is one rank's part. Index 0 is the rank before it, 1 the rank after it.
type halo struct {
	world      *mpi.Comm
	rank, size int
	pace       *bench.Pace
	neighbours [2]int
	in, out    [2][]byte
	requests   [4]*mpi.Request
}

func newHalo(j *bench.Job) (*halo, error) {
	h := &halo{world: j.World, rank: j.Rank, size: j.Ranks, pace: bench.NewPace(j)}
	h.neighbours = [2]int{(j.Rank + j.Ranks - 1) % j.Ranks, (j.Rank + 1) % j.Ranks}
	for i := range h.in {
		var err error
		if h.in[i], err = j.Memory(haloBytes); err != nil {
			return nil, err
		}
		if h.out[i], err = j.Memory(haloBytes); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// measure returns rank 0's figures of so many steps: microseconds of a step beyond the slowest rank's computation, and
// processor seconds of a rank in a second.
func (h *halo) measure(compute time.Duration, spread, steps int) (beyond, cpu float64, err error) {
	own := drawn(h.rank, compute, spread, steps)
	runtime.GC()
	if err := h.pace.Warm(func(n int) error { return h.play(make([]time.Duration, n)) }); err != nil {
		return 0, 0, err
	}
	if err := mpi.Barrier(h.world); err != nil {
		return 0, 0, err
	}
	used, err := bench.ProcessorTime()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := h.play(own); err != nil {
		return 0, 0, err
	}
	took := time.Since(start)
	now, err := bench.ProcessorTime()
	if err != nil {
		return 0, 0, err
	}
	all, err := h.sum(now - used)
	beyond = float64(took-slowest(h.size, compute, spread, steps)) / 1e3 / float64(steps)
	return beyond, float64(all) / float64(took) / float64(h.size), err
}

// play does a step for each computation.
func (h *halo) play(computations []time.Duration) error {
	for i, c := range computations {
		bench.Compute(c)
		if err := h.exchange(); err != nil {
			return err
		}
		if i%meetEvery == meetEvery-1 {
			if err := mpi.Barrier(h.world); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *halo) exchange() (err error) {
	for i, tag := range [2]int{forwardTag, backwardTag} {
		if h.requests[i], err = mpi.Irecv(h.world, h.in[i], h.neighbours[i], tag); err != nil {
			return err
		}
	}
	for i, tag := range [2]int{backwardTag, forwardTag} {
		if h.requests[2+i], err = mpi.Isend(h.world, h.out[i], h.neighbours[i], tag); err != nil {
			return err
		}
	}
	return mpi.WaitAll(h.requests[:]...)
}

// drawn are the computations of a rank: the same in each run.
func drawn(rank int, compute time.Duration, spread, steps int) []time.Duration {
	all := make([]time.Duration, steps)
	x := uint64(rank+1) * 0x9E3779B97F4A7C15
	for i := range all {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		all[i] = compute + compute*time.Duration(spread)/100*(time.Duration(x%2001)-1000)/1000
	}
	return all
}

// slowest is the sum over the steps of the longest computation of all ranks.
func slowest(ranks int, compute time.Duration, spread, steps int) (sum time.Duration) {
	longest := make([]time.Duration, steps)
	for rank := range ranks {
		for i, c := range drawn(rank, compute, spread, steps) {
			longest[i] = max(longest[i], c)
		}
	}
	for _, c := range longest {
		sum += c
	}
	return sum
}

// sum brings the ranks' processor time to rank 0.
func (h *halo) sum(own time.Duration) (time.Duration, error) {
	if h.rank != 0 {
		return 0, mpi.SendValue(h.world, int64(own), 0, cpuTag)
	}
	for other := 1; other < h.size; other++ {
		peer, _, err := mpi.RecvValue[int64](h.world, other, cpuTag)
		if err != nil {
			return 0, err
		}
		own += time.Duration(peer)
	}
	return own, nil
}

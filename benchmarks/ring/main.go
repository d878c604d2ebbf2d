// Ring measures how fast a token goes round all ranks.
//
//	gorun -n N ./benchmarks/ring [-m MIN:MAX] [-i LAPS | --time SECONDS] [-x LAPS] [--warm-time SECONDS]
//	                             [-W TOKENS] [--json] [--plot FILE]
//
// Each rank receives the token from the rank before it and sends it to the rank after it. Rank 0 reads the clock
// before the first and after the last measured lap and prints the time of a hop, the time of a lap, and the hops per
// second of all tokens together. -W puts more than one token on the ring; fewer than ranks, since each rank holds
// its token in a blocking Send. The default is one token of 8 bytes.
//
// With more ranks than CPUs this shows how well waiting ranks make room for the rank that has work. A lap may then take
// many milliseconds under a runtime that spins: --time keeps that short.
//
// Owns: the token's way.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "ring", Title: "OSU MPI Ring Latency Test", MinRanks: 2, Takes: "mixXTWM",
	About: "Measures a token's way round all ranks: time per hop, time per lap, hops per second.",
	Range: "token sizes in bytes, from 1",
	Defaults: harness.Options{
		MinSize: 8, MaxSize: 8, Window: 1, WarmTime: harness.DefaultWarmTime, MemoryMax: harness.DefaultMemoryMax,
		Small: harness.Rounds{Iterations: 10000, Warmup: 100}, Large: harness.Rounds{Iterations: 1000, Warmup: 10},
	},
	Buffers: func(harness.Options) int64 { return 1 },
	Draw:    picture.Draw,
}

const tokenTag = 1

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	if err := check(j); err != nil {
		return j.Refuse(err)
	}
	table := program.Table(j.Output, "MPI_CHAR", "Size", harness.Column{Head: "Hop Latency(us)"},
		harness.Column{Head: "Lap(us)"}, harness.Column{Head: "Hops/s", Precision: -1},
		harness.Column{Head: "Laps", Width: 12})
	table.Note("[ ranks: %d ] [ tokens: %d ]", j.Ranks, j.Options.Window)
	r, meter := newRing(j.World, j.Options), bench.NewMeter(j, j.Rank == 0, false)
	return table.Run(j.Options.Sizes(2), func(size int64) ([]any, error) {
		result, err := meter.Measure(r, size)
		lap := result.Iteration / 1e3
		return []any{lap / float64(j.Ranks), lap, float64(j.Ranks*j.Options.Window) * 1e6 / lap, result.Rounds}, err
	})
}

func check(j *bench.Job) error {
	switch {
	case j.Options.Window >= j.Ranks:
		return fmt.Errorf("-W %d: the tokens must be fewer than the ranks (%d)", j.Options.Window, j.Ranks)
	case j.Options.MinSize < 1:
		return fmt.Errorf("-m %d: the token has at least 1 byte", j.Options.MinSize)
	}
	return nil
}

// ring is one rank's place in it.
type ring struct {
	world       *mpi.Comm
	tokens      int
	left, right int
	buf, token  []byte // the token between Recv and Send is the beginning of buf
}

func newRing(world *mpi.Comm, opts harness.Options) *ring {
	rank, n := world.Rank(), world.Size()
	r := &ring{world: world, tokens: opts.Window, left: (rank + n - 1) % n, right: (rank + 1) % n}
	r.buf = make([]byte, opts.MaxSize)
	harness.Touch(r.buf)
	return r
}

// Resize implements bench.Rounds.
func (r *ring) Resize(size int64) error {
	r.token = r.buf[:size]
	return nil
}

// Play implements bench.Rounds: n laps of every token. Rank 0 puts the tokens on the ring and takes them off.
func (r *ring) Play(n int) error {
	hops := n * r.tokens
	if r.world.Rank() != 0 || n == 0 {
		return r.hop(hops)
	}
	for range r.tokens {
		if err := mpi.Send(r.world, r.token, r.right, tokenTag); err != nil {
			return err
		}
	}
	if err := r.hop(hops - r.tokens); err != nil {
		return err
	}
	for range r.tokens {
		if _, err := mpi.Recv(r.world, r.token, r.left, tokenTag); err != nil {
			return err
		}
	}
	return nil
}

// hop takes n tokens and passes each on.
func (r *ring) hop(n int) error {
	for range n {
		if _, err := mpi.Recv(r.world, r.token, r.left, tokenTag); err != nil {
			return err
		}
		if err := mpi.Send(r.world, r.token, r.right, tokenTag); err != nil {
			return err
		}
	}
	return nil
}

// Fill implements bench.Rounds: the token's contents are not looked at.
func (r *ring) Fill(int) {}

// Check implements bench.Rounds.
func (r *ring) Check(int) int64 { return 0 }

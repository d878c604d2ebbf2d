// Ring measures how fast a token goes round all ranks.
//
//	gorun -n N ./benchmarks/ring [-m MIN:MAX] [-i LAPS] [-x LAPS] [-W TOKENS] [--json] [--plot FILE]
//
// Each rank receives the token from the rank before it and sends it to the rank after it. Rank 0 reads the clock
// before the first and after the last measured lap and prints the time of a hop, the time of a lap, and the hops per
// second of all tokens together. -W puts more than one token on the ring; fewer than ranks, since each rank holds
// its token in a blocking Send. The default is one token of 8 bytes.
//
// With more ranks than CPUs this shows how well waiting ranks make room for the one that has work. A lap may then
// take many milliseconds under a runtime that spins: after 10 s the laps done so far are the measurement.
//
// Owns: the token's way.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reaches inside of the runtime.
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
	Name: "ring", Title: "OSU MPI Ring Latency Test", MinRanks: 2, Takes: "mixWM",
	About: "Measures a token's way round all ranks: time per hop, time per lap, hops per second.",
	Range: "token sizes in bytes, from 1",
	Defaults: harness.Options{
		MinSize: 8, MaxSize: 8, Window: 1, MemoryMax: harness.DefaultMemoryMax,
		Small: harness.Rounds{Iterations: 10000, Warmup: 100}, Large: harness.Rounds{Iterations: 1000, Warmup: 10},
	},
	Buffers: func(harness.Options) int64 { return 1 },
	Draw:    picture.Draw,
}

const (
	tokenTag = 1
	timeMax  = 10 * time.Second // for one size
)

// The token's first byte.
const (
	goesOn byte = iota
	last
)

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	if err := check(j); err != nil {
		return j.Refuse(err)
	}
	table := program.Table(j.Output, "MPI_CHAR", "Size", harness.Column{Head: "Hop Latency(us)"},
		harness.Column{Head: "Lap(us)"}, harness.Column{Head: "Hops/s", Precision: -1},
		harness.Column{Head: "Laps", Width: 12})
	table.Note("[ ranks: %d ] [ tokens: %d ]", j.Ranks, j.Options.Window)
	return table.Run(j.Options.Sizes(2), newRing(j.World, j.Options).measure)
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

// ring is one rank's place in it. buf holds the token between Recv and Send.
type ring struct {
	world       *mpi.Comm
	opts        harness.Options
	left, right int
	buf         []byte
}

func newRing(world *mpi.Comm, opts harness.Options) *ring {
	rank, n := world.Rank(), world.Size()
	r := &ring{world: world, opts: opts, left: (rank + n - 1) % n, right: (rank + 1) % n}
	r.buf = make([]byte, opts.MaxSize)
	harness.Touch(r.buf)
	return r
}

func (r *ring) measure(size int64) ([]any, error) {
	token := r.buf[:size]
	runtime.GC()
	if err := mpi.Barrier(r.world); err != nil {
		return nil, err
	}
	if r.world.Rank() != 0 {
		return nil, r.pass(token)
	}
	rounds := r.opts.Rounds(size)
	laps, took, err := r.lead(token, rounds)
	if err != nil {
		return nil, err
	}
	hops := float64(laps * r.world.Size())
	us := float64(took) / 1e3
	return []any{us / hops, us / float64(laps), hops * float64(r.opts.Window) / took.Seconds(), laps}, nil
}

// pass passes tokens on until the last one has gone by.
func (r *ring) pass(token []byte) error {
	for gone := 0; gone < r.opts.Window; {
		if err := r.hop(token); err != nil {
			return err
		}
		if token[0] == last {
			gone++
		}
	}
	return nil
}

// lead is rank 0: it puts the tokens on the ring, times the laps, and takes the tokens off.
func (r *ring) lead(token []byte, rounds harness.Rounds) (laps int, took time.Duration, err error) {
	token[0] = goesOn
	for range r.opts.Window {
		if err := mpi.Send(r.world, token, r.right, tokenTag); err != nil {
			return 0, 0, err
		}
	}
	begin := time.Now()
	for i := 0; i < rounds.Warmup && time.Since(begin) < timeMax/2; i++ {
		if err := r.lap(token); err != nil {
			return 0, 0, err
		}
	}
	start := time.Now()
	for laps < rounds.Iterations && (laps == 0 || time.Since(start) < timeMax) {
		if err := r.lap(token); err != nil {
			return 0, 0, err
		}
		laps++
	}
	took = time.Since(start)
	return laps, took, r.takeOff(token)
}

// lap is one turn of every token through rank 0.
func (r *ring) lap(token []byte) error {
	for range r.opts.Window {
		if err := r.hop(token); err != nil {
			return err
		}
	}
	return nil
}

func (r *ring) hop(token []byte) error {
	if _, err := mpi.Recv(r.world, token, r.left, tokenTag); err != nil {
		return err
	}
	return mpi.Send(r.world, token, r.right, tokenTag)
}

// takeOff sends each token on a last lap and receives it when it comes back.
func (r *ring) takeOff(token []byte) error {
	for range r.opts.Window {
		if _, err := mpi.Recv(r.world, token, r.left, tokenTag); err != nil {
			return err
		}
		token[0] = last
		if err := mpi.Send(r.world, token, r.right, tokenTag); err != nil {
			return err
		}
	}
	for range r.opts.Window {
		if _, err := mpi.Recv(r.world, token, r.left, tokenTag); err != nil {
			return err
		}
	}
	return nil
}

// Overlap measures how much of a nonblocking transfer the computation of the starting rank hides.
//
//	gorun -n 2 ./benchmarks/overlap [-m MIN:MAX] [-i N | --time SECONDS] [-x N] [--warm-time SECONDS]
//	                                [--alloc] [--json] [--plot FILE]
//
// Rank 1 is in the library: it blocks in Recv, or in Send for the second half of the columns. Rank 0 starts an Isend
// (an Irecv), computes without any call of the library, and then waits. Columns, for Isend and for Irecv:
//
//	Pure      mean time of start and Wait, with nothing in between
//	Compute   mean time of the computation alone: arithmetic on private memory, as much of it as takes twice Pure,
//	          but at least 200 us
//	Total     mean time of start, computation and Wait
//	Overlap   100 * (1 - (Total - Compute) / Pure), between 0 and 100: what part of the transfer cost nothing
//
// Before each transfer rank 1 sends a byte and goes into its blocking call; rank 0 waits for 50 us after that byte, so
// that rank 1 is there, and only then reads the clock. The default is one size, 4 MiB, 100 times after 10 unmeasured.
//
// Owns: what is transferred.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "overlap", Title: "OSU MPI Overlap Test", Ranks: 2, Takes: "mixXTMa",
	About:    "Measures how much of a nonblocking transfer is hidden behind computation.",
	Defaults: defaults(),
	Buffers:  func(harness.Options) int64 { return 1 },
	Draw:     picture.Draw,
}

func defaults() harness.Options {
	o := harness.LatencyDefaults()
	o.MinSize = o.MaxSize
	o.Small, o.Large = harness.Rounds{Iterations: 100, Warmup: 10}, harness.Rounds{Iterations: 100, Warmup: 10}
	return o
}

const (
	readyTag = 1
	dataTag  = 100

	pause        = 50 * time.Microsecond // from the byte of rank 1 to the start
	computeLeast = 200 * time.Microsecond
)

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	memory, err := j.Memory(int(j.Options.MaxSize))
	if err != nil {
		return err
	}
	var cols []harness.Column
	for _, call := range []string{"Isend", "Irecv"} {
		for _, part := range []string{"Pure(us)", "Compute(us)", "Total(us)", "Overlap(%)"} {
			cols = append(cols, harness.Column{Head: call + " " + part})
		}
	}
	table, pace := program.Table(j.Output, "MPI_CHAR", "Size", cols...), bench.NewPace(j)
	return table.Run(j.Options.Sizes(2), func(size int64) ([]any, error) {
		t := &transfer{world: j.World, pace: pace, buf: memory[:size], rounds: j.Options.Rounds(size)}
		var values []any
		for _, sends := range []bool{true, false} {
			t.sends = sends
			part, err := t.measure(j.Rank)
			if err != nil {
				return nil, err
			}
			values = append(values, part...)
		}
		return values, nil
	})
}

// transfer is what is measured: one size in one direction.
type transfer struct {
	world  *mpi.Comm
	pace   *bench.Pace
	buf    []byte
	rounds harness.Rounds
	sends  bool // rank 0 sends
}

func (t *transfer) measure(rank int) ([]any, error) {
	runtime.GC()
	if err := mpi.Barrier(t.world); err != nil {
		return nil, err
	}
	n, err := t.pace.Settle(t.rounds, func(n int) (err error) {
		if rank == 0 {
			_, err = t.times(n, 0)
			return err
		}
		return t.serve(n)
	})
	if err != nil {
		return nil, err
	}
	if rank != 0 {
		return nil, t.serve(2 * n)
	}
	pure, err := t.times(n, 0)
	if err != nil {
		return nil, err
	}
	steps := bench.StepsFor(max(2*pure, float64(computeLeast)))
	alone := bench.Working(steps, n)
	total, err := t.times(n, steps)
	if err != nil {
		return nil, err
	}
	return []any{pure / 1e3, alone / 1e3, total / 1e3, 100 * bench.Hidden(pure, alone, total)}, nil
}

// serve is rank 1: n blocking calls, each announced.
func (t *transfer) serve(n int) error {
	for range n {
		if err := mpi.Send(t.world, []byte{1}, 0, readyTag); err != nil {
			return err
		}
		var err error
		if t.sends {
			_, err = mpi.Recv(t.world, t.buf, 0, dataTag)
		} else {
			err = mpi.Send(t.world, t.buf, 0, dataTag)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// times is rank 0: n transfers with so much computation in each. It returns their mean time in nanoseconds.
func (t *transfer) times(n, steps int) (float64, error) {
	var took time.Duration
	var word [1]byte
	for range n {
		if _, err := mpi.Recv(t.world, word[:], 1, readyTag); err != nil {
			return 0, err
		}
		for ready := time.Now(); time.Since(ready) < pause; {
		}
		start := time.Now()
		request, err := t.start()
		if err != nil {
			return 0, err
		}
		bench.Work(steps)
		if _, err := request.Wait(); err != nil {
			return 0, err
		}
		took += time.Since(start)
	}
	return float64(took) / float64(max(n, 1)), nil
}

func (t *transfer) start() (*mpi.Request, error) {
	if t.sends {
		return mpi.Isend(t.world, t.buf, 1, dataTag)
	}
	return mpi.Irecv(t.world, t.buf, 1, dataTag)
}

// Bw measures how many bytes a second one rank can send to another, for each size.
//
//	gorun -n 2 ./benchmarks/bw [-m MIN:MAX] [-i N] [-x N] [-W N] [-b single|multiple] [-c] [-f] [--alloc]
//
// Rank 0 starts a window of Isend and waits for all of them; rank 1 has posted as many Irecv, waits for all, and
// answers the whole window with four bytes. One iteration is one window and its answer. Rank 0 reads the clock
// before the first and after the last iteration; bytes sent divided by that time are printed, in 10^6 bytes per
// second. Buffers and requests are made before, nothing is allocated while the clock runs. All messages of a window
// share one buffer, as in OSU, unless -b multiple is given. With -f or -c each iteration is timed by itself; -c
// checks every buffer after each window (with one buffer: the last message to be stored), outside of the timed part.
//
// Options, rounds and output are those of osu_bw 7.4.
//
// Owns: the window.
// May call: mpi, benchmarks/harness.
// Never: reaches inside of the runtime.
package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

var program = harness.Program{
	Name: "bw", Title: "OSU MPI Bandwidth Test", Ranks: 2, Takes: "mixWbMcfa",
	About:    "Measures the bandwidth from one rank to another, with a window of messages in flight.",
	Defaults: harness.BandwidthDefaults(),
	Buffers: func(o harness.Options) int64 {
		if o.Multiple {
			return int64(o.Window)
		}
		return 1
	},
}

const (
	dataTag   = 100
	answerTag = 101
	errorTag  = 102
)

func main() { mpi.Main(run) }

func run(_ context.Context, world *mpi.Comm) error {
	opts, ok, err := program.Start(os.Args[1:], world.Rank(), world.Size(), os.Stdout)
	if !ok {
		return err
	}
	b, err := newBench(world, opts)
	if err != nil {
		return err
	}
	defer b.free()
	report := program.Report(os.Stdout, harness.Megabytes, opts)
	if b.rank == 0 {
		if err := report.Header(); err != nil {
			return err
		}
	}
	for _, size := range opts.Sizes(2) {
		result, err := b.measure(size)
		if err != nil {
			return err
		}
		if b.rank == 0 {
			if err := report.Row(result); err != nil {
				return err
			}
		}
	}
	return nil
}

// bench is one rank's side: rank 0 sends from the buffers, rank 1 receives into them. A message of n bytes uses the
// first n bytes of its buffer.
type bench struct {
	world    *mpi.Comm
	rank     int
	opts     harness.Options
	buffers  [][]byte // one, or one for each message of a window
	requests []*mpi.Request
	answer   [4]byte
	each     []int64
	free     func()
}

func newBench(world *mpi.Comm, opts harness.Options) (*bench, error) {
	b := &bench{world: world, rank: world.Rank(), opts: opts, free: func() {}}
	b.requests = make([]*mpi.Request, opts.Window)
	if opts.PerIteration() {
		b.each = make([]int64, max(opts.Small.Iterations, opts.Large.Iterations))
	}
	n := int(opts.MaxSize)
	count := int(program.Buffers(opts))
	var all []byte
	if opts.Alloc {
		memory, err := mpi.Alloc[byte](max(1, n*count))
		if err != nil {
			return nil, err
		}
		b.free = func() { memory.Free() }
		all = memory.Slice()
	} else {
		all = make([]byte, n*count)
	}
	harness.Touch(all)
	for i := range count {
		b.buffers = append(b.buffers, all[i*n:(i+1)*n])
	}
	return b, nil
}

// measure runs all rounds of one size; the times are rank 0's.
func (b *bench) measure(size int64) (harness.Result, error) {
	rounds := b.opts.Rounds(size)
	result := harness.Result{Size: size, PerRound: size * int64(b.opts.Window)}
	runtime.GC() // no collection of the previous size's leftovers while the clock runs
	if err := mpi.Barrier(b.world); err != nil {
		return result, err
	}
	if err := b.windows(size, rounds.Warmup); err != nil {
		return result, err
	}
	if b.opts.PerIteration() {
		return b.measureEach(result, rounds.Iterations)
	}
	start := time.Now()
	err := b.windows(size, rounds.Iterations)
	result.Iteration = float64(time.Since(start)) / float64(rounds.Iterations)
	return result, err
}

// windows sends or receives n windows of messages of the given size, each followed by its answer.
func (b *bench) windows(size int64, n int) error {
	for range n {
		for j := range b.requests {
			buf := b.buffer(j)[:size]
			var err error
			if b.rank == 0 {
				b.requests[j], err = mpi.Isend(b.world, buf, 1, dataTag)
			} else {
				b.requests[j], err = mpi.Irecv(b.world, buf, 0, dataTag)
			}
			if err != nil {
				return err
			}
		}
		if err := mpi.WaitAll(b.requests...); err != nil {
			return err
		}
		if err := b.exchangeAnswer(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) exchangeAnswer() error {
	if b.rank == 1 {
		return mpi.Send(b.world, b.answer[:], 0, answerTag)
	}
	_, err := mpi.Recv(b.world, b.answer[:], 1, answerTag)
	return err
}

func (b *bench) buffer(j int) []byte { return b.buffers[j%len(b.buffers)] }

// measureEach times every window by itself, filling before and comparing after it when that was asked for.
func (b *bench) measureEach(result harness.Result, n int) (harness.Result, error) {
	var wrong [1]int64
	var total time.Duration
	for i := range n {
		if err := b.prepare(result.Size, i); err != nil {
			return result, err
		}
		start := time.Now()
		if err := b.windows(result.Size, 1); err != nil {
			return result, err
		}
		took := time.Since(start)
		b.each[i] = int64(took)
		total += took
		wrong[0] += b.compare(result.Size, i)
	}
	result.Each = b.each[:n]
	result.Iteration = float64(total) / float64(n)
	if b.rank == 1 {
		return result, mpi.Send(b.world, wrong[:], 0, errorTag)
	}
	_, err := mpi.Recv(b.world, wrong[:], 1, errorTag)
	result.Errors = wrong[0]
	return result, err
}

// prepare fills what rank 0 sends and clears what rank 1 receives into.
func (b *bench) prepare(size int64, round int) error {
	if !b.opts.Validate {
		return nil
	}
	for j, buf := range b.buffers {
		if b.rank == 0 {
			harness.Fill(buf[:size], round, j)
		} else {
			clear(buf[:size])
		}
	}
	// Neither side may still be filling while the other one's clock runs.
	return mpi.Barrier(b.world)
}

// compare counts the buffers of rank 1 that hold something else than rank 0 filled in.
func (b *bench) compare(size int64, round int) (wrong int64) {
	if !b.opts.Validate || b.rank == 0 {
		return 0
	}
	for j, buf := range b.buffers {
		if !harness.Check(buf[:size], round, j) {
			wrong++
		}
	}
	return wrong
}

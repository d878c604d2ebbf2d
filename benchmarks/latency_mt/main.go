// Latency_mt measures how long a message takes while many goroutines of two ranks exchange messages at once.
//
//	gorun -n 2 ./benchmarks/latency_mt [-t SEND[:RECV]] [-m MIN:MAX] [-i N | --time SECONDS] [-x N]
//	                                   [--warm-time SECONDS] [-c] [-f] [--alloc] [--json] [--plot FILE]
//
// SEND goroutines of rank 0 and RECV goroutines of rank 1 (1:2; one number stands for both) play the ping-pong of
// benchmarks/latency on one communicator. With as many on both sides each pair of goroutines has a tag of its own.
// Otherwise all share one tag, and any free goroutine answers; the goroutines of rank 1 then share the round trips
// evenly. Every goroutine of rank 0 does all iterations. They begin together, after a barrier that follows the warm-up,
// each reads the clock around its own, and half of the mean round trip, averaged over the goroutines of rank 0, is
// printed.
//
// With -f or -c each round trip is timed by itself; the extremes and percentiles are over all goroutines of rank 0. -c
// fills before and compares after each round trip, outside of its own timed part, but perhaps in another's.
//
// Options, rounds and output are as in osu_latency_mt 7.4, except that -t N means N:N.
//
// Owns: the goroutines.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "latency_mt", Title: "OSU MPI Multi-threaded Latency Test", Ranks: 2, Takes: "mixXTtMcfaz",
	About:    "Measures the time of a message while many goroutines of two ranks play ping-pong at once.",
	Defaults: harness.LatencyDefaults(),
	Buffers:  func(o harness.Options) int64 { return 2 * int64(max(o.Senders, o.Receivers)) },
	Draw:     picture.Draw,
}

const wrongTag = 1 << 20 // above those of the pairs

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	s, err := newSide(j)
	if err != nil {
		return err
	}
	report := program.Report(j.Output, harness.Microseconds)
	report.Before("Number of Sender threads: %d ", j.Options.Senders) // the space is OSU's
	report.Before("Number of Receiver threads: %d", j.Options.Receivers)
	return report.Measure(s.measure)
}

// side is the goroutines of one rank.
type side struct {
	job     *bench.Job
	pace    *bench.Pace
	workers []*worker
}

// worker is one goroutine's side of the ping-pong, and its results for the present size.
type worker struct {
	*bench.Pair
	opts  harness.Options
	index int
	took  time.Duration
	each  []int64
	wrong int64
	err   error
}

func newSide(j *bench.Job) (*side, error) {
	s := &side{job: j, pace: bench.NewPace(j)}
	count := j.Options.Senders
	if j.Rank == 1 {
		count = j.Options.Receivers
	}
	for i := range count {
		pair, err := bench.NewPair(j, 1-j.Rank, j.Rank == 0)
		if err != nil {
			return nil, err
		}
		if j.Options.Senders == j.Options.Receivers {
			pair.Tag += i
		}
		s.workers = append(s.workers, &worker{Pair: pair, opts: j.Options, index: i})
	}
	return s, nil
}

// roundTrips is how many round trips are this goroutine's, where each goroutine of rank 0 begins so many.
func (w *worker) roundTrips(each int) int {
	if w.Serves {
		return each
	}
	all := each * w.opts.Senders
	part := all / w.opts.Receivers
	if w.index < all%w.opts.Receivers {
		part++
	}
	return part
}

// measure plays all rounds of one size; the result is rank 0's.
func (s *side) measure(size int64) (harness.Result, error) {
	result := harness.Result{Size: size, PerRound: 2}
	for _, w := range s.workers {
		if err := w.Resize(size); err != nil {
			return result, err
		}
	}
	runtime.GC() // no collection of the previous size's leftovers while the clocks run
	n, err := s.pace.Settle(s.job.Options.Rounds(size), func(n int) error {
		return s.together(func(w *worker) { w.err = w.Play(w.roundTrips(n)) })
	})
	if err != nil {
		return result, err
	}
	for _, w := range s.workers {
		w.prepare(n)
	}
	if err := s.together(func(w *worker) { w.play(w.roundTrips(n)) }); err != nil {
		return result, err
	}
	return s.sum(result, n)
}

// together lets all workers of both ranks begin at the same time, and waits for those of this rank.
func (s *side) together(work func(*worker)) error {
	var here, done sync.WaitGroup
	start := make(chan struct{})
	for _, w := range s.workers {
		here.Add(1)
		done.Go(func() {
			here.Done()
			<-start
			work(w)
		})
	}
	here.Wait()
	err := mpi.Barrier(s.job.World)
	close(start)
	done.Wait()
	for _, w := range s.workers {
		err = errors.Join(err, w.err)
	}
	return err
}

func (w *worker) prepare(rounds int) {
	w.each, w.wrong, w.took = w.each[:0], 0, 0
	if w.opts.PerIteration() && cap(w.each) < w.roundTrips(rounds) {
		w.each = make([]int64, 0, w.roundTrips(rounds))
	}
}

// play is n round trips with the clock around all of them, or around each.
func (w *worker) play(n int) {
	if w.opts.PerIteration() {
		w.playEach(n)
		return
	}
	start := time.Now()
	w.err = w.Play(n)
	w.took = time.Since(start)
}

// playEach is n round trips with the clock around each. The partner may have done more or fewer, so all messages of a
// rank have one pattern.
func (w *worker) playEach(n int) {
	for range n {
		if w.opts.Validate {
			w.Fill(0)
		}
		start := time.Now()
		if w.err = w.Play(1); w.err != nil {
			return
		}
		took := time.Since(start)
		w.each = append(w.each, int64(took))
		w.took += took
		if w.opts.Validate {
			w.wrong += w.Check(0)
		}
	}
}

// sum makes the workers' results the rank's, and adds to rank 0's what rank 1 found wrong.
func (s *side) sum(result harness.Result, rounds int) (harness.Result, error) {
	var took time.Duration
	for _, w := range s.workers {
		took += w.took
		result.Errors += w.wrong
		result.Each = append(result.Each, w.each...)
	}
	result.Iteration = float64(took) / float64(len(s.workers)*rounds)
	if s.job.Rank == 1 {
		return result, mpi.SendValue(s.job.World, result.Errors, 0, wrongTag)
	}
	wrong, _, err := mpi.RecvValue[int64](s.job.World, 1, wrongTag)
	result.Errors += wrong
	return result, err
}

// Allpairs measures how many messages a second a job moves when every rank sends to random others.
//
//	gorun -n N ./benchmarks/allpairs [-m MIN:MAX] [-i N | --time SECONDS] [-x N] [--warm-time SECONDS] [-W N]
//	                                 [--waitsome] [-c] [--alloc] [--json] [--plot FILE]
//
// Every rank sends -i messages (10000; above 8 KiB 1000) of the size (8 bytes unless -m says otherwise) to other ranks
// that a generator of its own draws, with W (64) sends in flight and W receives posted that take any source and any
// tag; it starts a new one whenever the oldest is complete, and waits for the first of the two oldest to complete, so
// that receives go on while sends wait. With --waitsome it completes with AppendSome whatever is complete of all
// requests of both windows, and starts a new one in the place of each. Before, the ranks send each other how many
// messages each will get. Rank 0 reads the clock when all ranks are ready and when all have got everything, and prints
// the traffic of all ranks together in that time: messages per second and 10^6 bytes per second. -x messages of each
// rank go before without being measured. With -c every message is checked against its sender when it is complete, while
// the clock runs.
//
// With more ranks than CPUs this shows the cost of traffic between many ranks; the first messages between two ranks are
// among the messages of -x.
//
// Owns: the traffic.
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
	Name: "allpairs", Title: "OSU MPI All-Pairs Random Traffic Test", MinRanks: 2, Takes: "mixXTWsMca",
	About:    "Measures the messages per second of a job in which every rank sends to random others.",
	Defaults: defaults(),
	Buffers:  func(o harness.Options) int64 { return int64(o.Window) + 1 },
	Draw:     picture.Draw,
}

func defaults() harness.Options {
	o := harness.LatencyDefaults()
	o.MinSize, o.MaxSize = 8, 8
	return o
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	t, err := newTraffic(j)
	if err != nil {
		return err
	}
	table := program.Table(j.Output, "MPI_CHAR", "Size", columns(j.Options)...)
	table.Note("[ ranks: %d ] [ window size: %d ]", j.Ranks, j.Options.Window)
	var failure error
	err = table.Run(j.Options.Sizes(2), func(size int64) ([]any, error) {
		if failure != nil {
			return nil, failure
		}
		values, wrong, err := t.measure(size)
		failure = harness.Result{Size: size, Errors: wrong}.Wrong()
		return values, err
	})
	if err == nil {
		err = failure
	}
	return err
}

func columns(o harness.Options) []harness.Column {
	cols := []harness.Column{{Head: "Messages/s"}, {Head: "MB/s"}}
	if o.Validate {
		cols = append(cols, harness.Column{Head: "Validation"})
	}
	return cols
}

// measure has the traffic of one size. Rank 0 gets the values and the number of wrong messages.
func (t *traffic) measure(size int64) (values []any, wrong int64, err error) {
	rounds := t.opts.Rounds(size)
	runtime.GC()
	n, err := t.pace.Settle(rounds, func(n int) error {
		_, err := t.flow(int(size), n)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	t.wrong = 0
	took, err := t.flow(int(size), n)
	if err != nil {
		return nil, 0, err
	}
	if wrong, err = t.sum(t.wrong); err != nil {
		return nil, 0, err
	}
	messages := float64(t.ranks * n)
	ns := float64(took)
	values = []any{messages * 1e9 / ns, messages * float64(size) * 1e3 / ns}
	if t.opts.Validate {
		values = append(values, harness.Verdict(wrong))
	}
	return values, wrong, nil
}

// flow sends n messages from each rank and returns the time until all are there.
func (t *traffic) flow(size, n int) (time.Duration, error) {
	own, err := t.expected(n)
	if err != nil {
		return 0, err
	}
	t.resize(size)
	if err := mpi.Barrier(t.world); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := t.pass(own, n); err != nil {
		return 0, err
	}
	err = mpi.Barrier(t.world)
	return time.Since(start), err
}

// Match measures the cost of matching a message when many others wait.
//
//	gorun -n 2 ./benchmarks/match [-m MIN:MAX] [-i N] [-x N] [--warm-time SECONDS] [--time SECONDS] [-W N] [--json]
//	                              [--plot FILE]
//
// The first column is the number of others, from MIN to MAX (1:1000000) by powers of ten. The other columns are
// microseconds for one message of 8 bytes, for four kinds of receive, posted and unexpected:
//
//	Exact    receives name source and tag
//	AnySrc   receives name the tag, AnySource
//	AnyTag   receives name the source, AnyTag
//	AnyBoth  AnySource and AnyTag
//
// Posted: rank 1 posts as many receives of the kind as the first column has, none of which matches. After them it posts
// a batch of W (64) receives that will match, and requests W messages from rank 0. The time from the request until all
// W are there, divided by W, is the cost of one message. The receives in the way have other tags (Exact, AnySrc) or
// name another source (AnyTag: rank 1 itself).
//
// Unexpected: as many messages as the first column has wait on rank 1 for receives that are not posted yet. Then rank 0
// sends W messages after them, and one more that ends the batch. The time of W calls of Recv that receive those W
// messages, divided by W, is the cost of one. The messages in the way have other tags (Exact, AnySrc) or come from
// another source (AnyTag: rank 1 itself).
//
// Nothing can be in the way of AnyBoth, which matches everything: there the oldest entry is taken each time and a new
// one joins the end, so that the queue keeps its length.
//
// A million messages are more than a rank lets wait by default: GORUN_UNEXPECTED_MAX is set to 4GiB unless it is set
// already. With a smaller limit the longer queues cannot be built, and the program waits for ever.
//
// Each cell is the median of the batches: -i of them (200) after -x (10), fewer where they take more than a second, or
// --time, together.
//
// Owns: the queues and the batches.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "match", Title: "OSU MPI Match Test", Ranks: 2, Takes: "mixXTW",
	About: "Measures the cost of matching a message against the length of the queue it is matched in.",
	Range: "queue lengths, by powers of ten",
	Defaults: harness.Options{
		MinSize: 1, MaxSize: 1_000_000, Window: harness.DefaultWindow, WarmTime: harness.DefaultWarmTime,
		Small: harness.Rounds{Iterations: 200, Warmup: 10}, Large: harness.Rounds{Iterations: 200, Warmup: 10},
	},
	Check: check,
	Draw:  picture.Draw,
}

const maxLength = 100_000_000 // keeps every tag below the 2^31 of MPI

// limitName is how much memory a rank spends on unexpected messages before it holds the senders back. A million of
// them is more than a program gets by default.
const (
	limitName = "GORUN_UNEXPECTED_MAX"
	limit     = "4GiB"
)

func main() {
	if os.Getenv(limitName) == "" {
		if err := os.Setenv(limitName, limit); err != nil {
			fmt.Fprintln(os.Stderr, "match:", err)
			os.Exit(1)
		}
	}
	bench.Main(program, run)
}

func check(o harness.Options) error {
	if o.MinSize < 1 || o.MaxSize > maxLength {
		return fmt.Errorf("-m %d:%d: the queue has 1 to %d entries", o.MinSize, o.MaxSize, maxLength)
	}
	return nil
}

func run(j *bench.Job) error {
	table := program.Table(j.Output, "MPI_CHAR", "Queue", columns()...)
	table.Note("%s=%s", limitName, os.Getenv(limitName))
	warm := j.Options.WarmTime
	return table.Run(j.Options.Sizes(10), func(length int64) ([]any, error) {
		return measureLine(j.World, j.Options, &warm, int(length))
	})
}

func columns() []harness.Column {
	var cols []harness.Column
	for _, queue := range []string{"Posted", "Unexp."} {
		for _, k := range kinds {
			cols = append(cols, harness.Column{Head: queue + " " + k.name + "(us)", Precision: 3})
		}
	}
	return cols
}

// measureLine measures all columns at one length. Rank 1 measures, rank 0 gets the numbers.
func measureLine(world *mpi.Comm, opts harness.Options, warm *time.Duration, length int) ([]any, error) {
	q := newQueue(world, opts, warm, length)
	cells := make([]float64, 0, 2*len(kinds))
	for _, measure := range []func(kind) (float64, error){q.posted, q.unexpected} {
		for _, k := range kinds {
			us, err := measure(k)
			if err != nil {
				return nil, err
			}
			cells = append(cells, us)
		}
	}
	if world.Rank() == 1 {
		return nil, mpi.Send(world, cells, 0, resultTag)
	}
	if _, err := mpi.Recv(world, cells, 1, resultTag); err != nil {
		return nil, err
	}
	values := make([]any, len(cells))
	for i, us := range cells {
		values[i] = us
	}
	return values, nil
}

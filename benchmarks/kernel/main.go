// Kernel measures how fast the sum of float64 that reductions use is, against a copy of as many bytes.
//
//	gorun -n 1 ./benchmarks/kernel [-m MIN:MAX] [-i N | --time SECONDS] [-x N] [--warm-time SECONDS] [--json]
//
// A round is one sum, b = a + b, and one copy, b = a, of the same vectors. Columns: the rate of the sum divided by the
// rate of the copy (1.0: as many bytes a second), and the mean times of both. The size is the size of one vector, a
// multiple of 8. With several ranks the figures are rank 0's, and all ranks compute at once.
//
// Owns: what is added and copied.
// May call: benchmarks/harness, benchmarks/internal/*; and internal/reduce, whose time no public call has alone.
// Never: reach into the runtime otherwise.
package main

import (
	"fmt"
	"time"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/internal/reduce"
)

const elementSize = 8

var program = harness.Program{
	Name: "kernel", Title: "OSU MPI Reduction Kernel Test", Takes: "mixXTM",
	About:    "Measures the sum of float64 vectors against a copy of as many bytes.",
	Defaults: defaults(),
	Buffers:  func(harness.Options) int64 { return 2 },
	Check:    check,
}

func defaults() harness.Options {
	o := harness.LatencyDefaults()
	o.MinSize, o.MaxSize = 1<<20, 1<<20
	return o
}

func main() { bench.Main(program, run) }

func check(o harness.Options) error {
	for _, size := range o.Sizes(2) {
		if size == 0 || size%elementSize != 0 {
			return fmt.Errorf("-m %d:%d: the sizes of vectors are multiples of 8, and %d is not one above 0",
				o.MinSize, o.MaxSize, size)
		}
	}
	return nil
}

func run(j *bench.Job) error {
	pace := bench.NewPace(j)
	table := program.Table(j.Output, "MPI_DOUBLE", "Size", harness.Column{Head: "Sum/Copy"},
		harness.Column{Head: "Sum(us)"}, harness.Column{Head: "Copy(us)"})
	return table.Run(j.Options.Sizes(2), func(size int64) ([]any, error) {
		v := newVectors(int(size / elementSize))
		n, err := pace.Settle(j.Options.Rounds(size), v.play)
		if err != nil {
			return nil, err
		}
		v.sums, v.copies = 0, 0
		err = v.play(n)
		return []any{float64(v.copies) / float64(max(v.sums, 1)), us(v.sums, n), us(v.copies, n)}, err
	})
}

func us(all time.Duration, n int) float64 { return float64(all) / float64(n) / 1e3 }

// vectors are a and b, and what the rounds took.
type vectors struct {
	a, b         []float64
	sums, copies time.Duration
}

func newVectors(n int) *vectors {
	v := &vectors{a: make([]float64, n), b: make([]float64, n)}
	for i := range v.a {
		v.a[i], v.b[i] = float64(i), 1
	}
	return v
}

func (v *vectors) play(n int) error {
	for range n {
		start := bench.Now()
		reduce.Sum(v.b, v.a, v.b)
		middle := bench.Now()
		copy(v.b, v.a)
		v.sums, v.copies = v.sums+middle-start, v.copies+bench.Now()-middle
	}
	return nil
}

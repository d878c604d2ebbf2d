// Collective measures how long collective calls take.
//
//	gorun -n N ./benchmarks/collective OPERATION[,OPERATION]... [-m MIN:MAX] [-i N | --time SECONDS] [-x N]
//	                                   [--warm-time SECONDS] [-M BYTES] [-c] [-f] [--alloc] [-d cuda] [--json]
//	                                   [--plot FILE]
//
// OPERATION is one of OSU's names: allgather, allgatherv, allreduce, alltoall, alltoallv, alltoallw, barrier, bcast,
// gather, gatherv, neighbor_allgather, neighbor_allgatherv, neighbor_alltoall, neighbor_alltoallv, neighbor_alltoallw,
// reduce, reduce_scatter, reduce_scatter_block, scatter, scatterv; or scan or exscan. iallreduce, and so for each, is
// the nonblocking call, allreduce_persistent the persistent one. The program may also be called osu_OPERATION. The
// neighbours of a rank are its neighbours in a ring of all ranks (Cart). The w forms have a layout of bytes for each
// block.
//
// With several operations each has a column, and a line has all figures of one size.
//
// A rank reads the clock before and after each call and enters a barrier before the next one, as OSU's programs do. A
// line has the mean over all ranks of the mean time of their calls. -f adds the least and the greatest mean of a rank
// and the number of calls, -c fills the buffers before each call and compares them after it, outside of its time.
//
// Of a nonblocking call a line has the mean times of the call, a computation without any call of the library, and Wait
// together; of the computation alone, which is made to take as long as the call and Wait alone; of these; and what part
// of them the computation hides. All ranks compute at once. -f adds nothing, and -c checks the call and Wait alone.
//
// The size is OSU's: the bytes that one rank has for one other rank, or for all of them together if they get the same.
// For reduce_scatter it is the whole vector, for reduce_scatter_block a rank's part. Reductions add float64, so the
// program leaves out sizes that are not multiples of 8. The root is rank 0. The v forms have equal counts.
//
// With -d cuda all buffers are in the memory of GPUs. Each rank takes the GPU that gpu.Local returns, and the program
// must be built with cgo. Package gpu has eight of the operations, blocking and nonblocking.
//
// Owns: the operations.
// May call: mpi, gpu, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/device"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "collective", Title: "OSU MPI Collective Latency Test", Operand: "OPERATION[,OPERATION]...", Takes: "mixXTMcfad",
	About: "Measures the time of collective calls: " + strings.Join(names(), ", ") +
		"; iallreduce and so on, allreduce_persistent and so on. It may be called osu_OPERATION.",
	Defaults: harness.CollectiveDefaults(),
	Check:    check,
	Draw:     picture.Draw,
}

func main() { bench.Main(program, run) }

func check(o harness.Options) error {
	chosen, err := chosenBy(o)
	if err == nil && len(sizesOf(o, chosen)) == 0 {
		err = fmt.Errorf("-m %d:%d: the sizes of a reduction are multiples of 8; name one", o.MinSize, o.MaxSize)
	}
	return err
}

// chosenBy is what the options choose.
func chosenBy(o harness.Options) ([]form, error) {
	chosen, err := choose(o.Operand, filepath.Base(os.Args[0]))
	if err != nil || o.Accelerator.Kind == "" {
		return chosen, err
	}
	return onDevice(chosen)
}

func run(j *bench.Job) error {
	chosen, err := chosenBy(j.Options)
	if err != nil {
		return err
	}
	sizes := sizesOf(j.Options, chosen)
	if err := j.Options.CheckMemory(2 * int64(mostBlocks(j.Ranks))); err != nil {
		return j.Refuse(err)
	}
	where, ok, err := device.Open(j)
	if !ok || err != nil {
		return err
	}
	m, err := newMeter(j, where, chosen)
	if err == nil {
		err = countHost(j)
	}
	if err != nil {
		return err
	}
	switch {
	case len(chosen) > 1:
		return several(j, m, chosen, sizes)
	case chosen[0].way == nonblocking:
		return hidden(j, m, chosen[0], sizes)
	}
	return one(j, m, chosen[0], sizes)
}

// countHost finds out how many ranks are on this host, for --json: gorun simulate --fit reads it.
func countHost(j *bench.Job) error {
	if !j.Options.JSON {
		return nil
	}
	host, err := j.World.SplitShared(0)
	if err != nil {
		return err
	}
	j.Output.PerHost = host.Size()
	return host.Free()
}

// way is how a call is made.
type way int

const (
	blocking way = iota
	nonblocking
	persistent
)

// form is an operation, and how it is called.
type form struct {
	*operation
	way way
}

// String is OSU's name.
func (f form) String() string {
	return [...]string{"", "i", ""}[f.way] + f.name + [...]string{"", "", "_persistent"}[f.way]
}

func (f form) fullTitle() string {
	return "OSU MPI " + [...]string{"", "Non-blocking ", "Persistent "}[f.way] + f.title + " Latency Test"
}

// choose reads the word that is no option, or without one the program's own name.
func choose(operand, name string) (chosen []form, err error) {
	if operand == "" {
		if operand = strings.TrimPrefix(name, "osu_"); operand == name {
			return nil, fmt.Errorf("which operation? There are %s", strings.Join(names(), ", "))
		}
	}
	for word := range strings.SplitSeq(operand, ",") {
		f, ok := find(word)
		if !ok {
			return nil, fmt.Errorf("there is no operation %q; there are %s, with i before the name or _persistent after it",
				word, strings.Join(names(), ", "))
		}
		chosen = append(chosen, f)
	}
	if len(chosen) > 1 && slices.ContainsFunc(chosen, func(f form) bool { return f.way == nonblocking }) {
		return nil, fmt.Errorf("%s: a nonblocking operation is measured by itself", operand)
	}
	return chosen, nil
}

func find(word string) (form, bool) {
	for i := range operations {
		for w := range persistent + 1 {
			if f := (form{&operations[i], w}); f.String() == word {
				return f, true
			}
		}
	}
	return form{}, false
}

// sizesOf are those that all operations have.
func sizesOf(o harness.Options, chosen []form) []int64 {
	sizes := o.Sizes(2)
	if slices.ContainsFunc(chosen, func(f form) bool { return f.reduces }) {
		sizes = slices.DeleteFunc(sizes, func(n int64) bool { return n%elementSize != 0 })
	}
	return sizes
}

// described is the program with the names of one operation, what its elements are, the head of its keys, and those.
func described(j *bench.Job, f form, sizes []int64) (p harness.Program, datatype, key string, keys []int64) {
	p, datatype, key, keys = program, "MPI_CHAR", "Size", sizes
	p.Name, p.Title = f.String(), f.fullTitle()
	switch {
	case f.named("barrier"):
		datatype, key, keys = "", "", []int64{int64(j.Ranks)}
	case f.reduces:
		datatype = "MPI_DOUBLE"
	}
	return p, datatype, key, keys
}

// one prints OSU's table. A barrier has no size.
func one(j *bench.Job, m *meter, f form, sizes []int64) error {
	p, datatype, key, sizes := described(j, f, sizes)
	table := p.Collective(j.Output, datatype, key)
	var wrong error
	err := table.Run(sizes, func(size int64) ([]any, error) {
		if wrong != nil {
			return nil, wrong
		}
		fig, err := m.measure(f, size)
		wrong = fig.Wrong()
		values := []any{fig.Iteration / 1e3}
		if j.Options.Full {
			values = append(values, fig.least/1e3, fig.most/1e3, fig.Rounds)
		}
		if j.Options.Validate {
			values = append(values, harness.Verdict(fig.Errors))
		}
		return values, err
	})
	if err == nil {
		err = wrong
	}
	return err
}

// hidden prints OSU's table of a nonblocking call.
func hidden(j *bench.Job, m *meter, f form, sizes []int64) error {
	p, datatype, key, sizes := described(j, f, sizes)
	var cols []harness.Column
	for _, head := range []string{"Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)"} {
		cols = append(cols, harness.Column{Head: head})
	}
	table := p.Table(j.Output, datatype, key, cols...)
	table.Under("Overall = Coll. Init + Compute + MPI_Test + MPI_Wait")
	return table.Run(sizes, func(size int64) ([]any, error) {
		pure, err := m.measure(f, size)
		if err == nil {
			err = pure.Wrong()
		}
		if err != nil {
			return nil, err
		}
		overall, alone, err := m.overlap(f, pure.Rounds, pure.Iteration)
		part := bench.Hidden(pure.Iteration, alone, overall)
		return []any{overall / 1e3, alone / 1e3, pure.Iteration / 1e3, 100 * part}, err
	})
}

// several prints a line for each size with the mean times of all operations.
func several(j *bench.Job, m *meter, chosen []form, sizes []int64) error {
	var cols []harness.Column
	for _, o := range chosen {
		cols = append(cols, harness.Column{Head: o.String() + "(us)"})
	}
	return program.Table(j.Output, "", "Size", cols...).Run(sizes, func(size int64) (values []any, err error) {
		for _, o := range chosen {
			f, err := m.measure(o, size)
			if err == nil {
				err = f.Wrong()
			}
			if err != nil {
				return nil, err
			}
			values = append(values, f.Iteration/1e3)
		}
		return values, nil
	})
}

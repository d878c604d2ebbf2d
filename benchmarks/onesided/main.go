// Onesided measures the operations on windows.
//
//	gorun -n 2 ./benchmarks/onesided OPERATION [-w allocate|create] [-s CALLS] [-m MIN:MAX] [-i N | --time SECONDS]
//	                                 [-x N] [--warm-time SECONDS] [-W N] [-M BYTES] [-c] [-f] [--alloc] [--json]
//	                                 [--plot FILE]
//
// OPERATION is one of OSU's names: put_latency, get_latency, put_bw, get_bw, put_bibw, acc_latency, get_acc_latency,
// fop_latency, cas_latency; or fop_rate. The program may also be called osu_OPERATION. -s names the calls that begin
// and end epochs:
//
//	lock          Lock, the operations, Unlock
//	flush         Flush after the operations; rank 0 has the lock all the time
//	flush_local   FlushLocal after them
//	lock_all      LockAll, the operations, UnlockAll
//	pscw          Post and Wait at one rank, Start and Complete at the other
//	fence         Fence before and after the operations
//
// Rank 0 has operations on the memory of rank 1, which waits in a receive meanwhile. A latency is the time from the
// beginning of an operation until the end of the last call of -s. With pscw and fence the ranks take turns, as
// in OSU's programs: each of them has an operation on the memory of the other, and half of the time of both is printed.
// With fence a turn of both has three calls of Fence.
//
// A bandwidth counts the bytes of windows of -W operations, each at its own place, between two calls of -s. In put_bibw
// both ranks have operations at once, so it has pscw and fence only.
//
// acc_latency, get_acc_latency, fop_latency and cas_latency have elements of 8 bytes (int64), and the operator is the
// sum. Sizes are multiples of 8; fop_latency and cas_latency have one element. fop_rate is of any number of ranks: all
// of them add to one word of rank 0 with FetchOp at once. It prints the operations a second of all ranks together.
//
// With -f or -c each iteration is timed by itself. -c fills before it, and compares after it what the operations have
// written and returned, outside of the timed part.
//
// Options, rounds and output are as in OSU 7.4, whose acc_latency and get_acc_latency have elements of one byte.
//
// Owns: the operations, the order of the calls of an epoch.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "onesided", Title: "OSU MPI One-Sided Test", Operand: "OPERATION", MinRanks: 2, Takes: "mixXTWMcfazwS",
	About: "Measures operations on windows: " + strings.Join(names(), ", ") +
		". It may be called osu_OPERATION.",
	Defaults: harness.LatencyDefaults(),
	Check:    check,
	Draw:     picture.Draw,
}

func main() { bench.Main(program, run) }

// call is one call on a window.
type call int

const (
	put call = iota
	get
	accumulate
	getAccumulate
	fetchOp
	compareAndSwap
)

// shape is what a round is made of.
type shape int

const (
	latency   shape = iota // one operation
	oneWay                 // a window of operations
	bothWays               // a window of each rank
	fromAll                // an operation of each rank of the job at rank 0
	wordBytes = 8
)

type operation struct {
	name, title string // OSU's
	call        call
	shape       shape
}

var operations = []operation{
	{"put_latency", "MPI_Put Latency", put, latency},
	{"get_latency", "MPI_Get latency", get, latency},
	{"put_bw", "MPI_Put Bandwidth", put, oneWay},
	{"get_bw", "MPI_Get Bandwidth", get, oneWay},
	{"put_bibw", "MPI_Put Bi-directional Bandwidth", put, bothWays},
	{"acc_latency", "MPI_Accumulate latency", accumulate, latency},
	{"get_acc_latency", "MPI_Get_accumulate latency", getAccumulate, latency},
	{"fop_latency", "MPI_Fetch_and_op latency", fetchOp, latency},
	{"cas_latency", "MPI_Compare_and_swap latency", compareAndSwap, latency},
	{"fop_rate", "MPI_Fetch_and_op Rate", fetchOp, fromAll},
}

func names() (list []string) {
	for _, o := range operations {
		list = append(list, o.name)
	}
	return list
}

// choose reads the word that is no option, or without one the program's own name.
func choose(operand, name string) (operation, error) {
	word := cmp.Or(operand, strings.TrimPrefix(name, "osu_"))
	i := slices.IndexFunc(operations, func(o operation) bool { return o.name == word })
	switch {
	case i >= 0:
		return operations[i], nil
	case operand == "":
		return operation{}, fmt.Errorf("which operation? There are %s", strings.Join(names(), ", "))
	}
	return operation{}, fmt.Errorf("there is no operation %q; there are %s", operand, strings.Join(names(), ", "))
}

// words reports whether the elements are int64; otherwise they are bytes.
func (o operation) words() bool { return o.call != put && o.call != get }

// one reports whether an operation has one element.
func (o operation) one() bool { return o.call == fetchOp || o.call == compareAndSwap }

// syncs are the values of -s that the operation has, the default first.
func (o operation) syncs() []string {
	switch o.shape {
	case bothWays:
		return []string{"pscw", "fence"}
	case fromAll:
		return []string{"flush", "flush_local", "lock", "lock_all"}
	}
	return []string{"flush", "flush_local", "lock", "lock_all", "pscw", "fence"}
}

// depth is how many operations a rank has in a round.
func (o operation) depth(opts harness.Options) int {
	if o.shape == oneWay || o.shape == bothWays {
		return opts.Window
	}
	return 1
}

// settle returns the options with the sizes and the -s of the operation, and its numbers of iterations.
func (o operation) settle(opts harness.Options) (harness.Options, error) {
	if opts.Sync = cmp.Or(opts.Sync, o.syncs()[0]); !slices.Contains(o.syncs(), opts.Sync) {
		return opts, fmt.Errorf("-s %s: %s has %s", opts.Sync, o.name, strings.Join(o.syncs(), ", "))
	}
	plain, few := harness.LatencyDefaults(), harness.BandwidthDefaults()
	if o.depth(opts) > 1 && opts.Small == plain.Small && opts.Large == plain.Large {
		opts.Small, opts.Large = few.Small, few.Large
	}
	switch {
	case o.one():
		opts.MinSize, opts.MaxSize = wordBytes, wordBytes
	case o.words():
		opts.MinSize = max(opts.MinSize, wordBytes)
		if opts.MinSize%wordBytes != 0 || opts.MaxSize < opts.MinSize {
			return opts, fmt.Errorf("-m %d:%d: the sizes of %s are multiples of %d; name one", opts.MinSize, opts.MaxSize,
				o.name, wordBytes)
		}
	}
	buffers := 2 * o.depth(opts) // of this rank, and in the window
	if o.call == getAccumulate {
		buffers++
	}
	return opts, opts.CheckMemory(int64(buffers))
}

func check(opts harness.Options) error {
	o, err := choose(opts.Operand, filepath.Base(os.Args[0]))
	if err == nil {
		_, err = o.settle(opts)
	}
	return err
}

func run(j *bench.Job) error {
	o, err := choose(j.Options.Operand, filepath.Base(os.Args[0]))
	if err != nil {
		return err
	}
	if j.Options, err = o.settle(j.Options); err != nil {
		return err
	}
	if o.shape != fromAll && j.Ranks != 2 {
		return j.Refuse(fmt.Errorf("%s needs exactly 2 ranks, this job has %d; start it with gorun -n 2", o.name, j.Ranks))
	}
	j.Output.Options, j.Program.Name, j.Program.Title = j.Options, o.name, "OSU "+o.title+" Test"
	if o.words() {
		return measure(j, o, mpi.Sum[int64], fillWords{})
	}
	return measure(j, o, nil, fillBytes{})
}

func measure[T byte | int64](j *bench.Job, o operation, sum mpi.Op[T], p pattern[T]) (err error) {
	s, err := newSide(j, o, sum, p)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = s.free()
		}
	}()
	// With -c no rank fills its part of the window while another one still warms up.
	together := o.shape == fromAll || j.Options.Validate
	m := bench.NewMeter(j, j.Rank == 0 || o.shape == fromAll, together)
	window := map[bool]string{true: "MPI_Win_create", false: "MPI_Win_allocate"}[j.Options.WinCreate]
	datatype := map[bool]string{true: "MPI_INT64_T", false: "MPI_CHAR"}[o.words()]
	sync := osuSync[j.Options.Sync]
	if o.shape == fromAll {
		t := j.Program.Table(j.Output, datatype, "Ranks", harness.Column{Head: "Operations/s"})
		t.Under("Window creation: %s", window)
		t.Under("Synchronization: %s", sync)
		return t.Run([]int64{int64(j.Ranks)}, func(ranks int64) ([]any, error) {
			result, err := m.Measure(s, wordBytes)
			if err == nil {
				err = result.Wrong()
			}
			return []any{float64(ranks) * 1e9 / result.Iteration}, err
		})
	}
	if o.shape == latency {
		return j.Program.OneSided(j.Output, harness.Microseconds, window, sync, datatype).Measure(
			func(size int64) (harness.Result, error) {
				result, err := m.Measure(s, size)
				result.PerRound = 1
				if s.turns {
					result.PerRound = 2
				}
				return result, err
			})
	}
	messages := j.Options.Window
	if o.shape == bothWays {
		messages *= 2
	}
	return m.Bandwidth(j.Program.OneSided(j.Output, harness.Megabytes, window, sync, datatype), s, messages)
}

// osuSync is what OSU's programs print.
var osuSync = map[string]string{
	"lock": "MPI_Win_lock/unlock", "flush": "MPI_Win_flush", "flush_local": "MPI_Win_flush_local",
	"lock_all": "MPI_Win_lock_all/unlock_all", "pscw": "MPI_Win_post/start/complete/wait", "fence": "MPI_Win_fence",
}

// Onesided measures the operations on windows.
//
//	gorun -n 2 ./benchmarks/onesided OPERATION [-w KIND] [-s CALLS[,CALLS]...] [-m MIN:MAX] [-i N | --time SECONDS]
//	                                 [-x N] [--warm-time SECONDS] [-W N] [-M BYTES] [-c] [-f] [--alloc] [--json]
//	                                 [--plot FILE]
//
// OPERATION is one of OSU's names: put_latency, get_latency, put_bw, get_bw, put_bibw, acc_latency, get_acc_latency,
// fop_latency, cas_latency; or fop_rate or fence_latency. The program may also be called osu_OPERATION. -w names the
// kind of the window: allocate (WinAlloc), create (WinCreate) or shared (WinShared). -s names the calls that begin and
// end epochs:
//
//	lock             Lock (Shared), the operations, Unlock
//	lock_exclusive   Lock (Exclusive), the operations, Unlock
//	flush            Flush after the operations; rank 0 has a Shared lock all the time
//	flush_local      FlushLocal after them
//	lock_all         LockAll, the operations, UnlockAll
//	lock_all_flush   Flush after the operations; rank 0 is in an epoch of LockAll all the time
//	pscw             Post and Wait at one rank, Start and Complete at the other
//	fence            Fence before and after the operations
//
// With several of them each has a column, and a line has all figures of one size.
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
// sum. Sizes are multiples of 8; fop_latency and cas_latency have one element. fop_rate and fence_latency are of any
// number of ranks. In fop_rate all of them add to one word of rank 0 with FetchOp at once: it prints the operations a
// second of all ranks together, until the last rank has finished. fence_latency prints the time of one Fence without
// any operation.
//
// With -f or -c each iteration is timed by itself. -c fills before it, and compares after it what the operations have
// written and returned, outside of the timed part.
//
// Options, rounds and output are as in OSU 7.4, whose acc_latency and get_acc_latency have elements of one byte, whose
// latencies have two digits, and which has no lock_exclusive, lock_all_flush and -w shared.
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
	noCall
)

// shape is what a round is made of.
type shape int

const (
	latency   shape = iota // one operation
	oneWay                 // a window of operations
	bothWays               // a window of each rank
	fromAll                // each rank of the job takes part, with an operation at rank 0 if there is one
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
	{"fence_latency", "MPI_Win_fence Latency", noCall, fromAll},
}

// heading is the title of the output. OSU has no program for calls of all ranks.
func (o operation) heading() string {
	if o.shape == fromAll {
		return o.title + " Test"
	}
	return "OSU " + o.title + " Test"
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
func (o operation) one() bool { return o.call >= fetchOp }

// syncs are the values of -s that the operation has, the default first.
func (o operation) syncs() []string {
	passive := []string{"flush", "flush_local", "lock", "lock_exclusive", "lock_all", "lock_all_flush"}
	switch {
	case o.call == noCall:
		return []string{"fence"}
	case o.shape == bothWays:
		return []string{"pscw", "fence"}
	case o.shape == fromAll:
		return passive
	}
	return append(passive, "pscw", "fence")
}

// depth is how many operations a rank has in a round.
func (o operation) depth(opts harness.Options) int {
	if o.shape == oneWay || o.shape == bothWays {
		return opts.Window
	}
	return 1
}

// settle returns the options with the sizes, the -w and the -s of the operation, and its numbers of iterations.
func (o operation) settle(opts harness.Options) (harness.Options, error) {
	opts.WinKind, opts.Sync = cmp.Or(opts.WinKind, harness.WinKinds[0]), cmp.Or(opts.Sync, o.syncs()[0])
	syncs := strings.Split(opts.Sync, ",")
	for _, sync := range syncs {
		if !slices.Contains(o.syncs(), sync) {
			return opts, fmt.Errorf("-s %s: %s has %s", sync, o.name, strings.Join(o.syncs(), ", "))
		}
	}
	if len(syncs) > 1 && opts.PerIteration() {
		return opts, fmt.Errorf("-s %s: with -c, -f or -z name one of them", opts.Sync)
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
			return opts, fmt.Errorf("-m %d:%d: the sizes of %s are multiples of %d; name one", opts.MinSize,
				opts.MaxSize, o.name, wordBytes)
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
		return j.Refuse(fmt.Errorf("%s needs exactly 2 ranks, this job has %d; start it with gorun -n 2", o.name,
			j.Ranks))
	}
	j.Output.Options, j.Program.Name, j.Program.Title = j.Options, o.name, o.heading()
	if o.words() {
		return measure(j, o, mpi.Sum[int64], fillWords{})
	}
	return measure(j, o, nil, fillBytes{})
}

func measure[T byte | int64](j *bench.Job, o operation, sum mpi.Op[T], p pattern[T]) (err error) {
	syncs := strings.Split(j.Options.Sync, ",")
	if len(syncs) > 1 || o.shape == fromAll {
		return several(j, o, syncs, sum, p)
	}
	sync := syncs[0]
	return withSide(j, o, sync, sum, p, func(s *side[T], m *bench.Meter) error {
		unit := harness.Microseconds
		if o.shape != latency {
			unit = harness.Megabytes
		}
		r := j.Program.OneSided(j.Output, unit, osuWindow[j.Options.WinKind], osuSync[sync], o.datatype())
		if o.shape != latency {
			return m.Bandwidth(r, s, s.operations())
		}
		return r.Measure(func(size int64) (harness.Result, error) {
			result, err := m.Measure(s, size)
			result.PerRound = int64(s.operations())
			return result, err
		})
	})
}

// several prints a line for each size, with a column for each value of -s. Each figure has a window of its own.
func several[T byte | int64](j *bench.Job, o operation, syncs []string, sum mpi.Op[T], p pattern[T]) error {
	head, precision := o.figure()
	var cols []harness.Column
	var texts []string
	for _, sync := range syncs {
		c := harness.Column{Head: sync, Precision: precision}
		if len(syncs) == 1 {
			c.Head = head
		}
		cols, texts = append(cols, c), append(texts, osuSync[sync])
	}
	key, keys := "Size", j.Options.Sizes(2)
	if o.shape == fromAll {
		key, keys = "Ranks", []int64{int64(j.Ranks)}
	}
	t := j.Program.Table(j.Output, o.datatype(), key, cols...)
	t.Under("Window creation: %s", osuWindow[j.Options.WinKind])
	t.Under("Synchronization: %s", strings.Join(texts, ", "))
	if len(syncs) > 1 {
		t.Under("Columns: %s", head)
	}
	return t.Run(keys, func(key int64) (values []any, err error) {
		size := key
		if o.shape == fromAll {
			size = wordBytes
		}
		for _, sync := range syncs {
			err := withSide(j, o, sync, sum, p, func(s *side[T], m *bench.Meter) error {
				result, err := m.Measure(s, size)
				if err == nil {
					err = result.Wrong()
				}
				values = append(values, s.value(result.Iteration))
				return err
			})
			if err != nil {
				return nil, err
			}
			j.Options.WarmTime = 0 // the processors and the library have settled
		}
		return values, nil
	})
}

// withSide calls f with a side and its meter, and frees the side.
func withSide[T byte | int64](j *bench.Job, o operation, sync string, sum mpi.Op[T], p pattern[T],
	f func(*side[T], *bench.Meter) error) error {
	s, err := newSide(j, o, sync, sum, p)
	if err != nil {
		return err
	}
	// With -c no rank fills its part of the window while another one still warms up.
	together := o.shape == fromAll || j.Options.Validate
	if err := f(s, bench.NewMeter(j, j.Rank == 0 || o.shape == fromAll, together)); err != nil {
		return err
	}
	return s.free()
}

func (o operation) datatype() string {
	switch {
	case o.call == noCall:
		return ""
	case o.words():
		return "MPI_INT64_T"
	}
	return "MPI_CHAR"
}

// figure is the head of what an operation prints, and how many digits that has.
func (o operation) figure() (head string, precision int) {
	switch {
	case o.shape == latency || o.call == noCall:
		return "Latency (us)", harness.OneSidedPrecision
	case o.shape == fromAll:
		return "Operations/s", 2
	}
	return "Bandwidth (MB/s)", 2
}

// osuSync and osuWindow are what OSU's programs print, or would.
var (
	osuSync = map[string]string{
		"lock": "MPI_Win_lock/unlock", "lock_exclusive": "MPI_Win_lock/unlock (exclusive)", "flush": "MPI_Win_flush",
		"flush_local": "MPI_Win_flush_local", "lock_all": "MPI_Win_lock_all/unlock_all",
		"lock_all_flush": "MPI_Win_flush (lock_all)", "pscw": "MPI_Win_post/start/complete/wait",
		"fence": "MPI_Win_fence",
	}
	osuWindow = map[string]string{
		"allocate": "MPI_Win_allocate", "create": "MPI_Win_create", "shared": "MPI_Win_allocate_shared",
		"dynamic": "MPI_Win_create_dynamic",
	}
)

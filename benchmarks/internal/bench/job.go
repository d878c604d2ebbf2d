package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// Tags of the messages that this package sends. Pairs and windows of other packages use the first two.
const (
	PingTag   = 1
	DataTag   = 100
	answerTag = 101
	figureTag = 102
	paceTag   = 103
)

// Job is one rank's view of a benchmark.
type Job struct {
	World   *mpi.Comm
	Rank    int
	Ranks   int
	Options harness.Options
	Output  harness.Output // of rank 0; the others print nothing
	Program harness.Program

	frees []func() error
}

// Main is the main of a benchmark: it joins the job, reads the options and calls body, if there is something to do.
func Main(p harness.Program, body func(*Job) error) {
	Before(p)
	mpi.Main(func(_ context.Context, world *mpi.Comm) error {
		j := &Job{World: world, Rank: world.Rank(), Ranks: world.Size(), Program: p}
		var ok bool
		var err error
		if j.Options, ok, err = p.Start(os.Args[1:], j.Rank, j.Ranks, os.Stdout); !ok || err != nil {
			return err
		}
		if ok, err := j.canDraw(); !ok || err != nil {
			return err
		}
		defer j.free()
		for _, o := range j.Options.Each() {
			j.Options, j.Output = o, OutputOf(world, o)
			if err := body(j); err != nil {
				return err
			}
		}
		return nil
	})
}

// Before ends the process where there is nothing to do for it: the options are wrong, or ask for help.
func Before(p harness.Program) {
	if code, done := p.Before(os.Args[1:], likelyRank(), os.Stdout, os.Stderr); done {
		os.Exit(code)
	}
}

// MainWithFlags is the main of a program that has options of its own, in package flag: it parses them, joins the job
// and calls body. It ends the process with exit code 2 if an option is wrong, and only the first rank says so.
func MainWithFlags(body func(context.Context, *mpi.Comm) error) {
	if likelyRank() != 0 {
		flag.CommandLine.SetOutput(io.Discard)
	}
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(flag.CommandLine.Output(), "%s: %q is not an option (-h lists the options)\n",
			filepath.Base(os.Args[0]), flag.Arg(0))
		os.Exit(2)
	}
	mpi.Main(body)
}

// likelyRank is the number that a launcher has given this process, before it has joined the job; 0: none.
func likelyRank() int {
	for _, name := range []string{"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"} {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
	}
	return 0
}

// canDraw finds out on rank 0 whether the picture of --plot can be written, before anything is measured, and sends the
// answer to the other ranks: so the job ends with one message.
func (j *Job) canDraw() (ok bool, err error) {
	switch {
	case j.Options.Plot == "":
		return true, nil
	case j.Rank != 0:
		ok, _, err = mpi.RecvValue[bool](j.World, 0, figureTag)
		return ok, err
	}
	wrong := harness.CheckWritable(j.Options.Plot)
	for other := 1; other < j.Ranks; other++ {
		if err := mpi.SendValue(j.World, wrong == nil, other, figureTag); err != nil {
			return false, err
		}
	}
	if wrong != nil {
		return false, j.Refuse(fmt.Errorf("--plot: %w", wrong))
	}
	return true, nil
}

// OutputOf is where a rank prints: rank 0 to standard output, the others nowhere.
func OutputOf(world *mpi.Comm, o harness.Options) harness.Output {
	out := harness.Output{Options: o, Ranks: world.Size(), Transport: world.Transport()}
	if world.Rank() == 0 {
		out.W = os.Stdout
	}
	return out
}

// Refuse is the error of rank 0 when the options do not fit the job; the other ranks end without one.
func (j *Job) Refuse(err error) error {
	if j.Rank != 0 || err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", j.Program.Name, err)
}

const page = 4096

// Memory is n bytes for messages, as Memory has them.
func (j *Job) Memory(n int) ([]byte, error) { return Memory[byte](j, n) }

// Memory is n elements for messages, every page of which has been touched. With --alloc they are the library's own.
// Otherwise they begin a page and share their last one with nothing, so that a core never receives into a cache line
// that another one works on.
func Memory[T byte | int64 | float64](j *Job, n int) ([]T, error) {
	if !j.Options.Alloc {
		b := make([]T, (n+page-1)/page*page)
		clear(b)
		return b[:n:n], nil
	}
	m, err := mpi.Alloc[T](max(1, n))
	if err != nil {
		return nil, err
	}
	j.frees = append(j.frees, m.Free)
	clear(m.Slice())
	return m.Slice()[:n:n], nil
}

// AtEnd has free called when the job's body has returned.
func (j *Job) AtEnd(free func() error) { j.frees = append(j.frees, free) }

func (j *Job) free() {
	for _, free := range j.frees {
		free()
	}
}

package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
)

// process is what Init made; one per process.
var process struct {
	mu        sync.Mutex
	world     *Comm
	member    *join.Member // nil before Init
	finalized bool
}

// Option changes how Init or RunLocal joins.
type Option func(*options)

type options = join.Options

// WithLogger sends the library's log to l instead of standard error; GORUN_LOG still sets the level.
func WithLogger(l hclog.Logger) Option { return func(o *options) { o.Log = l } }

// WithEnviron reads GORUN_* settings from env (as os.Environ gives it) instead of the environment.
func WithEnviron(env []string) Option { return func(o *options) { o.Environ = env } }

func optionsOf(opts []Option) options {
	o := options{NewRequest: newRequest}
	for _, f := range opts {
		f(&o)
	}
	return o
}

// Init joins the job that the launcher describes (gorun, mpiexec.hydra, srun --mpi=pmi2), or makes a world of one rank
// if there is none; MPI 4.1 §11.2. It returns the world. If the environment speaks of a job of several ranks and there
// is no way to join it, that is an error.
func Init(opts ...Option) (*Comm, error) {
	process.mu.Lock()
	defer process.mu.Unlock()
	switch {
	case process.finalized:
		return nil, opError("Init", ErrInit, "called after Finalize; a process can join once")
	case process.world != nil:
		return nil, opError("Init", ErrInit, "called twice; use the communicator that the first call returned")
	}
	m, err := join.Job(optionsOf(opts))
	if err != nil {
		class := ErrUnavailable
		if errors.Is(err, transport.ErrNoMemory) {
			class = ErrNoMemory
		}
		return nil, opError("Init", class, "%w", err)
	}
	process.member, process.world = m, worldOf(m.Engine, m.Rank, m.Size)
	if lost := m.Lost(); lost != nil {
		go watchLauncher(lost, m.Rank)
	}
	return process.world, nil
}

func worldOf(e *pml.Engine, rank, size int) *Comm {
	return &Comm{shared: &shared{name: "world", eng: e, rank: rank, size: size, ids: newContextIDs()}}
}

// watchLauncher ends a rank whose launcher is gone: the launcher cannot do it any more.
func watchLauncher(lost <-chan struct{}, rank int) {
	<-lost
	process.mu.Lock()
	over := process.finalized
	process.mu.Unlock()
	if over {
		return
	}
	fmt.Fprintf(os.Stderr, "mpi: rank %d: the launcher is gone (its control connection has ended); stopping\n", rank)
	os.Exit(1)
}

// Finalize leaves the job; MPI 4.1 §11.2.2. Every rank calls it, after completing its requests: open ones are an
// error, which names their number, and then nothing has been finalized. Memory of Alloc is gone afterwards.
func Finalize() error {
	process.mu.Lock()
	defer process.mu.Unlock()
	switch {
	case process.finalized:
		return opError("Finalize", ErrInit, "called twice")
	case process.world == nil:
		return opError("Finalize", ErrInit, "called before Init")
	}
	if n := process.world.eng.Flush(); n > 0 {
		return opError("Finalize", ErrRequest, "%d operations are under way; complete each request with Wait or Test first", n)
	}
	err := process.member.Leave()
	process.finalized = true
	process.world.freed.Store(true)
	if e2 := process.member.Close(opError("", ErrInit, "called after Finalize")); err == nil {
		err = e2
	}
	if err != nil {
		return opError("Finalize", ErrAborted, "%w", err)
	}
	return nil
}

// Abort ends all ranks of the job at once; gorun's exit code will be code. It does not return; §9.7.
func Abort(code int) {
	process.mu.Lock()
	m := process.member
	process.mu.Unlock()
	if m != nil {
		m.Abort(code, "mpi.Abort")
	}
	os.Exit(code)
}

// Main joins the job, calls body, and leaves the job. If body returns an error or panics, the error is printed with
// the rank in front and the whole job is aborted with exit code 1. body's context ends on SIGINT and SIGTERM. A
// program's main usually is nothing but this call.
func Main(body func(ctx context.Context, world *Comm) error) {
	world, err := Init()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = protect(func() error { return body(ctx, world) })
	stop()
	if err == nil {
		err = Finalize()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", world.rank, err)
		Abort(1)
	}
}

// protect turns a panic into an error with its stack.
func protect(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

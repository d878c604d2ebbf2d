package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/standstill"
	"github.com/gorun-mpi/mpi/internal/waits"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
)

// process is what Init made; one per process.
var process struct {
	mu     sync.Mutex // held by Init and Finalize, which may take as long as other ranks work
	world  *Comm      // guarded by mu; without hooks
	hooks  *hooked    // guarded by mu; nil: the program has no hooks
	report *reporter  // guarded by mu; nil: no report is asked for

	// Read without mu by what must not wait for them.
	member    atomic.Pointer[join.Member] // nil before Init
	parent    atomic.Pointer[Comm]        // of the ranks that have spawned this one; nil: no rank has
	bridges   bridges
	profile   atomic.Pointer[cpuProfile] // nil: none is asked for
	inMain    atomic.Bool                // Main has called Init
	finalized atomic.Bool
	aborting  atomic.Bool // set by Abort, which ends the process: that its connections end first says nothing new

	peerFailed atomic.Bool // a call has ended with ErrPeerFailed: what ends this rank now is a consequence
	telling    sync.Once   // of that, to the launcher
}

// Option is an option of Init or RunLocal.
type Option func(*options)

type options = join.Options

// hooksOf returns what WithHooks was given, or nil.
func hooksOf(o options) *Hooks {
	h, _ := o.Hooks.(*Hooks)
	return h
}

// WithLogger sends the library's log to l instead of standard error. The level of l applies, and GORUN_LOG does not.
func WithLogger(l hclog.Logger) Option { return func(o *options) { o.Log = l } }

// WithEnviron reads GORUN_* settings from env (as os.Environ gives them) instead of the environment.
func WithEnviron(env []string) Option { return func(o *options) { o.Environ = env } }

func optionsOf(opts []Option) options {
	o := options{NewRequest: newRequest}
	for _, f := range opts {
		f(&o)
	}
	return o
}

// Init joins the job that the launcher describes (gorun, mpiexec.hydra, srun; Open MPI's mpirun with the build tag
// pmix) and returns the world; §11.2.1. Without a launcher it makes a world of one rank. It returns ErrUnavailable if
// the environment describes a job of several ranks that it cannot join, or if no transport to the other ranks works;
// ErrNoMemory if the transport's buffers do not fit; ErrInit on a second call.
func Init(opts ...Option) (*Comm, error) {
	process.mu.Lock()
	defer process.mu.Unlock()
	switch {
	case process.finalized.Load():
		return nil, mpierr.New("Init", ErrInit, "called after Finalize; a process can join once")
	case process.world != nil:
		return nil, mpierr.New("Init", ErrInit, "called twice; use the communicator that the first call returned")
	}
	o := optionsOf(opts)
	m, err := join.Job(o)
	if err != nil {
		class := ErrUnavailable
		if errors.Is(err, transport.ErrNoMemory) {
			class = ErrNoMemory
		}
		return nil, mpierr.New("Init", class, "%w", err)
	}
	process.world = worldOf(m.Engine, m.Rank, m.Size, coll.NewSetup(m.Engine, coll.Settings(m.Collectives)))
	process.member.Store(m)
	met, err := meetParents(m, process.world.self)
	if err != nil {
		process.world = nil
		process.member.Store(nil)
		if errors.Is(err, errInVain) {
			m.Resign()
		}
		m.Close(err)
		return nil, mpierr.New("Init", ErrUnavailable, "%w", err)
	}
	number := numberOf(m, met)
	names := process.world.group.Numbers.Describe
	m.Answer(func(level int, dump string) []byte {
		return standstill.Account(process.bridges.accountable(m, names), number, waits.Level(level), dump).Encode()
	})
	if lost := m.Lost(); lost != nil {
		go watchLauncher(lost, number)
	}
	if dir := join.Observers(o).CPUProfile; dir != "" {
		process.profile.Store(startProfile(dir, number))
	}
	world, report := observed(process.world, o)
	process.report, process.hooks = report, world.hook()
	if h := process.hooks; h != nil {
		met = h.stand(met)
	}
	if met != nil && !met.IsInter() { // this rank has the place of one that has died
		return met, nil
	}
	process.parent.Store(met)
	return world, nil
}

func worldOf(e *pml.Engine, rank, size int, setup *coll.Setup) *Comm {
	s := &commState{}
	s.self = &selfComm{of: s}
	s.group.InitWorld(e, rank, size, setup, func(err error) { hear(e, err) })
	w := newComm(s, nil)
	if e != nil {
		w.group.Serve()
		s.publish()
	}
	return w
}

// watchLauncher ends a rank whose launcher is gone: the launcher cannot do it any more.
func watchLauncher(lost <-chan struct{}, rank int) {
	<-lost
	if process.finalized.Load() || process.aborting.Load() {
		return
	}
	fmt.Fprintf(os.Stderr, "mpi: rank %d: the launcher is gone (its control connection has ended); stopping\n", rank)
	process.profile.Load().stop()
	os.Exit(1)
}

// Finalize leaves the job; §11.2.2. Every rank calls it after it has completed its requests. With open requests it
// returns ErrRequest and their number, and does nothing else. Finalize waits for collective calls that continue after
// their context ended, because the other ranks make them too. If other ranks have not made them when all ranks are in
// Finalize, it returns ErrRequest and names the calls; the rank has then left the job. Memory of Alloc is gone
// afterwards. Finalize returns ErrInit before Init and on a second call, and ErrAborted if the launcher or another rank
// has already gone.
func Finalize() error {
	process.mu.Lock()
	defer process.mu.Unlock()
	switch {
	case process.finalized.Load():
		return mpierr.New("Finalize", ErrInit, "called twice")
	case process.world == nil:
		return mpierr.New("Finalize", ErrInit, "called before Init")
	}
	if r := process.report; r != nil {
		r.gather()
	}
	if h := process.hooks; h != nil {
		return h.observe(callOf("Finalize", CallOther), func(*Comm) error { return finalize() })
	}
	return finalize()
}

func finalize() error {
	first := membership{member: process.member.Load(), world: process.world}
	process.bridges.keep(true)
	all := func() []membership { return append([]membership{first}, process.bridges.list()...) }
	// What goes on without a caller in one world may need a rank that is in Finalize, and waits in another one.
	allAtEnd := func() {
		for _, j := range all() {
			j.member.AtEnd()
		}
	}
	open, left := 0, error(nil)
	worlds := all()
	for i := 0; i < len(worlds); i++ {
		j := worlds[i]
		n, err := j.world.group.Process.Finish(j.member.Engine.Flush, func() <-chan struct{} {
			allAtEnd()
			return j.member.AtEnd()
		})
		open += n
		left = cmp.Or(left, err)
		worlds = all() // a Spawn has gone on without its caller
	}
	if open > 0 {
		process.bridges.keep(false)
		return mpierr.New("Finalize", ErrRequest, "operations are under way: %d; "+
			"complete each request with Wait or Test first", open)
	}
	process.finalized.Store(true) // from here on the end of the launcher is for Leave to say
	process.profile.Load().stop()
	for _, j := range worlds {
		j.makeNoCalls()
	}
	err := leaveAll(worlds)
	switch {
	case err != nil:
		return mpierr.New("Finalize", ErrAborted, "%w", err)
	case left != nil:
		return mpierr.New("Finalize", ErrRequest, "%w", left)
	}
	return nil
}

// leaveAll leaves all worlds at the same time: their ranks wait for each other. The caller's goroutine leaves the first
// one, so that a job which stands is known by where it sleeps.
func leaveAll(worlds []membership) (first error) {
	errs := make(chan error, len(worlds))
	for _, j := range worlds[1:] {
		go func() { errs <- j.leave() }()
	}
	first = worlds[0].leave()
	for range worlds[1:] {
		first = cmp.Or(first, <-errs)
	}
	over := mpierr.New("", ErrInit, "called after Finalize")
	for _, j := range worlds {
		j.world.ended.Store(isFreed)
		first = cmp.Or(first, j.member.Close(over))
	}
	return first
}

// Abort ends all ranks of the job at once, also while another goroutine is in Init or Finalize; §11.4.2. gorun exits
// with code. Abort does not return.
func Abort(code int) { abort(code, "") }

// abort gives the launcher a text that says why, if it has one.
func abort(code int, why string) {
	process.aborting.Store(true)
	process.profile.Load().stop() // before the launcher ends this process
	if m := process.member.Load(); m != nil {
		m.Abort(code, why)
	}
	os.Exit(code)
}

// Main calls Init, body and Finalize; a program's main usually consists of this call. If one of them returns an error,
// or body panics, Main aborts the whole job with exit code 1. gorun then prints the error with rank and host as its
// last line; it does not print an error that is a consequence of another rank's end. Without gorun, Main prints the
// error with the rank. body's context ends on SIGINT and SIGTERM; calls of world do not end with it, and calls of
// world.WithContext(ctx) do. Without a launcher, a second signal ends the process at once, and the first one ends a
// process that waits for itself: Main prints in which call.
func Main(body func(ctx context.Context, world *Comm) error) {
	process.inMain.Store(true)
	world, err := Init()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, errInVain) { // which the ranks that called Spawn have heard, and gorun is to go by their ends
			os.Exit(0)
		}
		os.Exit(1)
	}
	ctx, stop := signalContext(process.member.Load(), world.group.Numbers.Describe)
	err = protect(func() error { return body(ctx, world) })
	stop()
	if err == nil {
		err = Finalize()
	}
	if err != nil {
		fail(world.group.Rank, err)
	}
}

// fail ends the job because of an error of Main's body. Under gorun the error is printed once: by gorun, if this rank
// is the cause. Main prints an error that gorun does not get in full, such as the stack of a panic or an error of a
// Finalize that has left the job, unless the error is a consequence of another rank's end. Another launcher prints no
// text of an Abort, and Main prints every error there.
func fail(rank int, err error) {
	m := process.member.Load()
	hear(m.Engine, err)
	text := err.Error()
	first, _, more := strings.Cut(text, "\n")
	max, left := m.AbortText(), process.finalized.Load()
	if max == 0 || (left || more || len(text) > max) && !process.peerFailed.Load() {
		fmt.Fprintf(os.Stderr, "rank %d: %s\n", rank, text)
	}
	abort(1, first)
}

// hear looks at an error that a call on e is about to return. When it is the first that says that another rank has
// failed, gorun is told before the caller can end this rank because of it, be it by os.Exit. A rank that has returned
// is no failure that gorun hears of in another way.
func hear(e *pml.Engine, err error) {
	if !errors.Is(err, ErrPeerFailed) || errors.Is(err, pml.ErrReturned) {
		return
	}
	if m := process.member.Load(); m != nil && ofThisProcess(e) {
		process.telling.Do(func() {
			process.peerFailed.Store(true)
			m.PeerFailed()
		})
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

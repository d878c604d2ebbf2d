package mpi

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/loop"
)

// process is what Init made; one per process.
var process struct {
	mu        sync.Mutex
	world     *Comm
	client    *pmi.Client // nil in a world of one
	device    transport.Device
	finalized bool
}

// Option changes how Init or RunLocal joins.
type Option func(*options)

type options struct {
	environ []string
	log     hclog.Logger
	wrap    func(rank int, d transport.Device) transport.Device
}

// WithLogger sends the library's log to l instead of standard error; GORUN_LOG still sets the level.
func WithLogger(l hclog.Logger) Option { return func(o *options) { o.log = l } }

// WithEnviron reads GORUN_* settings from env (as os.Environ gives it) instead of the environment.
func WithEnviron(env []string) Option { return func(o *options) { o.environ = env } }

// withDevices lets tests put something between the engines and their transport.
func withDevices(wrap func(rank int, d transport.Device) transport.Device) Option {
	return func(o *options) { o.wrap = wrap }
}

// gather applies opts and reads the settings.
func gather(op string, opts []Option) (options, settings.Values, error) {
	var o options
	for _, f := range opts {
		f(&o)
	}
	if o.environ == nil {
		o.environ = os.Environ()
	}
	set, warnings, err := settings.Load(o.environ)
	if err != nil {
		return o, set, opError(op, ErrUnavailable, "%w", err)
	}
	level := hclog.LevelFromString(set.Log)
	if o.log == nil {
		o.log = hclog.New(&hclog.LoggerOptions{Name: "mpi", Level: level, Output: os.Stderr})
	}
	if len(warnings) > 0 && lookup(o.environ, pmi.EnvJob) == "" { // gorun has warned already
		warn := hclog.New(&hclog.LoggerOptions{Name: "mpi", Level: hclog.Warn, Output: os.Stderr, DisableTime: true})
		for _, w := range warnings {
			if firstOfHost(o.environ) {
				warn.Warn(w.String())
			}
		}
	}
	return o, set, nil
}

// firstOfHost: one rank speaks for all.
func firstOfHost(environ []string) bool {
	r := lookup(environ, "GORUN_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK")
	return r == "" || r == "0"
}

func lookup(environ []string, names ...string) string {
	for _, n := range names {
		for _, kv := range environ {
			if len(kv) > len(n) && kv[len(n)] == '=' && kv[:len(n)] == n {
				return kv[len(n)+1:]
			}
		}
	}
	return ""
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
	o, set, err := gather("Init", opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), set.Timeout)
	defer cancel()
	client, err := pmi.Join(ctx)
	if err != nil {
		return nil, opError("Init", ErrUnavailable, "%w", err)
	}
	world, dev, err := join(ctx, client, o, set)
	if err != nil {
		if client != nil {
			client.Close()
		}
		return nil, err
	}
	process.world, process.client, process.device = world, client, dev
	if client != nil {
		go watchLauncher(client, world)
	}
	return world, nil
}

func join(ctx context.Context, client *pmi.Client, o options, set settings.Values) (*Comm, transport.Device, error) {
	if client == nil {
		e := newEngine(pml.Config{Size: 1, Self: loop.New(1)[0], Spin: set.Spin, UnexpectedMax: set.UnexpectedMax}, o)
		return worldOf(e, 0, 1), nil, nil
	}
	rank, size := client.Rank(), client.Size()
	local, known := localRanks(o.environ, size)
	var dev transport.Device
	if size > 1 {
		var err error
		if dev, err = openTransport(place{rank: rank, size: size, local: local, known: known, set: set,
			job: client.Name(), secret: secretOf(client), log: transportLog(o, rank), debug: o.log.With("rank", rank).Debug}); err != nil {
			class := ErrUnavailable
			if isNoRoom(err) {
				class = ErrNoMemory
			}
			return nil, nil, opError("Init", class, "no transport to the other ranks (%d) works: %w", size-1, err)
		}
		if o.wrap != nil {
			dev = o.wrap(rank, dev)
		}
	}
	spin, giveWay := set.Spin, false
	if spin < 0 && local > usableCPUs(o.environ) {
		spin, giveWay = 0, true
	}
	e := newEngine(pml.Config{Rank: rank, Size: size, Net: dev, Self: loop.New(1)[0], Spin: spin, GiveWay: giveWay,
		EagerMax: int(set.EagerMax), UnexpectedMax: set.UnexpectedMax, ConnectTimeout: set.Timeout, Offload: offloadMode(set),
		Lookup: func(_ context.Context, peer int) ([]byte, error) { return client.Get(addressKey(peer)) }}, o)
	err := shareSecret(client, dev)
	if err == nil {
		err = client.Put(addressKey(rank), e.Address())
	}
	if err == nil {
		err = client.Fence(ctx)
	}
	if err != nil {
		e.Close(err)
		return nil, nil, opError("Init", ErrUnavailable, "telling the other ranks our address: %w", err)
	}
	return worldOf(e, rank, size), dev, nil
}

// offloadMode: that GORUN_TM=on is an error where no device can match tags is the transport's to say.
func offloadMode(set settings.Values) pml.OffloadMode {
	if set.TagMatching == "off" {
		return pml.OffloadOff
	}
	return pml.OffloadAuto
}

func addressKey(rank int) string { return "gorun-" + strconv.Itoa(rank) }

// localRanks is how many ranks are on this host, and whether the launcher has said so.
func localRanks(environ []string, size int) (local int, known bool) {
	if n, err := strconv.Atoi(lookup(environ, "GORUN_LOCAL_SIZE", "MPI_LOCALNRANKS")); err == nil && n > 0 {
		return n, true
	}
	return size, false
}

// secretKey is where rank 0 leaves a secret if the launcher has none for the job. Who can read it there could start
// ranks of the job as well.
const secretKey = "gorun-secret"

// shareSecret makes the job's secret if a transport needs one and the launcher gives none.
func shareSecret(client *pmi.Client, dev transport.Device) error {
	if _, guarded := dev.(transport.Guarded); !guarded || client.Secret() != nil || client.Rank() != 0 {
		return nil
	}
	secret := make([]byte, 32)
	rand.Read(secret)
	return client.Put(secretKey, secret)
}

// secretOf is asked when the ranks have met.
func secretOf(client *pmi.Client) func() ([]byte, error) {
	return func() ([]byte, error) {
		if s := client.Secret(); s != nil {
			return s, nil
		}
		return client.Get(secretKey)
	}
}

func transportLog(o options, rank int) func(string, ...any) {
	return o.log.With("rank", rank).Warn
}

// usableCPUs is how many CPUs the ranks of this host may use together.
func usableCPUs(environ []string) int {
	if n, err := strconv.Atoi(lookup(environ, "GORUN_CPUS")); err == nil && n > 0 {
		return n
	}
	return hostCPUs()
}

func newEngine(cfg pml.Config, o options) *pml.Engine {
	if o.log != nil && o.log.IsDebug() {
		cfg.Debug = o.log.With("rank", cfg.Rank).Debug
	}
	cfg.NewRequest = newRequest
	return pml.New(cfg)
}

func worldOf(e *pml.Engine, rank, size int) *Comm {
	return &Comm{shared: &shared{name: "world", eng: e, rank: rank, size: size, ids: newContextIDs()}}
}

// watchLauncher ends the rank when the launcher is gone: nobody else would.
func watchLauncher(client *pmi.Client, world *Comm) {
	<-client.Lost()
	process.mu.Lock()
	over := process.finalized
	process.mu.Unlock()
	if over {
		return
	}
	fmt.Fprintf(os.Stderr, "mpi: rank %d: the launcher is gone (its control connection has ended); stopping\n", world.rank)
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
	e := process.world.eng
	if n := e.Flush(); n > 0 {
		return opError("Finalize", ErrRequest, "%d operations are under way; complete each request with Wait or Test first", n)
	}
	var err error
	if c := process.client; c != nil {
		if err = c.Fence(context.Background()); err == nil {
			err = c.Finalize()
		}
		defer c.Close()
	}
	process.finalized = true
	process.world.freed.Store(true)
	if e2 := e.Close(opError("", ErrInit, "called after Finalize")); err == nil {
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
	c := process.client
	process.mu.Unlock()
	if c != nil {
		c.Abort(code, "mpi.Abort")
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

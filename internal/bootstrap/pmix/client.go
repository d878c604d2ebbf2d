//go:build pmix && linux && cgo

package pmix

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/internal/bootstrap"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// abortLimit is how long Abort waits for a server that does not answer.
const abortLimit = time.Second

// maxValue bounds what is believed of the size of a value.
const maxValue = pmi.MaxPut

// client is a rank's connection to the PMIx server of its host.
type client struct {
	self        proc
	size, local int
	name        string
	left        atomic.Bool // Finalize or Close was called
}

// Join connects to the server that the environment describes.
func Join(ctx context.Context) (bootstrap.Client, error) {
	joined := make(chan *client, 1)
	err := call(ctx, "Init", func() error {
		if err := open(); err != nil {
			return fmt.Errorf("%w: install libpmix2, or start the program by gorun -n N, mpiexec.hydra or "+
				"srun --mpi=pmi2", err)
		}
		self, err := initialize()
		if err != nil {
			return fmt.Errorf("%w: the PMIx server of the launcher does not answer this process; for a world of one: "+
				"env -u %s -u %s PROGRAM", err, EnvRank, EnvNamespace)
		}
		c := &client{self: self, name: self.namespace()}
		if err := c.readSizes(); err != nil {
			return err
		}
		joined <- c
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-joined, nil
}

func (c *client) readSizes() (err error) {
	all := c.self.of(wildcard)
	if c.size, err = number(all, "pmix.job.size"); err != nil {
		return err
	}
	if c.Rank() >= c.size || c.size > math.MaxInt32 {
		return fmt.Errorf("the server says rank %d of %d", c.Rank(), c.size)
	}
	if c.local, err = number(all, "pmix.local.size"); err != nil || c.local > c.size {
		c.local = 0 // it need not be known
	}
	return nil
}

func number(of proc, key string) (int, error) {
	_, n, err := get(of, key)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	return int(n), nil
}

// call runs a call of the library, which cannot be given up: when the context ends, it is left to itself.
func call(ctx context.Context, step string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("wire-up step %s (launcher: PMIx): %w", step, err)
	}
	return nil
}

// during is call for a rank that has not left.
func (c *client) during(ctx context.Context, step string, f func() error) error {
	if c.left.Load() {
		f = func() error { return pmi.ErrFinalized }
	}
	return call(ctx, step, f)
}

// Rank is this process's number in the job.
func (c *client) Rank() int { return c.self.rank() }

// Size is the number of ranks in the job.
func (c *client) Size() int { return c.size }

// Name is the job's name (PMIx's namespace).
func (c *client) Name() string { return c.name }

// Launcher is pmix: which program it is, PMIx does not say.
func (c *client) Launcher() string { return "pmix" }

// LocalSize is the number of ranks on this host; 0: not known.
func (c *client) LocalSize() int { return c.local }

// LauncherPID is not known.
func (c *client) LauncherPID() int { return 0 }

// Secret is nil: PMIx has none for a job.
func (c *client) Secret() []byte { return nil }

// Mapping is left to the ranks, who find it out.
func (c *client) Mapping(context.Context) (string, error) { return "", pmi.ErrNoKey }

// Put stores value under key; other ranks see it after the next Fence.
func (c *client) Put(ctx context.Context, key string, value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("key %s: the value has %d bytes, at most %d are allowed", key, len(value), maxValue)
	}
	return c.during(ctx, "Put", func() error { return put(key, value) })
}

// Get returns what a rank has put under key before the last Fence, or an error that wraps pmi.ErrNoKey.
func (c *client) Get(ctx context.Context, rank int, key string) (value []byte, err error) {
	of := c.self.of(uint32(rank))
	result := make(chan []byte, 1) // not a variable: a call that is given up writes later
	err = c.during(ctx, "Get", func() error {
		b, _, err := get(of, key)
		var s status
		if errors.As(err, &s) && s == notFound {
			err = fmt.Errorf("key %s of rank %d: %w", key, rank, pmi.ErrNoKey)
		}
		result <- b
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-result, nil
}

// Known is nil: each value is asked for.
func (c *client) Known(string) []byte { return nil }

// Fence waits until every rank of the job has called it; all puts made before are visible afterwards.
func (c *client) Fence(ctx context.Context) error { return c.during(ctx, "Fence", fence) }

// FenceAhead is Fence.
func (c *client) FenceAhead(ctx context.Context, _ string) error { return c.Fence(ctx) }

// Lost is nil: the end of the server is not noticed.
func (c *client) Lost() <-chan struct{} { return nil }

// Abort asks the launcher to end the whole job with this exit code. It waits for a second at most.
func (c *client) Abort(code int, message string) error {
	ctx, cancel := context.WithTimeout(context.Background(), abortLimit)
	defer cancel()
	return c.during(ctx, "Abort", func() error { return abort(code, message) })
}

// Finalize leaves the job.
func (c *client) Finalize(ctx context.Context) error {
	if c.left.Swap(true) {
		return fmt.Errorf("wire-up step Finalize (launcher: PMIx): %w", pmi.ErrFinalized)
	}
	return call(ctx, "Finalize", finalize)
}

// Close has the launcher take the end of this process for a failure unless Finalize has been called.
func (c *client) Close() error {
	c.left.Store(true)
	return nil
}

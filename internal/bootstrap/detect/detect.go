package detect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/bootstrap"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// Options of Join.
type Options struct {
	Env         func(name string) string
	PeerTimeout time.Duration // GORUN_PEER_TIMEOUT
	Ports       string        // GORUN_TCP_PORTS
	Debug       func(msg string, args ...any)
	Warn        func(msg string, args ...any)
}

// way is one way into a job.
type way struct {
	name string
	// offered says by which variables the environment offers it, or else why it does not.
	offered func(env func(string) string) (is bool, since string)
	join    func(ctx context.Context, o Options) (bootstrap.Client, error)
}

// Join takes the first way that the environment offers. It returns nil without an error if the environment offers no
// way and no variable hints at other ranks: this process is a world of one.
func Join(ctx context.Context, o Options) (bootstrap.Client, error) {
	var not []string
	for _, w := range ways {
		ok, since := w.offered(o.Env)
		if !ok {
			not = append(not, w.name+" ("+since+")")
			continue
		}
		o.Debug("how this rank finds its job", "way", w.name, "since", since, "not", strings.Join(not, ", "))
		c, err := w.join(ctx, o)
		if errors.Is(err, pmi.ErrNotInherited) {
			return nil, notInherited(err, o.Env)
		}
		if err != nil {
			return nil, fmt.Errorf("joining the job by %s (%s): %w", w.name, since, err)
		}
		o.Debug("this rank has joined", "launcher", c.Launcher(), "rank", c.Rank(), "size", c.Size())
		return c, nil
	}
	if err := worldOfOne(o.Env); err != nil {
		return nil, err
	}
	o.Debug("how this rank finds its job", "way", "none: it is a world of one", "not", strings.Join(not, ", "))
	return nil, nil
}

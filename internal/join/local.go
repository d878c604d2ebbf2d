package join

import (
	"context"
	"runtime"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/waitpolicy"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport/loop"
)

// Local makes the engines of n ranks in this process, which reach each other over loop. They are the caller's to close.
func Local(n int, o Options) ([]*pml.Engine, Collectives, error) {
	c, err := loadOptions(o)
	if err != nil {
		return nil, Collectives{}, err
	}
	policy := waitpolicy.For(c.set.Spin, n, runtime.GOMAXPROCS(0))
	if policy.YieldCPU {
		policy = waitpolicy.Policy{Crowded: true} // all ranks are this process
	}
	engines := make([]*pml.Engine, n)
	for rank, d := range loop.New(n) {
		cfg := pml.Config{Rank: rank, Size: n, Net: d, Wait: policy,
			Lookup: func(_ context.Context, peer int) ([]byte, error) { return engines[peer].Address(), nil }}
		if c.Wrap != nil {
			cfg.Net = c.Wrap(rank, cfg.Net)
		}
		if engines[rank], err = c.newEngine(cfg); err != nil {
			for _, e := range engines[:rank] {
				e.Close(err)
			}
			return nil, Collectives{}, err
		}
	}
	how := c.collectives(true)
	how.Hosts = oneHost(n)
	if o.Host != nil {
		how.Hosts = collectives.HostsOf(n, o.Host)
	}
	return engines, how, nil
}

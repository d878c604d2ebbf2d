package detect

import (
	"context"
	"strconv"

	"github.com/gorun-mpi/mpi/internal/bootstrap"
	"github.com/gorun-mpi/mpi/internal/bootstrap/index"
	"github.com/gorun-mpi/mpi/internal/bootstrap/pmix"
	"github.com/gorun-mpi/mpi/internal/bootstrap/slurm"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// ways is THE list. A launcher that starts the launcher of this process has left its variables too. So the order is
// from what only a launcher of this process can have set to what may be left over, and each way looks for signs that
// it is: a descriptor that is open, a task that is not the one of a daemon.
var ways = []way{
	{"gorun", ownJob, joinPMI},
	{"PMI", overPMIOffered, joinPMI},
	{"Slurm", slurmStep, joinSlurm},
	{"PMIx", pmixServer, joinPMIx},
	{"Job index", jobIndex, joinIndex},
}

// ownJob: whether it is gorun that answers is known when it has.
func ownJob(env func(string) string) (bool, string) {
	if env(pmi.EnvJob) == "" {
		return false, pmi.EnvJob + " is not set"
	}
	ok, since := overPMIOffered(env)
	return ok, pmi.EnvJob + " is set, " + since
}

func overPMIOffered(env func(string) string) (bool, string) {
	variable, live := pmi.Offered(env)
	switch {
	case variable == "":
		return false, "neither " + pmi.EnvFD + " nor " + pmi.EnvPort + " is set"
	case !live && otherWay(env):
		return false, variable + "=" + env(variable) + " is no socket here: it was set for another process"
	}
	return true, variable + " is set"
}

// otherWay reports whether a later way is offered, so that a PMI_FD that leads nowhere is one that was left over.
func otherWay(env func(string) string) bool {
	for _, offered := range []func(func(string) string) (bool, string){slurmStep, pmixServer} {
		if ok, _ := offered(env); ok {
			return true
		}
	}
	return false
}

func joinPMI(ctx context.Context, o Options) (bootstrap.Client, error) {
	c, err := pmi.Join(ctx)
	if err != nil {
		return nil, err
	}
	local := 0
	if c.Launcher() == pmi.Hydra {
		local, _ = strconv.Atoi(o.Env("MPI_LOCALNRANKS"))
	}
	return overPMI{c, max(local, 0)}, nil
}

// overPMI is a pmi.Client: its keys are the job's and not a rank's.
type overPMI struct {
	*pmi.Client
	local int // 0 under gorun: settings have it
}

// Get is the method of Client.
func (c overPMI) Get(ctx context.Context, _ int, key string) ([]byte, error) {
	return c.Client.Get(ctx, key)
}

// LocalSize is the method of Client.
func (c overPMI) LocalSize() int { return c.local }

// slurmStep: a task of srun that a launcher of PMIx has started is one of its daemons, or srun itself offers PMIx.
func slurmStep(env func(string) string) (bool, string) {
	ok, since := slurm.Offered(env)
	if ok && env(pmix.EnvRank) != "" && (pmix.Built || !slurm.OffersPMIx(env)) {
		return false, pmix.EnvRank + " is set: the launcher speaks PMIx"
	}
	return ok, since
}

func joinSlurm(ctx context.Context, o Options) (bootstrap.Client, error) {
	s, err := slurm.Read(o.Env)
	if err != nil {
		return nil, err
	}
	c, err := s.Join(ctx, slurm.Options{Env: o.Env, PeerTimeout: o.PeerTimeout, Ports: o.Ports, Warn: o.Warn})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func pmixServer(env func(string) string) (bool, string) {
	switch {
	case env(pmix.EnvRank) == "" || env(pmix.EnvNamespace) == "":
		return false, pmix.EnvRank + " and " + pmix.EnvNamespace + " are not both set"
	case !pmix.Built:
		return false, pmix.EnvRank + " is set, but this program was built without the tag pmix"
	}
	return true, pmix.EnvRank + " and " + pmix.EnvNamespace + " are set"
}

func joinPMIx(ctx context.Context, _ Options) (bootstrap.Client, error) {
	return pmix.Join(ctx)
}

func jobIndex(env func(string) string) (bool, string) { return index.Offered(env) }

func joinIndex(ctx context.Context, o Options) (bootstrap.Client, error) {
	c, err := index.Join(ctx, index.Options{Env: o.Env, PeerTimeout: o.PeerTimeout, Warn: o.Warn})
	if err != nil {
		return nil, err
	}
	return c, nil
}

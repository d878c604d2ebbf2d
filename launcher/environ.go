package launcher

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/mpi/internal/pmi"
)

// outerJob are the beginnings of the variables in which the launcher of an outer job describes a rank. A rank of ours
// that believed them would join the wrong job.
var outerJob = []string{
	"PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_", "HYDI_", "HYDRA_CONTROL", "MPI_LOCALRANKID=", "MPI_LOCALNRANKS=",
	pmi.EnvJob + "=", pmi.EnvLocalRank + "=", pmi.EnvLocalSize + "=", pmi.EnvCPUs + "=",
	pmi.EnvKey + "=",
}

// controlFD is the descriptor of the control socket in a rank.
const controlFD = 3

// rankEnv is the environment of one rank but for GORUN_JOB, which is known at the start only. share is its GOMAXPROCS,
// or 0 to leave that to the Go runtime.
func rankEnv(inherited, app []string, rank, size, usable, share int) []string {
	own := []string{
		pmi.EnvFD + "=" + strconv.Itoa(controlFD),
		pmi.EnvRank + "=" + strconv.Itoa(rank),
		pmi.EnvSize + "=" + strconv.Itoa(size),
		pmi.EnvLocalRank + "=" + strconv.Itoa(rank),
		pmi.EnvLocalSize + "=" + strconv.Itoa(size),
		pmi.EnvCPUs + "=" + strconv.Itoa(usable),
		"MPI_LOCALRANKID=" + strconv.Itoa(rank),
		"MPI_LOCALNRANKS=" + strconv.Itoa(size),
	}
	if share > 0 && !isSet(inherited, "GOMAXPROCS") {
		own = append(own, "GOMAXPROCS="+strconv.Itoa(share))
	}
	env := make([]string, 0, len(inherited)+len(app)+len(own)+1)
	for _, kv := range inherited {
		if !ofOuterJob(kv) && !overridden(app, kv) {
			env = append(env, kv)
		}
	}
	for _, kv := range own {
		if !overridden(app, kv) {
			env = append(env, kv)
		}
	}
	return append(env, app...)
}

func ofOuterJob(kv string) bool {
	return slices.ContainsFunc(outerJob, func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
}

func overridden(app []string, kv string) bool {
	name, _, _ := strings.Cut(kv, "=")
	return isSet(app, name)
}

func isSet(env []string, name string) bool {
	return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
}

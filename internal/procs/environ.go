package procs

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
	pmi.EnvKey + "=", EnvEdge + "=",
}

// Position is the place of a rank in its job and among the ranks of its host.
type Position struct{ Rank, Size, LocalRank, LocalSize int }

// RankEnv returns the environment of one rank but for GORUN_JOB, which is known at the start only. share is its
// GOMAXPROCS,
// or 0 to leave that to the Go runtime.
func RankEnv(inherited, app []string, at Position, usable, share int) []string {
	own := []string{
		pmi.EnvFD + "=" + strconv.Itoa(ControlFD()),
		pmi.EnvRank + "=" + strconv.Itoa(at.Rank),
		pmi.EnvSize + "=" + strconv.Itoa(at.Size),
		pmi.EnvLocalRank + "=" + strconv.Itoa(at.LocalRank),
		pmi.EnvLocalSize + "=" + strconv.Itoa(at.LocalSize),
		pmi.EnvCPUs + "=" + strconv.Itoa(usable),
		"MPI_LOCALRANKID=" + strconv.Itoa(at.LocalRank),
		"MPI_LOCALNRANKS=" + strconv.Itoa(at.LocalSize),
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

// ofAHost are the beginnings of the variables that say something about a host, or about a session on it. A rank has
// those of its own host.
var ofAHost = []string{
	"HOSTNAME=", "HOST=", "TMPDIR=", "XDG_RUNTIME_DIR=", "XDG_SESSION_", "SSH_", "DISPLAY=", "WAYLAND_DISPLAY=",
	"XAUTHORITY=", "DBUS_SESSION_BUS_ADDRESS=", "SLURM_", "SLURMD_", "JOB_COMPLETION_INDEX=", "K_MPI_JOB_ROLE=",
}

func isOfAHost(kv string) bool {
	return slices.ContainsFunc(ofAHost, func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
}

// EnvironOn returns the environment that ranks on another host inherit: gorun's, but for what belongs to the host. What
// Slurm says of an allocation is the same on all of its hosts.
func EnvironOn(gorun, host []string) []string {
	const job = "SLURM_JOB_ID="
	of := func(env []string) string {
		if i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, job) }); i >= 0 {
			return env[i]
		}
		return ""
	}
	allocation := of(host) != "" && of(host) == of(gorun)
	var env []string
	for _, kv := range gorun {
		name, _, _ := strings.Cut(kv, "=")
		if !isOfAHost(kv) || allocation && strings.HasPrefix(kv, "SLURM_") && !isSet(host, name) {
			env = append(env, kv)
		}
	}
	for _, kv := range host {
		if isOfAHost(kv) {
			env = append(env, kv)
		}
	}
	return env
}

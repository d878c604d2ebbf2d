package detect

import (
	"fmt"
	"strconv"

	"github.com/gorun-mpi/mpi/internal/bootstrap/index"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// hint is a variable that says something about the size of a job.
type hint struct {
	name string
	by   string // the launcher that sets it
	do   string // what starts the program properly there
}

const (
	doGorun = "start it by gorun -n N, or by mpiexec.hydra"
	doSlurm = "start it by srun --mpi=pmi2, or by gorun -n N inside the allocation"
	doPMIx  = "this launcher speaks only PMIx, which this program was built without: build it with -tags pmix " +
		"(that takes gcc, and libpmix.so.2 when it runs), or start it by gorun -n N, mpiexec.hydra or srun --mpi=pmi2"
	doIndex = "give each pod GORUN_RANK0 (host:port of index 0), GORUN_SIZE and GORUN_KEY_FILE"
)

// sizeHints hold a number of ranks, partHints mean by their mere presence that a launcher started this process.
var (
	sizeHints = []hint{
		{pmi.EnvSize, "a PMI launcher", doGorun},
		{pmi.EnvLocalSize, "gorun", doGorun},
		{"OMPI_COMM_WORLD_SIZE", "Open MPI", doPMIx},
		{"SLURM_NTASKS", "Slurm", doSlurm},
		{"SLURM_NPROCS", "Slurm", doSlurm},
	}
	partHints = []hint{
		{pmi.EnvJob, "gorun", doGorun},
		{"PMIX_RANK", "a PMIx launcher", doPMIx},
		{"PMIX_NAMESPACE", "a PMIx launcher", doPMIx},
		{"PRTE_LAUNCHED", "PRRTE", doPMIx},
		{index.EnvIndex, "an Indexed Job of Kubernetes", doIndex},
	}
)

// objections returns the variables that contradict that this process is alone, and what the first of them says.
func objections(env func(string) string) (found []hint, why string) {
	one := false
	object := func(h hint, says string) {
		if found = append(found, h); why == "" {
			why = fmt.Sprintf("%s=%.60s (set by %s) %s", h.name, env(h.name), h.by, says)
		}
	}
	for _, h := range sizeHints {
		v := env(h.name)
		if v == "" {
			continue
		}
		n, err := strconv.Atoi(v)
		switch {
		case err != nil:
			object(h, "is no number, so the size of the job is unknown")
		case n > 1:
			object(h, fmt.Sprintf("says that the job has %d ranks", n))
		}
		one = one || err == nil && n == 1
	}
	if !one || env(pmi.EnvJob) != "" { // else its launcher says that it is alone
		for _, h := range partHints {
			if env(h.name) != "" {
				object(h, "says that this process is part of a job")
			}
		}
	}
	return found, why
}

// worldOfOne returns nil when nothing contradicts that this process is alone. The error is about the first variable
// that does, and says of all of them that they must be unset for a world of one.
func worldOfOne(env func(string) string) error {
	found, why := objections(env)
	if found == nil {
		return nil
	}
	return fmt.Errorf("%s, but nothing in the environment leads to the launcher: %s; for a world of one: %s PROGRAM",
		why, found[0].do, without(nil, found))
}

// notInherited is the error of a process that a rank has started. It says of all variables that lead to the job that
// they must be unset for a world of one.
func notInherited(err error, env func(string) string) error {
	found, _ := objections(env)
	return fmt.Errorf("%w; only the rank itself can join its job; for a world of one: %s PROGRAM",
		err, without([]string{pmi.EnvFD, pmi.EnvRank}, found))
}

// without is the command that runs a program without these variables.
func without(names []string, found []hint) string {
	command := "env"
	for _, name := range names {
		command += " -u " + name
	}
	for _, h := range found {
		command += " -u " + h.name
	}
	return command
}

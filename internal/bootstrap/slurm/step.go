package slurm

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/gorun-mpi/mpi/internal/place"
)

// Step is a rank's place in a step of srun.
type Step struct {
	ID         string // job.step
	Rank, Size int
	Local      int    // ranks on this node; 0: not known
	First      string // the node of rank 0
}

// The variables that make a process a task of srun. A batch script has a rank too, and no number of a step.
const (
	envJob  = "SLURM_JOB_ID"
	envStep = "SLURM_STEP_ID"
	envRank = "SLURM_PROCID"
	envSize = "SLURM_STEP_NUM_TASKS"
)

// Offered reports whether this process is one of several tasks of srun.
func Offered(env func(string) string) (ok bool, since string) {
	for _, name := range []string{envJob, envStep, envRank, envSize} {
		if env(name) == "" {
			return false, name + " is not set"
		}
	}
	if _, err := strconv.Atoi(env(envStep)); err != nil {
		return false, envStep + "=" + env(envStep) + " is no step of srun"
	}
	if env(envSize) == "1" {
		return false, envSize + "=1: the step has one task"
	}
	return true, envRank + "=" + env(envRank) + " of " + envSize + "=" + env(envSize)
}

// OffersPMIx reports whether srun itself speaks PMIx to this task.
func OffersPMIx(env func(string) string) bool {
	return strings.HasPrefix(env("PMIX_NAMESPACE"), "slurm.")
}

// Read reads the place of this process.
func Read(env func(string) string) (s Step, err error) {
	job, err1 := number(env, envJob, 0, 1<<32-1)
	step, err2 := number(env, envStep, 0, 1<<32-1)
	size, err3 := number(env, envSize, 1, place.MaxRanks)
	rank, err4 := number(env, envRank, 0, max(size-1, 0))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return s, err
	}
	s = Step{ID: fmt.Sprintf("%d.%d", job, step), Rank: rank, Size: size}
	const list = "SLURM_STEP_NODELIST"
	nodes, err := place.Nodelist(list, env(list))
	if err != nil {
		return s, err
	}
	if len(nodes) == 0 {
		return s, fmt.Errorf("%s is not set: it says on which node rank 0 is", list)
	}
	s.First = nodes[0]
	return s, s.readTasks(env, len(nodes))
}

// readTasks finds out how many ranks this node has. Which ones they are depends on the distribution, so that the ranks
// find it out by themselves.
func (s *Step) readTasks(env func(string) string, nodes int) error {
	const list = "SLURM_STEP_TASKS_PER_NODE"
	tasks, err := place.TasksPerNode(list, env(list))
	if err != nil {
		return err
	}
	node, err := number(env, "SLURM_NODEID", 0, nodes-1)
	if err == nil && len(tasks) == nodes && tasks[node] <= s.Size {
		s.Local = tasks[node]
	}
	return nil
}

// number reads a variable that must hold a decimal number from lo to hi.
func number(env func(string) string, name string, lo, hi int) (int, error) {
	n, err := strconv.Atoi(env(name))
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%s=%.40q is no number from %d to %d", name, env(name), lo, hi)
	}
	return n, nil
}

// portCount is how many ports rank 0 may choose from.
const portCount = 16

// ports are those that rank 0 tries, in this order: of the range lo to hi, or else below those that kernels choose for
// connections. Steps that run at the same time begin at different ones.
func (s *Step) ports(lo, hi int) []int {
	if lo == 0 {
		lo, hi = 23000, 32767
	}
	h := fnv.New32a()
	h.Write([]byte(s.ID))
	n := hi - lo + 1
	at := int(h.Sum32() % uint32(n))
	var all []int
	for i := range min(portCount, n) {
		all = append(all, lo+(at+i)%n)
	}
	return all
}

package detect

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/bootstrap/pmix"
)

func options(env map[string]string) Options {
	return Options{Env: func(name string) string { return env[name] }, Debug: func(string, ...any) {},
		Warn: func(string, ...any) {}}
}

// step is a task of srun.
var step = map[string]string{"SLURM_JOB_ID": "4", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1",
	"SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"}

// with is an environment and more variables.
func with(env map[string]string, more ...string) map[string]string {
	all := map[string]string{}
	for k, v := range env {
		all[k] = v
	}
	for _, kv := range more {
		k, v, _ := strings.Cut(kv, "=")
		all[k] = v
	}
	return all
}

// The first way that the environment offers is taken; what launchers further out have left is passed over.
func TestOrder(t *testing.T) {
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(socket)
	file, err := os.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	live := fmt.Sprintf("PMI_FD=%d", socket)
	stale := fmt.Sprintf("PMI_FD=%d", file.Fd())
	pmixOr := func(other string) string {
		if pmix.Built {
			return "PMIx"
		}
		return other
	}
	mpirun := []string{"PMIX_RANK=0", "PMIX_NAMESPACE=1234"}
	for _, c := range []struct {
		what string
		env  map[string]string
		want string // "": none
	}{
		{"nothing", nil, ""},
		{"gorun", with(nil, live, "GORUN_JOB=j"), "gorun"},
		{"hydra, or srun --mpi=pmi2", with(step, live), "PMI"},
		{"hydra by its port", with(nil, "PMI_PORT=h:1"), "PMI"},
		{"a descriptor that is no socket, and nothing else", with(nil, stale), "PMI"},
		{"gorun inside srun", with(step, live, "GORUN_JOB=j"), "gorun"},
		{"gorun inside a pod", with(nil, live, "GORUN_JOB=j", "JOB_COMPLETION_INDEX=1", "GORUN_RANK0=h:1"), "gorun"},
		{"srun --mpi=none", step, "Slurm"},
		{"srun --mpi=none inside gorun", with(step, stale, "GORUN_JOB=j"), "Slurm"},
		{"a batch script", with(step, "SLURM_STEP_ID=batch"), ""},
		{"a shell of salloc", with(nil, "SLURM_JOB_ID=4", "SLURM_NTASKS=2"), ""},
		{"a task alone", with(step, "SLURM_STEP_NUM_TASKS=1"), ""},
		{"srun --mpi=pmix", with(step, "PMIX_RANK=1", "PMIX_NAMESPACE=slurm.pmix.4.0"), pmixOr("Slurm")},
		{"mpirun", with(nil, mpirun...), pmixOr("")},
		{"mpirun inside gorun", with(nil, append(mpirun, stale, "GORUN_JOB=j")...), pmixOr("PMI?")},
		{"mpirun inside Slurm: its daemon was the task", with(step, mpirun...), pmixOr("")},
		{"a pod", with(nil, "JOB_COMPLETION_INDEX=1", "GORUN_RANK0=h:1"), "Job index"},
		{"a pod of another Job", with(nil, "JOB_COMPLETION_INDEX=1"), ""},
	} {
		taken := ""
		for _, w := range ways {
			ok, since := w.offered(options(c.env).Env)
			if since == "" {
				t.Errorf("%s: %s says no reason", c.what, w.name)
			}
			if ok {
				taken = w.name
				break
			}
		}
		if c.want == "PMI?" { // without the tag the descriptor is the only hint, and its error is the one to show
			c.want = "gorun"
		}
		if taken != c.want {
			t.Errorf("%s: taken is %q, want %q", c.what, taken, c.want)
		}
	}
}

// The log says which way was taken, since what, and why not the others.
func TestDebug(t *testing.T) {
	var said []string
	o := options(with(nil, "JOB_COMPLETION_INDEX=1", "GORUN_RANK0=h:1"))
	o.Debug = func(msg string, args ...any) { said = append(said, fmt.Sprint(append([]any{msg}, args...)...)) }
	if c, err := Join(t.Context(), o); c != nil || err == nil || !strings.Contains(err.Error(), "GORUN_SIZE") {
		t.Errorf("%v %v, want an error about GORUN_SIZE", c, err)
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{"Job index", "JOB_COMPLETION_INDEX", "PMI_FD", "SLURM_JOB_ID is not", "PMIX_RANK"} {
		if len(said) != 1 || !strings.Contains(all, want) {
			t.Errorf("%q, want one line with %q", said, want)
		}
	}
}

// What contradicts a world of one is an error that names the variable and what to do.
func TestWorldOfOne(t *testing.T) {
	for _, env := range []map[string]string{
		{}, {"HOME": "/"}, {"SLURM_NTASKS": "1", "SLURM_JOB_ID": "3"},
		{"OMPI_COMM_WORLD_SIZE": "1", "PMIX_RANK": "0"},
	} {
		if c, err := Join(t.Context(), options(env)); c != nil || err != nil {
			t.Errorf("%v: %v %v", env, c, err)
		}
	}
	for _, c := range []struct {
		env  map[string]string
		want string // variable, and a word of advice
		do   string
	}{
		{map[string]string{"PMI_SIZE": "4", "PMI_RANK": "0"}, "PMI_SIZE=4", "gorun -n"},
		{map[string]string{"SLURM_NTASKS": "6"}, "SLURM_NTASKS=6", "srun --mpi=pmi2"},
		{map[string]string{"SLURM_NPROCS": "6"}, "SLURM_NPROCS=6", "srun --mpi=pmi2"},
		{map[string]string{"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE=2", "PMIx"},
		{map[string]string{"OMPI_COMM_WORLD_SIZE": "many"}, "OMPI_COMM_WORLD_SIZE", "number"},
		{map[string]string{"PMIX_RANK": "0"}, "PMIX_RANK=0", "PMIx"},
		{map[string]string{"JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETION_INDEX=0", "GORUN_RANK0"},
		{map[string]string{"PMIX_NAMESPACE": "n"}, "PMIX_NAMESPACE", "PMIx"},
		{map[string]string{"PRTE_LAUNCHED": "1"}, "PRTE_LAUNCHED", "PMIx"},
		{map[string]string{"GORUN_JOB": "gorun_1"}, "GORUN_JOB", "gorun -n"},
		{map[string]string{"GORUN_LOCAL_SIZE": "8"}, "GORUN_LOCAL_SIZE=8", "gorun -n"},
		// What must be set, and what must be unset, is named all at once.
		{map[string]string{"SLURM_NTASKS": "6", "SLURM_NPROCS": "6", "PMIX_RANK": "0"}, "SLURM_NTASKS=6",
			"env -u SLURM_NTASKS -u SLURM_NPROCS -u PMIX_RANK PROGRAM"},
		{map[string]string{"SLURM_NTASKS": "1", "SLURM_NPROCS": "six", "PMIX_RANK": "0"}, "SLURM_NPROCS=six",
			"env -u SLURM_NPROCS PROGRAM"},
	} {
		client, err := Join(t.Context(), options(c.env))
		if client != nil || err == nil {
			t.Errorf("%v: silently a world of one", c.env)
		} else if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.do) {
			t.Errorf("%v: the error names not both %q and %q: %v", c.env, c.want, c.do, err)
		}
	}
}

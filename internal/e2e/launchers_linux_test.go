package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// exchanges expects that so many ranks have exchanged messages of all sizes.
func (j *job) exchanges(n int) *job {
	j.t.Helper()
	if got := j.count(fmt.Sprintf(`^rank \d of %d exchanged`, n)); got != n {
		j.t.Errorf("%d of %d ranks report\n%s", got, n, j.out.String())
	}
	return j
}

// What gorun says of the ranks of a host is not believed under the launcher that it starts.
func TestHydraInsideGorun(t *testing.T) {
	t.Parallel()
	hydra := proc.RequireProgram(t, "mpiexec.hydra", "mpich")
	self := program(t, "")
	j := run(t, spec{n: 1, role: "exchange", prog: hydra, args: []string{"-n", "3", self},
		env: []string{"GORUN_LOG=debug"}}, 0).exchanges(3)
	for pattern, want := range map[string]int{`this rank has joined: launcher=hydra`: 3, `ranks here=3`: 3,
		`peer connected:.*transport=tcp`: 0} {
		if got := j.count(pattern); got != want {
			t.Errorf("%q is said %d times, want %d", pattern, got, want)
		}
	}
}

// withPMIx is the test binary, built with the tag pmix.
func withPMIx(t *testing.T) string {
	proc.RequireProgram(t, "gcc", "gcc")
	path := filepath.Join(t.TempDir(), "withpmix")
	cmd := exec.Command("go", "test", "-c", "-tags", "pmix", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// Started by mpirun of Open MPI, which speaks PMIx, alone and inside of gorun.
func TestUnderOpenMPI(t *testing.T) {
	t.Parallel()
	mpirun := proc.RequireProgram(t, "mpirun.openmpi", "openmpi-bin")
	prog := withPMIx(t)
	under := func(n string) []string {
		return []string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", n, prog}
	}
	j := run(t, spec{bare: true, prog: mpirun, args: under("3"), role: "exchange", env: []string{"GORUN_LOG=debug"}}, 0)
	j.exchanges(3).says(`this rank has joined: launcher=pmix`, `ranks here=3`)
	if testing.Short() {
		return
	}
	run(t, spec{n: 1, prog: mpirun, args: under("3"), role: "exchange"}, 0).exchanges(3)
	run(t, spec{bare: true, prog: mpirun, args: under("1"), role: "join"}, 0).says(`^rank 0 of 1$`)
	run(t, spec{bare: true, prog: mpirun, args: under("3"), role: "abort, others away"}, 7)
	// The other ranks are ended when one fails.
	run(t, spec{bare: true, prog: mpirun, args: under("3"), role: "error"}, 1)
}

// A program without the tag says what to do.
func TestUnderOpenMPIWithoutTag(t *testing.T) {
	t.Parallel()
	mpirun := proc.RequireProgram(t, "mpirun.openmpi", "openmpi-bin")
	run(t, spec{bare: true, prog: mpirun, role: "join",
		args: []string{"--allow-run-as-root", "--oversubscribe", "-np", "2", program(t, "")}}, 3).
		says(`^unavailable true: mpi: Init: OMPI_COMM_WORLD_SIZE=2 .*-tags pmix`)
}

package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gorun-mpi/mpi/internal/cpuset"
)

// remoteShell stands in for ssh: options, host, and words that a shell there puts together.
const remoteShell = `#!/bin/sh
while :; do
	case $1 in
	-*) shift ;;
	*) break ;;
	esac
done
host=$1
shift
exec %q exec -b %q "$host" sh -c "$*"
`

// pinned runs a program on the cores of its rank: the n-th of the words in $0.
const pinned = `n=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; set -f; i=0
for c in $0; do [ $i = "$n" ] && break; i=$((i+1)); done
exec taskset -c "$c" "$@"`

// Mpirun is a C program under another MPI, "openmpi" or "mpich", ppn ranks on each host, TCP only between them. Each
// rank is bound like a rank of a pinned Job. Its mpirun runs at the switch.
func (h *Hosts) Mpirun(mpi string, ppn int, prog ...string) (*exec.Cmd, error) {
	shell := filepath.Join(h.base, "log", "rsh")
	if err := os.WriteFile(shell, fmt.Appendf(nil, remoteShell, h.script, h.base), 0o755); err != nil {
		return nil, err
	}
	ranks, slots := h.n*ppn, ":"+strconv.Itoa(ppn)
	var names, bound []string
	for i := range h.n {
		names = append(names, name(i+1))
	}
	for i := range ranks {
		bound = append(bound, cores(i, ranks, i/ppn, h.n))
	}
	prog = append([]string{"sh", "-c", pinned, strings.Join(bound, " ")}, prog...)
	switch mpi {
	case "openmpi":
		args := []string{"--allow-run-as-root", "-np", strconv.Itoa(ranks),
			"-H", strings.Join(names, slots+",") + slots, "--bind-to", "none",
			// Of its windows only pt2pt goes over tcp, and 4.1.4 prefers ucx, which then makes none.
			"--mca", "plm_rsh_agent", shell, "--mca", "pml", "ob1", "--mca", "osc", "^ucx", "--mca", "btl"}
		if ppn == 1 {
			args = append(args, "tcp,self")
		} else {
			args = append(args, "tcp,self,vader")
		}
		if ranks > len(cpuset.Read().CPUs) { // it counts the ranks of each host alone
			args = append(args, "--mca", "mpi_yield_when_idle", "1")
		}
		return h.Command(Switch, "mpirun.openmpi", append(args, prog...)...), nil
	case "mpich":
		args := []string{"-n", strconv.Itoa(ranks), "-ppn", strconv.Itoa(ppn), "-hosts", strings.Join(names, ","),
			"-launcher", "ssh", "-launcher-exec", shell, "-localhost", "switch", "-iface", "br0"}
		cmd := h.Command(Switch, "mpiexec.hydra", append(args, prog...)...)
		cmd.Env = append(os.Environ(), "UCX_TLS=tcp,self")
		return cmd, nil
	}
	return nil, fmt.Errorf("no MPI is called %q here: openmpi, mpich", mpi)
}

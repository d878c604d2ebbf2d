package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// pinned runs a program on the core of its rank: the n-th of the words in $0.
const pinned = `n=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; set -f; i=0
for c in $0; do [ $i = "$n" ] && break; i=$((i+1)); done
exec taskset -c "$c" "$@"`

// Mpirun is a C program under another MPI, "openmpi" or "mpich", one rank on each host, TCP only, each rank bound to a
// core of its own as far as there are enough. Its mpirun runs at the switch.
func (h *Hosts) Mpirun(mpi string, prog ...string) (*exec.Cmd, error) {
	shell := filepath.Join(h.base, "log", "rsh")
	if err := os.WriteFile(shell, fmt.Appendf(nil, remoteShell, h.script, h.base), 0o755); err != nil {
		return nil, err
	}
	var names, cores []string
	for i := range h.n {
		names, cores = append(names, name(i+1)), append(cores, Core(i))
	}
	prog = append([]string{"sh", "-c", pinned, strings.Join(cores, " ")}, prog...)
	n := fmt.Sprint(h.n)
	switch mpi {
	case "openmpi":
		args := []string{"--allow-run-as-root", "-np", n, "-H", strings.Join(names, ":1,") + ":1", "--bind-to", "none",
			"--mca", "plm_rsh_agent", shell, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self"}
		return h.Command(Switch, "mpirun.openmpi", append(args, prog...)...), nil
	case "mpich":
		args := []string{"-n", n, "-ppn", "1", "-hosts", strings.Join(names, ","), "-launcher", "ssh",
			"-launcher-exec", shell, "-localhost", "switch", "-iface", "br0"}
		cmd := h.Command(Switch, "mpiexec.hydra", append(args, prog...)...)
		cmd.Env = append(os.Environ(), "UCX_TLS=tcp,self")
		return cmd, nil
	}
	return nil, fmt.Errorf("no MPI is called %q here: openmpi, mpich", mpi)
}

package main

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/launcher"
)

// Kubeflow's mpi-operator tells the launcher's pod by these that it is one, and names a file with the hosts. The file
// has the form of the MPI library that the MPIJob names, and its variable.
const (
	envRole       = "K_MPI_JOB_ROLE"
	envShell      = "OMPI_MCA_plm_rsh_agent" // of version 1 of the operator, which has no role
	operatorShell = "/etc/mpi/kubexec.sh"    // runs kubectl without -i, so it gives no stream
	operatorFile  = "/etc/mpi/hostfile"
)

var operatorFiles = []string{"HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE", "OMPI_MCA_orte_default_hostfile"}

// operatorKubectl is what kubexec.sh runs, and with standard input.
var operatorKubectl = []string{"/opt/kube/kubectl", "exec", "-i"}

// operatorPatience is how long the workers' pods may take: their images are fetched meanwhile.
const operatorPatience = 10 * time.Minute

// operatorHosts are the workers, if this is the launcher's pod of mpi-operator; nil: it is not, or it is a rank there.
func operatorHosts(env func(string) string) ([]place.Host, launcher.Agents, error) {
	a := launcher.Agents{Patience: operatorPatience}
	byKubectl := env(envShell) == operatorShell
	if env(envRole) != "launcher" && !byKubectl || env("GORUN_JOB") != "" {
		return nil, launcher.Agents{}, nil
	}
	if byKubectl && env(envRole) == "" {
		a.Shell = operatorKubectl
	}
	file := operatorFile
	for _, name := range operatorFiles {
		if file = env(name); file != "" {
			break
		}
	}
	file = cmp.Or(file, operatorFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, a, fmt.Errorf("this is the launcher's pod of mpi-operator, and its workers cannot be read: %w; "+
			"say -H localhost if all ranks are meant to be here", err)
	}
	hosts, err := place.Hostfile(file, string(text))
	return hosts, a, err
}

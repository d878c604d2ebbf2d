package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/place"
)

// The launcher's pod of mpi-operator finds its workers, whichever MPI the MPIJob names.
func TestOperator(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	two := []place.Host{{Name: "j-worker-0.j.ns.svc", Slots: 2}, {Name: "j-worker-1.j.ns.svc", Slots: 2}}
	openMPI := file("ompi", "j-worker-0.j.ns.svc slots=2\nj-worker-1.j.ns.svc slots=2\n")
	hydra := file("hydra", "j-worker-0.j.ns.svc:2\nj-worker-1.j.ns.svc:2\n")
	const role = envRole + "=launcher"
	for _, c := range []struct {
		env   []string
		hosts []place.Host
		shell []string
		wrong string
	}{
		{[]string{role, "HYDRA_HOST_FILE=" + hydra}, two, nil, ""},
		{[]string{role, "I_MPI_HYDRA_HOST_FILE=" + hydra}, two, nil, ""},
		{[]string{role, "OMPI_MCA_orte_default_hostfile=" + openMPI}, two, nil, ""},
		{[]string{envShell + "=" + operatorShell, "OMPI_MCA_orte_default_hostfile=" + openMPI}, two, operatorKubectl,
			""},
		{[]string{envRole + "=worker", "HYDRA_HOST_FILE=" + hydra}, nil, nil, ""},
		{[]string{"HYDRA_HOST_FILE=" + hydra}, nil, nil, ""},
		{[]string{role, "HYDRA_HOST_FILE=" + hydra, "GORUN_JOB=outer"}, nil, nil, ""}, // a rank that starts a job
		{[]string{role}, nil, nil, "open /etc/mpi/hostfile: "},
		{[]string{role, "HYDRA_HOST_FILE=" + file("empty", "\n")}, nil, nil, "no host is named"},
	} {
		env := map[string]string{}
		for _, kv := range c.env {
			name, value, _ := strings.Cut(kv, "=")
			env[name] = value
		}
		hosts, agents, err := operatorHosts(func(name string) string { return env[name] })
		if !reflect.DeepEqual(hosts, c.hosts) || !reflect.DeepEqual(agents.Shell, c.shell) ||
			(err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q: %v by %v (%v)", c.env, hosts, agents.Shell, err)
		}
		if c.hosts != nil && agents.Patience != operatorPatience {
			t.Errorf("%q: it waits for %v", c.env, agents.Patience)
		}
	}
}

// It waits for workers whose names come late, and starts the ranks there.
func TestOperatorStartsTheJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	late := filepath.Join(dir, "has-come")
	// Stands for kubectl: the first time a worker is not known yet.
	script := "#!/bin/sh\n[ \"$1 $2 $4 $5\" = \"exec -i -- sh\" ] || { echo \"$*\" >&2; exit 127; }\n" +
		"test -e " + late + ".$3 || { : >" + late + ".$3; echo no such host >&2; exit 1; }\nexec sh\n"
	shell := filepath.Join(dir, "kubectl")
	hosts := filepath.Join(dir, "hostfile")
	for path, text := range map[string]string{shell: script, hosts: "w0.j slots=1\nw1.j slots=1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	j := prepare(t, "-l", "--launcher", "exec", "--launch-agent", shell+" exec -i", "RANK", "join", "exchange=3",
		"env="+envRole, "finalize")
	j.cmd.Env = append(j.cmd.Env, envRole+"=launcher", "HYDRA_HOST_FILE="+hosts)
	j.start().wait(0).printsLines("[0] 6", "[1] 6", "[0] "+envRole+"=launcher", "[1] "+envRole+"=launcher")
	for _, host := range []string{"w0.j", "w1.j"} {
		if _, err := os.Stat(late + "." + host); err != nil {
			t.Error(err)
		}
	}
}

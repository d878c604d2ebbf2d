package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
)

// doctorOn runs gorun doctor on this machine, which no network joins with the hosts: only the remote shell goes there.
func doctorOn(t *testing.T, h *netns.Hosts, code int, env ...string) report {
	t.Helper()
	script := "#!/bin/sh\ncase $1 in\n"
	var names []string
	for i := 1; i <= h.Count(); i++ {
		var words []string
		for _, w := range h.Command(i, "sh").Args {
			words = append(words, reach.Quote(w))
		}
		names = append(names, fmt.Sprintf("h%d", i))
		script += fmt.Sprintf("h%d) exec %s;;\n", i, strings.Join(words, " "))
	}
	shell := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(shell, []byte(script+"esac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	j := prepare(t)
	j.cmd.Args = []string{j.cmd.Args[0], "doctor", "-H", strings.Join(names, ","), "--launch-agent", shell, "--json"}
	j.cmd.Env = append(j.cmd.Env, env...)
	j.start().wait(code)
	var r report
	if err := json.Unmarshal([]byte(j.out.String()), &r); err != nil {
		t.Fatalf("%v in %s", err, j.out.String())
	}
	for _, v := range r.Hosts {
		if v.Error != "" {
			t.Fatalf("%s: %s", v.Name, v.Error)
		}
	}
	// Of what these hosts share with this machine anything may be wrong.
	r.Findings = slices.DeleteFunc(r.Findings, func(f finding) bool {
		return !slices.Contains([]kind{"ports", "path", "link", "network", "mtu"}, f.Kind)
	})
	return r
}

// Each pair of the job's hosts counts, at its addresses and ports, and that this host has no route to them does not.
func TestDoctorBetweenHosts(t *testing.T) {
	h := netns.Up(t, 3)
	code := 0
	if answer := probeReadv(); !strings.HasPrefix(answer, "yes") {
		code = 1
	}
	if r := doctorOn(t, h, code, "GORUN_TCP_PORTS=40000-40007"); len(r.Findings) > 0 {
		t.Errorf("nothing is wrong, and it finds %+v", r.Findings)
	}
	if testing.Short() {
		return // what follows waits for answers that do not come
	}
	if err := h.Cut(2, 3); err != nil {
		t.Fatal(err)
	}
	r := doctorOn(t, h, 1, "GORUN_TCP_PORTS=40000-40007")
	if len(r.Findings) != 1 || r.Findings[0].Kind != "ports" || fmt.Sprint(r.Findings[0].Hosts) != "[h2 h3]" ||
		!strings.Contains(r.Findings[0].Mend, "40000-40007") && !strings.Contains(r.Findings[0].Mend, "ping") {
		t.Errorf("a cut between h2 and h3: %+v", r.Findings)
	}
	if err := h.Heal(2, 3); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"drop", "reset"} {
		if err := h.Block(1, 3, how); err != nil {
			t.Fatal(err)
		}
		r = doctorOn(t, h, 1, "GORUN_TCP_PORTS=40000-40007")
		if len(r.Findings) != 1 || r.Findings[0].Kind != "ports" || fmt.Sprint(r.Findings[0].Hosts) != "[h1]" ||
			!strings.Contains(r.Findings[0].Wrong, "cannot connect to h3, and are connected by it") ||
			!strings.Contains(r.Findings[0].Mend, "on h3: firewall-cmd") {
			t.Errorf("a firewall at h3 (%s): %+v", how, r.Findings)
		}
		if err := h.Heal(3); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.LinkDown(2); err != nil {
		t.Fatal(err)
	}
	r = doctorOn(t, h, 1)
	if len(r.Findings) != 1 || r.Findings[0].Kind != "link" || fmt.Sprint(r.Findings[0].Hosts) != "[h2]" {
		t.Errorf("a pulled cable: %+v", r.Findings)
	}
	if err := h.LinkUp(2); err != nil {
		t.Fatal(err)
	}
	r = doctorOn(t, h, 1, "GORUN_TCP_IF=ib0")
	if len(r.Findings) != 1 || r.Findings[0].Kind != "network" || len(r.Findings[0].Hosts) != 3 {
		t.Errorf("an interface that no host has: %+v", r.Findings)
	}
}

// In a Slurm allocation its hosts are looked at, through one srun, as for a job.
func TestDoctorInAllocation(t *testing.T) {
	t.Parallel()
	j := prepare(t)
	j.cmd.Args = []string{j.cmd.Args[0], "doctor", "--json"}
	inAllocation(t)(j)
	j.start()
	if err := j.cmd.Wait(); j.cmd.ProcessState == nil || j.cmd.ProcessState.ExitCode() > 1 {
		t.Fatalf("%v\n%s", err, j.err.String())
	}
	var r report
	if err := json.Unmarshal([]byte(j.out.String()), &r); err != nil {
		t.Fatalf("%v in %s\n%s", err, j.out.String(), j.err.String())
	}
	if !strings.Contains(r.Allocation, "7 on a,b") || len(r.Hosts) != 2 || r.Hosts[0].Name != "a" ||
		r.Hosts[1].Gorun != "installed" {
		t.Errorf("%+v", r)
	}
}

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func TestMain(m *testing.M) { os.Exit(proc.Main(m)) }

func hostrun(t *testing.T, args ...string) (string, int) {
	t.Helper()
	netns.Up(t, 1).Close() // skips where there can be none
	out, err := exec.Command(proc.Build(t, "internal/testkit/netns/hostrun"), args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

func TestRanks(t *testing.T) {
	out, code := hostrun(t, "-hosts", "2", "-ppn", "2", "-x", "GREETING=hello", "--",
		"sh", "-c", `echo $GREETING $PMI_ID $(hostname) $GORUN_LOCAL_RANK; [ $PMI_ID != 3 ] || exit 4`)
	for _, want := range []string{"hello 0 h1 0\n", "hello 1 h1 1\n", "hello 2 h2 0\n", "hello 3 h2 1\n",
		"rank 3 on h2 has ended with code 4"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if code != 4 {
		t.Errorf("exit code %d", code)
	}
}

func TestFaultOfASchedule(t *testing.T) {
	// The host may crash before a slow machine has started the rank.
	for _, after := range []string{"100ms", "3s", "30s"} {
		out, code := hostrun(t, "-hosts", "1", "-fault", after+" crash h1", "--", "sleep", "1000")
		if code == 128+9 {
			return
		}
		t.Logf("crashed after %s: exit code %d: %s", after, code, out)
	}
	t.Error("no rank was killed by the crash of its host")
}

// TestHostsThatAreUp checks that hosts that are up are used, and left.
func TestHostsThatAreUp(t *testing.T) {
	netns.Up(t, 1).Close()
	base := filepath.Join(t.TempDir(), "hosts")
	if out, code := hostrun(t, "-base", base, "--", "true"); code != 1 ||
		!strings.Contains(out, "scripts/hosts up N "+base) {
		t.Errorf("no hosts: exit code %d: %s", code, out)
	}
	script := "../../../../scripts/hosts"
	if out, err := exec.Command(script, "up", "2", base).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command(script, "down", base).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}()
	for range 2 {
		out, code := hostrun(t, "-base", base, "--", "sh", "-c", "echo $PMI_ID on $(hostname)")
		if code != 0 || !strings.Contains(out, "0 on h1\n") || !strings.Contains(out, "1 on h2\n") {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
	if out, err := exec.Command(script, "fault", "-b", base, "crash", "h2").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The kernel takes a moment to end all of the host.
	for until := time.Now().Add(30 * time.Second); ; {
		out, code := hostrun(t, "-base", base, "--", "true")
		if code == 1 && strings.Contains(out, "h2 of the hosts in "+base+" has ended") {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("a host has crashed: exit code %d: %s", code, out)
		}
	}
}

func TestPeers(t *testing.T) {
	for mpi, program := range map[string]string{"openmpi": "mpirun.openmpi", "mpich": "mpiexec.hydra"} {
		proc.RequireProgram(t, program, map[string]string{"openmpi": "openmpi-bin", "mpich": "mpich"}[mpi])
		out, code := hostrun(t, "-mpi", mpi, "--", "sh", "-c", "echo on $(hostname)")
		if code != 0 || !strings.Contains(out, "on h1\n") || !strings.Contains(out, "on h2\n") {
			t.Errorf("%s: exit code %d: %s", mpi, code, out)
		}
	}
}

func TestParseFaults(t *testing.T) {
	f, err := parseFaults("3s link h2 down; 8s link h2 up;")
	if err != nil || len(f) != 2 || f[1].after != 8*time.Second || strings.Join(f[1].args, " ") != "link h2 up" {
		t.Errorf("%v %v", f, err)
	}
	for _, bad := range []string{"link h2 down", "3s", "-1s crash h1", "3s crash"} {
		if _, err := parseFaults(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

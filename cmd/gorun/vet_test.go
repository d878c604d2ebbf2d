package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// gorun vet prints what its checks find, and has the exit code of go vet; its arguments are go vet's.
func TestVet(t *testing.T) {
	vet := func(args ...string) (string, int) {
		t.Helper()
		out, err := exec.Command(proc.Gorun(t), append([]string{"vet"}, args...)...).CombinedOutput()
		var status *exec.ExitError
		if err != nil && !errors.As(err, &status) {
			t.Fatal(err)
		}
		if status == nil {
			return string(out), 0
		}
		return string(out), status.ExitCode()
	}
	const wrong = "../../internal/vet/testdata/wrong"
	out, code := vet(wrong)
	if code != 1 || !strings.Contains(out, "wrong.go:11:2: the request of mpi.Isend is dropped") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if out, code := vet("-mpirequest=false", wrong); code != 1 || strings.Contains(out, "request of mpi.Isend is dropped") {
		t.Errorf("without one check, exit code %d:\n%s", code, out)
	}
	if out, code := vet("../../internal/vet/testdata/right"); code != 0 || out != "" {
		t.Errorf("of what is right, exit code %d:\n%s", code, out)
	}
	gorun := exec.Command(proc.Gorun(t), "vet", wrong)
	gorun.Env = append(os.Environ(), "PATH="+t.TempDir())
	if out, err := gorun.CombinedOutput(); err == nil || !strings.Contains(string(out), "install Go") {
		t.Errorf("without go in PATH: %v\n%s", err, out)
	}
	if out, code := vet("--help"); code != 0 || !strings.Contains(out, "mpibuffer") {
		t.Errorf("--help: exit code %d:\n%s", code, out)
	}
}

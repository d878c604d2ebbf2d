//go:build cuda && linux && cgo

package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
)

func TestMain(m *testing.M) { os.Exit(cudakit.Main(m)) }

// A user without a GPU builds the example, as any other program, and runs it over the software GPU.
func TestTrainOnSoftwareGPU(t *testing.T) {
	bin := t.TempDir()
	build(t, bin, "../cmd/gorun", "./train")
	gorun := func(env []string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "gorun"), "-n", "3", filepath.Join(bin, "train"), "-gpu",
			"-samples", "100", "-steps", "20")
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := gorun(cudakit.Env(t, "SOFTCUDA_SEED=1"))
	if err != nil || !strings.Contains(out, "with gradients in GPU memory the model is the same, to the bit\n") ||
		!strings.Contains(out, "3 ranks and one rank have the same loss") {
		t.Errorf("%v\n%s", err, out)
	}
	// Without the library, and in a build without cgo, the ranks say what to do.
	out, err = gorun(append(os.Environ(), "GORUN_CUDA_LIB="+bin+"/none.so"))
	if err == nil || !strings.Contains(out, "none.so: cannot open shared object file") {
		t.Errorf("without the library: %v\n%s", err, out)
	}
	t.Setenv("CGO_ENABLED", "0")
	build(t, bin, "./train")
	out, err = gorun(os.Environ())
	if err == nil || !strings.Contains(out, "gpu.Local: no accelerator can be used: this program was built without cgo") ||
		!strings.Contains(out, "CGO_ENABLED=1 go build") {
		t.Errorf("without cgo: %v\n%s", err, out)
	}
}

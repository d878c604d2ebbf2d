package cudakit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/softlib"
)

var library = softlib.Library{Name: "softcuda", Alias: "libcuda.so.1"}

// Main runs the tests and removes what Build and package proc have made. It is for TestMain: os.Exit(cudakit.Main(m)).
// A test binary that calls hcakit.Main need not call it.
func Main(m *testing.M) int { return softlib.Main(m) }

// Build returns the path of libsoftcuda.so, for dlopen and for GORUN_CUDA_LIB. softlib.Library.Build says when it is
// built, and when the test is skipped.
func Build(tb testing.TB) string {
	tb.Helper()
	return library.Build(tb)
}

// Env returns an environment in which programs find the software GPU in place of the driver, as libcuda.so.1 and by
// GORUN_CUDA_LIB. Knobs are of the form SOFTCUDA_SEED=1.
func Env(tb testing.TB, knobs ...string) []string {
	tb.Helper()
	env := append(os.Environ(), "LD_LIBRARY_PATH="+library.Folder(tb), "GORUN_CUDA_LIB="+Build(tb))
	return append(env, knobs...)
}

// Left is a knob by which each process says what it has of the device, and a function that says what processes had when
// they ended, a line each: for a test that no allocation, stream or mapping is forgotten. Their contexts are no leak.
func Left(tb testing.TB) (knob string, left func() []string) {
	tb.Helper()
	dir := tb.TempDir()
	return "SOFTCUDA_LEFT=" + filepath.Join(dir, "left"), func() (lines []string) {
		tb.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "left.*"))
		if err != nil || len(files) == 0 {
			tb.Errorf("no process has used the software GPU (%v)", err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				tb.Error(err)
			}
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(line, "contexts ") {
					lines = append(lines, fmt.Sprintf("process %s: %s", strings.TrimPrefix(filepath.Ext(path), "."), line))
				}
			}
		}
		return lines
	}
}

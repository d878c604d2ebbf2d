package hcakit_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/internal/testkit/softlib"
)

// The programs of softdevices/softhca/test know the verbs from their manual pages and not from the library. Each
// prints a line per case, which is a test here. The software HCA may not skip any.
func TestCases(t *testing.T) {
	hcakit.Build(t) // skips, before anything else is built
	folder := t.TempDir()
	for _, program := range []string{"base", "strict", "tm", "faults", "dmabuf"} {
		hcakit.CompileCases(t, program, filepath.Join(folder, program))
	}
	for _, run := range []struct {
		program, how string
		knobs        []string
		cases        int // at least so many
	}{
		{"base", "plain", nil, 75},
		{"base", "disturbed", []string{"SOFTHCA_SEED=4", "SOFTHCA_RNR=30", "SOFTHCA_DROP=10"}, 75},
		{"base", "wire", []string{"SOFTHCA_WIRE=1", "SOFTHCA_READV=0"}, 75},
		{"base", "roce", []string{"SOFTHCA_MODE=roce"}, 75},
		{"base", "two_ports", []string{"SOFTHCA_MODE=two_ports"}, 75},
		{"base", "efa", []string{"SOFTHCA_MODE=efa"}, 75},
		{"strict", "plain", nil, 50},
		{"strict", "wire", []string{"SOFTHCA_WIRE=1"}, 50},
		{"strict", "forbidden", []string{forbid + "=1"}, 50},
		{"tm", "plain", nil, 60},
		{"tm", "slow", []string{"SOFTHCA_SEED=5", "SOFTHCA_LIST_DELAY=300"}, 60},
		{"tm", "wire", []string{"SOFTHCA_WIRE=1", "SOFTHCA_READV=0", "SOFTHCA_SEED=6", "SOFTHCA_RNR=30", "SOFTHCA_DROP=10"},
			60},
		{"faults", "plain", nil, 55},
		{"dmabuf", "plain", []string{"CUDA_LIB=" + cudakit.Build(t)}, 10},
		{"dmabuf", "flushed", []string{"CUDA_LIB=" + cudakit.Build(t), "SOFTCUDA_ORDERING=0"}, 10},
	} {
		if testing.Short() && run.how != "plain" {
			continue // takes long and finds little that the others do not
		}
		t.Run(run.program+"/"+run.how, func(t *testing.T) {
			t.Parallel() // they sleep most of the time
			printed, err := runCases(t, hcakit.Env(t, run.knobs...), filepath.Join(folder, run.program))
			if n := softlib.ReportCases(t, printed); n < run.cases {
				t.Errorf("%d cases, and there should be %d", n, run.cases)
			}
			if err != nil && !t.Failed() {
				t.Errorf("%v\n%s", err, printed)
			}
		})
	}
}

func runCases(t *testing.T, env []string, path string) (printed string, err error) {
	// The guard is far beyond what the slowest machine needs; the programs guard each of their cases themselves.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := command(ctx, env, path, []string{"softhca0"})
	cmd.Env = append([]string{"TEST_PATIENCE=60"}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

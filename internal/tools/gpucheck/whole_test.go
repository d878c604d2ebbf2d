//go:build cuda && linux && cgo

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
)

func TestMain(m *testing.M) { os.Exit(cudakit.Main(m)) }

// TestWhole builds everything and runs it over the software GPU, as docs/gpu.md says.
func TestWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: building the programs and running them takes two minutes")
	}
	dir, out := t.TempDir(), t.TempDir()
	if text, err := exec.Command("../../../scripts/gpu-check", "build", dir).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "gpu-check"), "run", "-o", out, "-time", "20ms")
	cmd.Dir = "/" // it needs no checkout around it
	cmd.Env = append(cudakit.Env(t, "SOFTCUDA_SEED=1"), "PATH=/usr/bin:/bin")
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, printed)
	}
	text, err := os.ReadFile(filepath.Join(out, "gpu-check.txt"))
	b, e := os.ReadFile(filepath.Join(out, "gpu-check.json"))
	var r report
	if err := errors.Join(err, e, json.Unmarshal(b, &r)); err != nil {
		t.Fatal(err)
	}
	if string(text) != string(printed) || !r.Software || len(r.Parts) < 15 || len(r.Figures) != 13 ||
		len(r.Answers) < 100 {
		t.Errorf("printed\n%s\nwritten\n%s\n%s", printed, text, b)
	}
	for _, f := range r.Figures {
		if !f.Software || f.Met != nil || f.Value <= 0 || !strings.Contains(string(text), f.line()+"\n") ||
			!strings.Contains(f.line(), software) {
			t.Errorf("%+v: %s", f, f.line())
		}
	}
}

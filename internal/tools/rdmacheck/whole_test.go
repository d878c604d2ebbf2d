//go:build verbs && linux && cgo

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
)

func TestMain(m *testing.M) { os.Exit(hcakit.Main(m)) }

// TestWhole builds everything and runs it over the software HCA, as docs/rdma.md says.
func TestWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: building the programs and running them takes two minutes")
	}
	dir, out := t.TempDir(), t.TempDir()
	if text, err := exec.Command("../../../scripts/rdma-check", "build", dir).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "rdma-check"), "run", "-o", out, "-time", "20ms")
	cmd.Dir = "/" // it needs no checkout around it
	cmd.Env = append(hcakit.Env(t), libraryVar+"="+hcakit.Build(t), "PATH=/usr/bin:/bin")
	printed, _ := cmd.CombinedOutput()
	text, err := os.ReadFile(filepath.Join(out, "rdma-check.txt"))
	b, e := os.ReadFile(filepath.Join(out, "rdma-check.json"))
	var r report
	if err := errors.Join(err, e, json.Unmarshal(b, &r)); err != nil {
		t.Fatal(err)
	}
	if string(text) != string(printed) || len(r.Parts) != 7 || len(r.Figures) != 3 || len(r.Devices) != 1 ||
		!strings.Contains(r.DevInfo, "softhca0") || !strings.Contains(r.Info, "softhca0") {
		t.Errorf("printed\n%s\nwritten\n%s\n%s", printed, text, b)
	}
	for _, p := range r.Parts { // a machine where tests run may lock as little memory as it likes
		if !p.Passed && (p.Name != "gorun doctor" || !strings.Contains(p.Why, "wrong on ")) {
			t.Errorf("%s: %s", p.Name, p.Why)
		}
	}
	if cmd.ProcessState.ExitCode() != r.code() {
		t.Errorf("exit code %d, want %d", cmd.ProcessState.ExitCode(), r.code())
	}
	for _, f := range r.Figures {
		if !f.Software || f.Value <= 0 || !strings.Contains(string(text), f.line()+"\n") {
			t.Errorf("%+v: %s", f, f.line())
		}
	}
}

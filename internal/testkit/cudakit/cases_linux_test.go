package cudakit

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/softlib"
)

// TestCases runs the cases of behave.c.
func TestCases(t *testing.T) {
	path := Build(t) // skips, before anything else is built
	program := filepath.Join(t.TempDir(), "behave")
	library.CompileCases(t, "behave", program)
	printed := softlib.Printed(t, append(Env(t), "CUDA_LIB="+path), program)
	if n := softlib.ReportCases(t, printed); n < 30 {
		t.Errorf("%d cases\n%s", n, printed)
	}
}

// A file of the software GPU calls the files only that stand before it in the README's table of layers.
func TestLayers(t *testing.T) { library.CheckLayers(t, 20) }

// The README of the software GPU is its only manual: each knob and each counter is in it.
func TestReadme(t *testing.T) {
	sources := library.Sources(t)
	readme := softlib.Text(t, filepath.Join(sources, "README.md"))
	knobs := regexp.MustCompile(`strcmp\(n, "([A-Z_]+)"\)`).FindAllStringSubmatch(
		softlib.Text(t, filepath.Join(sources, "knobs.c")), -1)
	counters := regexp.MustCompile(`X\(([a-z_]+)\)`).FindAllStringSubmatch(
		softlib.Text(t, filepath.Join(sources, "base.h")), -1)
	if len(knobs) < 15 || len(counters) < 20 {
		t.Fatalf("%d knobs and %d counters found", len(knobs), len(counters))
	}
	for _, k := range knobs {
		if !strings.Contains(readme, "`SOFTCUDA_"+k[1]+"`") {
			t.Errorf("README.md has no knob SOFTCUDA_%s", k[1])
		}
	}
	for _, c := range counters {
		if !strings.Contains(readme, "`"+c[1]+"`") && c[1] != "n" {
			t.Errorf("README.md has no counter %s", c[1])
		}
	}
}

// Left says what a process has left, and not its context.
func TestLeft(t *testing.T) {
	knob, left := Left(t)
	program := filepath.Join(t.TempDir(), "behave")
	library.CompileCases(t, "behave", program)
	env := append(Env(t, knob), "CUDA_LIB="+Build(t))
	softlib.Printed(t, env, program, "small_allocations_are_packed")
	got := strings.Join(left(), "")
	if !strings.Contains(got, ": allocations 2\n") || strings.Contains(got, "contexts") {
		t.Errorf("left: %q", got)
	}
}

package softlib

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// CompileCases makes a program of one file of the device's folder test and its kit.c, as any program for the vendor's
// library is made.
func (l *Library) CompileCases(t *testing.T, program, path string, flags ...string) {
	t.Helper()
	dir := filepath.Join(l.Sources(t), "test")
	args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", path,
		filepath.Join(dir, program+".c"), filepath.Join(dir, "kit.c"), "-pthread"}
	cc := exec.Command(proc.RequireProgram(t, "cc", "gcc libc6-dev"), append(args, flags...)...)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// Printed runs a program and returns what it prints. A program that fails has said so in a line for ReportCases.
func Printed(t *testing.T, env []string, path string, args ...string) string {
	t.Helper()
	// The guard is far beyond what the slowest machine needs; the programs guard each of their cases themselves.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "FAIL ") {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

// ReportCases makes a test of each line "ok NAME", "FAIL NAME: why" or "skip NAME: why" and counts them.
func ReportCases(t *testing.T, printed string) (cases int) {
	for line := range strings.Lines(printed) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, why, _ := strings.Cut(rest, ": ")
		switch word {
		case "ok", "FAIL", "skip":
			cases++
			t.Run(name, func(t *testing.T) {
				if word != "ok" {
					t.Error(word, why)
				}
			})
		default:
			t.Logf("%s %s", word, rest)
		}
	}
	return cases
}

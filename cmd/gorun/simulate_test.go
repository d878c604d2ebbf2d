package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runSimulate returns what gorun simulate prints.
func runSimulate(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := simulateCommand(out)
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	failed := c.Execute()
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), failed
}

func TestSimulate(t *testing.T) {
	args := []string{"--operations", "allreduce,barrier", "--ranks", "64,4", "--per-host", "8", "--sizes", "8,1M"}
	text, err := runSimulate(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	again, err := runSimulate(t, args...)
	if err != nil || text != again {
		t.Errorf("%v: a second run prints\n%s, the first\n%s", err, again, text)
	}
	if n := strings.Count(text, " *"); n != 6 {
		t.Errorf("%d calls have a chosen algorithm, not 6:\n%s", n, text)
	}
	lines, err := runSimulate(t, append(args, "--json", "--algorithms", "ring")...)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(lines) {
		var r simulated
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Algorithm != "ring" || r.Seconds <= 0 {
			t.Errorf("%v: %s", err, line)
		}
		found++
	}
	if found != 4 {
		t.Errorf("%d lines for two sizes on two numbers of ranks:\n%s", found, lines)
	}
	text, err = runSimulate(t, "--operations", "alltoall", "--ranks", "100000", "--sizes", "8",
		"--algorithms", "linear,pairwise")
	if err != nil || strings.Count(text, "left out: ") != 2 {
		t.Errorf("%v: 10^10 messages are not left out:\n%s", err, text)
	}
}

func TestSimulateRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--operations allsum":            `no operation "allsum"`,
		"--operations neighbor_alltoall": "depends on a graph",
		"--algorithms circle":            `no algorithm "circle"`,
		"--ranks 0":                      "there must be 1 at least",
		"--ranks 3000000000":             "3000000000 ranks",
		"--per-host 0":                   "0 ranks per host",
		"--sizes -8":                     `--sizes "-8"`,
		"--sizes many":                   `--sizes "many"`,
		"--model cray":                   `no model "cray"`,
		"--limit none":                   `--limit "none"`,
	} {
		if _, err := runSimulate(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", args, err, want)
		}
	}
}

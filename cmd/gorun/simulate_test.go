package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/collectives/simulate"
)

// runSimulate returns what gorun simulate prints.
func runSimulate(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := simulateCommand(out, os.Stderr)
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
		"--cores -1":                     "--cores -1",
		"--one-machine":                  "is --cores",
		"--save here.json":               "there is no --fit",
		"--fit /nowhere":                 "/nowhere",
	} {
		if _, err := runSimulate(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", args, err, want)
		}
	}
}

// measuredLines are what benchmarks would print on a machine that is the model testbed.
func measuredLines(t *testing.T, factor float64) (path string) {
	t.Helper()
	var text strings.Builder
	for _, name := range []string{"doubling", "tree", "ring", "rabenseifner"} {
		for _, bytes := range []int64{8, 4096, 1 << 20} {
			a, err := collectives.Find(collectives.Allreduce, name)
			if err != nil {
				t.Fatal(err)
			}
			barrier, err := collectives.Find(collectives.Barrier, "tree")
			if err != nil {
				t.Fatal(err)
			}
			m := simulate.Measured{Algorithm: a, Between: barrier, Ranks: 4, PerHost: 2, Bytes: bytes}
			seconds, err := m.Predict(&simulate.Testbed)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&text, `{"program":"allreduce","size":%d,"ranks":4,"per_host":2,"transport":"shm+tcp",`+
				`"collectives":"barrier:tree,%v","values":{"Avg Latency(us)":%v}}`+"\n", bytes, a, factor*seconds*1e6)
		}
	}
	path = filepath.Join(t.TempDir(), "runs.json")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSimulateMeasured(t *testing.T) {
	runs, saved := measuredLines(t, 1), filepath.Join(t.TempDir(), "here.json")
	text, err := runSimulate(t, "--model", "testbed", "--check", runs)
	if err != nil || !strings.Contains(text, "12 of 12 times within 30 %") || strings.Contains(text, "×0") {
		t.Errorf("%v: a model's own times:\n%s", err, text)
	}
	if strings.Count(text, "same order") != 3 {
		t.Errorf("a model's own times are not in the same order:\n%s", text)
	}
	slow := measuredLines(t, 3)
	text, err = runSimulate(t, "--model", "testbed", "--check", slow)
	if err != nil || !strings.Contains(text, "\n0 of 12") {
		t.Errorf("%v: a machine that is slower by three:\n%s", err, text)
	}
	if text, err = runSimulate(t, "--model", "testbed", "--fit", slow, "--save", saved); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "\n12 of 12") {
		t.Errorf("fitted:\n%s", text)
	}
	text, err = runSimulate(t, "--model", saved, "--check", slow)
	if err != nil || !strings.Contains(text, "\n12 of 12") {
		t.Errorf("%v: the saved model:\n%s", err, text)
	}
	if text, err = runSimulate(t, "--choices", "--operations", "bcast,scan"); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		c, err := collectives.ParseChoice(strings.TrimSpace(line))
		if err != nil || c.Named(collectives.Barrier) == nil || c.Named(collectives.Scan) == nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	for _, a := range collectives.Algorithms(collectives.Bcast) {
		if shared := a.Needs&collectives.OnBoard != 0; strings.Contains(text, a.String()) == shared {
			t.Errorf("the choices have, or have not, %v:\n%s", a, text)
		}
	}
	broken := filepath.Join(t.TempDir(), "model.json")
	for content, want := range map[string]string{
		"{": "unexpected EOF", `{"Speed":1}`: "unknown field", "{}": "must be above 0",
	} {
		if err := os.WriteFile(broken, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := runSimulate(t, "--model", broken); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a model %s: %v; want %s", content, err, want)
		}
	}
	for content, want := range map[string]string{"{": "is not what a benchmark prints", "{}": "no measured call"} {
		if err := os.WriteFile(broken, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := runSimulate(t, "--check", broken); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("measurements %s: %v; want %s", content, err, want)
		}
	}
}

// The pairs of algorithms that are not in the measured order are named.
func TestOrderOfContest(t *testing.T) {
	ring, err := collectives.Find(collectives.Allreduce, "ring")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := collectives.Find(collectives.Allreduce, "tree")
	if err != nil {
		t.Fatal(err)
	}
	c := simulate.Contest{Pairs: 3, Agree: 2, Differ: []simulate.Pair{{Fast: ring, Slow: tree}}}
	if got, want := order(&c), "1 of 3 differ: ring < tree"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestInfoCollectives(t *testing.T) {
	for _, roomy := range []bool{false, true} {
		lines := 0
		err := collectives.Print(io.Discard, roomy, costHeads,
			func(a *collectives.Algorithm, p collectives.Params) []string {
				lines++
				columns, o := cost(a, p), a.Operation
				hasSchedule := a.Needs&collectives.OnBoard == 0 && !o.Neighborhood() && !o.BetweenGroups()
				if len(columns) != len(costHeads) || (columns[1] != "") != hasSchedule {
					t.Errorf("the costs of %v for %d bytes on %d ranks are %q", a, p.Count, p.Size, columns)
				}
				return columns
			})
		if err != nil || lines == 0 {
			t.Errorf("%d lines, %v", lines, err)
		}
	}
}

// gorun info --collectives prints the lines that hold for so many ranks on a host, and says which these are.
func TestWhichLines(t *testing.T) {
	for _, c := range []struct {
		ranks, cpus int
		roomy       bool
		want        string
	}{
		{0, 16, true, "ranks on this host have a CPU each, up to 16 of them (roomy)"},
		{16, 16, true, "--ranks 17 prints the lines for more ranks (crowded)"},
		{17, 16, false, "more ranks than this host's CPUs (16) share them (crowded). --ranks 16 prints"},
		{0, 1, false, "more ranks than this host's CPUs (1)"},
	} {
		if text, roomy := whichLines(c.ranks, c.cpus); roomy != c.roomy || !strings.Contains(text, c.want) {
			t.Errorf("%d ranks on %d CPUs: roomy %v, %s", c.ranks, c.cpus, roomy, text)
		}
	}
	many := call(t, "info", "--collectives", "--ranks", "100000")
	if here := call(t, "info", "--collectives"); !strings.Contains(many.out, "(crowded).") || here.out == many.out ||
		!strings.Contains(many.out, " crowded ") || strings.Contains(many.out, " roomy ") {
		t.Errorf("%+v", many)
	}
	for _, args := range [][]string{{"--ranks", "2"}, {"--collectives", "--ranks", "0"},
		{"--collectives", "--json", "--ranks", "2"}} {
		if got := call(t, append([]string{"info"}, args...)...); got.code != 2 ||
			!strings.Contains(got.err, "--ranks") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

package vet_test

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
)

// TestMain makes this binary the tool that go vet runs.
func TestMain(m *testing.M) {
	if vet.IsTool(os.Args) {
		unitchecker.Main(vet.Analyzers()...)
	}
	os.Exit(m.Run())
}

// run is go vet with the checks over packages.
func run(t *testing.T, packages ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command("go", append([]string{"vet", "-vettool=" + self}, packages...)...).CombinedOutput()
	return string(out)
}

// Each mistake of testdata/wrong is reported at its line, and nothing else is.
func TestMistakesAreReported(t *testing.T) {
	wants, quoted := map[string][]string{}, regexp.MustCompile(`"([^"]*)"`)
	f, err := os.Open("testdata/wrong/wrong.go")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if _, want, ok := strings.Cut(lines.Text(), "// want "); ok {
			for _, q := range quoted.FindAllStringSubmatch(want, -1) {
				wants[fmt.Sprintf("wrong.go:%d:", n)] = append(wants[fmt.Sprintf("wrong.go:%d:", n)], q[1])
			}
		}
	}
	out := run(t, "./testdata/wrong")
	for line := range strings.Lines(out) {
		at := regexp.MustCompile(`wrong\.go:\d+:`).FindString(line)
		if at == "" {
			continue // the package's name
		}
		if i := slices.IndexFunc(wants[at], func(w string) bool { return strings.Contains(line, w) }); i >= 0 {
			wants[at] = slices.Delete(wants[at], i, i+1)
			continue
		}
		t.Errorf("not wanted: %s", line)
	}
	for _, at := range slices.Sorted(maps.Keys(wants)) {
		for _, w := range wants[at] {
			t.Errorf("%s not reported: %s", at, w)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// Nothing is reported in what is right: testdata/right, the examples and the benchmarks.
func TestNoFalseAlarms(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if out := run(t, "./testdata/right", root+"/examples/...", root+"/benchmarks/..."); out != "" {
		t.Errorf("go vet reports:\n%s", out)
	}
}

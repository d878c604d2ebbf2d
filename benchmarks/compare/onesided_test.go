package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// The program without a library knows every operation that it is measured with, prints a line for each size, and says
// what is wrong with arguments.
func TestBareMemory(t *testing.T) {
	proc.RequireProgram(t, "cc", "gcc")
	t.Chdir("../..")
	bare := buildBare(context.Background(), bareMemory, t.TempDir(), "memory", "cc", nil)
	if bare.absent != "" {
		t.Fatal(bare.absent)
	}
	memory := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, filepath.Join(bare.dir, "memory"), args...).CombinedOutput()
		return string(out), err
	}
	measured := 0
	for _, m := range plan(false, 0) {
		if !slices.Contains(m.libraries, bareMemory) {
			continue
		}
		for _, a := range m.runs {
			measured++
			words := append([]string{fmt.Sprint(a.ranks)}, strings.Fields(a.args)...)
			out, err := memory(append(words, "-i", "20", "-x", "2", "--warm-time", "0", "--time", "0")...)
			if err != nil {
				t.Errorf("%q: %v: %s", words, err, out)
				continue
			}
			lines, err := parse(out)
			if want := len(inventedKeys(a)); err != nil || len(lines) != want || lines[0].Values[0] <= 0 {
				t.Errorf("%q: %v, want %d lines: %s", words, err, want, out)
			}
		}
	}
	if measured < 8 {
		t.Errorf("%d runs", measured)
	}
	for want, args := range map[string][]string{
		"not an operation: nosuch": {"2", "nosuch"}, "not a number in range: 1": {"1", "put_latency"},
		"wanted lock_all_flush, ":           {"2", "put_latency", "-s", "pscw"},
		"the sizes are multiples of 8":      {"2", "acc_latency", "-m", "12:16"},
		"wanted RANKS OPERATION [options]":  {"2"},
		"wanted lock_all_flush, lock_exclu": {"2", "fence_latency", "-s", "lock"},
	} {
		if out, err := memory(args...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v, %s; want %q", args, err, out, want)
		}
	}
}

// How the program without a library is run: with the arguments of the others, and the number of ranks.
func TestBareMemoryIsLaunched(t *testing.T) {
	l := library{name: bareMemory, dir: "/d/memory", launch: launchMemory}
	m, _ := find(plan(false, 0), "fetch_op_rate")
	if got, want := l.shown(m, m.runs[1], false), "memory 8 fop_rate -s lock_all_flush -i 20000 -x 200"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := l.launch(8, filepath.Join(l.dir, m.program))[0]; got != "/d/memory/memory" {
		t.Errorf("the program is %s", got)
	}
}

// Rows have the names of the kinds of windows, in the table, in the index and in the picture.
func TestLabels(t *testing.T) {
	m, _ := find(plan(false, 0), "win_put_bibw")
	r := invented(m)
	page := r.page(m)
	for _, want := range []string{"\n| allocate | ", "\n| create | ", "\n| shared | ", "\n| dynamic | ",
		"## pscw (MB/s), higher is better"} {
		if strings.Count(page, want) < 1 {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if got := r.span(m, m.columns[0], func(w row) float64 { return w.peer }); got != "2.00 at allocate window" {
		t.Errorf("the ratios are %q", got)
	}
	rows := r.panels(m)
	if len(rows) != len(harness.WinKinds) || len(rows[0]) != 2 || rows[1][0].X != "create window" ||
		rows[1][1].Title != "fence" || !rows[2][1].Bars {
		t.Errorf("the picture is %+v", rows)
	}
	if wide, _ := find(plan(false, 0), "win_put"); len(invented(wide).panels(wide)) != 2*len(wide.runs) {
		t.Errorf("%d columns are in rows of more than four", len(wide.columns))
	}
}

// A library that a signal ended is shown as crashed, with the signal, and one that failed otherwise as failed.
func TestCrash(t *testing.T) {
	m := measurement{name: "latency", title: "Latency", program: "latency", key: "bytes", columns: oneWay(),
		limit: time.Minute, runs: []arguments{{ranks: 2, key: 8}}}
	libraries := []library{script(t, "echo '8 0.5'"), script(t, "echo gone >&2; exit 139"), script(t, "kill -SEGV $$"),
		script(t, "exit 255")}
	r := newResult(&m, libraries, machine{}, settings{rounds: 1})
	r.measure(context.Background(), &m, libraries, &session{estimate: newEstimate(nil, 1)})
	for i, want := range []string{"", "crashed (segmentation fault): launcher: exit status 139: gone",
		"crashed (segmentation fault): launcher: signal: segmentation fault", "launcher: exit status 255: "} {
		if got := r.Runs[0].Failed[i]; !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("library %d: %q, want %q", i, got, want)
		}
	}
	want := "| 8 | 0.50 | crashed | crashed | failed | – |\n"
	if got := r.table(m, m.columns[0]); !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant a line\n%s", got, want)
	}
}

package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	got, err := parse("# OSU MPI Latency Test v7.4 (gorun)\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n" +
		"1                         0.18\n\n4194304                 245.06  7\n")
	want := []line{{1, []float64{0.18}}, {4194304, []float64{245.06, 7}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "# only a header\n", "error: no room\n", "8 x\n", "8\n", "8.5 1\n"} {
		if got, err := parse(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{1, 2, 10}); m != 2 {
		t.Errorf("odd: %v", m)
	}
	if m := median([]float64{1, 2, 4, 10}); m != 3 {
		t.Errorf("even: %v", m)
	}
	if m := median(nil); !math.IsNaN(m) {
		t.Errorf("none: %v", m)
	}
}

func TestRatioIsToTheBestPeer(t *testing.T) {
	nan := math.NaN()
	tests := []struct {
		ours   float64
		peers  []float64
		higher bool
		want   float64
	}{
		{1, []float64{4, 2}, false, 0.5},
		{1, []float64{2, 4}, false, 0.5},
		{8, []float64{4, 2}, true, 2},
		{8, []float64{2, 4}, true, 2},
		{1, []float64{nan, 2}, false, 0.5},
		{1, []float64{2, nan}, false, 0.5},
		{1, []float64{nan, 2}, true, 0.5},
		{1, []float64{2, nan}, true, 0.5},
		{1, []float64{2, 2}, false, 0.5},
		{1, []float64{nan, nan}, false, nan},
		{1, nil, false, nan},
		{nan, []float64{1}, false, nan},
		{1, []float64{0}, false, nan},
	}
	for _, test := range tests {
		got := ratio(test.ours, test.peers, test.higher)
		if got != test.want && !(math.IsNaN(got) && math.IsNaN(test.want)) {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestTable(t *testing.T) {
	s := newSamples([]library{{name: "gorun"}, {name: "Open MPI"}, {name: "MPICH"}})
	for i, values := range [][]float64{{0.10, 0.14, 0.12}, {0.36, 0.30, 0.33}, {0.24}} {
		for _, v := range values {
			s.add(i, []line{{8, []float64{v}}, {64, []float64{2 * v}}})
		}
	}
	s.rounds[2][0] = s.rounds[2][0][:1] // MPICH has no line for 64
	s.failed[2] = "did not end within 1m0s"
	got := s.table(measurement{program: "latency", ranks: 2}, column{name: "one way (µs)", field: 1, digits: 2})
	want := `latency, 2 ranks: one way (µs), lower is better

|            |              gorun |           Open MPI |              MPICH | ours / best |
|-----------:|-------------------:|-------------------:|-------------------:|------------:|
|          8 |          0.12 ±33% |          0.33 ±18% |               0.24 |        0.50 |
|         64 |          0.24 ±33% |          0.66 ±18% |                  – |        0.36 |

MPICH: did not end within 1m0s`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestChoose(t *testing.T) {
	if got, err := choose(plan(true), "ring"); err != nil || len(got) != 2 {
		t.Errorf("ring: %d measurements, %v", len(got), err)
	}
	if _, err := choose(plan(true), "latency,rings"); err == nil || !strings.Contains(err.Error(), `"rings"`) {
		t.Errorf("an unknown name gives %v", err)
	}
}

// script makes a program that stands in for a launcher and its ranks.
func script(t *testing.T, text string) library {
	path := filepath.Join(t.TempDir(), "launcher")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return library{name: "scripted", launch: func(int, string) []string { return []string{path} }}
}

func TestAFailingPeerIsReportedAndNotTriedAgain(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	bad := script(t, "echo run >>"+runs+"; echo 'no slots' >&2; exit 3")
	good := script(t, "echo '8 0.5'")
	s := measure(context.Background(), measurement{program: "latency"}, []library{good, bad}, 3, time.Minute)
	if len(s.rounds[0]) != 3 || s.failed[0] != "" {
		t.Errorf("the good one: %v %q", s.rounds[0], s.failed[0])
	}
	if !strings.Contains(s.failed[1], "exit status 3: no slots") {
		t.Errorf("the bad one: %q", s.failed[1])
	}
	if log, _ := os.ReadFile(runs); string(log) != "run\n" {
		t.Errorf("the bad one ran %q", log)
	}
}

func TestAHangingPeerIsEnded(t *testing.T) {
	hang := script(t, "trap 'exit 0' TERM; while :; do sleep 0.05; done")
	_, err := runOnce(context.Background(), measurement{}, hang, 200*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "did not end within 200ms") {
		t.Errorf("error %v", err)
	}
}

func TestWallTime(t *testing.T) {
	lines, err := runOnce(context.Background(), measurement{ranks: 16, wall: true}, script(t, "exit 0"), time.Minute)
	if err != nil || len(lines) != 1 || lines[0].key != 16 || lines[0].values[0] <= 0 {
		t.Errorf("%v, %v", lines, err)
	}
}

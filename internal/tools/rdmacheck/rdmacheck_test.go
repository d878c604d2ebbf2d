package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

// folder has shell scripts in place of the programs, and they are in PATH.
func folder(t *testing.T, scripts map[string]string) *check {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv(libraryVar, "")
	r := &partrun.Runner{Name: "rdma-check", Self: filepath.Join(dir, "self"), Out: t.TempDir(), Text: new(bytes.Buffer),
		Ctx: t.Context(), Until: time.Now().Add(time.Minute), Report: &partrun.Report{Facts: map[string]string{}}}
	return &check{Runner: r, each: time.Millisecond, report: report{Report: r.Report},
		ports: []usedPort{{"mlx5_0", 1, 3, false}, {"mlx5_0", 2, 3, false}, {"rxe0", 1, -1, true}}}
}

const (
	// object is what a benchmark prints.
	object = `echo '{"program":"latency","values":{"Avg Latency(us)":20.5,"P50":7}}'`
	// times and rates are the ends of what perftest 4.5 prints.
	times = `cat <<X
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       1000          0.91           4.12         1.02     	       1.05        	0.10   		1.30    		4.12
---------------------------------------------------------------------------------------
X`
	rates = `cat <<X
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    1000             98.10              96.00              0.011444
---------------------------------------------------------------------------------------
X`
)

// A part that fails is named at the end, makes the exit code, and stops no other part.
func TestPartsDoNotStopEachOther(t *testing.T) {
	c := folder(t, map[string]string{
		"gorun":      `case "$*" in *doctor*) exit 0;; *"bw "*-c*) echo this is why >&2; exit 7;; esac; ` + object,
		"verbs.test": `test "$GORUN_VERBS_DEV" != mlx5_0:2 && test "$GORUN_VERBS_LIB" = libibverbs.so.1`})
	c.correctness()
	var bad []string
	for _, p := range c.report.Parts {
		if !p.Passed {
			bad = append(bad, p.Name)
		}
	}
	want := "mlx5_0:1: windows of 16 messages,mlx5_0:2: the conformance suite,mlx5_0:2: windows of 16 messages," +
		"rxe0:1: windows of 16 messages"
	if got := strings.Join(bad, ","); got != want || len(c.report.Parts) != 16 || c.report.code() != failed {
		t.Errorf("%d parts, failed are %s\n%s", len(c.report.Parts), got, c.Text)
	}
	for _, name := range bad {
		if !strings.Contains(c.report.sum(), "FAILED: "+name+"\n") {
			t.Errorf("%s is not named in %q", name, c.report.sum())
		}
	}
	if text, err := os.ReadFile(filepath.Join(c.Out, "rdma-check-failed-1.txt")); err != nil ||
		!strings.Contains(string(text), "GORUN_VERBS_DEV=mlx5_0:1\n") || !strings.Contains(string(text), "this is why") {
		t.Errorf("%v\n%s", err, text)
	}
}

// Each device's first port is measured beside perftest, whose server may be late. What perftest does not say is no
// failure of this library.
func TestFigures(t *testing.T) {
	latency := `case "$*" in *127.0.0.1*) test -e "$0.up" || exit 1; ` + times +
		"\n;; *) sleep 0.3; : > \"$0.up\"; exec sleep 60;; esac"
	c := folder(t, map[string]string{"gorun": object, "ib_send_lat": latency,
		"ib_read_bw": `case "$*" in *"-d mlx5_0 -i 1 "*"-x 3 --report_gbits"*127.0.0.1) ` + rates +
			"\n;; *127.0.0.1) echo no; exit 1;; *) exec sleep 60;; esac",
		"ib_write_lat": "echo what is this; exit 0"})
	c.ports = c.ports[:2]
	c.Until = time.Now().Add(20 * time.Second)
	c.figures()
	if len(c.report.Figures) != 3 || c.report.code() != 0 {
		t.Fatalf("%+v", c.report.Figures)
	}
	for i, want := range []string{"(ib_send_lat 1.02, ratio 20.10)", "0.02 GB/s  (ib_read_bw 12.00, ratio 0.00)",
		"(ib_write_lat: it has printed no row of numbers: what is this)"} {
		if line := c.report.Figures[i].line(); !strings.Contains(line, want) || strings.Contains(line, software) {
			t.Errorf("%q has not %q", line, want)
		}
	}
	t.Setenv(libraryVar, "/other.so")
	c.ports = []usedPort{{"softhca0", 1, -1, true}}
	c.figures()
	if line := c.report.Figures[3].line(); !strings.Contains(line, "names another one") ||
		!strings.HasSuffix(line, software) {
		t.Errorf("%q", line)
	}
	c.Until = time.Now()
	c.figures()
	if c.report.code() != failed || !strings.Contains(c.report.sum(), "6 of 9 figures") {
		t.Error(c.report.sum())
	}
}

// A machine without a device fails with what to do. A job that hangs is killed with all its processes.
func TestNoDevice(t *testing.T) {
	c := folder(t, map[string]string{"gorun": "sleep 600 & wait"})
	c.ports = nil
	t.Setenv(libraryVar, "/nonexistent.so")
	c.Until = time.Now().Add(3 * time.Second)
	c.all()
	if c.report.code() != failed || !strings.Contains(c.report.Result, "FAILED: a device can be used") ||
		!strings.Contains(c.report.Info, "it was killed after") && !strings.Contains(c.report.Info, "no time was left") {
		t.Errorf("%+v", c.report)
	}
	if got := run([]string{"x"}, new(bytes.Buffer), new(bytes.Buffer)); got != usage {
		t.Errorf("arguments: exit code %d", got)
	}
}

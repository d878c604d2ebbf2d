package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

// folder has shell scripts in place of the programs.
func folder(t *testing.T, scripts map[string]string) *check {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := &partrun.Runner{Name: "gpu-check", Self: filepath.Join(dir, "self"), Out: t.TempDir(), Text: new(bytes.Buffer),
		Ctx: t.Context(), Until: time.Now().Add(time.Minute), Report: &partrun.Report{Facts: map[string]string{}}}
	return &check{Runner: r, each: time.Millisecond, report: report{Report: r.Report}}
}

// object is what a benchmark prints.
const object = `echo '{"program":"latency","values":{"Avg Latency(us)":20.5,"P50":7}}'`

func TestPartsDoNotStopEachOther(t *testing.T) {
	c := folder(t, map[string]string{
		"gorun": `case "$*" in *bibw*) echo this is why >&2; exit 7;; *collective*) exit 1;; esac
			[ "${GORUN_CUDA_SHARE:-1}" = 1 ] || echo "` + notMappedText + ` because" >&2
			` + object,
		"bibw": "exit 1", "gpu.test": "exit 0", "accel-cuda.test": `test "$GORUN_TEST_GPU" = installed`})
	c.all("")
	bad := 0
	for _, p := range c.report.Parts {
		if !p.Passed {
			bad++
		}
		if strings.HasPrefix(p.Name, "windows in both") && !strings.Contains(p.Why, "exit status 7: this is why") {
			t.Errorf("the reason of a failed part is %q", p.Why)
		}
	}
	// The driver, answers (which is not there), bibw and collective.
	if bad != 4 || len(c.report.Parts) < 15 || len(c.report.Figures) != 13 || c.report.code() != failed {
		t.Errorf("%d of %d parts are bad, %d figures, code %d\n%s", bad, len(c.report.Parts), len(c.report.Figures),
			c.report.code(), c.Text)
	}
}

func TestGoals(t *testing.T) {
	for _, c := range []struct {
		g            goal
		value, other float64
		met          bool
	}{
		{goal{text: "at most 25 us", value: 25}, 25, 0, true}, {goal{text: "at most 25 us", value: 25}, 25.1, 0, false},
		{atMost(1.3, "x"), 13, 10, true}, {atMost(1.3, "x"), 13.1, 10, false}, {atMost(1.3, "x"), 1, 0, false},
		{atLeast(0.8, "x"), 8, 10, true}, {atLeast(0.8, "x"), 7.9, 10, false}, {atLeast(0.8, "x"), 8, 0, false},
	} {
		if c.g.met(c.value, c.other) != c.met {
			t.Errorf("%+v", c)
		}
	}
}

// No figure of the software device can be taken for one of a GPU.
func TestSoftwareFigures(t *testing.T) {
	for _, soft := range []bool{true, false} {
		c := folder(t, nil)
		c.report.Software = soft
		c.figure(figure{Name: "a", Value: 10, Unit: "us", Other: 10, Beside: "x"}, atMost(1.3, "x"), nil)
		c.figure(figure{Name: "b", Value: 50, Unit: "us"}, goal{text: "at most 25 us", value: 25}, nil)
		c.figure(figure{Name: "c", Value: 50, Unit: "us"}, goal{}, nil)
		c.figure(figure{Name: "d"}, goal{text: "at most 25 us", value: 25}, errors.New("no such thing"))
		for i, f := range c.report.Figures {
			b, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			verdict := map[bool][]string{true: {"", "", "", ""}, false: {": met", ": missed", "", ""}}[soft][i]
			if line := f.line(); strings.Contains(line, software) != soft || !strings.HasSuffix(line, verdict) ||
				strings.Contains(string(b), `"software_device":true`) != soft ||
				soft && (f.Met != nil || strings.HasSuffix(line, "met") || strings.HasSuffix(line, "missed")) {
				t.Errorf("software %v: %s\n%s", soft, line, b)
			}
		}
		if c.report.Figures[3].Why != "no such thing" || strings.Contains(c.report.sum(), software) != soft {
			t.Errorf("%+v, %s", c.report.Figures[3], c.report.sum())
		}
	}
}

func TestCodes(t *testing.T) {
	yes, no := true, false
	passed := &partrun.Report{Parts: []partrun.Part{{Passed: true}}}
	one := &partrun.Report{Parts: []partrun.Part{{Passed: true}, {}}}
	for _, c := range []struct {
		r    report
		code int
	}{
		{report{Report: passed, Figures: []figure{{Met: &yes}, {}}}, 0},
		{report{Report: passed, Figures: []figure{{Met: &yes}, {Met: &no}}}, missed},
		{report{Report: one, Figures: []figure{{Met: &no}}}, failed},
		{report{Report: passed, Figures: []figure{{Met: &no}, {Why: "x"}}}, failed},
	} {
		if got := c.r.code(); got != c.code {
			t.Errorf("%+v: %d", c, got)
		}
	}
	for _, args := range [][]string{{"-x"}, {"word"}, {"-only", "all"}} {
		if got := run(args, new(bytes.Buffer), new(bytes.Buffer)); got != usage {
			t.Errorf("%v: %d", args, got)
		}
	}
}

func TestVisible(t *testing.T) {
	for _, c := range []struct{ set, one, two string }{{"", "", ""}, {"3", "3", "3"}, {"GPU-5,1,0", "GPU-5", "GPU-5,1"}} {
		t.Setenv("CUDA_VISIBLE_DEVICES", c.set)
		if one, two := visible(1), visible(2); one != "CUDA_VISIBLE_DEVICES="+c.one || two != "CUDA_VISIBLE_DEVICES="+c.two {
			t.Errorf("of %q: %s, %s", c.set, one, two)
		}
	}
	os.Unsetenv("CUDA_VISIBLE_DEVICES") // Setenv puts back what was there
	if one, two := visible(1), visible(2); one != "CUDA_VISIBLE_DEVICES=0" || two != "CUDA_VISIBLE_DEVICES=0,1" {
		t.Errorf("not set: %s, %s", one, two)
	}
}

func TestAttributes(t *testing.T) {
	text := "attr: attribute 118 GPU_DIRECT_RDMA_WRITES_ORDERING = 100\nattr: VMM granularity: minimum 1\nx: attribute 1 A = 2\n"
	if got := attributes(text); len(got) != 1 || got["GPU_DIRECT_RDMA_WRITES_ORDERING"] != "100" {
		t.Error(got)
	}
}

// A part that is to move messages by one copy fails where the ranks say that they do not, and one through pinned memory
// where they do not say so. The file of a failed part has all that it has printed.
func TestMappedOrNot(t *testing.T) {
	c := folder(t, map[string]string{"gorun": `seq 1000; test $3 = mapped || echo "` + notMappedText + `: why" >&2`})
	for _, p := range []struct {
		m    mapping
		word string
		why  string
	}{
		{oneCopy, "mapped", ""}, {oneCopy, "staged", "not measured one copy: " + notMappedText + ": why"},
		{notMapped, "mapped", "did not go through pinned memory"}, {notMapped, "staged", ""}, {whatever, "staged", ""},
	} {
		_, err := c.Output(gorun(time.Minute, nil, 2, p.m, p.word))
		if (err == nil) != (p.why == "") || err != nil && !strings.Contains(err.Error(), p.why) {
			t.Errorf("%v %s: %v", p.m, p.word, err)
		}
	}
	kept, err := os.ReadFile(filepath.Join(c.Out, "gpu-check-failed-1.txt"))
	if err != nil || !strings.HasPrefix(string(kept), "GORUN_LOG=debug\ngorun -n 2 staged\n") ||
		!strings.Contains(string(kept), "\n1\n2\n3\n") {
		t.Errorf("%v\n%s", err, kept)
	}
	if files, _ := filepath.Glob(filepath.Join(c.Out, "*")); len(files) != 2 {
		t.Errorf("two parts have failed, and there are %q", files)
	}
}

// Parts of correctness that hang leave time for the figures, and a signal ends everything.
func TestTimeForFigures(t *testing.T) {
	c := folder(t, map[string]string{"gorun": `case "$*" in *--json*) ` + object + `;; *) exec sleep 600;; esac`})
	c.Until = time.Now().Add(4 * time.Second)
	c.all("")
	measured := 0
	for _, f := range c.report.Figures {
		if f.Value > 0 {
			measured++
		}
	}
	if measured < 5 {
		t.Errorf("%d figures were measured\n%s", measured, c.Text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.Ctx, c.Until = ctx, time.Now().Add(time.Minute)
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.Output(gorun(time.Minute, nil, 2, whatever, "x")); err == nil || !strings.HasPrefix(err.Error(), "a signal has ended") {
		t.Error(err)
	}
}

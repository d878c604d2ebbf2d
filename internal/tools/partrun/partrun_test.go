package partrun

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// folder has shell scripts in place of the programs.
func folder(t *testing.T, scripts map[string]string) *Runner {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &Runner{Name: "check", Self: filepath.Join(dir, "self"), Out: t.TempDir(), Text: new(bytes.Buffer),
		Ctx: t.Context(), Until: time.Now().Add(time.Minute), Report: &Report{}}
}

// A job that hangs is killed with all its processes, and when no time is left nothing is started.
func TestLimits(t *testing.T) {
	r := folder(t, map[string]string{"gorun": `echo begun; sleep 600 & wait`})
	job := Command{Limit: 300 * time.Millisecond, Args: []string{"gorun"}}
	out, err := r.Output(job)
	if err == nil || !strings.Contains(err.Error(), "it was killed after") || out != "begun\n" {
		t.Errorf("printed %q, %v", out, err)
	}
	r.Until = time.Now()
	if _, err := r.Output(job); err == nil || err.Error() != "no time was left" {
		t.Errorf("after the end: %v", err)
	}
}

// A part has passed if its program has ended well and its log is right. Each that has not has a file with its
// environment, its arguments and all that it has printed. Programs of the folder go before others, also as a job's.
func TestParts(t *testing.T) {
	r := folder(t, map[string]string{"gorun": `echo "$PART_X"; echo log $3 >&2; exec "$2"`, "true": "exit 3",
		"fine": "exit 0"})
	if err := os.WriteFile(r.Path("sh"), []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	right := func(log string) error {
		if log != "log x\n" {
			return errors.New("wrong log")
		}
		return nil
	}
	for _, c := range []struct {
		args  []string
		check func(string) error
		why   string
	}{
		{[]string{"gorun", "-n", "fine", "x"}, right, ""},
		{[]string{"gorun", "-n", "fine", "y"}, nil, ""},
		{[]string{"gorun", "-n", "fine", "y"}, right, "wrong log"},
		{[]string{"gorun", "-n", "true", "x"}, right, "exit status 3: "},
		{[]string{"sh", "-c", "exit 4"}, nil, "exit status 4: "},
		{[]string{"there-is-no-such-program"}, nil, "executable file not found"},
	} {
		r.Part("part", Command{Limit: time.Minute, Env: []string{"PART_X=1"}, Args: c.args, Check: c.check})
		if p := r.Report.Parts[len(r.Report.Parts)-1]; p.Passed != (c.why == "") || !strings.Contains(p.Why, c.why) {
			t.Errorf("%q: %+v, want %q", c.args, p, c.why)
		}
	}
	kept, err := os.ReadFile(filepath.Join(r.Out, "check-failed-2.txt"))
	if want := "PART_X=1\ngorun -n true x\nexit status 3\n\n1\n\nlog x\n"; err != nil || string(kept) != want {
		t.Errorf("%v, %q, want %q", err, kept, want)
	}
	if sum := r.Report.Sum(3, 1); strings.Count(sum, "FAILED: part\n") != 4 ||
		!strings.HasSuffix(sum, "2 of 6 parts passed; 1 of 3 figures were measured") {
		t.Error(sum)
	}
}

// A check's text is printed and written, and so is its object, also where the folder is new.
func TestRun(t *testing.T) {
	o := Options{Out: filepath.Join(t.TempDir(), "new"), Limit: time.Minute}
	var stdout bytes.Buffer
	if err := o.Run("check", &stdout, func(r *Runner) any {
		r.Report.Facts["a"] = "b"
		r.PrintFacts()
		r.Passed("part", time.Second, errors.New("this\nand that"))
		return r.Report
	}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(o.Out, "check.txt"))
	b, e := os.ReadFile(filepath.Join(o.Out, "check.json"))
	var report Report
	if err := errors.Join(err, e, json.Unmarshal(b, &report)); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != string(text) || !strings.HasPrefix(string(text), "a            b\n") ||
		!strings.HasSuffix(string(text), "  FAILED\n    this\n    and that\n") {
		t.Errorf("printed %q, written %q", &stdout, text)
	}
	if report.Facts["a"] != "b" || report.Time == "" || len(report.Failed()) != 1 {
		t.Errorf("%+v", report)
	}
	o.Out = filepath.Join(o.Out, "check.txt", "x")
	if err := o.Run("check", &stdout, nil); err == nil {
		t.Error("a folder in a file")
	}
}

func TestFirstValue(t *testing.T) {
	for text, want := range map[string]float64{
		`{"values":{"Avg Latency(us)":20.5,"P50":7}}` + "\n": 20.5, `{"values":{"a":null,"b":3}}`: 3,
	} {
		if got, err := FirstValue(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "8 20.5", `{"values":{}}`, `{"values":{"a":0}}`, `{}`} {
		if got, err := FirstValue(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

package harness

import (
	"bytes"
	"encoding/json"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

// onlyObject reads what is one line with one object.
func onlyObject(t *testing.T, text []byte) map[string]any {
	t.Helper()
	if bytes.Count(text, []byte("\n")) != 1 || !bytes.HasSuffix(text, []byte("\n")) {
		t.Fatalf("not one line: %q", text)
	}
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}

func TestObject(t *testing.T) {
	var out bytes.Buffer
	o := Options{MinSize: 8, MaxSize: 8, JSON: true, Full: true, Validate: true}
	r := latency().Report(Output{W: &out, Options: o, Ranks: 2, Transport: "shm"}, Microseconds)
	err := r.Measure(func(size int64) (Result, error) {
		return Result{Size: size, PerRound: 2, Iteration: 500, Each: []int64{400, 600}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := onlyObject(t, out.Bytes())
	for key, want := range map[string]any{
		"program": "latency", "key": "Size", "size": 8.0, "ranks": 2.0, "unit": "us", "transport": "shm",
		"go": runtime.Version(),
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	values := got["values"].(map[string]any)
	for head, want := range map[string]any{
		"Avg Latency(us)": 0.25, "Min Latency(us)": 0.2, "P99 Tail Lat(us)": 0.3, "Iterations": 2.0,
		"Validation": "Pass",
	} {
		if values[head] != want {
			t.Errorf("%s is %v, want %v", head, values[head], want)
		}
	}
	if n, _ := got["cpus"].(float64); n < 1 || got["cpu"] == "" || got["kernel"] == "" {
		t.Errorf("the machine is unknown: %s", &out)
	}
	if _, known := got["commit"]; !known {
		t.Error("no commit")
	}
	if _, err := time.Parse(time.RFC3339, got["time"].(string)); err != nil {
		t.Error(err)
	}
	// A reader of the text sees the columns in their order.
	if strings.Index(out.String(), "Avg Latency") > strings.Index(out.String(), "Iterations") {
		t.Errorf("the columns are out of order: %s", &out)
	}
}

func TestObjectOfNoNumber(t *testing.T) {
	cols := []Column{{Head: `a "quoted"`}, {Head: "b"}, {Head: "c"}}
	got := string(byHeading(cols, []any{math.Inf(1), math.NaN(), 1}))
	if want := `{"a \"quoted\"":null,"b":null,"c":1}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestUnits(t *testing.T) {
	for head, want := range map[string][2]string{
		"Avg Latency(us)": {"us", "Avg Latency"}, "Bandwidth (MB/s)": {"MB/s", "Bandwidth"},
		"MB/s": {"MB/s", "MB/s"}, "Isend Overlap(%)": {"%", "Isend Overlap"},
	} {
		c := Column{Head: head}
		if c.unit() != want[0] || c.name() != want[1] {
			t.Errorf("%q: unit %q, name %q", head, c.unit(), c.name())
		}
	}
}

package mpi

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/report"
)

func readReport(t *testing.T, dir string) (r report.Report) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// traced is an event of a trace.
type traced struct {
	Ph, Name string
	ID       int
	Pid, Tid int
	Ts, Dur  float64
	Args     map[string]any
}

// The report of a program has exactly the calls and bytes of the program, by line, and the messages in its trace end
// after they have begun. The ranks are of two hosts, whose clocks are compared.
func TestReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "of", "it")
	const turns = 5
	seen := 0
	overLoop(t)(3, func(w *Comm) {
		me, n := w.Rank(), w.Size()
		next, before := (me+1)%n, (me+n-1)%n
		buf, sum := make([]int64, 100), make([]int64, 10)
		for i := range turns {
			r := ok(Irecv(w, buf, before, i))
			must(Send(w, make([]int64, 10*(me+1)), next, i))
			ok(r.Wait())
		}
		must(Allreduce(w, nil, sum, Sum))
		if me == 0 {
			ok(Recv(w, buf, 2, AnyTag))
			ok(Recv(w, buf, AnySource, 9))
		} else if me == 2 {
			must(Send(w, buf[:1], 0, 8))
			must(Ssend(w, buf[:2], 0, 9))
		}
		is(Send(w, buf, 7, 0), ErrRank)
	}, WithEnviron([]string{"GORUN_REPORT=" + dir}), func(o *options) { o.Host = func(rank int) int { return rank / 2 } },
		WithHooks(Hooks{Before: func(k *Call) {
			if k.Rank == 0 {
				seen++
			}
		}}))
	if seen != 3*turns+5 {
		t.Errorf("the program's own hooks have seen %d calls of rank 0", seen)
	}
	r := readReport(t, dir)
	want := map[string][2]int64{ // calls, bytes
		"Irecv": {15, 0}, "Wait": {15, turns * 8 * 60}, "Allreduce": {3, 3 * 80}, "Recv": {2, 24}, "Ssend": {1, 16},
		"Send": {15 + 1 + 3, turns*8*60 + 8},
	}
	got := map[string][2]int64{}
	for _, s := range r.Sites {
		got[s.Op] = [2]int64{got[s.Op][0] + s.Calls, got[s.Op][1] + s.Bytes}
		if !strings.Contains(s.Func, ".TestReport.") || filepath.Base(s.File) != "report_test.go" || s.Line == 0 {
			t.Errorf("%s was called by %s at %s:%d", s.Op, s.Func, s.File, s.Line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the operations are %v", got)
	}
	for op, n := range want {
		if got[op] != n {
			t.Errorf("%s: %d calls and bytes, want %d", op, got[op], n)
		}
	}
	matrix := map[[2]int][2]int64{}
	for _, c := range r.Matrix {
		matrix[[2]int{c.From, c.To}] = [2]int64{c.Messages, c.Bytes}
	}
	for k, want := range map[[2]int][2]int64{{0, 1}: {5, 400}, {1, 2}: {5, 800}, {2, 0}: {7, 1200 + 24}} {
		if matrix[k] != want || len(matrix) != 3 {
			t.Errorf("%v: %v, want %v", k, matrix, want)
		}
	}
	if len(r.Ranks) != 3 || r.Ranks[1].Calls != 3*turns+2 || r.Ranks[1].InCalls <= 0 || r.Timeline.Arrows != 17 ||
		r.Timeline.Strange != 0 || r.Timeline.Unkept != 0 {
		t.Errorf("ranks %+v, timeline %+v", r.Ranks, r.Timeline)
	}
	checkTrace(t, dir, 17)
}

// checkTrace checks that a trace can be parsed, and that each of its messages ends after it has begun.
func checkTrace(t *testing.T, dir string, messages int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "trace.json"))
	var trace struct{ TraceEvents []traced }
	if err == nil {
		err = json.Unmarshal(b, &trace)
	}
	if err != nil {
		t.Fatal(err)
	}
	began := map[int]float64{}
	ended := 0
	for _, e := range trace.TraceEvents {
		switch e.Ph {
		case "s":
			began[e.ID] = e.Ts
		case "f":
			at, known := began[e.ID]
			if ended++; !known || e.Ts < at {
				t.Errorf("message %d ends at %v, and begins at %v (%v)", e.ID, e.Ts, at, known)
			}
		}
	}
	if ended != messages || len(began) != messages {
		t.Errorf("%d messages begin and %d end in the trace, want %d", len(began), ended, messages)
	}
}

func init() {
	roles["report"] = func() error {
		Main(func(ctx context.Context, w *Comm) error { return Barrier(w) })
		return nil
	}
}

// Main reports too, and a report that cannot be written ends no program.
func TestReportOfMain(t *testing.T) {
	dir := t.TempDir()
	reexec(t, "report", "GORUN_REPORT="+dir)
	if r := readReport(t, dir); len(r.Sites) != 1 || r.Sites[0].Op != "Barrier" || r.Sites[0].Calls != 1 {
		t.Errorf("the report has %+v", r.Sites)
	}
	if out := reexec(t, "report", "GORUN_REPORT=/dev/null/x"); !strings.Contains(out, "no report in /dev/null/x") {
		t.Errorf("it says %q", out)
	}
}

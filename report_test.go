package mpi

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	var moved, bytes int64
	for _, row := range r.Transports {
		moved, bytes = moved+row.Messages, bytes+row.Bytes
		if row.Transport != "loop" {
			t.Errorf("messages have gone by %q", row.Transport)
		}
	}
	if moved != 17 || bytes != 400+800+1224 {
		t.Errorf("by transport there are %+v", r.Transports)
	}
	if a := r.Algorithms; len(a) != 1 || a[0].Op != "allreduce" || a[0].From != 80 || a[0].To != 80 || a[0].Ranks != 3 {
		t.Errorf("the algorithms are %+v", a)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || !strings.Contains(string(page), `"program":"`+filepath.Base(os.Args[0])) {
		t.Errorf("the page does not name the program: %v", err)
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

// The times of a report are the ranks' own: of calls, of waiting in them and of computing.
func TestTimesOfReport(t *testing.T) {
	var off []string
	for range 20 { // a rank that loses its processor between the looks at two clocks has two times
		if off = timesOff(t, 300*time.Millisecond); len(off) == 0 {
			return
		}
	}
	t.Error(strings.Join(off, "\n"))
}

// timesOff has ranks wait for others that come late by so much, and measure that. It returns the times of the report
// that differ by more than a twentieth.
func timesOff(t *testing.T, late time.Duration) (off []string) {
	t.Helper()
	const n = 3
	dir := t.TempDir()
	var all [n]time.Duration
	var took [n]map[string]time.Duration // by call
	var began [n]map[string]time.Time
	overLoop(t)(n, func(w *Comm) {
		me, buf, begin := w.Rank(), []byte{0}, time.Now()
		took[me], began[me] = map[string]time.Duration{}, map[string]time.Time{}
		call := func(name string, f func() error) {
			at := time.Now()
			must(f())
			took[me][name], began[me][name] = time.Since(at), at
		}
		switch me {
		case 0:
			call("Recv", func() error { return second(Recv(w, buf, 1, 1)) })
			time.Sleep(late)
			call("Recv again", func() error { return second(Recv(w, buf, 1, 2)) })
		case 1:
			time.Sleep(late)
			call("Send", func() error { return Send(w, buf, 0, 1) })
			call("Ssend", func() error { return Ssend(w, buf, 0, 2) })
		case 2:
			time.Sleep(3 * late)
		}
		call("Barrier", func() error { return Barrier(w) })
		all[me] = time.Since(begin)
	}, WithEnviron([]string{"GORUN_REPORT=" + dir}), onHosts(func(rank int) int { return rank / 2 }))
	r := readReport(t, dir)
	compare := func(what string, got int64, want time.Duration) {
		if d := time.Duration(got) - want; d.Abs() > want/20 {
			off = append(off, fmt.Sprintf("%s: %v in the report, %v as the ranks say", what, time.Duration(got), want))
		}
	}
	for rank, row := range r.Ranks {
		var calls time.Duration
		for _, d := range took[rank] {
			calls += d
		}
		compare(fmt.Sprintf("rank %d computes", rank), row.Computing, all[rank]-calls)
		if rank != 2 { // which waits for no rank
			compare(fmt.Sprintf("rank %d is in calls", rank), row.InCalls, calls)
		}
	}
	times, waits := map[string]int64{}, map[[2]int]int64{}
	for _, s := range r.Sites {
		times[s.Op] += s.Time
	}
	for _, w := range r.Waits {
		waits[[2]int{w.Rank, w.For}] += w.Time
	}
	compare("Recv", times["Recv"], took[0]["Recv"]+took[0]["Recv again"])
	compare("Ssend", times["Ssend"], took[1]["Ssend"])
	compare("Barrier", times["Barrier"], took[0]["Barrier"]+took[1]["Barrier"]+took[2]["Barrier"])
	sums := map[int]time.Duration{}
	for pair, want := range map[[2]int]time.Duration{
		{0, 1}: began[1]["Send"].Sub(began[0]["Recv"]),
		{1, 0}: began[0]["Recv again"].Sub(began[1]["Ssend"]),
		{0, 2}: began[2]["Barrier"].Sub(began[0]["Barrier"]),
		{1, 2}: began[2]["Barrier"].Sub(began[1]["Barrier"]),
	} {
		sums[pair[0]] += want
		compare(fmt.Sprintf("rank %d waits for %d", pair[0], pair[1]), waits[pair], want)
	}
	for rank, want := range sums {
		compare(fmt.Sprintf("rank %d waits", rank), r.Ranks[rank].Waiting, want)
	}
	return off
}

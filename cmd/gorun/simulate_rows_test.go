package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/collectives/simulate"
)

// writes keeps what each Write was given, and calls then with their number.
type writes struct {
	all  []string
	then func(n int) error
}

func (w *writes) Write(b []byte) (int, error) {
	w.all = append(w.all, string(b))
	if w.then != nil {
		if err := w.then(len(w.all)); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func sweepOf(model *simulate.Model) *simulate.Sweep {
	return &simulate.Sweep{Operations: []collectives.Operation{collectives.Allreduce, collectives.Alltoall},
		Ranks: []int{8, 64}, PerHost: 8, Bytes: []int64{8, 4096}, Model: model, Limit: 5000}
}

// Each row is written when it is done, before the next call is priced, with columns that stand below each other.
func TestSimulateRowsComeOneByOne(t *testing.T) {
	rows, left := 0, 0
	model := simulate.Cluster
	if err := sweepOf(&model).Run(func(r simulate.Row) error {
		rows++
		if r.Left != nil {
			left++
		}
		return nil
	}); err != nil || left == 0 {
		t.Fatalf("%d rows, %d left out, %v", rows, left, err)
	}
	var w writes
	if err := printRows(&w, sweepOf(&model)); err != nil {
		t.Fatal(err)
	}
	if len(w.all) != rows+1 {
		t.Errorf("%d writes for a head and %d rows", len(w.all), rows)
	}
	before := func(line, name string) int { // in characters, of which µ is one
		front, _, _ := strings.Cut(line, name)
		return utf8.RuneCountInString(front)
	}
	column := before(w.all[0], "operation:")
	for i, line := range w.all {
		if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
			t.Errorf("write %d is no line: %q", i, line)
		}
		if at := before(line, "all"); i > 0 && at != column {
			t.Errorf("the algorithm begins at %d, its head at %d:\n%s%s", at, column, w.all[0], line)
		}
	}

	// A model that becomes impossible once a row is written is met by the next call.
	w = writes{then: func(n int) error {
		if n == 3 {
			model.Host.Rate = 0
		}
		return nil
	}}
	if err := printRows(&w, sweepOf(&model)); err == nil || len(w.all) != 3 {
		t.Errorf("%v after %d writes; want an error of the call that follows on write 3", err, len(w.all))
	}

	// The sweep prices nothing once its reader has gone.
	model = simulate.Cluster
	closed := errors.New("closed")
	w = writes{then: func(n int) error {
		if n == 2 {
			return closed
		}
		return nil
	}}
	if err := printRows(&w, sweepOf(&model)); !errors.Is(err, closed) || len(w.all) != 2 {
		t.Errorf("%v after %d writes, want %v after 2", err, len(w.all), closed)
	}
}

// latencyLines are what benchmarks/latency prints on a machine where a message takes that many microseconds.
func latencyLines(t *testing.T, us ...float64) (path string) {
	t.Helper()
	var text strings.Builder
	for i, v := range us {
		fmt.Fprintf(&text, `{"program":"latency","size":%d,"ranks":2,"per_host":1,"transport":"tcp",`+
			`"values":{"Avg Latency(us)":%v}}`+"\n", int64(1)<<i, v)
	}
	path = filepath.Join(t.TempDir(), "latency.json")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A message of benchmarks/latency is called that, and not the broadcast that it is priced as.
func TestSimulateLatencyLabel(t *testing.T) {
	text, err := runSimulate(t, "--check", latencyLines(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "\nlatency ") || !strings.Contains(text, "message 2 ×") ||
		strings.Contains(text, "bcast") || strings.Contains(text, "binomial") {
		t.Errorf("a measured latency:\n%s", text)
	}
}

// A fit that says nothing of the machine is told, and is not saved.
func TestSimulateFitNotWorthIt(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "here.json")
	many := func(us func(i int) float64) (all []float64) {
		for i := range 20 {
			all = append(all, us(i))
		}
		return all
	}
	for name, c := range map[string]struct{ file, want string }{
		// Two numbers of a message are behind one time.
		"few calls": {latencyLines(t, 30), "1 measured call does not determine"},
		// Nothing in the model takes so little.
		"impossible": {latencyLines(t, many(func(int) float64 { return 1e-4 })...), "as much as where the fit began"},
		// Times that are noise.
		"noise": {latencyLines(t, many(func(i int) float64 { return []float64{1, 1000}[i%2] })...), "are off by more than 30 %"},
	} {
		text, err := runSimulate(t, "--model", "ethernet", "--fit", c.file, "--save", saved)
		if err == nil || !strings.Contains(err.Error(), "is not saved") || !strings.Contains(err.Error(), "--model") {
			t.Errorf("%s: the error is %v", name, err)
		}
		if !strings.Contains(text, "warning: ") || !strings.Contains(text, c.want) {
			t.Errorf("%s: no warning of %q:\n%s", name, c.want, text)
		}
		if _, err := os.Stat(saved); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s: a model has been saved, %v", name, err)
		}
		if _, err := runSimulate(t, "--model", "ethernet", "--fit", c.file); err != nil {
			t.Errorf("%s, not saved: %v", name, err)
		}
	}
	// The model's own times: it is as good as a fit can be.
	text, err := runSimulate(t, "--model", "testbed", "--fit", measuredLines(t, 1), "--save", saved)
	if err == nil || !strings.Contains(text, "no nearer") {
		t.Errorf("%v: a fit to a model's own times:\n%s", err, text)
	}
}

// Progress is told of each call that is priced, in order, and again while a long one is.
func TestSimulateProgressOfCalls(t *testing.T) {
	s := sweepOf(&simulate.Cluster)
	s.Operations, s.Ranks, s.Bytes, s.Limit = s.Operations[:1], []int{8, 512}, []int64{64}, 600_000
	var last simulate.Progress
	began, within, rows := 0, 0, 0
	s.Progress = func(p simulate.Progress) {
		switch {
		case p.Sent == 0 && p.Row == last.Row+1:
			began++
		case p.Sent > last.Sent && p.Row == last.Row && p.Sent <= int64(2*p.Of):
			within++
		default:
			t.Errorf("%+v follows on %+v", p, last)
		}
		last = p
	}
	if err := s.Run(func(r simulate.Row) error {
		if rows++; r.Algorithm != last.Algorithm || rows != last.Row {
			t.Errorf("row %d is %v, after %+v", rows, r.Algorithm, last)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if began != rows || within == 0 || last.Rows != rows {
		t.Errorf("%d calls have begun and %d are seen on the way, of %d; the last was %+v", began, within, rows, last)
	}
}

// On a terminal one line changes, and is gone before a row comes; elsewhere there are lines, after seconds.
func TestSimulateProgressShown(t *testing.T) {
	clock := time.Unix(0, 0)
	var w, rows writes
	doubling, err := collectives.Find(collectives.Allreduce, "doubling")
	if err != nil {
		t.Fatal(err)
	}
	step := simulate.Progress{Row: 2, Rows: 9, Algorithm: doubling, Ranks: 1 << 20, Bytes: 8, Sent: 12_300_000, Of: 21_000_000}
	elsewhere := &simulateProgress{to: &w, now: func() time.Time { return clock }}
	elsewhere.next = clock.Add(elsewhere.every())
	for range 60 { // half a minute
		elsewhere.show(step)
		if _, err := (clearFirst{elsewhere, &rows}).Write([]byte("row\n")); err != nil {
			t.Fatal(err)
		}
		clock = clock.Add(500 * time.Millisecond)
	}
	const text = "call 2 of 9: allreduce:doubling, 1048576 ranks, 8 bytes, 12.3M messages of about 21M"
	if len(w.all) != 2 || w.all[0] != "gorun simulate: "+text+"\n" || len(rows.all) != 60 {
		t.Errorf("in 30 s there were %q, and %d rows", w.all, len(rows.all))
	}
	for _, width := range []int{200, 40} {
		w.all, rows.all = nil, nil
		terminal := &simulateProgress{to: &w, now: func() time.Time { return clock }, width: func() int { return width }}
		for range 10 {
			terminal.show(step)
			clock = clock.Add(100 * time.Millisecond)
		}
		terminal.clear()
		terminal.clear()
		line := "\r" + text[:min(len(text), width-1)] + "\x1b[K"
		if want := []string{line, line, line, line, "\r\x1b[K"}; !slices.Equal(w.all, want) {
			t.Errorf("a terminal of %d columns gets %q, want %q", width, w.all, want)
		}
	}
}

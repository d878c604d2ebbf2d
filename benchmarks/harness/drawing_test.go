package harness

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// drawingOf is what a report of made-up results hands to be drawn.
func drawingOf(t *testing.T, o Options, sizes []int64) (d Drawing) {
	t.Helper()
	o.Plot = "a.svg"
	p := latency()
	p.Draw = func(path string, drawing Drawing) error {
		d = drawing
		if path != "a.svg" {
			t.Errorf("drawn to %q", path)
		}
		return nil
	}
	r := p.Report(Output{W: io.Discard, Options: o, Ranks: 2, Transport: "shm"}, Microseconds)
	err := r.Run(sizes, func(size int64) ([]any, error) {
		ns := 1000 * size
		return r.values(Result{Size: size, PerRound: 1, Iteration: float64(ns), Each: []int64{ns, 2 * ns, 4 * ns}}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDrawing(t *testing.T) {
	d := drawingOf(t, Options{Validate: true}, []int64{1, 2, 4})
	facts := d.Facts
	d.Facts = ""
	want := Drawing{
		Title: "OSU MPI Latency Test (gorun), 2 ranks", X: "message size (bytes)", Y: "Avg Latency (µs)",
		Keys: []int64{1, 2, 4}, Curves: []Curve{{"Avg Latency", []float64{1, 2, 4}}},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, want %+v", d, want)
	}
	if !strings.HasSuffix(facts, " · shm") && !strings.Contains(facts, " · shm · ") {
		t.Errorf("the facts are %q", facts)
	}
}

func TestDrawingOfFullHasABand(t *testing.T) {
	d := drawingOf(t, Options{Full: true}, []int64{1, 8})
	want := []Curve{{"P50 Tail Lat", []float64{2, 16}}, {"P99 Tail Lat", []float64{4, 32}}}
	if !reflect.DeepEqual(d.Band, want) || len(d.Curves) != 1 {
		t.Errorf("%+v, want the band %+v", d, want)
	}
}

func TestDrawingOfManyColumns(t *testing.T) {
	var d Drawing
	p := Program{Title: "T", Draw: func(_ string, drawing Drawing) error { d = drawing; return nil }}
	table := p.Table(Output{W: io.Discard, Options: Options{Plot: "a.svg"}}, "", "Queue",
		Column{Head: "A(us)"}, Column{Head: "Share(%)"}, Column{Head: "D(us)"})
	if err := table.Run([]int64{10}, func(key int64) ([]any, error) { return []any{1.0, 2.0, 3.0}, nil }); err != nil {
		t.Fatal(err)
	}
	if len(d.Curves) != 2 || d.Curves[1].Name != "D" || d.X != "queue length" || d.Y != "µs" {
		t.Errorf("%+v", d)
	}
}

func TestCheckWritable(t *testing.T) {
	dir := t.TempDir()
	fresh, old := filepath.Join(dir, "new.svg"), filepath.Join(dir, "old.svg")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fresh, old} {
		if err := CheckWritable(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(fresh); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the check left a file: %v", err)
	}
	if b, _ := os.ReadFile(old); string(b) != "old" {
		t.Errorf("the check spoiled a file: %q", b)
	}
	for _, path := range []string{filepath.Join(dir, "no", "x.svg"), dir} {
		if err := CheckWritable(path); err == nil {
			t.Errorf("%s passes", path)
		}
	}
}

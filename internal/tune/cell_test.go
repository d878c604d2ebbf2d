package tune

import (
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
)

// cell makes a cell whose rounds have the given times: of the table's choice twice, then of shared and of ring.
func cell(bytes int64, table, again, shared, ring []float64) Cell {
	return Cell{"bcast", bytes, "direct", []Times{{"direct", table}, {"direct", again}, {"shared", shared},
		{"ring", ring}}}
}

func rounds(n int, v float64) []float64 { return slices.Repeat([]float64{v}, n) }

// A line needs 10 % in two thirds of the rounds and in their median, against each of the table's two times.
func TestBest(t *testing.T) {
	for name, c := range map[string]struct {
		cell Cell
		want string
	}{
		"better":      {cell(1, rounds(6, 10), rounds(6, 10), rounds(6, 8.9), rounds(6, 11)), "shared"},
		"best of two": {cell(1, rounds(6, 10), rounds(6, 10), rounds(6, 8.9), rounds(6, 7)), "ring"},
		"too little":  {cell(1, rounds(6, 10), rounds(6, 10), rounds(6, 9.1), rounds(6, 10)), ""},
		"not often enough": {cell(1, rounds(6, 10), rounds(6, 10), append(rounds(3, 1), rounds(3, 10)...),
			rounds(6, 10)), ""},
		"often enough": {cell(1, rounds(6, 10), rounds(6, 10), append(rounds(4, 8), rounds(2, 50)...),
			rounds(6, 10)), "shared"},
		"noise": {cell(1, rounds(6, 10), rounds(6, 20), rounds(6, 9.5), rounds(6, 10)), ""},
	} {
		if g, ok := c.cell.best(); ok != (c.want != "") || g.To != c.want {
			t.Errorf("%s: %+v", name, g)
		}
	}
	c := cell(1, rounds(5, 10), rounds(5, 12), nil, nil)
	if n := c.Noise(); n < 0.19 || n > 0.21 {
		t.Errorf("the noise of times of 10 and 12 is %v", n)
	}
}

// What has won in one pass only is left out.
func TestGains(t *testing.T) {
	won := func(bytes int64) Cell { return cell(bytes, rounds(5, 10), rounds(5, 10), rounds(5, 5), rounds(5, 10)) }
	lost := func(bytes int64) Cell { return cell(bytes, rounds(5, 10), rounds(5, 10), rounds(5, 10), rounds(5, 10)) }
	less := cell(1, rounds(5, 20), rounds(5, 20), rounds(5, 16), rounds(5, 20))
	for _, passes := range [][2][]Cell{{{won(1)}, {less}}, {{less}, {won(1)}}} {
		g, _ := Gains(passes[0], passes[1])
		if len(g) != 1 || g[0].Ratio != 0.8 || g[0].Table != 20 || g[0].Tuned != 16 {
			t.Errorf("the pass that gains less: %+v", g)
		}
	}
	gains, noisy := Gains([]Cell{won(1), won(2), lost(4)}, []Cell{won(1), lost(2), won(4)})
	if len(noisy) != 0 || len(gains) != 1 || gains[0].Bytes != 1 || gains[0].To != "shared" ||
		gains[0].From != "direct" || gains[0].Ratio != 0.5 {
		t.Errorf("%+v", gains)
	}
}

// A gain that is smaller than the noise of its cell, in either pass, is left alone and named.
func TestNoisyGains(t *testing.T) {
	won := cell(1, rounds(5, 10), rounds(5, 10), rounds(5, 5), rounds(5, 10))
	noisy := cell(1, rounds(5, 10), rounds(5, 13), rounds(5, 8.5), rounds(5, 20)) // 0.74 of the mean, and 30 % of noise
	quiet := cell(1, rounds(5, 10), rounds(5, 12), rounds(5, 8.5), rounds(5, 20)) // 0.77, and 20 %
	for name, c := range map[string]struct {
		first, second []Cell
		gains, noisy  int
	}{
		"first":       {[]Cell{noisy}, nil, 0, 1},
		"second":      {[]Cell{won}, []Cell{noisy}, 0, 1},
		"neither":     {[]Cell{quiet}, []Cell{won}, 1, 0},
		"no time":     {[]Cell{won}, nil, 0, 1},
		"first alone": {[]Cell{noisy}, []Cell{won}, 0, 1},
	} {
		gains, left := Gains(c.first, c.second)
		if len(gains) != c.gains || len(left) != c.noisy {
			t.Errorf("%s: gains %+v, noisy %+v", name, gains, left)
		}
		for _, g := range left {
			if name == "no time" {
				continue // it is quiet, and not sure
			}
			if g.To != "shared" || g.Noise < 0.29 || g.Noise > 0.31 || g.Ratio < 0.73 || g.Ratio > 0.75 {
				t.Errorf("%s: %+v", name, g)
			}
		}
	}
}

// Neighbours with one winner are one line, and the next line begins where a line ends if no cell is between.
func TestLines(t *testing.T) {
	var first []Cell
	for _, o := range []string{"bcast", "reduce"} {
		for n := int64(1); n <= 32; n *= 2 {
			first = append(first, Cell{Operation: o, Bytes: n})
		}
	}
	gains := []Gain{{Operation: "bcast", Bytes: 1, To: "a"}, {Operation: "bcast", Bytes: 2, To: "a"},
		{Operation: "bcast", Bytes: 4, To: "b"}, {Operation: "bcast", Bytes: 16, To: "b"},
		{Operation: "bcast", Bytes: 32, To: "a"}, {Operation: "reduce", Bytes: 1, To: "a"}}
	line := func(o string, least, most int64, a string) collectives.Line {
		return collectives.Line{Operation: o, LeastBytes: least, Bytes: most, LeastRanks: 5, Ranks: 8, Via: "shm",
			CPUs: "roomy", Algorithm: a}
	}
	want := []collectives.Line{line("bcast", 1, 3, "a"), line("bcast", 4, 4, "b"), line("bcast", 16, 31, "b"),
		line("bcast", 32, 32, "a"), line("reduce", 1, 1, "a")}
	if got := Lines(first, gains, 8, "shm", "roomy"); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// A limit is written if it gains 5 % of all times in most rounds, and loses at no point as much as a line has to gain.
func TestEager(t *testing.T) {
	run := func(limit int64, small, large float64) EagerRun {
		return EagerRun{limit, []Point{{"latency", 1, small}, {"window", 2, large}}}
	}
	round := func(a, b EagerRun) []EagerRun { return []EagerRun{run(0, 10, 10), a, run(0, 10, 10), b} }
	for name, c := range map[string]struct {
		rounds [][]EagerRun
		want   int64
	}{
		"none":          {nil, 0},
		"better":        {slices.Repeat([][]EagerRun{round(run(4, 9, 9), run(8, 10, 10))}, 3), 4},
		"best":          {slices.Repeat([][]EagerRun{round(run(4, 9, 9), run(8, 8, 9))}, 3), 8},
		"too little":    {slices.Repeat([][]EagerRun{round(run(4, 9.6, 9.6), run(8, 10, 10))}, 3), 0},
		"loses a point": {slices.Repeat([][]EagerRun{round(run(4, 5, 12), run(8, 10, 10))}, 3), 0},
		"once": {[][]EagerRun{round(run(4, 1, 1), run(8, 10, 10)), round(run(4, 10, 10), run(8, 10, 10)),
			round(run(4, 10, 10), run(8, 10, 10))}, 0},
	} {
		if g, _, ok := Eager(c.rounds); g.Limit != c.want || ok != (c.want != 0) {
			t.Errorf("%s: %+v %v", name, g, ok)
		}
	}
}

// The time is divided so that each run has the same, and a run that is far too slow has none.
func TestDivide(t *testing.T) {
	decided := make([]float64, 5)
	divide(decided, []float64{1e-3, 2e-3, 1e-4, 7e-3}, 1)
	if r := decided[0]; r != mostRounds || decided[4] != 0 || decided[1] != 13 || decided[2] != 6 || decided[3] != 133 {
		t.Errorf("%v", decided)
	}
	divide(decided, []float64{1, 1, 1, 1}, -1)
	if decided[0] != leastRounds || slices.Max(decided[1:]) != 1 {
		t.Errorf("without time: %v", decided)
	}
}

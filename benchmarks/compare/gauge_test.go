package main

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestSteady(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		gauges []float64
		want   bool
	}{
		{[]float64{0.035, 0.05, 0.036}, true},
		{[]float64{0.04, 0.06}, true}, // 1.5 is within
		{[]float64{0.035, 0.07}, false},
		{[]float64{0.28, 0.035, 0.28}, false},
		{[]float64{0.07}, true},
		{nil, false},
		{[]float64{0, 0}, false},
		{[]float64{0.035, 0}, false},
		{[]float64{-1, -1}, false},
		{[]float64{0.035, nan}, false},
		{[]float64{nan}, false},
		{[]float64{inf, inf}, false},
	} {
		if got := steady(c.gauges...); got != c.want {
			t.Errorf("%v: %v", c.gauges, got)
		}
	}
}

func TestQuietState(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		gauges []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{0, nan, -1}, 0},
		{[]float64{0.28, 0.036, 0.07, 0.035, 0.28, 0.037}, 0.036},
		{[]float64{0.025, 0.036, 0.037, 0.036, 0.28}, 0.036}, // one reading is low
		{[]float64{0.28}, 0.28},
		{[]float64{0, 0.07, nan}, 0.07},
	} {
		if got := quietState(c.gauges); got != c.want {
			t.Errorf("%v: %v, want %v", c.gauges, got, c.want)
		}
	}
}

// gauges are the made-up gauges of a round, in ns: one before the first turn and one after each.
func gauges(list ...float64) func() float64 {
	at := 0
	return func() float64 {
		g := list[min(at, len(list)-1)] / 1e3
		at++
		return g
	}
}

// repeats is so many repetitions.
func repeats(n int) func() bool { return func() bool { n--; return n >= 0 } }

func TestUmpire(t *testing.T) {
	nan := math.NaN()
	const all = -2
	for _, c := range []struct {
		name    string
		gauges  []float64 // nil: there is none
		repeats int
		fails   int   // a library that has no turn
		played  []int // libraries, in this order
		kept    []int
		thrown  int
	}{
		{"quiet", []float64{35, 36, 35, 37}, 6, -1, []int{0, 1, 2}, []int{0, 1, 2}, 0},
		{"far all the time", []float64{280, 270, 290, 280}, 6, -1, []int{0, 1, 2}, []int{0, 1, 2}, 0},
		{"no gauge", nil, 0, -1, []int{0, 1, 2}, []int{0, 1, 2}, 0},
		{"no gauge, one fails", nil, 0, 0, []int{0, 1, 2}, []int{1, 2}, 0},
		{"a library fails", []float64{35, 35, 35, 35}, 6, 1, []int{0, 1, 2}, []int{0, 2}, 0},
		{"changed under a turn", []float64{35, 35, 70, 70, 70, 70, 70}, 6, -1,
			[]int{0, 1, 2, 0, 1}, []int{0, 1, 2}, 2},
		{"changed, then far", []float64{35, 70, 70, 70, 70}, 6, -1, []int{0, 1, 2, 0}, []int{0, 1, 2}, 1},
		{"changed and came back", []float64{35, 35, 70, 35, 35, 35, 35}, 6, -1,
			[]int{0, 1, 2, 1, 2}, []int{0, 1, 2}, 2},
		{"to and fro", []float64{35, 35, 280, 280, 280, 35, 35, 35}, 6, -1,
			[]int{0, 1, 2, 0, 1, 1, 2}, []int{0, 1, 2}, 4},
		{"changed, nothing is repeated", []float64{35, 35, 70, 70}, 0, -1, []int{0, 1, 2}, []int{2}, 2},
		{"most are far, nothing is repeated", []float64{35, 35, 35, 70, 70}, 0, -1, []int{0, 1, 2}, []int{0, 1}, 1},
		{"a slow drift", []float64{35, 45, 50, 60, 60, 60}, 6, -1, []int{0, 1, 2, 0}, []int{0, 1, 2}, 1},
		{"never steady", []float64{35, 70, 35, 70, 35, 70, 35, 70, 35, 70}, 4, -1,
			[]int{0, 1, 2, 0, 0, 0, 0}, nil, 7},
		{"zeros", []float64{0}, 2, -1, []int{0, 1, 2, 0, 0}, nil, 5},
		{"no number", []float64{nan}, 1, -1, []int{0, 1, 2, 0}, nil, 4},
		{"all fail", []float64{35}, 6, all, []int{0, 1, 2}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var played, kept []int
			u := turns{repeat: repeats(c.repeats), play: func(library int) ([]line, bool) {
				played = append(played, library)
				return []line{{8, []float64{float64(library)}}}, library != c.fails && c.fails != all
			}}
			if c.gauges != nil {
				u.gauge = gauges(c.gauges...)
			}
			turns, thrown := u.round(turnOrder(3, 0))
			var gauges []float64
			for library := range 3 {
				if turn, ok := turns[library]; ok {
					kept, gauges = append(kept, library), append(gauges, turn.gauge[:]...)
				}
			}
			if !reflect.DeepEqual(played, c.played) || !reflect.DeepEqual(kept, c.kept) || thrown != c.thrown {
				t.Errorf("played %v, want %v; kept %v, want %v; thrown out %d, want %d",
					played, c.played, kept, c.kept, thrown, c.thrown)
			}
			if c.gauges != nil && len(kept) > 0 && !steady(gauges...) {
				t.Errorf("turns of two states are kept: %v", gauges)
			}
		})
	}
}

func TestTurnsAlternate(t *testing.T) {
	for round, want := range [][]int{{0, 1, 2}, {2, 1, 0}, {0, 1, 2}} {
		if got := turnOrder(3, round); !reflect.DeepEqual(got, want) {
			t.Errorf("round %d: %v", round, got)
		}
	}
}

// Repetitions end with the time to spare, and with their number in a round.
func TestRepeats(t *testing.T) {
	m := measurement{seconds: 6, runs: make([]arguments, 2)} // a second for each turn of three libraries
	for spare, want := range map[float64]int{100: 6, 2.5: 2, 0: 0} {
		again := (&session{estimate: &estimate{spare: spare}}).repeats(&m, 3)
		got := 0
		for range 20 {
			if again() {
				got++
			}
		}
		if got != want {
			t.Errorf("%v s to spare: %d repetitions, want %d", spare, got, want)
		}
	}
}

// of makes a result of one run whose only line is 8: the numbers of each library, NaN where a turn does not count.
func of(gauges []float64, values ...[]float64) *result {
	r := &result{Name: "latency", Rounds: len(gauges), Near: 0.035}
	r.Library = []string{gorun, openMPI, mpich}[:len(values)]
	s := samples{Commands: r.Library, Failed: make([]string, len(values)), Rounds: make([][][]line, len(values))}
	for round, g := range gauges {
		turns := make(map[int]turn)
		for library := range values {
			if v := values[library][round]; !math.IsNaN(v) {
				turns[library] = turn{library, []line{{8, []float64{v}}}, [2]float64{g, g}}
			}
		}
		if len(turns) == 0 { // as add leaves such a round out
			continue
		}
		s.add(turns, 0)
	}
	r.Runs = []samples{s}
	return r
}

func TestPairedRatios(t *testing.T) {
	nan := math.NaN()
	const near, far = 0.035, 0.28
	for _, c := range []struct {
		name           string
		gauges         []float64
		values         [][]float64
		higher         bool
		peer, peerNear float64
	}{
		{"the machine wanders and the ratio does not", []float64{near, far, near}, [][]float64{{1, 3, 1}, {2, 6, 2}},
			false, 0.5, 0.5},
		{"one round is odd", []float64{near, near, near}, [][]float64{{1, 9, 1}, {2, 2, 2}}, false, 0.5, 0.5},
		{"the best peer is the one that ours looks worst with", []float64{near, near},
			[][]float64{{1, 1}, {4, 4}, {2, 2}}, false, 0.5, 0.5},
		{"the same where more is better", []float64{near, near}, [][]float64{{8, 8}, {4, 4}, {2, 2}}, true, 2, 2},
		{"unpaired numbers have no ratio", []float64{near, near}, [][]float64{{1, nan}, {nan, 2}}, false, nan, nan},
		{"a missing round of one peer", []float64{near, near, far}, [][]float64{{1, 1, 1}, {2, 2, 2}, {nan, nan, 4}},
			false, 0.5, 0.5},
		{"a peer that failed", []float64{near}, [][]float64{{1}, {2}, {nan}}, false, 0.5, 0.5},
		{"ours failed", []float64{near}, [][]float64{{nan}, {2}, {3}}, false, nan, nan},
		{"no quiet round", []float64{far, far}, [][]float64{{1, 1}, {2, 2}}, false, 0.5, nan},
		{"near differs from all", []float64{near, far, far}, [][]float64{{1, 3, 3}, {2, 3, 3}}, false, 1, 0.5},
		{"ours is zero", []float64{near}, [][]float64{{0}, {2}}, false, 0, 0},
		{"theirs is zero", []float64{near}, [][]float64{{1}, {0}}, false, nan, nan},
		{"one of theirs is zero once", []float64{near, near}, [][]float64{{1, 1}, {0, 2}}, false, 0.5, 0.5},
		{"all is zero", []float64{near}, [][]float64{{0}, {0}, {0}}, true, nan, nan},
		{"an even number of rounds", []float64{near, near}, [][]float64{{1, 3}, {2, 2}}, false, 1, 1},
	} {
		rows := of(c.gauges, c.values...).rows(column{field: 1, higher: c.higher})
		if len(rows) != 1 {
			t.Errorf("%s: %d rows", c.name, len(rows))
			continue
		}
		same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
		if got := rows[0]; !same(got.peer, c.peer) || !same(got.peerNear, c.peerNear) {
			t.Errorf("%s: %v, near %v; want %v, %v", c.name, got.peer, got.peerNear, c.peer, c.peerNear)
		}
	}
}

// Nothing but failures, or rounds that were all thrown out, are pages all the same.
func TestPagesOfNothing(t *testing.T) {
	_, m := known()
	none := of(nil, nil, nil, nil)
	none.Runs[0].Thrown = 12
	if none.empty() {
		t.Error("what was thrown out was tried")
	}
	page := none.page(m)
	if !strings.Contains(page, "Rounds: 0") || strings.Contains(page, "NaN") {
		t.Errorf("all was thrown out:\n%s", page)
	}
	for i := range none.Runs[0].Failed {
		none.Runs[0].Failed[i] = "did not end within 20s"
	}
	none.Runs[0].Key = 8
	if page := none.page(m); !strings.Contains(page, "| 8 | failed | failed | failed | – |") {
		t.Errorf("all have failed:\n%s", page)
	}
}

// What several runs of one turn print is one number of that turn.
func TestSeveralRunsOfATurn(t *testing.T) {
	r := of([]float64{0.035}, []float64{1}, []float64{2})
	r.Runs[0].Times = 3
	r.Runs[0].Rounds[0][0] = []line{{8, []float64{1}}, {8, []float64{100}}, {8, []float64{3}}}
	if got := r.series(8, 1).values; fmt.Sprint(got) != "[[3] [2]]" {
		t.Errorf("%v", got)
	}
	if left, all := r.Runs[0].leftOut(1); left != 2 || all != 3 {
		t.Errorf("%d of %d are left out", left, all)
	}
}

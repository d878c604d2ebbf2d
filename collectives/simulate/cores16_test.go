package simulate

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
)

// onCores16 is what was measured on 16 cores of the algorithms that have schedules.
func onCores16(t testing.TB) (all []Measured) {
	t.Helper()
	text, err := os.ReadFile("../testdata/cores16.txt")
	if err != nil {
		t.Fatal(err)
	}
	between := algorithm(t, collectives.Barrier, "dissemination")
	var o collectives.Operation
	var ranks int
	var sizes []string
	for line := range strings.Lines(string(text)) {
		switch f := strings.Fields(line); {
		case len(f) == 0 || f[0] == "#":
		case len(f) == 2:
			o, err = collectives.ParseOperation(f[0])
			if err != nil {
				t.Fatal(err)
			}
			ranks, _ = strconv.Atoi(f[1])
		case f[0] == "bytes":
			sizes = f[1:]
		default:
			a := algorithm(t, o, f[0])
			if a.Needs&collectives.OnBoard != 0 {
				continue
			}
			for i, us := range f[1:] {
				bytes, _ := strconv.ParseInt(sizes[i], 10, 64)
				s, err := strconv.ParseFloat(us, 64)
				if err != nil {
					t.Fatal(err)
				}
				m := Measured{Algorithm: a, Between: between, Ranks: ranks, PerHost: ranks, Bytes: bytes,
					Seconds: s / 1e6}
				if err := m.check(); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				all = append(all, m)
			}
		}
	}
	return all
}

// halves divides calls by their bytes: every second size.
func halves(runs []Measured) (one, other []Measured) {
	var sizes []int64
	for _, r := range runs {
		if !slices.Contains(sizes, r.Bytes) {
			sizes = append(sizes, r.Bytes)
		}
	}
	slices.Sort(sizes)
	for _, r := range runs {
		if slices.Index(sizes, r.Bytes)%2 == 0 {
			one = append(one, r)
		} else {
			other = append(other, r)
		}
	}
	return one, other
}

// checkOrder compares a model with calls: so many of 100 pairs at least are in the measured order, and the measured
// times of the algorithms that it calls fastest are no more than so many times the least, in 9 of 10 calls and in all.
func checkOrder(t *testing.T, what string, m *Model, runs []Measured, pairs, nine, most float64) {
	t.Helper()
	all, err := Compare(m, runs)
	if err != nil {
		t.Fatal(err)
	}
	var lost []float64
	for _, c := range all {
		lost = append(lost, c.Loss)
	}
	slices.Sort(lost)
	v, n := Sum(all), len(lost)
	t.Logf("%s: %d of %d pairs in order (%.1f %%), %d of %d times within 30 %%, %d of %d choices; "+
		"times of the model's choices: median %.2f, 9 of 10 up to %.2f, most %.2f of the least", what, v.Agree, v.Pairs,
		100*float64(v.Agree)/float64(v.Pairs), v.Near, v.Runs, v.Right, v.Choices, lost[n/2], lost[n*9/10], lost[n-1])
	if 100*float64(v.Agree) < pairs*float64(v.Pairs) {
		t.Errorf("%s: %d of %d pairs are in the measured order; want %v %%", what, v.Agree, v.Pairs, pairs)
	}
	if lost[n*9/10] > nine || lost[n-1] > most {
		t.Errorf("%s: 9 of 10 choices take up to %v, and one %v of the least time; want %v and %v", what, lost[n*9/10],
			lost[n-1], nine, most)
	}
}

// The model of ranks with a core each has their algorithms in the order in which they were measured on 16 cores. An
// interpolation of each algorithm's own times between the next smaller and greater size has 94.7 % of these pairs in
// order: the rest is noise of single runs.
func TestOrderOnCores16(t *testing.T) {
	runs := onCores16(t)
	checkOrder(t, "roomy", &Roomy, runs, 88, 1.25, 3.5)
	if testing.Short() {
		return
	}
	start := Testbed
	start.Cores, start.OneMachine = 16, false
	one, other := halves(runs)
	fitted, _, err := Fit(start, one)
	if err != nil {
		t.Fatal(err)
	}
	checkOrder(t, "fitted to every second size", &fitted, one, 86, 1.3, 3.5)
	checkOrder(t, "the other sizes", &fitted, other, 86, 1.3, 3.5)
}

package tune

import (
	"cmp"
	"math"
	"slices"

	"github.com/gorun-mpi/mpi/collectives"
)

// tables is how often the table's choice is measured in a round.
const tables = 2

// A line is written for an algorithm that takes at most this part of the table's time, in so many of the rounds and in
// the median of all, in each of two passes. An eager limit has to gain less: it is one number for all sizes.
const (
	collectiveGain = 0.90
	eagerGain      = 0.95
	oftenEnough    = 2.0 / 3
)

// Cell is what was measured of one operation and size, in one pass. Rank 0 prints it as a line of JSON.
type Cell struct {
	Operation string  `json:"operation"`
	Bytes     int64   `json:"bytes"`
	Chosen    string  `json:"chosen"` // by the table
	Runs      []Times `json:"runs"`   // the table's choice twice, then the others
}

// Times are the times of one algorithm, in seconds: for each round the time of a call and of the barrier after it, the
// mean of the ranks.
type Times struct {
	Algorithm string    `json:"algorithm"`
	Rounds    []float64 `json:"rounds"`
}

// ratio is how much of the table's time an algorithm takes: the median of the rounds. often is the part of the rounds
// in which it takes at most gain of each of the table's two times.
func (c *Cell) ratio(t *Times, gain float64) (median, often float64) {
	var ratios []float64
	wins := 0
	for i, took := range t.Rounds {
		a, b := c.Runs[0].Rounds[i], c.Runs[1].Rounds[i]
		ratios = append(ratios, took/((a+b)/2))
		if took <= gain*min(a, b) {
			wins++
		}
	}
	return medianOf(ratios), float64(wins) / float64(max(1, len(t.Rounds)))
}

// Noise is how much the table's two times differ: the median of the rounds, as a part.
func (c *Cell) Noise() float64 {
	var parts []float64
	for i, a := range c.Runs[0].Rounds {
		parts = append(parts, math.Abs(math.Log(a/c.Runs[1].Rounds[i])))
	}
	return math.Expm1(medianOf(parts))
}

// Gain is an algorithm that is better than the table's choice.
type Gain struct {
	Operation string  `json:"operation"`
	Bytes     int64   `json:"bytes"`
	From      string  `json:"from"`
	To        string  `json:"to"`
	Table     float64 `json:"table_seconds"` // medians
	Tuned     float64 `json:"tuned_seconds"`
	Ratio     float64 `json:"ratio"` // the median of the rounds
	Noise     float64 `json:"noise"` // of the cell
}

// best is the algorithm that gains most; its To is empty where none gains enough. false: that, or the cell's noise is
// larger than the gain.
func (c *Cell) best() (g Gain, ok bool) {
	noise := c.Noise()
	for i := tables; i < len(c.Runs); i++ {
		t := &c.Runs[i]
		ratio, often := c.ratio(t, collectiveGain)
		if ratio > collectiveGain || often < oftenEnough || g.To != "" && ratio >= g.Ratio {
			continue
		}
		g = Gain{c.Operation, c.Bytes, c.Chosen, t.Algorithm, medianOf(slices.Concat(c.Runs[0].Rounds,
			c.Runs[1].Rounds)), medianOf(t.Rounds), ratio, noise}
	}
	return g, g.To != "" && noise <= 1-g.Ratio
}

// median of no values is 0.
func medianOf(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}

// Gains returns what both passes have found, with the times of the pass in which it gains less. The second pass has the
// algorithms that have won in the first. noisy are gains that are smaller than the noise of their cell in a pass, or
// that the second pass had no time for: they get no line.
func Gains(first, second []Cell) (all, noisy []Gain) {
	for i := range first {
		g, ok := first[i].best()
		again := slices.IndexFunc(second, func(c Cell) bool { return c.Operation == g.Operation && c.Bytes == g.Bytes })
		if ok && again >= 0 {
			before := g
			if g, ok = second[again].best(); before.Ratio > g.Ratio && ok {
				g = before
			}
		}
		switch {
		case g.To == "":
		case !ok || again < 0:
			noisy = append(noisy, g)
		default:
			all = append(all, g)
		}
	}
	return all, noisy
}

// Lines returns what to put before the table. A line holds for the sizes from the first to the last of neighbours in
// first, the measured cells, at which one algorithm wins, and up to the next such range if that follows. Sizes beyond
// those that were measured are the table's, and so are communicators with other numbers of ranks than more than half of
// those that were measured.
func Lines(first []Cell, gains []Gain, ranks int, via, cpus string) (lines []collectives.Line) {
	last := -1 // the place in first of the cell of the last line
	for i := range first {
		c := &first[i]
		at := slices.IndexFunc(gains, func(g Gain) bool { return g.Operation == c.Operation && g.Bytes == c.Bytes })
		if at < 0 {
			continue
		}
		if last >= 0 && last == i-1 && first[last].Operation == c.Operation {
			if l := &lines[len(lines)-1]; l.Algorithm == gains[at].To {
				l.Bytes, last = c.Bytes, i
				continue
			}
			lines[len(lines)-1].Bytes = c.Bytes - 1
		}
		last = i
		lines = append(lines, collectives.Line{Operation: c.Operation, LeastBytes: c.Bytes, Bytes: c.Bytes,
			LeastRanks: ranks/2 + 1, Ranks: ranks, Via: via, CPUs: cpus, Algorithm: gains[at].To})
	}
	return lines
}

// Point is a time of two ranks with one eager limit.
type Point struct {
	What    string  `json:"what"` // latency or window
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"` // of a message
}

// EagerRun is a job of two ranks. Limit 0 is the library's own choice.
type EagerRun struct {
	Limit  int64   `json:"limit"`
	Points []Point `json:"points"`
}

// EagerGain is a limit that is better than the library's choice.
type EagerGain struct {
	Limit int64   `json:"limit"`
	Ratio float64 `json:"ratio"` // the median over rounds of the geometric mean over points
}

// Eager returns the limit that gains most; false: none gains enough, or the best loses at some point by as much as a
// line must gain. Each round has two runs with limit 0, and one with each other limit. noise is the difference of the
// former.
func Eager(rounds [][]EagerRun) (best EagerGain, noise float64, ok bool) {
	ratios := map[int64][]float64{}
	worst := map[int64]map[Point][]float64{}
	var parts []float64
	for _, runs := range rounds {
		var own []EagerRun
		for _, r := range runs {
			if r.Limit == 0 {
				own = append(own, r)
			}
		}
		if len(own) < tables {
			continue
		}
		parts = append(parts, math.Abs(math.Log(mean(own[0].Points, own[1].Points))))
		for _, r := range runs {
			if r.Limit == 0 {
				continue
			}
			ratios[r.Limit] = append(ratios[r.Limit], max(mean(r.Points, own[0].Points), mean(r.Points, own[1].Points)))
			if worst[r.Limit] == nil {
				worst[r.Limit] = map[Point][]float64{}
			}
			for i, p := range r.Points {
				key := Point{What: p.What, Bytes: p.Bytes}
				worst[r.Limit][key] = append(worst[r.Limit][key], p.Seconds/own[0].Points[i].Seconds)
			}
		}
	}
	for limit, all := range ratios {
		wins := 0
		for _, r := range all {
			if r <= eagerGain {
				wins++
			}
		}
		ratio := medianOf(all)
		loses := false
		for _, at := range worst[limit] {
			loses = loses || medianOf(at) > 1/collectiveGain
		}
		if ratio > eagerGain || float64(wins) < oftenEnough*float64(len(all)) || loses {
			continue
		}
		if !ok || cmp.Or(cmp.Compare(ratio, best.Ratio), cmp.Compare(limit, best.Limit)) < 0 {
			best, ok = EagerGain{limit, ratio}, true
		}
	}
	return best, math.Expm1(medianOf(parts)), ok
}

// mean is the geometric mean of the ratios of times at the same points.
func mean(a, b []Point) float64 {
	sum := 0.0
	for i := range a {
		sum += math.Log(a[i].Seconds / b[i].Seconds)
	}
	return math.Exp(sum / float64(max(1, len(a))))
}

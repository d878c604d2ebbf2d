package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// line is one line of a benchmark's output.
type line struct {
	key    int64
	values []float64 // the fields behind the key
}

// parse reads the output of a benchmark: lines that start with '#' are left out, every other line is numbers, the
// first one whole. Output without a line is an error, it would otherwise read as "nothing to compare".
func parse(out string) ([]line, error) {
	var lines []line
	for text := range strings.Lines(out) {
		fields := strings.Fields(text)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		key, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || len(fields) < 2 {
			return nil, fmt.Errorf("not a line of a benchmark: %q", strings.TrimSpace(text))
		}
		l := line{key: key}
		for _, f := range fields[1:] {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return nil, fmt.Errorf("not a number in %q: %q", strings.TrimSpace(text), f)
			}
			l.values = append(l.values, v)
		}
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("printed no line of numbers")
	}
	return lines, nil
}

// samples is all that was measured for one measurement: for each library, the lines of each round. Library 0 is ours.
type samples struct {
	names  []string
	failed []string // why a library has no (more) rounds
	rounds [][][]line
}

func newSamples(libraries []library) *samples {
	s := &samples{failed: make([]string, len(libraries)), rounds: make([][][]line, len(libraries))}
	for _, l := range libraries {
		s.names = append(s.names, l.name)
	}
	return s
}

func (s *samples) add(library int, lines []line) {
	s.rounds[library] = append(s.rounds[library], lines)
}

// keys are the sizes that any library was measured at, ascending.
func (s *samples) keys() []int64 {
	var keys []int64
	for _, rounds := range s.rounds {
		for _, lines := range rounds {
			for _, l := range lines {
				keys = append(keys, l.key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// values are one library's numbers of all rounds for one cell, ascending.
func (s *samples) values(library int, key int64, field int) []float64 {
	var values []float64
	for _, lines := range s.rounds[library] {
		for _, l := range lines {
			if l.key == key && field-1 < len(l.values) {
				values = append(values, l.values[field-1])
			}
		}
	}
	slices.Sort(values)
	return values
}

// median of ascending values; NaN when there are none.
func median(v []float64) float64 {
	switch n := len(v); {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return v[n/2]
	default:
		return (v[n/2-1] + v[n/2]) / 2
	}
}

// ratio compares our median with the best of the peers'; NaN where there is nothing to compare.
func ratio(ours float64, peers []float64, higher bool) float64 {
	best := math.NaN()
	for _, p := range peers {
		if math.IsNaN(best) || !math.IsNaN(p) && (p > best) == higher && p != best {
			best = p
		}
	}
	if best == 0 {
		return math.NaN()
	}
	return ours / best
}

// table prints one column of the measurement, in Markdown.
func (s *samples) table(m measurement, c column) string {
	better := "lower is better"
	if c.higher {
		better = "higher is better"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d ranks: %s, %s\n\n| %10s |", m.program, m.ranks, c.name, better, "")
	for _, name := range s.names {
		fmt.Fprintf(&b, " %18s |", name)
	}
	fmt.Fprintf(&b, " %11s |\n|-----------:|%s------------:|\n", "ours / best", strings.Repeat("-------------------:|", len(s.names)))
	for _, key := range s.keys() {
		medians := make([]float64, len(s.names))
		fmt.Fprintf(&b, "| %10d |", key)
		for i := range s.names {
			v := s.values(i, key, c.field)
			medians[i] = median(v)
			fmt.Fprintf(&b, " %18s |", cell(v, c.digits))
		}
		fmt.Fprintf(&b, " %11s |\n", number(ratio(medians[0], medians[1:], c.higher), 2))
	}
	for i, why := range s.failed {
		if why != "" {
			fmt.Fprintf(&b, "\n%s: %s", s.names[i], why)
		}
	}
	return b.String()
}

// cell is the median and how far the rounds are apart.
func cell(v []float64, digits int) string {
	if len(v) == 0 {
		return "–"
	}
	mid := median(v)
	if len(v) == 1 || mid == 0 {
		return number(mid, digits)
	}
	return fmt.Sprintf("%s ±%2.0f%%", number(mid, digits), (v[len(v)-1]-v[0])/mid*100)
}

func number(v float64, digits int) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// result is all that was measured of one measurement, as it is written to NAME.json.
type result struct {
	Name    string    `json:"name"`
	Quick   bool      `json:"quick"`
	Rounds  int       `json:"rounds"` // asked for; an interrupt leaves fewer
	Machine machine   `json:"machine"`
	Library []string  `json:"libraries"` // the first one is ours
	Runs    []samples `json:"runs"`

	limit time.Duration
}

// samples are those of one run, by library.
type samples struct {
	Ranks    int        `json:"ranks"`
	Key      int64      `json:"key,omitempty"`   // of its only line; 0: the lines' own
	Times    int        `json:"times,omitempty"` // short runs in each round; 0: one run
	Commands []string   `json:"commands"`
	Failed   []string   `json:"failed"` // why a library has no rounds, or no more; empty: it has not failed
	Rounds   [][][]line `json:"rounds"` // of each library: the lines of each round
}

// line is one line of a benchmark's output.
type line struct {
	Key    int64     `json:"key"`
	Values []float64 `json:"values"` // the fields after the key
}

func newResult(m *measurement, libraries []library, facts machine, s settings) *result {
	r := &result{Name: m.name, Quick: s.quick, Rounds: s.rounds, Machine: facts, limit: m.limit}
	if s.limit > 0 {
		r.limit = s.limit
	}
	for _, l := range libraries {
		r.Library = append(r.Library, l.name)
	}
	for _, a := range m.runs {
		one := samples{Ranks: a.ranks, Key: a.key}
		if m.guest {
			one.Times = shortRuns
		}
		one.Failed, one.Rounds = make([]string, len(libraries)), make([][][]line, len(libraries))
		for i, l := range libraries {
			one.Failed[i] = l.missing(m.program)
			one.Commands = append(one.Commands, l.shown(*m, a, i == 0))
		}
		r.Runs = append(r.Runs, one)
	}
	return r
}

// empty is whether nothing has been tried yet.
func (r *result) empty() bool {
	for _, s := range r.Runs {
		for i := range s.Rounds {
			if len(s.Rounds[i]) > 0 || s.Failed[i] != "" && i == 0 {
				return false
			}
		}
	}
	return true
}

// keys are those of any library, ascending. A run whose only line has a key given has it even if no library finished.
func (r *result) keys() []int64 {
	var keys []int64
	for _, s := range r.Runs {
		keys = append(keys, s.keys()...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (s samples) keys() []int64 {
	if s.Key != 0 {
		return []int64{s.Key}
	}
	var keys []int64
	for _, rounds := range s.Rounds {
		for _, lines := range rounds {
			for _, l := range lines {
				keys = append(keys, l.Key)
			}
		}
	}
	return keys
}

// values are one library's numbers of all rounds for one cell, ascending.
func (r *result) values(library int, key int64, field int) []float64 {
	var values []float64
	for _, s := range r.Runs {
		for _, lines := range s.Rounds[library] {
			for _, l := range lines {
				if l.Key == key && field-1 < len(l.Values) {
					values = append(values, l.Values[field-1])
				}
			}
		}
	}
	slices.Sort(values)
	return values
}

// failed is why a library has no number for a key; empty if nothing is known.
func (r *result) failed(library int, key int64) string {
	for _, s := range r.Runs {
		if s.Failed[library] != "" && slices.Contains(s.keys(), key) {
			return s.Failed[library]
		}
	}
	return ""
}

// summary of one cell's values.
type summary struct {
	median, quietest, low, high float64 // NaN: there are none
	rounds                      int
}

func summarize(ascending []float64, higher bool) summary {
	n := len(ascending)
	if n == 0 {
		return summary{median: math.NaN(), quietest: math.NaN(), low: math.NaN(), high: math.NaN()}
	}
	s := summary{median: median(ascending), low: ascending[0], high: ascending[n-1], rounds: n}
	s.quietest = s.low
	if higher {
		s.quietest = s.high
	}
	return s
}

// spread is how far the rounds are apart, in percent of the median.
func (s summary) spread() float64 {
	if s.rounds < 2 || s.median == 0 {
		return math.NaN()
	}
	return (s.high - s.low) / s.median * 100
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

// bestOf is the best of the peers; NaN where there is none.
func bestOf(peers []float64, higher bool) float64 {
	best := math.NaN()
	for _, p := range peers {
		if math.IsNaN(best) || !math.IsNaN(p) && p != best && (p > best) == higher {
			best = p
		}
	}
	return best
}

// ratio is a/b; NaN where there is nothing to compare.
func ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

// row is one line of a table: every library's summary for one key of one column.
type row struct {
	key       int64
	libraries []summary
	baseline  int // which of them is no peer but the limit; 0: none
}

func (r *result) rows(c column) []row {
	var rows []row
	for _, key := range r.keys() {
		one := row{key: key, baseline: r.baselineAt()}
		for i := range r.Library {
			one.libraries = append(one.libraries, summarize(r.values(i, key, c.field), c.higher))
		}
		rows = append(rows, one)
	}
	return rows
}

// baselineAt is the place of the baseline; 0: it is not there.
func (r *result) baselineAt() int {
	at, _ := baselineIn(r.Library)
	return at
}

// toPeer is our number / the best peer's, of the medians or of the quietest rounds; NaN where there is no peer.
func (r row) toPeer(higher bool, of func(summary) float64) float64 {
	var peers []float64
	for i, s := range r.libraries {
		if i > 0 && i != r.baseline {
			peers = append(peers, of(s))
		}
	}
	return ratio(of(r.libraries[0]), bestOf(peers, higher))
}

// toBaseline is our number / the baseline's; NaN where there is none.
func (r row) toBaseline(of func(summary) float64) float64 {
	if r.baseline == 0 {
		return math.NaN()
	}
	return ratio(of(r.libraries[0]), of(r.libraries[r.baseline]))
}

func medianOf(s summary) float64   { return s.median }
func quietestOf(s summary) float64 { return s.quietest }

// write makes the three files of a measurement.
func (r *result) write(dir string, m measurement) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, r.Name+".json"), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, r.Name+".md"), []byte(r.page(m)), 0o644); err != nil {
		return err
	}
	return r.draw(m, dir)
}

func readResult(dir, name string) (*result, error) {
	raw, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return nil, err
	}
	r := new(result)
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, err
	}
	return r, r.check(filepath.Join(dir, name+".json"))
}

// check refuses what would make the tables fail: the file may have been written by another version.
func (r *result) check(path string) error {
	n := len(r.Library)
	for _, s := range r.Runs {
		if len(s.Commands) != n || len(s.Failed) != n || len(s.Rounds) != n {
			return fmt.Errorf("%s: a run is not about %d libraries; measure again", path, n)
		}
	}
	if n < 2 || len(r.Runs) == 0 {
		return fmt.Errorf("%s: there is nothing to compare in it; measure again", path)
	}
	return nil
}

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
	Name   string `json:"name"`
	Quick  bool   `json:"quick"`
	Cores  int    `json:"cores,omitempty"` // of -cores; 0: the whole set
	Rounds int    `json:"rounds"`          // asked for; an interrupt leaves fewer
	// Near is the gauge of the machine's quiet state, in µs. 0: there is no gauge.
	Near    float64   `json:"near,omitempty"`
	Machine machine   `json:"machine"`
	Library []string  `json:"libraries"` // the first one is ours
	Runs    []samples `json:"runs"`

	limit time.Duration
}

// samples are those of one run, by library.
type samples struct {
	Ranks    int        `json:"ranks"`
	Key      int64      `json:"key,omitempty"`   // of its only line; 0: the lines' own
	Times    int        `json:"times,omitempty"` // runs in each turn; 0: one
	Commands []string   `json:"commands"`
	Failed   []string   `json:"failed"` // why a library has no rounds, or no more; empty: it has not failed
	Rounds   [][][]line `json:"rounds"` // of each library: the lines of each round; nil: no turn that counts
	// Gauges are the times before and after each library's turn of each round, in µs; empty without a gauge.
	Gauges [][][2]float64 `json:"gauges,omitempty"`
	Thrown int            `json:"thrown,omitempty"` // turns, since the gauge changed
}

// line is one line of a benchmark's output.
type line struct {
	Key    int64     `json:"key"`
	Values []float64 `json:"values"` // the fields after the key
}

func newResult(m *measurement, libraries []library, facts machine, s settings) *result {
	r := &result{Name: m.name, Quick: s.quick, Cores: s.cores, Rounds: s.rounds, Machine: facts, limit: m.limit}
	if s.limit > 0 {
		r.limit = s.limit
	}
	for _, l := range libraries {
		r.Library = append(r.Library, l.name)
	}
	for _, a := range m.runs {
		one := samples{Ranks: a.ranks, Key: a.key, Times: a.times}
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

// measurement is the one of which this is the result.
func (r *result) measurement() measurement {
	m, _ := find(plan(false, r.Cores), r.Name)
	return m
}

// empty reports whether no run has been tried yet.
func (r *result) empty() bool {
	for _, s := range r.Runs {
		for i := range s.Rounds {
			if s.count(i) > 0 || s.Failed[i] != "" && i == 0 || s.Thrown > 0 {
				return false
			}
		}
	}
	return true
}

// count is how many turns of a library count.
func (s samples) count(library int) (n int) {
	for _, lines := range s.Rounds[library] {
		if len(lines) > 0 {
			n++
		}
	}
	return n
}

// add takes the turns of a round, if there is any.
func (s *samples) add(turns map[int]turn, thrown int) {
	s.Thrown += thrown
	if len(turns) == 0 {
		return
	}
	gauged := s.Gauges != nil
	for _, t := range turns {
		gauged = gauged || t.gauge != [2]float64{}
	}
	if gauged && s.Gauges == nil {
		s.Gauges = make([][][2]float64, len(s.Rounds))
	}
	for i := range s.Rounds {
		t := turns[i]
		s.Rounds[i] = append(s.Rounds[i], t.lines)
		if gauged {
			s.Gauges[i] = append(s.Gauges[i], t.gauge)
		}
	}
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

// series is one cell's numbers, by library and round, NaN where a library has none, and the gauge of each round.
type series struct {
	values [][]float64
	gauges []float64 // NaN: not known
}

func (r *result) series(key int64, field int) series {
	s := series{values: make([][]float64, len(r.Library))}
	for _, run := range r.Runs {
		if !slices.Contains(run.keys(), key) {
			continue
		}
		rounds := 0
		for _, of := range run.Rounds {
			rounds = max(rounds, len(of))
		}
		for round := range rounds {
			for library := range r.Library {
				s.values[library] = append(s.values[library], run.value(library, round, key, field))
			}
			s.gauges = append(s.gauges, run.gauge(round))
		}
	}
	return s
}

// value is the number of one turn: the median where it had several runs, NaN where there is none.
func (s samples) value(library, round int, key int64, field int) float64 {
	if round >= len(s.Rounds[library]) {
		return math.NaN()
	}
	var values []float64
	for _, l := range s.Rounds[library][round] {
		if l.Key == key && field-1 < len(l.Values) {
			values = append(values, l.Values[field-1])
		}
	}
	slices.Sort(values)
	return median(values)
}

// gauge is the greatest of a round's turns: they are all of one state.
func (s samples) gauge(round int) float64 {
	greatest := 0.0
	for _, gauges := range s.Gauges {
		if round < len(gauges) {
			greatest = max(greatest, gauges[round][0], gauges[round][1])
		}
	}
	if greatest == 0 {
		return math.NaN()
	}
	return greatest
}

// near keeps the rounds whose gauge is that of the quiet state.
func (s series) near(quiet float64) series {
	near := series{values: make([][]float64, len(s.values))}
	for round, g := range s.gauges {
		if !steady(g, quiet) {
			continue
		}
		near.gauges = append(near.gauges, g)
		for i := range s.values {
			near.values[i] = append(near.values[i], s.values[i][round])
		}
	}
	return near
}

// known are the numbers of a library, ascending.
func (s series) known(library int) []float64 {
	return ascending(s.values[library])
}

func ascending(values []float64) []float64 {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(known)
	return known
}

// paired is the median of the ratios ours / theirs of each round that has both; NaN where there is none.
func (s series) paired(library int) float64 {
	ratios := make([]float64, len(s.gauges))
	for round := range ratios {
		ratios[round] = ratio(s.values[0][round], s.values[library][round])
	}
	return median(ascending(ratios))
}

// toPeer is the ratio to the best peer, the one that ours looks worst compared with; NaN where there is no peer.
func (s series) toPeer(higher bool, baseline int) float64 {
	worst := math.NaN()
	for i := 1; i < len(s.values); i++ {
		p := s.paired(i)
		if i == baseline || math.IsNaN(p) {
			continue
		}
		if math.IsNaN(worst) || higher && p < worst || !higher && p > worst {
			worst = p
		}
	}
	return worst
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

// summary of one library's numbers in one cell.
type summary struct {
	median, near, low, high float64 // NaN: there are none
	rounds                  int
}

// summarize describes ascending numbers, and those of the quiet state.
func summarize(all, near []float64) summary {
	nan := math.NaN()
	s := summary{median: median(all), near: median(near), low: nan, high: nan, rounds: len(all)}
	if s.rounds > 0 {
		s.low, s.high = all[0], all[s.rounds-1]
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

// ratio is a/b; NaN where there is nothing to compare.
func ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

// row is one line of a table: every library's summary for one key of one column, and the ratios.
type row struct {
	key            int64
	libraries      []summary
	peer, peerNear float64   // ours / the best peer, NaN where there is none; near: in the quiet state
	base, baseNear float64   // ours / the baseline
	gauges         []float64 // of its rounds, ascending
}

func (r *result) rows(c column) []row {
	var rows []row
	at := r.baselineAt()
	for _, key := range r.keys() {
		all := r.series(key, c.field)
		near := all.near(r.Near)
		one := row{key: key, peer: all.toPeer(c.higher, at), peerNear: near.toPeer(c.higher, at), base: math.NaN(),
			baseNear: math.NaN(), gauges: ascending(all.gauges)}
		if at > 0 {
			one.base, one.baseNear = all.paired(at), near.paired(at)
		}
		for i := range r.Library {
			one.libraries = append(one.libraries, summarize(all.known(i), near.known(i)))
		}
		rows = append(rows, one)
	}
	return rows
}

// gauged reports whether there is a gauge.
func (r *result) gauged() bool {
	return slices.ContainsFunc(r.Runs, func(s samples) bool { return s.Gauges != nil })
}

// baselineAt is the place of the baseline; 0: it is not there.
func (r *result) baselineAt() int {
	at, _ := baselineIn(r.Library)
	return at
}

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

// readResult reads a result of the set of -cores, or of the whole set where cores is 0.
func readResult(dir, name string, cores int) (*result, error) {
	raw, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return nil, err
	}
	r := new(result)
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, err
	}
	return r, r.check(filepath.Join(dir, name+".json"), cores)
}

// check refuses what would make the tables wrong: the file may have been written by another version, or with another
// -cores, for which the same name is another measurement.
func (r *result) check(path string, cores int) error {
	if r.Cores != cores {
		return fmt.Errorf("%s: measured with -cores %d, and asked for is -cores %d (0: the whole set, the default); "+
			"give -cores %[2]d, or another folder", path, r.Cores, cores)
	}
	n := len(r.Library)
	for _, s := range r.Runs {
		if len(s.Commands) != n || len(s.Failed) != n || len(s.Rounds) != n || s.Gauges != nil && len(s.Gauges) != n {
			return fmt.Errorf("%s: a run is not about %d libraries; measure again", path, n)
		}
	}
	if n < 2 || len(r.Runs) == 0 {
		return fmt.Errorf("%s: there is nothing to compare in it; measure again", path)
	}
	return nil
}

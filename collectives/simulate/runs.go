package simulate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/collectives"
)

// printed is what is read of a line that a benchmark prints with --json.
type printed struct {
	Program     string                     `json:"program"`
	Size        int64                      `json:"size"`
	Ranks       int                        `json:"ranks"`
	PerHost     int                        `json:"per_host"`
	Transport   string                     `json:"transport"`
	Collectives string                     `json:"collectives"`
	Values      map[string]json.RawMessage `json:"values"`
}

// longestLine is of a file of measurements.
const longestLine = 1 << 16

// Read reads what benchmarks/latency and benchmarks/collective print with --json. Of calls that were measured more than
// once it returns the least time. It leaves out, and reports, results that do not name their algorithm: without a name
// in GORUN_COLL for the operation and for the barrier between its calls, shared memory may have served them.
func Read(r io.Reader) (runs []Measured, left []error, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		var p printed
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return nil, nil, fmt.Errorf("line %d is not what a benchmark prints with --json: %w", n, err)
		}
		found, err := p.runs()
		if err != nil {
			left = append(left, fmt.Errorf("line %d: %w", n, err))
		}
		runs = append(runs, found...)
	}
	if err := lines.Err(); err != nil {
		return nil, nil, err
	}
	return least(runs), left, nil
}

// runs are the calls of one line, and why others of it are left out.
func (p *printed) runs() (runs []Measured, left error) {
	choice, err := collectives.ParseChoice(p.Collectives)
	if err != nil {
		return nil, fmt.Errorf("collectives: %w", err)
	}
	for _, head := range p.heads() {
		name, ok := strings.CutSuffix(head, "(us)")
		if !ok || name == "Min Latency" || name == "Max Latency" {
			continue
		}
		if name == "Avg Latency" {
			name = p.Program
		}
		var us float64
		if json.Unmarshal(p.Values[head], &us) != nil {
			left = errors.Join(left, fmt.Errorf("%s is %s; it must be a number", head, p.Values[head]))
			continue
		}
		m := Measured{Ranks: p.Ranks, PerHost: p.PerHost, Bytes: p.Size, Seconds: us / 1e6}
		err := m.identify(name, p.Transport, &choice)
		if err == nil {
			err = m.check()
		}
		if err != nil {
			left = errors.Join(left, fmt.Errorf("%s: %w", name, err))
			continue
		}
		runs = append(runs, m)
	}
	return runs, left
}

// heads are those of the values, in the order of letters.
func (p *printed) heads() (all []string) {
	for head := range p.Values {
		all = append(all, head)
	}
	slices.Sort(all)
	return all
}

// identify finds out what ran. A message of benchmarks/latency is a broadcast to one other rank.
func (m *Measured) identify(name, transport string, choice *collectives.Choice) (err error) {
	if name == "latency" {
		m.Alone = true
		if m.PerHost == 0 {
			m.PerHost = map[string]int{"shm": 2, "tcp": 1}[transport]
		}
		m.Algorithm, err = collectives.Find(collectives.Bcast, "binomial")
		return err
	}
	o, err := collectives.ParseOperation(name)
	if err != nil {
		return err
	}
	if m.Algorithm = choice.Named(o); m.Algorithm == nil {
		return fmt.Errorf("GORUN_COLL names no algorithm of it")
	}
	if o == collectives.Barrier {
		m.Bytes = 0
		return nil
	}
	if m.Between = choice.Named(collectives.Barrier); m.Between == nil {
		return fmt.Errorf("GORUN_COLL names no barrier, which is between its calls")
	}
	return nil
}

// least has one of each kind of call, in the order in which they come first, with its least time: what else runs on the
// machine only adds to it.
func least(runs []Measured) (all []Measured) {
	at := map[Measured]int{}
	for _, r := range runs {
		key := r
		key.Seconds = 0
		i, known := at[key]
		if !known {
			at[key] = len(all)
			all = append(all, r)
			continue
		}
		all[i].Seconds = min(all[i].Seconds, r.Seconds)
	}
	return all
}

package harness

import (
	"fmt"
	"io"
)

// Unit is what a point-to-point benchmark prints.
type Unit int

const (
	Microseconds Unit = iota // one-way latency
	Megabytes                // bandwidth, 10^6 bytes per second
)

// Report prints a point-to-point benchmark as OSU does: the average, and what -f and -c add.
type Report struct {
	unit  Unit
	opts  Options
	table *Table
}

// Result is what was measured for one size. Each is the number of nanoseconds that one iteration took, only filled
// where Options.PerIteration says so; Iteration is the average.
type Result struct {
	Size      int64
	PerRound  int64   // bytes moved one way in an iteration, or one-way trips for a latency
	Iteration float64 // nanoseconds
	Each      []int64
	Errors    int64 // messages with wrong contents
}

// Report makes the printer of a latency or bandwidth program.
func (p Program) Report(w io.Writer, u Unit, o Options) *Report {
	heads := []string{"Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Lat(us)"}
	if u == Megabytes {
		heads = []string{"Bandwidth (MB/s)", "Min BW(MB/s)", "Max BW(MB/s)", "BW(MB/s)"}
	}
	cols := []Column{{Head: heads[0]}}
	if o.Full {
		cols = append(cols, Column{Head: heads[1]}, Column{Head: heads[2]}, Column{Head: "Iterations", Width: 12},
			Column{Head: "P50 Tail " + heads[3]}, Column{Head: "P90 Tail " + heads[3]}, Column{Head: "P99 Tail " + heads[3]})
	}
	if o.Validate {
		cols = append(cols, Column{Head: "Validation"})
	}
	return &Report{unit: u, opts: o, table: p.Table(w, "MPI_CHAR", "Size", cols...)}
}

// Header prints the header.
func (r *Report) Header() error { return r.table.Header() }

// Row prints one size. Wrong contents are an error once the line is out.
func (r *Report) Row(m Result) error {
	value := func(ns float64) float64 { return r.value(m, ns) }
	values := []any{value(m.Iteration)}
	if r.opts.Full {
		s := Summarize(m.Each)
		fast, slow := value(float64(s.Min)), value(float64(s.Max))
		values = append(values, min(fast, slow), max(fast, slow), s.Count,
			value(float64(s.P50)), value(float64(s.P90)), value(float64(s.P99)))
	}
	if r.opts.Validate {
		verdict := "Pass"
		if m.Errors > 0 {
			verdict = "Fail"
		}
		values = append(values, verdict)
	}
	if err := r.table.Row(m.Size, values...); err != nil {
		return err
	}
	if m.Errors > 0 {
		return fmt.Errorf("validation: %d messages of %d bytes arrived with wrong contents", m.Errors, m.Size)
	}
	return nil
}

// value turns the time of one iteration into the unit. A bandwidth's P99 is that of the slow tail, as its name says.
func (r *Report) value(m Result, ns float64) float64 {
	if r.unit == Megabytes {
		return float64(m.PerRound) * 1e3 / ns
	}
	return ns / 1e3 / float64(m.PerRound)
}

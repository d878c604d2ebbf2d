package harness

import "fmt"

// Unit is what a point-to-point benchmark prints.
type Unit int

const (
	Microseconds Unit = iota // one-way latency
	Megabytes                // bandwidth, 10^6 bytes per second
	Rates                    // bandwidth and messages per second, as osu_mbw_mr
)

// OneSidedPrecision is how many digits a latency of operations on windows has, where OSU's programs print two.
const OneSidedPrecision = 4

// rateWidth is the width of osu_mbw_mr's columns and of their headings.
const rateWidth = 18

// Report prints a point-to-point benchmark as OSU does: the average, and what -f and -c add.
type Report struct {
	*Table
	unit Unit
}

// Result is what was measured for one size. Each is the number of nanoseconds that one iteration took, only filled
// where Options.PerIteration says so; Iteration is the average.
type Result struct {
	Size      int64
	PerRound  int64   // bytes moved in an iteration, or one-way trips for a latency
	Messages  int64   // moved in an iteration; for Rates
	Rounds    int     // iterations that were measured
	Iteration float64 // nanoseconds
	Each      []int64
	Errors    int64 // messages with wrong contents
}

// Report makes the printer of a latency or bandwidth program.
func (p Program) Report(out Output, u Unit) *Report {
	r := &Report{p.Table(out, out.Options.Type.Name(), "Size", columnsOf(u, out.Options)...), u}
	r.straight = u == Rates
	return r
}

// OneSided makes the printer of a one-sided program. The header names the window and the calls that end an epoch.
func (p Program) OneSided(out Output, u Unit, window, sync, datatype string) *Report {
	r := p.Report(out, u)
	if u == Microseconds { // an operation in memory of this host takes nanoseconds
		r.cols[0].Head, r.cols[0].Precision = "Latency (us)", OneSidedPrecision
	}
	r.straight, r.datatype = true, datatype
	r.Under("Window creation: %s", window)
	r.Under("Synchronization: %s", sync)
	return r
}

func columnsOf(u Unit, o Options) []Column {
	heads := []string{"Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Lat(us)"}
	if u != Microseconds {
		heads = []string{"Bandwidth (MB/s)", "Min BW(MB/s)", "Max BW(MB/s)", "BW(MB/s)"}
	}
	cols := []Column{{Head: heads[0]}}
	if u == Rates {
		cols = []Column{{Head: "MB/s", Width: rateWidth}, {Head: "Messages/s", Width: rateWidth}}
	}
	if u == Rates && o.NoRate {
		cols = cols[:1]
	}
	if o.Full {
		cols = append(cols, Column{Head: heads[1], part: aside}, Column{Head: heads[2], part: aside},
			Column{Head: "Iterations", Width: 12, part: aside})
	}
	t := o.tails()
	for _, c := range []struct {
		wanted bool
		name   string
		part   part
	}{{t.P50, "P50", middle}, {t.P90, "P90", aside}, {t.P99, "P99", tail}} {
		if c.wanted {
			cols = append(cols, Column{Head: c.name + " Tail " + heads[3], part: c.part})
		}
	}
	if o.Validate {
		cols = append(cols, Column{Head: "Validation", part: aside})
	}
	return cols
}

// tails are the percentiles that are printed: -f prints all.
func (o Options) tails() Tails {
	if o.Full {
		return Tails{true, true, true}
	}
	return o.Tails
}

// Collective makes the table of a collective call: the mean of the ranks' times, and what -f and -c add. An empty key
// leaves out the first column.
func (p Program) Collective(out Output, datatype, key string) *Table {
	cols := []Column{{Head: "Avg Latency(us)"}}
	if out.Options.Full {
		cols = append(cols, Column{Head: "Min Latency(us)", part: aside}, Column{Head: "Max Latency(us)", part: aside},
			Column{Head: "Iterations", Width: 12, part: aside})
	}
	if out.Options.Validate {
		cols = append(cols, Column{Head: "Validation", part: aside})
	}
	return p.Table(out, datatype, key, cols...)
}

// Measure is Table.Run over sizes: the sizes of the options, by doubling. Wrong contents are an error once the line is
// out.
func (r *Report) Measure(measure func(size int64) (Result, error)) error {
	var wrong error
	err := r.Run(r.out.Options.Sizes(2), func(size int64) ([]any, error) {
		if wrong != nil {
			return nil, wrong
		}
		m, err := measure(size)
		wrong = m.Wrong()
		return r.values(m), err
	})
	if err == nil {
		err = wrong
	}
	return err
}

// Wrong returns the error for wrong contents, or nil.
func (m Result) Wrong() error {
	if m.Errors == 0 {
		return nil
	}
	return fmt.Errorf("validation: %d messages of %d bytes arrived with wrong contents", m.Errors, m.Size)
}

// values is the line of a result.
func (r *Report) values(m Result) []any {
	value := func(ns float64) float64 { return r.value(m, ns) }
	values := []any{value(m.Iteration)}
	if r.unit == Rates && !r.out.Options.NoRate {
		values = append(values, float64(m.Messages)*1e9/m.Iteration)
	}
	t := r.out.Options.tails()
	if t == (Tails{}) {
		return r.verdict(values, m)
	}
	s := Summarize(m.Each)
	if r.out.Options.Full {
		fast, slow := value(float64(s.Min)), value(float64(s.Max))
		values = append(values, min(fast, slow), max(fast, slow), s.Count)
	}
	for _, p := range []struct {
		wanted bool
		ns     int64
	}{{t.P50, s.P50}, {t.P90, s.P90}, {t.P99, s.P99}} {
		if p.wanted {
			values = append(values, value(float64(p.ns)))
		}
	}
	return r.verdict(values, m)
}

// verdict adds what -c adds to a line.
func (r *Report) verdict(values []any, m Result) []any {
	if r.out.Options.Validate {
		values = append(values, Verdict(m.Errors))
	}
	return values
}

// Verdict is OSU's word for a size of which so many messages had wrong contents.
func Verdict(errors int64) string {
	if errors > 0 {
		return "Fail"
	}
	return "Pass"
}

// value turns the time of one iteration into the unit. A bandwidth's P99 is that of the slow tail.
func (r *Report) value(m Result, ns float64) float64 {
	if r.unit != Microseconds {
		return float64(m.PerRound) * 1e3 / ns
	}
	return ns / 1e3 / float64(m.PerRound)
}

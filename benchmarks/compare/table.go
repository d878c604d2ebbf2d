package main

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

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
		l := line{Key: key}
		for _, f := range fields[1:] {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("not a number in %q: %q", strings.TrimSpace(text), f)
			}
			l.Values = append(l.Values, v)
		}
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("printed no line of numbers")
	}
	return lines, nil
}

// page is NAME.md.
func (r *result) page(m measurement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n![%s](%s.svg)\n\n", m.title, m.about, m.title, r.Name)
	for _, c := range m.columns {
		b.WriteString(r.table(m, c))
	}
	b.WriteString(r.failures())
	b.WriteString(r.legend(m))
	fmt.Fprintf(&b, "\n\n%s\n\nCommands:\n\n", r.Machine)
	for _, command := range r.commands() {
		fmt.Fprintf(&b, "    %s\n", command)
	}
	return b.String()
}

// legend says what the cells and ratios are.
func (r *result) legend(m measurement) string {
	var b strings.Builder
	cells, gauge := "median · spread", ""
	if r.gauged() {
		cells = "median · near · spread"
		gauge = fmt.Sprintf(" near is the same of the rounds in the machine's quiet state alone. The gauge is what a "+
			"cache line takes from one processor to the other; in the quiet state it is %s ns, or 1/%[2]g to %[2]g of "+
			"that. Turns thrown out, since it changed by more than that while they lasted or between the libraries of "+
			"a round: %[3]d.", nanoseconds(r.Near), steadyWithin, r.thrown())
	}
	fmt.Fprintf(&b, "Cells are %s (greatest less smallest, of the median). Ratios are ours / %s, the median of the "+
		"ratios of each round%s.%s Rounds: %d", cells, cmp.Or(m.rival, "the best peer"), r.baselineNote(), gauge,
		r.Rounds)
	if n := r.Runs[0].Times; n > 1 {
		fmt.Fprintf(&b, " of %d runs each, whose median counts", n)
	}
	if r.Quick {
		b.WriteString(", the quick set")
	}
	b.WriteString(", the libraries by turns.")
	return b.String()
}

func (r *result) thrown() (n int) {
	for _, s := range r.Runs {
		n += s.Thrown
	}
	return n
}

// baselineNote describes the second pair of ratios.
func (r *result) baselineNote() string {
	at, b := baselineIn(r.Library)
	if at == 0 {
		return ""
	}
	return ", and the same to " + b.called + ", which is no peer but the limit"
}

// table is one column of the measurement, in Markdown.
func (r *result) table(m measurement, c column) string {
	var b strings.Builder
	unit := ""
	if c.unit != "" {
		unit = " (" + c.unit + ")"
	}
	fmt.Fprintf(&b, "## %s%s, %s\n\n", c.name, unit, c.better())
	heads := append([]string{m.key}, r.Library...)
	add := func(list []string, all, near string) []string {
		if list = append(list, all); r.gauged() {
			list = append(list, near)
		}
		return list
	}
	heads = add(heads, "ratio", "near")
	if at, baseline := baselineIn(r.Library); at > 0 {
		heads = add(heads, "to "+baseline.short, "near")
	}
	if r.gauged() {
		heads = append(heads, "gauge (ns)")
	}
	writeRow(&b, heads)
	fmt.Fprintf(&b, "|%s\n", strings.Repeat("-:|", len(heads)))
	for _, row := range r.rows(c) {
		cells := []string{m.keyText(row.key)}
		for i, s := range row.libraries {
			cells = append(cells, r.cell(i, row.key, s, c.digits))
		}
		cells = add(cells, ratioText(row.peer), ratioText(row.peerNear))
		if r.baselineAt() > 0 {
			cells = add(cells, ratioText(row.base), ratioText(row.baseNear))
		}
		if r.gauged() {
			cells = append(cells, row.gaugeText())
		}
		writeRow(&b, cells)
	}
	return b.String() + "\n"
}

// keyText is what a row is about.
func (m measurement) keyText(key int64) string {
	for _, a := range m.runs {
		if a.label != "" && a.key == key {
			return a.label
		}
	}
	return strconv.FormatInt(key, 10)
}

// gaugeText is the least and the greatest gauge of a row's rounds.
func (r row) gaugeText() string {
	if len(r.gauges) == 0 {
		return "–"
	}
	low, high := nanoseconds(r.gauges[0]), nanoseconds(r.gauges[len(r.gauges)-1])
	if low == high {
		return low
	}
	return low + "–" + high
}

func writeRow(b *strings.Builder, cells []string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

// failures lists which library failed where, and why.
func (r *result) failures() string {
	type failure struct{ library, why string }
	var order []failure
	where := map[failure][]string{}
	for _, s := range r.Runs {
		for i, why := range s.Failed {
			if why == "" {
				continue
			}
			f := failure{r.Library[i], why}
			if where[f] == nil {
				order = append(order, f)
			}
			where[f] = append(where[f], fmt.Sprintf("`%s`", s.Commands[i]))
		}
	}
	var b strings.Builder
	for _, s := range r.Runs {
		for i, name := range r.Library {
			if left, all := s.leftOut(i); left > 0 {
				fmt.Fprintf(&b, "- %s: %d of %d runs failed or hung, and are left out (`%s`)\n",
					name, left, all, s.Commands[i])
			}
		}
	}
	for _, f := range order {
		fmt.Fprintf(&b, "- %s: %s (%s)\n", f.library, f.why, strings.Join(where[f], ", "))
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// leftOut is how many of a library's runs, in turns that count, have no number.
func (s samples) leftOut(library int) (left, all int) {
	if s.Times < 2 {
		return 0, 0
	}
	all = s.Times * s.count(library)
	left = all
	for _, lines := range s.Rounds[library] {
		left -= len(lines)
	}
	return left, all
}

func (r *result) commands() []string {
	var all []string
	for _, s := range r.Runs {
		all = append(all, s.Commands...)
	}
	return all
}

// cell is the median, that of the quiet state and the spread, or why there is nothing.
func (r *result) cell(library int, key int64, s summary, digits int) string {
	why := r.failed(library, key)
	switch {
	case s.rounds == 0 && (why == "" || strings.HasSuffix(why, notInstalled)):
		return "–"
	case s.rounds == 0 && strings.HasPrefix(why, crashed):
		return crashed
	case s.rounds == 0:
		return "failed"
	}
	parts := []string{number(s.median, digits)}
	if r.gauged() {
		parts = append(parts, number(s.near, digits))
	}
	if s.rounds > 1 {
		parts = append(parts, number(s.spread(), 0)+"%")
	}
	return strings.Join(parts, " · ")
}

// ratioText has two digits that count, also where the ratio is tiny.
func ratioText(v float64) string {
	if v > 0 && v < 0.1 {
		digits := 1 - int(math.Floor(math.Log10(v)))
		return number(v, digits)
	}
	return number(v, 2)
}

func number(v float64, digits int) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

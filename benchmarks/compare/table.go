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
	one, times := "round", ""
	if n := r.Runs[0].Times; n > 0 {
		one, times = "run", fmt.Sprintf(" of %d runs each", n)
	}
	fmt.Fprintf(&b, "Cells are median · quietest %s · spread (greatest less smallest, of the median). Ratios are "+
		"ours / %s, of the medians and of the quietest %ss%s. Rounds: %d%s",
		one, cmp.Or(m.rival, "the best peer"), one, r.baselineNote(), r.Rounds, times)
	if r.Quick {
		b.WriteString(", the quick set")
	}
	fmt.Fprintf(&b, ", the libraries by turns.\n\n%s\n\nWhat was run:\n\n", r.Machine)
	for _, command := range r.commands() {
		fmt.Fprintf(&b, "    %s\n", command)
	}
	return b.String()
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
	heads := append(append([]string{m.key}, r.Library...), "ratio", "quietest")
	if at, baseline := baselineIn(r.Library); at > 0 {
		heads = append(heads, "to "+baseline.short, "quietest")
	}
	writeRow(&b, heads)
	fmt.Fprintf(&b, "|%s\n", strings.Repeat("-:|", len(heads)))
	for _, row := range r.rows(c) {
		cells := []string{strconv.FormatInt(row.key, 10)}
		for i, s := range row.libraries {
			cells = append(cells, r.cell(i, row.key, s, c.digits))
		}
		cells = append(cells, ratioText(row.toPeer(c.higher, medianOf)),
			ratioText(row.toPeer(c.higher, quietestOf)))
		if row.baseline > 0 {
			cells = append(cells, ratioText(row.toBaseline(medianOf)), ratioText(row.toBaseline(quietestOf)))
		}
		writeRow(&b, cells)
	}
	return b.String() + "\n"
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

// leftOut is how many of a library's short runs, in rounds that have any number, have none.
func (s samples) leftOut(library int) (left, all int) {
	all = s.Times * len(s.Rounds[library])
	for _, lines := range s.Rounds[library] {
		left += s.Times - len(lines)
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

// cell is the median, the quietest round and the spread, or why there is nothing.
func (r *result) cell(library int, key int64, s summary, digits int) string {
	why := r.failed(library, key)
	switch {
	case s.rounds == 0 && (why == "" || strings.HasSuffix(why, notInstalled)):
		return "–"
	case s.rounds == 0:
		return "failed"
	case s.rounds == 1:
		return number(s.median, digits)
	}
	return fmt.Sprintf("%s · %s · %s%%", number(s.median, digits), number(s.quietest, digits), number(s.spread(), 0))
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

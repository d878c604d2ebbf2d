package main

import (
	"fmt"
	"math"
	"slices"
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
	b.WriteString(r.growth(m))
	b.WriteString(r.troubles())
	one, times := "round", ""
	if n := r.Runs[0].Times; n > 0 {
		one, times = "run", fmt.Sprintf(" of %d runs each", n)
	}
	fmt.Fprintf(&b, "Cells are median · quietest %s · spread (greatest less smallest, of the median). Ratios are "+
		"ours / %s, of the medians and of the quietest %ss%s. Rounds: %d%s", one, m.rivalName(), one, r.limitNote(), r.Rounds, times)
	if r.Quick {
		b.WriteString(", the quick set")
	}
	fmt.Fprintf(&b, ", the libraries by turns.\n\n%s\n\nWhat was run:\n\n", r.Machine)
	for _, command := range r.commands() {
		fmt.Fprintf(&b, "    %s\n", command)
	}
	return b.String()
}

// limitNote says what the second pair of ratios is.
func (r *result) limitNote() string {
	at, limit := baselineIn(r.Library)
	if at == 0 {
		return ""
	}
	return ", and the same to " + limit.called + ", which is no peer but the limit"
}

// comparison is a group of columns: ratios, and what is asked of them.
type comparison struct {
	heads string
	kinds []kind
	asked bool // of any row
	ratio func(row, func(summary) float64) float64
}

// comparisons are those of a column: to the peers, and to the baseline if it was measured.
func (r *result) comparisons(c column) []comparison {
	list := []comparison{{heads: " ratio | quietest |", kinds: []kind{toPeer, absolute},
		ratio: func(w row, of func(summary) float64) float64 { return ratio(w.against(c.higher, of)) }}}
	if at, limit := baselineIn(r.Library); at > 0 {
		list = append(list, comparison{heads: " to " + limit.short + " | quietest |", kinds: []kind{toLimit}, ratio: row.toLimit})
	}
	for i := range list {
		list[i].asked = r.asksFor(c, list[i].kinds)
	}
	return list
}

// table is one column of the measurement, in Markdown.
func (r *result) table(m measurement, c column) string {
	var b strings.Builder
	unit := ""
	if c.unit != "" {
		unit = " (" + c.unit + ")"
	}
	fmt.Fprintf(&b, "## %s%s, %s\n\n| %s |", c.name, unit, c.better(), m.key)
	for _, name := range r.Library {
		fmt.Fprintf(&b, " %s |", name)
	}
	comparisons := r.comparisons(c)
	line := "\n|" + strings.Repeat("-:|", len(r.Library)+1)
	for _, to := range comparisons {
		b.WriteString(to.heads)
		line += "-:|-:|"
		if to.asked {
			b.WriteString(" asked | |")
			line += "-:|:-|"
		}
	}
	b.WriteString(line + "\n")
	for _, row := range r.rows(c) {
		fmt.Fprintf(&b, "| %d |", row.key)
		for i, s := range row.libraries {
			fmt.Fprintf(&b, " %s |", r.cell(i, row.key, s, c.digits))
		}
		for _, to := range comparisons {
			fmt.Fprintf(&b, " %s | %s |", ratioText(to.ratio(row, medianOf)), ratioText(to.ratio(row, quietestOf)))
			if to.asked {
				bounds, verdict := r.judge(c, row, to.kinds)
				fmt.Fprintf(&b, " %s | %s |", bounds, verdict)
			}
		}
		b.WriteString("\n")
	}
	return b.String() + "\n"
}

// asksFor says whether anything of these kinds is asked of a column.
func (r *result) asksFor(c column, kinds []kind) bool {
	return slices.ContainsFunc(r.keys(), func(key int64) bool {
		return slices.ContainsFunc(asked(r.Name, c.id, key), func(g goal) bool { return slices.Contains(kinds, g.kind) })
	})
}

// judge is the last two cells of a comparison; what is asked of growth has a table of its own.
func (r *result) judge(c column, row row, kinds []kind) (bounds, verdict string) {
	for _, g := range asked(r.Name, c.id, row.key) {
		if !slices.Contains(kinds, g.kind) {
			continue
		}
		s := row.stands(c.higher)
		if math.IsNaN(s.ours) {
			return g.bounds(), "**missed**"
		}
		return g.bounds(), g.verdict(g.value(s))
	}
	return "", ""
}

// growth is a table of our own medians at the greatest key beside those at the least, where that is asked for.
func (r *result) growth(m measurement) string {
	keys := r.keys()
	if len(keys) < 2 {
		return ""
	}
	first, last := keys[0], keys[len(keys)-1]
	var b strings.Builder
	for _, c := range m.columns {
		for _, g := range asked(r.Name, c.id, last) {
			if g.kind != toFirst {
				continue
			}
			at := func(key int64) float64 { return median(r.values(0, key, c.field)) }
			v := g.value(standing{ours: at(last), first: at(first)})
			fmt.Fprintf(&b, "| %s | %s | %s | %s | ≤ %v | %s |\n", c.name,
				number(at(first), c.digits), number(at(last), c.digits), ratioText(v), g.bound, g.verdict(v))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return fmt.Sprintf("## %s alone: %d %s beside %d\n\n| | %d | %d | ratio | asked | |\n|:-|-:|-:|-:|-:|:-|\n%s\n",
		r.Library[0], last, m.key, first, first, last, &b)
}

// troubles lists who failed where, and why.
func (r *result) troubles() string {
	type trouble struct{ who, why string }
	var order []trouble
	where := map[trouble][]string{}
	for _, s := range r.Runs {
		for i, why := range s.Failed {
			if why == "" {
				continue
			}
			t := trouble{r.Library[i], why}
			if where[t] == nil {
				order = append(order, t)
			}
			where[t] = append(where[t], fmt.Sprintf("`%s`", s.Commands[i]))
		}
	}
	var b strings.Builder
	for _, s := range r.Runs {
		for i, name := range r.Library {
			if left, all := s.leftOut(i); left > 0 {
				fmt.Fprintf(&b, "- %s: %d of %d runs failed or hung, and are left out (`%s`)\n", name, left, all, s.Commands[i])
			}
		}
	}
	for _, t := range order {
		fmt.Fprintf(&b, "- %s: %s (%s)\n", t.who, t.why, strings.Join(where[t], ", "))
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

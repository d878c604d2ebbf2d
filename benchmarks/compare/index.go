package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The marks around the summary in README.md of a folder of results.
const summaryBegin, summaryEnd = "<!-- summary: by hand; make compare keeps it -->\n", "<!-- end of summary -->\n"

// writeIndex makes README.md of a folder from all the results that are there. It keeps the summary that is there.
func writeIndex(dir string) error {
	var results []*result
	for _, m := range plan(false) {
		r, err := readResult(dir, m.name)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		default:
			results = append(results, r)
		}
	}
	if len(results) == 0 {
		return nil
	}
	name := filepath.Join(dir, "README.md")
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(name, []byte(index(results, summaryOf(string(old)))), 0o644)
}

// summaryOf returns the text between the marks, or "" where they are missing.
func summaryOf(page string) string {
	_, rest, _ := strings.Cut(page, summaryBegin)
	text, _, ended := strings.Cut(rest, summaryEnd)
	if !ended {
		return ""
	}
	return text
}

// index returns the page: the summary, the least and the greatest ratio of each measurement, the machines, and the
// pages of the measurements.
func index(results []*result, summary string) string {
	var b strings.Builder
	b.WriteString("# Compared with Open MPI and MPICH\n\n`make compare` writes this page, except the summary between " +
		"its two marks.\n\n")
	if summary != "" {
		b.WriteString(summaryBegin + summary + summaryEnd + "\n")
	}
	b.WriteString("## Ratios\n\nA ratio is ours / the best peer, or the library that the page names; the last column " +
		"is ours / the limit where one was measured. Each ratio is the median over the rounds of the ratios within a " +
		"round. The table has the least and the greatest of all rows.\n\n")
	writeRow(&b, []string{"measurement", "", "to the best peer", "to the limit"})
	b.WriteString("|:-|:-|:-|:-|\n")
	for _, r := range results {
		m, _ := find(plan(false), r.Name)
		for _, c := range m.columns {
			if c.aside {
				continue
			}
			writeRow(&b, []string{
				fmt.Sprintf("[%s](%s.md)", m.title, r.Name), c.name + ", " + c.better(),
				r.span(m, c, func(w row) float64 { return w.peer }),
				r.span(m, c, func(w row) float64 { return w.base }),
			})
		}
	}
	b.WriteString("\n## Machines\n\n")
	listed := map[string]bool{}
	for _, r := range results {
		if facts := r.Machine.String(); !listed[facts] {
			listed[facts] = true
			fmt.Fprintf(&b, "- %s\n", facts)
		}
	}
	for _, r := range results {
		m, _ := find(plan(false), r.Name)
		fmt.Fprintf(&b, "\n## [%s](%s.md)\n\n%s\n\n![%s](%s.svg)\n", m.title, r.Name, m.about, m.title, r.Name)
	}
	return b.String()
}

// span is the least and the greatest ratio of a column, where they are, and how many rows have none.
func (r *result) span(m measurement, c column, of func(row) float64) string {
	var keys []int64
	var ratios []float64
	missing := 0
	for _, row := range r.rows(c) {
		if v := of(row); math.IsNaN(v) {
			missing++
		} else {
			keys, ratios = append(keys, row.key), append(ratios, v)
		}
	}
	if len(ratios) == 0 {
		return "–"
	}
	at := func(v float64) string { return fmt.Sprintf("%s at %d", ratioText(v), keys[slices.Index(ratios, v)]) }
	low, high := at(slices.Min(ratios)), at(slices.Max(ratios))
	if low != high {
		low += " to " + high
	}
	low += " " + m.key
	if missing > 0 {
		low += fmt.Sprintf("; none at %d of %d", missing, missing+len(ratios))
	}
	return low
}

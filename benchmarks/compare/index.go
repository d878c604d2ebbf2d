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

// writeIndex makes README.md of a folder from all the results that are there.
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
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(index(results)), 0o644)
}

// index is the summary: how far apart the libraries are, what was measured on, and the pages.
func index(results []*result) string {
	var b strings.Builder
	b.WriteString("# Compared with Open MPI and MPICH\n\nMade by `make compare`; do not edit. Ratios are ours / the " +
		"best peer, or what the page names, and ours / the limit where one was measured: the medians of the ratios " +
		"of each round, of all rows the least and the greatest.\n\n")
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
	b.WriteString("\nMeasured on:\n\n")
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

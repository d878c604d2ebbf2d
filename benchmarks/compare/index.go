package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
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

// index is the summary: what is asked, the worst row, and the pages.
func index(results []*result) string {
	var b strings.Builder
	b.WriteString("# Beside Open MPI and MPICH\n\nMade by `make compare`; do not edit. Ratios are ours / the best peer, or " +
		"what the line names, of the medians, in the row that is furthest from what is asked.\n\n" +
		"| what | asked | worst row | | |\n|:-|-:|:-|:-|:-|\n")
	for _, g := range goals {
		for _, r := range results {
			if r.Name == g.measurement {
				worst := r.worst(g)
				fmt.Fprintf(&b, "| %s | %s | %s | %s | [%s](%s.md) |\n",
					g.what, g.bounds(), worst.where, worst.verdict, r.Name, r.Name)
			}
		}
	}
	b.WriteString("\nMeasured on:\n\n")
	said := map[string]bool{}
	for _, r := range results {
		if facts := r.Machine.String(); !said[facts] {
			said[facts] = true
			fmt.Fprintf(&b, "- %s\n", facts)
		}
	}
	for _, r := range results {
		m, _ := find(plan(false), r.Name)
		fmt.Fprintf(&b, "\n## [%s](%s.md)\n\n%s\n\n![%s](%s.svg)\n", m.title, r.Name, m.about, m.title, r.Name)
	}
	return b.String()
}

// finding is a goal's worst row.
type finding struct{ where, verdict string }

func (r *result) worst(g goal) finding {
	m, _ := find(plan(false), r.Name)
	worst, where, missing := math.NaN(), "", ""
	keys := r.keys()
	for _, c := range m.columns {
		if !g.isFor(c.id) {
			continue
		}
		for _, row := range r.rows(c) {
			if row.key < g.low || row.key > g.high {
				continue
			}
			s := row.stands(c.higher)
			s.first = median(r.values(0, keys[0], c.field))
			v := g.value(s)
			at := fmt.Sprintf("%d %s", row.key, m.key)
			if len(m.columns) > 1 {
				at += ", " + c.name
			}
			switch {
			case math.IsNaN(v) && math.IsNaN(s.ours):
				missing = at // ours has no number there: no other row makes up for it
			case math.IsNaN(v):
			case math.IsNaN(worst) || g.worse(v, worst):
				worst, where = v, at
			}
		}
	}
	switch {
	case missing != "":
		return finding{"none at " + missing, "**missed**"}
	case math.IsNaN(worst):
		return finding{"–", "not measured"}
	}
	return finding{ratioText(worst) + " at " + where, g.verdict(worst)}
}

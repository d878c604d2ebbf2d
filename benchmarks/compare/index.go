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

// readResults reads all the results of a folder.
func readResults(dir string, cores int) (results []*result, err error) {
	for _, m := range plan(false, cores) {
		r, err := readResult(dir, m.name, cores)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			results = append(results, r)
		}
	}
	return results, nil
}

// writeIndex makes README.md of a folder from all the results that are there. It keeps the summary that is there.
func writeIndex(dir string, cores int) error {
	results, err := readResults(dir, cores)
	if len(results) == 0 {
		return err
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
	title, command := "Compared with Open MPI and MPICH", "make compare"
	if cores := results[0].Cores; cores > 0 {
		title += ", a core for each rank"
		command = fmt.Sprintf("scripts/compare -cores %d", cores)
	}
	fmt.Fprintf(&b, "# %s\n\n`%s` writes this page, except the summary between its two marks.\n\n", title, command)
	if summary != "" {
		b.WriteString(summaryBegin + summary + summaryEnd + "\n")
	}
	b.WriteString(ratios(results))
	b.WriteString("\n## Machines\n\n")
	listed := map[string]bool{}
	for _, r := range results {
		if facts := r.Machine.String(); !listed[facts] {
			listed[facts] = true
			fmt.Fprintf(&b, "- %s\n", facts)
		}
	}
	for _, r := range results {
		m := r.measurement()
		fmt.Fprintf(&b, "\n## [%s](%s.md)\n\n%s\n\n![%s](%s.svg)\n", m.title, r.Name, m.about, m.title, r.Name)
	}
	return b.String()
}

// ratios is the table of all ratios and of the shares of cells that reach a goal.
func ratios(results []*result) string {
	var b strings.Builder
	b.WriteString("## Ratios\n\nA ratio is ours / the best peer, or the library that the page names; the fourth " +
		"column is ours / the limit where one was measured. Each ratio is the median over the rounds of the ratios " +
		"within a round. The table has the least and the greatest of all rows. The last two columns count the rows " +
		"whose time is at most 0.8 and at most 1.0 of the best peer's, or whose rate is at least 1/0.8 and at least " +
		"1.0 of it.\n\n")
	writeRow(&b, []string{"measurement", "", "to the best peer", "to the limit", "≤ 0.8", "≤ 1.0"})
	b.WriteString("|:-|:-|:-|:-|-:|-:|\n")
	var total share
	for _, r := range results {
		m := r.measurement()
		for _, c := range m.columns {
			if c.aside {
				continue
			}
			var of share
			if m.rival == "" {
				of = r.share(c)
			}
			total = total.plus(of)
			writeRow(&b, []string{
				fmt.Sprintf("[%s](%s.md)", m.title, r.Name), c.name + ", " + c.better(),
				r.span(m, c, func(w row) float64 { return w.peer }),
				r.span(m, c, func(w row) float64 { return w.base }),
				of.text(of.ahead), of.text(of.even),
			})
		}
	}
	writeRow(&b, []string{"all", "", "", "", total.text(total.ahead), total.text(total.even)})
	return b.String()
}

// share counts the cells with a ratio to a peer: all, the cells whose time is at most 0.8 of the best peer's (ahead),
// and at most 1.0 (even). The time of a rate is its reciprocal.
type share struct{ cells, ahead, even int }

func (r *result) share(c column) (s share) {
	for _, row := range r.rows(c) {
		if math.IsNaN(row.peer) {
			continue
		}
		took := row.peer
		if c.higher {
			took = 1 / row.peer
		}
		s.cells++
		if took <= 0.8 {
			s.ahead++
		}
		if took <= 1 {
			s.even++
		}
	}
	return s
}

func (s share) plus(other share) share {
	return share{s.cells + other.cells, s.ahead + other.ahead, s.even + other.even}
}

func (s share) text(n int) string {
	if s.cells == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d, %d %%", n, s.cells, 100*n/s.cells)
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
	at := func(v float64) string { return ratioText(v) + " at " + m.keyText(keys[slices.Index(ratios, v)]) }
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

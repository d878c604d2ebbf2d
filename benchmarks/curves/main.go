// Curves draws the output of gorun simulate: a panel for each operation and number of ranks, with a curve for each
// algorithm over the sizes; or over the numbers of ranks, where there is one size.
//
//	gorun simulate --json | go run ./benchmarks/curves FILE    FILE ends in .svg or .png
//
// Owns: which panels and curves there are.
// May call: benchmarks/internal/picture.
// Never: simulate or measure.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

// line is what is drawn of a line of gorun simulate --json.
type line struct {
	Operation, Algorithm, Model string
	Ranks                       int64
	PerHost                     int64 `json:"per_host"`
	Bytes                       int64
	Seconds                     float64
}

func main() {
	if len(os.Args) != 2 || len(os.Args[1]) > 0 && os.Args[1][0] == '-' {
		fmt.Fprintln(os.Stderr, "usage: gorun simulate --json | curves FILE.svg")
		os.Exit(2)
	}
	if err := draw(os.Stdin, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "curves:", err)
		os.Exit(1)
	}
}

func draw(r io.Reader, path string) error {
	var lines []line
	for d := json.NewDecoder(r); ; {
		var l line
		err := d.Decode(&l)
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("line %d is not of gorun simulate --json: %w", len(lines)+1, err)
		}
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return errors.New("there is nothing to draw; gorun simulate --json prints it")
	}
	return sheet(lines).Write(path)
}

// sheet lays out two panels in a row.
func sheet(lines []line) (s picture.Sheet) {
	bySize := slices.ContainsFunc(lines, func(l line) bool { return l.Bytes != lines[0].Bytes })
	for len(lines) > 0 {
		first := lines[0]
		var own, others []line
		for _, l := range lines {
			if l.Operation == first.Operation && (!bySize || l.Ranks == first.Ranks) {
				own = append(own, l)
			} else {
				others = append(others, l)
			}
		}
		if last := len(s.Rows) - 1; last >= 0 && len(s.Rows[last]) == 1 {
			s.Rows[last] = append(s.Rows[last], panel(own, bySize))
		} else {
			s.Rows = append(s.Rows, []picture.Panel{panel(own, bySize)})
		}
		s.Facts = fmt.Sprintf("simulated, %s, %d ranks per host", first.Model, first.PerHost)
		lines = others
	}
	return s
}

// panel draws the lines of one operation.
func panel(lines []line, bySize bool) picture.Panel {
	p := picture.Panel{Title: lines[0].Operation, X: "ranks", Y: "µs", Width: 5.4, Height: 3.3}
	key := func(l line) int64 { return l.Ranks }
	if bySize {
		p.Title, p.X = fmt.Sprintf("%s, %d ranks", lines[0].Operation, lines[0].Ranks), "bytes"
		key = func(l line) int64 { return l.Bytes }
	}
	var names []string
	for _, l := range lines {
		p.Keys = append(p.Keys, key(l))
		if !slices.Contains(names, l.Algorithm) {
			names = append(names, l.Algorithm)
		}
	}
	slices.Sort(p.Keys)
	p.Keys = slices.Compact(p.Keys)
	for i, name := range names {
		c := picture.Curve{Name: name, Style: i, Values: make([]float64, len(p.Keys))}
		for k := range c.Values {
			c.Values[k] = math.NaN()
		}
		for _, l := range lines {
			if at, ok := slices.BinarySearch(p.Keys, key(l)); ok && l.Algorithm == name {
				c.Values[at] = l.Seconds * 1e6
			}
		}
		p.Curves = append(p.Curves, c)
	}
	return p
}

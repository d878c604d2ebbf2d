package harness

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Drawing is what a table looks like as a picture. How it is drawn is benchmarks/internal/picture's.
type Drawing struct {
	Title  string
	X, Y   string // what the axes show
	Keys   []int64
	Curves []Curve
	Band   []Curve // none, or the two edges of an area: of -f, median and tail
	Facts  string  // what it was measured on
}

// Curve is a value for each key.
type Curve struct {
	Name   string
	Values []float64
}

// parsePlot reads the argument of --plot.
func parsePlot(arg string, o *Options) error {
	switch strings.ToLower(filepath.Ext(arg)) {
	case ".svg", ".png":
		o.Plot = arg
		return nil
	}
	return fmt.Errorf("%q does not end in .svg or .png, which are the formats there are", arg)
}

// CheckWritable finds out whether a file can be written. It removes the file if it was not there before.
func CheckWritable(path string) error {
	_, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	err = f.Close()
	if isNew {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// draw writes the picture that --plot asked for.
func (t *Table) draw() error {
	if t.out.Options.Plot == "" || t.out.W == nil {
		return nil
	}
	return t.program.Draw(t.out.Options.Plot, t.drawing())
}

// drawing is the columns that have the unit of the first one against the key, and with -f the band between median and
// tail.
func (t *Table) drawing() Drawing {
	d := Drawing{
		Title: fmt.Sprintf("%s (gorun), %d ranks", t.program.Title, t.out.Ranks),
		X:     cmp.Or(t.key, alone), Y: strings.Replace(t.cols[0].unit(), "us", "µs", 1), Facts: t.facts(),
	}
	for _, r := range t.rows {
		d.Keys = append(d.Keys, r.key)
	}
	for i, c := range t.cols {
		switch {
		case c.part == curve && c.unit() == t.cols[0].unit():
			d.Curves = append(d.Curves, t.curve(i))
		case c.part == middle || c.part == tail:
			d.Band = append(d.Band, t.curve(i))
		}
	}
	switch d.X {
	case "Size":
		d.X = "message size (bytes)"
	case "Queue":
		d.X = "queue length"
	}
	if name := d.Curves[0].Name; len(d.Curves) == 1 && name != d.Y {
		d.Y = name + " (" + d.Y + ")"
	}
	return d
}

func (t *Table) curve(col int) Curve {
	c := Curve{Name: t.cols[col].name()}
	for _, r := range t.rows {
		v, _ := r.values[col].(float64)
		c.Values = append(c.Values, v)
	}
	return c
}

// facts are the machine in a line.
func (t *Table) facts() string {
	m := thisMachine()
	facts := []string{m.CPU, fmt.Sprintf("%d CPUs", m.CPUs), m.Kernel, m.Go, t.out.Transport,
		m.Commit[:min(10, len(m.Commit))]}
	return strings.Join(slices.DeleteFunc(facts, func(s string) bool { return s == "" }), " · ")
}

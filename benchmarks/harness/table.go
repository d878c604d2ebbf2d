package harness

import (
	"fmt"
	"io"
	"strings"
)

// The layout of a line: "%-10d%20.2f". The first heading ends where OSU 7.4's does, at column 28, so that the line
// equals OSU's to the letter; further headings stand over their columns.
const (
	keyWidth     = 10
	fieldWidth   = 20
	headingWidth = 18
	precision    = 2
	aloneWidth   = 17 // of the first value where there is no key, and of "# " and its heading
)

// alone is what the key is where no first column shows it.
const alone = "Ranks"

// Output is where results go, and what they say about the job.
type Output struct {
	W         io.Writer // nil: this rank prints nothing
	Options   Options
	Ranks     int
	Transport string // by which the ranks reach each other
	PerHost   int    // ranks on the host of rank 0; 0: not asked for
}

// Column is one value of a line.
type Column struct {
	Head      string
	Width     int // 0: fieldWidth
	Precision int // digits after the point; 0: precision; below 0: none
	part      part
}

// part is what a column is to a picture.
type part int

const (
	curve part = iota // a curve of its own, if it has the unit of the first column
	middle
	tail  // together with middle the edges of a band
	aside // not drawn
)

// Table prints one header and one line per size.
type Table struct {
	program  Program
	out      Output
	before   []string // lines of the header: above the title,
	under    []string // right below it,
	notes    []string // below the datatype
	datatype string
	key      string // the head of the first column; empty: there is none
	cols     []Column
	straight bool // every heading ends with its column
	rows     []row
}

// row is a line that was printed.
type row struct {
	key    int64
	values []any
}

// Table makes the program's table. An empty datatype leaves out the line that names it.
func (p Program) Table(out Output, datatype, key string, cols ...Column) *Table {
	p.Title = out.Options.Accelerator.title(p.Title)
	t := &Table{program: p, out: out, datatype: datatype, key: key, cols: cols}
	out.Options.Accelerator.describe(t)
	return t
}

// Before adds a comment line above the title.
func (t *Table) Before(format string, args ...any) { t.before = comment(t.before, format, args) }

// Under adds a comment line right below the title.
func (t *Table) Under(format string, args ...any) { t.under = comment(t.under, format, args) }

// Note adds a comment line to the header, after the datatype.
func (t *Table) Note(format string, args ...any) { t.notes = comment(t.notes, format, args) }

func comment(lines []string, format string, args []any) []string {
	return append(lines, "# "+fmt.Sprintf(format, args...))
}

// Run measures one key after the other and prints each line as soon as there is one, then draws the picture if one is
// wanted. Every rank of the job calls it; those that print nothing return no values.
func (t *Table) Run(keys []int64, measure func(key int64) ([]any, error)) error {
	if err := t.Header(); err != nil {
		return err
	}
	for _, key := range keys {
		values, err := measure(key)
		if err != nil {
			return err
		}
		if err := t.Row(key, values...); err != nil {
			return err
		}
	}
	return t.draw()
}

// Header prints the lines that start with '#'.
func (t *Table) Header() error {
	if t.out.W == nil || t.out.Options.JSON {
		return nil
	}
	var b strings.Builder
	lines := append(append([]string{}, t.before...), t.program.title())
	lines = append(lines, t.under...)
	if t.datatype != "" {
		lines = append(lines, "# Datatype: "+t.datatype+".")
	}
	for _, line := range append(lines, t.notes...) {
		b.WriteString(line + "\n")
	}
	if t.key == "" {
		b.WriteString("# ")
	} else {
		fmt.Fprintf(&b, "%-*s", keyWidth, "# "+t.key)
	}
	for i, c := range t.cols {
		width := c.width()
		switch {
		case t.key == "" && i == 0:
			width = aloneWidth - len("# ")
		case t.straight || t.key == "":
		case i == 0:
			width -= fieldWidth - headingWidth
		case i == 1:
			width += fieldWidth - headingWidth
		}
		fmt.Fprintf(&b, "%*s", width, c.Head)
	}
	b.WriteString("\n")
	_, err := io.WriteString(t.out.W, b.String())
	return err
}

// Row prints one line: a value for each column, a float64, an int or a string.
func (t *Table) Row(key int64, values ...any) error {
	if t.out.W == nil {
		return nil
	}
	if len(values) != len(t.cols) {
		return fmt.Errorf("a line of %d values for a table of %d columns", len(values), len(t.cols))
	}
	t.rows = append(t.rows, row{key, values})
	if t.out.Options.JSON {
		return t.object(key, values)
	}
	var b strings.Builder
	if t.key != "" {
		fmt.Fprintf(&b, "%-*d", keyWidth, key)
	}
	for i, v := range values {
		c, width := t.cols[i], t.cols[i].width()
		if t.key == "" && i == 0 {
			width = aloneWidth
		}
		switch v := v.(type) {
		case float64:
			fmt.Fprintf(&b, "%*.*f", width, c.precision(), v)
		default:
			fmt.Fprintf(&b, "%*v", width, v)
		}
	}
	b.WriteString("\n")
	_, err := io.WriteString(t.out.W, b.String())
	return err
}

func (c Column) width() int {
	if c.Width == 0 {
		return fieldWidth
	}
	return c.Width
}

func (c Column) precision() int {
	switch {
	case c.Precision == 0:
		return precision
	case c.Precision < 0:
		return 0
	}
	return c.Precision
}

// unit is the unit in a heading: what stands in parentheses at its end, or else all of it.
func (c Column) unit() string {
	if i := strings.LastIndexByte(c.Head, '('); i >= 0 && strings.HasSuffix(c.Head, ")") {
		return c.Head[i+1 : len(c.Head)-1]
	}
	return c.Head
}

// name is a heading without its unit.
func (c Column) name() string {
	return strings.TrimSpace(strings.TrimSuffix(c.Head, "("+c.unit()+")"))
}

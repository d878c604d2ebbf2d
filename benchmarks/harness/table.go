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
)

// Column is one value of a line.
type Column struct {
	Head      string
	Width     int // 0: fieldWidth
	Precision int // digits behind the point; 0: precision; below 0: none
}

// Table prints one header and one line per size.
type Table struct {
	w    io.Writer
	head []string
	key  string
	cols []Column
}

// Table makes the program's table. An empty datatype leaves out the line that names it.
func (p Program) Table(w io.Writer, datatype, key string, cols ...Column) *Table {
	t := &Table{w: w, key: key, cols: cols, head: []string{p.title()}}
	if datatype != "" {
		t.head = append(t.head, "# Datatype: "+datatype+".")
	}
	return t
}

// Note adds a comment line to the header, after the datatype.
func (t *Table) Note(format string, args ...any) {
	t.head = append(t.head, "# "+fmt.Sprintf(format, args...))
}

// Header prints the lines that start with '#'.
func (t *Table) Header() error {
	var b strings.Builder
	for _, line := range t.head {
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "%-*s", keyWidth, "# "+t.key)
	for i, c := range t.cols {
		width := c.width()
		switch i {
		case 0:
			width -= fieldWidth - headingWidth
		case 1:
			width += fieldWidth - headingWidth
		}
		fmt.Fprintf(&b, "%*s", width, c.Head)
	}
	b.WriteString("\n")
	_, err := io.WriteString(t.w, b.String())
	return err
}

// Row prints one line: a value for each column, a float64, an int or a string.
func (t *Table) Row(key int64, values ...any) error {
	if len(values) != len(t.cols) {
		return fmt.Errorf("a line of %d values for a table of %d columns", len(values), len(t.cols))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*d", keyWidth, key)
	for i, v := range values {
		c := t.cols[i]
		switch v := v.(type) {
		case float64:
			fmt.Fprintf(&b, "%*.*f", c.width(), c.precision(), v)
		default:
			fmt.Fprintf(&b, "%*v", c.width(), v)
		}
	}
	b.WriteString("\n")
	_, err := io.WriteString(t.w, b.String())
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

// Tally reads the output of "go test -json", prints what a reader wants of it (one line per package, all output of
// what failed, why tests were skipped) and appends "PASSED FAILED SKIPPED" to the file that its argument names.
//
// Owns: that line.
// May call: the standard library.
// Never: decides what is run.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | tally COUNTS")
		os.Exit(2)
	}
	c, err := tally(os.Stdin, os.Stdout)
	if err == nil {
		err = appendCounts(os.Args[1], c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(2)
	}
	if c.failed > 0 {
		os.Exit(1)
	}
}

// counts are numbers of tests. A package that failed without a failed test (it did not build, it crashed, its
// TestMain failed) counts as one failed test.
type counts struct{ passed, failed, skipped int }

func appendCounts(path string, c counts) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, c.passed, c.failed, c.skipped)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// event is one line of go test -json (go doc test2json).
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// report is what is known of one package.
type report struct {
	outputs map[string]*strings.Builder // by test, "" for the package's own
	failed  int
}

func tally(in io.Reader, out io.Writer) (counts, error) {
	var c counts
	reports := make(map[string]*report)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" {
			// Not from a test: the go command itself, about a package that it could not load.
			fmt.Fprintln(out, lines.Text())
			continue
		}
		name := e.Package
		if name == "" {
			name, _, _ = strings.Cut(e.ImportPath, " ") // build output: "path [path.test]"
		}
		r := reports[name]
		if r == nil {
			r = &report{outputs: make(map[string]*strings.Builder)}
			reports[name] = r
		}
		c.add(r, e, out)
	}
	return c, lines.Err()
}

// add takes one event in.
func (c *counts) add(r *report, e event, out io.Writer) {
	switch e.Action {
	case "output", "build-output":
		r.write(e.Test, e.Output)
	case "pass":
		if e.Test != "" {
			c.passed++
			delete(r.outputs, e.Test)
			return
		}
		fmt.Fprintf(out, "ok    %s %.1fs\n", e.Package, e.Elapsed)
	case "skip":
		if e.Test != "" {
			c.skipped++
			fmt.Fprintf(out, "skip  %s %s:%s", e.Package, e.Test, r.reason(e.Test))
			delete(r.outputs, e.Test)
		}
	case "fail":
		if e.Test != "" {
			c.failed++
			r.failed++
			fmt.Fprintf(out, "FAIL  %s %s\n%s", e.Package, e.Test, r.text(e.Test))
			delete(r.outputs, e.Test)
			return
		}
		if r.failed == 0 {
			c.failed++
		}
		// Tests that never ended, as after a panic, still have their output.
		fmt.Fprintf(out, "FAIL  %s %.1fs\n", e.Package, e.Elapsed)
		for test := range r.outputs {
			io.WriteString(out, r.text(test))
		}
	}
}

func (r *report) write(test, text string) {
	if r.outputs[test] == nil {
		r.outputs[test] = new(strings.Builder)
	}
	r.outputs[test].WriteString(text)
}

func (r *report) text(test string) string {
	if b := r.outputs[test]; b != nil {
		return b.String()
	}
	return ""
}

// reason is what a skipped test said, on one line.
func (r *report) reason(test string) string {
	why := ""
	for line := range strings.Lines(r.text(test)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			why += " " + line
		}
	}
	return why + "\n"
}

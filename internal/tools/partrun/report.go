package partrun

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Report is what the object of every check has.
type Report struct {
	Time   string            `json:"time"`
	Facts  map[string]string `json:"facts"`
	Parts  []Part            `json:"parts"`
	Result string            `json:"result"`
}

// Part is one thing that was run.
type Part struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Passed  bool    `json:"passed"`
	Why     string  `json:"why,omitempty"` // not
}

// Failed returns the parts that have not passed.
func (r *Report) Failed() (failed []Part) {
	for _, p := range r.Parts {
		if !p.Passed {
			failed = append(failed, p)
		}
	}
	return failed
}

// Sum names the parts that have failed, each on a line, and counts the parts and the figures.
func (r *Report) Sum(figures, measured int) string {
	var b strings.Builder
	failed := r.Failed()
	for _, p := range failed {
		fmt.Fprintf(&b, "FAILED: %s\n", p.Name)
	}
	fmt.Fprintf(&b, "%d of %d parts passed; %d of %d figures were measured", len(r.Parts)-len(failed), len(r.Parts),
		measured, figures)
	return b.String()
}

// PrintFacts prints the facts in the order of their names.
func (r *Runner) PrintFacts() {
	for _, name := range slices.Sorted(maps.Keys(r.Report.Facts)) {
		r.Printf("%-12s %s\n", name, r.Report.Facts[name])
	}
}

// Options are the flags that every check has.
type Options struct {
	Out   string
	Limit time.Duration
	Each  time.Duration // for which a figure is measured
}

// Add adds them to the flags of a check, whose files have that name.
func (o *Options) Add(fs *flag.FlagSet, name string) {
	fs.StringVar(&o.Out, "o", ".", fmt.Sprintf("the `folder` for %s.txt and %s.json", name, name))
	fs.DurationVar(&o.Limit, "limit", 5*time.Minute, "the `time` that all parts together may take")
	fs.DurationVar(&o.Each, "time", 500*time.Millisecond, "the `time` for which each figure is measured")
}

// Run has check run the parts, and writes the object that it returns. A signal, such as of a time limit outside, ends
// the parts with all that they have started. The report is written then too.
func (o *Options) Run(name string, stdout io.Writer, check func(r *Runner) (object any)) error {
	self, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(o.Out, 0o777)
	}
	if err != nil {
		return err
	}
	text, err := os.Create(filepath.Join(o.Out, name+".txt"))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	now := time.Now()
	object := check(&Runner{Name: name, Self: self, Out: o.Out, Text: io.MultiWriter(stdout, text), Ctx: ctx,
		Until: now.Add(o.Limit), Report: &Report{Time: now.UTC().Format(time.RFC3339), Facts: map[string]string{}}})
	b, err := json.MarshalIndent(object, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(o.Out, name+".json"), append(b, '\n'), 0o666)
	}
	return errors.Join(err, text.Close())
}

// FirstValue is the first value of the only object that a benchmark has printed.
func FirstValue(out string) (float64, error) {
	var object struct {
		Values json.RawMessage `json:"values"`
	}
	if err := json.Unmarshal([]byte(strings.TrimSpace(out)), &object); err != nil {
		return 0, fmt.Errorf("it printed no object: %w: %s", err, Tail(out))
	}
	d := json.NewDecoder(strings.NewReader(string(object.Values)))
	for {
		token, err := d.Token()
		if err != nil {
			return 0, fmt.Errorf("it printed no value: %s", Tail(out))
		}
		if v, ok := token.(float64); ok && v > 0 {
			return v, nil
		}
	}
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/program"
	"github.com/gorun-mpi/mpi/internal/tuned"
	"github.com/gorun-mpi/mpi/launcher"
)

// handTuned reads the tuned file of a job and gives its ranks the text, so that hosts need no copy of it and all ranks
// choose by the same lines.
func handTuned(job *launcher.Job, programs []*program.Program) error {
	var paths []string
	for _, p := range programs {
		if !isPackage(p) {
			paths = append(paths, p.Path)
		}
	}
	places := tuned.Places(paths...)
	var files []*tuned.File
	for i := range job.Apps {
		app := &job.Apps[i]
		f, err := tuned.Find(valueOf(tuned.Variable, job.Environ, app.Env), places)
		if err != nil {
			return err
		}
		files = append(files, f)
		if f != nil {
			app.Env = append(app.Env, tuned.Variable+"="+f.Text())
		}
		if name, other := nameOf(files[0]), nameOf(f); i > 0 && digestOf(files[0]) != digestOf(f) {
			return usageError{fmt.Errorf("%s has %s, and %s has %s: all ranks of a job choose algorithms by the same "+
				"lines; set %s for the whole job", job.Apps[0].Name, name, app.Name, other, tuned.Variable)}
		}
	}
	return nil
}

func digestOf(f *tuned.File) string {
	if f == nil {
		return ""
	}
	return f.Digest()
}

func nameOf(f *tuned.File) string {
	if f == nil {
		return "no tuned file"
	}
	return "the tuned file " + cmp.Or(f.Path, "in "+tuned.Variable)
}

// valueOf is the value of a variable in the last of the lists that has it.
func valueOf(name string, lists ...[]string) (value string) {
	for _, list := range lists {
		for _, kv := range list {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				value = strings.TrimSpace(v)
			}
		}
	}
	return value
}

// tunedHere is the tuned file that holds on this host for programs without one next to them; nil: none.
func tunedHere(environ []string) (*tuned.File, error) {
	return tuned.Find(valueOf(tuned.Variable, environ), tuned.Places())
}

// tunedFacts say which tuned file holds.
type tunedFacts struct {
	File     string     `json:"file"`
	Measured tuned.Host `json:"measured"`
	Lines    int        `json:"lines"`
	EagerMax int64      `json:"eager_max,omitempty"`
	// Elsewhere is in what the measured machine differs from this one.
	Elsewhere string `json:"measured_elsewhere,omitempty"`
}

// factsOfTuned is nil where no file holds.
func factsOfTuned(environ []string) (*tunedFacts, error) {
	f, err := tunedHere(environ)
	if err != nil || f == nil {
		return nil, err
	}
	set, _, err := join.Settings(environ)
	return &tunedFacts{cmp.Or(f.Path, "in "+tuned.Variable), f.Host, len(f.Collectives), f.EagerMax,
		f.Elsewhere(join.Here(set))}, err
}

func (t *tunedFacts) String() string {
	text := fmt.Sprintf("%s (lines: %d", t.File, t.Lines)
	if t.EagerMax > 0 {
		text += fmt.Sprintf(", eager_max: %d", t.EagerMax)
	}
	if h := t.Measured; h.Ranks > 0 {
		text += fmt.Sprintf("; measured with %d ranks on %d CPUs", h.Ranks, h.CPUs)
	}
	if t.Elsewhere != "" {
		text += "; measured on another machine: " + t.Elsewhere
	}
	return text + ")"
}

// printTuned prints the lines of a tuned file that hold for ranks which are roomy or not, as the table is printed.
func printTuned(w io.Writer, f *tuned.File, roomy bool) error {
	fmt.Fprintf(w, "tuned, before the table: %s\n", cmp.Or(f.Path, "in "+tuned.Variable))
	cpus, other := collectives.Crowded.String(), collectives.Roomy.String()
	if roomy {
		cpus, other = other, cpus
	}
	lines := slices.DeleteFunc(slices.Clone(f.Collectives), func(l collectives.Line) bool { return l.CPUs == other })
	if len(lines) == 0 {
		_, err := fmt.Fprintf(w, "It has no lines for %s ranks.\n\n", cpus)
		return err
	}
	err := printLines(w, lines)
	fmt.Fprintln(w)
	return err
}

func printLines(w io.Writer, lines []collectives.Line) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "operation\tbytes\tranks\tper host\tover\tCPUs\talgorithm")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Operation, span(l.LeastBytes, l.Bytes, limit),
			powers(l.Powers)+span(int64(l.LeastRanks), int64(l.Ranks), decimalOf), span(int64(l.PerHost), 0, decimalOf),
			l.Via, l.CPUs, l.Algorithm)
	}
	return t.Flush()
}

func powers(of2 bool) string {
	if of2 {
		return "2^n "
	}
	return ""
}

// limit is a number of bytes. A range up to a byte below a power of two, at which another line begins, is up to "<1M".
func limit(n int64) string {
	if n >= 1<<10 && n&(n+1) == 0 {
		return "<" + memory(n+1)
	}
	return memory(n)
}

func decimalOf(n int64) string { return fmt.Sprint(n) }

// span is a range; 0: it has no such end.
func span(least, most int64, text func(int64) string) string {
	switch {
	case least > 0 && most == least:
		return text(least)
	case least > 0 && most > 0:
		return text(least) + "–" + text(most)
	case least > 0:
		return "≥ " + text(least)
	case most > 0:
		return "≤ " + text(most)
	}
	return "any"
}

// linesHere is the table with the lines of the tuned file before it.
func linesHere() ([]collectives.Line, error) {
	f, err := tunedHere(os.Environ())
	if err != nil || f == nil {
		return collectives.Lines(), err
	}
	return slices.Concat(f.Collectives, collectives.Lines()), nil
}

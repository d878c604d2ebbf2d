package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/collectives/simulate"
	"github.com/spf13/pflag"
)

// measuredFlags are those of gorun simulate that have to do with measured runs.
type measuredFlags struct {
	fit, check, save string
	cores            int
	oneMachine       bool
	choices          bool
}

func (f *measuredFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.fit, "fit", "",
		"fit the model to the `FILE` of measured calls, which benchmarks/latency and collective print with --json,\n"+
			"and compare")
	flags.StringVar(&f.check, "check", "", "compare the model, or with --fit the fitted one, with another such `FILE`")
	flags.StringVar(&f.save, "save", "", "write the fitted model to a `FILE` for --model")
	flags.IntVar(&f.cores, "cores", 0, "`NUMBER` of processors of each host; 0: the model's, or one for each rank")
	flags.BoolVar(&f.oneMachine, "one-machine", false, "the hosts are one machine's, and share its processors")
	flags.BoolVar(&f.choices, "choices", false,
		"print values of GORUN_COLL that together take each algorithm of --operations")
}

// asked reports whether measured runs are read.
func (f *measuredFlags) asked() bool { return f.fit != "" || f.check != "" || f.save != "" }

// model is the one of a name or a file, with the processors of the flags.
func (f *measuredFlags) model(name string) (*simulate.Model, error) {
	var m simulate.Model
	if known := simulate.Models[name]; known != nil {
		m = *known
	} else {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("there is no model %q, and no such file; there are %s", name,
				strings.Join(modelNames(), ", "))
		}
		if err != nil {
			return nil, err
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&m); err != nil {
			return nil, fmt.Errorf("--model %s: %w; gorun simulate --fit --save writes models", name, err)
		}
	}
	if f.cores < 0 {
		return nil, fmt.Errorf("--cores %d; a host has 1 at least", f.cores)
	}
	if f.cores > 0 {
		m.Cores = f.cores
	}
	m.OneMachine = m.OneMachine || f.oneMachine
	if m.OneMachine && m.Cores == 0 {
		return nil, errors.New("--one-machine: how many processors the machine has is --cores")
	}
	return &m, m.Valid()
}

func modelNames() (all []string) {
	for name := range simulate.Models {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// run fits and compares.
func (f *measuredFlags) run(w io.Writer, m *simulate.Model) error {
	if f.save != "" && f.fit == "" {
		return usageError{errors.New("--save writes what --fit has found; there is no --fit")}
	}
	if f.fit != "" {
		runs, err := readRuns(w, f.fit)
		if err != nil {
			return err
		}
		fitted, without, err := simulate.Fit(*m, runs)
		if err != nil {
			return err
		}
		doubts, err := simulate.Doubts(m, &fitted, without, runs)
		if err != nil {
			return err
		}
		m = &fitted
		for _, name := range without {
			fmt.Fprintf(w, "%s does not matter for these calls, and stays as it was\n", name)
		}
		text, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\n\n", text)
		for _, d := range doubts {
			fmt.Fprintf(w, "warning: %s\n", d)
		}
		if f.save != "" && len(doubts) == 0 {
			if err := os.WriteFile(f.save, append(text, '\n'), 0o666); err != nil {
				return err
			}
		}
		if err := printComparison(w, m, runs); err != nil {
			return err
		}
		if f.save != "" && len(doubts) > 0 {
			return fmt.Errorf("the fitted model is not saved in %s: %s; measure more calls, or stay with the --model that "+
				"the fit began with", f.save, strings.Join(doubts, "; "))
		}
	}
	if f.check == "" {
		return nil
	}
	runs, err := readRuns(w, f.check)
	if err != nil {
		return err
	}
	return printComparison(w, m, runs)
}

// readRuns says how many lines are left out, and why the first one is.
func readRuns(w io.Writer, path string) ([]simulate.Measured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	runs, left, err := simulate.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(left) > 0 {
		fmt.Fprintf(w, "%s: %d lines are left out, or a part of them; the first: %v\n", path, len(left), left[0])
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s has no measured call of a known algorithm; benchmarks/collective --json under "+
			"GORUN_COLL prints them (docs/simulate.md)", path)
	}
	return runs, nil
}

// printComparison prints a line for each call with its algorithms in measured order: measured µs, and the ratio of the
// predicted time to it. Order says "same order", or which algorithm is measured as faster than which other one, and
// predicted as slower.
func printComparison(w io.Writer, m *simulate.Model, runs []simulate.Measured) error {
	all, err := simulate.Compare(m, runs)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "operation\tranks\tper host\tbytes\torder\tloss\tmeasured order: µs, predicted / measured")
	for i := range all {
		c := &all[i]
		var line strings.Builder
		for k := range c.Entries {
			e := &c.Entries[k]
			_, algorithm := e.Names()
			fmt.Fprintf(&line, "%s %.4g ×%.2f  ", algorithm, e.Seconds*1e6, e.Ratio())
		}
		operation, _ := c.Entries[0].Names()
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%.2f\t%s\n", operation, c.Ranks, c.PerHost, c.Bytes, order(c), c.Loss,
			strings.TrimSpace(line.String()))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	v := simulate.Sum(all)
	_, err = fmt.Fprintf(w, "\n%d of %d times within 30 %%, median factor %.2f; %d of %d pairs that differ by %.0f %% "+
		"in the measured order; in %d of %d calls what the model takes is the fastest or within %.0f %% of it\n\n",
		v.Near, v.Runs, v.Error, v.Agree, v.Pairs, 100*(simulate.Close-1), v.Right, v.Choices, 100*(simulate.Close-1))
	return err
}

// order compares the predicted order of a call's algorithms with the measured one.
func order(c *simulate.Contest) string {
	if len(c.Differ) == 0 {
		return "same order"
	}
	var all []string
	for _, p := range c.Differ {
		all = append(all, p.Fast.Name+" < "+p.Slow.Name)
	}
	return fmt.Sprintf("%d of %d differ: %s", len(all), c.Pairs, strings.Join(all, ", "))
}

// printChoices prints a line for each value of GORUN_COLL. The barrier between the calls is the same in all of them.
func printChoices(w io.Writer, operations []collectives.Operation) error {
	var names [][]string
	lines := 0
	for _, o := range operations {
		var all []string
		for _, a := range collectives.Algorithms(o) {
			if a.Needs&collectives.OnBoard == 0 {
				all = append(all, a.String())
			}
		}
		names = append(names, all)
		lines = max(lines, len(all))
	}
	for i := range lines {
		line := "barrier:two_level"
		if slices.Contains(operations, collectives.Barrier) {
			line = ""
		}
		for _, all := range names {
			line = strings.TrimPrefix(line+","+all[i%len(all)], ",")
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/gorun-mpi/mpi/internal/bind"
	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/tune"
	"github.com/gorun-mpi/mpi/internal/tuned"
	"github.com/gorun-mpi/mpi/launcher"
	"github.com/spf13/cobra"
)

// tuneWord makes this program a rank that measures. It is not a user's command.
const tuneWord = "__tune"

// tuneFlags are the flags of gorun tune.
type tuneFlags struct {
	ranks  count
	time   seconds
	out    named
	dryRun bool
	json   bool
}

const (
	tuneTime  = 2 * time.Minute
	tuneLeast = time.Second
	// With less time the sizes are fewer, and the eager limit is not measured.
	tuneFine = time.Minute
	// eagerPart is the part of the time for the eager limit.
	eagerPart = 0.2
)

// eagerLimits are tried next to the library's own choice.
var eagerLimits = []int64{4 << 10, 8 << 10, 16 << 10, 32 << 10}

func tuneCommand(stdout, stderr *os.File, code *int) *cobra.Command {
	f := tuneFlags{time: seconds(tuneTime)}
	c := &cobra.Command{
		Use:   "tune",
		Short: "measure which algorithms and eager limit are fastest on this host, for programs to use",
		Long: `Starts ranks on this host and measures Barrier, Bcast, Reduce, Allreduce, Allgather and Alltoall of 1 KiB to
1 MiB with each algorithm, and messages of two ranks with several eager limits. It prints each algorithm and
eager limit that is better than the library's choice, with both times, and writes them to a file. Programs
read the file: see GORUN_TUNED in gorun info. The file keeps its lines for other numbers of ranks, and those
for sizes that this run does not measure. A file that was measured on another machine is replaced.

Algorithms take turns, and the library's choice is measured twice: the difference is the noise. An algorithm
gets a line if it takes at most 0.90 of the library's time in two thirds of the rounds, in two passes, and if
it gains more than the noise. An eager limit is written if it takes at most 0.95; it is measured if --time is
1m or more. A line holds for communicators of more than half as many ranks, up to as many. Nothing else
should run on the host meanwhile. Ranks on several hosts are not measured: the table of gorun info
--collectives holds for them.`,
		Example: "  gorun tune                         a rank for each CPU, two minutes\n" +
			"  gorun tune -n 8 --dry-run          8 ranks; measure, and write no file\n" +
			"  gorun tune -o bin/gorun-tuned.json the file for the binaries in the folder bin",
		Args: noArguments,
		RunE: func(*cobra.Command, []string) (err error) {
			*code, err = f.run(stdout, stderr)
			return err
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.VarP(&f.ranks, "np", "n", "number of ranks (default: one for each CPU)")
	flags.Var(&f.time, "time", "how long to measure, in all")
	flags.VarP(&f.out, "output", "o", "write `FILE` (default: gorun/tuned.json in the user's configuration directory)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "measure and print, and write no file")
	flags.BoolVar(&f.json, "json", false, "print the result as JSON, for programs")
	return c
}

// tuneRankCommand is a rank of the jobs of gorun tune.
func tuneRankCommand(stdout *os.File) *cobra.Command {
	return &cobra.Command{
		Use: tuneWord, Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var j tune.Job
			if err := json.Unmarshal([]byte(args[0]), &j); err != nil {
				return err
			}
			return tune.Run(j, stdout)
		},
	}
}

// tuning is what gorun tune has found.
type tuning struct {
	first, second []tune.Cell
	cells         int // of the first pass, also those for which time was too short
	eager         [][]tune.EagerRun
	transport     string
	via, cpus     string // of lines
}

func (f *tuneFlags) run(stdout, stderr *os.File) (int, error) {
	environ := os.Environ()
	path, err := f.path()
	if err == nil && time.Duration(f.time) < tuneLeast {
		err = fmt.Errorf("--time %v is too short; %v is enough for a first look, and %v for a result",
			time.Duration(f.time), 3*time.Second, shortTime(tuneTime))
	}
	if err != nil {
		return launcher.CodeUsage, usageError{err}
	}
	if _, _, err := join.Settings(append(slices.Clone(environ), tuned.Variable+"="+tuned.Off)); err != nil {
		return launcher.CodeUsage, err
	}
	cpus := cpuset.Read().Usable()
	ranks := int(f.ranks)
	if ranks == 0 {
		ranks = max(2, cpus)
	}
	if ranks < 2 {
		return launcher.CodeUsage, usageError{errors.New("-n 1: a rank alone has nothing to choose; use 2 or more")}
	}
	fmt.Fprintf(stderr, "gorun tune: measuring %d ranks on %d CPUs for up to %s\n", ranks, cpus,
		shortTime(time.Duration(f.time)))
	if ranks > cpus {
		fmt.Fprintf(stderr, "gorun tune: ranks outnumber CPUs: the result holds for such crowded jobs only\n")
	}
	here := cpuset.ReadMachine()
	old := earlier(path, here, stderr)
	var t tuning
	if code, err := t.measure(ranks, time.Duration(f.time), environ, stderr); code != 0 || err != nil {
		return code, err
	}
	if len(t.first) == 0 { // a file without lines would replace an earlier one
		return 1, fmt.Errorf("nothing is measured after %s, and nothing is written; use a longer --time, or fewer "+
			"ranks", shortTime(time.Duration(f.time)))
	}
	host, _ := os.Hostname()
	eager, _, _ := tune.Eager(t.eager)
	r := tune.Result{Via: t.via, CPUs: t.cpus, First: t.first, EagerMax: eager.Limit, Eager: len(t.eager) > 0,
		Host: tuned.Host{Host: host, CPU: here.Model, Online: here.CPUs, CPUs: cpus, Ranks: ranks,
			Crowded: ranks > cpus, Transport: t.transport, Date: time.Now().UTC().Format(time.RFC3339),
			Gorun: version()}}
	r.Gains, r.Noisy = tune.Gains(t.first, t.second)
	file, count := r.File(old)
	if err := f.print(stdout, &t, &r, file, count, path); err != nil || f.dryRun {
		return 0, err
	}
	if err := file.Write(path); err != nil {
		return 1, fmt.Errorf("the result is not written: %w", err)
	}
	return 0, nil
}

// path is where the file goes. A folder that is missing is an error now rather than after two minutes.
func (f *tuneFlags) path() (string, error) {
	if f.out == "" {
		path, err := tuned.UserPath()
		if err != nil && f.dryRun {
			return "a file", nil
		}
		if err != nil {
			return "", fmt.Errorf("there is no configuration directory (%w); name a file with -o", err)
		}
		return path, nil
	}
	path, err := filepath.Abs(string(f.out))
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return "", fmt.Errorf("-o %s is not a regular file; name one, such as tuned.json", f.out)
	}
	if st, err := os.Stat(filepath.Dir(path)); err != nil || !st.IsDir() {
		return "", fmt.Errorf("-o %s: there is no folder %s; make it, or name a file in another one", f.out,
			filepath.Dir(path))
	}
	return path, nil
}

// earlier reads the file to which gorun tune adds its result; nil: no such file. It warns of a file of another machine
// and of an unreadable file, both of which the result replaces, while Ctrl-C still keeps the file.
func earlier(path string, here cpuset.Machine, stderr io.Writer) *tuned.File {
	old, err := tuned.Read(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		fmt.Fprintf(stderr, "gorun tune: the result will replace %s, which cannot be read: %v\n", path, err)
		return nil
	}
	if why := old.Elsewhere(tuned.Here{CPU: here.Model, Online: here.CPUs}); why != "" {
		fmt.Fprintf(stderr, "gorun tune: the result will replace %s, which was measured on another machine: %s\n", path,
			why)
		return nil
	}
	return old
}

// measure runs the jobs. It returns the code of the first job that fails or is interrupted; gorun has printed the
// cause.
func (t *tuning) measure(ranks int, all time.Duration, environ []string, stderr *os.File) (code int, err error) {
	j := tune.Job{Time: all, Step: 4}
	rounds := 0
	if all >= tuneFine {
		j.Step, rounds = 2, 5
		j.Time = time.Duration((1 - eagerPart) * float64(all))
	}
	shown := newSimulateProgress(stderr)
	defer shown.clear()
	code, err = runTune(j, ranks, 0, environ, stderr, func(r tune.Report) {
		switch {
		case r.Cell == nil:
			t.transport, t.via, t.cpus, t.cells = r.Transport, r.Via, r.CPUs, r.Cells
			return
		case r.Pass == 1:
			t.first = append(t.first, *r.Cell)
		default:
			t.second = append(t.second, *r.Cell)
		}
		shown.say("tune", fmt.Sprintf("pass %d of 2: %s of %s, %d to go", r.Pass, r.Cell.Operation,
			memory(r.Cell.Bytes), r.Left))
	})
	if code != 0 || err != nil {
		return code, err
	}
	limits := append([]int64{0, 0}, eagerLimits...)
	for i := range rounds {
		var runs []tune.EagerRun
		for turn := range limits {
			run := tune.EagerRun{Limit: limits[(turn+i)%len(limits)]}
			each := time.Duration(eagerPart * float64(all) / float64(rounds*len(limits)))
			shown.say("tune", fmt.Sprintf("eager limits: round %d of %d", i+1, rounds))
			code, err = runTune(tune.Job{Eager: true, Time: each}, 2, run.Limit, environ, stderr, func(r tune.Report) {
				run.Points = append(run.Points, r.Points...)
			})
			if code != 0 || err != nil {
				return code, err
			}
			runs = append(runs, run)
		}
		t.eager = append(t.eager, runs)
	}
	return 0, nil
}

// runTune runs one job, whose rank 0 prints reports.
func runTune(j tune.Job, ranks int, eager int64, environ []string, stderr *os.File, report func(tune.Report)) (
	int, error,
) {
	self, err := os.Executable()
	if err != nil {
		return launcher.CodeCannotStart, err
	}
	word, err := json.Marshal(j)
	if err != nil {
		return launcher.CodeCannotStart, err
	}
	none, err := os.Open(os.DevNull)
	if err != nil {
		return launcher.CodeCannotStart, err
	}
	defer none.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return launcher.CodeCannotStart, err
	}
	limit := "auto"
	if eager > 0 {
		limit = strconv.FormatInt(eager, 10)
	}
	read := make(chan error, 1)
	go func() {
		d := json.NewDecoder(r)
		for {
			var one tune.Report
			if err := d.Decode(&one); err != nil {
				io.Copy(io.Discard, r)
				read <- err
				return
			}
			report(one)
		}
	}()
	job := launcher.Job{
		Options: launcher.Options{Bind: bind.Auto, KillDelay: launcher.DefaultKillDelay, StdinFor: "none",
			Timeout: 3*j.Time + time.Minute, LogLevel: "off"},
		Apps: []launcher.App{{Ranks: ranks, Path: self, Name: "gorun", Args: []string{tuneWord, string(word)},
			Env: []string{"GORUN_EAGER_MAX=" + limit, "GORUN_COLL_CHECK=0",
				tuned.Variable + "=" + tuned.Off}}},
		Environ: environ, Stdin: none, Stdout: w, Stderr: stderr, Alone: true, Announced: true,
		Cleaner: cleanerCommand(),
	}
	code := job.Run()
	w.Close()
	err = <-read
	r.Close()
	if code == 0 && err != io.EOF {
		return 1, fmt.Errorf("a rank has printed something other than a report: %w", err)
	}
	return code, nil
}

// tuneResult is what --json prints.
type tuneResult struct {
	File        *tuned.File       `json:"result"`
	Path        string            `json:"path"`
	Written     bool              `json:"written"`
	Gains       []tune.Gain       `json:"gains"`
	Noisy       []tune.Gain       `json:"noisy"` // smaller than the noise of their cell: they get no line
	Earlier     tune.Earlier      `json:"earlier_lines"`
	Eager       *tune.EagerGain   `json:"eager,omitempty"`
	Noise       float64           `json:"noise"`       // the median over cells
	NoiseMost   float64           `json:"noise_most"`  // the largest of a cell
	EagerNoise  float64           `json:"eager_noise"` // the median over rounds
	Measured    int               `json:"cells_measured"`
	NotMeasured int               `json:"cells_not_measured"`
	Cells       []tune.Cell       `json:"cells"`
	EagerRuns   [][]tune.EagerRun `json:"eager_runs,omitempty"`
}

// print says what the file changes, and by how much.
func (f *tuneFlags) print(w io.Writer, t *tuning, found *tune.Result, file *tuned.File, count tune.Earlier,
	path string,
) error {
	r := tuneResult{File: file, Path: path, Written: !f.dryRun, Gains: found.Gains, Noisy: found.Noisy, Earlier: count,
		Measured: len(t.first), NotMeasured: t.cells - len(t.first), Cells: slices.Concat(t.first, t.second),
		EagerRuns: t.eager}
	var noise []float64
	for i := range t.first {
		noise = append(noise, t.first[i].Noise())
	}
	slices.Sort(noise)
	if len(noise) > 0 {
		r.Noise, r.NoiseMost = noise[len(noise)/2], noise[len(noise)-1]
	}
	eager, eagerNoise, ok := tune.Eager(t.eager)
	r.EagerNoise = eagerNoise
	if ok {
		r.Eager = &eager
	}
	if f.json {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	fmt.Fprintf(w, "Measured: %d cells of an operation and a size, %d ranks on %d CPUs, over %s.\n", len(t.first),
		file.Host.Ranks, file.Host.CPUs, t.transport)
	fmt.Fprintf(w, "Noise: the library's choice measured twice differs by %.1f %% (median of cells; largest %.0f "+
		"%%).\n", 100*r.Noise, 100*r.NoiseMost)
	if r.NotMeasured > 0 {
		fmt.Fprintf(w, "Not measured for lack of time: %d cells. A longer --time reaches them.\n", r.NotMeasured)
	}
	if err := printGains(w, found); err != nil {
		return err
	}
	switch {
	case len(t.eager) == 0:
		fmt.Fprintf(w, "The eager limit was not measured; that takes --time %s or more.\n", shortTime(tuneFine))
	case ok:
		fmt.Fprintf(w, "Eager limit: %s in place of the library's choice, %.2f of its time (noise %.1f %%).\n",
			memory(eager.Limit), eager.Ratio, 100*eagerNoise)
	default:
		fmt.Fprintf(w, "Eager limit: the library's choice stays (noise %.1f %%).\n", 100*eagerNoise)
	}
	if len(file.Collectives) > 0 {
		fmt.Fprintln(w, "\nLines of the file:")
		if err := printLines(w, file.Collectives); err != nil {
			return err
		}
	}
	printEarlier(w, count, file.Host.Ranks)
	if f.dryRun {
		fmt.Fprintf(w, "\n--dry-run: nothing is written. Without it the result goes to %s\n", path)
		return nil
	}
	if len(file.Collectives) == 0 && file.EagerMax == 0 {
		fmt.Fprintf(w, "\nWritten to %s, without lines: programs choose as without it.\n", path)
		return nil
	}
	fmt.Fprintf(w, "\nWritten to %s; %s=%s switches it off.\n", path, tuned.Variable, tuned.Off)
	return nil
}

func printGains(w io.Writer, found *tune.Result) error {
	if len(found.Gains) == 0 {
		fmt.Fprintln(w, "No algorithm is better than the library's choice by 10 % in two thirds of the rounds.")
	} else {
		fmt.Fprintln(w)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(g *tune.Gain, more string) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f\t%s\t%.1f\t%.2f%s\n", g.Operation, memory(g.Bytes), g.From, 1e6*g.Table, g.To,
			1e6*g.Tuned, g.Ratio, more)
	}
	const heads = "operation\tbytes\tthe library's\tµs\ttuned\tµs\ttuned / the library's"
	if len(found.Gains) > 0 {
		fmt.Fprintln(t, heads)
		for i := range found.Gains {
			row(&found.Gains[i], "")
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil || len(found.Noisy) == 0 {
		return err
	}
	fmt.Fprintln(w, "Left alone, since the noise is larger than the gain (a longer --time, or an idle host, may tell):")
	fmt.Fprintln(t, heads+"\tnoise")
	for i := range found.Noisy {
		row(&found.Noisy[i], fmt.Sprintf("\t%.0f %%", 100*found.Noisy[i].Noise))
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// printEarlier says what becomes of the lines of an earlier file.
func printEarlier(w io.Writer, count tune.Earlier, ranks int) {
	for _, part := range []struct {
		lines int
		text  string
	}{
		{count.Other, "lines of the file are for other ranks, and stay"},
		{count.Kept, fmt.Sprintf("lines for %d ranks stay, since this run has not measured their sizes, or found "+
			"noise", ranks)},
		{count.Removed, fmt.Sprintf("lines for %d ranks are gone, since this run has measured their sizes again",
			ranks)},
	} {
		if part.lines > 0 {
			fmt.Fprintf(w, "From before: %d %s.\n", part.lines, part.text)
		}
	}
}

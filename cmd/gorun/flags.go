package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/bind"
	"github.com/gorun-mpi/mpi/launcher"
	"github.com/spf13/pflag"
)

// appFlags are those that each program of an MPMD command line has for itself.
type appFlags struct {
	ranks count
	wdir  named
	env   []string
}

// jobFlags are the flags of the whole job. A flag that the launcher carries out is a field of its Options.
type jobFlags struct {
	launcher.Options
	app        appFlags
	place      placeFlags
	preload    bool
	verbose    bool
	report     named
	cpuProfile named
	race       bool
	appFile    named
	dryRun     bool
	version    bool
	ignored    bool   // of flags that need nothing here
	ignoredVal string // and of those with a value
}

func (a *appFlags) register(f *pflag.FlagSet) {
	a.ranks = 1
	f.VarP(&a.ranks, "np", "n", "number of ranks; without it, --ppn or the slots of -H decide")
	f.Var(&a.wdir, "wdir", "run the ranks in the folder `DIR`")
	f.VarP((*assignments)(&a.env), "env", "x", "set a variable for the ranks, or pass one on; may be repeated")
}

func (j *jobFlags) register(f *pflag.FlagSet) {
	f.SortFlags = false // help shows them in this order
	j.app.register(f)
	j.Bind, j.KillDelay = bind.Auto, launcher.DefaultKillDelay
	j.place.register(f, &j.Options)
	f.Var((*bindFlag)(&j.Bind), "bind-to", "what a rank is bound to: auto (an equal share of the cores; "+
		"nothing when ranks outnumber CPUs), none, core, numa, socket, l3cache, hwthread")
	f.BoolVar(&j.ReportBindings, "report-bindings", false, "print where each rank is bound")
	f.BoolVarP(&j.TagOutput, "tag-output", "l", false, "begin each line of output with [rank]")
	f.BoolVar(&j.Timestamp, "timestamp", false, "begin each line of output with the time, of the rank's host")
	f.Var((*named)(&j.OutputDir), "output-dir", "write each rank's output to rank.N.out and rank.N.err in the folder "+
		"`DIR`; of a rank that is started again, to rank.N.again1.out, rank.N.again2.out")
	f.BoolVar(&j.MergeStderr, "merge-stderr-to-stdout", false, "the standard error of a rank goes where its "+
		"standard output goes, in order")
	f.StringVar(&j.StdinFor, "stdin", "0", "the `RANK` that reads the standard input, or none, or all")
	f.Var((*seconds)(&j.Timeout), "timeout", "stop a job that runs longer, after a line of each rank that says what it "+
		"waits for; exit code 124")
	j.Stall.Limit = launcher.DefaultStall
	f.Var((*stallFlag)(&j.Stall), "stall", "say what the ranks wait for when none has been able to move for so long; "+
		"off; or abort: end the job too, with exit code 125")
	f.Var((*named)(&j.Dump), "dump", "write the goroutines of each rank to rank.N.goroutines in the folder `DIR`, "+
		"after --timeout or Ctrl-\\, or when no rank can move")
	f.Var((*seconds)(&j.KillDelay), "kill-delay", "time between Ctrl-C and the kill")
	f.BoolVar(&j.Recover, "enable-recovery", false, "a rank that fails, or a host that is lost, does not "+
		"end the job; the exit code is of the first failed rank, or 1 if that was a lost host")
	f.Var((*count)(&j.Respawn), "respawn", "Replace may start up to `N` ranks (not hosts) in the places of dead ones; "+
		"failed starts count; exit code 0 if every dead rank was started again and all end well, else of the first that "+
		"was not; implies --enable-recovery")
	f.BoolVar(&j.PrintExits, "print-all-exitcodes", false, "print how each rank has ended")
	f.BoolVar(&j.preload, "preload", false, "send the binary to the other hosts, which keep it in memory; gorun "+
		"always sends a package that it has built")
	f.VarP(&j.appFile, "app", "", "the programs of the job from a `FILE`: a line for each, as after a colon")
	f.Var(&j.report, "report", "at the end, write a report of the calls of all ranks into the folder `DIR`, on the host "+
		"of rank 0: report.html, report.json and trace.json")
	f.Var(&j.cpuProfile, "cpuprofile", "write a CPU profile of each rank to rank-N.pprof in the folder `DIR`, on the "+
		"host of the rank, also if the job fails; calls of the library are its labels")
	f.BoolVar(&j.race, "race", false, "build the packages with the race detector")
	f.Var((*named)(&j.Debug), "debug", "run the `RANK` under dlv, which waits for dlv connect on the rank's host")
	f.BoolVarP(&j.verbose, "verbose", "v", false, "report the steps of gorun: GORUN_LOG=debug for gorun, "+
		"not for the ranks")
	f.BoolVar(&j.dryRun, "dry-run", false, "print what would be started, and where")
	f.BoolVar(&j.version, "version", false, "print the version")
	for _, name := range []string{"oversubscribe", "allow-run-as-root", "genvall", "quiet"} {
		short := map[string]string{"quiet": "q"}[name]
		f.BoolVarP(&j.ignored, name, short, false, "accepted, without effect on one host")
		f.Lookup(name).Hidden = true
	}
	f.StringVar(&j.ignoredVal, "genvlist", "", "accepted, without effect on one host")
	f.Lookup("genvlist").Hidden = true
}

// count is a number of ranks.
type count int

func (c *count) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("use a whole number of 1 or more")
	}
	*c = count(n)
	return nil
}
func (c *count) String() string { return strconv.Itoa(int(*c)) }
func (c *count) Type() string   { return "N" }

// seconds is a time: 90s, 5m, or a bare number of seconds as other launchers have it.
type seconds time.Duration

func (s *seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if n, numErr := strconv.ParseFloat(text, 64); numErr == nil {
		d, err = time.Duration(n*float64(time.Second)), nil
	}
	if err != nil || d <= 0 {
		return errors.New("use a time such as 30, 90s or 5m")
	}
	*s = seconds(d)
	return nil
}
func (s *seconds) String() string {
	if *s == 0 {
		return ""
	}
	return shortTime(time.Duration(*s))
}
func (s *seconds) duration() time.Duration { return time.Duration(*s) }
func (s *seconds) Type() string            { return "TIME" }

// shortTime is a time as users type it: 2m, not 2m0s.
func shortTime(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// named is a flag that names something. An empty name is that of a script's variable which is not set: without the
// error the job would run here.
type named string

func (n *named) Set(text string) error {
	if text == "" {
		return errors.New("it is empty: name something, or leave the flag out")
	}
	*n = named(text)
	return nil
}
func (n *named) String() string { return string(*n) }
func (n *named) Type() string   { return "NAME" }

type bindFlag bind.Mode

func (b *bindFlag) Set(text string) error {
	v, err := bind.Parse(text)
	if err != nil {
		return errors.New("use auto, none, core, numa, socket, l3cache or hwthread")
	}
	*b = bindFlag(v)
	return nil
}
func (b *bindFlag) String() string { return string(*b) }
func (b *bindFlag) Type() string   { return "WHAT" }

// assignments collects -x NAME and -x NAME=VALUE.
type assignments []string

func (a *assignments) Set(text string) error {
	name, _, _ := strings.Cut(text, "=")
	if name == "" || name[0] == '-' || strings.ContainsAny(name, " \t\n") {
		return errors.New("use NAME=VALUE, or NAME to pass on a variable of this shell")
	}
	*a = append(*a, text)
	return nil
}
func (a *assignments) String() string { return "" }
func (a *assignments) Type() string   { return "NAME[=VALUE]" }

// resolveEnv gives the variables without a value the one of environ; a variable that is not set there is named in
// missing.
func resolveEnv(list, environ []string) (env, missing []string) {
	for _, kv := range list {
		if strings.Contains(kv, "=") {
			env = append(env, kv)
			continue
		}
		found := false
		for _, have := range environ {
			if strings.HasPrefix(have, kv+"=") {
				env, found = append(env, have), true
			}
		}
		if !found {
			missing = append(missing, kv)
		}
	}
	return env, missing
}

// segment is one program of the command line.
type segment struct {
	appFlags
	program string
	args    []string
}

// segments takes what follows the flags: PROGRAM ARGS [: FLAGS PROGRAM ARGS]... After "--" all words are one program's.
func segments(flags appFlags, rest []string) (all []segment, err error) {
	for {
		words, more, again := cutAtColon(rest)
		if len(words) == 0 {
			where := ""
			if len(all) > 0 {
				where = " after the colon"
			}
			return nil, fmt.Errorf("no program is named%s; it stands after the flags, as in -n 4 ./program", where)
		}
		all = append(all, segment{flags, words[0], words[1:]})
		if !again {
			return all, nil
		}
		if flags, rest, err = cutFlags(more); err != nil {
			return nil, fmt.Errorf("%w (after a colon: only -n, --wdir and -x; "+
				"the others hold for the whole job and stand first)", err)
		}
	}
}

// cutFlags takes the flags of one program from the words before it.
func cutFlags(words []string) (flags appFlags, rest []string, err error) {
	set := pflag.NewFlagSet("gorun", pflag.ContinueOnError)
	set.Usage = func() {}
	flags.register(set)
	own, rest, err := splitFlags(set, words)
	if err == nil {
		err = set.Parse(own)
	}
	return flags, rest, err
}

// readApps reads the programs of --app: on each line flags, a program and its arguments, with quotes as a shell has
// them; # begins a line that is a comment.
func readApps(file string) (all []segment, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--app: %w", err)
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		words, err := shellWords(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		if len(words) == 0 {
			continue
		}
		flags, rest, err := cutFlags(words)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s:%d: %w (in this file: only -n, --wdir and -x)", file, number, err)
		case len(rest) > 0 && rest[0] == "--":
			rest = rest[1:]
		}
		if len(rest) == 0 || slices.Contains(rest, ":") {
			return nil, fmt.Errorf("%s:%d: a line is -n N PROGRAM ARGUMENTS, of one program", file, number)
		}
		all = append(all, segment{flags, rest[0], rest[1:]})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no program is named: write lines such as -n 4 ./program", file)
	}
	return all, nil
}

// programs are the parts of the job, from the command line or --app.
func (j *jobFlags) programs(args []string) ([]segment, error) {
	if j.appFile == "" {
		return segments(j.app, args)
	}
	if len(args) > 0 {
		return nil, fmt.Errorf("--app %s names the programs, and %q stands on the command line: leave one out", j.appFile,
			args[0])
	}
	return readApps(string(j.appFile))
}

func cutAtColon(words []string) (before, after []string, found bool) {
	if len(words) > 0 && words[0] == "--" {
		return words[1:], nil, false
	}
	for i, w := range words {
		if w == ":" {
			return words[:i], words[i+1:], true
		}
	}
	return words, nil, false
}

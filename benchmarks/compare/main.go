package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// settings are the command line.
type settings struct {
	quick     bool
	cores     int // 0: the whole set
	rounds    int
	only      string
	limit     time.Duration // for each run; 0: the plan's
	out, from string
}

const resultsDir = "benchmarks/results"

func main() {
	var s settings
	flag.BoolVar(&s.quick, "quick", false, "a part of it in under three minutes: three rounds, less time a figure")
	flag.IntVar(&s.cores, "cores", 0, "what a machine with so many cores can do with a core for each rank: collective "+
		"calls of 4, 8 and 16 ranks, pairs, fan-in, halos")
	flag.IntVar(&s.rounds, "rounds", 0, "rounds (default 5, with -quick 3)")
	flag.StringVar(&s.only, "only", "", "measurements to do, separated by commas (default all)")
	flag.DurationVar(&s.limit, "limit", 0,
		"time that one run may take (default 30s, with -quick 10s; more of match and in guests)")
	flag.StringVar(&s.out, "out", "",
		"folder for the results (default "+resultsDir+", with -cores N cores-N in it, with -quick a new one, with "+
			"-from that one)")
	flag.StringVar(&s.from, "from", "", "measure nothing: make tables and pictures from the NAME.json of this folder")
	flag.Parse()
	chosen, err := s.check(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, chosen); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// check returns the measurements that are to be done, or what is wrong with the command line.
func (s *settings) check(more []string) ([]measurement, error) {
	switch {
	case len(more) > 0:
		return nil, fmt.Errorf("%q is not an option (-h lists them)", more[0])
	case s.rounds < 0:
		return nil, fmt.Errorf("-rounds %d: at least 1", s.rounds)
	case s.cores != 0:
		here := min(usableCores(), runtime.GOMAXPROCS(0)) // the latter knows a container's limit
		if s.from != "" {
			here = s.cores
		}
		if err := checkCores(s.cores, runtime.NumCPU(), here); err != nil {
			return nil, err
		}
	}
	return choose(plan(s.quick, s.cores), s.only)
}

func run(ctx context.Context, s settings, chosen []measurement) (err error) {
	if s.rounds == 0 {
		s.rounds = 5
		if s.quick {
			s.rounds = 3
		}
	}
	if s.from != "" {
		if s.out == "" {
			s.out = s.from
		}
		return rewrite(s, chosen)
	}
	if s.out, err = resultsFolder(s); err != nil {
		return err
	}
	if _, err := readResults(s.out, s.cores); err != nil { // now, and not when all is measured
		return err
	}
	return compare(ctx, s, chosen)
}

func resultsFolder(s settings) (string, error) {
	switch {
	case s.out != "":
		return s.out, nil
	case s.quick:
		return os.MkdirTemp("", "compare-quick-")
	case s.cores > 0:
		return coresFolder(s.cores), nil
	}
	return resultsDir, nil
}

// rewrite makes the pages from what was measured before.
func rewrite(s settings, chosen []measurement) error {
	made := 0
	for _, m := range chosen {
		r, err := readResult(s.from, m.name, s.cores)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = r.write(s.out, m)
		}
		if err != nil {
			return err
		}
		made++
	}
	if made == 0 {
		return fmt.Errorf("-from %s: there are no results of %s", s.from, names(chosen))
	}
	return writeIndex(s.out, s.cores)
}

func compare(ctx context.Context, s settings, chosen []measurement) error {
	dir, err := os.MkdirTemp("", "compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	libraries, err := build(ctx, dir, chosen)
	if err != nil {
		return err
	}
	becomeSubreaper()
	facts := machineFacts(ctx, libraries)
	fmt.Fprintln(os.Stderr, facts.String())
	if warning := facts.busy(); warning != "" {
		fmt.Fprintln(os.Stderr, "compare: "+warning)
	}
	bed := newTestbed(ctx, dir, libraries)
	defer bed.close()
	measuring := ctx
	if s.quick {
		fmt.Fprintf(os.Stderr, "compare: all is built; measuring ends within %v\n", quickTotal)
		var cancel context.CancelFunc
		measuring, cancel = context.WithTimeout(ctx, quickTotal)
		defer cancel()
	}
	var done []*result
	in := newSession(chosen, s.rounds)
	for i := range chosen {
		m := &chosen[i]
		if ctx.Err() == nil && measuring.Err() != nil {
			fmt.Fprintf(os.Stderr, "compare: the time is over, and left out are %s; -only NAME measures one\n",
				names(chosen[i:]))
			break
		}
		libraries, err := bed.libraries(*m)
		if errors.Is(err, errUnavailable) {
			fmt.Fprintf(os.Stderr, "compare: %s is left out: %v\n", m.name, err)
			in.remove(*m)
			continue
		}
		if err != nil {
			return err
		}
		r := newResult(m, libraries, bed.facts(*m, facts), s)
		r.measure(measuring, m, libraries, in)
		if r.empty() && measuring.Err() != nil {
			fmt.Fprintf(os.Stderr, "compare: %s came to nothing in the time that was left\n", m.name)
			continue // the rest is named above, or an interrupt ends it
		}
		if r.empty() {
			break
		}
		if err := r.write(s.out, *m); err != nil {
			return err
		}
		fmt.Println(r.page(*m))
		done = append(done, r)
		if ctx.Err() != nil {
			break
		}
	}
	if err := writeIndex(s.out, s.cores); err != nil {
		return err
	}
	if len(done) > 0 {
		fmt.Println(ratios(done))
	}
	fmt.Fprintf(os.Stderr, "compare: tables and pictures are in %s\n", s.out)
	if ctx.Err() != nil {
		return errors.New("interrupted; what was measured until then is written")
	}
	return nil
}

// choose keeps the measurements that -only names.
func choose(all []measurement, only string) ([]measurement, error) {
	if only == "" {
		return all, nil
	}
	var chosen []measurement
	for name := range strings.SplitSeq(only, ",") {
		m, ok := find(all, name)
		if !ok {
			return nil, fmt.Errorf("-only %q: there is no such measurement; there are %s", name, names(all))
		}
		chosen = append(chosen, m)
	}
	return chosen, nil
}

func find(all []measurement, name string) (measurement, bool) {
	for _, m := range all {
		if m.name == name {
			return m, true
		}
	}
	return measurement{}, false
}

func names(all []measurement) string {
	var list []string
	for _, m := range all {
		list = append(list, m.name)
	}
	return strings.Join(list, ", ")
}

package harness

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// osuVersion is that of OSU whose options and output these programs follow.
const osuVersion = "7.4"

// Program is one benchmark as its command line and its reader see it.
type Program struct {
	Name     string // "latency"
	Title    string // OSU's: "OSU MPI Latency Test"
	About    string // one or two sentences for -h
	Ranks    int    // exactly so many ranks; 0: any number that is at least MinRanks
	MinRanks int    // 0: one
	// Takes has the options it takes, by their letters. 'a' stands for --alloc, 'T' for --time, 'X' for --warm-time,
	// 'r' for --run-ahead, 's' for --waitsome. 'Y' stands for -T, 'S' for -s, and 'z', 'R', 'V', 'w' and 'd' for
	// themselves. --json goes without saying.
	Takes    string
	Counts   string // what -i counts, for -h; "iterations measured" when empty
	Range    string // what -m ranges over, for -h; "message sizes in bytes" when empty
	Operand  string // the word that is no option, for -h: "OPERATION"; empty: there is none
	Places   bool   // with -d it takes two words that say whose buffers a device has: D D, D H or H D
	Defaults Options
	// Buffers is how many buffers of MaxSize bytes one rank makes under these options; nil: -m is not a size.
	Buffers func(Options) int64
	// Check says what is wrong with these options, whatever the job is; nil: nothing more than what Parse finds.
	Check func(Options) error
	// Draw writes the picture of --plot; nil: the program takes no --plot.
	Draw func(path string, d Drawing) error
}

// Start parses the options. It returns false when the program has nothing more to do: help or the version was
// printed, or the options were bad. To keep one message per job, only rank 0 prints or returns the error.
func (p Program) Start(args []string, rank, size int, out io.Writer) (Options, bool, error) {
	o, err := p.Parse(args)
	if err == nil {
		err = p.checkRanks(size)
	}
	if err == nil {
		return o, true, nil
	}
	if rank != 0 {
		return o, false, nil
	}
	switch {
	case errors.Is(err, errHelp):
		_, err = io.WriteString(out, p.help())
	case errors.Is(err, errVersion):
		_, err = fmt.Fprintln(out, p.title())
	}
	return o, false, err
}

// Before does what needs no job: it prints help or the version, and says which option is wrong. done: the process is to
// end with the code. Of the ranks of a job only rank 0 prints.
func (p Program) Before(args []string, rank int, out, wrong io.Writer) (code int, done bool) {
	_, err := p.Parse(args)
	switch {
	case err == nil:
		return 0, false
	case errors.Is(err, errHelp), errors.Is(err, errVersion):
		p.Start(args, rank, 1, out)
		return 0, true
	case rank == 0:
		fmt.Fprintln(wrong, err)
	}
	return usage, true
}

// usage is the exit code of a wrong command line.
const usage = 2

var (
	errHelp    = errors.New("help was asked for")
	errVersion = errors.New("the version was asked for")
)

// Parse reads the command line. The error names the wrong option, why, and how to list the right ones.
func (p Program) Parse(args []string) (Options, error) {
	o := p.Defaults
	fs, given := p.flags(&o)
	err := fs.Parse(spellOut(args))
	switch {
	case err != nil:
	case o.VaryWindow && fs.Changed("window-size"):
		err = errors.New("-V varies the window, so that -W cannot be used with it")
	case o.Accelerator.Kind != "" && o.Type != Char:
		err = errors.New("messages in the memory of a device are of bytes; leave out -T or -d")
	case given.help:
		return o, errHelp
	case given.version:
		return o, errVersion
	default:
		err = p.words(fs.Args(), &o)
	}
	if err == nil {
		o.settleTimes(fs.Changed)
		if o.VaryWindow {
			o.Window = WidestWindow
		}
		if err = p.checkMemory(o); err == nil && p.Check != nil {
			err = p.Check(o)
		}
	}
	if err != nil {
		return o, fmt.Errorf("%s: %w (%s -h lists the options)", p.Name, err, p.Name)
	}
	return o, nil
}

// words takes what is left of the command line without the options.
func (p Program) words(words []string, o *Options) error {
	if p.Places && o.Accelerator.Kind != "" && len(words) > 0 {
		return o.Accelerator.place(words)
	}
	switch n := len(words); {
	case n > 1 || n > 0 && p.Operand == "":
		err := fmt.Errorf("%q is not an option", words[n-1])
		if p.Places && places[words[n-1]] {
			err = fmt.Errorf("%w; the places of buffers come with -d cuda", err)
		}
		return err
	case n == 1:
		o.Operand = words[0]
	}
	return nil
}

// spellOut gives the list of -zP99,P50 its long name: a letter whose value may be left out has none behind it.
func spellOut(args []string) (out []string) {
	for _, a := range args {
		if list, ok := strings.CutPrefix(a, "-z"); ok && list != "" {
			a = "--tail-lat=" + strings.TrimPrefix(list, "=")
		}
		out = append(out, a)
	}
	return out
}

// settleTimes lets a number of iterations that was given take the place of a time that was not.
func (o *Options) settleTimes(given func(option string) bool) {
	if given("warmup") && !given("warm-time") {
		o.WarmTime = 0
	}
	if given("iterations") && !given("time") {
		o.Time = 0
	}
}

func (p Program) checkRanks(size int) error {
	switch {
	case size < p.MinRanks:
		return fmt.Errorf("%s: needs at least %d ranks, this job has %d; start it with gorun -n N",
			p.Name, p.MinRanks, size)
	case p.Ranks == 0 || size == p.Ranks:
		return nil
	}
	return fmt.Errorf("%s: needs exactly %d ranks, this job has %d; start it with gorun -n %d",
		p.Name, p.Ranks, size, p.Ranks)
}

func (p Program) checkMemory(o Options) error {
	if p.Buffers == nil {
		return nil
	}
	return o.CheckMemory(p.Buffers(o))
}

// given are the options that are no settings.
type given struct{ help, version bool }

func (p Program) flags(o *Options) (*pflag.FlagSet, *given) {
	fs := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	ranges := p.Range
	if ranges == "" {
		ranges = "message sizes in bytes"
	}
	add := func(name, letter, kind, usage string, set func(string) error) {
		if !strings.Contains(p.Takes, letter) {
			return
		}
		switch letter {
		case "T", "X": // names alone
			letter = ""
		case "Y":
			letter = "T"
		case "S":
			letter = "s"
		}
		fs.VarP(setter{kind, set}, name, letter, usage)
	}
	add("message-size", "m", "[MIN:]MAX", ranges+fmt.Sprintf(" (default %d:%d)", o.MinSize, o.MaxSize),
		func(s string) error { return parseRange(s, o) })
	counts := p.Counts
	if counts == "" {
		counts = "iterations measured"
	}
	add("iterations", "i", "N", counts+" (default "+smallAndLarge(o.Small.Iterations, o.Large.Iterations)+")",
		count(1, func(n int) { o.Small.Iterations, o.Large.Iterations = n, n }))
	add("warmup", "x", "N", "iterations before these (default "+smallAndLarge(o.Small.Warmup, o.Large.Warmup)+")",
		count(0, func(n int) { o.Small.Warmup, o.Large.Warmup = n, n }))
	add("warm-time", "X", "SECONDS", fmt.Sprintf("time to warm up before the first figure (default %v; 0 with -x)",
		o.WarmTime.Seconds()), seconds(&o.WarmTime))
	add("time", "T", "SECONDS", "time that each figure is measured for, instead of a number of iterations"+
		defaultTime(o.Time), seconds(&o.Time))
	add("window-size", "W", "N", fmt.Sprintf("messages in flight (default %d)", o.Window),
		count(1, func(n int) { o.Window = n }))
	add("num-pairs", "p", "N", "pairs of ranks at work (default half of the ranks)",
		count(1, func(n int) { o.Pairs = n }))
	add("num-threads", "t", "SEND[:RECV]", fmt.Sprintf("goroutines of rank 0 and of rank 1 (default %d:%d; one number "+
		"stands for both)", o.Senders, o.Receivers), func(s string) error { return parseThreads(s, o) })
	add("buffer-num", "b", "single|multiple", "one buffer for a whole window, or one for each message (default single)",
		func(s string) error { return parseBuffers(s, o) })
	add("mem-limit", "M", "BYTES", fmt.Sprintf("most that the buffers of a rank may take (default %d)", o.MemoryMax),
		func(s string) (err error) { o.MemoryMax, err = ParseSize(s); return err })
	add("tail-lat", "z", "LIST", "time every iteration; print these percentiles (all three, if none is named)",
		func(s string) error { return parseTails(s, o) })
	if f := fs.Lookup("tail-lat"); f != nil {
		f.NoOptDefVal = allTails
	}
	add("type", "Y", "TYPE", "what messages are made of: all, mpi_char, mpi_int or mpi_float (default mpi_char)",
		func(s string) error { return parseType(s, o) })
	add("print-rate", "R", "0|1", "messages per second: 0 leaves them out (default 1)",
		func(s string) error { return parseRate(s, o) })
	add("win-option", "w", "KIND", "kind of window: "+strings.Join(WinKinds, ", ")+" (default allocate)",
		func(s string) error { return parseWindow(s, o) })
	add("sync-option", "S", "LIST",
		"calls of an epoch, a column for each: "+strings.Join(Syncs, ", ")+" (default flush)",
		func(s string) error { return parseSync(s, o) })
	add("accelerator", "d", "cuda", "buffers in the memory of GPUs; needs a build with cgo",
		func(s string) error { return o.Accelerator.parse(s) })
	if strings.Contains(p.Takes, "V") {
		fs.BoolVarP(&o.VaryWindow, "vary-window", "V", false, "windows of 8 to 128 messages, a column for each")
	}
	if strings.Contains(p.Takes, "c") {
		fs.BoolVarP(&o.Validate, "validation", "c", false, "check the contents of every message")
	}
	if strings.Contains(p.Takes, "f") {
		fs.BoolVarP(&o.Full, "full", "f", false, "time every iteration; print minimum, maximum, P50, P90 and P99 too")
	}
	for _, b := range []struct {
		letter, name, usage string
		set                 *bool
	}{
		{"a", "alloc", "buffers from mpi.Alloc instead of make", &o.Alloc},
		{"r", "run-ahead", "no answer after each window: the sender runs ahead of the receiver", &o.RunAhead},
		{"s", "waitsome", "WaitSome over all requests, instead of the oldest one by one", &o.WaitSome},
	} {
		if strings.Contains(p.Takes, b.letter) {
			fs.BoolVar(b.set, b.name, false, b.usage)
		}
	}
	fs.BoolVar(&o.JSON, "json", false, "print an object a line, with the facts of the machine, instead of the table")
	if p.Draw != nil {
		fs.Var(setter{"FILE", func(s string) error { return parsePlot(s, o) }}, "plot",
			"also draw the results, as .svg or .png")
	}
	g := new(given)
	fs.BoolVarP(&g.help, "help", "h", false, "print this")
	fs.BoolVarP(&g.version, "version", "v", false, "print the version of OSU that this follows")
	return fs, g
}

func smallAndLarge(small, large int) string {
	if small == large {
		return fmt.Sprint(small)
	}
	return fmt.Sprintf("%d, above %d bytes %d", small, largeMessage, large)
}

func seconds(d *time.Duration) func(string) error {
	return func(s string) (err error) { *d, err = parseSeconds(s); return err }
}

func defaultTime(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf(" (default %v)", d.Seconds())
}

func parseBuffers(s string, o *Options) error {
	switch s {
	case "single":
		o.Multiple = false
	case "multiple":
		o.Multiple = true
	default:
		return fmt.Errorf("wanted single or multiple, got %q", s)
	}
	return nil
}

func parseRate(s string, o *Options) error {
	if s != "0" && s != "1" {
		return fmt.Errorf("wanted 0 or 1, got %q", s)
	}
	o.NoRate = s == "0"
	return nil
}

func count(low int64, set func(int)) func(string) error {
	return func(s string) error {
		n, err := parseCount(s, low)
		if err == nil && n > math.MaxInt32 {
			err = fmt.Errorf("%d is above the greatest that makes sense, %d", n, math.MaxInt32)
		}
		if err == nil {
			set(int(n))
		}
		return err
	}
}

// setter is a pflag.Value that hands its text to a function. Its text is empty so that pflag prints no default of
// its own: ours depend on the size.
type setter struct {
	kind string
	set  func(string) error
}

func (s setter) String() string       { return "" }
func (s setter) Set(arg string) error { return s.set(arg) }
func (s setter) Type() string         { return s.kind }

func (p Program) title() string { return "# " + p.Title + " v" + osuVersion + " (gorun)" }

func (p Program) help() string {
	o := p.Defaults
	fs, _ := p.flags(&o)
	ranks := "N"
	if p.Ranks > 0 {
		ranks = fmt.Sprint(p.Ranks)
	}
	name := p.Name
	if p.Operand != "" {
		name += " " + p.Operand
	}
	if p.Places {
		name += " [-d cuda [D|H D|H]]"
	}
	return fmt.Sprintf("%s\n\nUsage: gorun -n %s ./benchmarks/%s [options]\n\n%s",
		p.About, ranks, name, fs.FlagUsages())
}

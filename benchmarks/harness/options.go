package harness

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/sizes"
)

// OSU 7.4's defaults. Messages above largeMessage get the second number of rounds.
const (
	largeMessage = 8192

	defaultMinSize   = 1
	defaultMaxSize   = 4 << 20
	DefaultWindow    = 64
	WidestWindow     = 128 // of -V
	DefaultMemoryMax = 512 << 20
	// DefaultWarmTime is what a virtual processor and the library need to settle.
	DefaultWarmTime = 700 * time.Millisecond

	maxSeconds = 3600 // of one figure, and of the warm-up
)

// Rounds is how often something is measured, and how often it is done before without being measured.
type Rounds struct{ Iterations, Warmup int }

// Options is the command line, over the program's defaults.
type Options struct {
	MinSize, MaxSize int64         // -m: the range of the first column, both ends included
	Small, Large     Rounds        // -i and -x set both; Large holds for sizes above largeMessage
	WarmTime         time.Duration // --warm-time: before the first figure of the program; 0 where -x alone is given
	Time             time.Duration // --time: each figure is measured for so long; 0: for so many iterations
	Window           int           // -W: messages in flight
	Pairs            int           // -p: pairs of ranks at work; 0: as many as there are
	Senders          int           // -t: goroutines of rank 0
	Receivers        int           // -t: goroutines of rank 1
	Type             Type          // -T: what messages are made of
	Validate         bool          // -c: fill before, compare after every message
	Full             bool          // -f: time every iteration, print extremes and percentiles
	Tails            Tails         // -z: time every iteration, print these percentiles
	VaryWindow       bool          // -V: windows of several sizes, one after the other
	NoRate           bool          // -R 0: no messages per second
	Multiple         bool          // -b multiple: each message of a window has a buffer of its own
	Alloc            bool          // --alloc: buffers from mpi.Alloc instead of make
	RunAhead         bool          // --run-ahead: windows are not answered
	WaitSome         bool          // --waitsome: WaitSome over all requests instead of the oldest one by one
	WinKind          string        // -w: the kind of a window; "": the default of the measurement
	Sync             string        // -s: the calls of an epoch, or several separated by commas; "": the default
	MemoryMax        int64         // -M: what the buffers of one rank may take together
	JSON             bool          // --json: an object a line instead of the table
	Plot             string        // --plot: the file of a picture; "": none
	Operand          string        // the word that is no option
	Accelerator      Accelerator   // -d, and the words that say whose buffers it has
}

// LatencyDefaults are OSU's for the latency programs.
func LatencyDefaults() Options {
	return Options{
		MinSize: defaultMinSize, MaxSize: defaultMaxSize,
		Small: Rounds{10000, 100}, Large: Rounds{1000, 10},
		WarmTime: DefaultWarmTime, Window: DefaultWindow, MemoryMax: DefaultMemoryMax, Senders: 1, Receivers: 2,
	}
}

// BandwidthDefaults are OSU's for the bandwidth programs.
func BandwidthDefaults() Options {
	o := LatencyDefaults()
	o.Small, o.Large = Rounds{100, 10}, Rounds{20, 2}
	return o
}

// CollectiveDefaults are OSU's for the collective programs.
func CollectiveDefaults() Options {
	o := LatencyDefaults()
	o.MaxSize = 1 << 20
	o.Small, o.Large = Rounds{1000, 100}, Rounds{100, 10}
	return o
}

// Rounds returns the number of rounds for messages of the given size.
func (o Options) Rounds(size int64) Rounds {
	if size > largeMessage {
		return o.Large
	}
	return o.Small
}

// PerIteration reports whether each iteration is timed by itself. Otherwise two readings of the clock enclose all of
// them, which is what OSU does and what disturbs least.
func (o Options) PerIteration() bool { return o.Full || o.Validate || o.Tails != Tails{} }

// Tails says which percentiles are printed.
type Tails struct{ P50, P90, P99 bool }

// allTails is what -z stands for without a list.
const allTails = "P99,P90,P50"

func parseTails(arg string, o *Options) error {
	var t Tails
	for name := range strings.SplitSeq(arg, ",") {
		switch strings.ToUpper(strings.TrimSpace(name)) {
		case "P50":
			t.P50 = true
		case "P90":
			t.P90 = true
		case "P99":
			t.P99 = true
		default:
			return fmt.Errorf("%q is none of P50, P90 and P99", name)
		}
	}
	o.Tails = t
	return nil
}

// ParseSize reads a number of bytes such as 4096, 4K or 4KiB.
func ParseSize(arg string) (int64, error) {
	n, err := sizes.Parse(arg)
	if err != nil {
		return 0, fmt.Errorf("%q is %w", arg, err)
	}
	return n, nil
}

// Sizes lists the first column: from MinSize by factors of base up to MaxSize. A zero is followed by one.
func (o Options) Sizes(base int64) []int64 {
	var sizes []int64
	for s := o.MinSize; s <= o.MaxSize; s *= base {
		sizes = append(sizes, s)
		if s == 0 {
			s = 1
			if s > o.MaxSize {
				break
			}
			sizes = append(sizes, s)
		}
		if s > o.MaxSize/base {
			break
		}
	}
	return sizes
}

// CheckMemory returns an error if a rank may not have so many buffers of MaxSize bytes.
func (o Options) CheckMemory(buffers int64) error {
	buffers = max(1, buffers)
	if o.MaxSize <= o.MemoryMax/buffers {
		return nil
	}
	return fmt.Errorf("%d buffers of %d bytes for each rank are more than the limit of %d bytes; "+
		"raise it with -M or lower -m",
		buffers, o.MaxSize, o.MemoryMax)
}

// parseRange reads the argument of -m: "MAX", "MIN:", ":MAX" or "MIN:MAX".
func parseRange(arg string, o *Options) error {
	low, high, isRange := strings.Cut(arg, ":")
	if !isRange {
		low, high = "", arg
	}
	if low == "" && high == "" {
		return fmt.Errorf("wanted [MIN:]MAX, got %q", arg)
	}
	lo, hi := o.MinSize, o.MaxSize
	var err error
	if low != "" {
		if lo, err = ParseSize(low); err != nil {
			return err
		}
	}
	if high != "" {
		if hi, err = ParseSize(high); err != nil {
			return err
		}
	}
	if lo > hi {
		return fmt.Errorf("the minimum %d is above the maximum %d", lo, hi)
	}
	o.MinSize, o.MaxSize = lo, hi
	return nil
}

// parseThreads reads the argument of -t: "SEND" or "SEND:RECV"; the first alone stands for both.
func parseThreads(arg string, o *Options) error {
	send, recv, isPair := strings.Cut(arg, ":")
	if !isPair {
		recv = send
	}
	if err := count(1, func(n int) { o.Senders = n })(send); err != nil {
		return err
	}
	return count(1, func(n int) { o.Receivers = n })(recv)
}

// PairsOf returns how many pairs work in a job of so many ranks: rank i and rank i + pairs are one. Ranks after the
// last pair have nothing to do.
func (o Options) PairsOf(ranks int) (int, error) {
	switch {
	case o.Pairs == 0 && (ranks < 2 || ranks%2 != 0):
		return 0, fmt.Errorf("needs an even number of ranks, this job has %d; start it with gorun -n 2, 4, …, "+
			"or say with -p how many pairs shall work", ranks)
	case o.Pairs == 0:
		return ranks / 2, nil
	case 2*o.Pairs > ranks:
		return 0, fmt.Errorf("-p %d: so many pairs need %d ranks, this job has %d; start it with gorun -n %d",
			o.Pairs, 2*o.Pairs, ranks, 2*o.Pairs)
	}
	return o.Pairs, nil
}

// Syncs are the values of -s. OSU's programs lack lock_exclusive and lock_all_flush.
var Syncs = []string{"lock", "lock_exclusive", "flush", "flush_local", "lock_all", "lock_all_flush", "pscw", "fence"}

// WinKinds are the values of -w. OSU's programs lack shared.
var WinKinds = []string{"allocate", "create", "shared", "dynamic"}

func parseSync(arg string, o *Options) error {
	for sync := range strings.SplitSeq(arg, ",") {
		if err := oneOf(Syncs, sync); err != nil {
			return err
		}
	}
	o.Sync = arg
	return nil
}

func parseWindow(arg string, o *Options) error {
	o.WinKind = arg
	return oneOf(WinKinds, arg)
}

func oneOf(words []string, arg string) error {
	if !slices.Contains(words, arg) {
		return fmt.Errorf("wanted one of %s, got %q", strings.Join(words, ", "), arg)
	}
	return nil
}

// parseCount reads a whole number that is at least low.
func parseCount(arg string, low int64) (int64, error) {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", arg)
	}
	if n < low {
		return 0, fmt.Errorf("%d is below the least that makes sense, %d", n, low)
	}
	return n, nil
}

// parseSeconds reads a time in seconds, such as 0.7.
func parseSeconds(arg string) (time.Duration, error) {
	s, err := strconv.ParseFloat(arg, 64)
	switch {
	case err != nil || math.IsNaN(s):
		return 0, fmt.Errorf("%q is not a number of seconds", arg)
	case s < 0 || s > maxSeconds:
		return 0, fmt.Errorf("%v s is not between 0 and %d s", s, maxSeconds)
	}
	return time.Duration(s * float64(time.Second)), nil
}

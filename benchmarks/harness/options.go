package harness

import (
	"fmt"
	"strconv"
	"strings"
)

// OSU 7.4's defaults. Messages above LargeMessage get the second number of rounds.
const (
	LargeMessage = 8192

	DefaultMinSize   = 1
	DefaultMaxSize   = 4 << 20
	DefaultWindow    = 64
	DefaultMemoryMax = 512 << 20
)

// Rounds is how often something is measured, and how often it is done before without being measured.
type Rounds struct{ Iterations, Warmup int }

// Options is what the command line said, over the program's defaults.
type Options struct {
	MinSize, MaxSize int64  // -m: the range of the first column, both ends included
	Small, Large     Rounds // -i and -x set both; Large holds for sizes above LargeMessage
	Window           int    // -W: messages in flight
	Validate         bool   // -c: fill before, compare after every message
	Full             bool   // -f: time every iteration, print extremes and percentiles
	Multiple         bool   // -b multiple: each message of a window has a buffer of its own
	Alloc            bool   // --alloc: buffers from mpi.Alloc instead of make
	MemoryMax        int64  // -M: what the buffers of one rank may take together
}

// LatencyDefaults are OSU's for the latency programs.
func LatencyDefaults() Options {
	return Options{
		MinSize: DefaultMinSize, MaxSize: DefaultMaxSize,
		Small: Rounds{10000, 100}, Large: Rounds{1000, 10},
		Window: DefaultWindow, MemoryMax: DefaultMemoryMax,
	}
}

// BandwidthDefaults are OSU's for the bandwidth programs.
func BandwidthDefaults() Options {
	o := LatencyDefaults()
	o.Small, o.Large = Rounds{100, 10}, Rounds{20, 2}
	return o
}

// Rounds returns the number of rounds for messages of the given size.
func (o Options) Rounds(size int64) Rounds {
	if size > LargeMessage {
		return o.Large
	}
	return o.Small
}

// PerIteration says whether each iteration is timed by itself. Otherwise two readings of the clock enclose all of
// them, which is what OSU does and what disturbs least.
func (o Options) PerIteration() bool { return o.Full || o.Validate }

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
		if lo, err = parseCount(low, 0); err != nil {
			return err
		}
	}
	if high != "" {
		if hi, err = parseCount(high, 0); err != nil {
			return err
		}
	}
	if lo > hi {
		return fmt.Errorf("the minimum %d is above the maximum %d", lo, hi)
	}
	o.MinSize, o.MaxSize = lo, hi
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

package tune

import (
	"slices"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/tuned"
)

// Result is what a run has found.
type Result struct {
	Host      tuned.Host
	Via, CPUs string // of its lines
	First     []Cell
	Gains     []Gain
	Noisy     []Gain // which get no line
	// EagerMax is the limit that gains; 0: none does. It counts if Eager, since short runs do not measure it.
	EagerMax int64
	Eager    bool
}

// Earlier counts the lines of an earlier file.
type Earlier struct {
	// Removed counts the lines of as many ranks whose sizes the run has measured again.
	Removed int `json:"removed"`
	// Kept counts the lines of as many ranks for whose sizes the run has measured nothing, or noise.
	Kept int `json:"kept"`
	// Other counts the other lines.
	Other int `json:"other"`
}

// File returns the file to write: the run's lines, and the lines of an earlier file (nil: no such file) that the run
// has not measured again. Lines stand by the number of ranks of their run, from the fewest on, so that a communicator
// takes the lines of the nearest run.
func (r *Result) File(old *tuned.File) (*tuned.File, Earlier) {
	lines := Lines(r.First, r.Gains, r.Host.Ranks, r.Via, r.CPUs)
	f := &tuned.File{Version: tuned.Version, Host: r.Host, EagerMax: r.EagerMax}
	var count Earlier
	rest := []collectives.Line{}
	if old != nil {
		if !r.Eager && old.Host.Transport == r.Host.Transport {
			f.EagerMax = old.EagerMax
		}
		for _, l := range old.Collectives {
			switch {
			case !ofRun(l) || l.Ranks != r.Host.Ranks || l.Via != r.Via || l.CPUs != r.CPUs:
				rest = append(rest, l)
				count.Other++
			case r.again(l):
				count.Removed++
			default:
				lines = append(lines, l)
				count.Kept++
			}
		}
	}
	at := slices.IndexFunc(rest, func(l collectives.Line) bool { return ofRun(l) && l.Ranks > r.Host.Ranks })
	if at < 0 {
		at = len(rest)
	}
	f.Collectives = slices.Insert(rest, at, lines...)
	return f, count
}

// ofRun reports whether Lines writes such a line: others are a user's.
func ofRun(l collectives.Line) bool { return l.Ranks > 0 && l.LeastRanks == l.Ranks/2+1 }

// again reports whether the run has measured a size for which a line holds, and not just noise.
func (r *Result) again(l collectives.Line) bool {
	return slices.ContainsFunc(r.First, func(c Cell) bool {
		return c.Operation == l.Operation && c.Bytes >= l.LeastBytes && (l.Bytes == 0 || c.Bytes <= l.Bytes) &&
			!slices.ContainsFunc(r.Noisy, func(g Gain) bool { return g.Operation == c.Operation && g.Bytes == c.Bytes })
	})
}

package bench

import (
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

const (
	// batchTime is what a batch of rounds takes at least, between two looks at the clock. It is short, so that a job
	// whose pace falls by a thousand, as where ranks wait for each other's time slices, is not caught in one.
	batchTime  = time.Millisecond
	mostRounds = 1 << 30
	growth     = 4 // from one batch to the next
)

// Pace warms up and says how many rounds to measure. Every rank of a job has one, and all call it together; rank 0
// looks at the clock and tells the others.
type Pace struct {
	world *mpi.Comm
	opts  harness.Options
	left  time.Duration // of the warm-up before the first figure
}

// NewPace makes the rank's pace.
func NewPace(j *Job) *Pace { return &Pace{world: j.World, opts: j.Options, left: j.Options.WarmTime} }

// Settle plays until the warm-up is over and returns how many rounds to measure: the iterations, or with --time as
// many as take so long.
func (p *Pace) Settle(rounds harness.Rounds, play func(n int) error) (int, error) {
	if p.left == 0 && p.opts.Time == 0 {
		return rounds.Iterations, play(rounds.Warmup)
	}
	n, err := p.batches(play)
	if p.opts.Time == 0 {
		n = rounds.Iterations
	}
	return n, err
}

// Warm is Settle for a figure that has a number of rounds of its own.
func (p *Pace) Warm(play func(n int) error) error {
	if p.left == 0 {
		return nil
	}
	_, err := p.batches(play)
	return err
}

// batches plays until the time of the warm-up has passed and the pace is known. It returns how many rounds take as long
// as a figure shall.
func (p *Pace) batches(play func(n int) error) (int, error) {
	t := tally{each: max(p.opts.Time, batchTime)}
	begin := time.Now()
	for next := int64(1); ; {
		start := time.Now()
		if err := play(int(next)); err != nil {
			return 0, err
		}
		next = t.next(next, time.Since(start), p.left-time.Since(begin))
		if err := p.agree(&next); err != nil {
			return 0, err
		}
		if next < 0 {
			p.left = 0
			return int(-next), nil
		}
	}
}

// tally is what has been played before a figure.
type tally struct {
	rounds int64
	took   time.Duration
	each   time.Duration // that the figure shall take
}

// next adds a batch of n rounds, when the warm-up lasts for so much more. It returns how many rounds the next batch
// has, or below 0 how many the figure has, by the mean pace of all batches.
func (t *tally) next(n int64, took, left time.Duration) int64 {
	t.rounds, t.took = t.rounds+n, t.took+max(took, 1)
	switch {
	case left <= 0 && t.took >= t.each/2:
		fits := float64(t.rounds) * float64(t.each) / float64(t.took)
		return -max(1, int64(min(fits, mostRounds)))
	case took < batchTime/2 && n < mostRounds/growth:
		return growth * n
	}
	return n
}

// agree brings rank 0's number to all ranks.
func (p *Pace) agree(n *int64) error {
	word := [1]int64{*n}
	if p.world.Rank() != 0 {
		_, err := mpi.Recv(p.world, word[:], 0, paceTag)
		*n = word[0]
		return err
	}
	for other := 1; other < p.world.Size(); other++ {
		if err := mpi.Send(p.world, word[:], other, paceTag); err != nil {
			return err
		}
	}
	return nil
}

// Fit is how many repetitions of `each` fit into the time of a figure, within bounds. With -i it is that number.
func Fit(o harness.Options, each time.Duration, least, most int) int {
	if o.Time == 0 {
		return o.Small.Iterations
	}
	return min(max(least, int(o.Time/each)), most)
}

// Compute computes for so long, without any call of the library.
func Compute(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

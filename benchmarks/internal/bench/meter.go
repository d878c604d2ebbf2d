package bench

import (
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// epoch is what Now counts from: so only the monotonic clock is read, once for each time.
var epoch = time.Now()

// Now is the time, for differences.
func Now() time.Duration { return time.Since(epoch) }

// Rounds is what a rank does over and over, and what is measured.
type Rounds interface {
	// Resize makes ready for messages of the size.
	Resize(size int64) error
	// Play does n rounds, messages included.
	Play(n int) error
	// Fill writes the patterns of a round into what this rank sends and clears what it receives into.
	Fill(round int)
	// Check counts the buffers that do not hold the round's patterns.
	Check(round int) (wrong int64)
}

// Meter times rounds. Every rank of the job has one.
type Meter struct {
	job   *Job
	times bool // this rank's time counts; the result is the mean of those that do
	meet  bool // all ranks meet between warm-up and measurement
	pace  *Pace
	each  []int64 // the time of each round; the Meter's, until the next Measure
}

// NewMeter makes the rank's meter. The time of rounds is the mean of the ranks for which times is set, rank 0 being
// one of them. Where more than one counts, they begin together.
func NewMeter(j *Job, times, together bool) *Meter {
	return &Meter{job: j, times: times, meet: together, pace: NewPace(j)}
}

// Latency measures the side's rounds for each size of the options. The program's report has half of a round: the time
// of one message of a ping-pong.
func (m *Meter) Latency(side Rounds) error {
	report := m.job.Program.Report(m.job.Output, harness.Microseconds)
	return report.Measure(func(size int64) (harness.Result, error) {
		result, err := m.Measure(side, size)
		result.PerRound = 2
		return result, err
	})
}

// Bandwidth measures the side's rounds for each size of the options. The report has the bytes and messages a second of
// rounds of so many messages.
func (m *Meter) Bandwidth(report *harness.Report, side Rounds, messages int) error {
	return report.Measure(func(size int64) (harness.Result, error) {
		result, err := m.Measure(side, size)
		result.Messages = int64(messages)
		result.PerRound = size * result.Messages
		return result, err
	})
}

// Measure plays all rounds of one size. The result is rank 0's; the caller adds what a round moved.
func (m *Meter) Measure(r Rounds, size int64) (harness.Result, error) {
	result := harness.Result{Size: size}
	if err := r.Resize(size); err != nil {
		return result, err
	}
	runtime.GC() // no collection of the previous size's leftovers while the clock runs
	if err := mpi.Barrier(m.job.World); err != nil {
		return result, err
	}
	n, err := m.pace.Settle(m.job.Options.Rounds(size), r.Play)
	if err != nil {
		return result, err
	}
	result.Rounds = n
	if m.job.Options.PerIteration() && n > len(m.each) {
		m.each = make([]int64, n)
	}
	if m.meet {
		if err := mpi.Barrier(m.job.World); err != nil {
			return result, err
		}
	}
	if err := m.play(&result, r, n); err != nil {
		return result, err
	}
	return result, m.combine(&result)
}

func (m *Meter) play(result *harness.Result, r Rounds, n int) error {
	if m.job.Options.PerIteration() {
		return m.playEach(result, r, n)
	}
	start := time.Now()
	err := r.Play(n)
	result.Iteration = float64(time.Since(start)) / float64(n)
	return err
}

// playEach times every round by itself, filling before and comparing after it when that was asked for.
func (m *Meter) playEach(result *harness.Result, r Rounds, n int) error {
	var total time.Duration
	for i := range n {
		if m.job.Options.Validate {
			r.Fill(i)
			// No rank is still filling while the clock of another one runs.
			if err := mpi.Barrier(m.job.World); err != nil {
				return err
			}
		}
		start := time.Now()
		if err := r.Play(1); err != nil {
			return err
		}
		took := time.Since(start)
		m.each[i] = int64(took)
		total += took
		if m.job.Options.Validate {
			result.Errors += r.Check(i)
		}
	}
	result.Each = m.each[:n]
	result.Iteration = float64(total) / float64(n)
	return nil
}

// figures are what a rank has measured.
type figures struct {
	Iteration float64
	Times     bool
	Errors    int64
}

// combine turns rank 0's result into that of all ranks.
func (m *Meter) combine(result *harness.Result) error {
	j := m.job
	if j.Rank != 0 {
		return mpi.SendValue(j.World, figures{result.Iteration, m.times, result.Errors}, 0, figureTag)
	}
	sum, count := result.Iteration, 1
	for other := 1; other < j.Ranks; other++ {
		f, _, err := mpi.RecvValue[figures](j.World, other, figureTag)
		if err != nil {
			return err
		}
		result.Errors += f.Errors
		if f.Times {
			sum += f.Iteration
			count++
		}
	}
	result.Iteration = sum / float64(count)
	return nil
}

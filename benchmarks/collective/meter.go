package main

import (
	"math"
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

// meter times one rank's calls.
type meter struct {
	job     *bench.Job
	pace    *bench.Pace
	buffers *buffers
	call    func() error
	meet    bool // in a barrier after each call
	took    time.Duration
	wrong   int64
}

// newMeter makes the meter of a rank whose buffers are on a device, if where is one.
func newMeter(j *bench.Job, where int, chosen []form) (*meter, error) {
	b, err := newBuffers(j, where, chosen)
	return &meter{job: j, pace: bench.NewPace(j), buffers: b}, err
}

// figure is a result with the means of the fastest and of the slowest rank, in nanoseconds.
type figure struct {
	harness.Result
	least, most float64
}

// measure makes all calls of one form and size: of a nonblocking one the call and Wait, of a persistent one Start and
// Wait. The figure is rank 0's.
func (m *meter) measure(o form, size int64) (figure, error) {
	f := figure{Result: harness.Result{Size: size}}
	m.buffers.resize(o.operation, int(size))
	free, err := m.bind(o)
	if err != nil {
		return f, err
	}
	defer free()
	runtime.GC() // no collection of the previous size's leftovers while the clock runs
	if err := mpi.Barrier(m.job.World); err != nil {
		return f, err
	}
	n, err := m.pace.Settle(m.job.Options.Rounds(size), m.play)
	if err != nil {
		return f, err
	}
	f.Rounds = n
	if err := mpi.Barrier(m.job.World); err != nil {
		return f, err
	}
	m.took, m.wrong = 0, 0
	play := m.play
	if m.job.Options.Validate {
		play = m.playChecked
	}
	if err := play(n); err != nil {
		return f, err
	}
	return f, m.combine(&f)
}

// bind makes call what a form does.
func (m *meter) bind(f form) (free func(), err error) {
	b := m.buffers
	m.meet, free = !f.named("barrier"), func() {}
	switch f.way {
	case blocking:
		m.call = func() error { return f.call(b) }
	case nonblocking:
		m.call = func() error {
			r, err := f.start(b)
			if err == nil {
				_, err = r.Wait()
			}
			return err
		}
	case persistent:
		r, err := f.keep(b)
		if err != nil {
			return free, err
		}
		free = func() { r.Free() }
		m.call = func() error {
			err := r.Start()
			if err == nil {
				_, err = r.Wait()
			}
			return err
		}
	}
	return free, nil
}

// overlap makes n nonblocking calls, the computation between each and its Wait taking about as long as they do alone.
// It returns the means over the ranks of the whole and of the computation alone, at rank 0, in nanoseconds.
func (m *meter) overlap(f form, n int, pure float64) (overall, alone float64, err error) {
	world, n := m.job.World, min(n, mostOverlaps)
	word := []float64{pure}
	if err := mpi.Bcast(world, word, root); err != nil {
		return 0, 0, err
	}
	steps := bench.StepsFor(word[0])
	if err := mpi.Barrier(world); err != nil {
		return 0, 0, err
	}
	own, all := []float64{0, bench.Working(steps, n)}, make([]float64, 2)
	m.took = 0
	for range n {
		if err := mpi.Barrier(world); err != nil {
			return 0, 0, err
		}
		start := bench.Now()
		r, err := f.start(m.buffers)
		if err != nil {
			return 0, 0, err
		}
		bench.Work(steps)
		if _, err := r.Wait(); err != nil {
			return 0, 0, err
		}
		m.took += bench.Now() - start
	}
	own[0] = float64(m.took) / float64(n)
	err = mpi.Reduce(world, own, all, mpi.Sum, root)
	ranks := float64(m.job.Ranks)
	return all[0] / ranks, all[1] / ranks, err
}

// mostOverlaps bounds how often a computation is measured.
const mostOverlaps = 10000

func (m *meter) play(n int) error {
	call, world := m.call, m.job.World
	for range n {
		start := bench.Now()
		if err := call(); err != nil {
			return err
		}
		m.took += bench.Now() - start
		if m.meet {
			if err := mpi.Barrier(world); err != nil {
				return err
			}
		}
	}
	return nil
}

// playChecked fills before each call and compares after it.
func (m *meter) playChecked(n int) error {
	for i := range n {
		m.buffers.fill(i)
		if err := m.buffers.device.put(); err != nil {
			return err
		}
		if err := mpi.Barrier(m.job.World); err != nil {
			return err
		}
		start := bench.Now()
		if err := m.call(); err != nil {
			return err
		}
		m.took += bench.Now() - start
		if err := m.buffers.device.get(); err != nil {
			return err
		}
		m.wrong += m.buffers.wrong(i)
	}
	return nil
}

// combine brings the ranks' times to rank 0.
func (m *meter) combine(f *figure) error {
	mean := float64(m.took) / float64(f.Rounds)
	own := []float64{mean, float64(m.wrong)}
	var all []float64
	if m.job.Rank == 0 {
		all = make([]float64, len(own)*m.job.Ranks)
	}
	if err := mpi.Gather(m.job.World, own, all, 0); err != nil {
		return err
	}
	f.least = math.Inf(1)
	for ; len(all) > 0; all = all[len(own):] {
		f.Iteration += all[0] / float64(m.job.Ranks)
		f.least, f.most = min(f.least, all[0]), max(f.most, all[0])
		f.Errors += int64(all[1])
	}
	return nil
}

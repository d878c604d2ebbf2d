package bench

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// jobs runs a job of goroutines.
func jobs(t *testing.T, ranks int, o harness.Options, body func(j *Job) error) {
	t.Helper()
	err := mpi.RunLocal(ranks, func(world *mpi.Comm) error {
		j := &Job{World: world, Rank: world.Rank(), Ranks: world.Size(), Options: o}
		defer j.free()
		return body(j)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func options(change func(*harness.Options)) harness.Options {
	o := harness.BandwidthDefaults()
	o.MaxSize, o.Window, o.WarmTime = 4096, 8, 0
	o.Small = harness.Rounds{Iterations: 5, Warmup: 2}
	change(&o)
	return o
}

// scripted are rounds that fail as they are told, and record their calls.
type scripted struct {
	size    int64
	plays   []int
	fills   []int
	wrong   map[int]int64 // by round
	failure error
}

func (s *scripted) Resize(size int64) error { s.size = size; return nil }
func (s *scripted) Play(n int) error        { s.plays = append(s.plays, n); return s.failure }
func (s *scripted) Fill(round int)          { s.fills = append(s.fills, round) }
func (s *scripted) Check(round int) int64   { return s.wrong[round] }

func TestMeterPlays(t *testing.T) {
	for _, c := range []struct {
		name  string
		opts  harness.Options
		plays []int
		fills int
	}{
		{"plain", options(func(*harness.Options) {}), []int{2, 5}, 0},
		{"full", options(func(o *harness.Options) { o.Full = true }), []int{2, 1, 1, 1, 1, 1}, 0},
		{"validation", options(func(o *harness.Options) { o.Validate = true }), []int{2, 1, 1, 1, 1, 1}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			jobs(t, 3, c.opts, func(j *Job) error {
				s := &scripted{}
				result, err := NewMeter(j, j.Rank == 0, true).Measure(s, 64)
				if err != nil {
					return err
				}
				if fmt.Sprint(s.plays) != fmt.Sprint(c.plays) || len(s.fills) != c.fills || s.size != 64 {
					return fmt.Errorf("plays %v, fills %v, size %d", s.plays, s.fills, s.size)
				}
				if want := len(c.plays) - 1; c.opts.PerIteration() && len(result.Each) != want {
					return fmt.Errorf("%d times, want %d", len(result.Each), want)
				}
				return nil
			})
		})
	}
}

// What any rank finds wrong is in rank 0's result.
func TestMeterAddsErrors(t *testing.T) {
	jobs(t, 4, options(func(o *harness.Options) { o.Validate = true }), func(j *Job) error {
		s := &scripted{wrong: map[int]int64{1: int64(j.Rank), 4: 10}}
		result, err := NewMeter(j, true, false).Measure(s, 8)
		if err == nil && j.Rank == 0 && result.Errors != 4*10+1+2+3 {
			err = fmt.Errorf("%d errors", result.Errors)
		}
		return err
	})
}

// Only the ranks whose time counts are in the mean.
func TestMeterTakesTheMean(t *testing.T) {
	jobs(t, 3, options(func(*harness.Options) {}), func(j *Job) error {
		m := NewMeter(j, j.Rank != 1, false)
		result := harness.Result{Iteration: []float64{10, 1000, 30}[j.Rank]}
		err := m.combine(&result)
		if err == nil && j.Rank == 0 && result.Iteration != 20 {
			err = fmt.Errorf("mean %v", result.Iteration)
		}
		return err
	})
}

func TestMeterStopsAtAnError(t *testing.T) {
	failure := errors.New("broken")
	jobs(t, 1, options(func(*harness.Options) {}), func(j *Job) error {
		if _, err := NewMeter(j, true, false).Measure(&scripted{failure: failure}, 8); !errors.Is(err, failure) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// rounds are each side of what this package plays.
var rounds = map[string]func(j *Job) (Rounds, error){
	"pair":   func(j *Job) (Rounds, error) { return NewPair(j, 1-j.Rank, j.Rank == 0) },
	"window": func(j *Job) (Rounds, error) { return NewWindow(j, 1-j.Rank, j.Rank == 0) },
}

func TestRoundsAreRight(t *testing.T) {
	for name, make := range rounds {
		for _, multiple := range []bool{false, true} {
			for _, alloc := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s multiple=%v alloc=%v", name, multiple, alloc), func(t *testing.T) {
					o := options(func(o *harness.Options) { o.Multiple, o.Alloc, o.Validate = multiple, alloc, true })
					jobs(t, 2, o, func(j *Job) error { return measureAll(j, make) })
				})
			}
		}
	}
}

func measureAll(j *Job, make func(j *Job) (Rounds, error)) error {
	r, err := make(j)
	if err != nil {
		return err
	}
	m := NewMeter(j, j.Rank == 0, false)
	for _, size := range []int64{0, 1, 8, 4096} {
		result, err := m.Measure(r, size)
		if err != nil || result.Errors != 0 {
			return fmt.Errorf("size %d: %d errors, %v", size, result.Errors, err)
		}
	}
	return nil
}

// spoiled sends something else than what it filled in.
type spoiled struct{ Rounds }

func (s spoiled) Fill(round int) { s.Rounds.Fill(round + 1) }

func TestRoundsFindWrongContents(t *testing.T) {
	for name, make := range rounds {
		t.Run(name, func(t *testing.T) {
			o := options(func(o *harness.Options) { o.Multiple, o.Validate = true, true })
			jobs(t, 2, o, func(j *Job) error {
				r, err := make(j)
				if err != nil {
					return err
				}
				if j.Rank == 0 {
					r = spoiled{r}
				}
				result, err := NewMeter(j, j.Rank == 0, false).Measure(r, 64)
				want := map[string]int64{"pair": 5, "window": 5 * 8}[name]
				if err == nil && j.Rank == 0 && result.Errors != want {
					err = fmt.Errorf("%d errors, want %d", result.Errors, want)
				}
				return err
			})
		})
	}
}

func TestRoundsAllocateNothing(t *testing.T) {
	for name, make := range rounds {
		t.Run(name, func(t *testing.T) {
			jobs(t, 2, options(func(*harness.Options) {}), func(j *Job) error {
				r, err := make(j)
				if err != nil {
					return err
				}
				if err := errors.Join(r.Resize(64), r.Play(300)); err != nil {
					return err
				}
				if j.Rank == 1 {
					return r.Play(101 * 10)
				}
				var failed error
				n := testing.AllocsPerRun(100, func() { failed = errors.Join(failed, r.Play(10)) })
				if n > 0.5 {
					failed = errors.Join(failed, fmt.Errorf("ten rounds made %v allocations", n))
				}
				return failed
			})
		})
	}
}

func TestPartners(t *testing.T) {
	for _, c := range []struct {
		pairs, rank, partner int
		first                bool
	}{
		{1, 0, 1, true}, {1, 1, 0, false}, {2, 0, 2, true}, {2, 1, 3, true}, {2, 2, 0, false}, {2, 3, 1, false},
		{2, 4, NoPartner, false},
	} {
		if partner, first := PartnerIn(c.pairs, c.rank); partner != c.partner || first != c.first {
			t.Errorf("%+v: %d, %v", c, partner, first)
		}
	}
}

// A rank that has no partner takes part in the barriers and does no more.
func TestRanksWithoutPartner(t *testing.T) {
	o := options(func(o *harness.Options) { o.Validate = true })
	jobs(t, 5, o, func(j *Job) error {
		partner, first := PartnerIn(2, j.Rank)
		return measureAll(j, func(j *Job) (Rounds, error) {
			if _, err := NewPair(j, partner, first); err != nil {
				return nil, err
			}
			return NewWindow(j, partner, first)
		})
	})
}

// Buffers of different goroutines are not neighbours in a cache line.
func TestMemoryBeginsAPage(t *testing.T) {
	for _, alloc := range []bool{false, true} {
		jobs(t, 1, options(func(o *harness.Options) { o.Alloc = alloc }), func(j *Job) error {
			for _, n := range []int{0, 1, 8, 4096, 5000, 100000} {
				m, err := j.Memory(n)
				if err != nil || len(m) != n {
					return fmt.Errorf("%d bytes of %d, %v", len(m), n, err)
				}
				if address := reflect.ValueOf(m).Pointer(); !alloc && n > 0 && address%page != 0 {
					return fmt.Errorf("%d bytes begin at %#x", n, address)
				}
			}
			return nil
		})
	}
}

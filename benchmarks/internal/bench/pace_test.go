package bench

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// played is a tally's batches of a program whose rounds take so long, until it has decided.
func played(round func(at time.Duration) time.Duration, warm, each time.Duration) (figure int64, took time.Duration) {
	t := tally{each: each}
	for next := int64(1); ; {
		batch := time.Duration(next) * round(took)
		took += batch
		if next = t.next(next, batch, warm-took); next < 0 {
			return -next, took
		}
	}
}

func TestTheFigureTakesItsTime(t *testing.T) {
	for _, round := range []time.Duration{1, 300, time.Microsecond, 50 * time.Microsecond, 3 * time.Millisecond} {
		for _, warm := range []time.Duration{0, 700 * time.Millisecond} {
			const each = 100 * time.Millisecond
			n, took := played(func(time.Duration) time.Duration { return round }, warm, each)
			if figure := time.Duration(n) * round; figure < each*95/100 || figure > each*105/100 {
				t.Errorf("rounds of %v: the figure takes %v", round, figure)
			}
			if least := max(warm, each/2); took < least || took > least+10*time.Millisecond {
				t.Errorf("rounds of %v, warm-up of %v: %v were played before", round, warm, took)
			}
		}
	}
}

// What no sensible clock says ends all the same.
func TestTheFigureIsAtLeastOneRound(t *testing.T) {
	still := tally{each: 100} // the clock stands still
	for n, batches := int64(1), 0; n > 0; batches++ {
		if n = still.next(n, 0, 0); n > mostRounds || n < -mostRounds || batches > 100 {
			t.Fatalf("%d rounds after %d batches", n, batches)
		}
	}
	hour := func(time.Duration) time.Duration { return time.Hour }
	if n, took := played(hour, time.Second, time.Millisecond); n != 1 || took != time.Hour {
		t.Errorf("rounds of an hour: %d after %v", n, took)
	}
}

// A job whose pace falls by ten thousand is not caught in a batch of the old pace.
func TestAFallingPace(t *testing.T) {
	falls := func(at time.Duration) time.Duration {
		if at < 300*time.Millisecond {
			return 300 * time.Nanosecond
		}
		return 3 * time.Millisecond
	}
	if n, took := played(falls, 700*time.Millisecond, 100*time.Millisecond); took > 30*time.Second || n > 200_000 {
		t.Errorf("%d rounds after %v", n, took)
	}
}

func TestPace(t *testing.T) {
	for _, c := range []struct {
		name  string
		warm  time.Duration
		each  time.Duration
		first int // rounds before the first figure, at least
		again int // before the second one, at least
		exact bool
	}{
		{"iterations", 0, 0, 2, 2, true},
		{"warm-up by time", 30 * time.Millisecond, 0, 1, 2, false},
		{"figure by time", 0, 20 * time.Millisecond, 1, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(func(o *harness.Options) { o.WarmTime, o.Time = c.warm, c.each })
			jobs(t, 3, o, func(j *Job) error {
				p := NewPace(j)
				for i, least := range []int{c.first, c.again} {
					rounds := 0
					n, err := p.Settle(o.Small, func(n int) error {
						rounds += n
						time.Sleep(time.Duration(n) * 2 * time.Millisecond)
						return nil
					})
					if err != nil {
						return err
					}
					if c.each == 0 && n != o.Small.Iterations || c.each > 0 && (n < 1 || n > 10) {
						return fmt.Errorf("figure %d has %d rounds", i, n)
					}
					if rounds < least || c.exact && rounds != least {
						return fmt.Errorf("%d rounds before figure %d, want %d", rounds, i, least)
					}
				}
				return nil
			})
		})
	}
}

func TestPaceStopsAtAnError(t *testing.T) {
	failure := errors.New("broken")
	o := options(func(o *harness.Options) { o.WarmTime = time.Hour })
	jobs(t, 1, o, func(j *Job) error {
		if err := NewPace(j).Warm(func(int) error { return failure }); !errors.Is(err, failure) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		o    harness.Options
		each time.Duration
		want int
	}{
		{harness.Options{Time: time.Second}, time.Millisecond, 1000},
		{harness.Options{Time: time.Second}, time.Microsecond, 2000},
		{harness.Options{Time: time.Second}, time.Minute, 10},
		{harness.Options{Small: harness.Rounds{Iterations: 7}}, time.Minute, 7},
	} {
		if got := Fit(c.o, c.each, 10, 2000); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

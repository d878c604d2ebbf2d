package pml

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/waitpolicy"
)

// clock is a pace's in a test: the steps take time as the test says.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

// The steps of a wait for which nothing comes: each policy's, of the leader and of the watcher.
func TestSteps(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		name         string
		policy       waitpolicy.Policy
		oneProcessor bool
		leads        bool
		look, yield  time.Duration // how long a look takes, and a yield
		most         time.Duration
		want         string // the steps other than polling; "Nx" stands for N in a row
	}{
		{"a rank of its own", waitpolicy.Spin, false, true, us / 64, us, 70 * us, "3x yield, stalled, park"},
		{"the only processor is offered once more", waitpolicy.Spin, true, true, us / 64, us, 70 * us,
			"3x yield, stalled, yield, park"},
		{"something is done about it in the middle", waitpolicy.Spin, false, true, us, us, 3 * stallAfter,
			"15x yield, stalled, 30x yield, park"},
		{"more ranks than CPUs", waitpolicy.Yield, false, true, us, 9 * us, 30 * us,
			"3x yieldCPU, stalled, park"},
		{"asleep at once", waitpolicy.Policy{}, false, true, us, us, 0, "stalled, park"},
		{"asleep at once, one processor", waitpolicy.Policy{}, true, true, us, us, 0, "stalled, yield, park"},
		{"the watcher", waitpolicy.Spin, true, false, us / 64, us, 70 * us, "stalled, park"},
		{"the watcher that arms at once", waitpolicy.Yield, true, false, us, us, 0, "stalled, park"},
	} {
		clock := &clock{time.Now()}
		p := newPace(c.policy)
		p.oneProcessor, p.now = c.oneProcessor, clock.now
		p.begin()
		var got []string
		for s := stepPoll; s != stepPark && len(got) < 1000; {
			clock.t = clock.t.Add(c.look)
			switch s = p.next(c.most, c.leads); s {
			case stepYield:
				began := clock.t
				clock.t = clock.t.Add(c.yield)
				p.hasYielded(began, false)
			case stepYieldCPU:
				clock.t = clock.t.Add(c.yield)
			}
			if s != stepPoll {
				got = append(got, s.String())
			}
		}
		if text := runs(got); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

func (s step) String() string {
	return [...]string{"poll", "offer", "yield", "yieldCPU", "stalled", "park"}[s]
}

// runs joins words, equal ones in a row as one with their number.
func runs(words []string) string {
	var all []string
	for i := 0; i < len(words); {
		n := i
		for n < len(words) && words[n] == words[i] {
			n++
		}
		if n -= i; n > 1 {
			all = append(all, fmt.Sprintf("%dx %s", n, words[i]))
		} else {
			all = append(all, words[i])
		}
		i += n
	}
	return strings.Join(all, ", ")
}

// After something has come a wait begins anew.
func TestStepsBeginAnew(t *testing.T) {
	clock := &clock{time.Now()}
	p := newPace(waitpolicy.Fixed(time.Millisecond))
	p.oneProcessor, p.now = false, clock.now
	p.begin()
	wait := func() (steps []step) {
		for s := stepPoll; s != stepPark; clock.t = clock.t.Add(10 * time.Microsecond) {
			if s = p.next(time.Millisecond, false); s != stepPoll {
				steps = append(steps, s)
			}
		}
		return steps
	}
	want := []step{stepStalled, stepPark}
	for range 3 {
		if got := wait(); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		p.came()
	}
}

// A sleep that a device has ended for a look goes on after a glance that finds nothing, of a 128th of the sleep, the
// watcher's too. In the glance path.stalled is asked once, since a message for the server of this rank shows itself
// nowhere else, and on the only processor the leader yields. What a look finds begins the wait anew.
func TestStepsGlance(t *testing.T) {
	const slept = 12800 * time.Microsecond
	for _, c := range []struct {
		leads, oneProcessor bool
		want                string
	}{
		{true, false, "99x poll, stalled, park"},
		{true, true, "99x poll, stalled, yield, park"},
		{false, true, "99x poll, stalled, park"},
	} {
		clock := &clock{time.Now()}
		p := newPace(waitpolicy.Spin)
		p.oneProcessor, p.now, p.glances = c.oneProcessor, clock.now, true
		steps := func() (names []string) { // until it parks
			for s := stepPoll; s != stepPark; {
				clock.t = clock.t.Add(time.Microsecond)
				s = p.next(p.poll, c.leads)
				names = append(names, s.String())
			}
			return names
		}
		sleep := func() {
			clock.t = clock.t.Add(slept)
			if c.leads {
				p.hasParked()
			} else {
				p.beginWoken()
			}
		}
		p.begin()
		if n := len(steps()); n < 1000 {
			t.Errorf("it has taken %d steps when it sleeps", n)
		}
		for range 3 {
			sleep()
			if got := runs(steps()); got != c.want {
				t.Errorf("leads %t: %s, want %s", c.leads, got, c.want)
			}
		}
		sleep()
		p.came()
		if n := len(steps()); n < 1000 {
			t.Errorf("it has taken %d steps since something has come", n)
		}
	}
}

// A rank learns from its sleeps also where a wait ends without that its own look has found anything, and nothing from the
// sleeps of the watcher.
func TestGlancesAreLearned(t *testing.T) {
	for _, leads := range []bool{true, false} {
		clock := &clock{time.Now()}
		p := newPace(waitpolicy.Spin)
		p.oneProcessor, p.now, p.glances = false, clock.now, true
		for range 10 {
			p.begin()
			for p.next(p.poll, leads) != stepPark {
				clock.t = clock.t.Add(time.Microsecond)
			}
			clock.t = clock.t.Add(100 * time.Millisecond)
			if leads {
				p.hasParked()
				p.next(p.poll, true)
				p.learn()
			} else {
				p.beginWoken()
				p.next(p.poll, false)
				p.came()
			}
		}
		want := waitpolicy.Spin.Most
		if leads {
			want = waitpolicy.Spin.Least
		}
		if p.poll != want {
			t.Errorf("leads %t: it polls for %v, want %v", leads, p.poll, want)
		}
	}
}

// A rank whose goroutines use its processor sleeps soon: each yield takes long. One yield that takes long is nothing:
// the kernel has run something else meanwhile. What the user has set stays.
func TestSharedProcessor(t *testing.T) {
	const quick, long = busyYield, busyYield + 1
	for _, c := range []struct {
		yields []time.Duration
		shared bool
	}{
		{nil, false},
		{[]time.Duration{time.Hour}, false},
		{[]time.Duration{long, quick, long, quick, long}, false},
		{[]time.Duration{quick, long, long}, true},
		{[]time.Duration{long, long, quick, quick, long}, true}, // for as long as this wait takes
	} {
		for _, policy := range []waitpolicy.Policy{waitpolicy.Spin, waitpolicy.Fixed(time.Hour)} {
			clock := &clock{time.Now()}
			p := newPace(policy)
			p.now = clock.now
			p.begin()
			for _, took := range c.yields {
				began := clock.t
				clock.t = clock.t.Add(took)
				p.hasYielded(began, false)
			}
			want := policy.Most
			if c.shared && policy == waitpolicy.Spin {
				want = sharedSpin
			}
			if p.spinFor() != want {
				t.Errorf("%v, after yields of %v: %v, want %v", policy, c.yields, p.spinFor(), want)
			}
			p.begin()
			if p.spinFor() != policy.Most {
				t.Errorf("%v, the next wait: %v", policy, p.spinFor())
			}
		}
	}
}

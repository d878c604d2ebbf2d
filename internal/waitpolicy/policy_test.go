package waitpolicy

import (
	"testing"
	"time"
)

// GORUN_SPIN has its way; otherwise ranks spin that have a CPU each, and yield it where there are more of them.
func TestFor(t *testing.T) {
	crowded := Fixed(5 * time.Millisecond)
	crowded.Crowded = true
	for _, c := range []struct {
		spin        time.Duration
		ranks, cpus int
		want        Policy
		text        string
	}{
		{-1, 2, 2, Spin, "spin for 1ms to 20ms, then sleep in the kernel"},
		{-1, 3, 2, Yield, "yield the CPU after each poll for 80µs to 2ms, then sleep in the kernel"},
		{0, 2, 2, Policy{}, "sleep in the kernel at once"},
		{5 * time.Millisecond, 2, 2, Fixed(5 * time.Millisecond), "spin for 5ms, then sleep in the kernel"},
		{5 * time.Millisecond, 3, 2, crowded, "spin for 5ms, then sleep in the kernel"},
	} {
		if p := For(c.spin, c.ranks, c.cpus); p != c.want || p.String() != c.text {
			t.Errorf("GORUN_SPIN=%v, %d ranks, %d CPUs: %+v, %q", c.spin, c.ranks, c.cpus, p, p)
		}
	}
}

// A wait that has slept and was short makes the next one poll for twice as long as it took; one that was long halves
// that. A fixed time stays.
func TestLearn(t *testing.T) {
	const most = 20 * time.Millisecond
	type wait struct{ took, poll time.Duration }
	for _, c := range []struct {
		policy Policy
		waits  []wait
	}{
		{Spin, []wait{
			{most, most},
			{most + 1, most / 2},
			{time.Second, most / 4},
			{time.Hour, most / 8},
			{time.Hour, most / 16},
			{time.Hour, time.Millisecond},
			{time.Hour, time.Millisecond},
			{3 * time.Millisecond, 6 * time.Millisecond},
			{2 * time.Millisecond, 6 * time.Millisecond}, // it is enough for that
			{most, most},
		}},
		{Yield, []wait{
			{4 * time.Millisecond, 2 * time.Millisecond},
			{4*time.Millisecond + 1, time.Millisecond},
			{time.Hour, time.Millisecond / 2},
			{300 * time.Microsecond, 600 * time.Microsecond},
		}},
		{Fixed(7), []wait{{1, 7}, {time.Hour, 7}}},
		{Policy{}, []wait{{1, 0}, {time.Hour, 0}}},
	} {
		poll := c.policy.Most
		for _, w := range c.waits {
			if poll = c.policy.Learn(poll, w.took); poll != w.poll {
				t.Errorf("%v, after a wait of %v: %v, want %v", c.policy, w.took, poll, w.poll)
			}
		}
	}
}

// However its waits were, an idle rank polls for a fiftieth of a second at most, and from the second long wait in a row
// on for less.
func TestIdleIsCheap(t *testing.T) {
	if Spin.Most > 20*time.Millisecond {
		t.Errorf("%v of a second", Spin.Most)
	}
	if next := Spin.Learn(Spin.Most, time.Second); next > 10*time.Millisecond {
		t.Errorf("then %v", next)
	}
}

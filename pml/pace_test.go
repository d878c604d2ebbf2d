package pml

import (
	"testing"
	"time"
)

// A wait that slept and was short makes the next one spin for twice as long as it took; one that was long halves that.
func TestSpinLearns(t *testing.T) {
	type wait struct{ took, spin time.Duration }
	for _, c := range []struct {
		name    string
		crowded bool
		first   time.Duration
		waits   []wait
	}{
		{"own processor", false, longSpin, []wait{
			{longSpin, longSpin},
			{longSpin + 1, longSpin / 2},
			{time.Second, longSpin / 4},
			{time.Hour, longSpin / 8},
			{time.Hour, longSpin / 16},
			{time.Hour, ownSpin},
			{time.Hour, ownSpin},
			{3 * time.Millisecond, 6 * time.Millisecond},
			{2 * time.Millisecond, 6 * time.Millisecond}, // it is enough for that
			{longSpin, longSpin},
		}},
		{"crowded", true, wayTime, []wait{
			{100 * time.Microsecond, 200 * time.Microsecond},
			{crowdedWait, longWay},
			{crowdedWait + 1, longWay / 2},
			{time.Hour, longWay / 4},
		}},
	} {
		p := newPace(-1, c.crowded)
		if p.spinFor() != c.first {
			t.Errorf("%s: at first %v, want %v", c.name, p.spinFor(), c.first)
		}
		for _, w := range c.waits {
			if p.learn(w.took); p.spinFor() != w.spin {
				t.Errorf("%s, after a wait of %v: %v, want %v", c.name, w.took, p.spinFor(), w.spin)
			}
		}
	}
}

// However its waits were, an idle rank polls for a fiftieth of the time at most, from the second long wait in a row on
// for less; where the user has said so, it does not depend on that.
func TestSpinIsBounded(t *testing.T) {
	p := newPace(-1, false)
	for range 100 {
		p.learn(longSpin)
	}
	if p.spinFor() > 20*time.Millisecond {
		t.Errorf("%v of a second", p.spinFor())
	}
	p.learn(time.Second)
	if p.spinFor() > 10*time.Millisecond {
		t.Errorf("then %v", p.spinFor())
	}
	if p = newPace(7, false); p.spinFor() != 7 {
		t.Errorf("GORUN_SPIN=7ns: %v", p.spinFor())
	}
}

// A rank whose goroutines use its processor sleeps soon: each yield takes long. One yield that takes long is nothing:
// the kernel has run something else meanwhile.
func TestSharedProcessor(t *testing.T) {
	const quick, long = busyYield, busyYield + 1
	p := newPace(-1, false)
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
		p.begin()
		for _, took := range c.yields {
			p.yielded(took)
		}
		want := longSpin
		if c.shared {
			want = sharedSpin
		}
		if p.spinFor() != want {
			t.Errorf("after yields of %v: %v, want %v", c.yields, p.spinFor(), want)
		}
	}
}

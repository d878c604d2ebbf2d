package main

import (
	"fmt"
	"testing"
	"time"
)

// The draws are those of benchmarks/peers/halo.c, in every run.
func TestDrawn(t *testing.T) {
	if got, want := fmt.Sprint(drawn(0, 20*time.Microsecond, 50, 4), drawn(1, 2*time.Millisecond, 10, 2)),
		"[21.16µs 28.57µs 14.56µs 23.47µs] [2.1256ms 2.056ms]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, spread := range spreads {
		const compute, steps = time.Millisecond, 3000
		var sum time.Duration
		low, high := compute*time.Duration(100-spread)/100, compute*time.Duration(100+spread)/100
		for i, c := range drawn(3, compute, spread, steps) {
			if c < low || c > high {
				t.Fatalf("± %d %%: step %d computes for %v", spread, i, c)
			}
			sum += c
		}
		if mean := sum / steps; mean < compute*98/100 || mean > compute*102/100 {
			t.Errorf("± %d %%: the mean is %v", spread, mean)
		}
	}
}

func TestSlowest(t *testing.T) {
	const compute, steps = 100 * time.Microsecond, 50
	if got := slowest(4, compute, 0, steps); got != compute*steps {
		t.Errorf("all alike: %v", got)
	}
	a, b := drawn(0, compute, 50, steps), drawn(1, compute, 50, steps)
	var want time.Duration
	for i := range a {
		want += max(a[i], b[i])
	}
	if got := slowest(2, compute, 50, steps); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := slowest(2, compute, 50, 0); got != 0 {
		t.Errorf("no step: %v", got)
	}
}

package shm

import (
	"testing"
	"time"
)

// Payloads of medium length go past the caches where plain stores are slow, and not where they are fast; and the choice
// follows when that changes.
func TestCopierFollows(t *testing.T) {
	var c copier
	const n = 2048
	play := func(plain, past time.Duration, payloads int) (gone int) {
		for range payloads {
			took := plain
			if c.next(n) {
				took = past
				gone++
			}
			if c.began != 0 {
				c.took(n, c.began+took)
			}
		}
		return gone
	}
	const round = period + 2*samples
	for range 3 {
		play(100, 200, round)
		if gone := play(100, 200, 4*round); gone != 4*samples {
			t.Errorf("plain stores are fast: %d of %d payloads go past the caches", gone, 4*round)
		}
		play(700, 200, round)
		if gone := play(700, 200, 4*round); gone != 4*(round-samples) {
			t.Errorf("plain stores are slow: %d of %d payloads go past the caches", gone, 4*round)
		}
	}
}

// Long payloads always do, unmeasured, and neither they nor short ones are taken for a sample that is under way; and
// samples that are disturbed decide nothing while one of each way is not.
func TestCopierLimits(t *testing.T) {
	var c copier
	limits := func() {
		for _, n := range []int{1, pastMin - 1, pastAlways, 1 << 20} {
			began, turn := c.began, c.turn
			if n >= pastAlways && !c.next(n) || c.began != began {
				t.Fatalf("%d bytes do not go past the caches, or are timed", n)
			}
			if c.took(n, time.Hour); c.turn != turn {
				t.Fatalf("%d bytes are taken for a sample", n)
			}
		}
	}
	for i := range 8 * period {
		if c.next(pastMin); c.began != 0 {
			limits()
			d := time.Microsecond
			if i%2 == 0 {
				d = time.Second
			}
			c.took(pastMin, c.began+d)
		}
		if limits(); c.turn == 0 && c.past {
			t.Fatal("what disturbs every second sample has changed the choice")
		}
	}
}

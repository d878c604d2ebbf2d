package shm

import (
	"testing"
	"time"
)

// next does what a link does before it copies a payload. It reports whether the payload goes past the caches.
func (c *copier) next(n int) (past bool) {
	s := c.storesFor(n)
	if s.sampled() {
		c.sample(s)
	}
	return s.past
}

// Payloads go past the caches where plain stores are slow, and not where they are fast; the choice follows when that
// changes, and each size has its own.
func TestCopierFollows(t *testing.T) {
	var c copier
	play := func(n int, plain, past time.Duration, payloads int) (gone int) {
		for range payloads {
			took := plain
			if c.next(n) {
				took = past
				gone++
			}
			if c.under != nil {
				c.took(n, c.began+took)
			}
		}
		return gone
	}
	const round = period + 2*samples
	// Where there was no room for the bulk area, a quarter of the small one is sent at once.
	sizes := []int{pastMin, 1024, 2048, 4096, 8192, 16 << 10, 32 << 10, 128 << 10}
	for i, n := range sizes {
		for _, m := range sizes[:i] {
			if c.storesFor(n) == c.storesFor(m) {
				t.Errorf("payloads of %d and of %d bytes have one choice", n, m)
			}
		}
	}
	for turn := range 6 {
		for i, n := range sizes {
			if (turn+i)%2 == 0 {
				play(n, 100, 200, round)
			} else {
				play(n, 700, 200, round)
			}
		}
		for i, n := range sizes {
			if (turn+i)%2 == 0 {
				if gone := play(n, 100, 200, 4*round); gone != 4*samples {
					t.Errorf("plain stores are fast: %d of %d payloads of %d bytes go past the caches", gone, 4*round, n)
				}
			} else if gone := play(n, 700, 200, 4*round); gone != 4*(round-samples) {
				t.Errorf("plain stores are slow: %d of %d payloads of %d bytes go past the caches", gone, 4*round, n)
			}
		}
	}
}

// Samples that are disturbed decide nothing while one of each way is not.
func TestCopierDisturbed(t *testing.T) {
	var c copier
	taken := 0
	for i := range 8 * period {
		c.next(pastMin)
		if c.under == nil {
			if c.storesFor(pastMin).past {
				t.Fatal("what disturbs every second sample has changed the choice")
			}
			continue
		}
		taken++
		d := time.Microsecond
		if i%2 == 0 {
			d = time.Second
		}
		c.took(pastMin, c.began+d)
	}
	if taken < 7*2*samples {
		t.Errorf("%d samples of %d payloads", taken, 8*period)
	}
}

package shm

import "time"

// copier chooses how payloads are copied into a ring: by plain stores, or by stores that go past the caches
// (ring.Stream).
//
// A plain store takes its line from the cache of the peer, which has read what was there before. Only some 6 lines are
// on their way at a time: where a line takes 0.17 µs from one processor to the other that is 2 GB/s. A store past the
// caches waits for no line, and the peer reads from memory, many lines at a time. Long payloads are always copied so.
// Which is better for others depends on how far apart the two processors are, and where a virtual machine's are changes
// while a job runs: so both are measured now and then. docs/decisions/0038-stores-past-the-caches.md has the figures.
type copier struct {
	past  bool          // the next payload between pastMin and pastAlways goes past the caches, unless it is a sample
	left  int           // such payloads until past is chosen anew
	turn  int           // samples taken since then, at most 2*samples: plain ones first
	began time.Duration // of the sample under way; 0: there is none
	least [2]float32    // ns per byte of the samples, plain and past; 0: none
}

const (
	pastMin    = 512     // shorter payloads are never copied past the caches
	pastAlways = 8 << 10 // these always
	period     = 512
	samples    = 4 // of each way
	// pastGain is how many times as much plain stores must cost: the peer's reads from memory are not in what is measured.
	pastGain = 1.5
)

// next reports whether the next payload, of n bytes, pastMin at least, goes past the caches.
func (c *copier) next(n int) bool {
	if n >= pastAlways {
		return true
	}
	if c.left--; c.left < 0 {
		c.sample(time.Since(opened))
	}
	return c.past
}

// sample begins one.
func (c *copier) sample(now time.Duration) {
	c.past, c.began, c.left = c.turn >= samples, now, 0
}

// took: the payload of n bytes has been published. It is the sample under way if it is between pastMin and pastAlways;
// else that was a packet of which took is not told, and the next payload is one instead.
func (c *copier) took(n int, now time.Duration) {
	if n < pastMin || n >= pastAlways {
		return
	}
	way := &c.least[c.turn/samples]
	if cost := float32(max(now-c.began, 1)) / float32(n); *way == 0 || cost < *way {
		*way = cost
	}
	c.began = 0
	if c.turn++; c.turn == 2*samples {
		c.past, c.left, c.turn = c.least[0] > pastGain*c.least[1], period, 0
		c.least = [2]float32{}
	}
}

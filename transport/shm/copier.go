package shm

import (
	"math/bits"
	"time"
)

// copier chooses how payloads are copied into a ring: by plain stores, or by stores that go past the caches
// (ring.Stream).
//
// A plain store takes its line from the cache of the peer, which has read what was there before. On some processors
// only 6 lines or so are on their way at a time: where a line takes 0.17 µs from one processor to the other that is
// 2 GB/s, and a store past the caches, which waits for no line, is seven times as fast. On others it is four times as
// slow as a plain one. Where a virtual machine's processors are changes while a job runs. So both are measured now and
// then, for each size by itself. docs/decisions/short-messages.md has the figures.
type copier struct {
	classes [copierClasses]stores
	under   *stores       // whose sample is under way; nil: there is none
	began   time.Duration // of it
}

// stores is the choice for payloads of about the same length.
type stores struct {
	past  bool       // the next one goes past the caches, unless it is a sample
	turn  uint8      // samples taken since past was chosen, at most 2*samples: plain ones first
	left  int16      // payloads until it is chosen anew
	least [2]float32 // ns per byte of the samples, plain and past; 0: none
}

const (
	pastMin       = 512 // shorter payloads are never copied past the caches
	copierClasses = 8   // by the length in bits; the last is for all that is longer than 32 KiB
	period        = 512
	samples       = 4 // of each way
	// pastGain is how many times as much plain stores must cost: the peer's reads from memory are not in what is measured.
	pastGain = 1.5
)

// storesFor is the choice for n bytes, pastMin at least.
func (c *copier) storesFor(n int) *stores {
	return &c.classes[min(bits.Len(uint(n-1)/pastMin), copierClasses-1)]
}

// sampled reports whether the next payload is a sample: then sample is called now, and took once it is published.
func (s *stores) sampled() bool {
	s.left--
	return s.left < 0
}

// opened is what times are counted from here.
var opened = time.Now()

// sample begins one: past says how the payload is copied.
//
//go:noinline
func (c *copier) sample(s *stores) {
	c.under, c.began = s, time.Since(opened)
	s.past, s.left = s.turn >= samples, 0
}

// took: the payload of n bytes that is the sample under way has been published. Before, not all that its stores take
// shows.
//
//go:noinline
func (c *copier) took(n int, now time.Duration) {
	s := c.under
	way := &s.least[s.turn/samples]
	if cost := float32(max(now-c.began, 1)) / float32(n); *way == 0 || cost < *way {
		*way = cost
	}
	c.under = nil
	if s.turn++; s.turn == 2*samples {
		*s = stores{past: s.least[0] > pastGain*s.least[1], left: period}
	}
}

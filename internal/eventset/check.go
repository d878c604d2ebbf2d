package eventset

import (
	"sync"
	"sync/atomic"
	"time"
)

// checkEvery is how often a Check looks.
const checkEvery = 20 * time.Millisecond

// Check is a device's own look after a rank that has not polled for a while although something waits that no Arm was
// asked to show: peers may wait for it all the same, to take a message back for example. Until Start it does nothing.
type Check struct {
	pending func() bool
	wake    func()
	polls   atomic.Uint64
	timer   *time.Timer

	mu      sync.Mutex // held during a look; guards what follows
	seen    uint64     // polls at the last look
	stopped bool
}

// Init is called once, before all others. pending says whether something waits, wake makes the rank poll; both are
// called from a goroutine of their own, and not after Stop.
func (c *Check) Init(pending func() bool, wake func()) {
	c.pending, c.wake = pending, wake
	c.timer = time.AfterFunc(time.Hour, c.look)
	c.timer.Stop()
}

// Polled takes note of a Poll, the n-th. One goroutine at a time calls it.
func (c *Check) Polled(n uint64) { c.polls.Store(n) }

// Start begins the looking. The caller may hold a lock that pending takes.
func (c *Check) Start() { c.timer.Reset(checkEvery) }

func (c *Check) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	polls := c.polls.Load()
	if polls == c.seen && c.pending() {
		c.wake()
	}
	c.seen = polls
	c.timer.Reset(checkEvery)
}

// Stop ends it, after the look that is under way.
func (c *Check) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.timer.Stop()
}

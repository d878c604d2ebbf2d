package procs

import (
	"sync"
	"time"
)

// Pulse is how gorun knows that it did not run for a while: by a signal, in a frozen container, on a machine that
// slept. Agents take that for its end.
type Pulse struct {
	limit time.Duration // what counts
	quit  chan struct{}

	mu     sync.Mutex
	last   time.Duration // guarded by mu; of uptime, at the last beat
	length time.Duration // guarded by mu; of the last standstill of limit or more; 0: there was none
	end    time.Duration // guarded by mu; of uptime, at its end
}

// NewPulse begins to beat. An agent pings so often, and is pinged, that it leaves after a standstill of five eighths of
// the silence at the earliest.
func NewPulse(silence time.Duration) *Pulse {
	p := &Pulse{limit: silence * 5 / 8, quit: make(chan struct{}), last: uptime()}
	go func() {
		t := time.NewTicker(silence / 8)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				p.beat()
			case <-p.quit:
				return
			}
		}
	}()
	return p
}

func (p *Pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := uptime()
	if gap := now - p.last; gap >= p.limit {
		p.length, p.end = gap, now
	}
	p.last = now
}

// Stopped returns how long this process has stood still, if that was a moment ago; 0: it has not.
func (p *Pulse) Stopped() time.Duration {
	p.beat() // this may be the first thing that is done after it
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.length == 0 || p.last-p.end > p.limit {
		return 0
	}
	return p.length
}

// Stop ends the beats.
func (p *Pulse) Stop() { close(p.quit) }

package pml

import (
	"runtime"
	"time"
)

const (
	// A rank that has its processor to itself spins for ownSpin at least. To wake a processor that sleeps costs 50 to
	// 200 µs, so the rank that waits for the one that it has woken must not fall asleep meanwhile: else one late rank
	// makes a chain of sleeps, in which each rank wakes one that lets it fall asleep in turn.
	ownSpin = time.Millisecond
	// longSpin is how long it spins at most: longer than a step of most programs, and a fiftieth of a second in
	// idleness.
	longSpin = 20 * time.Millisecond

	// A crowded rank gives way (docs/decisions/0014-giving-way.md) for wayTime at least and longWay at most. A token of
	// 32 ranks that all sleep needs a millisecond or two to come round, which must not keep them asleep.
	wayTime     = 80 * time.Microsecond
	longWay     = 2 * time.Millisecond
	crowdedWait = 4 * time.Millisecond

	// sharedSpin is for a rank whose other goroutines want the processor: about what a sleep and the waking cost.
	sharedSpin = 50 * time.Microsecond
)

// pace is for how long a rank spins, from what it has seen: for twice as long as the longest of the waits that have
// lately ended by sleep, if they were short. Where nothing comes for longer, each wait halves that.
type pace struct {
	fixed       time.Duration // Config.Spin; negative: what follows is
	least, most time.Duration
	short       time.Duration // a longer wait was not worth spinning
	spin        time.Duration // between least and most
	// shared: in the wait that is under way, other goroutines of the rank have used the processor.
	shared       bool
	oneProcessor bool // GOMAXPROCS is 1
	hosted       bool // the link to some peer is: see transport.Caps
}

func newPace(fixed time.Duration, crowded bool) pace {
	p := pace{fixed: fixed, least: ownSpin, most: longSpin, short: longSpin, oneProcessor: runtime.GOMAXPROCS(0) == 1}
	if crowded {
		p.least, p.most, p.short = wayTime, longWay, crowdedWait
	}
	p.spin = p.least
	return p
}

// spinFor is how long to spin in this wait.
func (p *pace) spinFor() time.Duration {
	switch {
	case p.fixed >= 0:
		return p.fixed
	case p.shared:
		return sharedSpin
	}
	return p.spin
}

// learn takes into account that a wait has ended by sleep, and how long it was.
func (p *pace) learn(took time.Duration) {
	if took <= p.short {
		p.spin = max(p.spin, min(2*took, p.most))
	} else {
		p.spin = max(p.spin/2, p.least)
	}
}

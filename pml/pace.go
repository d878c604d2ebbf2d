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
	// longSpin is how long it spins at most, and at first: longer than a step of most programs, and a fiftieth of a
	// second in idleness.
	longSpin = 20 * time.Millisecond

	// A crowded rank gives way (docs/decisions/0014-giving-way.md) for wayTime at least and longWay at most. A token of
	// 32 ranks that all sleep needs a millisecond or two to come round, which must not keep them asleep.
	wayTime     = 80 * time.Microsecond
	longWay     = 2 * time.Millisecond
	crowdedWait = 4 * time.Millisecond

	// sharedSpin is for a rank whose other goroutines want the processor: about what a sleep and the waking cost.
	sharedSpin = 50 * time.Microsecond
	// busyYield is how long a yield takes at least if another goroutine has used it; so does one during which the
	// kernel has run something else. That seldom happens twice in a row: sharedYields in a row are goroutines.
	busyYield    = 5 * time.Microsecond
	sharedYields = 2
)

// pace is for how long a rank spins, from what it has seen: each wait for which nothing comes in longer halves that,
// and one that has ended by sleep, but soon, makes it twice as long as that wait was.
type pace struct {
	fixed        time.Duration // Config.Spin; negative: what follows is
	least, most  time.Duration
	short        time.Duration // a longer wait was not worth spinning
	spin         time.Duration // between least and most
	busyYields   int           // in the wait that is under way, in a row; more than sharedYields are not counted
	oneProcessor bool          // GOMAXPROCS is 1
	hosted       bool          // the link to some peer is: see transport.Caps
}

func newPace(fixed time.Duration, crowded bool) pace {
	p := pace{fixed: fixed, least: ownSpin, most: longSpin, short: longSpin, oneProcessor: runtime.GOMAXPROCS(0) == 1}
	if crowded {
		p.least, p.most, p.short = wayTime, longWay, crowdedWait
	}
	p.spin = p.least
	if !crowded {
		p.spin = p.most
	}
	return p
}

// begin: a wait begins.
func (p *pace) begin() { p.busyYields = 0 }

// yielded takes into account how long a yield of the wait that is under way has taken.
func (p *pace) yielded(took time.Duration) {
	switch {
	case p.shared():
	case took > busyYield:
		p.busyYields++
	default:
		p.busyYields = 0
	}
}

// shared: other goroutines of the rank use the processor.
func (p *pace) shared() bool { return p.busyYields == sharedYields }

// spinFor is how long to spin in this wait.
func (p *pace) spinFor() time.Duration {
	switch {
	case p.fixed >= 0:
		return p.fixed
	case p.shared():
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

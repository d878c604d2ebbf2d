package pml

import (
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi/internal/waitpolicy"
)

const (
	// spinCheck polls happen between two looks at the clock.
	spinCheck = 64
	// yieldAfter is for how long a rank polls before it lets its other goroutines run, and how often then.
	yieldAfter = 20 * time.Microsecond
	// stallAfter is for how long nothing comes at most before a rank does something about it (path.stalled).
	stallAfter = time.Millisecond
	// sharedSpin is for a rank whose other goroutines want the processor: about what a sleep and the waking cost.
	sharedSpin = 50 * time.Microsecond
	// busyYield is how long a yield takes at least if another goroutine has used it and made no call; so does one during
	// which the kernel has run something else. That seldom happens twice in a row: sharedYields in a row are goroutines.
	busyYield    = 5 * time.Microsecond
	sharedYields = 2
)

// step is what the leader or the watcher does next. All waiting consists of these.
type step uint8

const (
	stepPoll     step = iota
	stepOffer         // lets goroutines of this rank run that can go on
	stepYield         // lets all of them run, and sees whether any has
	stepYieldCPU      // lets other processes run
	stepStalled       // nothing has come for a while: perhaps something can be done about it
	stepPark          // sleeps
)

// pace is the waiting of the one who polls: by the policy, and by what it has seen.
type pace struct {
	policy       waitpolicy.Policy
	poll         time.Duration // for how long: policy.Learn
	yieldCPU     bool          // policy.YieldCPU, or the link to some peer is hosted (transport.Caps)
	oneProcessor bool          // GOMAXPROCS is 1
	glances      bool          // transport.Facts.Glances: a sleep goes on where the look after it finds nothing
	now          func() time.Time

	busyYields int // in the wait that is under way, in a row: see busyYield

	woken    bool      // a pace that glances has slept, and nothing has come since
	parkedAt time.Time // of a pace that glances: when it went to sleep
	wokenAt  time.Time // and when that ended

	// Since something has come.
	looks   int       // that have found nothing
	timed   bool      // the clock has been read, and what follows is set
	stalled bool      // stepStalled has been said
	last    bool      // the last stepYield before stepPark has
	since   time.Time // the first look at the clock
	yielded time.Time // when the last yield ended, or since
}

func newPace(p waitpolicy.Policy) pace {
	return pace{policy: p, poll: p.Most, yieldCPU: p.YieldCPU, oneProcessor: runtime.GOMAXPROCS(0) == 1, now: time.Now}
}

// spins reports whether a look that has found nothing may be followed by another one at once.
func (p *pace) spins() bool { return p.policy.Most != 0 && !p.yieldCPU }

// begin is called when a wait begins.
func (p *pace) begin() {
	p.busyYields, p.woken = 0, false
	p.came()
}

// beginWoken is begin for the watcher, which has slept.
func (p *pace) beginWoken() {
	p.begin()
	p.noteWoken()
}

// came is called when something has come.
func (p *pace) came() {
	if p.woken {
		p.learn()
	}
	p.looks, p.timed = 0, false
}

// next is what to do after a look that has found nothing. most is for how long nothing may come. The leader yields; the
// watcher does not: a computation would keep the processor for its time slice.
func (p *pace) next(most time.Duration, leads bool) step {
	if p.woken {
		return p.glance(most, leads)
	}
	if p.looks++; p.looks%spinCheck != 0 && p.spins() && most > 0 {
		return stepPoll
	}
	now := p.now()
	if !p.timed {
		p.timed, p.stalled, p.last, p.since, p.yielded = true, false, false, now, now
	}
	quiet := now.Sub(p.since)
	switch {
	case !p.stalled && quiet >= min(most, stallAfter):
		p.stalled = true
		return stepStalled
	case quiet >= most && leads && p.oneProcessor && !p.last:
		p.last = true
		return stepYield
	case quiet >= most:
		p.parkedAt = now
		return stepPark
	case leads && now.Sub(p.yielded) > yieldAfter && !p.policy.YieldCPU: // it may wake a thread, which takes a turn there
		return stepYield
	case leads && p.yieldCPU:
		return stepYieldCPU
	}
	return stepPoll
}

// glanceShare of the sleep before it a glance takes: the steps of a transfer are no events.
const glanceShare = 128

// glance is next after a sleep, where nothing has come yet.
func (p *pace) glance(most time.Duration, leads bool) step {
	now := p.now()
	switch {
	case now.Sub(p.wokenAt) < min(most, p.wokenAt.Sub(p.parkedAt)/glanceShare):
		return stepPoll
	case !p.stalled:
		p.stalled = true
		return stepStalled
	case leads && p.oneProcessor && !p.last:
		p.last = true
		return stepYield
	}
	p.parkedAt = now
	return stepPark
}

// hasYielded is called when stepYield, which began then, is done. called: other goroutines have called the library
// meanwhile.
func (p *pace) hasYielded(began time.Time, called bool) {
	p.yielded = p.now()
	switch {
	case called || p.yielded.Sub(began) > busyYield:
		p.busyYields++
	case !p.processorShared():
		p.busyYields = 0
	}
}

// processorShared reports whether other goroutines of the rank use the processor. They count as doing so for the rest
// of this wait.
func (p *pace) processorShared() bool { return p.busyYields >= sharedYields }

// hasParked is called when stepPark is done.
func (p *pace) hasParked() {
	if p.noteWoken(); p.woken {
		return // whether the sleep has ended the looks tell that follow
	}
	p.learn()
	p.came()
}

// noteWoken begins a glance, of a pace that glances.
func (p *pace) noteWoken() {
	if p.glances {
		p.woken, p.stalled, p.last, p.wokenAt = true, false, false, p.now()
	}
}

// learn is called at the end of a sleep.
func (p *pace) learn() {
	p.woken = false
	if p.timed { // else it was the watcher's, which begins anew after each sleep
		p.poll = p.policy.Learn(p.poll, p.now().Sub(p.since))
	}
}

// spinFor is for how long to poll in this wait.
func (p *pace) spinFor() time.Duration {
	if p.processorShared() && p.policy.Least != p.policy.Most {
		return min(p.poll, sharedSpin)
	}
	return p.poll
}

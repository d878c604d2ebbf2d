//go:build ofi && linux && cgo

package ofi

import (
	"sync"
	"sync/atomic"
	"time"
)

// looks are the device's own looks after a rank that does not poll. libfabric moves a message only in calls of its
// functions, and its descriptor does not show all that comes: fi_trywait takes messages off the wire, and those that no
// receive was posted for leave no completion. Some providers have no descriptor.
type looks struct {
	wake   atomic.Pointer[func(thread bool)] // ends a sleep of this rank; nil: it cannot sleep yet
	polls  atomic.Uint64                     // but for the first after a look; written by the caller of Poll alone, as active
	active atomic.Uint64                     // operations begun, and ended
	found  atomic.Bool                       // the rank has been found not polling since its last Poll
	sleeps atomic.Uint32                     // who: noSleeper …, from Arm to Disarm
	timer  *time.Timer
	least  time.Duration // between two looks

	mu                    sync.Mutex // guards what follows
	seenPolls, seenActive uint64
	quiet                 time.Time // the first look since something has happened
	stopped               bool
}

const (
	noSleeper = iota
	goroutineSleeps
	threadSleeps
)

const (
	lateBy = 8                     // a lateBy-th of the time since an operation has begun or ended passes between two looks
	most   = 20 * time.Millisecond // but not more
)

func (l *looks) init(least time.Duration) {
	l.least = least
	l.timer = time.AfterFunc(time.Hour, l.look)
	l.timer.Stop()
}

func (l *looks) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quiet = time.Now()
	l.timer.Reset(l.least)
}

func (l *looks) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	polls, active := l.polls.Load(), l.active.Load()
	now := time.Now()
	if active != l.seenActive {
		l.quiet = now
	}
	if sleeps := l.sleeps.Load(); sleeps != noSleeper || polls == l.seenPolls {
		l.found.Store(true)
		if wake := l.wake.Load(); wake != nil {
			(*wake)(sleeps == threadSleeps)
		}
	}
	l.seenPolls, l.seenActive = polls, active
	l.timer.Reset(max(l.least, min(now.Sub(l.quiet)/lateBy, most)))
}

func (l *looks) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.timer.Stop()
}

func (l *looks) notifyBy(wake func(thread bool)) { l.wake.Store(&wake) }

func (l *looks) wakeSleepers() {
	if wake := l.wake.Load(); wake != nil {
		(*wake)(true)
		(*wake)(false)
	}
}

// acts is for a rank that begins an operation, or has polled the end of one.
func (l *looks) acts() { l.active.Store(l.active.Load() + 1) }

package pml

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// engineLock is taken and given back in every call, nearly always by the only goroutine that wants it, so it is made
// for that: one locked instruction to take it and, if no goroutine wants it, a load and a store to give it back, where
// sync.Mutex has two locked instructions.
//
// The load of wanted is not ordered after the store of held, which would cost what is saved here. A goroutine that comes
// between the two looks by itself, one of them at a time, and ever more rarely.
//
// A goroutine that calls the library in a loop hands the lock over, and its processor: the others could otherwise only
// take the lock in the moments between two calls, and only with a processor of their own. Where there is none they would
// wait until the scheduler takes it away, which is 10 ms for each step of theirs.
type engineLock struct {
	held atomic.Uint32
	// wanted is which goroutines want the lock, or the processor of the goroutine that has it: in the low half, how many
	// are in lockSlow; in multiples of away, how many have handed it over and are not back, or sleep as the leader and
	// have been woken; and wokenBit.
	wanted atomic.Int64
	turn   sync.Mutex // whose turn it is to look

	// Guarded by held:
	calls  int       // that have given the lock back since it was last handed over, though it was wanted
	since  time.Time // when that was
	called bool      // calls have given it back since offer
}

const (
	away = 1 << 32
	// wokenBit is set when a goroutine that has slept in a call has been woken.
	wokenBit = 1 << 62
	// callsPerTurn calls go by, or a call after turnTime, before the lock is handed over: that costs several times what a
	// short call does.
	callsPerTurn = 16
	turnTime     = 20 * time.Microsecond
)

const (
	// looks of a goroutine that waits before it begins to sleep between them.
	looks = 200
	// firstPause and lastPause are how long it sleeps then.
	firstPause = 5 * time.Microsecond
	lastPause  = time.Millisecond
)

func (l *engineLock) lock() {
	if !l.held.CompareAndSwap(0, 1) {
		l.lockSlow()
	}
}

func (l *engineLock) unlock() { release(l) }

// unlockSlow gives the lock back where wanted is not 0.
func (l *engineLock) unlockSlow() {
	l.called = true
	if l.calls++; l.calls < callsPerTurn && time.Since(l.since) < turnTime {
		l.held.Store(0)
		return
	}
	l.handOver()
	l.wanted.Add(-away)
}

// handOver gives the lock back and lets other goroutines run, for a while if some are in lockSlow. The caller is away
// then, and says when it is back.
func (l *engineLock) handOver() {
	l.calls, l.since = 0, time.Now()
	if l.wanted.Add(away)&wokenBit != 0 {
		l.wanted.And(^wokenBit)
	}
	l.held.Store(0)
	runtime.Gosched()
	for n := 0; n < looks && l.wanted.Load()&(away-1) != 0 && l.held.Load() == 0; n++ {
		runtime.Gosched()
	}
}

func (l *engineLock) lockSlow() {
	l.wanted.Add(1)
	l.turn.Lock()
	pause := firstPause
	for n := 0; l.held.Load() != 0 || !l.held.CompareAndSwap(0, 1); n++ {
		if n < looks {
			runtime.Gosched()
			continue
		}
		time.Sleep(pause)
		pause = min(2*pause, lastPause)
	}
	l.turn.Unlock()
	l.wanted.Add(-1)
}

// asked reports whether a goroutine wants the lock, or the processor of the goroutine that has it.
func (l *engineLock) asked() bool { return l.wanted.Load() != 0 }

// woken notes that a goroutine has been woken that has slept in a call.
func (l *engineLock) woken() {
	if l.wanted.Load()&wokenBit == 0 {
		l.wanted.Or(wokenBit)
	}
}

// offer gives the lock to the goroutines that wait for it, for a while, and takes it again. It reports whether others
// have called the library meanwhile.
func (l *engineLock) offer() (called bool) {
	l.called = false
	l.handOver()
	l.lock()
	l.wanted.Add(-away)
	return l.called
}

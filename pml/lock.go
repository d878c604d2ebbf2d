package pml

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// engineLock is taken and given back in every call, nearly always by the only goroutine that wants it, so it is made
// for that: one locked instruction to take it and none to give it back, where sync.Mutex has two.
//
// Giving it back does not look for waiting goroutines: that look would have to be ordered after the store, which costs
// what is saved here. So a goroutine that waits looks by itself, one of them at a time, and ever more rarely.
type engineLock struct {
	held atomic.Uint32
	// wanted counts the goroutines that wait, for the one that polls with the lock held.
	wanted atomic.Int32
	turn   sync.Mutex // whose turn it is to look
}

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

func (l *engineLock) unlock() { storeRelease(&l.held, 0) }

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

// offer gives the lock to the goroutines that wait for it, for a while, and takes it again.
func (l *engineLock) offer() {
	l.unlock()
	runtime.Gosched()
	for n := 0; n < looks && l.wanted.Load() != 0 && l.held.Load() == 0; n++ {
		runtime.Gosched()
	}
	l.lock()
}

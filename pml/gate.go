package pml

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/internal/order"
)

// gate is the engine's. It is taken and given back in every call, nearly always by the only goroutine that wants it,
// so it is made for that: one locked instruction to take it and none to give it back, where sync.Mutex has two.
//
// Giving it back does not look for who waits: that look would have to be ordered after the store, which costs what is
// saved here. So whoever waits looks by itself, one of them at a time, and ever more rarely.
type gate struct {
	held atomic.Uint32
	// wanted counts the goroutines that wait, for the one that polls with the lock held.
	wanted atomic.Int32
	turn   sync.Mutex // whose turn it is to look
}

const (
	// looks of a goroutine that waits before it begins to sleep between them.
	looks = 200
	// firstDoze and lastDoze are how long it sleeps then.
	firstDoze = 5 * time.Microsecond
	lastDoze  = time.Millisecond
)

func (g *gate) lock() {
	if !g.held.CompareAndSwap(0, 1) {
		g.lockSlow()
	}
}

func (g *gate) unlock() { order.Release(&g.held, 0) }

func (g *gate) lockSlow() {
	g.wanted.Add(1)
	g.turn.Lock()
	doze := firstDoze
	for n := 0; g.held.Load() != 0 || !g.held.CompareAndSwap(0, 1); n++ {
		if n < looks {
			runtime.Gosched()
			continue
		}
		time.Sleep(doze)
		doze = min(2*doze, lastDoze)
	}
	g.turn.Unlock()
	g.wanted.Add(-1)
}

// offer gives the lock to whoever waits for it, for a while, and takes it again.
func (g *gate) offer() {
	g.unlock()
	runtime.Gosched()
	for n := 0; n < looks && g.wanted.Load() != 0 && g.held.Load() == 0; n++ {
		runtime.Gosched()
	}
	g.lock()
}

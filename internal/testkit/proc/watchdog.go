package proc

import (
	"sync/atomic"
	"testing"
	"time"
)

// Watchdog interrupts sleepers again and again once nothing has gone forward for as long as its patience lasts, so
// that a lost wake-up is a failure and not a hang. A test that makes progress, however slowly, resets it.
type Watchdog struct {
	resets atomic.Uint64
	fired  atomic.Bool
}

// checks is how often a watchdog checks within its patience whether it has been reset.
const checks = 20

// StartWatchdog starts a watchdog that ends with the test. It calls interrupt once it has fired.
func StartWatchdog(t testing.TB, patience time.Duration, interrupt func()) *Watchdog {
	w := &Watchdog{}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		idle, last := 0, uint64(0)
		for every := patience / checks; ; {
			select {
			case <-stop:
				return
			case <-time.After(every):
			}
			if resets := w.resets.Load(); resets != last && !w.fired.Load() {
				idle, last = 0, resets
				continue
			}
			if idle++; idle >= checks || w.fired.Load() {
				every = 10 * time.Millisecond
				w.Fire()
				interrupt()
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return w
}

// Reset starts the patience anew: something has gone forward.
func (w *Watchdog) Reset() { w.resets.Add(1) }

// Fire ends the patience at once, for a test that knows that the sleepers wait in vain.
func (w *Watchdog) Fire() { w.fired.Store(true) }

// Fired reports whether the patience has ended: what was waited for has not come.
func (w *Watchdog) Fired() bool { return w.fired.Load() }

// patience is after how long what Eventually waits for is not slow but missing. It is no claim about speed.
const patience = 2 * time.Minute

// Eventually waits until a condition holds that no event announces. The test ends if it does not come.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// PanicAfter makes a hang of a test a failure that shows what all goroutines do.
func PanicAfter(t testing.TB, limit time.Duration) {
	name := t.Name()
	timer := time.AfterFunc(limit, func() { panic(name + " hangs") })
	t.Cleanup(func() { timer.Stop() })
}

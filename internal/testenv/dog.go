package testenv

import (
	"sync/atomic"
	"testing"
	"time"
)

// Dog interrupts sleepers again and again once nothing has gone forward for as long as its patience lasts, so that a
// lost wake-up is a failure and not a hang. A test that goes on slowly, because the machine is crowded, feeds it.
type Dog struct {
	fed    atomic.Uint64
	barked atomic.Bool
}

// looks is how often a dog looks whether it has been fed, within its patience.
const looks = 20

// Watch has a dog look after a test until the test ends: wake is what it does to the sleepers.
func Watch(t testing.TB, patience time.Duration, wake func()) *Dog {
	d := &Dog{}
	stop, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		hungry, last := 0, uint64(0)
		for every := patience / looks; ; {
			select {
			case <-stop:
				return
			case <-time.After(every):
			}
			if fed := d.fed.Load(); fed != last && !d.barked.Load() {
				hungry, last = 0, fed
				continue
			}
			if hungry++; hungry >= looks || d.barked.Load() {
				every = 10 * time.Millisecond
				d.Bark()
				wake()
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-gone })
	return d
}

// Feed says that something has gone forward.
func (d *Dog) Feed() { d.fed.Add(1) }

// Bark is what it does by itself after a while.
func (d *Dog) Bark() { d.barked.Store(true) }

// Barked reports whether it had to wake somebody: what was waited for has not come.
func (d *Dog) Barked() bool { return d.barked.Load() }

// Watchdog makes a hang of a test a failure that shows what all goroutines do.
func Watchdog(t testing.TB, limit time.Duration) {
	name := t.Name()
	timer := time.AfterFunc(limit, func() { panic(name + " hangs") })
	t.Cleanup(func() { timer.Stop() })
}

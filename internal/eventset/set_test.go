package eventset

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

func TestArrivalEndsPark(t *testing.T) {
	each(t, func(t *testing.T, d *device, s *Set, thread bool) {
		for range 100 {
			if !s.Arm(transport.Any, thread) {
				t.Fatal("not armed, and nothing is there")
			}
			done := park(s, thread)
			d.arrive()
			ends(t, done, "something has arrived")
			if s.Disarm(); d.poll() != 1 {
				t.Fatal("what woke is not there")
			}
		}
	})
}

// What was there before Arm counts: Arm returns false, and then a thread does not sleep.
func TestArmSeesWhatIsThere(t *testing.T) {
	each(t, func(t *testing.T, d *device, s *Set, thread bool) {
		d.arrive()
		if s.Arm(transport.Any, thread) {
			t.Error("armed, and something is there")
		}
		ends(t, park(s, true), "Arm has returned false")
	})
}

// A Park of a thread that is not armed, or armed for the other sleeper, returns at once; so does one after Disarm.
func TestThreadUnarmed(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			s := kind(t).set()
			ends(t, park(s, true), "it was never armed")
			s.Arm(transport.Any, false)
			ends(t, park(s, true), "it is armed for the goroutine")
			s.Arm(transport.Any, true)
			s.Disarm()
			ends(t, park(s, true), "it was disarmed")
			s.Arm(transport.Any, true)
			s.Interrupt()
			ends(t, park(s, true), "Interrupt came before Park")
			ends(t, park(s, true), "what it was armed for is over")
		})
	}
}

// A Park of a goroutine that is not armed, or was disarmed, sleeps through arrivals until the device is armed.
func TestGoroutineUnarmed(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			d := kind(t)
			s := d.set()
			done := park(s, false)
			for range 3 {
				d.arrive()
				lasts(t, done, "it is not armed")
				d.poll()
				s.Arm(transport.Any, false)
				s.Disarm()
				d.arrive()
				lasts(t, done, "it was disarmed")
				d.poll()
				s.Arm(transport.Any, true)
				thread := park(s, true)
				d.arrive()
				ends(t, thread, "something is there")
				lasts(t, done, "it is armed for the thread")
				d.poll()
			}
			s.Arm(transport.Any, false)
			lasts(t, done, "nothing is there")
			d.arrive()
			ends(t, done, "it is armed and something is there")
		})
	}
}

func TestInterrupt(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			s := kind(t).set()
			for i := range 50 {
				s.Arm(transport.Any, true)
				thread, goroutine := park(s, true), park(s, false)
				if i%2 == 0 {
					for limit := time.Now().Add(patience); s.parking() < 2; runtime.Gosched() {
						if time.Now().After(limit) {
							t.Fatal("two Parks are not under way")
						}
					}
					s.Disarm() // another goroutine polls meanwhile
				}
				s.Interrupt()
				ends(t, thread, "Interrupt")
				ends(t, goroutine, "Interrupt")
			}
		})
	}
}

// An Interrupt while no thread sleeps or is about to does not end a later Park.
func TestInterruptLeavesNoDoorbell(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			s := kind(t).set()
			s.Interrupt()
			ends(t, park(s, false), "Interrupt came before")
			s.Arm(transport.Any, true)
			thread := park(s, true)
			lasts(t, thread, "the Interrupt was before Arm, and has ended a Park")
			goroutine := park(s, false)
			lasts(t, goroutine, "the Interrupt has ended a Park")
			s.Interrupt()
			ends(t, thread, "Interrupt")
			ends(t, goroutine, "Interrupt")
		})
	}
}

// The device's call of wake ends the sleep that it names, and no other, whatever descriptors there are.
func TestNotify(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			d := kind(t)
			var wake func(bool)
			d.wakes[0].Notify = func(w func(bool)) { wake, d.wake = w, w }
			s := d.set()
			s.Arm(transport.Any, true)
			thread, goroutine := park(s, true), park(s, false)
			wake(false)
			ends(t, goroutine, "its call")
			lasts(t, thread, "the call was for the goroutine")
			goroutine = park(s, false)
			wake(true)
			ends(t, thread, "its call")
			lasts(t, goroutine, "the call was for the thread")
			wake(true) // no thread sleeps
			s.Arm(transport.Any, true)
			lasts(t, park(s, true), "the call was before Arm")
			s.Interrupt()
			ends(t, goroutine, "Interrupt")
		})
	}
}

// Several devices as one: an arrival at any of them ends the sleep, and no thread sleeps on the word of one alone.
func TestSeveral(t *testing.T) {
	var all []*device
	whole := &several{device: device{t: t}}
	for _, kind := range kinds {
		d := kind(t)
		all = append(all, d)
		whole.wakes = append(whole.wakes, d.wakes...)
	}
	whole.parts = all
	s := whole.set()
	for i := range 30 {
		for _, d := range all {
			thread := i%2 == 0
			if !s.Arm(transport.Any, thread) {
				t.Fatal("not armed, and nothing is there")
			}
			done := park(s, thread)
			d.arrive()
			ends(t, done, "something has arrived")
			s.Disarm()
			d.poll()
		}
	}
}

// several is a device that is made of several.
type several struct {
	device
	parts []*device
}

func (d *several) set() *Set {
	s, err := New(d)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(s.Close)
	return s
}

func (d *several) Arm(level transport.Level) bool {
	if level == transport.Futex {
		d.t.Error("armed for a word, and there are several devices")
	}
	for _, p := range d.parts {
		if !p.Arm(level) {
			d.Disarm()
			return false
		}
	}
	return true
}

func (d *several) Disarm() {
	for _, p := range d.parts {
		p.Disarm()
	}
}

func TestClose(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			s := kind(t).set()
			s.Arm(transport.Any, true)
			thread, goroutine := park(s, true), park(s, false)
			time.Sleep(pause)
			s.Close()
			s.Close()
			ends(t, thread, "Close")
			ends(t, goroutine, "Close")
			s.Interrupt()
			for _, thread := range []bool{true, false} {
				s.Arm(transport.Any, thread)
				ends(t, park(s, thread), "it is closed")
				s.Disarm()
			}
		})
	}
}

// Close at any moment of a Park.
func TestCloseRaces(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			d := kind(t)
			for i := range 200 {
				s, err := New(d)
				if err != nil {
					t.Fatal(err)
				}
				s.Arm(transport.Any, true)
				thread, goroutine := park(s, true), park(s, false)
				for range i % 7 {
					runtime.Gosched()
				}
				s.Close()
				ends(t, thread, "Close")
				ends(t, goroutine, "Close")
			}
		})
	}
}

// Two sides of a ping-pong sleep before each turn. Each wake-up depends on the one before, so none may be lost.
func TestNoWakeUpIsLost(t *testing.T) {
	for name, kind := range kinds {
		for _, sleepers := range [][2]bool{{true, true}, {false, false}, {true, false}} {
			t.Run(fmt.Sprint(name, sleepers), func(t *testing.T) {
				rounds := 3000
				if testing.Short() {
					rounds = 300
				}
				sides := [2]*device{kind(t), kind(t)}
				var wg sync.WaitGroup
				for side, thread := range sleepers {
					mine, theirs := sides[side], sides[1-side]
					s := mine.set()
					w := watch(t, s)
					wg.Go(func() {
						for i := range rounds {
							if side == 0 {
								theirs.arrive()
							}
							if err := await(s, mine, thread, w); err != nil {
								t.Errorf("side %d, round %d: %v", side, i, err)
								return
							}
							if side == 1 {
								yield(i)
								theirs.arrive()
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// await is the loop of a waiter: poll, arm, park.
func await(s *Set, d *device, thread bool, w *proc.Watchdog) error {
	for d.poll() == 0 {
		if s.Arm(transport.Any, thread) {
			s.Park(thread)
			s.Disarm()
		}
		if w.Fired() {
			return fmt.Errorf("no wake-up within %v", patience)
		}
	}
	w.Reset()
	return nil
}

// An arrival at any moment after Arm ends the Park, while the other sleeper of the same set comes and goes.
func TestHammer(t *testing.T) {
	each(t, func(t *testing.T, d *device, s *Set, thread bool) {
		w := watch(t, s)
		other := make(chan struct{})
		stop := make(chan struct{})
		go func() { // the other sleeper; for a thread nothing is armed and Park returns at once
			defer close(other)
			for {
				select {
				case <-stop:
					return
				default:
					s.Park(!thread)
					runtime.Gosched()
				}
			}
		}()
		turn := make(chan int)
		go func() {
			for i := range turn {
				yield(i)
				d.arrive()
			}
		}()
		rounds := 3000
		if testing.Short() {
			rounds = 300
		}
		for i := range rounds {
			if i%3 == 0 { // as if it had been armed for the other before
				s.Arm(transport.Any, !thread)
			}
			armed := s.Arm(transport.Any, thread)
			turn <- i
			for d.poll() == 0 {
				if armed {
					s.Park(thread)
				}
				s.Disarm()
				if w.Fired() {
					t.Fatalf("round %d: the arrival was slept through", i)
				}
				armed = s.Arm(transport.Any, thread)
			}
			s.Disarm()
			w.Reset()
		}
		close(turn)
		close(stop)
		s.Interrupt()
		ends(t, other, "Interrupt")
	})
}

// One Interrupt for each Park, at any moment after Arm.
func TestInterruptIsNotLost(t *testing.T) {
	each(t, func(t *testing.T, _ *device, s *Set, thread bool) {
		w := watch(t, s)
		turn := make(chan int)
		go func() {
			for i := range turn {
				yield(i)
				s.Interrupt()
				turn <- i
			}
		}()
		rounds := 3000
		if testing.Short() {
			rounds = 300
		}
		for i := range rounds {
			s.Arm(transport.Any, thread)
			turn <- i
			s.Park(thread)
			s.Disarm()
			<-turn
			w.Reset()
			if w.Fired() {
				t.Fatalf("round %d: the Interrupt was lost", i)
			}
		}
		close(turn)
	})
}

// Sleeping costs no memory.
func TestNoAllocations(t *testing.T) {
	if proc.Race {
		t.Skip("the race detector allocates")
	}
	each(t, func(t *testing.T, _ *device, s *Set, thread bool) {
		if n := testing.AllocsPerRun(1000, func() {
			s.Arm(transport.Any, thread)
			s.Interrupt()
			s.Park(thread)
			s.Disarm()
		}); n != 0 {
			t.Errorf("%v allocations for Arm, Interrupt, Park and Disarm", n)
		}
	})
}

func BenchmarkArmDisarm(b *testing.B) {
	for name, kind := range kinds {
		for _, thread := range []bool{true, false} {
			b.Run(fmt.Sprint(name, "/", thread), func(b *testing.B) {
				s := kind(b).set()
				for b.Loop() {
					s.Arm(transport.Any, thread)
					s.Disarm()
				}
			})
		}
	}
}

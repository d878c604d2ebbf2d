//go:build linux || darwin || freebsd

package doze

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

var kinds = map[string]bool{"held": true, "free": false}

func TestArrivalEndsPark(t *testing.T) {
	for name, hold := range kinds {
		t.Run(name, func(t *testing.T) {
			p, l := place(t), newLine(t)
			must(t, p.Add(l.r))
			for range 100 {
				p.Arm(hold)
				done := park(p, hold)
				l.send()
				ends(t, done, "something has arrived")
				if p.Disarm(); l.poll() != 1 {
					t.Fatal("what woke is not there")
				}
			}
		})
	}
}

// What was there before Arm counts.
func TestArmSeesWhatIsThere(t *testing.T) {
	for name, hold := range kinds {
		t.Run(name, func(t *testing.T) {
			p, l := place(t), newLine(t)
			must(t, p.Add(l.r))
			l.send()
			for range 100 {
				p.Arm(hold)
				ends(t, park(p, hold), "something was there before Arm")
				p.Disarm()
			}
		})
	}
}

func TestReady(t *testing.T) {
	p, l := place(t), newLine(t)
	must(t, p.Add(newLine(t).r))
	must(t, p.Add(l.r))
	for range 3 {
		if p.Ready() {
			t.Fatal("ready, and nothing has arrived")
		}
		l.send()
		if !p.Ready() || !p.Ready() {
			t.Fatal("something has arrived and the place is not ready")
		}
		l.poll()
	}
}

// A Park with hold that nobody armed, or armed for the other kind, returns at once; so does one after Disarm.
func TestParkHeldUnarmed(t *testing.T) {
	p := place(t)
	ends(t, park(p, true), "it was never armed")
	p.Arm(false)
	ends(t, park(p, true), "it is armed for the other kind")
	p.Arm(true)
	p.Disarm()
	ends(t, park(p, true), "it was disarmed")
	p.Arm(true)
	p.Interrupt()
	ends(t, park(p, true), "Interrupt came before Park")
	ends(t, park(p, true), "what it was armed for is over")
}

// A Park without hold that nobody armed, or that was disarmed, sleeps through arrivals until somebody arms.
func TestParkFreeUnarmed(t *testing.T) {
	p, l := place(t), newLine(t)
	must(t, p.Add(l.r))
	done := park(p, false)
	for range 3 {
		l.send()
		lasts(t, done, "it is not armed")
		l.poll()
		p.Arm(false)
		p.Disarm()
		l.send()
		lasts(t, done, "it was disarmed")
		p.Arm(true)
		lasts(t, done, "it is armed for the other kind")
		ends(t, park(p, true), "something is there")
		l.poll()
	}
	p.Arm(false)
	lasts(t, done, "nothing is there")
	l.send()
	ends(t, done, "it is armed and something is there")
}

func TestInterrupt(t *testing.T) {
	p := place(t)
	for i := range 50 {
		p.Arm(true)
		held, free := park(p, true), park(p, false)
		if i%2 == 0 {
			for limit := time.Now().Add(patience); p.busy() < 2; runtime.Gosched() {
				if time.Now().After(limit) {
					t.Fatal("two Parks are not under way")
				}
			}
			p.Disarm() // somebody else polls meanwhile
		}
		p.Interrupt()
		ends(t, held, "Interrupt")
		ends(t, free, "Interrupt")
	}
}

// busy is how many Parks are under way.
func (p *Place) busy() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inside
}

// An Interrupt that no Park(true) can have been meant for does not end a later one.
func TestInterruptLeavesNoBell(t *testing.T) {
	p := place(t)
	p.Interrupt()
	ends(t, park(p, false), "Interrupt came before")
	p.Arm(true)
	held := park(p, true)
	lasts(t, held, "the Interrupt was before Arm, and has been heard")
	free := park(p, false)
	lasts(t, free, "the Interrupt has been heard")
	p.Interrupt()
	ends(t, held, "Interrupt")
	ends(t, free, "Interrupt")
}

func TestAddHeldAndAddBell(t *testing.T) {
	p, h, b := place(t), newLine(t), newLine(t)
	must(t, p.AddHeld(h.r))
	must(t, p.AddBell(b.r))
	p.Arm(true)
	held, free := park(p, true), park(p, false)
	b.send()
	ends(t, free, "its bell rings, armed or not")
	lasts(t, held, "the bell is the other's")
	b.poll()
	free = park(p, false)
	h.send()
	ends(t, held, "its descriptor is readable")
	p.Arm(false)
	lasts(t, free, "the descriptor is the other's")
	h.poll()
	if p.Ready() {
		t.Error("ready, and nothing was added")
	}
	p.Interrupt()
	ends(t, free, "Interrupt")
}

func TestRemove(t *testing.T) {
	p, l, other := place(t), newLine(t), newLine(t)
	must(t, p.Add(l.r))
	must(t, p.Add(other.r))
	l.send()
	p.Remove(l.r)
	p.Remove(l.r)
	p.Remove(1 << 20)
	p.Remove(int(p.arrivals))
	p.Remove(p.heldBell.fd())
	p.Remove(p.freeBell.fd())
	if p.Ready() {
		t.Error("ready because of what was removed")
	}
	p.Arm(true)
	held := park(p, true)
	lasts(t, held, "what is there was removed")
	other.send()
	ends(t, held, "something else is there")
	p.Arm(false)
	ends(t, park(p, false), "something else is there")
	must(t, p.Add(l.r))
}

func TestAddRefuses(t *testing.T) {
	p := place(t)
	if err := p.Add(1 << 20); err == nil {
		t.Error("a descriptor that nobody has was added")
	}
	p.Close()
	if err := p.Add(0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Add after Close: %v", err)
	}
}

func TestClose(t *testing.T) {
	p := place(t)
	p.Arm(true)
	held, free := park(p, true), park(p, false)
	time.Sleep(pause)
	must(t, p.Close())
	must(t, p.Close())
	ends(t, held, "Close")
	ends(t, free, "Close")
	p.Interrupt()
	p.Remove(1)
	for _, hold := range kinds {
		p.Arm(hold)
		ends(t, park(p, hold), "it is closed")
		p.Disarm()
	}
	if p.Ready() {
		t.Error("closed and ready")
	}
}

// Close at any moment of a Park.
func TestCloseRaces(t *testing.T) {
	for i := range 300 {
		p := place(t)
		p.Arm(true)
		held, free := park(p, true), park(p, false)
		for range i % 7 {
			runtime.Gosched()
		}
		must(t, p.Close())
		ends(t, held, "Close")
		ends(t, free, "Close")
	}
}

// A place watches sets of descriptors, as devices have them, as deep as a device of several devices needs.
func TestNested(t *testing.T) {
	for name, hold := range kinds {
		t.Run(name, func(t *testing.T) {
			p, l := place(t), newLine(t)
			inner := place(t) // of which only the set is used
			must(t, inner.Add(l.r))
			must(t, p.Add(int(inner.arrivals)))
			for range 10 {
				p.Arm(hold)
				done := park(p, hold)
				lasts(t, done, "nothing is there")
				l.send()
				ends(t, done, "something has arrived in the inner set")
				l.poll()
			}
		})
	}
}

// Two sides of a ping-pong sleep before each turn, so that each wake-up depends on the one before: none may be lost.
func TestNoWakeUpIsLost(t *testing.T) {
	for _, c := range []struct {
		name string
		hold [2]bool
	}{{"held", [2]bool{true, true}}, {"free", [2]bool{false, false}}, {"both", [2]bool{true, false}}} {
		t.Run(c.name, func(t *testing.T) {
			const rounds = 5000
			lines := [2]*line{newLine(t), newLine(t)}
			var wg sync.WaitGroup
			for side, hold := range c.hold {
				p := place(t)
				mine, theirs := lines[side], lines[1-side]
				must(t, p.Add(mine.r))
				d := watch(t, p)
				wg.Go(func() {
					for i := range rounds {
						if side == 0 {
							theirs.send()
						}
						if err := await(p, mine, hold, d); err != nil {
							t.Errorf("side %d, round %d: %v", side, i, err)
							return
						}
						if side == 1 {
							spend(i)
							theirs.send()
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// await is the loop of a waiter: poll, arm, look again, park.
func await(p *Place, l *line, hold bool, d *proc.Watchdog) error {
	for l.poll() == 0 {
		p.Arm(hold)
		if !p.Ready() {
			p.Park(hold)
		}
		p.Disarm()
		if d.Fired() {
			return fmt.Errorf("no wake-up within %v", patience)
		}
	}
	d.Reset()
	return nil
}

// spend lets the other side get a varying way ahead.
func spend(i int) {
	for range i * 7919 % 13 {
		runtime.Gosched()
	}
}

// An arrival at any moment after Arm ends the Park, while the other sleeper of the same place comes and goes.
func TestHammer(t *testing.T) {
	for name, hold := range kinds {
		t.Run(name, func(t *testing.T) {
			p, l := place(t), newLine(t)
			must(t, p.Add(l.r))
			d := watch(t, p)
			other := make(chan struct{})
			stop := make(chan struct{})
			go func() { // the sleeper of the other kind; with hold it is not armed and returns at once
				defer close(other)
				for {
					select {
					case <-stop:
						return
					default:
						p.Park(!hold)
						runtime.Gosched()
					}
				}
			}()
			turn := make(chan int)
			go func() {
				for i := range turn {
					spend(i)
					l.send()
				}
			}()
			for i := range 5000 {
				if i%3 == 0 { // as if somebody had armed for the other before
					p.Arm(!hold)
				}
				p.Arm(hold)
				turn <- i
				for l.poll() == 0 {
					p.Park(hold)
					p.Disarm()
					if d.Fired() {
						t.Fatalf("round %d: the arrival was slept through", i)
					}
					p.Arm(hold)
				}
				p.Disarm()
				d.Reset()
			}
			close(turn)
			close(stop)
			p.Interrupt()
			ends(t, other, "Interrupt")
		})
	}
}

// One Interrupt for each Park, at any moment after Arm, while packets come that nobody wants.
func TestInterruptIsNotLost(t *testing.T) {
	for name, hold := range kinds {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			d := watch(t, p)
			turn := make(chan int)
			go func() {
				for i := range turn {
					spend(i)
					p.Interrupt()
					turn <- i
				}
			}()
			for i := range 5000 {
				p.Arm(hold)
				turn <- i
				p.Park(hold)
				p.Disarm()
				<-turn
				d.Reset()
				if d.Fired() {
					t.Fatalf("round %d: the Interrupt was lost", i)
				}
			}
			close(turn)
		})
	}
}

// Sleeping costs no memory.
func TestNoAllocations(t *testing.T) {
	p, l := place(t), newLine(t)
	must(t, p.Add(l.r))
	l.send()
	for name, hold := range kinds {
		if n := testing.AllocsPerRun(1000, func() {
			p.Arm(hold)
			p.Park(hold)
			p.Disarm()
		}); n != 0 {
			t.Errorf("%s: %v allocations for Arm, Park and Disarm", name, n)
		}
	}
}

func BenchmarkArmDisarm(b *testing.B) {
	p, l := place(b), newLine(b)
	must(b, p.Add(l.r))
	for name, hold := range kinds {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p.Arm(hold)
				p.Disarm()
			}
		})
	}
	b.Run("asked-again", func(b *testing.B) {
		for b.Loop() {
			p.listen = false
			p.Arm(false)
			p.Disarm()
		}
	})
}

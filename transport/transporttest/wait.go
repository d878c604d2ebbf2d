package transporttest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// watch has somebody interrupt the devices of ends if nothing goes forward any more.
func watch(f *fixture, ends ...*end) *proc.Watchdog {
	return proc.StartWatchdog(f, patience, func() {
		for _, e := range ends {
			e.dev.Interrupt()
		}
	})
}

// await is the loop of a waiter: poll, arm, look again (Arm does), park.
func (e *end) await(w *proc.Watchdog, level transport.Level, hold bool) (message, error) {
	for {
		if m, ok := e.tryNext(); ok {
			w.Reset()
			return m, nil
		}
		if e.dev.Arm(level, hold) {
			e.dev.Park(hold)
			e.dev.Disarm()
		}
		if w.Fired() {
			return message{}, fmt.Errorf("rank %d: no wake-up within %v; polling now gives %d packets", e.rank, patience, e.poll())
		}
	}
}

// arm is for when there is nothing to poll.
func (f *fixture) arm(e *end, level transport.Level, hold bool) {
	f.Helper()
	for c := start(); !e.dev.Arm(level, hold); {
		if e.poll() > 0 || !f.unreliable || c.late() {
			f.Fatalf("rank %d: nothing was sent and Arm refuses; polling gave %d packets", e.rank, len(e.inbox))
		}
	}
}

// armSeesArrived: with something to poll, Arm says so and does not arm.
func armSeesArrived(f *fixture) {
	a, b := f.linked()
	w := watch(f, b)
	for _, level := range []transport.Level{transport.Any, transport.Urgent} {
		f.must(a.send(wire.Header{Kind: wire.Eager, Flags: wire.Urgent}, nil))
		for b.dev.Arm(level, false) { // not here yet: then its arrival ends this Park
			b.dev.Park(false)
			if w.Fired() {
				f.Fatal("a packet was sent, and Arm has not seen it nor Park ended")
			}
		}
		if b.dev.Arm(level, false) {
			f.Error("Arm saw the packet, was asked again, and did not")
		}
		if _, err := b.nextPacket(); err != nil {
			f.Fatal(err)
		}
		for c := start(); !b.dev.Arm(level, false); b.poll() {
			if c.late() {
				f.Fatal("everything has been polled and Arm goes on refusing")
			}
		}
		b.dev.Disarm()
	}
}

// wake: B sleeps before each packet. A's pauses vary, so that packets fall before, between and after Arm and Park.
func wake(f *fixture, hold bool) {
	a, b := f.linked()
	w := watch(f, b)
	rounds := f.rounds(10_000)
	rng := rand.New(rand.NewPCG(7, 7))
	f.drive(func() error {
		for i := range uint64(rounds) {
			pause(rng.IntN(3000))
			if err := a.send(wire.Header{Kind: wire.FIN, ID: i}, nil); err != nil {
				return err
			}
			if m, err := a.next(); err != nil || m.Header.ID != i {
				return fmt.Errorf("round %d: reply %+v, %v", i, m.Header, err)
			}
		}
		return nil
	}, func() error {
		for i := range uint64(rounds) {
			m, err := b.await(w, transport.Any, hold)
			if err != nil || m.Header.ID != i {
				return fmt.Errorf("round %d: %+v, %v", i, m.Header, err)
			}
			if err := b.send(wire.Header{Kind: wire.FIN, ID: i}, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

var sink atomic.Int64

// pause burns a little time without a system call.
func pause(n int) {
	for i := range n {
		sink.Store(int64(i))
	}
	if n%8 == 0 {
		runtime.Gosched()
	}
}

// wakeBothWays: both sides sleep, so that each wake-up depends on the other's.
func wakeBothWays(f *fixture) {
	a, b := f.linked()
	w := watch(f, a, b)
	rounds := f.rounds(3000)
	side := func(e *end, hold, first bool) func() error {
		return func() error {
			for i := range uint64(rounds) {
				if first {
					if err := e.send(wire.Header{Kind: wire.FIN, ID: i}, nil); err != nil {
						return err
					}
				}
				if m, err := e.await(w, transport.Any, hold); err != nil || m.Header.ID != i {
					return fmt.Errorf("round %d: %+v, %v", i, m.Header, err)
				}
				if !first {
					if err := e.send(wire.Header{Kind: wire.FIN, ID: i}, nil); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
	f.drive(side(a, true, true), side(b, false, false))
}

// parked is a Park in its own goroutine.
func parked(e *end, hold bool) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.dev.Park(hold)
	}()
	return done
}

func within(f *fixture, done <-chan struct{}, what string) {
	f.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		f.Fatalf("%s: Park has not ended within %v", what, patience)
	}
}

// urgentNotWokenByPlain watches many Parks for a moment each: one may end early for no reason, most may not.
func urgentNotWokenByPlain(f *fixture) {
	a, b := f.linked()
	const rounds = 20
	early := 0
	for range rounds {
		f.arm(b, transport.Urgent, false)
		done := parked(b, false)
		for range 5 {
			f.must(a.send(wire.Header{Kind: wire.Eager}, []byte("plain")))
		}
		select {
		case <-done:
			early++ // an Interrupt now would end the next one
		case <-time.After(3 * time.Millisecond):
			b.dev.Interrupt()
			within(f, done, "Interrupt")
		}
		b.dev.Disarm()
		for range 5 {
			if _, err := b.nextPacket(); err != nil {
				f.Fatal(err)
			}
		}
	}
	if early > rounds/2 {
		f.Errorf("plain packets ended %d of %d Parks that were armed for urgent ones", early, rounds)
	}
}

// urgentWokenByUrgent: the urgent packet ends Park though plain ones are in front of it, and nothing is lost.
func urgentWokenByUrgent(f *fixture) {
	a, b := f.linked()
	for round := range uint64(300) {
		f.arm(b, transport.Urgent, false)
		done := parked(b, false)
		plain := round % 3
		for range plain {
			f.must(a.send(wire.Header{Kind: wire.Eager, Tag: int32(round)}, nil))
		}
		f.must(a.send(wire.Header{Kind: wire.RTS, Flags: wire.Urgent, ID: round}, nil))
		within(f, done, "an urgent packet was sent")
		b.dev.Disarm()
		for i := range plain + 1 {
			m, err := b.nextPacket()
			if f.must(err); (i == plain) != (m.Header.Kind == wire.RTS) {
				f.Fatalf("round %d: packet %d of %d is a %v", round, i, plain+1, m.Header.Kind)
			}
		}
	}
}

// urgentPlainIsPolled: a plain packet that woke nobody is there for whoever polls, while another sleeps.
func urgentPlainIsPolled(f *fixture) {
	a, b := f.linked()
	f.arm(b, transport.Urgent, false)
	done := parked(b, false)
	for i := range uint64(100) {
		f.must(a.send(wire.Header{Kind: wire.Matched, ID: i}, nil))
		m, err := b.nextPacket()
		if f.must(err); m.Header.ID != i {
			f.Fatalf("got packet %d, want %d", m.Header.ID, i)
		}
	}
	b.dev.Interrupt()
	within(f, done, "Interrupt")
}

// wakeFlag: a packet with wire.Wake ends Park(false) of a rank that has not armed, and one that another arm asked for.
func wakeFlag(f *fixture) {
	a, b := f.linked()
	for i := range uint64(f.rounds(300)) {
		switch i % 3 {
		case 1:
			b.dev.Arm(transport.Urgent, false)
		case 2:
			b.dev.Arm(transport.Any, true)
		}
		done := parked(b, false)
		f.must(a.send(wire.Header{Kind: wire.Cancel, Flags: wire.Wake, ID: i}, nil))
		within(f, done, "a packet with the flag Wake was sent")
		b.dev.Disarm()
		m, err := b.nextPacket()
		if f.must(err); m.Header.ID != i {
			f.Fatalf("got packet %d, want %d", m.Header.ID, i)
		}
	}
}

// parkUnarmed: Park(true) of a device that is not armed, or not any more, returns at once.
func parkUnarmed(f *fixture) {
	a, b := f.linked()
	within(f, parked(b, true), "the device was never armed")
	b.dev.Arm(transport.Any, true)
	b.dev.Disarm()
	within(f, parked(b, true), "the device was disarmed")
	f.must(a.send(wire.Header{Kind: wire.FIN}, nil))
	for c := start(); b.dev.Arm(transport.Any, true); b.dev.Disarm() {
		if c.late() {
			f.Fatal("a packet was sent and Arm does not see it")
		}
	}
	within(f, parked(b, true), "Arm has returned false")
}

// interruptDuringPark: one Interrupt ends the Park with hold and the one without.
func interruptDuringPark(f *fixture) { interrupt(f, false) }

// interruptAfterDisarm: so it does when somebody else, who polls, has disarmed in the meantime.
func interruptAfterDisarm(f *fixture) { interrupt(f, true) }

func interrupt(f *fixture, disarm bool) {
	_, b := f.linked()
	// Nobody can see from outside that a goroutine is inside Park; a wait that was too short for both to get there
	// is repeated longer.
	for wait := 5 * time.Millisecond; wait < 10*time.Second; wait *= 4 {
		f.arm(b, transport.Any, true)
		with, without := parked(b, true), parked(b, false)
		time.Sleep(wait)
		if disarm {
			b.dev.Disarm()
		}
		b.dev.Interrupt()
		timeout := time.After(time.Second + 2*wait)
		both := ended(with, timeout) && ended(without, timeout)
		if both {
			return
		}
		for c := start(); !ended(with, closedTimer) || !ended(without, closedTimer); { // get them out
			if c.late() {
				f.Fatal("Park does not end, however often it is armed and interrupted")
			}
			b.dev.Arm(transport.Any, true)
			b.dev.Interrupt()
			time.Sleep(time.Millisecond)
		}
	}
	f.Fatal("an Interrupt does not end both Parks that are under way")
}

var closedTimer = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

// ended reports whether done comes before timeout does; done wins if both are there.
func ended(done <-chan struct{}, timeout <-chan time.Time) bool {
	select {
	case <-done:
		return true
	default:
	}
	select {
	case <-done:
		return true
	case <-timeout:
		return false
	}
}

// interruptBeforePark: an Interrupt between Arm and Park ends that Park, of either kind.
func interruptBeforePark(f *fixture) {
	_, b := f.linked()
	for i := range 100 {
		hold := i%2 == 0
		f.arm(b, transport.Any, hold)
		b.dev.Interrupt()
		within(f, parked(b, hold), "Interrupt came before Park")
		b.dev.Disarm()
	}
}

// interruptNotLost: one Interrupt for each Park, at any moment after Arm.
func interruptNotLost(f *fixture) {
	_, b := f.linked()
	rounds := f.rounds(3000)
	for _, hold := range []bool{true, false} {
		w := watch(f, b)
		rng := rand.New(rand.NewPCG(8, 8))
		turn := make(chan struct{})
		f.drive(func() error {
			for range rounds {
				<-turn
				pause(rng.IntN(2000))
				b.dev.Interrupt()
				turn <- struct{}{}
			}
			return nil
		}, func() error {
			for i := range rounds {
				armed := b.dev.Arm(transport.Any, hold)
				turn <- struct{}{}
				if armed {
					b.dev.Park(hold)
					b.dev.Disarm()
				}
				<-turn
				w.Reset()
				if w.Fired() {
					for ; i < rounds-1; i++ { // let the other side finish
						turn <- struct{}{}
						<-turn
					}
					return fmt.Errorf("hold %v: an Interrupt was lost", hold)
				}
			}
			return nil
		})
	}
}

// parkIsIdle: asleep means asleep. The bound is generous; a spinning Park takes all of it and more, each time. Once it may
// be the runtime, or a machine that counts as ours what it gave to others.
func parkIsIdle(f *fixture) {
	_, b := f.linked()
	const nap, bound = 200 * time.Millisecond, 60 * time.Millisecond
	asleep := func(hold bool) (used time.Duration, parks int) {
		before, ok := cpuTime()
		if !ok {
			f.Skip("this system does not say how much CPU time a process has used")
		}
		var over atomic.Bool
		timer := time.AfterFunc(nap, func() { over.Store(true); b.dev.Interrupt() })
		for ; !over.Load(); parks++ {
			f.arm(b, transport.Any, hold)
			b.dev.Park(hold)
			b.dev.Disarm()
		}
		timer.Stop()
		after, _ := cpuTime()
		return after - before, parks
	}
	for _, hold := range []bool{true, false} {
		used, parks := asleep(hold)
		for try := 1; try < 20 && (used > bound || parks > 100); try++ {
			used, parks = asleep(hold)
		}
		if used > bound || parks > 100 {
			f.Errorf("hold %v: %d Parks in %v took %v of CPU time; at most %v and 100", hold, parks, nap, used, bound)
		}
	}
}

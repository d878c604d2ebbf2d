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

// watch interrupts the sleepers of ends if nothing goes forward any more.
func watch(f *fixture, ends ...*end) *proc.Watchdog {
	return proc.StartWatchdog(f, patience, func() {
		for _, e := range ends {
			e.set.Interrupt()
		}
	})
}

// await is the loop of a waiter: poll, arm, look again (Arm does), park.
func (e *end) await(w *proc.Watchdog, level transport.Level, thread bool) (transport.Packet, error) {
	for {
		if p, ok := e.tryNext(); ok {
			w.Reset()
			return p, nil
		}
		e.sleep(level, thread)
		if w.Fired() {
			return transport.Packet{}, fmt.Errorf("rank %d: no wake-up within %v; polling now gives %d packets",
				e.rank, patience, e.poll())
		}
	}
}

// sleep is one sleep of a waiter.
func (e *end) sleep(level transport.Level, thread bool) {
	if e.set.Arm(level, thread) {
		e.set.Park(thread)
		e.set.Disarm()
	}
}

// arm is for when there is nothing to poll.
func (f *fixture) arm(e *end, level transport.Level, thread bool) {
	f.Helper()
	for c := start(); !e.set.Arm(level, thread); {
		if e.poll() > 0 || !f.unreliable || c.late() {
			f.Fatalf("rank %d: nothing was sent and Arm refuses; polling gave %d packets", e.rank, len(e.inbox))
		}
	}
}

// armSeesArrived checks that with something to poll, Arm says so and does not arm.
func armSeesArrived(f *fixture) {
	a, b := f.linked()
	w := watch(f, b)
	for _, level := range []transport.Level{transport.Any, transport.Urgent} {
		f.must(a.send(wire.Header{Kind: wire.Eager, Flags: wire.Urgent}, nil))
		for b.set.Arm(level, false) { // not here yet: then its arrival ends this Park
			b.set.Park(false)
			if w.Fired() {
				f.Fatal("a packet was sent, and Arm has not seen it nor Park ended")
			}
		}
		if !f.unreliable && b.set.Arm(level, false) {
			f.Error("Arm saw the packet, was asked again, and did not")
		}
		if _, err := b.nextPacket(); err != nil {
			f.Fatal(err)
		}
		for c := start(); !b.set.Arm(level, false); b.poll() {
			if c.late() {
				f.Fatal("everything has been polled and Arm goes on refusing")
			}
		}
		b.set.Disarm()
	}
}

// wake has B sleep before each packet. A's pauses vary, so that packets fall before, between and after Arm and Park.
func wake(f *fixture, thread bool) {
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
			if p, err := a.next(); err != nil || p.Header.ID != i {
				return fmt.Errorf("round %d: reply %+v, %v", i, p.Header, err)
			}
		}
		return nil
	}, func() error {
		for i := range uint64(rounds) {
			p, err := b.await(w, transport.Any, thread)
			if err != nil || p.Header.ID != i {
				return fmt.Errorf("round %d: %+v, %v", i, p.Header, err)
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

// wakeBothWays has both sides sleep, so that each wake-up depends on the other's.
func wakeBothWays(f *fixture) {
	a, b := f.linked()
	w := watch(f, a, b)
	rounds := f.rounds(3000)
	side := func(e *end, thread, first bool) func() error {
		return func() error {
			for i := range uint64(rounds) {
				if first {
					if err := e.send(wire.Header{Kind: wire.FIN, ID: i}, nil); err != nil {
						return err
					}
				}
				if p, err := e.await(w, transport.Any, thread); err != nil || p.Header.ID != i {
					return fmt.Errorf("round %d: %+v, %v", i, p.Header, err)
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
func parked(e *end, thread bool) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.set.Park(thread)
	}()
	return done
}

func within(f *fixture, done <-chan struct{}, what string) {
	f.Helper()
	if !ended(done, time.After(patience)) {
		f.Fatalf("%s: Park has not ended within %v", what, patience)
	}
}

// urgentNotWokenByPlain watches many Parks for a moment each: one may end early for no reason, most may not.
func urgentNotWokenByPlain(f *fixture) {
	a, b := f.linked()
	rounds := f.few(20, 10)
	early := 0
	for range rounds {
		f.arm(b, transport.Urgent, false)
		done := parked(b, false)
		for range 5 {
			f.must(a.send(wire.Header{Kind: wire.Eager}, []byte("plain")))
		}
		if ended(done, time.After(3*time.Millisecond)) {
			early++ // an Interrupt now would end the next one
		} else {
			b.set.Interrupt()
			within(f, done, "Interrupt")
		}
		b.set.Disarm()
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

// urgentWokenByUrgent checks that the urgent packet ends Park though plain ones are in front of it, and nothing is
// lost.
func urgentWokenByUrgent(f *fixture) {
	a, b := f.linked()
	for round := range uint64(f.few(300, 30)) {
		f.arm(b, transport.Urgent, false)
		done := parked(b, false)
		plain := round % 3
		for range plain {
			f.must(a.send(wire.Header{Kind: wire.Eager, Tag: int32(round)}, nil))
		}
		f.must(a.send(wire.Header{Kind: wire.RTS, Flags: wire.Urgent, ID: round}, nil))
		within(f, done, "an urgent packet was sent")
		b.set.Disarm()
		for i := range plain + 1 {
			p, err := b.nextPacket()
			if f.must(err); (i == plain) != (p.Header.Kind == wire.RTS) {
				f.Fatalf("round %d: packet %d of %d is a %v", round, i, plain+1, p.Header.Kind)
			}
		}
	}
}

// urgentBehindFull checks that a link that is full of plain packets ends the Park of a rank that is armed for urgent
// ones, so that the urgent packet behind them comes.
func urgentBehindFull(f *fixture) {
	a, b := f.linked()
	w := watch(f, b)
	out, in := newStream(9, a.link.Caps()), newStream(9, a.link.Caps())
	for range f.few(3, 1) {
		f.arm(b, transport.Urgent, false)
		took, h, body, err := full(a, out)
		f.must(err)
		f.drive(func() error {
			if err := a.send(h, body); err != nil { // what was refused
				return err
			}
			return a.send(wire.Header{Kind: wire.RTS, Flags: wire.Urgent}, nil)
		}, func() error {
			b.set.Park(false)
			for range took + 1 {
				m, err := b.await(w, transport.Urgent, false)
				if err == nil {
					err = in.check(m)
				}
				if err != nil {
					return fmt.Errorf("behind %d packets that filled the link: %w", took, err)
				}
			}
			m, err := b.await(w, transport.Urgent, false)
			if err == nil && m.Header.Kind != wire.RTS {
				err = fmt.Errorf("got a %v where the urgent packet should be", m.Header.Kind)
			}
			return err
		})
	}
}

// urgentPlainIsPolled checks that a plain packet that has ended no sleep is there for a caller that polls, while
// another sleeps.
func urgentPlainIsPolled(f *fixture) {
	a, b := f.linked()
	f.arm(b, transport.Urgent, false)
	done := parked(b, false)
	for i := range uint64(100) {
		f.must(a.send(wire.Header{Kind: wire.Matched, ID: i}, nil))
		p, err := b.nextPacket()
		if f.must(err); p.Header.ID != i {
			f.Fatalf("got packet %d, want %d", p.Header.ID, i)
		}
	}
	b.set.Interrupt()
	within(f, done, "Interrupt")
}

// pollKeepsArmed polls while the device is armed for a goroutine that is about to sleep. Whatever the poll leaves ends
// the sleep.
func pollKeepsArmed(f *fixture) {
	a, b := f.linked()
	const packets = 40
	all := b.pkts
	for round := range f.rounds(300) {
		f.arm(b, transport.Any, false)
		for i := range packets {
			f.must(a.send(wire.Header{Kind: wire.FIN, ID: uint64(i)}, nil))
		}
		a.poll() // what A has held back goes out
		b.pkts = all[:1+round%len(all)]
		for len(b.inbox) == 0 {
			b.poll()
		}
		b.pkts = all
		within(f, parked(b, false), fmt.Sprintf("round %d: a poll has left %d packets", round, packets-len(b.inbox)))
		b.set.Disarm()
		for i := range packets {
			p, err := b.nextPacket()
			if f.must(err); p.Header.ID != uint64(i) {
				f.Fatalf("round %d: got packet %d, want %d", round, p.Header.ID, i)
			}
		}
	}
}

// wakeFlag checks that a packet with wire.Wake ends the Park of a goroutine that has not armed, or has armed for
// another.
func wakeFlag(f *fixture) {
	a, b := f.linked()
	for i := range uint64(f.rounds(300)) {
		switch i % 3 {
		case 1:
			b.set.Arm(transport.Urgent, false)
		case 2:
			b.set.Arm(transport.Any, true)
		}
		done := parked(b, false)
		f.must(a.send(wire.Header{Kind: wire.Cancel, Flags: wire.Wake, ID: i}, nil))
		within(f, done, "a packet with the flag Wake was sent")
		b.set.Disarm()
		p, err := b.nextPacket()
		if f.must(err); p.Header.ID != i {
			f.Fatalf("got packet %d, want %d", p.Header.ID, i)
		}
	}
}

// parkUnarmed checks that the Park of a thread returns at once if the device is not armed, or not any more.
func parkUnarmed(f *fixture) {
	a, b := f.linked()
	within(f, parked(b, true), "the device was never armed")
	b.set.Arm(transport.Any, true)
	b.set.Disarm()
	within(f, parked(b, true), "the device was disarmed")
	f.must(a.send(wire.Header{Kind: wire.FIN}, nil))
	for c := start(); b.set.Arm(transport.Any, true); b.set.Disarm() {
		if c.late() {
			f.Fatal("a packet was sent and Arm does not see it")
		}
	}
	within(f, parked(b, true), "Arm has returned false")
}

// interrupt checks that one Interrupt ends the Park of a thread and that of a goroutine, also if a caller that polls
// has disarmed in the meantime. It is not visible from outside that a goroutine is inside Park: a wait that was too
// short for both to get there is repeated longer.
func interrupt(f *fixture, disarm bool) {
	_, b := f.linked()
	for wait := 5 * time.Millisecond; wait < 10*time.Second; wait *= 4 {
		f.arm(b, transport.Any, true)
		thread, goroutine := parked(b, true), parked(b, false)
		time.Sleep(wait)
		if disarm {
			b.set.Disarm()
		}
		b.set.Interrupt()
		timeout := time.After(time.Second + 2*wait)
		if ended(thread, timeout) && ended(goroutine, timeout) {
			return
		}
		for c := start(); !ended(thread, closedTimer) || !ended(goroutine, closedTimer); { // get them out
			if c.late() {
				f.Fatal("Park does not end, however often it is armed and interrupted")
			}
			b.set.Arm(transport.Any, true)
			b.set.Interrupt()
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

// interruptBeforePark checks that an Interrupt between Arm and Park ends that Park, of either kind.
func interruptBeforePark(f *fixture) {
	_, b := f.linked()
	for i := range 100 {
		thread := i%2 == 0
		f.arm(b, transport.Any, thread)
		b.set.Interrupt()
		within(f, parked(b, thread), "Interrupt came before Park")
		b.set.Disarm()
	}
}

// interruptNotLost checks that one Interrupt for each Park, at any moment after Arm.
func interruptNotLost(f *fixture) {
	_, b := f.linked()
	rounds := f.rounds(3000)
	for _, thread := range []bool{true, false} {
		w := watch(f, b)
		rng := rand.New(rand.NewPCG(8, 8))
		turn := make(chan struct{})
		f.drive(func() error {
			for range rounds {
				<-turn
				pause(rng.IntN(2000))
				b.set.Interrupt()
				turn <- struct{}{}
			}
			return nil
		}, func() error {
			for i := range rounds {
				armed := b.set.Arm(transport.Any, thread)
				turn <- struct{}{}
				if armed {
					b.set.Park(thread)
					b.set.Disarm()
				}
				<-turn
				w.Reset()
				if w.Fired() {
					for ; i < rounds-1; i++ { // let the other side finish
						turn <- struct{}{}
						<-turn
					}
					return fmt.Errorf("thread %v: an Interrupt was lost", thread)
				}
			}
			return nil
		})
	}
}

// parkIsIdle checks that a rank that sleeps uses no processor. The bound is generous; a spinning Park takes all of it
// and more, each time. Once it may be the runtime, or a machine that counts as ours what it gave to others.
func parkIsIdle(f *fixture) {
	_, b := f.linked()
	const nap, bound = 200 * time.Millisecond, 60 * time.Millisecond
	asleep := func(thread bool) (used time.Duration, parks int) {
		before, _ := cpuTime()
		var over atomic.Bool
		timer := time.AfterFunc(nap, func() { over.Store(true); b.set.Interrupt() })
		for ; !over.Load(); parks++ {
			f.arm(b, transport.Any, thread)
			b.set.Park(thread)
			b.set.Disarm()
		}
		timer.Stop()
		after, _ := cpuTime()
		return after - before, parks
	}
	for _, thread := range []bool{true, false} {
		used, parks := asleep(thread)
		for try := 1; try < 20 && (used > bound || parks > 100); try++ {
			used, parks = asleep(thread)
		}
		if used > bound || parks > 100 {
			f.Errorf("thread %v: %d Parks in %v took %v of CPU time; at most %v and 100",
				thread, parks, nap, used, bound)
		}
	}
}

// presence checks that what a link says of a peer that polls, sleeps in a call, or computes becomes true sooner or
// later. It is a hint; so each is asked for until it is right.
func presence(f *fixture) {
	a, b := f.linked()
	p := a.link.Caps().Presence
	for i, c := range []struct {
		what         string
		polls, waits bool
		begin        func()
	}{
		{"polls", true, true, func() { b.poll() }},
		{"sleeps in a call", false, true, func() { f.arm(b, transport.Any, true) }},
		{"polls again", true, true, b.set.Disarm},
		{"computes", false, false, func() { f.arm(b, transport.Urgent, false) }},
	} {
		c.begin()
		for late := start(); p.Polls() != c.polls || p.Waits() != c.waits; a.poll() {
			if late.late() {
				f.Fatalf("step %d: the peer %s, and Polls is %v and Waits is %v", i, c.what, p.Polls(), p.Waits())
			}
		}
	}
}

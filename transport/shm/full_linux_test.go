package shm

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// fill sends until the link refuses.
func fill(t testing.TB, l *link, h wire.Header, payload []byte) (sent int) {
	t.Helper()
	for ; l.TrySend(&h, payload); sent++ {
		if sent > 1<<20 {
			t.Fatal("the link has no bound")
		}
	}
	return sent
}

// count is how many events of a kind have been polled.
func (e *end) count(event transport.Event) (n int) {
	for _, p := range e.in {
		if p.Event == event {
			n++
		}
	}
	return n
}

// A fragment is refused because FragMax has just shrunk: a shorter one may be tried at once, though the peer does
// nothing.
func TestRoomForShorterFragments(t *testing.T) {
	watchdog(t)
	for _, armed := range []bool{false, true} {
		a, b := open(t, Options{Rank: 0, Size: 2, Local: 100}), open(t, Options{Rank: 1, Size: 2, Local: 100})
		l := a.link(b)
		unix.Close(l.fd)
		l.fd = memfd(t, 0, unix.F_SEAL_GROW) // which cannot be made larger
		h, most := wire.Header{Kind: wire.Data}, l.Caps().FragMax
		if armed && !a.Arm(transport.Urgent) {
			t.Fatal("nothing has come, and Arm refuses")
		}
		if l.TrySend(&h, make([]byte, most)) {
			t.Fatalf("%d bytes have found room", most)
		}
		if armed && a.own.box.state.Load() != stIdle {
			t.Error("a rank that sleeps is not woken")
		}
		if !armed && a.Arm(transport.Any) {
			t.Error("there is word of room, and Arm does not see that")
		}
		if a.poll(); a.count(transport.Room) != 1 {
			t.Errorf("events %+v, want Room", a.in)
		}
		if short := l.Caps().FragMax; short >= most || !l.TrySend(&h, make([]byte, short)) {
			t.Errorf("no room for %d bytes, at first for %d", short, most)
		}
		l.fd = -1
	}
}

// A peer that goes while a link to it is full: its end is told, and no word of room after that.
func TestEndBehindFullLink(t *testing.T) {
	watchdog(t)
	for _, cut := range []bool{false, true} {
		a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
		l := a.link(b)
		h := wire.Header{Kind: wire.Eager}
		fill(t, l, h, nil)
		if cut {
			l.cut()
		} else {
			b.Close()
		}
		a.until("the end of the peer", func() bool { return len(a.downs()) > 0 })
		if cut {
			b.drain() // what has arrived before that
		}
		if a.drain(); a.in[len(a.in)-1].Event != transport.Down || a.count(transport.Down) != 1 {
			t.Errorf("cut %v: events %+v, want one Down at the end", cut, a.in)
		}
		for range 1000 {
			if !l.TrySend(&h, nil) {
				t.Fatalf("cut %v: the peer is gone, and its link refuses", cut)
			}
		}
		if len(a.refused) != 0 {
			t.Errorf("cut %v: each poll looks at %d links for room, and there is none", cut, len(a.refused))
		}
	}
}

// A peer that wants room for ever, and always looks asleep, costs its receiver no more than its messages do: others
// are heard as before, and no call blocks.
func TestWantsRoomForEver(t *testing.T) {
	watchdog(t)
	d, honest := open(t, Options{Rank: 0, Size: 3}), open(t, Options{Rank: 2, Size: 3})
	l := honest.link(d)
	seg, m := memory(t, smallRing), dial(t, d.Address())
	fds := append([]int{seg.fd}, inboxOfNone(t)...)
	box, err := mapPeer(fds[1], inboxSize, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(box)
	welcome, got, err := m.hello(1, helloOf(smallRing), fds...)
	if err != nil {
		t.Fatal(err)
	}
	r := linkTo(t, seg, welcome, got)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for state := uint32(0); ; state++ {
			select {
			case <-stop:
				return
			default:
				seg.p.Want()
				inboxOf(box).state.Store(state % (stUrgent + 1))
				r.TrySend(&wire.Header{Kind: wire.Eager}, nil)
				if state%64 == 0 {
					runtime.Gosched()
				}
			}
		}
	}()
	for until := time.Now().Add(200 * time.Millisecond); time.Now().Before(until); {
		if d.poll() == 0 && d.Arm(transport.Any) {
			d.Disarm()
		}
		d.in = d.in[:0]
	}
	close(stop)
	<-stopped
	d.until("the end of the flood", func() bool { d.in = nil; return d.poll() == 0 })
	talk(t, l, d)
}

// A receiver that is not allowed to open its sender's inbox, or has not come to it, cannot tell of room: the sender
// looks by itself, as long as it wants room, and until the receiver can.
func TestRoomOfStranger(t *testing.T) {
	watchdog(t)
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	l := direct(t, a.link(b))
	talk(t, l, b)
	met := func() bool { return l.letter.met.Load() != 0 }
	proc.Eventually(t, "rank 1 to meet rank 0", met)
	b.mu.Lock()
	r := b.byPeer[0]
	b.mu.Unlock()
	h, known := wire.Header{Kind: wire.Eager}, r.inbox.Load()
	for _, meets := range []bool{false, true} {
		r.inbox.Store(nil)
		l.letter.met.Store(0)
		for range 3 {
			fill(t, l, h, nil)
			for !a.Arm(transport.Any) { // it may be woken in vain
			}
			if b.drain(); meets {
				r.inbox.Store(known)
				l.letter.met.Store(1)
			}
			proc.Eventually(t, "rank 0 to be woken", func() bool { return a.own.box.state.Load() == stIdle })
			a.in, b.in = nil, nil
			if a.poll(); a.count(transport.Room) != 1 {
				t.Errorf("meets %v: events %+v, want Room", meets, a.in)
			}
			proc.Eventually(t, "rank 0 to look no more", func() bool { return !l.looking.Load() })
		}
	}
}

// A receiver that takes all that fills a link, and in the same poll stops polling its ring for another's sake, lets the
// sender have the room before it sleeps, or computes.
func TestRoomOfRingNoLongerPolled(t *testing.T) {
	watchdog(t)
	for _, level := range []transport.Level{transport.Any, transport.Urgent} {
		opt := Options{Size: 12, Local: 100}
		d := open(t, opt)
		var senders []*end
		var links []*link
		for range maxPolled + 1 {
			opt.Rank++
			senders = append(senders, open(t, opt))
			links = append(links, senders[len(senders)-1].link(d))
		}
		h := wire.Header{Kind: wire.Eager}
		d.until("the last ring", func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			r := d.byPeer[len(links)]
			return r != nil && r.inUse
		})
		for i, l := range links[:maxPolled] {
			send(t, l, h, nil, func() { d.poll() })
			d.until("a packet", func() bool { return len(d.in) > i })
		}
		full := fill(t, links[0], h, make([]byte, links[0].Caps().EagerMax))
		for _, l := range links[1:] {
			send(t, l, h, nil, func() { t.Fatal("an empty link is full") })
		}
		if d.in = nil; d.poll() != full+maxPolled || d.polled[0].peer == 1 {
			t.Fatalf("%d packets of %d, and the rings %d", len(d.in), full+maxPolled, len(d.polled))
		}
		if !d.Arm(level) {
			t.Fatal("all has been taken, and Arm refuses")
		}
		if senders[0].poll(); senders[0].count(transport.Room) != 1 {
			t.Errorf("level %v: the receiver has taken all %d packets that filled the link, and sleeps: no word of room",
				level, full)
		}
		d.Disarm()
	}
}

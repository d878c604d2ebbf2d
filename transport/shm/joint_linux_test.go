package shm

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

var _ transport.Joint = (*Device)(nil)

// rings reports whether a descriptor becomes readable within a wait.
func rings(t *testing.T, fd int, wait time.Duration) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(wait.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
}

// What is sent rings the bell that was armed and no other; Clear silences it.
func TestJoint(t *testing.T) {
	watchdog(t)
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	b.Join(func() { t.Error("a bell was enough") })
	l := a.link(b)
	const soon = 10 * time.Millisecond
	plain, urgent := wire.Header{Kind: wire.Eager}, wire.Header{Kind: wire.RTS, Flags: wire.Urgent}
	wake := wire.Header{Kind: wire.Cancel, Flags: wire.Wake | wire.Urgent}
	for _, c := range []struct {
		what       string
		arm        func() bool
		h          wire.Header
		free, held bool
	}{
		{"not armed", nil, urgent, false, false},
		{"armed for any", func() bool { return b.Arm(transport.Any, false) }, plain, true, false},
		{"armed for any, held", func() bool { return b.Arm(transport.Any, true) }, plain, false, true},
		{"armed for urgent, plain", func() bool { return b.Arm(transport.Urgent, false) }, plain, false, false},
		{"armed for urgent", func() bool { return b.Arm(transport.Urgent, false) }, urgent, true, false},
		{"wake, not armed", nil, wake, true, false},
		{"wake, held", func() bool { return b.Arm(transport.Any, true) }, wake, true, true},
		{"disarmed", func() bool { ok := b.Arm(transport.Any, true); b.Disarm(); return ok }, urgent, false, false},
	} {
		for round := range 3 { // with a ring that is cold, and one that is looked at
			if c.arm != nil && !c.arm() {
				t.Fatalf("%s: Arm says that something is there", c.what)
			}
			before := len(b.in)
			send(t, l, c.h, nil, func() {})
			for fd, want := range map[int]bool{b.Descriptor(): c.free, b.HeldDescriptor(): c.held} {
				wait := soon
				if want {
					wait = patience
				}
				if got := rings(t, fd, wait); got != want {
					t.Errorf("%s, round %d: descriptor %d (%d is the free one) readable: %v, want %v", c.what, round, fd, b.Descriptor(), got, want)
				}
			}
			b.until("the packet", func() bool { return len(b.in) > before })
			b.Disarm()
			b.Clear()
			b.ClearHeld()
			for _, fd := range []int{b.Descriptor(), b.HeldDescriptor()} {
				if rings(t, fd, 0) {
					t.Errorf("%s: descriptor %d is readable after Clear", c.what, fd)
				}
			}
		}
	}
}

// A rank that sleeps held, in either way, is here as far as its peers are concerned: it is woken by what is urgent.
func TestJointIsPresent(t *testing.T) {
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	b.Join(nil)
	l := a.link(b)
	armed := func(hold bool) {
		b.until("sleep", func() bool { return b.Arm(transport.Any, hold) })
	}
	armed(true)
	if !l.PeerWaits() || l.PeerPolls() {
		t.Errorf("armed with hold: waits %v, polls %v", l.PeerWaits(), l.PeerPolls())
	}
	b.Disarm()
	armed(false)
	if l.PeerWaits() || l.PeerPolls() {
		t.Errorf("armed without hold: waits %v, polls %v", l.PeerWaits(), l.PeerPolls())
	}
}

// The end of a peer rings too.
func TestJointHearsOfTheEnd(t *testing.T) {
	watchdog(t)
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	b.Join(nil)
	a.link(b)
	b.settled()
	for !b.Arm(transport.Urgent, false) {
		b.poll()
	}
	a.Close()
	if !rings(t, b.Descriptor(), patience) {
		t.Error("the peer has ended and the descriptor is not readable")
	}
	b.until("Down", func() bool { return len(b.downs()) == 1 })
}

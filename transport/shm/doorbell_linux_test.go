package shm

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

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

// A packet rings the doorbell that was armed and no other; Clear clears it.
func TestDoorbells(t *testing.T) {
	watchdog(t)
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	wake := b.Facts().Wake[0]
	l := a.link(b)
	const soon = 10 * time.Millisecond
	plain, urgent := wire.Header{Kind: wire.Eager}, wire.Header{Kind: wire.RTS, Flags: wire.Urgent}
	cancel := wire.Header{Kind: wire.Cancel, Flags: wire.Wake | wire.Urgent}
	for _, c := range []struct {
		what              string
		arm               func() bool
		h                 wire.Header
		goroutine, thread bool
	}{
		{"not armed", nil, urgent, false, false},
		{"armed for any", func() bool { return b.Arm(transport.Any) }, plain, true, false},
		{"armed for a thread", func() bool { return b.Arm(transport.Thread) }, plain, false, true},
		{"armed for urgent, plain", func() bool { return b.Arm(transport.Urgent) }, plain, false, false},
		{"armed for urgent", func() bool { return b.Arm(transport.Urgent) }, urgent, true, false},
		{"wake, not armed", nil, cancel, true, false},
		{"wake, armed for a thread", func() bool { return b.Arm(transport.Thread) }, cancel, true, true},
		{"disarmed", func() bool { ok := b.Arm(transport.Thread); b.Disarm(); return ok }, urgent, false, false},
	} {
		for round := range 3 { // with a ring that is armed, and one that is polled
			if c.arm != nil && !c.arm() {
				t.Fatalf("%s: Arm says that something is there", c.what)
			}
			before := len(b.in)
			send(t, l, c.h, nil, func() {})
			for fd, want := range map[int]bool{wake.FD: c.goroutine, wake.ThreadFD: c.thread} {
				wait := soon
				if want {
					wait = patience
				}
				if got := rings(t, fd, wait); got != want {
					t.Errorf("%s, round %d: descriptor %d (the goroutine's is %d) readable: %v, want %v",
						c.what, round, fd, wake.FD, got, want)
				}
			}
			b.until("the packet", func() bool { return len(b.in) > before })
			b.Disarm()
			wake.Clear(false)
			wake.Clear(true)
			for _, fd := range []int{wake.FD, wake.ThreadFD} {
				if rings(t, fd, 0) {
					t.Errorf("%s: descriptor %d is readable after Clear", c.what, fd)
				}
			}
		}
	}
}

// For its peers a rank whose thread sleeps, in either way, waits in the library: what is urgent wakes it.
func TestPresence(t *testing.T) {
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	p := a.link(b).Caps().Presence
	for _, c := range []struct {
		level transport.Level
		waits bool
	}{{transport.Thread, true}, {transport.Futex, true}, {transport.Any, false}, {transport.Urgent, false}} {
		b.until("sleep", func() bool { return b.Arm(c.level) })
		if p.Waits() != c.waits || p.Polls() {
			t.Errorf("armed with level %d: waits %v, polls %v", c.level, p.Waits(), p.Polls())
		}
		b.Disarm()
		if !p.Waits() || !p.Polls() {
			t.Errorf("disarmed: waits %v, polls %v", p.Waits(), p.Polls())
		}
	}
}

// The end of a peer rings the doorbell too.
func TestDoorbellOfTheEnd(t *testing.T) {
	watchdog(t)
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	a.link(b)
	b.drain()
	for !b.Arm(transport.Urgent) {
		b.poll()
	}
	a.Close()
	if !rings(t, b.Facts().Wake[0].FD, patience) {
		t.Error("the peer has ended and the descriptor is not readable")
	}
	b.until("Down", func() bool { return len(b.downs()) == 1 })
}

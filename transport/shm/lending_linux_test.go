package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport"
)

// Only what shows that another process has the member's number, or none, is the member's end: a lack of memory and
// what the kernel does not allow are errors of the call.
func TestReadsOfAMemberThatFail(t *testing.T) {
	right, other := [8]byte{1, 2, 3}, [8]byte{3, 2, 1}
	for _, c := range []struct {
		n    int
		err  error
		got  [8]byte
		want error // nil: none
		text string
	}{
		{24, nil, right, nil, ""},
		{23, nil, right, nil, "23"}, // an error of no class
		{24, nil, other, transport.ErrPeerGone, "ended"},
		{8, nil, other, transport.ErrPeerGone, "ended"},
		{0, unix.ESRCH, other, transport.ErrPeerGone, "ended"},
		{0, unix.EFAULT, other, transport.ErrPeerGone, "ended"},
		{4, nil, right, transport.ErrPeerGone, "ended"},
		{0, unix.ENOMEM, other, transport.ErrNoMemory, "cannot allocate"},
		{0, unix.EPERM, other, transport.ErrUnavailable, "Yama"},
		{0, unix.EACCES, other, transport.ErrUnavailable, "Yama"},
		{0, unix.ENOSYS, other, transport.ErrUnavailable, "Yama"},
	} {
		l := &lending{members: []probed{{pid: 1, at: 2, want: right}}}
		l.readTwo = func(_ int, first []byte, _ uint64, _ []byte, _ uint64) (int, error) {
			copy(first, c.got[:])
			return c.n, c.err
		}
		err := l.read(0, make([]byte, 16), transport.Loan{}, 0)
		what := fmt.Sprintf("%d bytes, %v, probe %v", c.n, c.err, c.got == right)
		for _, class := range []error{transport.ErrPeerGone, transport.ErrNoMemory, transport.ErrUnavailable} {
			if errors.Is(err, class) != (class == c.want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if (err == nil) != (c.want == nil && c.text == "") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A member is not lost while there are no descriptors or no memory to make a contact with it, and is if it does not
// allow one.
func TestContactWithAMember(t *testing.T) {
	watchdog(t)
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	card := b.reach().encode(nil)
	var tries atomic.Int32
	a.contacts.make = func(peer int, at reach) (*contact, error) {
		switch tries.Add(1) {
		case 1:
			return nil, fmt.Errorf("open: %w", unix.ENOMEM)
		case 2:
			return nil, unix.EMFILE
		}
		return newContact(peer, at)
	}
	met := make(chan *contact, 1)
	a.withMember(1, card, func(c *contact) { met <- c })
	if c := <-met; c.peer != 1 || tries.Load() != 3 {
		t.Errorf("contact with rank %d after %d tries", c.peer, tries.Load())
	}

	c, d := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	c.contacts.make = func(int, reach) (*contact, error) { return nil, unix.EACCES }
	c.withMember(1, d.reach().encode(nil), func(*contact) { t.Error("there is a contact") })
	for {
		var pkts [4]transport.Packet
		if n := c.Poll(pkts[:]); n > 0 {
			if p := &pkts[0]; p.Event != transport.Down || p.Peer != 1 || !errors.Is(p.Err, transport.ErrPeerGone) {
				t.Errorf("event %v of rank %d: %v", p.Event, p.Peer, p.Err)
			}
			return
		}
	}
}

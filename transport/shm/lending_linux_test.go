package shm

import (
	"errors"
	"fmt"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/board"
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
		l := &lending{members: []probed{{pid: 1, at: 2, want: right}}, now: func() time.Duration { return time.Second }}
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

// The probe is left out of short reads for a millisecond after it was seen. What was read without it counts only if
// that time was not over when the read was, and all was there; else the probe says whose memory it is.
func TestReadsWithoutTheProbe(t *testing.T) {
	const start, short, long = time.Second, 100, probeFrom
	for _, c := range []struct {
		name         string
		since, takes time.Duration // from the last probe to the read, and its time
		length       int
		got          int // how many bytes a read without the probe gets
		gone         bool
		plain, whole int // reads without and with the probe
	}{
		{"at once", 0, 0, short, short, true, 1, 0}, // the number cannot be another one's
		{"in time", reuse - 2, 1, short, short, false, 1, 0},
		{"too long a read", reuse - 2, 2, short, short, false, 1, 1},
		{"too long a read of another process", reuse - 2, 2, short, short, true, 1, 1},
		{"too late", reuse, 0, short, short, false, 0, 1},
		{"too late, and another process", reuse, 0, short, short, true, 0, 1},
		{"not all is there", 1, 0, short, short - 1, false, 1, 1},
		{"not all is there of another process", 1, 0, short, short - 1, true, 1, 1},
		{"long", 1, 0, long, long, false, 0, 1},
		{"long, of another process", 1, 0, long, long, true, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := start
			l := &lending{members: []probed{{pid: 1, at: 2, want: [8]byte{1}}}}
			l.now = func() time.Duration { return clock }
			var plain, whole int
			gone := false
			l.readTwo = func(_ int, first []byte, _ uint64, second []byte, _ uint64) (int, error) {
				if clock += c.takes; len(first) == 0 {
					plain++
					return c.got, nil
				}
				if whole++; !gone {
					first[0] = 1
				} else {
					first[0] = 2
				}
				return len(first) + len(second), nil
			}
			buf := make([]byte, c.length)
			if err := l.readProbed(&l.members[0], nil, 0); err != nil || whole != 1 {
				t.Fatalf("the first read: %v, %d with the probe", err, whole)
			}
			plain, whole, gone = 0, 0, c.gone
			clock = start + c.since
			err := l.read(0, buf, transport.Loan{}, 0)
			if lost := errors.Is(err, transport.ErrPeerGone); lost != (c.gone && c.whole > 0) || err != nil && !lost {
				t.Errorf("%v", err)
			}
			if plain != c.plain || whole != c.whole {
				t.Errorf("%d reads without the probe, %d with it; want %d, %d", plain, whole, c.plain, c.whole)
			}
		})
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

// Memory comes back when no member writes there any more: one that has begun is waited for, until it says that it is
// over or its process has ended; one that begins after the failure does not write.
func TestWriterIsWaitedFor(t *testing.T) {
	watchdog(t)
	const me, writer = 0, 1
	for _, dies := range []bool{false, true} {
		process := exec.Command("sleep", "100")
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		body := board.Heap(board.Size(2, 1, 0))
		views := [2]*transport.Board{}
		for i := range views {
			views[i] = new(board.Set).New(body, []int32{0, 1}, i, 1, func(int) {}, func(int) {}, func() {}, func() {})
		}
		l := &lending{me: me, members: []probed{{}, {pid: process.Process.Pid}}, body: body}
		if !board.BeginWrite(body, writer, me) {
			t.Fatal("it may not write, and no member has failed")
		}
		l.giveBack(transport.Loan{}) // no member has failed: it does not look
		views[me].Fail(me, nil)
		back := make(chan struct{})
		go func() {
			l.giveBack(transport.Loan{})
			close(back)
		}()
		select {
		case <-back:
			t.Error("memory is back while a member writes there")
		case <-time.After(5 * time.Millisecond):
		}
		if dies {
			process.Process.Kill() // as in the middle of a copy
		} else {
			board.EndWrite(body, writer)
		}
		<-back
		if board.EndWrite(body, writer); board.BeginWrite(body, writer, me) {
			t.Error("a member writes after another one has failed")
		}
		l.giveBack(transport.Loan{})
		process.Process.Kill()
		process.Wait()
	}
}

// What is at the number of a member that has ended is not written to.
func TestWritesToAMemberThatHasEnded(t *testing.T) {
	mine := []byte("what another process has")
	kept := string(mine)
	body := board.Heap(board.Size(2, 1, 0))
	l := &lending{members: []probed{{}, {pid: unix.Getpid(), at: 1, want: [8]byte{1}}}, body: body, readTwo: readTwo,
		now: func() time.Duration { return time.Second }}
	err := l.write(1, make([]byte, len(mine)), transport.Loan{Addr: addressOf(mine)}, 0)
	if !errors.Is(err, transport.ErrPeerGone) || string(mine) != kept {
		t.Errorf("%v, %q is there", err, mine)
	}
}

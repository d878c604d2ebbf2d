package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// another is a user of this host who is not the tests'.
const another = 65534

func init() {
	roles["impostor"] = listenAsAnother
	roles["crowd"] = holdConnections
}

// listenAsAnother takes a name as another user, and tells what it gets from the first process that connects.
func listenAsAnother() error {
	if err := errors.Join(syscall.Setgid(another), syscall.Setuid(another)); err != nil {
		return err
	}
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: os.Getenv("NAME"), Net: "unixpacket"})
	if err != nil {
		return err
	}
	proc.Send([]byte("listening"))
	c, err := ln.AcceptUnix()
	if err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, fds, err := receiveFDs(c, b, 4)
	proc.Send(fmt.Appendf(nil, "%d bytes, %d descriptors, %v", n, len(fds), err))
	return nil
}

// holdConnections dials many times as a user, and says nothing.
func holdConnections() error {
	user, err := strconv.Atoi(os.Getenv("USER_ID"))
	if err = errors.Join(err, syscall.Setgid(user), syscall.Setuid(user)); err != nil {
		return err
	}
	if _, err := proc.Recv(); err != nil {
		return err
	}
	for range 1500 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: os.Getenv("NAME")})
		}
		if err != nil {
			return err
		}
	}
	proc.Send([]byte("connected"))
	proc.Recv() // until the test has ended
	return nil
}

// asRoot: roles can be other users only then.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
}

// A process of another user that has taken the name of a rank that has ended learns nothing, and the rank that meets it
// says so.
func TestImpostor(t *testing.T) {
	asRoot(t)
	watchdog(t)
	ended, honest := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	address := ended.Address()
	ended.Close()
	p := proc.Start(t, "impostor", "NAME="+string(address[addressMin:]))
	p.Recv()
	_, err := honest.Connect(context.Background(), 0, address)
	if auth.Why(err) != auth.OtherUser || !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("Connect to a process of another user: %v", err)
	}
	if got := string(p.Recv()); got != "0 bytes, 0 descriptors, EOF" {
		t.Errorf("the process of another user has got %s", got)
	}
}

// However many connections a process opens, a rank of the job can connect: those of another user are closed at once, of
// this user's some wait for the time limit of a handshake.
func TestManyIdleConnections(t *testing.T) {
	asRoot(t)
	watchdog(t)
	for user, most := range map[int]int{another: 0, os.Getuid(): pendingMin + 2} {
		d, honest := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2, bySocket: true})
		p := proc.Start(t, "crowd", "NAME="+string(d.Address()[addressMin:]), "USER_ID="+strconv.Itoa(user))
		before := leak.Files()
		p.Send(nil) // begin
		p.Recv()
		proc.Eventually(t, fmt.Sprintf("the end of all but %d of user %d's connections", most, user), func() bool {
			return leak.Files() <= before+most
		})
		talk(t, honest.link(d), d)
		p.Kill()
	}
}

// A peer whose Connect fails after it has been welcomed lives: it is not reported, and connects again.
func TestConnectThatFailsLate(t *testing.T) {
	watchdog(t)
	files, mappings := held(t)
	t.Run("all", func(t *testing.T) {
		d, peer := open(t, Options{Rank: 0, Size: 3}), open(t, Options{Rank: 2, Size: 3})
		seg := memory(t, smallRing)
		for range 3 {
			m := dial(t, d.Address())
			_, fds, err := m.welcomed(2, helloOf(smallRing), append([]int{seg.fd}, inboxOfNone(t)...)...)
			if err != nil {
				t.Fatal(err)
			}
			closeFDs(fds)
			m.p.Close()
			proc.Eventually(t, "the end of the attempt", func() bool {
				d.mu.Lock()
				defer d.mu.Unlock()
				return d.byPeer[2] == nil
			})
		}
		d.drain()
		if len(d.in) != 0 {
			t.Errorf("rank 2 lives, and rank 0 has polled %+v", d.in)
		}
		talk(t, peer.link(d), d)
	})
	nothingLeft(t, files, mappings)
}

// A sender that marks its ring before the receiver has taken note of the link is heard.
func TestMarkBeforeUse(t *testing.T) {
	watchdog(t)
	d := open(t, Options{Rank: 0, Size: 2})
	seg := memory(t, smallRing)
	m := dial(t, d.Address())
	b, fds, err := m.welcomed(1, helloOf(smallRing), append([]int{seg.fd}, inboxOfNone(t)...)...)
	if err != nil {
		t.Fatal(err)
	}
	l := linkTo(t, seg, b, fds)
	l.TrySend(&wire.Header{Kind: wire.Eager}, []byte("early"))
	d.drain()
	m.say([]byte{ready})
	d.until("the packet", func() bool { return len(d.in) == 1 })
	if string(d.in[0].Payload) != "early" {
		t.Errorf("%+v", d.in[0])
	}
}

// The end of a peer is known by another connection before its link is in use: it is reported behind the packets of that
// link, or without it when that does not come into use.
func TestEndBeforeUse(t *testing.T) {
	watchdog(t)
	for _, inUse := range []bool{true, false} {
		d := open(t, Options{Rank: 0, Size: 2})
		seg := memory(t, smallRing)
		m := dial(t, d.Address())
		_, fds, err := m.welcomed(1, helloOf(smallRing), append([]int{seg.fd}, inboxOfNone(t)...)...)
		if err != nil {
			t.Fatal(err)
		}
		closeFDs(fds)
		s := seg.p.Slot()
		seg.p.Publish(s, uint32(wire.Eager))
		d.addNotice(1, goneError(1, nil))
		d.drain()
		if len(d.in) != 0 {
			t.Fatalf("its link may come into use, and has come already: %+v", d.in)
		}
		want := []transport.Event{transport.Down}
		if inUse {
			m.say([]byte{ready})
			want = []transport.Event{transport.Arrived, transport.Down}
		}
		m.p.Close()
		d.until("its end", func() bool { return len(d.downs()) > 0 })
		d.drain()
		var got []transport.Event
		for _, p := range d.in {
			got = append(got, p.Event)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the link is in use: %v. Events %v, want %v", inUse, got, want)
		}
	}
}

// A peer that makes its doorbell one that would block holds up no sender.
func TestDoorbellThatWouldBlock(t *testing.T) {
	watchdog(t)
	box := memfd(t, inboxSize, unix.F_SEAL_SHRINK)
	rung, _ := doorbell(t)
	hold := make(chan struct{})
	address := liar(t, func(s *auth.Session, p *packetConn) {
		p.out = []int{box, rung, rung}
		s.Answer(make([]byte, welcomeSize))
		<-hold
	})
	defer close(hold)
	d := open(t, Options{Rank: 0, Size: 2})
	l, err := d.Connect(context.Background(), 1, address)
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(rung, true)
	for b := make([]byte, 1); err == nil; { // it is full
		_, err = unix.Write(rung, b)
	}
	unix.SetNonblock(rung, false) // for all who have it
	if !l.TrySend(&wire.Header{Kind: wire.Cancel, Flags: wire.Wake | wire.Urgent}, nil) {
		t.Error("the ring is empty, and takes nothing")
	}
}

// The number of a process that has ended may be another one's: nothing is read or written by it, neither when the end
// of the connection is known nor before.
func TestNumberOfTheDead(t *testing.T) {
	watchdog(t)
	d := open(t, Options{Rank: 0, Size: 2})
	o := proc.Start(t, "stream")
	tl, err := d.Connect(context.Background(), 1, o.Recv())
	if err != nil {
		t.Fatal(err)
	}
	l := tl.(*link)
	if l.caps.RMA == nil {
		t.Fatalf("the memory of a child cannot be read here: %s", l.caps.WhyNoRMA)
	}
	if l.gone() {
		t.Error("a process that lives is gone")
	}
	o.Kill()
	d.until("its end", func() bool { return len(d.downs()) > 0 })
	time.Sleep(2 * reuse)
	l.pid = os.Getpid() // the kernel has given its number away
	mem := []byte("innocent")
	dst := make([]byte, len(mem))
	for _, known := range []bool{true, false} {
		l.dead.Store(known)
		if l.pidFD < 0 && !known {
			t.Log("this kernel has no pidfd")
			break
		}
		if _, err := l.get(transport.HostMem(dst), addressOf(mem), 0, 0); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("its end is known: %v. Another process's memory is read: %v", known, err)
		}
		if l.getSome([]transport.Read{{Dst: transport.HostMem(dst), Addr: addressOf(mem)}}) != 0 {
			t.Errorf("its end is known: %v. Another process's memory is read, among others", known)
		}
		_, err := l.put(transport.HostMem([]byte("written.")), addressOf(mem), 0, 0)
		if !errors.Is(err, transport.ErrPeerGone) || !bytes.Equal(mem, []byte("innocent")) {
			t.Errorf("its end is known: %v. Another process's memory is written: %v, %q", known, err, mem)
		}
	}
}

// A peer whose process ends during the handshake is gone, and not on another host.
func TestEndDuringHandshake(t *testing.T) {
	watchdog(t)
	d := open(t, Options{Rank: 0, Size: 2})
	name := fmt.Sprintf("@gorun-test-%d", os.Getpid())
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.AcceptUnix()
		if ln.Close(); err == nil {
			c.Close()
		}
	}()
	_, err = d.Connect(context.Background(), 1, socketAddress(name))
	if !errors.Is(err, transport.ErrPeerGone) || errors.Is(err, transport.ErrUnavailable) {
		t.Error(err)
	}
	<-done
}

// A ring comes into use while a poll is under way that has not come to its mark yet: the mark is not lost.
func TestUseWhilePolling(t *testing.T) {
	watchdog(t)
	d := open(t, Options{Rank: 0, Size: 2})
	d.setRings(make([]*inRing, 64)) // the next one's mark is in the second word
	seg := memory(t, smallRing)
	mem, err := mapPeer(seg.fd, smallRing.Size(), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	asleep := &sharedInbox{peerInbox: peerInbox{noDoorbells, nil, new(inbox)}, peer: 1, users: 2} // which is not closed
	r, err := d.addRing(mem, smallRing, 1, nil, sender{sharedInbox: asleep})
	if err != nil {
		t.Fatal(err)
	}
	l := &link{outSegment: seg, box: d.own.box, doorbells: d.own.doorbells, number: r.number}
	l.TrySend(&wire.Header{Kind: wire.Eager}, nil)
	d.own.box.mark(0) // a poll looks for notices first, and needs mu
	d.mu.Lock()
	used, polled := make(chan struct{}), make(chan struct{})
	go func() { defer close(used); d.useRing(r) }()
	time.Sleep(10 * time.Millisecond)
	go func() { defer close(polled); d.poll() }()
	time.Sleep(10 * time.Millisecond)
	d.mu.Unlock() // useRing has it first
	<-used
	<-polled
	d.until("the packet", func() bool { return len(d.in) == 1 })
}

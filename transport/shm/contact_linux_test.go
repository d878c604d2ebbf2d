package shm

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// direct fails unless l was made without the peer's help.
func direct(t *testing.T, l transport.Link) *link {
	t.Helper()
	if l.(*link).contact == nil {
		t.Fatal("the peer's descriptors can be opened, and the link was made over its socket")
	}
	return l.(*link)
}

// A rank that is stopped, or computes, need not do anything for a link to it.
func TestConnectToStopped(t *testing.T) {
	watchdog(t)
	d := open(t, Options{Rank: 0, Size: 2})
	p := proc.Start(t, "listen")
	address := p.Recv()
	p.Signal(syscall.SIGSTOP)
	l, err := d.Connect(context.Background(), 1, address)
	if err != nil {
		t.Fatal(err)
	}
	direct(t, l)
	p.Kill()
	d.until("its end", func() bool { return len(d.downs()) > 0 })
}

// The end of a rank that has connected and sent nothing is told, also if it has ended before its peer looks; and what a
// rank has sent before its end comes first.
func TestEndOfClaimant(t *testing.T) {
	watchdog(t)
	for packets := range 3 {
		for _, alsoBack := range []bool{false, true} {
			a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
			l := direct(t, a.link(b))
			if alsoBack { // then the end is known without a look at the ring
				b.link(a)
			}
			for range packets {
				l.TrySend(&wire.Header{Kind: wire.Eager}, nil)
			}
			a.Close()
			b.until("the end", func() bool { return len(b.downs()) > 0 })
			b.drain()
			if len(b.in) != packets+1 || b.in[packets].Event != transport.Down {
				t.Errorf("%d packets, then the end: polled %+v", packets, b.in)
			}
		}
	}
}

// A rank claims a ring of one that has ended the connection, or the device: it gets none, or one by which it reaches no
// memory.
func TestClaimAfterEnd(t *testing.T) {
	watchdog(t)
	for _, what := range []string{"cut", "closed"} {
		for range 200 {
			a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
			ba := direct(t, b.link(a)) // so a has met b
			a.until("contact", func() bool {
				a.contacts.mu.Lock()
				defer a.contacts.mu.Unlock()
				return len(a.contacts.all) > 0
			})
			var wg sync.WaitGroup
			wg.Go(func() {
				if what == "cut" {
					ba.cut()
					b.until("the end", func() bool { return len(b.downs()) > 0 })
				} else {
					b.Close()
				}
			})
			l, err := a.Connect(context.Background(), 1, b.Address())
			wg.Wait() // from here on nothing of b's memory may be touched
			if err == nil && l.(*link).contact != nil && l.(*link).p.BeginAccess() {
				l.(*link).p.EndAccess()
				t.Fatalf("%s: a link that came late reaches the memory of the other rank", what)
			}
			a.Close()
			b.Close()
		}
	}
}

// What a peer writes into its claim and its letter is hostile.
func TestNonsenseInClaims(t *testing.T) {
	watchdog(t)
	files, mappings := held(t)
	t.Run("all", func(t *testing.T) {
		d, honest := open(t, Options{Rank: 0, Size: 8}), open(t, Options{Rank: 1, Size: 8})
		l := direct(t, honest.link(d))
		talk(t, l, d)
		claims := &d.own.box.claims
		free := func() int {
			for k := range d.claims() {
				if claims[k].Load() == 0 {
					return k
				}
			}
			t.Fatal("no free claim")
			return 0
		}
		for _, claim := range []uint32{1, 2, 9, claimant, claimant - 1, 4 | barred, 4 | making, 1<<32 - 1} {
			k := free() // of this rank itself, one that has a ring, and ranks that are none
			claims[k].Store(claim)
			d.own.box.mark(uint32(k + 1))
			d.drain()
			if len(d.in) > 1 {
				t.Errorf("claim %#x: polled %+v", claim, d.in)
			}
			claims[k].Store(0)
		}
		for rank, change := range map[int]func(*letter){
			2: func(w *letter) { w.reach.pid = 0 },
			3: func(w *letter) { w.reach.pid = 1 << 30 },
			4: func(w *letter) { w.reach = d.reach() }, // of another rank
			5: func(w *letter) { w.reach = honest.reach(); w.len = 1 << 31 },
			6: func(w *letter) { w.reach.pid, w.reach.fd = uint32(os.Getpid()), 0 },
		} {
			k := free()
			w := letterOf(d.own.rings[k*d.geo.Size():][:d.geo.Size()], d.geo)
			change(w)
			d.in = nil
			claims[k].Store(uint32(rank + 1))
			d.own.box.mark(uint32(k + 1))
			d.until("the end of the liar", func() bool { return len(d.downs()) > 0 })
			if len(d.in) != 1 || int(d.in[0].Peer) != rank || d.cardOf(rank) != nil {
				t.Errorf("rank %d: %+v, card %q", rank, d.in, d.cardOf(rank))
			}
		}
		talk(t, l, d)
	})
	nothingLeft(t, files, mappings)
}

// What stands at a rank's address may be of another process by now, or nonsense: then nothing of it is used, and the
// socket decides.
func TestLyingInbox(t *testing.T) {
	watchdog(t)
	files, mappings := held(t)
	t.Run("all", func(t *testing.T) {
		for what, change := range map[string]func(*owner){
			"another token":        func(o *owner) { o.token[3]++ },
			"another rank":         func(o *owner) { o.rank = 0 },
			"no geometry":          func(o *owner) { o.geo = [3]uint32{} },
			"rings beyond the end": func(o *owner) { o.rings = maxClaims },
			"too many rings":       func(o *owner) { o.rings = 1 << 30 },
			"a doorbell nowhere":   func(o *owner) { o.bells[0].fd = 1 << 20 },
			"a doorbell beyond":    func(o *owner) { o.bells[0].fd = 1<<64 - 1 },
			"another doorbell":     func(o *owner) { o.bells[1].inode++ },
			"a doorbell of memory": nil,
			"closed":               func(o *owner) { o.closed.Store(1) },
		} {
			d, peer := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
			if change == nil {
				change = func(o *owner) { o.bells[1].fd = uint64(peer.own.fd) }
			}
			change(&peer.own.box.owner)
			l, err := d.Connect(context.Background(), 1, peer.Address())
			if err != nil || l.(*link).contact != nil {
				t.Errorf("%s: %v, directly: %v", what, err, err == nil)
				continue
			}
			talk(t, l.(*link), peer)
		}
	})
	nothingLeft(t, files, mappings)
}

// Nothing is opened of a process that has got the number of a rank, unless it is an inbox.
func TestNumberOfAnother(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if got, err := openMemory("inbox", os.Getpid(), fd); !errors.Is(err, errNotThere) {
		t.Errorf("descriptor %d, %v", got, err)
	}
	if got, err := openBell(os.Getpid(), &bell{fd: uint64(fd)}); err == nil {
		t.Errorf("descriptor %d is taken for a doorbell", got)
	}
}

// Another user's process can open nothing of a rank.
func TestOtherUserOpensNothing(t *testing.T) {
	asRoot(t)
	d := open(t, Options{Rank: 0, Size: 2})
	p := proc.Start(t, "opener", "PID="+strconv.Itoa(os.Getpid()), "FD="+strconv.Itoa(d.own.fd),
		"BELL="+strconv.Itoa(d.own.offered.goroutineFD))
	if got := string(p.Recv()); got != "permission denied, shm: a doorbell: permission denied" {
		t.Error(got)
	}
}

func init() {
	roles["opener"] = func() error {
		if err := errors.Join(syscall.Setgid(another), syscall.Setuid(another)); err != nil {
			return err
		}
		pid, _ := strconv.Atoi(os.Getenv("PID"))
		fd, _ := strconv.Atoi(os.Getenv("FD"))
		bell, _ := strconv.Atoi(os.Getenv("BELL"))
		_, err1 := openMemory("inbox", pid, fd)
		_, err2 := openPipe(strconv.Itoa(pid), bell)
		proc.Send([]byte(err1.Error() + ", " + err2.Error()))
		return nil
	}
}

// A rank claims a ring, and then there is no room for it, or the peer has ended: the first is an error that says so, and
// a later attempt takes the same ring; of the second the end is told. The peer notices nothing of a ring in the making.
func TestClaimThatFails(t *testing.T) {
	watchdog(t)
	files, mappings := held(t)
	t.Run("no room", func(t *testing.T) {
		d, peer := open(t, Options{Rank: 0, Size: 3}), open(t, Options{Rank: 1, Size: 3})
		_, at := decodeAddress(peer.Address())
		c, err := d.contacts.meet(1, at)
		if err != nil {
			t.Fatal(err)
		}
		fd := c.fd
		c.fd = memfd(t, 0, unix.F_SEAL_GROW) // which cannot be made larger
		var room *NoRoomError
		if _, err := d.Connect(context.Background(), 1, peer.Address()); !errors.As(err, &room) {
			t.Errorf("without room for the ring: %v", err)
		}
		if d.facts.ConnectNow(1, peer.Address()) != nil {
			t.Error("without room for the ring there is a link")
		}
		k := peer.own.box.claimed(0, peer.claims())
		if k < 0 || peer.own.box.claims[k].Load()&making == 0 {
			t.Errorf("ring %d is claimed, %#x", k, peer.own.box.claims[max(k, 0)].Load())
		}
		peer.drain()
		if len(peer.in) != 0 {
			t.Errorf("the peer has polled %+v", peer.in)
		}
		c.fd = fd
		l := direct(t, d.facts.ConnectNow(1, peer.Address()))
		if int(l.number) != k+1 {
			t.Errorf("ring %d, after an attempt with ring %d", l.number-1, k)
		}
		talk(t, l, peer)
	})
	t.Run("peer ends", func(t *testing.T) {
		d, p := open(t, Options{Rank: 0, Size: 2}), proc.Start(t, "listen")
		address := p.Recv()
		_, at := decodeAddress(address)
		c, err := d.contacts.meet(1, at)
		if err != nil {
			t.Fatal(err)
		}
		k, ok := c.box.claim(0, c.rings)
		p.Kill()
		if !ok {
			t.Fatal("there is no ring to be claimed")
		}
		if l := d.facts.ConnectNow(1, address); l != nil && int(direct(t, l).number) != k+1 {
			t.Errorf("ring %d, after an attempt with ring %d", l.(*link).number-1, k)
		}
		d.until("its end", func() bool { return len(d.downs()) > 0 })
	})
	nothingLeft(t, files, mappings)
}

package shm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/auth/authtest"
	"github.com/gorun-mpi/mpi/internal/ring"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A member of the job whose hello cannot be right is hung up on, and the peers do not notice.
func TestWrongHello(t *testing.T) {
	watchdog(t)
	files, mappings := held(t)
	t.Run("all", func(t *testing.T) {
		d, honest := open(t, Options{Rank: 0, Size: 4}), open(t, Options{Rank: 1, Size: 4})
		l := honest.link(d)
		good := helloOf(smallRing)
		seg := memory(t, smallRing)
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pipe[0])
		defer unix.Close(pipe[1])
		size := int64(smallRing.Size())
		all := append([]int{seg.fd}, inboxOfNone(t)...)
		with := func(i, fd int) []int {
			fds := slices.Clone(all)
			fds[i] = fd
			return fds
		}
		huge := ring.Geometry{Slots: 1 << 16, Small: 1 << 26, Bulk: 1 << 28}
		for _, c := range []struct {
			what  string
			rank  int
			hello []byte
			fds   []int
		}{
			{"nothing", 2, nil, all},
			{"too short", 2, good[:helloSize-1], all},
			{"too long a card", 2, append(bytes.Clone(good), make([]byte, maxCard+1)...), all},
			{"no descriptor", 2, good, nil},
			{"no inbox", 2, good, all[:1]},
			{"one descriptor too many", 2, good, append(slices.Clone(all), seg.fd)},
			{"many descriptors", 2, good, slices.Repeat([]int{seg.fd}, 100)},
			{"a pipe for memory", 2, good, with(0, pipe[0])},
			{"not sealed", 2, good, with(0, memfd(t, size, 0))},
			{"sealed against growing only", 2, good, with(0, memfd(t, size, unix.F_SEAL_GROW))},
			{"too small", 2, good, with(0, memfd(t, size-1, unix.F_SEAL_SHRINK))},
			{"empty", 2, good, with(0, memfd(t, 0, unix.F_SEAL_SHRINK))},
			{"a pipe for an inbox", 2, good, with(1, pipe[1])},
			{"an inbox that can shrink", 2, good, with(1, memfd(t, inboxSize, 0))},
			{"an inbox that is too small", 2, good, with(1, memfd(t, inboxSize-1, unix.F_SEAL_SHRINK))},
			{"a doorbell that is memory", 2, good, with(2, seg.fd)},
			{"a second doorbell that is memory", 2, good, with(3, seg.fd)},
			{"no slots", 2, helloOf(ring.Geometry{Small: 4096}), all},
			{"odd slots", 2, helloOf(ring.Geometry{Slots: 65, Small: 4096}), all},
			{"more ring than memory", 2, helloOf(huge), all},
			{"absurd ring", 2, helloOf(ring.Geometry{Slots: 1 << 31, Small: 1 << 31, Bulk: 1 << 31}), all},
			{"a rank that is here already", 1, good, all},
		} {
			m := dial(t, d.Address())
			if welcome, _, err := m.hello(c.rank, c.hello, c.fds...); err == nil {
				t.Errorf("%s: it was welcomed with %d bytes", c.what, len(welcome))
			} else if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: it was not hung up on: %v", c.what, err)
			}
			m.p.Close()
		}
		d.drain()
		if len(d.in) != 0 {
			t.Errorf("the device has polled packets: %+v", d.in)
		}
		talk(t, l, d)
		if _, fds, err := dial(t, d.Address()).hello(2, good, all...); err != nil {
			t.Errorf("rank 2 itself: %v", err)
		} else {
			closeFDs(fds)
		}
	})
	nothingLeft(t, files, mappings)
}

// The device authenticates by package auth.
func TestIntruders(t *testing.T) {
	watchdog(t)
	files, mappings := held(t)
	t.Run("all", func(t *testing.T) {
		const size = 64
		d := open(t, Options{Rank: 0, Size: size, handshakeLimit: time.Second})
		next := 1
		authtest.Run(t, authtest.Listener{
			Dial: func() (net.Conn, error) {
				name := string(d.Address()[addressMin:])
				c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
				return &packetConn{UnixConn: c}, err
			},
			Member:  func() *auth.Handshaker { return handshaker(1, size) },
			Refused: d.Facts().Refused,
			Works: func() error {
				next++
				peer, err := newDevice(Options{Rank: next, Size: size, bySocket: true})
				if err != nil {
					return err
				}
				defer peer.Close()
				_, err = peer.Connect(context.Background(), 0, d.Address())
				return err
			},
		})
		// Descriptors that come before the proof, with rubbish or with nothing, are closed; so are those that are too
		// many.
		for _, fds := range [][]int{{0}, {0, 1}, {0, 1, 2, 0}, slices.Repeat([]int{0}, 100)} {
			for _, say := range [][]byte{nil, []byte("gorun"), make([]byte, 60_000)} {
				before := d.Facts().Refused()
				m := dial(t, d.Address())
				m.say(say, fds...)
				m.p.CloseWrite()
				proc.Eventually(t, "a refusal", func() bool { return d.Facts().Refused() > before })
			}
		}
	})
	nothingLeft(t, files, mappings)
}

// rogue is a peer that was welcomed and misbehaves: the test has its ring.
func rogue(t *testing.T, d *end, rank int) (*member, *outSegment, *link) {
	t.Helper()
	seg := memory(t, smallRing)
	m := dial(t, d.Address())
	b, fds, err := m.hello(rank, helloOf(smallRing), append([]int{seg.fd}, inboxOfNone(t)...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m, seg, linkTo(t, seg, b, fds)
}

// linkTo is the link that a welcome makes of a segment.
func linkTo(t *testing.T, seg *outSegment, welcome []byte, fds []int) *link {
	t.Helper()
	box, err := mapPeer(fds[0], inboxSize, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(box); closeFDs(fds) })
	return &link{outSegment: seg, box: inboxOf(box), d: &Device{own: ownInbox{box: new(inbox)}},
		doorbells: doorbells{fds[1], fds[2]}, number: binary.LittleEndian.Uint32(welcome)}
}

// A peer that writes nonsense into its ring is reported gone, once, and what it wrote before is delivered.
func TestNonsenseInRing(t *testing.T) {
	watchdog(t)
	meta := func(kind wire.Kind, n, where int) uint32 { return uint32(kind) | uint32(n)<<16 | uint32(where)<<24 }
	at := func(off, n uint32) uint64 { return uint64(off) | uint64(n)<<32 }
	for _, c := range []struct {
		what string
		meta uint32
		word map[int]uint64
	}{
		{"kind 0", meta(0, 0, inSlot), nil},
		{"kind 200", meta(200, 0, inSlot), nil},
		{"kind 200 in an area", meta(200, 0, inSmall), nil},
		{"negative tag", meta(wire.Eager, 0, inSlot), map[int]uint64{0: 1 << 63}},
		{"negative tag in an area", meta(wire.RTS, 0, inSmall), map[int]uint64{0: 1 << 63}},
		{"short, too long for a slot", meta(wire.Eager, inlineShort+1, inSlot), nil},
		{"long, too long for a slot", meta(wire.RTS, inlineLong+1, inSlot), nil},
		{"no such area", meta(wire.Eager, 0, 3), nil},
		{"area 255", meta(wire.Data, 0, 255), nil},
		{"beyond the small area", meta(wire.Eager, 0, inSmall), map[int]uint64{shortAt: at(16<<10, 1)}},
		{"across the end of the small area", meta(wire.Eager, 0, inSmall), map[int]uint64{shortAt: at(16<<10-10, 11)}},
		{"offset and length that wrap around", meta(wire.Eager, 0, inSmall),
			map[int]uint64{shortAt: at(1<<32-1, 1<<32-1)}},
		{"beyond the bulk area", meta(wire.Data, 0, inBulk), map[int]uint64{longAt: at(64<<10-1, 2)}},
	} {
		t.Run(c.what, func(t *testing.T) {
			d, honest := open(t, Options{Rank: 0, Size: 3}), open(t, Options{Rank: 2, Size: 3})
			l := honest.link(d)
			m, seg, r := rogue(t, d, 1)
			if !r.TrySend(&wire.Header{Kind: wire.Eager, Tag: 5}, []byte("before")) {
				t.Fatal("no room")
			}
			slot := seg.p.Slot()
			for i, w := range c.word {
				slot.W[i] = w
			}
			seg.p.Publish(slot, c.meta)
			r.TrySend(&wire.Header{Kind: wire.Eager, Tag: 6}, []byte("after"))
			r.signal(true)
			d.until("the end of the rogue", func() bool { return len(d.downs()) > 0 })
			r.TrySend(&wire.Header{Kind: wire.Eager, Tag: 7}, []byte("after"))
			r.signal(true)
			d.drain()
			m.p.Close() // the end of its process is not reported again
			d.drain()
			if len(d.in) != 2 || string(d.in[0].Payload) != "before" ||
				d.in[1].Event != transport.Down || d.in[1].Peer != 1 {
				t.Errorf("%+v", d.in)
			}
			talk(t, l, d)
		})
	}
}

// Whatever is in a ring, a poll reports a packet of a valid kind whose payload can be read, or the end of the peer.
func TestRandomRing(t *testing.T) {
	watchdog(t)
	d := open(t, Options{Rank: 0, Size: 400})
	contents := make([]byte, smallRing.Size()-smallRing.SmallAt())
	for i := range contents {
		contents[i] = byte(i)
	}
	ranks := 300
	if testing.Short() {
		ranks = 60
	}
	for rank := 1; rank < ranks; rank++ {
		rng := rand.New(rand.NewPCG(uint64(rank), 8))
		m, seg, r := rogue(t, d, rank)
		d.in = nil
		copy(seg.mem[smallRing.SmallAt():], contents)
		for range rng.IntN(200) {
			slot := seg.p.Slot()
			if slot == nil {
				d.poll()
				r.signal(true)
				if slot = seg.p.Slot(); slot == nil {
					break
				}
			}
			for i := range slot.W {
				if slot.W[i] = rng.Uint64(); rng.IntN(2) == 0 {
					slot.W[i] = rng.Uint64N(70_000)
				}
			}
			meta := rng.Uint32N(12) | rng.Uint32N(256)<<8 | rng.Uint32N(100)<<16 | rng.Uint32N(3)<<24
			if rng.IntN(20) == 0 {
				meta = rng.Uint32()
			}
			seg.p.Publish(slot, meta)
			if rng.IntN(4) == 0 {
				r.signal(true)
				d.poll()
			}
		}
		r.signal(true)
		r.box.mark(rng.Uint32()) // of rings that do not exist
		d.poll()
		m.p.Close()
		d.until("the end of the rogue", func() bool { return len(d.downs()) > 0 })
		d.poll()
		if got := d.downs(); !slices.Equal(got, []int{rank}) {
			t.Fatalf("rank %d: down are %v", rank, got)
		}
		for _, p := range d.in {
			if p.Event == transport.Arrived && (!p.Header.Kind.Valid() || p.Header.Tag < 0 || int(p.Peer) != rank) {
				t.Fatalf("rank %d: %+v", rank, p)
			}
		}
	}
}

// A peer that announces memory of Alloc with nonsense is reported gone, or the announcement has no effect.
func TestNonsenseAboutSegments(t *testing.T) {
	watchdog(t)
	files, mappings := held(t)
	t.Run("all", func(t *testing.T) {
		d := open(t, Options{Rank: 0, Size: 100})
		announce := func(size uint64) []byte {
			le := binary.LittleEndian
			return le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, 7), 1<<20), size)
		}
		seg := memory(t, smallRing)
		for i, c := range []struct {
			what string
			msg  []byte
			fds  []int
			down bool
		}{
			{"garbage", []byte("hello"), nil, true},
			{"too long", append(announce(4096), 0), []int{seg.fd}, true},
			{"much too long", make([]byte, 10_000), []int{seg.fd}, true},
			{"no descriptor", announce(4096), nil, true},
			{"many descriptors", announce(4096), slices.Repeat([]int{seg.fd}, 50), true},
			{"absurd size", announce(1 << 63), []int{seg.fd}, true},
			{"larger than its memory", announce(1 << 40), []int{seg.fd}, false},
			{"not sealed", announce(4096), []int{memfd(t, 4096, 0)}, false},
			{"the end of a segment that never was", announce(0), nil, false},
		} {
			rank := i + 1
			m, _, _ := rogue(t, d, rank)
			d.in = nil
			m.say(c.msg, c.fds...)
			if c.down {
				d.until(c.what+": the end", func() bool { return len(d.downs()) > 0 })
			} else {
				d.drain()
				if len(d.in) != 0 {
					t.Errorf("%s: %+v", c.what, d.in)
				}
			}
			if d.segments.copyFrom(rank, 7, make([]byte, 1), 1<<20) {
				t.Errorf("%s: the segment can be read", c.what)
			}
			m.p.Close()
			d.until(c.what+": the end", func() bool { return len(d.downs()) > 0 })
		}
	})
	nothingLeft(t, files, mappings)
}

// liar listens where rank 1 would and answers a hello with what the test gives it.
func liar(t *testing.T, answer func(s *auth.Session, p *packetConn)) (address []byte) {
	t.Helper()
	name := fmt.Sprintf("@gorun-test-%d", rand.Uint64())
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			p := &packetConn{UnixConn: c}
			if s, err := handshaker(1, 2).Accept(p); err == nil {
				answer(s, p)
			}
			p.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return socketAddress(name)
}

// A welcome that lies is an error of Connect, or the link uses nothing that it has not checked.
func TestLyingWelcome(t *testing.T) {
	watchdog(t)
	files, mappings := held(t)
	t.Run("all", func(t *testing.T) {
		box := memfd(t, inboxSize, unix.F_SEAL_SHRINK)
		doorbell, _ := doorbell(t)
		event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(event)
		packets, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(packets)
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pipe[0])
		defer unix.Close(pipe[1])
		value := []byte("8 bytes!")
		welcome := func(number uint32, probe uint64, value []byte) []byte {
			le := binary.LittleEndian
			return append(le.AppendUint64(le.AppendUint32(nil, number), probe), value...)
		}
		good, all := welcome(1, addressOf(value), value), []int{box, doorbell, doorbell}
		small := memfd(t, inboxSize-1, unix.F_SEAL_SHRINK)
		for _, c := range []struct {
			what   string
			answer []byte
			fds    []int
			ok     bool
			why    string // why not Get
		}{
			{"hangs up", nil, nil, false, ""},
			{"too short", good[:welcomeSize-1], all, false, ""},
			{"too long", append(slices.Clone(good), 1), all, false, ""},
			{"empty", []byte{}, all, false, ""},
			{"no descriptors", good, nil, false, ""},
			{"one descriptor", good, []int{box}, false, ""},
			{"two descriptors", good, []int{box, doorbell}, false, ""},
			{"four descriptors", good, []int{box, doorbell, doorbell, doorbell}, false, ""},
			{"many descriptors", good, slices.Repeat([]int{box}, 50), false, ""},
			{"an inbox that can shrink", good, []int{memfd(t, inboxSize, 0), doorbell, doorbell}, false, ""},
			{"an inbox that is too small", good, []int{small, doorbell, doorbell}, false, ""},
			{"a doorbell that can block", good, []int{box, pipe[1], doorbell}, true, ""},
			{"a doorbell that is an eventfd", good, []int{box, event, doorbell}, false, ""},
			{"a second doorbell that is an eventfd", good, []int{box, doorbell, event}, false, ""},
			{"a doorbell that is memory", good, []int{box, box, doorbell}, false, ""},
			{"a doorbell that is a socket", good, []int{box, doorbell, packets}, false, ""},
			{"a probe that is nowhere", welcome(1, 1<<60, value), all, true, "process_vm_readv"},
			{"a probe of another value", welcome(1, addressOf(value), []byte("8 other ")), all, true, "not the peer"},
			{"a ring number beyond all", welcome(1<<32-1, addressOf(value), value), all, true, ""},
			{"the truth", good, all, true, ""},
		} {
			hold := make(chan struct{})
			address := liar(t, func(s *auth.Session, p *packetConn) {
				if len(s.Payload) != helloSize || c.answer == nil {
					return
				}
				p.out = c.fds
				s.Answer(c.answer)
				<-hold
			})
			d := open(t, Options{Rank: 0, Size: 2})
			l, err := d.Connect(context.Background(), 1, address)
			if (err == nil) != c.ok {
				t.Errorf("%s: %v", c.what, err)
			}
			if err == nil {
				caps := l.Caps()
				if (caps.RMA != nil) != (c.why == "") || !strings.Contains(caps.WhyNoRMA, c.why) {
					t.Errorf("%s: RMA is %v because of %q, want %q", c.what, caps.RMA, caps.WhyNoRMA, c.why)
				}
				h := wire.Header{Kind: wire.Data, Flags: wire.Urgent | wire.Wake}
				for l.TrySend(&h, make([]byte, 1000)) || l.TrySend(&h, nil) { // until it is full
				}
				// a head beyond what was sent frees nothing
				binary.LittleEndian.PutUint64(l.(*link).mem, 1<<40)
				if l.TrySend(&wire.Header{Kind: wire.Eager}, nil) {
					t.Errorf("%s: a full ring takes more", c.what)
				}
			}
			close(hold)
			if err == nil {
				d.until("the end of the liar", func() bool { return len(d.downs()) > 0 })
				if !l.TrySend(&wire.Header{Kind: wire.Eager}, nil) {
					t.Errorf("%s: a dead peer's link takes nothing", c.what)
				}
			}
			d.Close()
		}
	})
	nothingLeft(t, files, mappings)
}

// Connecting to a peer that does not answer ends with the context, or with the device.
func TestConnectEndsWithContext(t *testing.T) {
	watchdog(t)
	release := make(chan struct{})
	reached := make(chan struct{}, 2)
	address := liar(t, func(*auth.Session, *packetConn) { reached <- struct{}{}; <-release })
	defer close(release)
	d := open(t, Options{Rank: 0, Size: 2})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() {
		_, err := d.Connect(ctx, 1, address)
		result <- err
	}()
	<-reached
	cancel()
	select {
	case err := <-result:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the context's error", err)
		}
	case <-time.After(patience):
		t.Errorf("it still waits %v after its context has ended", patience)
	}
}

func TestWrongAddress(t *testing.T) {
	d, bySocket := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 0, Size: 2, bySocket: true})
	peer := open(t, Options{Rank: 1, Size: 2})
	other := bytes.Clone(peer.Address())
	other[4]++
	stranger, err := New(Options{Rank: 1, Size: 2, Job: "another", Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for _, a := range [][]byte{nil, {1}, make([]byte, 100), peer.Address()[:addressMin], other, stranger.Address()} {
		if l, err := d.Connect(context.Background(), 1, a); err == nil || l != nil {
			t.Errorf("address %q is accepted", a)
		}
	}
	for _, a := range [][]byte{append(bytes.Clone(peer.Address()), "x"...), stranger.Address()} {
		if l, err := bySocket.Connect(context.Background(), 1, a); err == nil || l != nil {
			t.Errorf("address %q is accepted", a)
		}
	}
}

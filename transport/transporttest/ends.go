package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// connectBothWaysAtOnce connects both ways at once: neither waits for the other.
func connectBothWaysAtOnce(f *fixture) {
	for range f.few(10, 3) {
		a, b := f.pair()
		f.drive(func() error { return a.connect(b) }, func() error { return b.connect(a) })
		for _, p := range []struct{ from, to *end }{{a, b}, {b, a}} {
			f.must(p.from.send(wire.Header{Kind: wire.Eager, Tag: 5}, []byte("hello")))
			m, err := p.to.nextPacket()
			if f.must(err); string(m.Payload) != "hello" {
				f.Fatalf("got %q", m.Payload)
			}
		}
		f.close(a)
		f.close(b)
	}
}

// connectTwice connects a second time. The result is an error, or a second link that works as the first does; and the
// end is told once all the same.
func connectTwice(f *fixture) {
	a, b := f.linked()
	first := a.link
	if err := a.connect(b); err == nil {
		for i, l := range []transport.Link{first, a.link, first, a.link} {
			a.link = l
			f.must(a.send(wire.Header{Kind: wire.Eager, Tag: int32(i)}, nil))
			m, err := b.nextPacket()
			if f.must(err); m.Header.Tag != int32(i) {
				f.Fatalf("got packet %d, want %d", m.Header.Tag, i)
			}
		}
	}
	f.close(a)
	f.must(b.down())
}

// connectHostileAddress checks that whatever was published as an address, Connect returns in time, and does no harm.
func connectHostileAddress(f *fixture) {
	a, b := f.pair()
	good := b.dev.Address()
	limit := time.Second
	if testing.Short() {
		limit = 200 * time.Millisecond
	}
	try := func(what string, peer int, address []byte, mustFail bool) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		begin := time.Now()
		l, err := a.dev.Connect(ctx, peer, address)
		if mustFail && (err == nil || err.Error() == "") {
			f.Errorf("%s: Connect to rank %d at %.40q gave error %v", what, peer, address, err)
		}
		if err == nil {
			a.link = l
		}
		if took := time.Since(begin); took > patience {
			f.Errorf("%s: Connect took %v with a context of %v", what, took, limit)
		}
	}
	long := bytes.Repeat([]byte{0xff}, 64<<10)
	try("nil", 1, nil, true)
	try("empty", 1, []byte{}, true)
	try("one byte", 1, []byte{1}, true)
	try("zeros", 1, make([]byte, len(good)), true)
	try("text", 1, []byte("../../etc/passwd"), true)
	try("64 KiB", 1, long, true)
	try("a good one with 64 KiB behind", 1, append(bytes.Clone(good), long...), true)
	try("negative rank", -1, good, true)
	try("huge rank", 1<<30, good, true)
	try("half", 1, good[:len(good)/2], true)
	step := 1
	if testing.Short() {
		step = 7 // a damaged port or address may be one that does not answer: each takes the limit then
	}
	for i := 0; i < len(good); i += step {
		try("short", 1, good[:i], false)
		bad := bytes.Clone(good)
		bad[i] ^= 0x41
		try("damaged", 1, bad, false) // some transports put more into an address than they need
	}
	if a.link == nil { // else a damaged one was good enough
		f.must(a.connect(b))
	}
	f.must(b.connect(a))
	f.must(a.send(wire.Header{Kind: wire.Eager, Tag: 5}, []byte("hello")))
	m, err := b.nextPacket()
	if f.must(err); string(m.Payload) != "hello" {
		f.Errorf("after all that, got %+v %q", m.Header, m.Payload)
	}
}

func connectToClosed(f *fixture) {
	a, b := f.pair()
	f.close(b)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := a.dev.Connect(ctx, 1, b.dev.Address()); err == nil {
		f.Error("Connect to a closed device gave no error")
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := a.dev.Connect(ctx, 1, b.dev.Address()); err == nil {
		f.Error("Connect to a closed device with an ended context gave no error")
	}
}

// connectNow checks that a link that is made at once is like any other, also where the peer is not polled meanwhile.
// There is none to a closed device, and at what is no address.
func connectNow(f *fixture) {
	a, b := f.pair()
	for _, address := range [][]byte{nil, {1}, make([]byte, len(b.dev.Address())), []byte("../../etc/passwd")} {
		if a.dev.Facts().ConnectNow(1, address) != nil {
			f.Errorf("there is a link to %q", address)
		}
	}
	for _, e := range [][2]*end{{a, b}, {b, a}} {
		from, to := e[0], e[1]
		if from.link = from.dev.Facts().ConnectNow(from.peer, to.dev.Address()); from.link == nil {
			f.Fatalf("no link of rank %d", from.rank)
		}
		f.must(from.send(wire.Header{Kind: wire.Eager, Tag: 5}, pattern(100, 1)))
		m, err := to.nextPacket()
		f.must(err)
		if m.Header.Tag != 5 || !bytes.Equal(m.Payload, pattern(100, 1)) {
			f.Errorf("rank %d: got %+v %q", to.rank, m.Header, m.Payload)
		}
	}
	f.close(a)
	f.close(b)
	a, b = f.pair()
	f.close(b)
	if a.dev.Facts().ConnectNow(1, b.dev.Address()) != nil {
		f.Error("there is a link to a closed device")
	}
}

// introducer checks that each peer that is connected to knows what was introduced, and no other does.
func introducer(f *fixture) {
	for _, card := range [][]byte{nil, {1}, pattern(1024, 1)} {
		a, b := f.pair()
		a.dev.Facts().Introducer.Introduce(card)
		known := b.dev.Facts().Introducer.Card
		if got := known(0); len(got) != 0 {
			f.Errorf("before rank 0 has connected its card is %q", got)
		}
		f.must(a.connect(b))
		f.must(b.connect(a))
		for c := start(); !bytes.Equal(known(0), card); b.poll() {
			if c.late() {
				f.Fatalf("the card of rank 0 has %d bytes; here it has %d, or other ones", len(card), len(known(0)))
			}
		}
		f.close(a)
		f.close(b)
	}
}

// refused checks that the peer is no stranger.
func refused(f *fixture) {
	a, b := f.linked()
	for _, e := range []*end{a, b} {
		f.must(e.send(wire.Header{Kind: wire.FIN}, nil))
	}
	for _, e := range []*end{a, b} {
		if _, err := e.nextPacket(); err != nil {
			f.Fatal(err)
		}
		if n := e.dev.Facts().Refused(); n != 0 {
			f.Errorf("rank %d has refused %d connections, and its peer's only were there", e.rank, n)
		}
	}
}

// namesTheDevice checks that a device that is made of several says which of them has connected a peer.
func namesTheDevice(f *fixture) {
	a, b := f.pair()
	for _, e := range []*end{a, b} {
		if by := e.dev.Facts().Via(e.peer); by != "" {
			f.Errorf("rank %d has not connected and says that it has, by %q", e.rank, by)
		}
	}
	f.must(a.connect(b))
	if by := a.dev.Facts().Via(1); by == "" || !strings.Contains(a.dev.Name(), by) {
		f.Errorf("rank 0, which is %q, has connected rank 1 by %q", a.dev.Name(), by)
	}
}

// downAfterPackets checks that everything that was sent before Close arrives, then one Down, whichever end made the
// link.
func downAfterPackets(f *fixture) {
	for _, c := range []struct {
		what             string
		forward, reverse bool
	}{
		{"links both ways", true, true}, {"a link to the end that stays", true, false}, {"a link from it", false, true},
	} {
		for _, packets := range []bool{false, true} {
			a, b := f.pair()
			took := 0
			var out, in *stream
			if c.reverse {
				f.must(b.connect(a))
			}
			if c.forward {
				f.must(a.connect(b))
				out, in = newStream(6, a.link.Caps()), newStream(6, a.link.Caps())
				if packets {
					var err error
					if took = f.leaves; took == 0 {
						took, _, _, err = full(a, out)
					}
					f.must(err)
					for range f.leaves {
						h, body := out.packet()
						f.must(a.send(h, body))
					}
				}
			}
			f.close(a)
			for i := range took {
				m, err := b.next()
				f.must(err)
				if err := in.check(m); err != nil {
					f.Fatalf("%s: packet %d of the %d that were sent before Close: %v", c.what, i, took, err)
				}
			}
			if err := b.down(); err != nil {
				f.Fatalf("%s: after %d packets: %v", c.what, took, err)
			}
			f.close(b)
		}
	}
}

// downWakes checks that the end of a peer is an arrival.
func downWakes(f *fixture) {
	for _, thread := range []bool{true, false} {
		a, b := f.linked()
		w := watch(f, b)
		f.drive(func() error {
			pause(2000)
			f.close(a)
			return nil
		}, func() error {
			m, err := b.await(w, transport.Any, thread)
			if err == nil && m.Event != transport.Down {
				err = fmt.Errorf("event %d, want Down", m.Event)
			}
			return err
		})
	}
}

// deadLinkDrops checks that a sender that does not know yet is not stuck, and one that knows is never refused.
func deadLinkDrops(f *fixture) {
	a, b := f.linked()
	s := newStream(7, b.link.Caps())
	f.close(a)
	down := false
	for i, c := 0, start(); i < 2000 || !down; {
		h, body := s.packet()
		if b.link.TrySend(&h, body) {
			i++
		} else if down {
			f.Fatalf("packet %d: the peer is gone, Poll has said so, and the link refuses", i)
		}
		if m, ok := b.tryNext(); ok {
			if m.Event != transport.Down {
				f.Fatalf("event %d, want Down", m.Event)
			}
			down = true
		}
		if c.late() {
			f.Fatalf("%d packets sent; Down: %v", i, down)
		}
	}
}

// cut checks that both ends hear that the other is gone, once, and links drop what is sent.
func cut(f *fixture) {
	a, b := f.linked()
	c := a.link.Caps()
	if c.Cut == nil {
		if c.RMA != nil || c.ZeroCopy != nil {
			f.Error("the link reaches memory and cannot be cut")
		}
		return
	}
	f.must(b.send(wire.Header{Kind: wire.Eager}, []byte("may be lost")))
	c.Cut()
	for _, e := range []*end{a, b} {
		for p, err := e.next(); p.Event != transport.Down; p, err = e.next() {
			f.must(err)
		}
		f.must(e.quiet())
		for range 1000 {
			if !e.link.TrySend(&wire.Header{Kind: wire.FIN}, nil) {
				f.Fatalf("rank %d: the link is cut, Poll has said so, and it refuses", e.rank)
			}
		}
	}
}

// cutEnds checks that when the end that cuts has heard Down its memory is its own: the peer, which goes on, reads and
// writes no byte of it. Every page is looked at, since an operation that is under way is fast.
func cutEnds(f *fixture, w way) {
	const size, page, poison = 16 << 20, 4096, 0xee
	changed := func(mem []byte, ok bool) bool {
		for i := 0; i < size; i += page {
			if (mem[i] == poison) != ok {
				return true
			}
		}
		return false
	}
	far, near := make([]byte, size), make([]byte, size)
	for range max(f.rounds(50), 3) {
		clear(far)
		a, b := f.linked()
		addr, key := f.register(a, far, transport.Access(w))
		begun := make(chan struct{})
		f.drive(func() error {
			<-begun
			a.link.Caps().Cut()
			for p, err := a.next(); p.Event != transport.Down; p, err = a.next() {
				if err != nil {
					return err
				}
			}
			for i := 0; i < size; i += page {
				far[i] = poison
			}
			time.Sleep(10 * time.Millisecond) // for the peer to go on
			if changed(far, true) {
				return errors.New("the memory is written to after Down")
			}
			return nil
		}, func() error {
			again := sync.OnceFunc(func() { close(begun) })
			defer again()
			for i := 0; ; i++ {
				if _, err := b.attempt(w.between(b, near, addr, key)); err != nil {
					return nil
				}
				if w == get && changed(near, false) {
					return errors.New("a READ has found what was written after Down")
				}
				if i == 2 {
					again()
				}
			}
		})
		deregister(a, addr, key)
		f.close(a)
		f.close(b)
	}
}

// closedDevice calls a device after Close: calls neither crash nor hang nor find anything.
func closedDevice(f *fixture) {
	a, b := f.linked()
	f.must(b.send(wire.Header{Kind: wire.Eager}, []byte("too late")))
	f.close(a)
	a.link.TrySend(&wire.Header{Kind: wire.Eager}, []byte("dead"))
	a.link.TrySend(&wire.Header{Kind: wire.Data}, make([]byte, a.link.Caps().FragMax))
	if n := a.dev.Poll(a.pkts); n != 0 {
		f.Errorf("Poll of a closed device gave %d packets", n)
	}
	if err := a.connect(b); err == nil {
		f.Error("Connect of a closed device gave no error")
	}
	f.must(b.down())
}

// closeLeavesNothing checks that goroutines and descriptors are as many as before.
func closeLeavesNothing(f *fixture) {
	cycle := func() {
		a, b := f.linked()
		for _, e := range []*end{a, b} {
			f.must(e.send(wire.Header{Kind: wire.Data}, pattern(e.link.Caps().FragMax, 1)))
		}
		b.set.Arm(transport.Any, false)
		done := parked(b, false)
		b.set.Interrupt()
		within(f, done, "Interrupt")
		f.close(a)
		f.close(b)
	}
	cycle() // what is made once per process is made now
	cycles := f.few(10, 3)
	before := leak.Take()
	for range cycles {
		cycle()
	}
	if err := before.Check(patience); err != nil {
		f.Fatalf("after %d pairs were opened and closed: %v", cycles, err)
	}
}

package transporttest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

func address(f *fixture) {
	a, b := f.pair()
	if a.dev.Name() == "" || a.dev.Name() != b.dev.Name() {
		f.Errorf("names %q and %q; want one, not empty", a.dev.Name(), b.dev.Name())
	}
	if len(a.dev.Address()) == 0 || bytes.Equal(a.dev.Address(), b.dev.Address()) {
		f.Errorf("addresses %q and %q; want two, not empty", a.dev.Address(), b.dev.Address())
	}
	if x := bytes.Clone(a.dev.Address()); !bytes.Equal(x, a.dev.Address()) {
		f.Errorf("the address was %q and is now %q", x, a.dev.Address())
	}
}

// facts of a device and of its link are one record each, and whole: what an ability promises is there.
func facts(f *fixture) {
	a, _ := f.linked()
	d, c := a.dev.Facts(), a.link.Caps()
	if d != a.dev.Facts() || c != a.link.Caps() {
		f.Error("Facts or Caps gave two pointers; it is one record, made with the device or the link")
	}
	if c.EagerMax <= 0 || c.FragMax < c.EagerMax {
		f.Errorf("EagerMax %d, FragMax %d; want 0 < EagerMax <= FragMax", c.EagerMax, c.FragMax)
	}
	if len(d.Wake) == 0 {
		f.Error("Wake is empty: no rank can sleep here")
	}
	for _, w := range d.Wake {
		if w.FD < 0 && w.Notify == nil || w.FD >= 0 && w.ThreadFD < 0 && w.Word == nil {
			f.Errorf("%+v has nothing that wakes a goroutine, or nothing that wakes a thread", w)
		}
	}
	if r := c.RMA; r == nil && c.WhyNoRMA == "" {
		f.Error("RMA is nil and WhyNoRMA does not say why")
	} else if r != nil && (r.Register == nil || r.Deregister == nil || r.Get == nil || r.Max < 0 ||
		(r.FetchAdd == nil) != (r.CompareSwap == nil)) {
		f.Errorf("something of RMA is missing: %+v", *r)
	}
	z := c.ZeroCopy
	if z != nil && (z.Send == nil || z.Reads == nil || z.Place == nil || z.Displace == nil || z.Max <= 0) {
		f.Errorf("something of ZeroCopy is missing: %+v", *z)
	}
	if p := c.Presence; p != nil && (p.Polls == nil || p.Waits == nil) {
		f.Errorf("something of Presence is missing: %+v", *p)
	}
	if o := d.Offload; o == nil && c.Offload {
		f.Error("messages come through a device that can match them, and there is none")
	} else if o != nil && (o.Post == nil || o.Cancel == nil || o.Seen == nil || o.Tags <= 0 || o.Min < 0) {
		f.Errorf("something of Offload is missing: %+v", *o)
	}
	if x := d.Boards; x != nil && (x.Make == nil || x.Join == nil) {
		f.Errorf("something of Boards is missing: %+v", *x)
	}
	if m := d.Memory; m != nil && ((m.Alloc == nil) != (m.Free == nil) || (m.Import == nil) != (m.Forget == nil)) {
		f.Errorf("something of Memory is missing: %+v", *m)
	}
}

// header sends every kind with extreme values in every field.
func header(f *fixture) {
	a, b := f.linked()
	var sent []wire.Header
	for k := wire.Kind(1); k.Valid(); k++ {
		for _, v := range []uint64{0, 1, math.MaxUint64, 1 << 63, 0x0102030405060708} {
			h := wire.Header{Kind: k, Flags: uint8(v), Ctx: uint32(v), Tag: int32(v & wire.MaxTag)}
			if !k.Short() {
				h.ID, h.Len, h.Addr, h.Key = v, v^1, v^2, v^4
			}
			sent = append(sent, h)
		}
	}
	for _, p := range []struct{ from, to *end }{{a, b}, {b, a}} {
		f.drive(func() error {
			for _, h := range sent {
				if err := p.from.send(h, nil); err != nil {
					return err
				}
			}
			return nil
		}, func() error {
			for _, h := range sent {
				m, err := p.to.nextPacket()
				if err != nil {
					return err
				}
				got := m.Header
				if h.Kind.Short() { // the other fields are not part of a short header
					got = wire.Header{Kind: got.Kind, Flags: got.Flags, Ctx: got.Ctx, Tag: got.Tag}
				}
				if f.has&Offload != 0 {
					got, h = onlyTheirs(got), onlyTheirs(h)
				}
				if got != h || len(m.Payload) != 0 {
					return fmt.Errorf("sent %+v without payload\n got %+v with %d bytes", h, got, len(m.Payload))
				}
			}
			return nil
		})
	}
}

// onlyTheirs leaves of a header what a device that matches tags passes on: what its kind says that it has, but for the
// ID of a message, of which the receiver sees another number.
func onlyTheirs(h wire.Header) wire.Header {
	switch h.Kind {
	case wire.EagerSync:
		return wire.Header{Kind: h.Kind, Ctx: h.Ctx, Tag: h.Tag}
	case wire.RTS, wire.Cancel, wire.Blocked:
		h.ID = 0
	case wire.FIN, wire.Matched, wire.CTS, wire.PutReq, wire.CancelReply:
		h.ID = 0 // no message has been sent that it could be about
	}
	return h
}

// blockedSenders checks that an RTS says that its sender's caller waits, and whether it lacked credit, also where the
// receiver's device could fetch the message by itself.
func blockedSenders(f *fixture) {
	a, b := f.linked()
	for _, flags := range []uint8{0, wire.Blocking, wire.NoCredit, wire.Blocking | wire.NoCredit} {
		for _, more := range []uint8{wire.Urgent, wire.Urgent | wire.Readable} {
			f.must(a.send(wire.Header{Kind: wire.RTS, Flags: flags | more, Ctx: 1, Tag: 5, ID: 9, Len: 6000, Addr: 4096}, nil))
			m, err := b.nextPacket()
			f.must(err)
			if got := m.Header.Flags; m.Header.Kind != wire.RTS || got != flags|more {
				f.Errorf("an RTS with the flags %#x came as %v with %#x", flags|more, m.Header.Kind, got)
			}
		}
	}
}

// answersNameTheirMessage checks that the ID in an answer, as the receiver has seen it, is the sender's ID when it is
// back.
func answersNameTheirMessage(f *fixture) {
	a, b := f.linked()
	id := uint64(1<<63 | 7)
	for _, kind := range []wire.Kind{wire.EagerSync, wire.RTS} {
		answers := []wire.Kind{wire.CTS, wire.CTS, wire.PutReq, wire.CancelReply, wire.FIN}
		if kind == wire.EagerSync {
			answers = []wire.Kind{wire.CancelReply, wire.Matched}
		}
		for _, ctx := range []uint32{1, math.MaxUint32} {
			id++
			f.must(a.send(wire.Header{Kind: kind, Flags: wire.Urgent, Ctx: ctx, Tag: 5, ID: id, Len: 1 << 20}, nil))
			m, err := b.nextPacket()
			f.must(err)
			for _, answer := range answers {
				f.must(b.send(wire.Header{Kind: answer, ID: m.Header.ID}, nil))
				back, err := a.nextPacket()
				f.must(err)
				if back.Header.Kind != answer || back.Header.ID != id {
					f.Errorf("%v of %v %#x, which came as %#x: it came back as %v %#x",
						answer, kind, id, m.Header.ID, back.Header.Kind, back.Header.ID)
				}
			}
		}
	}
}

// sizes are where implementations change their ways: in the slot, around lines, pages, powers of two, the limits.
func sizes(f *fixture) {
	a, b := f.linked()
	c := a.link.Caps()
	list := []int{c.EagerMax - 1, c.EagerMax, c.FragMax - 1, c.FragMax}
	for n := range 260 {
		list = append(list, n)
	}
	for n := 512; n < c.FragMax; n *= 2 {
		list = append(list, n-1, n, n+1, n+n/2)
	}
	type packet struct {
		kind wire.Kind
		size int
	}
	var sent []packet
	for _, n := range list {
		if n < 0 || n > c.FragMax {
			continue
		}
		sent = append(sent, packet{wire.Data, n})
		if n <= c.EagerMax {
			sent = append(sent, packet{wire.Eager, n}, packet{wire.EagerSync, n})
		}
	}
	f.drive(func() error {
		for i, p := range sent {
			if err := a.send(wire.Header{Kind: p.kind, Tag: int32(i)}, pattern(p.size, uint64(i))); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		for i, p := range sent {
			m, err := b.nextPacket()
			if err != nil {
				return err
			}
			if m.Header.Kind != p.kind || m.Header.Tag != int32(i) {
				return fmt.Errorf("packet %d: got %+v, want a %v", i, m.Header, p.kind)
			}
			if !bytes.Equal(m.Payload, pattern(p.size, uint64(i))) {
				return fmt.Errorf("packet %d, a %v: %d bytes arrived as %d, or other ones",
					i, p.kind, p.size, len(m.Payload))
			}
		}
		return nil
	})
}

// stream is a reproducible mix of kinds and sizes; both sides make the same from a seed.
type stream struct {
	rng  *rand.Rand
	caps transport.Caps // a copy: both sides use it
	seed uint64
	next uint64
}

func newStream(seed uint64, c *transport.Caps) *stream {
	return &stream{rng: rand.New(rand.NewPCG(seed, 1)), caps: *c, seed: seed}
}

func (s *stream) packet() (wire.Header, []byte) {
	size := 0
	switch s.rng.IntN(12) {
	case 0:
		size = s.rng.IntN(s.caps.FragMax + 1)
	case 1, 2:
		size = s.rng.IntN(min(s.caps.EagerMax, 4096) + 1)
	case 3, 4, 5, 6, 7, 8:
		size = s.rng.IntN(129)
	}
	h := wire.Header{Kind: wire.Data, Ctx: uint32(s.seed), Addr: s.next}
	if size <= s.caps.EagerMax && s.rng.IntN(2) == 0 {
		h = wire.Header{Kind: wire.Eager, Ctx: uint32(s.seed), Tag: int32(s.next)}
	}
	s.next++
	return h, pattern(size, s.seed<<32+s.next)
}

// check compares m with the stream's next packet.
func (s *stream) check(m transport.Packet) error {
	i := s.next
	h, body := s.packet()
	if !sent(m) {
		return fmt.Errorf("packet %d: got event %d, error %v", i, m.Event, m.Err)
	}
	if m.Header.Kind != h.Kind || m.Header.Ctx != h.Ctx || m.Header.Tag != h.Tag || !h.Kind.Short() && m.Header != h {
		return fmt.Errorf("packet %d of the stream: got %+v, want %+v: lost, doubled or out of order", i, m.Header, h)
	}
	if !bytes.Equal(m.Payload, body) {
		return fmt.Errorf("packet %d of the stream: a payload of %d bytes arrived as %d, or other ones",
			i, len(body), len(m.Payload))
	}
	return nil
}

func order(f *fixture) {
	a, b := f.linked()
	n := f.rounds(5000)
	out, in := newStream(1, a.link.Caps()), newStream(1, a.link.Caps())
	f.drive(func() error {
		for range n {
			if err := a.send(out.packet()); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		for range n {
			m, err := b.nextPacket()
			if err != nil {
				return err
			}
			if err := in.check(m); err != nil {
				return err
			}
		}
		return b.quiet()
	})
}

// senderKeepsBuffer checks that header and payload are copied before TrySend returns.
func senderKeepsBuffer(f *fixture) {
	a, b := f.linked()
	n := f.rounds(500)
	buf := make([]byte, a.link.Caps().EagerMax)
	out, in := newStream(2, a.link.Caps()), newStream(2, a.link.Caps())
	f.drive(func() error {
		for range n {
			h, body := out.packet()
			if len(body) <= len(buf) {
				body = buf[:copy(buf, body)]
			}
			for c := start(); !a.link.TrySend(&h, body); runtime.Gosched() {
				if a.poll(); c.late() {
					return fmt.Errorf("TrySend has been refused for %v", patience)
				}
			}
			clear(body)
			h = wire.Header{Kind: wire.Cancel, ID: 99, Tag: 99}
		}
		return nil
	}, func() error {
		for range n {
			m, err := b.nextPacket()
			if err != nil {
				return err
			}
			if err := in.check(m); err != nil {
				return fmt.Errorf("after the sender overwrote its buffer: %w", err)
			}
		}
		return nil
	})
}

// payloadUntilNextPoll checks that what Poll gave stays as it is while the sender sends all that it can.
func payloadUntilNextPoll(f *fixture) {
	a, b := f.linked()
	c := a.link.Caps()
	pkts := make([]transport.Packet, 8)
	most := uint64(f.few(300, 60))
	for round := range uint64(max(5, f.rounds(20))) {
		size := []int{1, 64, 200, min(c.EagerMax, 4096), c.FragMax}[round%5]
		h := wire.Header{Kind: wire.Data, Addr: round}
		sent, body := uint64(0), pattern(size, round<<32)
		flood := func() {
			for refused := 0; refused < 20 && sent < most; {
				if a.link.TrySend(&h, body) {
					sent++
					body = pattern(size, round<<32+sent)
				} else {
					a.poll()
					refused++
				}
			}
		}
		flood()
		seen := uint64(0)
		for c := start(); seen < sent; {
			got := b.raw(pkts)
			if len(got) == 0 && c.late() {
				f.Fatalf("round %d: %d of %d packets arrived", round, seen, sent)
			}
			if sent < most/2 {
				flood() // into the room that the previous poll gave back
			}
			for i, p := range got {
				if !bytes.Equal(p.Payload, pattern(size, round<<32+seen)) {
					f.Fatalf("round %d: payload %d of %d bytes (%d of %d in this poll) changed before the next Poll",
						round, seen, size, i+1, len(got))
				}
				seen++
				c = start()
			}
		}
	}
}

// full sends until the link refuses for good and returns how many it took.
func full(e *end, s *stream) (took int, refused wire.Header, body []byte, err error) {
	for took < 200_000 {
		h, body := s.packet()
		ok := false
		for range 100 { // a refusal may be for a moment only
			if ok = e.link.TrySend(&h, body); ok {
				break
			}
			e.poll()
		}
		if !ok {
			return took, h, body, nil
		}
		took++
	}
	return took, refused, nil, fmt.Errorf("rank %d: the link took %d unpolled packets: it has no bound", e.rank, took)
}

// refusalTakesNothing checks that a full link refuses; the refused packet has left no trace, and goes once the peer has
// polled.
func refusalTakesNothing(f *fixture) {
	a, b := f.linked()
	out, in := newStream(3, a.link.Caps()), newStream(3, a.link.Caps())
	for range f.few(5, 2) {
		took, h, body, err := full(a, out)
		f.must(err)
		for refused := 0; refused < 10; refused++ {
			if !a.link.TrySend(&h, body) {
				continue
			}
			// What is below the link was slow to take what it had, so it was not full. Of a link without a bound full
			// says so.
			var more int
			more, h, body, err = full(a, out)
			f.must(err)
			took += more + 1
			refused = -1
		}
		sent := false
		for c := start(); took > 0 || !sent; {
			if m, ok := b.tryNext(); ok {
				f.must(in.check(m))
				took--
				c = start()
			}
			if !sent && a.link.TrySend(&h, body) {
				sent = true
				took++
			}
			a.poll()
			if c.late() {
				f.Fatalf("refused packet sent: %v; %d packets have not arrived", sent, took)
			}
		}
		f.must(b.quiet())
	}
}

func floodBothWays(f *fixture) {
	a, b := f.linked()
	n := f.rounds(10_000)
	side := func(e *end, own, peer uint64) func() error {
		return func() error {
			out, in := newStream(own, e.link.Caps()), newStream(peer, e.link.Caps())
			h, body := out.packet()
			sent, got := 0, 0
			for c := start(); sent < n || got < n; {
				for sent < n && e.link.TrySend(&h, body) {
					h, body = out.packet()
					sent++
				}
				m, ok := e.tryNext()
				if !ok {
					if runtime.Gosched(); c.late() {
						return fmt.Errorf("rank %d: sent %d and got %d of %d: stuck", e.rank, sent, got, n)
					}
					continue
				}
				c = start()
				if err := in.check(m); err != nil {
					return fmt.Errorf("rank %d: %w", e.rank, err)
				}
				got++
			}
			return nil
		}
	}
	f.drive(side(a, 10, 11), side(b, 11, 10))
	f.must(a.quiet())
	f.must(b.quiet())
}

// short checks that what Facts.Short and Poll return is all that was sent, in order. Where Short finds nothing Poll
// finds nothing, and a slot that Short has emptied is the sender's again, also if there is no Poll.
func short(f *fixture) {
	a, b := f.linked()
	out, in := newStream(6, a.link.Caps()), newStream(6, a.link.Caps())
	f.must(a.send(out.packet()))
	first, err := b.nextPacket() // from here on b knows of the link
	f.must(err)
	f.must(in.check(first))
	next, payload := out.packet()
	for clock, came, round := start(), 0, 0; came < f.rounds(5000); round++ {
		took := 0
		for took <= round%20 && a.link.TrySend(&next, payload) {
			next, payload = out.packet()
			took++
		}
		if took == 0 { // what was read last is b's until its next look
			if _, found := b.short(); found == transport.FoundShort || clock.late() {
				f.Fatalf("after %d packets all is read, and there is no room", came)
			}
		}
		for took > 0 {
			p, found := b.short()
			if found != transport.FoundShort {
				n := b.raw(b.pkts)
				if found == transport.FoundNothing && len(n) > 0 {
					f.Fatalf("Short finds nothing, and Poll %d packets", len(n))
				}
				p = n
			}
			for i := range p {
				f.must(in.check(p[i]))
			}
			if took, came = took-len(p), came+len(p); clock.late() {
				f.Fatalf("after %d packets nothing comes", came)
			}
		}
	}
	h := wire.Header{Kind: wire.Eager, Tag: 5}
	for i := range f.rounds(5000) {
		f.must(a.send(h, []byte{byte(i)}))
		for clock := start(); ; {
			p, found := b.short()
			if found == transport.FoundShort {
				if len(p[0].Payload) != 1 || p[0].Payload[0] != byte(i) {
					f.Fatalf("message %d came as %v", i, p[0])
				}
				break
			}
			if clock.late() {
				f.Fatalf("message %d does not come without Poll: found %d", i, found)
			}
		}
	}
}

// floodStarvesNone checks that while one peer sends without end, the packet of another comes, and then that one's end.
func floodStarvesNone(f *fixture) { f.flood(16) }

// floodOutrunsPoll is floodStarvesNone where more is sent than Poll can take: it never finds nothing.
func floodOutrunsPoll(f *fixture) { f.flood(1) }

// flood takes size packets at a time.
func (f *fixture) flood(size int) {
	a, b := f.linked()
	a.pkts = a.pkts[:size]
	c := f.end(f.third(), 2)
	c.peer = 0
	f.Cleanup(func() { f.close(c) })
	f.must(c.connect(a))
	f.must(c.send(wire.Header{Kind: wire.Eager, Tag: 2}, nil))
	h := wire.Header{Kind: wire.Eager, Tag: 1}
	for clock, came := start(), false; ; {
		for range 2 * len(a.pkts) {
			b.link.TrySend(&h, nil)
		}
		b.poll()
		if !came {
			c.poll()
		}
		for _, p := range a.pkts[:a.dev.Poll(a.pkts)] {
			switch {
			case p.Event == transport.Unmatched:
				a.dev.Facts().Offload.Seen()
			case p.Event == transport.Down && p.Peer == 2 && came:
				return
			}
			if p.Peer == 2 && !came {
				if came = true; !sent(p) || p.Header.Tag != 2 {
					f.Fatalf("of rank 2 came %+v", p)
				}
				f.close(c)
			}
		}
		if clock.late() {
			f.Fatalf("rank 1 sends without end, and rank 2 has sent one packet and ended: it came: %v", came)
		}
	}
}

// smallPoll checks that Poll fills what it is given and loses nothing of the rest, also when it is given nothing.
func smallPoll(f *fixture) {
	a, b := f.linked()
	out, in := newStream(4, a.link.Caps()), newStream(4, a.link.Caps())
	took, _, _, err := full(a, out)
	f.must(err)
	for i, c := 0, start(); i < took; {
		if n := b.dev.Poll(nil); n != 0 {
			f.Fatalf("Poll(nil) = %d", n)
		}
		b.pkts = slices.Grow(b.pkts[:0], 3)[:1+i%3]
		if n := b.poll(); n > len(b.pkts) {
			f.Fatalf("Poll of %d packets = %d", len(b.pkts), n)
		}
		for ; len(b.inbox) > 0; i++ {
			f.must(in.check(b.inbox[0]))
			b.inbox = b.inbox[1:]
			c = start()
		}
		if c.late() {
			f.Fatalf("%d of %d packets arrived", i, took)
		}
	}
}

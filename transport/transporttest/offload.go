package transporttest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// list is what an engine knows of the receives that it has handed down: the model that a device is compared with. Each
// event is checked against it as it comes.
type list struct {
	f    *fixture
	a, b *end // a sends, b has the receives
	dev  *transport.Offload

	sent []message          // in order
	next int                // of sent: the first that the device has neither matched nor left to software
	open []*posted          // those that may get a message, in order
	held map[uint64]*posted // by cookie: those whose buffer the device has

	left    int // messages that were left to software
	unseen  int // those of which the device has not been told that they are dealt with. Invariant: unseen <= left
	matches int // by the device
}

// message is one that a has sent with source 0 and context 3.
type message struct {
	wire.Header
	body []byte
}

// posted is a receive that has been handed down.
type posted struct {
	cookie    uint64
	tag, mask uint64
	buf       []byte
	after     int              // messages that had been left to software when it was posted
	cancelled bool             // Cancel has been called
	gone      bool             // software has found a message for it: the device never will
	matched   *message         // by the device
	done      transport.Packet // OffloadDone or OffloadBack
}

func (r *posted) String() string {
	if r == nil {
		return "not in the device"
	}
	return fmt.Sprintf("receive %d, tag %#x of %#x; cancelled %v, with software %v, matched %v",
		r.cookie, r.tag, r.mask, r.cancelled, r.gone, r.matched != nil)
}

func newList(f *fixture) *list {
	f.Helper()
	a, b := f.linked()
	b.slow = true
	return &list{f: f, a: a, b: b, dev: b.dev.Facts().Offload, held: map[uint64]*posted{}}
}

// buffer is one that the device can reach.
func (l *list) buffer(n int) []byte {
	l.f.Helper()
	if l.f.has&Memory == 0 {
		return make([]byte, n)
	}
	mem, err := l.b.dev.Facts().Memory.Alloc(n)
	l.f.must(err)
	return mem
}

// size is the shortest buffer that is handed down and holds any eager message.
func (l *list) size() int { return max(l.dev.Min, l.a.link.Caps().EagerMax) }

// tryPost hands down a receive; nil: the device has not taken it.
func (l *list) tryPost(tag int32, mask uint64, buf []byte) *posted {
	packed, _ := transport.PackTag(3, 0, tag)
	l.b.cookie++
	r := &posted{cookie: l.b.cookie, tag: packed & mask, mask: mask, buf: buf, after: l.left}
	if l.dev.Post(r.tag, mask, transport.HostMem(buf), r.cookie) != transport.PostedDown {
		return nil
	}
	l.open = append(l.open, r)
	l.held[r.cookie] = r
	return r
}

// post tries again until the device takes it.
func (l *list) post(tag int32, mask uint64, buf []byte) *posted {
	l.f.Helper()
	for c := start(); ; l.look() {
		if r := l.tryPost(tag, mask, buf); r != nil {
			return r
		} else if c.late() {
			l.f.Fatalf("the device has %d of at most %d receives, and refuses one more", len(l.held), l.dev.Tags)
		}
	}
}

func (l *list) cancel(r *posted) {
	r.cancelled = true
	l.dev.Cancel(r.cookie)
}

// send sends a message with the context and the source of all.
func (l *list) send(h wire.Header, body []byte) {
	l.f.Helper()
	h.Ctx = 3
	for c := start(); !l.a.link.TrySend(&h, body); l.look() {
		if c.late() {
			l.f.Fatalf("TrySend of a %v with %d bytes has been refused for %v", h.Kind, len(body), patience)
		}
	}
	l.sent = append(l.sent, message{h, body})
}

func eager(tag int32) wire.Header { return wire.Header{Kind: wire.Eager, Tag: tag} }

// look polls both ends, and takes what has come.
func (l *list) look() {
	l.f.Helper()
	if !l.a.closed {
		l.a.poll()
	}
	l.b.poll()
	for _, p := range l.b.inbox {
		l.f.must(l.take(p))
	}
	l.b.inbox = l.b.inbox[:0]
	runtime.Gosched()
}

// until looks until something is so.
func (l *list) until(what string, done func() bool) {
	l.f.Helper()
	for c := start(); !done(); l.look() {
		if c.late() {
			l.f.Fatalf("%s: not within %v; %d of %d messages came, the device has %d receives",
				what, patience, l.next, len(l.sent), len(l.held))
		}
	}
}

// seen tells the device that all messages that it has left to software have been dealt with.
func (l *list) seen() {
	for ; l.unseen > 0; l.unseen-- {
		l.dev.Seen()
	}
}

// take compares an event with the model.
func (l *list) take(p transport.Packet) error {
	r := l.held[p.Cookie]
	switch p.Event {
	case transport.Unmatched:
		return l.unmatched(p)
	case transport.OffloadMatched:
		return l.matched(r, p.Header.Tag)
	case transport.OffloadDone:
		if r == nil || r.matched == nil || p.Err != nil {
			return fmt.Errorf("OffloadDone, %v, of %d: %v", p.Err, p.Cookie, r)
		}
		m := r.matched
		if h := p.Header; h.Len != m.Len && m.Kind == wire.RTS || m.Kind != wire.RTS &&
			(h.Kind != m.Kind || h.Len != uint64(len(m.body)) || !bytes.Equal(r.buf[:h.Len], m.body)) {
			return fmt.Errorf("OffloadDone: %+v for %+v, or wrong contents", h, m.Header)
		}
	case transport.OffloadBack:
		if r == nil || r.matched != nil || p.Peer != 0 {
			return fmt.Errorf("OffloadBack of %d, rank %d: %v; it names rank 0", p.Cookie, p.Peer, r)
		}
		l.open = slices.DeleteFunc(l.open, func(o *posted) bool { return o == r })
	default:
		return fmt.Errorf("event %d, %+v: not from a device that matches tags", p.Event, p.Header)
	}
	r.done = p
	delete(l.held, p.Cookie)
	return nil
}

// fits returns the oldest receive that may get the next message.
func (l *list) fits(ok func(*posted) bool) *posted {
	packed, _ := transport.PackTag(3, 0, l.sent[l.next].Tag)
	i := slices.IndexFunc(l.open, func(r *posted) bool { return packed&r.mask == r.tag && ok(r) })
	if i < 0 {
		return nil
	}
	return l.open[i]
}

// matched takes the next message, which is for the oldest receive, when all messages that were left to software before
// the receive was posted have been dealt with. A receive that has been asked for may have been passed over.
func (l *list) matched(r *posted, tag int32) error {
	switch {
	case r == nil || r.gone || r.matched != nil:
		return fmt.Errorf("OffloadMatched: %v", r)
	case l.next == len(l.sent) || l.sent[l.next].Tag != tag:
		return fmt.Errorf("OffloadMatched with tag %d; message %d of %d is next", tag, l.next, len(l.sent))
	case r.after > l.left-l.unseen:
		return fmt.Errorf("message %d was matched with a receive before which %d were left to software; "+
			"%d are not dealt with", l.next, r.after, l.unseen)
	case l.fits(func(o *posted) bool { return o == r || !o.cancelled }) != r:
		return fmt.Errorf("message %d was matched with receive %d, which does not fit or is not the oldest",
			l.next, r.cookie)
	}
	l.open = slices.DeleteFunc(l.open, func(o *posted) bool { return o == r })
	r.matched = &l.sent[l.next]
	l.next++
	l.matches++
	return nil
}

// unmatched has software deal with the next message. If it finds a receive for it, that one is asked for.
func (l *list) unmatched(p transport.Packet) error {
	if l.next == len(l.sent) {
		return fmt.Errorf("%+v was not sent", p.Header)
	}
	m := l.sent[l.next]
	if h := p.Header; h.Kind != m.Kind || h.Ctx != m.Ctx || h.Tag != m.Tag || !bytes.Equal(p.Payload, m.body) ||
		m.Kind == wire.RTS && (h.Len != m.Len || h.Addr != m.Addr || h.Key != m.Key) {
		return fmt.Errorf("message %d, %+v, came as %+v with %d bytes", l.next, m.Header, h, len(p.Payload))
	}
	if r := l.fits(func(*posted) bool { return true }); r != nil {
		r.gone = true
		l.open = slices.DeleteFunc(l.open, func(o *posted) bool { return o == r })
		if !r.cancelled {
			l.cancel(r)
		}
	}
	l.next++
	l.left++
	l.unseen++
	return nil
}

// deliver posts a receive and sends a message for it until the device has matched one: it may hear of the receive later
// than of the message, which software has then. It returns OffloadDone.
func (l *list) deliver(h wire.Header, body, buf []byte) transport.Packet {
	l.f.Helper()
	for c := start(); !c.late(); {
		r := l.post(h.Tag, transport.MaskExact, buf)
		for range 20 {
			l.look()
		}
		l.send(h, body)
		l.until("the message, and the receive", func() bool {
			l.seen()
			return l.next == len(l.sent) && len(l.held) == 0
		})
		if r.matched != nil {
			return r.done
		}
	}
	l.f.Fatalf("the device matches no %v", h.Kind)
	return transport.Packet{}
}

// offloadEager checks that a message for which a receive has been handed down lands in its buffer, and nowhere else.
func offloadEager(f *fixture) {
	l := newList(f)
	buf := l.buffer(l.size())
	for i, n := range []int{0, 1, 100, 4080, l.a.link.Caps().EagerMax} {
		fill(buf, 1)
		if l.deliver(eager(int32(i)), pattern(n, uint64(i+2)), buf); !bytes.Equal(buf[n:], pattern(len(buf), 1)[n:]) {
			f.Errorf("%d bytes: something was written behind them", n)
		}
	}
	id := uint64(1)<<40 | 9
	done := l.deliver(wire.Header{Kind: wire.EagerSync, Flags: wire.Urgent, Tag: 7, ID: id}, pattern(100, 9), buf)
	f.must(l.b.send(wire.Header{Kind: wire.Matched, ID: done.Header.ID}, nil))
	if p, err := l.a.nextPacket(); err != nil || p.Header.Kind != wire.Matched || p.Header.ID != id {
		f.Errorf("the sender of %#x hears %+v, %v", id, p.Header, err)
	}
}

// offloadRendezvous checks that a long message is read by the device, which tells the sender; or, as always if the
// buffer is too short, it is left to the engine, with all that it needs.
func offloadRendezvous(f *fixture) {
	for _, size := range []int{400_000, 100_000} {
		l := newList(f)
		body, buf := pattern(300_000, 1), l.buffer(max(size, l.dev.Min))
		addr, key := f.register(l.a, body, transport.Readable)
		h := wire.Header{Kind: wire.RTS, Flags: wire.Urgent | wire.Readable, Tag: 5, ID: 1<<40 | 9,
			Len: uint64(len(body)), Addr: addr, Key: key}
		done := l.deliver(h, nil, buf).Header
		switch {
		case done.Kind == wire.FIN && len(buf) >= len(body):
		case done.Kind == wire.RTS && done.Addr == addr && done.Key == key && done.Ctx == 3 && done.Tag == 5:
			for n := 0; n < len(buf) && n < len(body); n += 50_000 {
				f.do(l.b, get.between(l.b, buf[n:min(n+50_000, len(buf), len(body))], done.Addr+uint64(n), done.Key))
			}
			f.must(l.b.send(wire.Header{Kind: wire.FIN, ID: done.ID}, nil))
		default:
			f.Fatalf("a buffer of %d bytes for %+v: OffloadDone says %+v", len(buf), h, done)
		}
		if n := min(len(buf), len(body)); !bytes.Equal(buf[:n], body[:n]) {
			f.Error("wrong contents")
		}
		if p, err := l.a.nextPacket(); err != nil || p.Header.Kind != wire.FIN || p.Header.ID != h.ID {
			f.Errorf("the sender hears %+v, %v", p.Header, err)
		}
	}
}

// offloadUnmatched checks that a message without a receive comes as it would without a list.
func offloadUnmatched(f *fixture) {
	l := newList(f)
	for i, h := range []wire.Header{
		eager(1),
		{Kind: wire.EagerSync, Flags: wire.Urgent, Tag: 2, ID: 4},
		{Kind: wire.RTS, Flags: wire.Urgent | wire.Readable, Tag: 3, ID: 5, Len: 200_000, Addr: 4096, Key: 77},
		{Kind: wire.RTS, Flags: wire.Urgent, Tag: 4, ID: 6, Len: 1 << 40},
	} {
		body := pattern(100, uint64(i))
		if h.Kind == wire.RTS {
			body = nil
		}
		l.send(h, body)
	}
	l.until("all messages", func() bool { return l.next == len(l.sent) })
	l.seen()
}

// offloadRestsUntilSeen checks that as long as a message is being dealt with, no later one overtakes it; then the
// receive is used.
func offloadRestsUntilSeen(f *fixture) {
	l := newList(f)
	l.send(eager(1), pattern(10, 1))
	l.until("the first message", func() bool { return l.next == 1 })
	r := l.post(1, transport.MaskExact, l.buffer(l.size())) // posted before software has dealt with it
	for range 20 {
		l.send(eager(1), pattern(10, 2))
	}
	l.until("the others", func() bool { return l.next == len(l.sent) })
	if r.matched != nil {
		f.Error("a message has overtaken one that was being dealt with")
	}
	l.seen()
	l.deliver(eager(1), pattern(10, 3), l.buffer(l.size()))
}

// offloadCancel checks that a receive that is asked for comes back, once, unless a message is faster.
func offloadCancel(f *fixture) {
	l := newList(f)
	buf := l.buffer(l.size())
	for i := range f.rounds(300) {
		r := l.post(int32(i), transport.MaskExact, buf)
		switch i % 3 {
		case 1:
			l.send(eager(int32(i)), pattern(10, uint64(i)))
		case 2:
			l.look()
		}
		l.cancel(r)
		l.dev.Cancel(r.cookie) // once is enough
		l.dev.Cancel(1 << 60)  // there is no such receive
		if i%3 == 1 {
			l.until("the message", func() bool { return l.next == len(l.sent) })
			l.seen()
		}
		l.until("the receive", func() bool { return len(l.held) == 0 })
	}
	f.must(l.b.quiet())
}

// offloadAfterDown checks that a receive that has been handed down comes back when it is asked for, also when its peer
// is gone.
func offloadAfterDown(f *fixture) {
	l := newList(f)
	for i := range int32(3) {
		l.post(i, transport.MaskExact, l.buffer(l.size()))
	}
	f.close(l.a)
	f.must(l.b.down())
	for _, r := range l.held {
		l.cancel(r)
	}
	l.until("all receives", func() bool { return len(l.held) == 0 })
}

// offloadFull checks that a full list is no error, and all of it comes back.
func offloadFull(f *fixture) {
	l := newList(f)
	size := max(l.dev.Min, 1)
	mem := l.buffer(l.dev.Tags * size)
	for i := range l.dev.Tags {
		l.post(int32(i), transport.MaskExact, mem[i*size:(i+1)*size])
	}
	if r := l.tryPost(1<<20, transport.MaskExact, mem[:size]); r != nil {
		f.Errorf("the device says that it holds %d receives, and has taken one more", l.dev.Tags)
	}
	for _, r := range l.held {
		l.cancel(r)
	}
	l.until("all receives", func() bool { return len(l.held) == 0 })
	l.deliver(eager(1), pattern(10, 1), mem[:max(size, 10)])
}

// offloadOrder checks that whatever is sent, posted and cancelled, and in however small portions it is polled, a
// message goes to the oldest receive that fits, and messages keep their order.
func offloadOrder(f *fixture) {
	l := newList(f)
	rng := rand.New(rand.NewPCG(5, 5))
	all := l.b.pkts
	bufs := make([][]byte, min(l.dev.Tags, 16))
	for i := range bufs {
		bufs[i] = l.buffer(l.size())
	}
	cookies := make([]uint64, len(bufs)) // which receive has the buffer, or had it
	for i, c := 0, start(); i < f.rounds(20_000) || l.matches < 10; i++ {
		if c.late() {
			f.Fatalf("the device has matched %d of %d messages", l.matches, len(l.sent))
		}
		if i%100 == 0 { // else a device that is slow with its list hardly comes to match
			l.until("all messages", func() bool { l.seen(); return l.next == len(l.sent) })
		}
		switch n := rng.IntN(len(bufs)); rng.IntN(8) {
		case 0, 1:
			l.send(eager(1+rng.Int32N(3)), pattern(rng.IntN(200), uint64(i)))
		case 2, 3, 4:
			r := l.held[cookies[n]]
			if r != nil {
				break
			}
			tag, mask := 1+rng.Int32N(3), transport.MaskExact
			if rng.IntN(3) == 0 {
				mask = transport.MaskAnyTag
			}
			if r = l.tryPost(tag, mask, bufs[n]); r != nil {
				cookies[n] = r.cookie
			}
		case 5:
			if r := l.held[cookies[n]]; r != nil && rng.IntN(3) == 0 {
				l.cancel(r)
			}
		case 6:
			l.seen()
		case 7:
			l.b.pkts = all[:1+rng.IntN(4)]
			l.look()
		}
	}
	l.b.pkts = all
	l.until("all messages", func() bool { l.seen(); return l.next == len(l.sent) })
	for _, r := range l.held {
		l.cancel(r)
	}
	l.until("all receives", func() bool { return len(l.held) == 0 })
}

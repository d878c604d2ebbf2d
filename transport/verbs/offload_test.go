//go:build verbs && !guest && linux && cgo

package verbs

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Tag matching by the device, which the software HCA alone does: rxe has none.

// An eager message that an entry waits for lands in its buffer, and no receive buffer is used for it.
func TestEagerExpected(t *testing.T) {
	g := newTaggers(t)
	for i, n := range []int{0, 1, 100, 4080, eagerMax} {
		cookie, tag := uint64(i+1), int32(10+i)
		buf, body := make([]byte, eagerMax), pattern(n, uint64(i))
		g.post(tag, transport.MaskExact, buf, cookie)
		g.settled()
		posted := g.dev[1].recv.posted
		g.send(eager(tag), body)
		g.want(1, "match", g.next(1), transport.Packet{Event: transport.OffloadMatched, Cookie: cookie,
			Header: wire.Header{Tag: tag}})
		g.want(1, "done", g.next(1), transport.Packet{Event: transport.OffloadDone, Cookie: cookie,
			Header: wire.Header{Kind: wire.Eager, Ctx: 3, Tag: tag, Len: uint64(n)}})
		if !bytes.Equal(buf[:n], body) || !bytes.Equal(buf[n:], make([]byte, len(buf)-n)) {
			t.Errorf("%d bytes: the buffer is wrong", n)
		}
		if g.dev[1].recv.posted != posted {
			t.Errorf("%d bytes: %d receive buffers were used", n, posted-g.dev[1].recv.posted)
		}
	}
}

// A rendezvous that an entry waits for: the device reads it, and its FIN comes to the sender. No software at the
// receiver until it is done, none at the sender in between.
func TestRendezvousExpected(t *testing.T) {
	g := newTaggers(t)
	body, buf := pattern(300_000, 1), make([]byte, 400_000)
	g.post(5, transport.MaskExact, buf, 77)
	g.settled()
	addr, key, ok := g.link[0].Caps().RMA.Register(transport.HostMem(body), transport.Readable)
	if !ok {
		t.Fatal("not registered")
	}
	reads := g.dev[1].stats.Reads
	id := uint64(1)<<40 | 9
	g.send(wire.Header{Kind: wire.RTS, Flags: wire.Urgent | wire.Readable, Ctx: 3, Tag: 5, ID: id,
		Len: uint64(len(body)), Addr: addr, Key: key}, nil)
	g.want(1, "match", g.next(1), transport.Packet{Event: transport.OffloadMatched, Cookie: 77,
		Header: wire.Header{Tag: 5}})
	done := g.next(1)
	if done.Event != transport.OffloadDone || done.Header.Kind != wire.FIN || done.Header.Len != uint64(len(body)) ||
		done.Err != nil {
		t.Errorf("done: %+v", done)
	}
	if !bytes.Equal(buf[:len(body)], body) {
		t.Error("the buffer is wrong")
	}
	if p := g.next(0); p.Event != transport.Arrived || p.Header.Kind != wire.FIN || p.Header.ID != id {
		t.Errorf("the sender hears %+v", p)
	}
	if n := g.dev[1].stats.Reads - reads; n != 0 {
		t.Errorf("software has posted %d READs", n)
	}
}

// What no entry is for comes as it would without a list, and is counted until the engine has dealt with it.
func TestUnexpected(t *testing.T) {
	g := newTaggers(t)
	body := pattern(200_000, 2)
	addr, key, _ := g.link[0].Caps().RMA.Register(transport.HostMem(body), transport.Readable)
	for _, h := range []wire.Header{
		eager(1),
		{Kind: wire.EagerSync, Flags: wire.Urgent, Ctx: 3, Tag: 2, ID: 4},
		{Kind: wire.RTS, Flags: wire.Urgent | wire.Readable, Ctx: 3, Tag: 3, ID: 5, Len: uint64(len(body)),
			Addr: addr, Key: key},
		{Kind: wire.RTS, Flags: wire.Urgent, Ctx: 3, Tag: 4, ID: 6, Len: 1 << 40},
	} {
		payload := pattern(100, 3)
		if h.Kind == wire.RTS {
			payload = nil
		}
		g.send(h, payload)
		p := g.next(1)
		if p.Event != transport.Unmatched || !bytes.Equal(p.Payload, payload) {
			t.Errorf("%v: %+v", h.Kind, p)
		}
		if h.ID != 0 {
			p.Header.ID = h.ID
		}
		if p.Header != h {
			t.Errorf("sent %+v, got %+v", h, p.Header)
		}
		g.dev[1].Facts().Offload.Seen()
	}
	if g.dev[1].tags.seen != 4 || g.dev[1].tags.unmatched != 4 {
		t.Errorf("%+v", g.dev[1].tags)
	}
}

// R6 and 1.8: an entry that is appended while the engine has not dealt with an unexpected message rests, so that the
// next message cannot overtake the first; when it has, the entry is used.
func TestEntryRestsUntilSeen(t *testing.T) {
	g := newTaggers(t)
	g.send(eager(1), pattern(10, 1))
	for g.dev[1].hca != nil && len(g.in[1]) == 0 { // it is in a receive buffer, and the engine has it in hand
		g.poll(1)
	}
	buf := make([]byte, eagerMax)
	g.post(1, transport.MaskExact, buf, 5) // it does not know of the first yet
	g.settled()
	g.send(eager(1), pattern(10, 2))
	first, second := g.next(1), g.next(1)
	for i, p := range []transport.Packet{first, second} {
		if p.Event != transport.Unmatched || !bytes.Equal(p.Payload, pattern(10, uint64(i+1))) {
			t.Errorf("message %d: %+v", i, p)
		}
	}
	g.dev[1].Facts().Offload.Seen()
	g.dev[1].Facts().Offload.Seen()
	g.settled() // SYNC: the entry has been said to rest
	g.send(eager(1), pattern(10, 3))
	if p := g.next(1); p.Event != transport.OffloadMatched || p.Cookie != 5 {
		t.Errorf("after SYNC: %+v", p)
	}
	if p := g.next(1); p.Event != transport.OffloadDone || !bytes.Equal(buf[:10], pattern(10, 3)) {
		t.Errorf("after SYNC: %+v", p)
	}
}

// R10: a receive that is taken back is the engine's again, unless a message was faster.
func TestTakenBack(t *testing.T) {
	g := newTaggers(t)
	buf := make([]byte, eagerMax)
	g.post(1, transport.MaskExact, buf, 5)
	g.dev[1].Facts().Offload.Cancel(5)
	g.dev[1].Facts().Offload.Cancel(5) // once is enough
	g.dev[1].Facts().Offload.Cancel(99)
	g.want(1, "back", g.next(1), transport.Packet{Event: transport.OffloadBack, Cookie: 5})
	fromSelf, _ := transport.PackTag(3, 1, 1)
	if got := g.dev[1].Facts().Offload.Post(fromSelf, transport.MaskExact, transport.HostMem(buf),
		4); got != transport.PostedDown {
		t.Fatal(got)
	}
	g.dev[1].Facts().Offload.Cancel(4)
	g.want(1, "back", g.next(1), transport.Packet{Event: transport.OffloadBack, Peer: 1, Cookie: 4})
	g.settled()
	g.post(2, transport.MaskExact, buf, 6)
	g.settled()
	g.send(eager(2), pattern(3, 1))
	for len(g.dev[1].stash) == 0 { // the match is there, and the engine has not looked
		if !g.dev[1].Arm(transport.Any) {
			continue
		}
		g.dev[1].Disarm()
		g.poll(0)
	}
	g.dev[1].Facts().Offload.Cancel(6)
	if p := g.next(1); p.Event != transport.OffloadMatched || p.Cookie != 6 {
		t.Errorf("%+v", p)
	}
	if p := g.next(1); p.Event != transport.OffloadDone || p.Cookie != 6 {
		t.Errorf("%+v", p)
	}
	g.settled()
	if len(g.in[1]) != 0 || len(g.dev[1].tags.free) != len(g.dev[1].tags.all) {
		t.Errorf("%d packets more, %d of %d entries free", len(g.in[1]), len(g.dev[1].tags.free), len(g.dev[1].tags.all))
	}
}

// A rendezvous that is longer than the buffer is left to the engine, with all that it needs.
func TestRendezvousTooLong(t *testing.T) {
	g := newTaggers(t)
	body, buf := pattern(300_000, 1), make([]byte, 100_000)
	g.post(5, transport.MaskExact, buf, 77)
	g.settled()
	addr, key, _ := g.link[0].Caps().RMA.Register(transport.HostMem(body), transport.Readable)
	g.send(wire.Header{Kind: wire.RTS, Flags: wire.Urgent | wire.Readable, Ctx: 3, Tag: 5, ID: 9,
		Len: uint64(len(body)), Addr: addr, Key: key}, nil)
	if p := g.next(1); p.Event != transport.OffloadMatched {
		t.Errorf("%+v", p)
	}
	p := g.next(1)
	h := p.Header
	if p.Event != transport.OffloadDone || p.Err != nil || h.Kind != wire.RTS || h.Len != uint64(len(body)) ||
		h.Addr != addr || h.Key != key || h.Tag != 5 || h.Ctx != 3 {
		t.Fatalf("%+v", p)
	}
	g2 := g.link[1]
	if !g2.TrySend(&wire.Header{Kind: wire.FIN, ID: h.ID}, nil) {
		t.Fatal("no room")
	}
	if p := g.next(0); p.Header.Kind != wire.FIN || p.Header.ID != 9 {
		t.Errorf("the sender hears %+v", p)
	}
}

// R7: the device's counter has 16 bits; it is told before they are used up, and goes on matching beyond them.
func TestCounterWraps(t *testing.T) {
	g := newTaggers(t)
	const n = 1<<16 + 100
	got := 0
	for i := 0; got < n; {
		if i < n {
			h := eager(1)
			if g.link[0].TrySend(&h, nil) {
				i++
			}
		}
		g.poll(0)
		g.poll(1)
		for _, p := range g.in[1] {
			if p.Event == transport.Unmatched {
				g.dev[1].Facts().Offload.Seen()
				got++
			}
		}
		g.in[1] = g.in[1][:0]
	}
	buf := make([]byte, eagerMax)
	g.post(2, transport.MaskExact, buf, 5)
	g.settled()
	g.send(eager(2), pattern(3, 1))
	if p := g.next(1); p.Event != transport.OffloadMatched {
		t.Errorf("%+v", p)
	}
}

// R12: a full list is no error, and every entry comes back.
func TestListFull(t *testing.T) {
	g := newTaggers(t)
	n := len(g.dev[1].tags.all)
	mem, err := g.dev[1].facts.Memory.Alloc(n * 64)
	if err != nil {
		t.Fatal(err)
	}
	posted := 0
	for end := time.Now().Add(patience); posted < n && time.Now().Before(end); {
		packed, _ := transport.PackTag(3, 0, int32(posted))
		if g.dev[1].Facts().Offload.Post(packed, transport.MaskExact, transport.HostMem(mem[posted*64:posted*64+64]),
			uint64(posted+1)) == transport.PostedDown {
			posted++
		}
		g.poll(1)
	}
	if posted != n {
		t.Fatalf("%d of %d entries", posted, n)
	}
	if got := g.dev[1].Facts().Offload.Post(1<<20, transport.MaskExact, transport.HostMem(mem[:64]),
		1<<40); got != transport.PostedFull {
		t.Errorf("one more: %d", got)
	}
	for i := range n {
		g.dev[1].Facts().Offload.Cancel(uint64(i + 1))
	}
	for i := range n {
		if p := g.next(1); p.Event != transport.OffloadBack {
			t.Fatalf("entry %d: %+v", i, p)
		}
	}
	g.settled()
	if len(g.dev[1].tags.free) != n {
		t.Errorf("%d of %d entries are free", len(g.dev[1].tags.free), n)
	}
}

// A peer that ends while its message is under way into a tagged buffer: the engine is told that it will not come.
func TestTaggedPeerGone(t *testing.T) {
	g := newTaggers(t)
	buf := make([]byte, 1<<20)
	g.post(5, transport.MaskExact, buf, 77)
	g.settled()
	// The memory is not registered: the device's READ is refused.
	g.send(wire.Header{Kind: wire.RTS, Flags: wire.Urgent | wire.Readable, Ctx: 3, Tag: 5, ID: 9, Len: 1 << 20,
		Addr: 4096, Key: 12345}, nil)
	matched, done, down := false, false, false
	for !done || !down {
		switch p := g.next(1); p.Event {
		case transport.OffloadMatched:
			matched = true
		case transport.OffloadDone:
			done = p.Err != nil && matched
			if !done {
				t.Errorf("%+v", p)
			}
		case transport.Down:
			down = done
			if !down {
				t.Errorf("Down comes before the end of its message: %+v", p)
			}
		}
	}
}

// What the device was doing for a receive when the connection failed has ended before Down: nothing is written to its
// buffer afterwards, and the end, which comes late, is not taken for that of the next receive in the same entry.
func TestLateFlush(t *testing.T) {
	needSoft(t)
	t.Setenv("SOFTHCA_FLUSH_DELAY", "50000")
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		g := newTaggers(t, func(o *Options) { o.closing = time.Millisecond })
		g.readPending()
		if round == 0 { // a device that gives nothing back: its queue pairs are destroyed
			g.inject(1, "pause")
		}
		b := g.dev[1]
		b.mu.Lock()
		qpn := b.sessions[0].qpn
		b.mu.Unlock()
		g.inject(1, fmt.Sprintf("qp_fatal:%d", qpn))
		if p := g.next(1); p.Event != transport.OffloadDone || p.Cookie != 5 || p.Err == nil {
			t.Fatalf("after the failure: %+v", p)
		}
		if p := g.next(1); p.Event != transport.Down {
			t.Fatalf("after the receive: %+v", p)
		}
		g.inject(1, "resume")
		fromSelf, _ := transport.PackTag(3, 1, 1)
		buf := make([]byte, eagerMax)
		if got := b.tags.post(fromSelf, transport.MaskExact, transport.HostMem(buf), 6); got != transport.PostedDown {
			t.Fatal(got)
		}
		for until := time.Now().Add(150 * time.Millisecond); time.Now().Before(until); g.poll(1) {
			if len(g.in[1]) > 0 {
				t.Fatalf("nothing was sent, and the next receive hears %+v", g.in[1][0])
			}
		}
	}
}

func (g *taggers) inject(rank int, what string) {
	g.t.Helper()
	if err := g.dev[rank].hca.inject(what); err != nil {
		g.t.Fatal(err)
	}
}

// A peer that sends in another's name: the device matches what it says, and the receive fails, as does the connection.
func TestMatchOfAnothersName(t *testing.T) {
	g := newTaggers(t)
	fromSelf, _ := transport.PackTag(3, 1, 1)
	buf := make([]byte, eagerMax)
	if got := g.dev[1].tags.post(fromSelf, transport.MaskExact, transport.HostMem(buf), 5); got != transport.PostedDown {
		t.Fatal(got)
	}
	g.settled()
	g.dev[0].opt.Rank = 1
	g.send(eager(1), pattern(10, 1))
	if p := g.next(1); p.Event != transport.OffloadMatched || p.Cookie != 5 {
		t.Errorf("%+v", p)
	}
	if p := g.next(1); p.Event != transport.OffloadDone || p.Cookie != 5 || p.Err == nil {
		t.Errorf("%+v", p)
	}
	if p := g.next(1); p.Event != transport.Down || p.Peer != 0 {
		t.Errorf("%+v", p)
	}
}

// A completion that names an earlier use of an entry says nothing of the present one.
func TestOtherUseOfAnEntry(t *testing.T) {
	g := newTaggers(t)
	buf := make([]byte, eagerMax)
	d := g.dev[1]
	g.post(1, transport.MaskExact, buf, 5)
	i := d.tags.byCookie[5]
	receive, del := d.tags.number(ownTagged, 0, i), d.tags.number(ownOperation, operationDel, i)
	d.tags.cancel(5)
	g.want(1, "back", g.next(1), transport.Packet{Event: transport.OffloadBack, Cookie: 5})
	g.settled()
	g.post(1, transport.MaskExact, buf, 6)
	g.settled()
	if d.tags.byCookie[6] != i {
		t.Fatalf("entry %d is used for the second receive, and %d was for the first", d.tags.byCookie[6], i)
	}
	const flushed = 5 // IBV_WC_WR_FLUSH_ERR
	var pkts [2]transport.Packet
	if n := d.tags.landed(&completion{id: receive, status: flushed}, pkts[:]); n != 0 {
		t.Errorf("%+v", pkts[:n])
	}
	d.tags.ops++ // operated takes it for one that was counted
	d.tags.operated(&completion{id: del})
	if len(d.events) > 0 {
		t.Errorf("%+v", d.events)
	}
	g.send(eager(1), pattern(10, 1))
	if p := g.next(1); p.Event != transport.OffloadMatched || p.Cookie != 6 {
		t.Errorf("%+v", p)
	}
}

// readPending: rank 1's device has matched a long message with a receive, of cookie 5, and its READ gets no answer.
func (g *taggers) readPending() {
	g.t.Helper()
	body := make([]byte, 1<<20)
	addr, key, ok := g.link[0].Caps().RMA.Register(transport.HostMem(body), transport.Readable)
	if !ok {
		g.t.Fatal("Register was refused")
	}
	g.post(1, transport.MaskExact, make([]byte, len(body)), 5)
	g.settled()
	g.inject(1, "pause")
	g.send(wire.Header{Kind: wire.RTS, Flags: wire.Urgent | wire.Readable, Ctx: 3, Tag: 1, ID: 9, Len: uint64(len(body)),
		Addr: addr, Key: key}, nil)
	for end := time.Now().Add(patience); ; { // until rank 0 is paused behind its message
		g.inject(0, "pause")
		g.inject(1, "resume")
		for until := time.Now().Add(20 * time.Millisecond); time.Now().Before(until) && len(g.in[1]) == 0; {
			g.poll(1)
		}
		if len(g.in[1]) > 0 {
			break
		}
		g.inject(1, "pause")
		g.inject(0, "resume")
		if time.Now().After(end) {
			g.t.Fatal("no match")
		}
	}
	if p := g.next(1); p.Event != transport.OffloadMatched || len(g.in[1]) > 0 {
		g.t.Fatalf("%+v, %d more", p, len(g.in[1]))
	}
}

func TestIDTable(t *testing.T) {
	var n idTable
	if n.number(0) != 0 || n.id(0, true) != 0 || n.id(17, true) != 17 {
		t.Error("0 is 0, and a number that stands for nothing stays")
	}
	ids := map[uint32]uint64{}
	for i := range uint64(1000) {
		id := i<<40 | 5
		k := n.number(id + 1)
		if k == 0 || ids[k] != 0 || n.number(id+1) != k {
			t.Fatalf("number %d", k)
		}
		ids[k] = id + 1
		if i%3 == 0 {
			if got := n.id(uint64(k), false); got != id+1 {
				t.Fatalf("%#x", got)
			}
			if got := n.id(uint64(k), true); got != id+1 {
				t.Fatalf("%#x", got)
			}
			if got := n.id(uint64(k), true); got != uint64(k) {
				t.Fatalf("%#x after its end", got)
			}
			delete(ids, k)
		}
	}
	for k, id := range ids {
		if n.id(uint64(k), true) != id {
			t.Error("one is lost")
		}
	}
	if len(n.numbers) != 0 || len(n.ids) > 800 {
		t.Errorf("%d are kept, in %d places", len(n.numbers), len(n.ids))
	}
}

// A match is reported in its place: before the messages that came after it.
func TestMatchKeepsItsPlace(t *testing.T) {
	g := newTaggers(t)
	for _, room := range []int{1, 2, 3, 8} {
		buf := make([]byte, eagerMax)
		g.post(1, transport.MaskExact, buf, 5)
		g.settled()
		g.send(eager(1), pattern(10, 1))
		g.send(eager(2), pattern(10, 2))
		g.dev[0].deliver(time.Now().Add(patience))
		for len(g.dev[1].stash) < 2 && g.dev[1].hca != nil { // both completions are there
			g.dev[1].stash = nil
			n, _, err := g.dev[1].hca.turn(nil, g.dev[1].wcs[:])
			if err != nil {
				t.Fatal(err)
			}
			g.dev[1].stash = append([]completion(nil), g.dev[1].wcs[:n]...)
			if n == 1 {
				k, _, _ := g.dev[1].hca.turn(nil, g.dev[1].wcs[:])
				for k == 0 {
					k, _, _ = g.dev[1].hca.turn(nil, g.dev[1].wcs[:])
				}
				g.dev[1].stash = append(g.dev[1].stash, g.dev[1].wcs[:k]...)
			}
		}
		var order []transport.Event
		pkts := make([]transport.Packet, room)
		for len(order) < 3 {
			for _, p := range pkts[:g.dev[1].Poll(pkts)] {
				order = append(order, p.Event)
			}
		}
		match, next := -1, -1
		for i, e := range order {
			switch e {
			case transport.OffloadMatched:
				match = i
			case transport.Unmatched:
				next = i
			}
		}
		if match < 0 || next < match {
			t.Errorf("%d packets at a time: %v", room, order)
		}
		g.dev[1].Facts().Offload.Seen()
	}
}

// Completions for which a Poll had no room are kept, also those that it had not begun to look at.
func TestNoRoomForAll(t *testing.T) {
	g := newTaggers(t)
	const n = 12
	mem, err := g.dev[1].facts.Memory.Alloc(n * eagerMax)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		g.post(int32(i), transport.MaskExact, mem[i*eagerMax:(i+1)*eagerMax], uint64(i+1))
	}
	g.settled()
	for i := range n {
		g.send(eager(int32(i)), pattern(10, uint64(i)))
	}
	g.dev[0].deliver(time.Now().Add(patience))
	for len(g.dev[1].stash) < n { // all are there, as Arm would find them
		k, _, err := g.dev[1].hca.turn(nil, g.dev[1].wcs[len(g.dev[1].stash):])
		if err != nil {
			t.Fatal(err)
		}
		g.dev[1].stash = g.dev[1].wcs[:len(g.dev[1].stash)+k]
	}
	done := map[uint64]bool{}
	pkts := make([]transport.Packet, 5)
	for end := time.Now().Add(patience); len(done) < n; {
		for _, p := range pkts[:g.dev[1].Poll(pkts)] {
			if p.Event == transport.OffloadDone {
				done[p.Cookie] = true
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d matches are reported", len(done), n)
		}
	}
}

package pml

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// testNIC is a device that matches tags, of one rank of a testNet, as hardware does: list operations happen later and in
// order, entries appended while messages are with software are inert until the counters agree, a match and its end are
// one event or two, rendezvous are done by it or left to software. What it is asked for it checks: misuse fails the test.
// Guarded by testNet.mu, but for what its maker sets.
type testNIC struct {
	*testDevice
	limits nicLimits
	off    *transport.Offload // made on first use

	peers []int      // whose messages come through it; nil: everybody's
	rng   *rand.Rand // nil: everything happens at once, and two events are two

	slow    bool     // nothing happens but what the test asks for, and tick(true)
	log     []string // what it was asked for, unless trusted
	refuse  int      // in 1 of refuse times post says no; 0: never
	noSync  bool     // counters are reported with list operations only
	noRead  bool     // all rendezvous are left to software
	trusted bool     // the order of post is not checked: it takes time

	ops     []nicOp
	list    []*nicEntry          // what it matches with, oldest first
	entries map[uint64]*nicEntry // by cookie, from post until Poll has given Done or Back
	buffers map[*byte]bool       // theirs
	cookies map[uint64]bool      // ever
	running []*nicEntry          // matched, and not done
	cq      []transport.Packet   // not given to Poll
	ended   []uint64             // cookies of Done and Back that the latest Poll has given

	hw, sw                         uint16 // messages given to software; those of them that software has reported as seen
	counted, given, seen, reported uint64 // given to software; polled; seen; told with an operation
	matches                        int
	last                           []byte // buffer that was handed down
	misuse                         int
}

// nicLimits are what it takes: receives, and bytes of the shortest buffer.
type nicLimits struct{ Tags, Min int }

// nicOp is a list operation.
type nicOp struct {
	do    byte // 'a'dd, 'd'elete or 's'ync
	e     *nicEntry
	count uint64 // seen, when it was asked for
}

type nicEntry struct {
	tag, mask uint64
	buf       []byte
	cookie    uint64
	active    bool
	cancelled bool
	message   transport.Packet // that it has matched
	told      bool             // to the model of a test
}

func (c *testNIC) behind(peer int) bool {
	if c.peers == nil {
		return peer != c.rank
	}
	for _, p := range c.peers {
		if p == peer {
			return true
		}
	}
	return false
}

func (c *testNIC) must(ok bool, format string, args ...any) {
	if !ok {
		c.misuse++
		c.net.misuse = append(c.net.misuse, fmt.Sprintf("the NIC of rank %d: ", c.rank)+fmt.Sprintf(format, args...))
	}
}

// oneOf reports whether a throw of n-sided dice shows one side, which is once in n times.
func (c *testNIC) oneOf(n int) bool { return c.rng != nil && n > 0 && c.rng.IntN(n) == 0 }

// offload is one and the same whenever it is asked for.
func (c *testNIC) offload() *transport.Offload {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.off == nil {
		c.off = &transport.Offload{Tags: c.limits.Tags, Min: c.limits.Min, Post: c.post, Cancel: c.cancel, Seen: c.sawOne}
	}
	return c.off
}

func (c *testNIC) post(tag, mask uint64, mem transport.Mem, cookie uint64) transport.Posted {
	buf := mem.Bytes()
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.entries == nil {
		c.entries, c.buffers, c.cookies = map[uint64]*nicEntry{}, map[*byte]bool{}, map[uint64]bool{}
	}
	_, source, _ := transport.UnpackTag(tag)
	c.must(tag&^mask == 0 && (mask == transport.MaskExact || mask == transport.MaskAnyTag), "tag %#x, mask %#x", tag, mask)
	c.must(c.behind(int(source)), "a receive from rank %d, whose messages come another way", source)
	c.must(len(buf) >= c.limits.Min && len(buf) > 0, "a buffer of %d bytes, the least is %d", len(buf), c.limits.Min)
	c.must(len(c.entries) < c.limits.Tags, "%d receives are here, and one more", len(c.entries))
	c.must(!c.cookies[cookie], "cookie %#x for the second time", cookie)
	if len(buf) == 0 || len(c.entries) >= c.limits.Tags {
		return transport.PostedFull
	}
	c.must(!c.buffers[&buf[0]], "the same buffer twice")
	switch {
	case c.oneOf(2 * c.refuse):
		return transport.PostedFull
	case c.oneOf(2*c.refuse) || c.net.refused:
		return transport.PostedUnmapped
	}
	c.note("post %d/%d/%d", tag>>48, source, tag&mask&wire.MaxTag)
	c.last = buf
	e := &nicEntry{tag: tag, mask: mask, buf: buf, cookie: cookie}
	c.entries[cookie], c.buffers[&buf[0]] = e, true
	if !c.trusted {
		c.cookies[cookie] = true
		c.inOrder(e, source)
	}
	c.operate(nicOp{do: 'a', e: e, count: c.seen})
	return transport.PostedDown
}

// overlaps reports whether a message could match both.
func (e *nicEntry) overlaps(tag, mask uint64) bool { return (e.tag^tag)&e.mask&mask == 0 }

// inOrder: every older receive that overlaps is here, and none that is here is younger. The engine's lock is held.
func (c *testNIC) inOrder(e *nicEntry, source int32) {
	engine := c.net.engines[c.rank]
	older := true
	for _, m := range engine.links.table.Naming(source) {
		r := m.Owner.(*Request)
		if s := engine.links.offload.find(e.cookie); s != nil && s.r == r {
			older = false
			continue
		}
		tag, mask := r.recv.Tag, transport.MaskExact
		if tag == AnyTag {
			tag, mask = 0, transport.MaskAnyTag
		}
		packed, fits := transport.PackTag(r.recv.Ctx, source, tag)
		if !fits || !e.overlaps(packed, mask) {
			continue
		}
		_, here := c.entries[r.offload.cookie]
		here = here && r.offload.state == inDevice
		c.must(here == older, "receive %d/%d/%d is posted; one of the same messages stands with software and is older: %v; or is here and is younger: %v",
			r.recv.Ctx, r.recv.Source, r.recv.Tag, older, !older)
	}
	for _, m := range engine.links.table.Naming(AnySource) {
		tag, mask := m.Tag, ^uint64(1<<48-1)
		if tag != AnyTag {
			mask |= wire.MaxTag
		}
		packed, _ := transport.PackTag(m.Ctx, 0, max(tag, 0))
		c.must(!e.overlaps(packed, mask), "a receive from any source could match the same messages")
	}
}

func (c *testNIC) cancel(cookie uint64) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	e := c.entries[cookie]
	c.must(e != nil || slices.Contains(c.ended, cookie), "Cancel of cookie %#x, which is not here", cookie)
	if e != nil {
		c.must(!e.cancelled, "Cancel of the same receive twice")
		e.cancelled = true
		c.note("cancel %d", e.tag&wire.MaxTag)
		c.operate(nicOp{do: 'd', e: e, count: c.seen})
	}
}

func (c *testNIC) sawOne() {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.seen++
	c.note("seen")
	c.must(c.seen <= c.given, "Seen for the %d-th time, %d packets were counted", c.seen, c.given)
	if !c.noSync || c.seen-c.reported >= 1<<14 {
		c.operate(nicOp{do: 's', count: c.seen})
	}
}

func (c *testNIC) note(format string, args ...any) {
	if !c.trusted {
		c.log = append(c.log, fmt.Sprintf(format, args...))
	}
}

func (c *testNIC) operate(op nicOp) {
	c.reported = op.count
	c.ops = append(c.ops, op)
	if c.rng == nil && !c.slow {
		c.runOp()
	}
}

// runOp does the oldest list operation.
func (c *testNIC) runOp() {
	op := c.ops[0]
	c.ops = c.ops[1:]
	c.sw = uint16(op.count)
	switch op.do {
	case 'a':
		c.list = append(c.list, op.e)
		n := len(c.list)
		op.e.active = c.sw == c.hw && (n == 1 || c.list[n-2].active)
		return
	case 'd':
		for i, e := range c.list {
			if e == op.e {
				c.list = append(c.list[:i], c.list[i+1:]...)
				c.cq = append(c.cq, transport.Packet{Event: transport.OffloadBack, Cookie: e.cookie})
				break
			}
		}
	}
	if c.sw == c.hw {
		for _, e := range c.list {
			e.active = true
		}
	}
}

func isMessage(k wire.Kind) bool { return k == wire.Eager || k == wire.EagerSync || k == wire.RTS }

// arrive is a packet at the end of its wire.
func (c *testNIC) arrive(pkt transport.Packet) {
	c.some()
	h := &pkt.Header
	tag, fits := transport.PackTag(h.Ctx, pkt.Peer, h.Tag)
	if !isMessage(h.Kind) || !fits {
		c.cq = append(c.cq, pkt)
		return
	}
	for i, e := range c.list {
		if e.active && tag&e.mask == e.tag {
			c.list = append(c.list[:i], c.list[i+1:]...)
			c.match(e, pkt)
			return
		}
	}
	c.hw++
	c.counted++
	c.must(c.counted-c.reported < 1<<16, "%d messages are with software, the counter cannot say that", c.counted-c.reported)
	pkt.Event = transport.Unmatched
	c.cq = append(c.cq, pkt)
}

func (c *testNIC) match(e *nicEntry, pkt transport.Packet) {
	c.matches++
	h := pkt.Header
	e.message = pkt
	if c.net.hostile && len(pkt.Payload) > len(e.buf) { // longer than eager messages are: the connection breaks
		c.cq = append(c.cq, transport.Packet{Event: transport.OffloadDone, Peer: pkt.Peer, Cookie: e.cookie, Err: transport.ErrPeerGone},
			transport.Packet{Event: transport.Down, Peer: pkt.Peer, Err: transport.ErrPeerGone})
		return
	}
	c.must(len(pkt.Payload) <= len(e.buf), "a message of %d bytes does not fit into a buffer of %d", len(pkt.Payload), len(e.buf))
	if !c.oneOf(2) {
		c.cq = append(c.cq, transport.Packet{Event: transport.OffloadMatched, Peer: pkt.Peer, Cookie: e.cookie, Header: wire.Header{Tag: h.Tag}})
		if c.rng != nil || c.slow {
			c.running = append(c.running, e)
			return
		}
	}
	c.end(e)
}

// end moves the payload, if that is the NIC's to do.
func (c *testNIC) end(e *nicEntry) {
	pkt := e.message
	done := transport.Packet{Event: transport.OffloadDone, Peer: pkt.Peer, Cookie: e.cookie, Header: pkt.Header}
	h := &done.Header
	if h.Kind != wire.RTS {
		h.Len = uint64(copy(e.buf, pkt.Payload))
	} else if h.Len > uint64(len(e.buf)) {
		copy(e.buf, "header of a message that does not fit, scattered here")
	} else if r, ok := c.net.regions[h.Addr/registeredAt]; ok && h.Flags&wire.Readable != 0 && !c.noRead && !c.oneOf(3) {
		c.must(h.Len <= uint64(len(r.buf)) || c.net.hostile, "an RTS of %d bytes, %d are registered", h.Len, len(r.buf))
		copy(e.buf[:min(h.Len, uint64(len(e.buf)))], r.buf)
		w := [2]int{c.rank, int(pkt.Peer)}
		fin := wire.Header{Kind: wire.FIN, ID: h.ID}
		c.net.log("NIC reads %d bytes of %d; %s", h.Len, pkt.Peer, describe(c.rank, int(pkt.Peer), &fin, nil))
		c.net.wires[w] = append(c.net.wires[w], transport.Packet{Peer: int32(c.rank), Header: fin})
		h.Kind = wire.FIN
	}
	c.cq = append(c.cq, done)
}

// some lets a few of the things happen that take time.
func (c *testNIC) some() {
	for c.rng != nil && c.rng.IntN(3) != 0 {
		if len(c.ops) > 0 && c.rng.IntN(2) == 0 {
			c.runOp()
		} else if n := len(c.running); n > 0 {
			i := c.rng.IntN(n)
			e := c.running[i]
			c.running = append(c.running[:i], c.running[i+1:]...)
			c.end(e)
		}
	}
}

// tick gives software what there is; all: all that there will be.
func (c *testNIC) tick(all bool) {
	c.some()
	for all && len(c.ops) > 0 {
		c.runOp()
	}
	for ; all && len(c.running) > 0; c.running = c.running[1:] {
		c.end(c.running[0])
	}
	n := len(c.cq)
	if !all && c.rng != nil {
		n = c.rng.IntN(n + 1)
	}
	c.inbox = append(c.inbox, c.cq[:n]...)
	c.cq = c.cq[n:]
}

func (c *testNIC) busy() bool { return len(c.ops)+len(c.running)+len(c.cq) > 0 }

// polled is called when software has the messages.
func (c *testNIC) polled(pkts []transport.Packet) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.ended = c.ended[:0]
	for i := range pkts {
		switch pkts[i].Event {
		case transport.Unmatched:
			c.given++
		case transport.OffloadDone, transport.OffloadBack:
			if e := c.entries[pkts[i].Cookie]; e != nil {
				c.ended = append(c.ended, e.cookie)
				delete(c.entries, e.cookie)
				delete(c.buffers, &e.buf[0])
			}
		}
	}
}

// owes is the credit of messages from a rank that have been matched and are not done.
func (c *testNIC) owes(from int) (sum int64) {
	for _, e := range c.running {
		if e.message.Peer == int32(from) {
			sum += messageCost(e.message.Header.Kind, len(e.message.Payload))
		}
	}
	for _, pkt := range c.cq {
		if pkt.Event == transport.OffloadDone && pkt.Peer == int32(from) {
			sum += messageCost(pkt.Header.Kind, int(pkt.Header.Len))
		}
	}
	return sum
}

func messageCost(k wire.Kind, payload int) int64 {
	if k == wire.RTS || k == wire.FIN {
		return eager.Envelope
	}
	return eager.Cost(payload)
}

// offloadConsistent checks an engine's books about its device.
func (e *Engine) offloadConsistent() error {
	o := &e.links.offload
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("rank %d: %s", e.cfg.Rank, fmt.Sprintf(format, args...))
	}
	used := 0
	for i := range o.slots {
		s := &o.slots[i]
		if s.p == nil {
			continue
		}
		used++
		if !o.holds(s.buf) || o.find(s.cookie) != s {
			return wrong("slot %d is not found", i)
		}
		if r := s.r; r != nil && (r.state != stActive || s.matched != (r.offload.state == offloadNone) || !s.matched && (r.offload.state != inDevice || r.offload.cookie != s.cookie)) {
			return wrong("slot %d, matched %v, has a request that is in state %d, offload state %d", i, s.matched, r.state, r.offload.state)
		}
	}
	chained := 0
	for _, head := range o.byBuf {
		for i := head; i >= 0; i = o.slots[i].next {
			chained++
		}
	}
	if chained != used || used > o.tags {
		return wrong("%d slots are in use, %d are in chains, %d are allowed", used, chained, o.tags)
	}
	for _, p := range e.links.peers {
		if p == nil {
			continue
		}
		var soft, wild int32
		for _, m := range e.links.table.Naming(p.rank) {
			r := m.Owner.(*Request)
			if (r.offload.state != offloadNone) != p.tags.able {
				return wrong("a receive from rank %d, able %v, is in hand %d", p.rank, p.tags.able, r.offload.state)
			}
			if r.offload.state == inSoftware {
				soft++
				if r.recv.Tag == AnyTag {
					wild++
				}
			}
		}
		if soft != p.tags.soft || wild != p.tags.softWild {
			return wrong("of the receives from rank %d, %d are with software, %d for any tag; the books say %d and %d", p.rank, soft, wild, p.tags.soft, p.tags.softWild)
		}
	}
	return nil
}

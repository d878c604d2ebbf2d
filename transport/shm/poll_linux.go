package shm

import (
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/ring"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// inRing is a ring that one peer writes and this rank reads.
type inRing struct {
	c    *ring.Consumer
	mem  []byte
	card []byte // what the peer has introduced itself with
	sender
	number      uint32
	peer        int32
	polled      bool    // in Device.polled, and the producer does not mark it; else the ring is armed
	idle        int     // empty polls since the last packet, while polled
	dead        bool    // the peer wrote nonsense: never read again
	endReported bool    // the end of the peer has been reported
	inUse       bool    // polls find it; guarded by Device.mu
	letter      *letter // of a ring that was claimed; the peer writes it
	cut         bool    // its end has been read there
	// inbox is the sender's; nil: not known yet, see meetSender.
	inbox atomic.Pointer[peerInbox]

	// ended is why the peer sends no more. It is set under Device.mu before a mark, and read by Poll after the mark.
	ended error
}

// A slot's meta word (low 32 bits of word 0) and its words:
//
//	meta   31 ... 24 │ 23 ... 16 │ 15 ... 8 │ 7 ... 0
//	         where   │  length   │  flags   │  kind
//	W[0]   tag << 32 | ctx
//	short header: W[1…] payload, or W[1] = length << 32 | offset in an area
//	long header:  W[1] ID, W[2] Len, W[3] Addr, W[4] Key, W[5…] as above
const (
	inSlot  = 0 // the payload's length is in meta
	inSmall = 1
	inBulk  = 2

	shortAt = 1
	longAt  = 5

	inlineShort = ring.SlotSize - 8 - 8*shortAt // 112 bytes
	inlineLong  = ring.SlotSize - 8 - 8*longAt  // 80 bytes
)

// maxBurst is how many short messages are taken from a ring before the next ring has its turn. Slots that a burst has
// gone past are released after it: they are a quarter of the smallest ring at most.
const maxBurst = 16

// pollBytes ends a poll early: large fragments should be copied out and their room freed before more is read.
const pollBytes = 64 << 10

// Poll is transport.Device's.
func (d *Device) Poll(pkts []transport.Packet) int {
	d.burst = nil
	if len(d.last) != 0 {
		d.release()
	}
	n := 0
	if len(d.refused) != 0 {
		if n = d.takeRooms(pkts); n == len(pkts) {
			return n
		}
	}
	if d.boards.Expecting() {
		if n += d.boards.Poll(pkts[n:]); n == len(pkts) {
			return n
		}
	}
	if d.full { // the last one was, before it came to the marks
		d.full = false
		if n += d.pollMarked(pkts[n:]); n == len(pkts) {
			return n
		}
	}
	for i, r := range d.polled {
		if got := r.poll(d, pkts[n:]); got != 0 {
			n += got
			r.idle = 0
			if n == len(pkts) { // a flood from one peer must not starve the others: its ring goes last next time
				copy(d.polled[i:], d.polled[i+1:])
				d.polled[len(d.polled)-1] = r
				d.full = true
				return n
			}
		} else if r.idle++; r.idle > polledFor && len(d.polled) > 1 {
			d.stopPolling(r)
			break // d.polled has changed; the next poll goes on
		}
	}
	if d.own.box.summary.Load() != 0 {
		n += d.pollMarked(pkts[n:])
	}
	return n
}

// short is transport.Facts's Short. What a message that it returns takes of its ring is given back to the sender by a
// later call for the same ring, or by Arm.
//
//go:noinline
func (d *Device) short() func() (m transport.Short, payload []byte, found transport.Found) {
	// Not a method: a call of one through a func would go through a wrapper, which copies the results.
	return func() (m transport.Short, payload []byte, found transport.Found) {
		if r := d.burst; r != nil {
			if s, meta := r.c.Peek(); s != nil && inlineEager(meta) {
				if w, n := s.W[0], meta>>16; int64(w) >= 0 {
					r.c.Advance(0)
					r.c.PrefetchSlots()
					if d.left--; d.left == 0 {
						d.burst = nil
					}
					return transport.Short{Source: r.peer, Tag: int32(w >> 32), Ctx: uint32(w)}, s.Bytes(shortAt)[:n:n],
						transport.FoundShort
				}
			}
			d.burst = nil
		}
		if len(d.last) != 0 {
			d.release()
		}
		if d.own.box.summary.Load() != 0 || len(d.refused) != 0 && d.hasRoom() || d.boards.Expecting() {
			return m, nil, transport.FoundOther
		}
		for range d.polled {
			i := d.turn
			if i >= len(d.polled) {
				i = 0
			}
			r := d.polled[i]
			d.turn = i + 1
			c := r.c
			if c.Release() {
				r.tellRoom()
			}
			s, meta := c.Peek()
			if s == nil {
				r.idle++ // Poll acts on it
				continue
			}
			w, n := s.W[0], meta>>16
			if meta&0xffff != uint32(wire.Eager) || int64(w) < 0 || r.dead {
				return m, nil, transport.FoundOther // also where it makes no sense: Poll says so
			}
			if n <= inlineShort {
				payload = s.Bytes(shortAt)[:n:n]
				if c.Advance(0); r.idle == 0 { // the look before has found something too
					d.burst, d.left = r, maxBurst
				}
			} else if payload = r.shortArea(s, n); payload == nil {
				return m, nil, transport.FoundOther
			}
			if r.idle == 0 {
				c.PrefetchSlots()
			}
			r.idle = 0
			return transport.Short{Source: r.peer, Tag: int32(w >> 32), Ctx: uint32(w)}, payload, transport.FoundShort
		}
		return m, nil, transport.FoundNothing
	}
}

// inlineEager reports whether that is the meta word of a short message in its slot.
func inlineEager(meta uint32) bool {
	return meta&0xffff == uint32(wire.Eager) && meta>>16 <= inlineShort
}

// shortArea is the payload that is not in the slot, and goes past it; nil: it is in no small area.
func (r *inRing) shortArea(s *ring.Slot, where uint32) []byte {
	w := s.W[shortAt]
	b, ok := r.c.Small(uint32(w), uint32(w>>32))
	if where != inSmall<<8 || !ok {
		return nil
	}
	ring.Prefetch(b)
	r.c.Advance(len(b))
	return b
}

func (p *poller) release() {
	for i, r := range p.last {
		if r.c.Release() {
			r.tellRoom()
		}
		p.last[i] = nil
	}
	p.last = p.last[:0]
}

// flush lets the sender have all the room that there is.
func (r *inRing) flush() {
	if r.c.Flush() {
		r.tellRoom()
	}
}

// tellRoom wakes the sender, which has found no room, if it sleeps. One that polls looks by itself, and so does one
// whose inbox is not known.
func (r *inRing) tellRoom() {
	if in := r.inbox.Load(); in != nil {
		in.wake(in.box, true)
	}
}

// hasRoom reports whether Poll will report Room of one of the links that have found no room.
func (p *poller) hasRoom() bool {
	return slices.ContainsFunc(p.refused, func(l *link) bool { return !l.dead.Load() && l.hasRoom() })
}

// takeRooms fills in Room of links that have found none before. After the end of its peer none is told of.
func (p *poller) takeRooms(pkts []transport.Packet) int {
	n := 0
	p.refused = slices.DeleteFunc(p.refused, func(l *link) bool {
		switch dead := l.dead.Load(); {
		case dead || n == len(pkts) || !l.hasRoom():
			l.refused = !dead
		default:
			l.refused, l.shrunk = false, false
			l.p.Unwant()
			pkts[n] = transport.Packet{Event: transport.Room, Peer: int32(l.peer)}
			n++
		}
		return !l.refused
	})
	return n
}

// ready reports whether poll would find something.
func (r *inRing) ready() bool { return !r.dead && r.c.Ready() }

// poll reads what is in the ring now.
func (r *inRing) poll(d *Device, pkts []transport.Packet) int {
	n, bytes := 0, 0
	for !r.dead && n < len(pkts) && bytes < pollBytes {
		s, meta := r.c.Peek()
		if s == nil {
			break
		}
		p := &pkts[n]
		p.Event, p.Peer, p.Err = transport.Arrived, r.peer, nil
		used, err := r.read(s, meta, p)
		if err != nil {
			r.dead = true
			d.start(func() { d.lostPeer(int(r.peer), err) })
			break
		}
		r.c.Advance(used)
		bytes += used
		n++
	}
	if n != 0 {
		d.last = append(d.last, r)
	}
	return n
}

// read decodes one slot. Every word is loaded once: the memory belongs to another process.
func (r *inRing) read(s *ring.Slot, meta uint32, p *transport.Packet) (used int, err error) {
	kind := wire.Kind(meta)
	h := &p.Header
	h.Kind, h.Flags = kind, uint8(meta>>8)
	w := s.W[0]
	h.Ctx, h.Tag = uint32(w), int32(w>>32)
	at := shortAt
	if !kind.Short() {
		h.ID, h.Len, h.Addr, h.Key = s.W[1], s.W[2], s.W[3], s.W[4]
		at = longAt
	}
	if where := meta >> 24; where != inSlot {
		return r.readArea(s, where, at, p)
	}
	b := s.Bytes(at)
	n := int(meta >> 16 & 0xff)
	if n > len(b) || !kind.Valid() || h.Tag < 0 {
		return 0, fmt.Errorf("shm: rank %d wrote a slot that makes no sense (meta %#x, tag %d)", r.peer, meta, h.Tag)
	}
	p.Payload = b[:n:n]
	return 0, nil
}

func (r *inRing) readArea(s *ring.Slot, where uint32, at int, p *transport.Packet) (int, error) {
	w := s.W[at]
	off, n := uint32(w), uint32(w>>32)
	var ok bool
	switch where {
	case inSmall:
		p.Payload, ok = r.c.Small(off, n)
	case inBulk:
		p.Payload, ok = r.c.Bulk(off, n)
	}
	if !ok || !p.Header.Kind.Valid() || p.Header.Tag < 0 {
		return 0, fmt.Errorf("shm: rank %d wrote a slot that makes no sense (%v, area %d, offset %d, length %d)",
			r.peer, p.Header.Kind, where, off, n)
	}
	ring.Prefetch(p.Payload)
	return int(n), nil
}

// pollMarked reads the rings whose senders have marked them in the doorbell bitmap, from the first on for which the
// last poll had no room.
func (d *Device) pollMarked(pkts []transport.Packet) int {
	n, full := 0, false
	word0, bit0 := d.nextMark/64, d.nextMark%64
	summary := bits.RotateLeft64(d.own.box.summary.Swap(0), -word0)
	for ; summary != 0; summary &= summary - 1 {
		w := (word0 + bits.TrailingZeros64(summary)) % 64
		word := bits.RotateLeft64(d.own.box.bitmap[w].Swap(0), -bit0)
		rings := *d.inUse.Load() // after the marks have been taken: a ring that comes into use later is marked again
		for ; word != 0; word &= word - 1 {
			for i := w*64 + (bit0+bits.TrailingZeros64(word))%64; i < len(rings); i += maxRings {
				if n == len(pkts) { // no room: mark again what has not been read
					d.own.box.mark(uint32(i))
					if !full {
						full, d.nextMark = true, i%maxRings
						if i/64%64 == word0 && i%64 < bit0 { // all of this word has had its turn
							d.nextMark = (word0 + 1) * 64 % maxRings
						}
					}
					continue
				}
				switch {
				case i == 0:
					n += d.takeNotices(pkts[n:])
				case rings[i] != nil:
					n += d.pollArmed(rings[i], pkts[n:])
				case i <= d.claims(): // a peer has claimed it
					n += d.pollClaimed(i, pkts[n:])
				} // else useRing marks it once more
			}
		}
	}
	return n
}

// pollArmed makes the ring polled and reads it.
func (d *Device) pollArmed(r *inRing, pkts []transport.Packet) int {
	if r.endReported {
		return 0
	}
	if r.letter != nil && !r.cut && r.letter.cut.Load() != 0 {
		r.cut = true
		d.start(func() {
			d.lostPeer(int(r.peer), transport.Gone("it has ended the connection (shm)"))
		})
	}
	if !r.polled {
		d.startPolling(r)
	}
	n := r.poll(d, pkts)
	if r.ended == nil {
		return n
	}
	if r.ready() || n == len(pkts) {
		d.own.box.mark(r.number) // more to come before the end
		return n
	}
	err := r.ended
	d.stopPolling(r)
	r.endReported = true
	return n + d.reportDown(int(r.peer), err, pkts[n:])
}

// startPolling makes r one of the rings that every poll reads. The caller polls it next, so that a packet whose sender
// already saw the ring polled is found.
func (d *Device) startPolling(r *inRing) {
	if len(d.polled) == maxPolled {
		worst := d.polled[0]
		for _, o := range d.polled[1:] {
			if o.idle > worst.idle {
				worst = o
			}
		}
		d.stopPolling(worst)
	}
	r.polled, r.idle = true, 0
	r.c.SetArmed(false)
	d.polled = append(d.polled, r)
}

// stopPolling arms r. It marks r itself for what came in before the sender saw that.
func (d *Device) stopPolling(r *inRing) {
	if !r.polled {
		return
	}
	r.polled = false
	d.last = append(d.last, r) // what short has taken of it last is given back too
	r.c.SetArmed(true)
	for i, o := range d.polled {
		if o == r {
			d.polled = append(d.polled[:i], d.polled[i+1:]...)
			break
		}
	}
	if r.ready() {
		d.own.box.mark(r.number)
	}
}

// addNotice records the end of a peer; any goroutine may call it.
func (d *Device) addNotice(peer int, err error) {
	d.mu.Lock()
	d.notices = append(d.notices, notice{peer, err})
	d.mu.Unlock()
	d.own.box.mark(0)
	d.own.wake(d.own.box, true)
}

// takeNotices turns notices into Down packets, after what the peer had sent.
func (d *Device) takeNotices(pkts []transport.Packet) int {
	d.mu.Lock()
	gone := d.notices
	d.notices = nil
	var drain []*inRing
	n := 0
	for _, g := range gone {
		if r := d.byPeer[g.peer]; r != nil && r.ended == nil {
			r.ended = g.err
			if r.inUse { // else useRing or dropRing goes on
				drain = append(drain, r)
			}
		} else if r == nil && !d.reported[g.peer] {
			if n == len(pkts) {
				d.notices = append(d.notices, g)
				continue
			}
			d.markDown(g.peer)
			pkts[n] = transport.Packet{Event: transport.Down, Peer: int32(g.peer), Err: g.err}
			n++
		}
	}
	if len(d.notices) != 0 {
		d.own.box.mark(0)
	}
	d.mu.Unlock()
	for _, r := range drain {
		d.own.box.mark(r.number)
	}
	return n
}

// markDown records that the Down of a peer is reported now: from here on its link takes packets and drops them. mu is
// held.
func (d *Device) markDown(peer int) {
	d.reported[peer] = true
	if l := d.links[peer]; l != nil {
		l.dead.Store(true)
	}
}

// reportDown fills in the Down packet of peer, once.
func (d *Device) reportDown(peer int, err error, pkts []transport.Packet) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reported[peer] {
		return 0
	}
	d.markDown(peer)
	pkts[0] = transport.Packet{Event: transport.Down, Peer: int32(peer), Err: err}
	return 1
}

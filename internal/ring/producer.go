package ring

import "fmt"

// Producer is the writing side. One goroutine at a time.
//
// Use: s := Slot(); fill s.W, perhaps Alloc memory; Publish(s, meta). The next Slot
// returns a slot that was not published again.
type Producer struct {
	slots []Slot
	mask  uint64
	ctl   *Control
	next  uint64 // index of the slot to write
	limit uint64 // next < limit: that slot is ours. Invariant: limit == lastHead+len(slots) for some head we have seen
	stuck uint64 // limit when the caller of Want found no room

	small, bulk area
	gap         int // Geometry.gap
	// marks[i&mask] are the areas' positions after slot i was published: up to there the areas are free when slot i is.
	marks []mark
}

type mark struct{ small, bulk uint64 }

// area is a FIFO of byte ranges. pos and freed count bytes since the beginning; pos-freed <= len(mem).
type area struct {
	mem        []byte
	pos, freed uint64
	at         uint64 // where in mem the next bytes are: pos % len(mem), or len(mem) in place of 0
}

// NewProducer writes the ring in mem.
func NewProducer(mem []byte, g Geometry) (*Producer, error) {
	if err := check(mem, g); err != nil {
		return nil, err
	}
	ctl, slots := view(mem, g)
	p := &Producer{slots: slots, mask: uint64(g.Slots - 1), ctl: ctl, limit: uint64(g.Slots), gap: g.gap(),
		marks: make([]mark, g.Slots)}
	p.small.mem = mem[g.SmallAt():g.BulkAt()]
	p.bulk.mem = mem[g.BulkAt():g.Size()]
	return p, nil
}

// Full returns a producer whose ring never has room.
func Full() *Producer { return &Producer{ctl: new(Control)} }

func check(mem []byte, g Geometry) error {
	if err := g.Check(); err != nil {
		return err
	}
	if len(mem) < g.Size() {
		return fmt.Errorf("ring: %d bytes of memory, the geometry needs %d", len(mem), g.Size())
	}
	if !aligned(mem) {
		return fmt.Errorf("ring: memory that does not begin at a multiple of %d", Align)
	}
	return nil
}

// Slot returns the next slot to fill, or nil if the ring is full.
func (p *Producer) Slot() *Slot {
	if p.next == p.limit {
		return p.slotSlow()
	}
	return &p.slots[p.next&p.mask]
}

func (p *Producer) slotSlow() *Slot {
	if !p.refresh() {
		return nil
	}
	return &p.slots[p.next&p.mask]
}

// refresh reads how far the consumer is and reports whether it has released anything new.
func (p *Producer) refresh() bool {
	head := p.ctl.head.Load()
	old := p.limit - uint64(len(p.slots))
	if head == old || head-old > p.next-old { // nothing new, or nonsense: the consumer cannot be ahead of the producer
		return false
	}
	p.limit = head + uint64(len(p.slots))
	m := p.marks[(head-1)&p.mask]
	p.small.freed, p.bulk.freed = m.small, m.bulk
	return true
}

// AllocSmall returns n bytes of the small area and their offset; nil if there is no room now. burst: payloads follow
// each other, and no answer is waited for.
func (p *Producer) AllocSmall(n int, burst bool) ([]byte, uint32) {
	if burst {
		return p.alloc(&p.small, n, 0)
	}
	return p.alloc(&p.small, n, p.gap)
}

// AllocBulk is the same from the bulk area.
func (p *Producer) AllocBulk(n int) ([]byte, uint32) { return p.alloc(&p.bulk, n, 0) }

// alloc finds n contiguous bytes. They are free again when the slot published next is released. A second call before
// Publish wastes the first range until then. Up to a quarter of the area fits sooner or later; more may never fit
// behind what the current lap has used.
func (p *Producer) alloc(a *area, n, gap int) ([]byte, uint32) {
	if n <= 0 || n > len(a.mem) {
		return a.none(n), 0
	}
	size := uint64(len(a.mem))
	need := uint64(span(n, gap))
	pos, at := a.pos, a.at
	if at+need > size {
		pos += size - at // the rest of this lap is too short: skip it
		at = 0
	}
	if pos+need-a.freed > size {
		if !p.refresh() || pos+need-a.freed > size {
			return nil, 0
		}
	}
	a.pos, a.at = pos+need, at+need
	return a.mem[at : at+uint64(n) : at+need], uint32(at)
}

// none is the result for n bytes that need no room, or that never fit.
func (a *area) none(n int) []byte {
	if n == 0 {
		return a.mem[:0:0]
	}
	return nil
}

// Publish hands the slot that Slot returned to the consumer. It reports whether the ring is armed, so that the producer
// must signal the consumer.
func (p *Producer) Publish(s *Slot, meta uint32) (signal bool) {
	p.marks[p.next&p.mask] = mark{p.small.pos, p.bulk.pos}
	p.next++
	// A sequentially consistent store (XCHG): the load of armed must not pass it. The consumer stores armed and then
	// reads the slot; one of the two sees the other.
	s.seq.Store(uint64(uint32(p.next))<<32 | uint64(meta))
	return p.ctl.armed.Load() != 0
}

// Arm makes a new ring armed before its consumer knows of it.
func (p *Producer) Arm() { p.ctl.armed.Store(1) }

// Pending is the number of slots published and not known to be released.
func (p *Producer) Pending() int { return int(p.next - (p.limit - uint64(len(p.slots)))) }

// Want notes that the caller has found no room: the consumer signals it at the next change of head. It may be called
// again before Unwant.
//
// The producer stores wanted and then reads head, the consumer stores head and then reads wanted: so either Released
// sees what was released, or the consumer signals.
func (p *Producer) Want() {
	p.stuck = p.limit
	if p.ctl.wanted.Load() == 0 {
		p.ctl.wanted.Store(1)
	}
}

// Released reports whether anything has been released since Want.
func (p *Producer) Released() bool { return p.limit != p.stuck || p.refresh() }

// Wanted reports whether Want has been called since Unwant. Any goroutine may ask.
func (p *Producer) Wanted() bool { return p.ctl.wanted.Load() != 0 }

// Unwant ends Want.
func (p *Producer) Unwant() { p.ctl.wanted.Store(0) }

// BeginAccess reports whether the producer may touch the memory of the consumer's process, and does so until EndAccess.
func (p *Producer) BeginAccess() bool {
	p.ctl.access.Store(1)
	if p.ctl.revoked.Load() == 0 {
		return true
	}
	p.EndAccess()
	return false
}

// EndAccess ends BeginAccess.
func (p *Producer) EndAccess() { p.ctl.access.Store(0) }

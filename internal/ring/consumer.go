package ring

// Consumer is the reading side. One goroutine at a time.
//
// Use: Peek, read the slot, Advance, …, and Release when the slots and payloads
// that were advanced over are not needed any more.
type Consumer struct {
	slots []Slot
	mask  uint64
	ctl   *Control
	pos   uint64 // next slot to look at
	head  uint64 // the last value stored in ctl.head. head <= pos
	due   uint64 // pos at which Release stores head: a quarter of the slots after it
	bytes int    // of the areas, advanced over since head was stored
	most  int    // bytes at which Release stores head
	gap   int    // Geometry.gap

	small, bulk []byte
}

// NewConsumer reads the ring in mem.
func NewConsumer(mem []byte, g Geometry) (*Consumer, error) {
	if err := check(mem, g); err != nil {
		return nil, err
	}
	ctl, slots := view(mem, g)
	most := min(flushBytes, g.Small/4)
	if g.Bulk > 0 {
		most = min(most, g.Bulk/4)
	}
	return &Consumer{slots: slots, mask: uint64(g.Slots - 1), due: uint64(g.Slots) / 4, ctl: ctl, most: most, gap: g.gap(),
		small: mem[g.SmallAt():g.BulkAt()], bulk: mem[g.BulkAt():g.Size()]}, nil
}

// Peek returns the next slot and its meta word, or nil.
func (c *Consumer) Peek() (*Slot, uint32) {
	s := &c.slots[c.pos&c.mask]
	w := s.seq.Load()
	if uint32(w>>32) != uint32(c.pos+1) {
		return nil, 0
	}
	return s, uint32(w)
}

// Ready reports whether Peek would return a slot.
func (c *Consumer) Ready() bool {
	return uint32(c.slots[c.pos&c.mask].seq.Load()>>32) == uint32(c.pos+1)
}

// Begun reports whether the producer has published anything since the ring was made. Any goroutine may call it.
func (c *Consumer) Begun() bool { return c.slots[0].seq.Load() != 0 }

// Small returns n bytes of the small area at off; false if that is not inside it.
func (c *Consumer) Small(off, n uint32) ([]byte, bool) { return part(c.small, off, n) }

// Bulk is the same for the bulk area.
func (c *Consumer) Bulk(off, n uint32) ([]byte, bool) { return part(c.bulk, off, n) }

func part(mem []byte, off, n uint32) ([]byte, bool) {
	end := uint64(off) + uint64(n)
	if end > uint64(len(mem)) {
		return nil, false
	}
	return mem[off:end:end], true
}

// Advance goes past the slot that Peek returned; n is the payload it had in the areas.
func (c *Consumer) Advance(n int) {
	c.pos++
	if n != 0 {
		c.bytes += span(n, c.gap) // at least as much as the producer took for it
	}
}

// flushBytes is the released payload at which Release stores head at once, so that a stream of large fragments never
// waits for room while there is some.
const flushBytes = 64 << 10

// Release returns everything advanced over to the producer. Storing head costs a cache line, so Release stores it for a
// quarter of the slots, or of the smaller area, at a time. The producer cannot be stuck for want of the rest: three
// quarters are then still in front of the consumer, and an allocation of a quarter wastes less than another one at the
// end of a lap. It reports whether the producer must be signalled, since it has found no room before.
func (c *Consumer) Release() (signal bool) {
	if c.pos >= c.due || c.bytes >= c.most {
		return c.Flush()
	}
	return false
}

// Flush is Release that stores head now. It reports whether the producer is to be told. The consumer calls it before it
// sleeps.
func (c *Consumer) Flush() (signal bool) {
	if c.head == c.pos {
		return false
	}
	c.head, c.due, c.bytes = c.pos, c.pos+uint64(len(c.slots))/4, 0
	c.ctl.head.Store(c.pos) // sequentially consistent, as in Publish: see Want
	return c.ctl.wanted.Load() != 0
}

// Revoke ends the producer's access to the memory of this process, but for what it is at: see Accessed. Any goroutine
// may call both.
func (c *Consumer) Revoke() { c.ctl.revoked.Store(1) }

// Accessed reports whether the producer is at the memory of this process. After Revoke it does not begin again.
func (c *Consumer) Accessed() bool { return c.ctl.access.Load() != 0 }

// SetArmed says whether the ring is armed (the producer signals new slots) or polled (it does not). After
// SetArmed(true) the consumer must look once more.
func (c *Consumer) SetArmed(armed bool) {
	v := uint32(0)
	if armed {
		v = 1
	}
	c.ctl.armed.Store(v)
}

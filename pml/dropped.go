package pml

const (
	// reusable is the bound below which contexts may be those of another communicator some day (ReuseContexts). Until
	// then they are remembered, however many there are and however long that takes: a sender may still use the earlier
	// communicator.
	reusable = 1 << 16
	// rememberDropped is how many of the others are remembered: the latest. What comes of an earlier one is kept as
	// unmatched, and meets no receive.
	rememberDropped = 1 << 16
)

// dropped remembers contexts: a message of one of them has come late, and no receive will ever be posted for it.
type dropped struct {
	low *[reusable / 64]uint64 // a bit for each of the contexts below reusable; nil: none has ever been dropped
	set map[uint32]bool        // those of the others that are remembered
	// ring has these in the order in which they were added; ring[next] is the oldest once there are rememberDropped.
	ring []uint32
	next int
}

func (d *dropped) add(ctx uint32) {
	if d.low == nil {
		d.low, d.set = new([reusable / 64]uint64), map[uint32]bool{}
	}
	switch {
	case ctx < reusable:
		d.low[ctx/64] |= 1 << (ctx % 64)
	case d.set[ctx]:
	case len(d.ring) < rememberDropped:
		d.set[ctx] = true
		d.ring = append(d.ring, ctx)
	default:
		delete(d.set, d.ring[d.next])
		d.set[ctx] = true
		d.ring[d.next] = ctx
		d.next = (d.next + 1) % rememberDropped
	}
}

// remove is called when the context, one below reusable, is in use again.
func (d *dropped) remove(ctx uint32) {
	if d.low != nil {
		d.low[ctx/64] &^= 1 << (ctx % 64)
	}
}

func (d *dropped) has(ctx uint32) bool {
	switch {
	case d.low == nil:
		return false
	case ctx < reusable:
		return d.low[ctx/64]>>(ctx%64)&1 != 0
	}
	return d.set[ctx]
}

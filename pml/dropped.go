package pml

// rememberDropped is how many dropped contexts are remembered: the latest. So much later no message of an earlier one
// is under way.
const rememberDropped = 1 << 16

// dropped remembers contexts: a message of one of them has come late, and no receive will ever be posted for it.
type dropped struct {
	set  map[uint32]struct{} // nil: none
	ring []uint32            // those in set, each once; ring[next] is the oldest once there are rememberDropped of them
	next int
}

func (d *dropped) add(ctx uint32) {
	if d.has(ctx) {
		return
	}
	if d.set == nil {
		d.set = map[uint32]struct{}{}
	}
	d.set[ctx] = struct{}{}
	if len(d.ring) < rememberDropped {
		d.ring = append(d.ring, ctx)
		return
	}
	delete(d.set, d.ring[d.next])
	d.ring[d.next] = ctx
	d.next = (d.next + 1) % rememberDropped
}

func (d *dropped) has(ctx uint32) bool {
	_, has := d.set[ctx]
	return has
}

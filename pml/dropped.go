package pml

// rememberDropped is how many dropped contexts are remembered: the latest. So much later no message of an earlier one
// is under way.
const rememberDropped = 1 << 16

// dropped remembers contexts: a message of one of them has come late, and no receive will ever be posted for it.
type dropped struct {
	set map[uint32]uint64 // nil: none. The number under which a context stands in ring
	// ring has the contexts in the order in which they were added, with their numbers; ring[next] is the oldest once there
	// are rememberDropped of them. One that set does not have under this number has been removed since.
	ring  []droppedContext
	next  int
	added uint64
}

type droppedContext struct {
	ctx    uint32
	number uint64
}

func (d *dropped) add(ctx uint32) {
	if d.has(ctx) {
		return
	}
	if d.set == nil {
		d.set = map[uint32]uint64{}
	}
	d.added++
	d.set[ctx] = d.added
	if len(d.ring) < rememberDropped {
		d.ring = append(d.ring, droppedContext{ctx, d.added})
		return
	}
	if oldest := d.ring[d.next]; d.set[oldest.ctx] == oldest.number {
		delete(d.set, oldest.ctx)
	}
	d.ring[d.next] = droppedContext{ctx, d.added}
	d.next = (d.next + 1) % rememberDropped
}

// remove: the context is in use again.
func (d *dropped) remove(ctx uint32) { delete(d.set, ctx) }

func (d *dropped) has(ctx uint32) bool {
	_, has := d.set[ctx]
	return has
}

//go:build verbs && linux && cgo

package verbs

import (
	"cmp"
	"fmt"
	"sync/atomic"
)

// receiveQueue is the shared receive queue: the buffers into which the messages of all peers come. It belongs to the
// caller of Poll, but for watched and growth. Owner of a buffer: the device while it is posted; the caller of Poll
// while it is lent, until the next Poll; then the queue. Invariant: posted, lent and owed are all buffers, which are
// the first count of the slab.
type receiveQueue struct {
	slab   // mem is as long as growth.most says, region is that of the first part
	growth receiveGrowth
	hca    *hca
	posted int      // buffers that the device has
	held   []bool   // which they are, by number
	lent   []uint32 // those whose payloads the last Poll has handed out
	owed   []uint32 // those that the device may have again

	// A computing rank is woken for what is urgent only. If other messages take the buffers, nothing urgent comes in any
	// more. So it is woken when fewer than low are left.
	low     int         // 0: the device cannot say it
	watched atomic.Bool // the device will say it, once; the goroutine of async.go clears this
}

// receiveGrowth is how the buffers become more. It belongs to the goroutine of the control connections, and in the end
// to Close.
type receiveGrowth struct {
	known   int      // buffers whose memory is registered
	most    int      // that the device, its completion queue and the settings have room for
	regions []region // of the memory behind the first part
}

// receivePart is registered memory for more receive buffers, up to a number.
type receivePart struct {
	upTo int
	lkey uint32
}

// mostReceives is how many receive buffers there may be at some time: two for each peer, so that the first message of
// each finds one while half are in use. One that is not used yet has its places in the queues, and no memory.
func (o *Options) mostReceives() int {
	return max(o.firstReceives(), min(2*(o.Size-1), int(min(o.ReceiveMemory/slotSize, 1<<30))))
}

func (o *Options) firstReceives() int { return cmp.Or(o.receives, receives) }

// open makes memory for most buffers, and has the device know that of the first n.
func (q *receiveQueue) open(h *hca, n, most int) error {
	mem := pages(most * slotSize)
	if mem == nil {
		return fmt.Errorf("mapping %d KiB: %w", most*slotSize>>10, errNoRoom)
	}
	r, err := h.register(addressOf(mem), n*slotSize, localWrite|relaxed)
	if err != nil {
		unmap(mem)
		return fmt.Errorf("registering %d KiB: %w", n*slotSize>>10, err)
	}
	q.hca, q.growth = h, receiveGrowth{known: n, most: most}
	q.slab = slab{mem: mem, size: slotSize, region: r}
	return nil
}

// fill gives the device the first buffers, which are all that there are.
func (q *receiveQueue) fill() error {
	q.hca.receiveFrom(addressOf(q.mem))
	q.low = 1
	if err := q.extend(receivePart{q.growth.known, q.region.lkey}); err != nil {
		return err
	}
	_, taken, err := q.hca.turn(q.owed, nil)
	q.given(taken)
	if err != nil {
		return fmt.Errorf("posting %d receive buffers: %w", q.count, err)
	}
	return nil
}

// extend adds the buffers of a part. The device gets them as it gets those that messages have left.
func (q *receiveQueue) extend(p receivePart) error {
	if err := q.hca.receivePart(q.count, p.lkey); err != nil {
		return fmt.Errorf("more than %d receive buffers: %w", q.count, err)
	}
	for i := q.count; i < p.upTo; i++ {
		q.owed = append(q.owed, uint32(i))
		q.held = append(q.held, false)
	}
	q.count = p.upTo
	if q.low > 0 {
		q.low = q.count / 2
	}
	return nil
}

// moreReceives has the memory of more buffers known to the device where the peers have become many, and leaves them to
// Poll: each time twice as many, as long as there are fewer than two for each peer. It is called by the goroutine of
// the control connections, without a lock, since registering memory takes long.
func (d *Device) moreReceives() {
	q, g := &d.recv, &d.recv.growth
	d.mu.Lock()
	want := 2 * len(d.sessions)
	d.mu.Unlock()
	for g.known < min(want, g.most) {
		upTo := min(2*g.known, g.most)
		r, err := d.hca.register(addressOf(q.mem[g.known*slotSize:]), (upTo-g.known)*slotSize, localWrite|relaxed)
		if err != nil {
			d.opt.Log("receive buffers stay few, so that messages of many peers wait for each other", "buffers", g.known,
				"peers", want/2, "error", explainMemlock(err))
			g.most = g.known
			return
		}
		g.regions = append(g.regions, r)
		g.known = upTo
		d.noticeMu.Lock()
		d.parts = append(d.parts, receivePart{upTo, r.lkey})
		d.noticeMu.Unlock()
		d.tellNotice()
	}
}

// drop is for Close: the queue pairs are destroyed.
func (q *receiveQueue) drop(h *hca) {
	for _, r := range q.growth.regions {
		h.deregister(r)
	}
	q.growth.regions = nil
	q.slab.drop(h)
}

// reclaim ends the loan of the last Poll's payloads.
func (q *receiveQueue) reclaim() {
	if len(q.lent) > 0 {
		q.owed = append(q.owed, q.lent...)
		q.lent = q.lent[:0]
	}
}

// due is what the device is to have again now: nothing, or all that it is owed. Then given is called.
func (q *receiveQueue) due() []uint32 {
	if len(q.owed) >= giveBackAt || 4*q.posted < q.count {
		return q.owed
	}
	return nil
}

// takeBack takes a buffer from the device, and reports whether the device had it.
func (q *receiveQueue) takeBack(buffer uint32) bool {
	if uint64(buffer) >= uint64(len(q.held)) || !q.held[buffer] {
		return false
	}
	q.held[buffer] = false
	q.posted--
	return true
}

// given notes that the device has taken the first n buffers that it is owed.
func (q *receiveQueue) given(n int) {
	for _, buffer := range q.owed[:n] {
		q.held[buffer] = true
	}
	q.posted += n
	q.owed = q.owed[:copy(q.owed, q.owed[n:])]
}

// watch makes sure that the device says when few buffers are left.
func (q *receiveQueue) watch() error {
	if q.low == 0 || q.watched.Load() {
		return nil
	}
	q.watched.Store(true) // before the device may say it
	if err := q.hca.limitReceives(q.low); err != nil {
		q.low = 0
		return err
	}
	return nil
}

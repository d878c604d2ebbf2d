//go:build verbs && linux && cgo

package verbs

import (
	"fmt"
	"sync/atomic"
)

// receiveQueue is the shared receive queue: the buffers into which the messages of all peers come. It belongs to the
// caller of Poll, but for watched. Owner of a buffer: the device while it is posted; the caller of Poll while it is
// lent, until the next Poll; then the queue. Invariant: posted, lent and owed are all buffers.
type receiveQueue struct {
	slab
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

// fill gives the device all buffers.
func (q *receiveQueue) fill(h *hca) error {
	q.hca, q.low = h, q.count/2
	q.held = make([]bool, q.count)
	h.receiveFrom(addressOf(q.mem), q.region.lkey)
	for i := range q.count {
		q.owed = append(q.owed, uint32(i))
	}
	_, taken, err := h.turn(q.owed, nil)
	q.given(taken)
	if err != nil {
		return fmt.Errorf("posting %d receive buffers: %w", q.count, err)
	}
	return nil
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

package loop

import (
	"sync"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// maxPackets is what a link may have in a queue; keepItems is of how many a queue keeps the buffers.
const maxPackets, keepItems = 128, 128

// queue is what has been sent to a device and not been polled. No wake-up is lost: a sender looks at armed under the
// lock under which it queued, and the receiver at the queue under the one under which it arms.
type queue struct {
	mu      sync.Mutex
	in, out []item // out[next:] is older than in
	next    int    // payloads of out[:next] are the poller's until all of out is taken
	armed   bool
	level   transport.Level
	wake    func(thread bool) // nil: no rank sleeps here
	dead    bool
}

// item is a queued packet, whose payload is a buffer of the item's own.
type item struct {
	transport.Packet
	link *link // nil for Down
}

// put copies p. False: there is no room for one more of l, and nothing was taken.
func (q *queue) put(l *link, p *transport.Packet) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dead || l != nil && l.packets == maxPackets {
		return q.dead
	}
	if l != nil {
		l.packets++
	}
	if len(q.in) == cap(q.in) {
		q.in = append(q.in, item{})[:len(q.in)]
	}
	q.in = q.in[:len(q.in)+1]
	it := &q.in[len(q.in)-1]
	buf := it.Payload[:0]
	it.Packet, it.link = *p, l
	it.Payload = append(buf, p.Payload...)
	urgent := p.Event == transport.Down || p.Header.Flags&(wire.Urgent|wire.Wake) != 0
	if q.armed && (urgent || q.level != transport.Urgent) {
		q.armed = false // the next sender need not wake it again
		q.wake(q.level == transport.Thread)
	}
	if p.Header.Flags&wire.Wake != 0 && q.wake != nil {
		q.wake(false)
	}
	return true
}

// Poll is transport.Device's.
func (q *queue) Poll(pkts []transport.Packet) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == len(q.out) {
		q.in, q.out, q.next = q.out[:0], q.in, 0
		if cap(q.in) > keepItems {
			q.in = nil
		}
	}
	n := 0
	for ; n < len(pkts) && q.next < len(q.out); n++ {
		it := &q.out[q.next]
		q.next++
		if pkts[n] = it.Packet; it.link != nil {
			it.link.packets--
		}
	}
	return n
}

// Arm is transport.Device's.
func (q *queue) Arm(level transport.Level) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed, q.level = len(q.in) == 0 && q.next == len(q.out) && !q.dead, level
	return q.armed
}

// Disarm is transport.Device's.
func (q *queue) Disarm() { q.mu.Lock(); q.armed = false; q.mu.Unlock() }

func (q *queue) notifyBy(wake func(thread bool)) { q.mu.Lock(); q.wake = wake; q.mu.Unlock() }

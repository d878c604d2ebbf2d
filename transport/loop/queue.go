package loop

import (
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/internal/board"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// maxPackets is how many packets a link may have in a queue, and of how many a queue keeps the buffers.
const maxPackets = 128

// queue holds what has been sent to a device and not been polled. No wake-up is lost: a sender reads armed under the
// lock under which it has queued, and the receiver reads the queue under the lock under which it arms.
type queue struct {
	mu      sync.Mutex
	in, out []item // out[next:] is older than in
	next    int    // payloads of out[:next] are the poller's until all of out is taken
	armed   bool
	level   transport.Level
	wake    func(thread bool) // nil: no rank sleeps here
	closed  bool              // set under mu and fabric.mu, read under either
	rooms   []*link           // the poller's own: of this Poll or Short, see tellRoom
	boards  board.Set         // likewise
}

// item is a queued packet, whose payload is a buffer of the item's own.
type item struct {
	transport.Packet
	link *link
}

// put copies p. It reports whether there was room for one more packet of l: if not, nothing was taken.
func (q *queue) put(l *link, p *transport.Packet) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || l.packets == maxPackets {
		l.refused = true
		q.show(true) // to a rank that sleeps until something urgent comes, and behind these nothing can
		return q.closed
	}
	l.packets++
	q.add(l, p)
	return true
}

// add copies p into the queue. mu is held.
func (q *queue) add(l *link, p *transport.Packet) {
	q.in = slices.Grow(q.in, 1)[:len(q.in)+1]
	it := &q.in[len(q.in)-1]
	it.Packet, it.link, it.Payload = *p, l, append(it.Payload[:0], p.Payload...)
	urgent := p.Event != transport.Arrived || p.Header.Flags&(wire.Urgent|wire.Wake) != 0
	q.show(urgent)
	if p.Header.Flags&wire.Wake != 0 && q.wake != nil {
		q.wake(false)
	}
}

// tellRoom reports to the sender over l, whose queue this is, that l has room again; but not after its Down.
func (q *queue) tellRoom(l *link) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || l.roomQueued || l.dead.Load() {
		return
	}
	l.roomQueued = true
	q.add(l, &transport.Packet{Event: transport.Room, Peer: int32(l.to.rank)})
}

// show ends an armed sleep, if it is one that this ends. mu is held.
func (q *queue) show(urgent bool) {
	if q.armed && (urgent || q.level != transport.Urgent) {
		q.armed = false // the next sender need not wake it again
		q.wake(q.level == transport.Thread)
	}
}

// Poll is transport.Device's. It holds the lock of no other device together with its own.
func (q *queue) Poll(pkts []transport.Packet) int {
	n := q.take(pkts)
	q.tellRooms()
	return n + q.boards.Poll(pkts[n:])
}

// tellRooms says that there is room where there was none before what has been taken.
func (q *queue) tellRooms() {
	for _, l := range q.rooms {
		l.from.tellRoom(l)
	}
	q.rooms = q.rooms[:0]
}

// short is transport.Facts's Short.
func (q *queue) short() (m transport.Short, payload []byte, found transport.Found) {
	if m, payload, found = q.takeShort(); len(q.rooms) != 0 {
		q.tellRooms()
	}
	if found == transport.FoundNothing && q.boards.Expecting() {
		found = transport.FoundOther
	}
	return m, payload, found
}

func (q *queue) takeShort() (m transport.Short, payload []byte, found transport.Found) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turn()
	if q.next == len(q.out) {
		return m, nil, transport.FoundNothing
	}
	it := &q.out[q.next]
	h := &it.Header
	if it.Event != transport.Arrived || h.Kind != wire.Eager || h.Flags != 0 {
		return m, nil, transport.FoundOther
	}
	q.next++
	q.taken(it)
	return transport.Short{Source: it.Peer, Tag: h.Tag, Ctx: h.Ctx}, it.Payload, transport.FoundShort
}

// take is Poll but for the word of room for what has been taken.
func (q *queue) take(pkts []transport.Packet) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turn()
	n := min(len(pkts), len(q.out)-q.next)
	for i := range n {
		it := &q.out[q.next+i]
		pkts[i] = it.Packet
		q.taken(it)
	}
	q.next += n
	return n
}

// turn makes what has been sent since the last turn what is taken next, once all of that has been taken. mu is held.
func (q *queue) turn() {
	if q.next < len(q.out) {
		return
	}
	q.in, q.out, q.next = q.out[:0], q.in, 0
	if cap(q.in) > maxPackets {
		q.in = nil
	}
}

// taken is called when the packet has left the queue. mu is held.
func (q *queue) taken(it *item) {
	if it.Event == transport.Room {
		it.link.roomQueued = false
		return
	}
	if it.link.packets--; it.link.refused {
		it.link.refused = false
		q.rooms = append(q.rooms, it.link)
	}
}

// Arm implements transport.Device.
func (q *queue) Arm(level transport.Level) bool {
	if !q.arm(level) {
		return false
	}
	if !q.boards.Arm() { // without mu: a board that must be shown is shown to this rank as to others
		q.Disarm()
		return false
	}
	return true
}

func (q *queue) arm(level transport.Level) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed, q.level = len(q.in) == 0 && q.next == len(q.out) && !q.closed, level
	return q.armed
}

// Disarm is transport.Device's.
func (q *queue) Disarm() {
	q.boards.Disarm()
	q.mu.Lock()
	q.armed = false
	q.mu.Unlock()
}

func (q *queue) setWake(wake func(thread bool)) { q.mu.Lock(); q.wake = wake; q.mu.Unlock() }

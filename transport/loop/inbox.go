package loop

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// What a link may have in an inbox.
const (
	maxPackets = 128
	maxBytes   = 256 << 10
)

// alarm is what Arm asked for: which arrivals end which Park.
type alarm struct{ on, urgent, hold bool }

// inbox is what has been sent to a device and not been polled. Everything but count is guarded by mu. No wake-up
// is lost, because a sender looks at alarm under the lock under which it queued, and the receiver at the queue under
// the one under which it arms.
type inbox struct {
	count atomic.Int64 // == len(queue)-head; read without mu by a Poll that finds nothing
	mu    sync.Mutex
	queue []entry
	head  int // queue[:head] has been taken
	alarm alarm
	dead  bool
	lent  [][]byte // payloads of the last take: the poller's until the next
	free  [16][][]byte
	spare int // bytes in free. Invariant: spare <= maxBytes*2
}

// entry is a queued packet. Its payload belongs to the inbox until it is taken.
type entry struct {
	packet transport.Packet
	link   *link // where room is given back; nil for Down
}

// put copies p. ok=false: no room, nothing was taken. woken: the alarm that p has set off.
func (b *inbox) put(l *link, p transport.Packet) (ok bool, woken alarm) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return true, alarm{}
	}
	if l != nil {
		if l.packets == maxPackets || l.bytes+len(p.Payload) > maxBytes {
			return false, alarm{}
		}
		l.packets++
		l.bytes += len(p.Payload)
	}
	p.Payload = b.copyOf(p.Payload)
	if len(b.queue) == cap(b.queue) && b.head > len(b.queue)/2 { // slide down rather than grow
		n := copy(b.queue, b.queue[b.head:])
		clear(b.queue[n:])
		b.queue, b.head = b.queue[:n], 0
	}
	b.queue = append(b.queue, entry{p, l})
	b.count.Add(1)
	if b.alarm.urgent && p.Event == transport.Arrived && p.Header.Flags&(wire.Urgent|wire.Wake) == 0 {
		return true, alarm{}
	}
	woken, b.alarm = b.alarm, alarm{} // the next sender need not wake it again
	return true, woken
}

// take moves up to len(pkts) packets out.
func (b *inbox) take(pkts []transport.Packet) int {
	if b.count.Load() == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reclaim()
	n := min(len(pkts), len(b.queue)-b.head)
	for i := range n {
		e := &b.queue[b.head+i]
		pkts[i] = e.packet
		if e.packet.Payload != nil {
			b.lent = append(b.lent, e.packet.Payload)
		}
		if e.link != nil {
			e.link.packets--
			e.link.bytes -= len(e.packet.Payload)
		}
		*e = entry{} // so that the queue holds neither links nor payloads of the past
	}
	if b.head += n; b.head == len(b.queue) {
		b.queue, b.head = b.queue[:0], 0
	}
	b.count.Add(int64(-n))
	return n
}

func (b *inbox) arm(a alarm) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count.Load() > 0 {
		return false
	}
	b.alarm = a
	return true
}

func (b *inbox) armed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.alarm.on && b.alarm.hold
}

func (b *inbox) disarm() {
	b.mu.Lock()
	b.alarm = alarm{}
	b.mu.Unlock()
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead, b.queue, b.lent, b.free = true, nil, nil, [16][][]byte{}
	b.head, b.alarm = 0, alarm{}
	b.count.Store(0)
}

// copyOf takes a buffer of the next power of two from the free list.
func (b *inbox) copyOf(payload []byte) []byte {
	if len(payload) == 0 {
		return nil
	}
	c := class(len(payload))
	list := b.free[c]
	if len(list) == 0 {
		return append(make([]byte, 0, 1<<c), payload...)
	}
	buf := list[len(list)-1]
	b.free[c] = list[:len(list)-1]
	b.spare -= cap(buf)
	return append(buf, payload...)
}

// reclaim puts what was lent on the free list; beyond a bound it is left to the collector.
func (b *inbox) reclaim() {
	for i, buf := range b.lent {
		b.lent[i] = nil
		if b.spare+cap(buf) <= 2*maxBytes {
			c := class(cap(buf))
			b.free[c] = append(b.free[c], buf[:0])
			b.spare += cap(buf)
		}
	}
	b.lent = b.lent[:0]
}

// class is the exponent of the power of two that n > 0 bytes fit in, at least a cache line.
func class(n int) int { return max(6, bits.Len(uint(n-1))) }

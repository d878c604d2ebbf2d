//go:build ucx && linux && cgo

package ucx

import (
	"github.com/gorun-mpi/mpi/transport"
)

// turns is how many steps of UCX one Poll takes at most while nothing ends: a step costs less than a call of C.
const turns = 4

// Poll is transport.Device's.
func (d *Device) Poll(pkts []transport.Packet) int {
	d.look()
	if d.reached.some.Load() {
		d.takeNotices()
	}
	d.row.end(d.w.holds() > 0 && d.sleep.late.over.Load())
	if d.w.holds() > 0 || !d.w.some() && len(d.lost) == 0 {
		d.w.turn(turns)
	}
	n := copy(pkts, d.lost)
	d.lost = append(d.lost[:0], d.lost[n:]...)
	for n < len(pkts) {
		e, ok := d.w.next()
		if !ok {
			break
		}
		n += d.ended(&e, &pkts[n])
	}
	return n
}

// ended makes a packet of what has ended, if the engine is to hear of it; it returns how many.
func (d *Device) ended(e *end, pkt *transport.Packet) int {
	if e.slot == downSlot {
		d.down(int32(e.tag), transport.Gone("UCX has lost the connection: %w", status(e.status)))
		return 0
	}
	op := &d.ops.slots[e.slot]
	was := op.state
	if op.small && was == opReceiving && e.status == 0 {
		d.w.copySmall(op.buf, e.slot, e.length)
	}
	if !op.sends {
		d.answers(e)
	}
	// The other fields of pkt say nothing about this event.
	pkt.Event, pkt.Cookie, pkt.Peer, pkt.Err, pkt.Header.Len = transport.TaggedDone, op.cookie, op.peer, nil, 0
	d.ops.end(e.slot)
	if was == opAbandoned {
		return 0
	}
	switch s := status(e.status); {
	case s != 0 && (s != statusTruncated || was == opSending):
		pkt.Err = explain(s)
	case was == opReceiving:
		f := found(e.tag, e.length)
		pkt.Peer, pkt.Header.Tag, pkt.Header.Len = f.Source, f.Tag, e.length
	}
	return 1
}

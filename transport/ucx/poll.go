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
		if e.slot == downSlot {
			d.down(int32(e.tag), transport.Gone("UCX has lost the connection: %w", status(e.status)))
			break // the next Poll has what that gives up, before the ends that follow
		}
		d.ended(e, &pkts[n])
		n++
	}
	return n
}

// ended makes a packet of the end of an operation. Fields that it leaves say nothing about this event.
func (d *Device) ended(e end, pkt *transport.Packet) {
	op, s := &d.ops.slots[e.slot], status(e.status)
	pkt.Event, pkt.Cookie, pkt.Err = transport.TaggedDone, uint64(e.slot), nil
	if op.state == opReceiving {
		f := found(e.tag, e.length)
		pkt.Peer, pkt.Header.Tag, pkt.Header.Len = f.Source, f.Tag, e.length
		if op.small && s == 0 && !op.left {
			d.w.copySmall(op.buf, e.slot, e.length)
		}
		d.answers(f.Source, e.status)
	}
	if s != 0 && (s != statusTruncated || op.state == opSending) {
		pkt.Peer, pkt.Err = op.peer, explain(s)
	}
	d.ops.end(op)
}

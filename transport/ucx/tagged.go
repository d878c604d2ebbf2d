//go:build ucx && linux && cgo

package ucx

import (
	"runtime"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// operations are those under way. An engine's cookie is the slot of its operation, here and in the C layer.
type operations struct {
	w     *worker
	slots []operation
	taken map[uint64]int32 // the senders of messages that Probe has taken
	ends  int              // of endpoints, for which there is room
}

// operation is what Go has to know of a slot. The slot is the engine's while it is free, and UCX's otherwise.
type operation struct {
	buf    transport.Mem
	pin    runtime.Pinner
	peer   int32 // of a receive from any source: -1
	state  opState
	left   bool // it counts as ended; UCX has it still
	pinned bool
	small  bool // UCX receives into the slot
	doomed bool // it has been given up: its end is reported when nothing touches its buffer any more
}

type opState uint8

const (
	opFree opState = iota
	opSending
	opReceiving
)

// reserve makes room.
func (o *operations) reserve(slots, ends int) error {
	slots, ends = max(slots, len(o.slots)), max(ends, o.ends)
	if err := o.w.reserve(slots, ends); err != nil {
		return err
	}
	o.ends = ends
	o.slots = append(o.slots, make([]operation, slots-len(o.slots))...)
	return nil
}

// room makes room for a cookie, which is free.
func (o *operations) room(cookie uint64) error {
	if cookie < uint64(len(o.slots)) {
		return nil
	}
	return o.reserve(max(64, 2*len(o.slots), int(cookie)+1), 0)
}

// begin is called when UCX has the operation in the slot, or will have it with the next call of C.
func (o *operations) begin(slot uint32, state opState, peer int32, buf transport.Mem, mapped bool) {
	op := &o.slots[slot]
	op.peer, op.state, op.left, op.doomed, op.buf = peer, state, false, false, buf
	if op.small = state == opReceiving && buf.Len <= smallMax; !op.small && !mapped {
		op.hold()
	}
}

// hold pins the buffer.
func (op *operation) hold() {
	if op.buf.Len > 0 {
		op.pin.Pin(op.buf.Addr)
		op.pinned = true
	}
}

// end is called when UCX has let go of the operation.
func (o *operations) end(op *operation) {
	if op.pinned {
		op.pin.Unpin()
		op.pinned = false
	}
	op.state, op.buf.Addr = opFree, nil
}

// find returns the operation of that cookie, if it is under way.
func (o *operations) find(cookie uint64) *operation {
	if cookie < uint64(len(o.slots)) && o.slots[cookie].underWay() {
		return &o.slots[cookie]
	}
	return nil
}

// underWay reports whether op has not ended and has not been left to UCX.
func (op *operation) underWay() bool { return op.state != opFree && !op.left }

// unpin is for Close: the worker is destroyed.
func (o *operations) unpin() {
	for i := range o.slots {
		o.end(&o.slots[i])
	}
}

// Limits is transport.Tagged's.
func (d *Device) Limits() transport.TaggedLimits {
	return transport.TaggedLimits{Contexts: 1 << 16, Tag: wire.MaxTag, SendsStay: true}
}

// envelope is what UCX matches by: the tag, and which bits of it count.
func envelope(m transport.Match) (tag, mask uint64) {
	mask = transport.MaskExact
	if m.Tag < 0 {
		m.Tag, mask = 0, transport.MaskAnyTag
	}
	if m.Source < 0 {
		m.Source, mask = 0, mask&^sourceMask
	}
	tag, _ = transport.PackTag(m.Context, m.Source, m.Tag)
	return tag, mask
}

// sourceMask are the bits of the source in a tag.
const sourceMask = uint64(mostRanks-1) << 31

// TrySend implements transport.Tagged.
func (d *Device) TrySend(rank int32, m transport.Match, buf transport.Mem, now bool) (sent, held bool) {
	ep, err := d.endpointOf(rank)
	if err != nil {
		return false, false // Send says why
	}
	tag, _ := transport.PackTag(m.Context, m.Source, m.Tag)
	d.idle.sends(&d.sleep)
	d.sleep.late.called()
	if d.row.sends++; d.row.sends > d.row.atOnce && !now && !d.armed && buf.Len <= inlineMax && d.w.mayHoldSend() {
		d.w.holdSend(ep, tag, buf)
		if d.w.holds() < heldSends {
			return true, true
		}
		d.w.turn(0)
		d.show()
		return true, false
	}
	sent = d.w.trySend(ep, tag, buf)
	d.show() // of what this rank has sent itself
	return sent, false
}

// row is the short sends since the last Poll. The first atOnce of them are not held: their rank may compute next.
type row struct {
	sends, atOnce int
}

// rowAtOnce is the least row.atOnce, and rowMost the most.
const rowAtOnce, rowMost = 8, 1 << 20

// end ends a row, after which the rank has made a call soon; or late: then more go at once in the rows that follow, for
// a while.
func (r *row) end(late bool) {
	switch {
	case r.sends == 0:
		return
	case late:
		r.atOnce = min(4*r.atOnce, rowMost)
	default:
		r.atOnce = max(r.atOnce/2, rowAtOnce)
	}
	r.sends = 0
}

// heldSends is how many operations are held when one more send lets all of them begin: the receiver takes these while
// the next ones are collected.
const heldSends = 16

// Send is transport.Tagged's.
func (d *Device) Send(rank int32, m transport.Match, buf transport.Mem, sync bool,
	cookie uint64) (transport.State, error) {
	ep, err := d.endpointOf(rank)
	if err != nil {
		return transport.Done, err
	}
	slot := uint32(cookie)
	if err := d.ops.room(cookie); err != nil {
		return transport.Done, err
	}
	tag, _ := transport.PackTag(m.Context, m.Source, m.Tag)
	handle := d.mem.find(buf)
	d.idle.sends(&d.sleep)
	switch st := d.w.send(ep, tag, buf, handle, sync, slot); st {
	case stDone:
		d.show()
		return transport.Done, nil
	case stStarted:
		d.ops.begin(slot, opSending, rank, buf, handle != 0)
		d.show()
		return transport.Started, nil
	default:
		return transport.Done, explain(status(st))
	}
}

// Post is transport.Tagged's. While the rank is armed it takes no steps: what they found would no longer be shown, over
// TCP, by the descriptor in which another thread sleeps.
func (d *Device) Post(m transport.Match, buf transport.Mem, cookie uint64,
	waits bool) (got transport.Probed, st transport.State, err error) {
	slot := uint32(cookie)
	if err := d.ops.room(cookie); err != nil {
		return got, transport.Done, err
	}
	d.sleep.late.called()
	tag, mask := envelope(m)
	mapped := d.toReceive(slot, tag, mask, buf)
	turns := 0
	switch {
	case d.armed:
	case waits:
		turns = waitTurns
	case d.w.mayHold():
		d.ops.begin(slot, opReceiving, max(m.Source, -1), buf, mapped)
		d.w.holdReceive(slot)
		return got, transport.Started, nil
	}
	return d.received(d.w.receive(slot, turns), slot, max(m.Source, -1), buf, mapped)
}

// waitTurns is how many steps of UCX a receive takes at most whose caller waits: about a microsecond. What comes
// meanwhile, as an answer does, needs no Poll and no pin.
const waitTurns = 64

// Take is transport.Tagged's.
func (d *Device) Take(message uint64, buf transport.Mem, cookie uint64) (transport.State, error) {
	source := d.ops.taken[message]
	delete(d.ops.taken, message)
	slot := uint32(cookie)
	if err := d.ops.room(cookie); err != nil {
		return transport.Done, err
	}
	mapped := d.toReceive(slot, 0, 0, buf)
	_, st, err := d.received(d.w.take(message, slot), slot, source, buf, mapped)
	return st, err
}

// toReceive writes what a slot is to receive. It reports whether buf is in a mapping.
func (d *Device) toReceive(slot uint32, tag, mask uint64, buf transport.Mem) (mapped bool) {
	handle := uint64(0)
	if buf.Len > smallMax {
		handle = d.mem.find(buf)
	}
	d.w.toReceive(slot, tag, mask, buf, handle)
	return handle != 0
}

// received goes on with a receive that UCX has, or has refused with a status below 0.
func (d *Device) received(begun int, slot uint32, source int32, buf transport.Mem,
	mapped bool) (got transport.Probed, st transport.State, err error) {
	if begun < 0 {
		return got, transport.Done, explain(status(begun))
	}
	if e, ok := d.w.ended(slot); ok {
		got := found(e.tag, e.length)
		d.answers(got.Source, e.status)
		switch s := status(e.status); {
		case s == 0 && buf.Len <= smallMax:
			d.w.copySmall(buf, slot, e.length)
		case s != 0 && s != statusTruncated:
			return got, transport.Done, explain(s)
		}
		return got, transport.Done, nil
	}
	d.ops.begin(slot, opReceiving, source, buf, mapped)
	d.show()
	return got, transport.Started, nil
}

// found is a message with that tag.
func found(tag, length uint64) transport.Probed {
	_, source, t := transport.UnpackTag(tag)
	return transport.Probed{Source: source, Tag: t, Bytes: int64(length)}
}

// Probe is transport.Tagged's.
func (d *Device) Probe(m transport.Match, take bool) (transport.Probed, bool) {
	tag, mask := envelope(m)
	message, tag, length, ok := d.w.probe(tag, mask, take)
	if !ok {
		return transport.Probed{}, false
	}
	p := found(tag, length)
	if p.Message = message; take {
		d.ops.taken[message] = p.Source
	}
	return p, true
}

// Cancel is transport.Tagged's. UCX takes back receives only: a send ends as it would have.
func (d *Device) Cancel(cookie uint64) {
	if op := d.ops.find(cookie); op != nil {
		d.takeBack(uint32(cookie), op)
	}
}

// takeBack reports whether UCX has ended the operation, of which Poll will tell.
func (d *Device) takeBack(slot uint32, op *operation) bool {
	if op.state == opReceiving {
		d.w.cancel(slot)
		d.show()
	}
	return d.w.hasEnded(slot)
}

// Abandon is transport.Tagged's. UCX takes back receives that have met no message. It goes on with the others, which
// have not ended before it says so, or before those are gone that could send or read them.
func (d *Device) Abandon(cookie uint64, over bool) {
	op, slot := d.ops.find(cookie), uint32(cookie)
	if op == nil || d.takeBack(slot, op) {
		return
	}
	if !op.small && !d.silent(op.peer) && !(over && op.state == opSending) {
		op.doomed = true
		return
	}
	d.giveUp(slot)
}

// giveUp reports the end of an operation that UCX may never end. Its memory stays as it is until UCX does or is closed.
func (d *Device) giveUp(slot uint32) {
	op := &d.ops.slots[slot]
	if !op.pinned && !op.small {
		d.mem.hold(op.buf.Number())
	}
	op.left = true
	d.lost = append(d.lost, transport.Packet{Event: transport.TaggedGivenUp, Cookie: uint64(slot), Peer: op.peer,
		Err: transport.ErrCancelled})
	d.show()
}

// silent reports whether that rank sends and reads nothing any more. For -1, or no rank of this job, it reports whether
// none of the others does.
func (d *Device) silent(rank int32) bool {
	if uint(rank) < uint(len(d.peers)) {
		return d.peers[rank].gone != nil
	}
	for i := range d.peers {
		if i != d.opt.Rank && d.peers[i].gone == nil {
			return false
		}
	}
	return true
}

// giveUpDoomed is for after the end of a peer.
func (d *Device) giveUpDoomed() {
	for i := range d.ops.slots {
		op := &d.ops.slots[i]
		if op.underWay() && op.doomed && d.silent(op.peer) && !d.w.hasEnded(uint32(i)) {
			d.giveUp(uint32(i))
		}
	}
}

// explain is what a status of UCX means to the engine.
func explain(s status) error {
	if s == statusCancelled {
		return transport.ErrCancelled
	}
	return transport.Gone("UCX has lost the connection: %w", s)
}

//go:build ofi && linux && cgo

package ofi

import (
	"fmt"
	"runtime"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// operations are those under way. An engine's cookie is the slot of its operation, here and in the C layer.
type operations struct {
	e     *endpoint
	slots []operation
	taken map[uint64]int32 // the senders of messages that Probe has taken
}

// operation is what Go has to know of a slot. The slot is the engine's while it is free, and libfabric's otherwise.
type operation struct {
	buf    transport.Mem
	pin    runtime.Pinner
	small  *[smallMax]byte // the slot's own memory
	peer   int32           // of a receive from any source: -1
	state  opState
	left   bool // it counts as ended; libfabric has it still
	pinned bool
	doomed bool // it has been given up: its end is reported when nothing touches its buffer any more
}

type opState uint8

const (
	opFree opState = iota
	opSending
	opReceiving
)

// room makes room for a cookie, which is free.
func (o *operations) room(cookie uint64) error {
	if cookie < uint64(len(o.slots)) {
		return nil
	}
	slots := max(64, 2*len(o.slots), int(cookie)+1)
	if err := o.e.reserve(slots); err != nil {
		return err
	}
	for i := len(o.slots); i < slots; i++ {
		o.slots = append(o.slots, operation{small: o.e.small(i)})
	}
	return nil
}

// begin is called when libfabric has the operation in the slot.
func (o *operations) begin(slot uint32, state opState, peer int32, buf transport.Mem) {
	op := &o.slots[slot]
	op.peer, op.state, op.left, op.doomed, op.buf = peer, state, false, false, buf
	if buf.Len > 0 && !op.copied() {
		op.pin.Pin(buf.Addr)
		op.pinned = true
	}
}

// copied reports whether libfabric receives into the slot.
func (op *operation) copied() bool { return op.state == opReceiving && op.buf.Len <= smallMax }

// end is called when libfabric has let go of the operation.
func (op *operation) end() {
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

// underWay reports whether op has not ended and has not been left to libfabric.
func (op *operation) underWay() bool { return op.state != opFree && !op.left }

// unpin is for Close: the endpoint is closed.
func (o *operations) unpin() {
	for i := range o.slots {
		o.slots[i].end()
	}
}

// Limits is transport.Tagged's. The last context is that of answers.
func (d *Device) Limits() transport.TaggedLimits {
	return transport.TaggedLimits{Contexts: 1<<16 - 1, Tag: wire.MaxTag, SendsStay: true}
}

// envelope is what libfabric matches by: the tag, and which bits of it do not count.
func envelope(m transport.Match) (tag, ignore uint64) {
	if m.Tag < 0 {
		m.Tag, ignore = 0, ^transport.MaskAnyTag
	}
	if m.Source < 0 {
		m.Source, ignore = 0, ignore|sourceMask
	}
	tag, _ = transport.PackTag(m.Context, m.Source, m.Tag)
	return tag, ignore
}

// sourceMask are the bits of the source in a tag.
const sourceMask = uint64(mostRanks-1) << 31

// TrySend implements transport.Tagged.
func (d *Device) TrySend(rank int32, m transport.Match, buf transport.Mem, _ bool) (sent, held bool) {
	to, err := d.addressOf(rank)
	if err != nil {
		return false, false // Send says why
	}
	d.begins()
	tag, _ := transport.PackTag(m.Context, m.Source, m.Tag)
	return d.e.trySend(to, tag, buf), false
}

// Send is transport.Tagged's.
func (d *Device) Send(rank int32, m transport.Match, buf transport.Mem, sync bool,
	cookie uint64) (transport.State, error) {
	to, err := d.addressOf(rank)
	if err != nil {
		return transport.Done, err
	}
	if uint64(buf.Len) > d.own.longest {
		return transport.Done, fmt.Errorf("ofi: a message of %d bytes: %s takes at most %d", buf.Len, d.own.provider,
			d.own.longest)
	}
	if err := d.ops.room(cookie); err != nil {
		return transport.Done, err
	}
	d.begins()
	tag, _ := transport.PackTag(m.Context, m.Source, m.Tag)
	st := d.e.send(to, rank, tag, buf, sync, uint32(cookie))
	return d.begun(st, uint32(cookie), opSending, rank, buf)
}

// begun goes on with what the C layer has returned of an operation.
func (d *Device) begun(st int, slot uint32, state opState, peer int32, buf transport.Mem) (transport.State, error) {
	switch st {
	case stDone:
		return transport.Done, nil
	case stFull:
		d.refused = true
		return transport.Full, nil
	case stStarted:
		d.ops.begin(slot, state, peer, buf)
		d.show()
		return transport.Started, nil
	default:
		return transport.Done, explain(status(st))
	}
}

// Post is transport.Tagged's. Never Done.
func (d *Device) Post(m transport.Match, buf transport.Mem, cookie uint64,
	_ bool) (got transport.Probed, st transport.State, err error) {
	if err := d.ops.room(cookie); err != nil {
		return got, transport.Done, err
	}
	d.begins()
	tag, ignore := envelope(m)
	st, err = d.begun(d.e.receive(tag, ignore, buf, uint32(cookie)), uint32(cookie), opReceiving, max(m.Source, -1), buf)
	return got, st, err
}

// Take is transport.Tagged's.
func (d *Device) Take(message uint64, buf transport.Mem, cookie uint64) (transport.State, error) {
	if err := d.ops.room(cookie); err != nil {
		return transport.Done, err
	}
	source := d.ops.taken[message]
	st, err := d.begun(d.e.take(message, buf, uint32(cookie)), uint32(cookie), opReceiving, source, buf)
	if st != transport.Full {
		delete(d.ops.taken, message)
	}
	return st, err
}

// found is a message with that tag.
func found(tag, length uint64) transport.Probed {
	_, source, t := transport.UnpackTag(tag)
	return transport.Probed{Source: source, Tag: t, Bytes: int64(length)}
}

// Probe is transport.Tagged's.
func (d *Device) Probe(m transport.Match, take bool) (transport.Probed, bool) {
	tag, ignore := envelope(m)
	message, tag, length, ok := d.e.probe(tag, ignore, take)
	d.show() // of what has ended meanwhile
	if !ok {
		return transport.Probed{}, false
	}
	p := found(tag, length)
	if p.Message = message; take {
		d.ops.taken[message] = p.Source
	}
	return p, true
}

// ended makes a packet of the end of an operation. Fields that it leaves say nothing about this event.
func (d *Device) ended(x end, pkt *transport.Packet) {
	op, s := &d.ops.slots[x.slot], status(x.status)
	pkt.Event, pkt.Cookie, pkt.Err, pkt.Peer = transport.TaggedDone, uint64(x.slot), nil, op.peer
	cut := s == statusTruncated && op.state == opReceiving
	if op.state == opReceiving && (s == 0 || cut) {
		f := found(x.tag, x.length)
		pkt.Peer, pkt.Header.Tag, pkt.Header.Len = f.Source, f.Tag, x.length
		if n := min(x.length, uint64(op.buf.Len)); n > 0 && op.copied() && !op.left {
			copy(op.buf.Bytes(), op.small[:n])
		}
		if x.answer != 0 {
			d.answerTo(f.Source, x.answer)
		}
	} else if s != 0 {
		pkt.Err = explain(s)
	}
	op.end()
}

// Cancel is transport.Tagged's. libfabric takes back receives only: a send ends as it would have.
func (d *Device) Cancel(cookie uint64) {
	if op := d.ops.find(cookie); op != nil {
		d.takeBack(uint32(cookie), op)
	}
}

// takeBack reports whether libfabric has ended the operation, of which Poll will tell.
func (d *Device) takeBack(slot uint32, op *operation) bool {
	if op.state == opReceiving {
		d.e.cancel(slot)
		d.show()
	}
	return d.e.hasEnded(slot)
}

// Abandon is transport.Tagged's. libfabric takes back receives that have met no message. It goes on with the others,
// which have not ended before it says so, or before those are gone that could send or read them. A send of which only
// the answer is missing has its buffer back.
func (d *Device) Abandon(cookie uint64, over bool) {
	op, slot := d.ops.find(cookie), uint32(cookie)
	if op == nil || d.takeBack(slot, op) {
		return
	}
	sends := op.state == opSending
	if !op.copied() && !d.silent(op.peer) && !(sends && (over || d.e.onlyAnswer(slot))) {
		op.doomed = true
		return
	}
	d.giveUp(slot)
}

// giveUp reports the end of an operation that libfabric may never end. Its memory stays pinned until libfabric ends it
// or the endpoint is closed.
func (d *Device) giveUp(slot uint32) {
	op := &d.ops.slots[slot]
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
		if op.underWay() && op.doomed && d.silent(op.peer) && !d.e.hasEnded(uint32(i)) {
			d.giveUp(uint32(i))
		}
	}
}

// explain is what an error of libfabric means to the engine.
func explain(s status) error {
	if s == statusCancelled || s == -statusCancelled {
		return transport.ErrCancelled
	}
	return transport.Gone("libfabric has lost the connection: %w", s)
}

package looptag

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gorun-mpi/mpi/tagmatch"
	"github.com/gorun-mpi/mpi/transport"
)

// keepMax is how long a message may be that is kept for the receiver, keepMany how many of another sender are.
const keepMax, keepMany = 8 << 10, 32

// Fabric connects ranks.
type Fabric struct {
	busy int // of so many operations one is refused

	mu      sync.Mutex // guards what follows, and all of its devices
	calls   int
	devices []*Device
}

// New makes a fabric. Of busy operations one finds no room at first; 0: there is always room.
func New(busy int) *Fabric { return &Fabric{busy: busy} }

// Device is one rank.
type Device struct {
	f          *Fabric
	rank       int
	facts      transport.Facts
	table      *tagmatch.Table
	posted     map[uint64]*receive // by cookie
	sent       map[uint64]*message // that are not matched and whose bytes are here, by cookie
	taken      map[uint64]*message // by Probe
	kept       map[*Device]int     // messages of each sender whose bytes are here
	last       uint64              // number given to one of taken
	events     []transport.Packet  // not polled
	roomQueued bool                // Room is in events
	closed     bool

	arrived bool // a message has been kept since the last Poll
	armed   bool
	level   transport.Level
	wake    func(thread bool)
}

type receive struct {
	tagmatch.Receive
	buf    transport.Mem
	cookie uint64
}

type message struct {
	tagmatch.Message
	from, to *Device
	payload  []byte // from's until it is matched, if from waits for that
	waits    bool
	cookie   uint64
}

// Device makes the device of a rank.
func (f *Fabric) Device(rank int) *Device {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.devices) <= rank {
		f.devices = append(f.devices, nil)
	}
	d := &Device{f: f, rank: rank, table: tagmatch.New(), posted: map[uint64]*receive{}, sent: map[uint64]*message{},
		taken: map[uint64]*message{}, kept: map[*Device]int{}}
	d.facts.Tagged = d
	d.facts.Wake = []transport.Wake{{FD: -1, ThreadFD: -1, Notify: d.notifyBy}}
	f.devices[rank] = d
	return d
}

// Name is "looptag".
func (d *Device) Name() string { return "looptag" }

// Address names the fabric and the rank.
func (d *Device) Address() []byte { return fmt.Appendf(nil, "looptag/%p/%d", d.f, d.rank) }

// Facts is transport.Device's.
func (d *Device) Facts() *transport.Facts { return &d.facts }

// Connect makes no links.
func (d *Device) Connect(context.Context, int, []byte) (transport.Link, error) {
	return nil, fmt.Errorf("looptag: %w: it makes no links", errors.ErrUnsupported)
}

// Poll is transport.Device's.
func (d *Device) Poll(pkts []transport.Packet) int {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.arrived = false
	n := copy(pkts, d.events)
	for i := range n {
		if pkts[i].Event == transport.Room {
			d.roomQueued = false
		}
	}
	d.events = append(d.events[:0], d.events[n:]...)
	return n
}

// Arm implements transport.Device.
func (d *Device) Arm(level transport.Level) bool {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.armed, d.level = len(d.events) == 0 && !d.arrived && !d.closed, level
	return d.armed
}

// Disarm is transport.Device's.
func (d *Device) Disarm() { d.f.mu.Lock(); d.armed = false; d.f.mu.Unlock() }

func (d *Device) notifyBy(wake func(thread bool)) { d.f.mu.Lock(); d.wake = wake; d.f.mu.Unlock() }

// Close tells all other ranks. Their unmatched messages to this rank come back to them; messages that this rank has
// sent and still holds are lost.
func (d *Device) Close() error {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed, d.events = true, nil
	for _, m := range d.sent {
		m.to.drop(m)
	}
	gone := fmt.Errorf("looptag: rank %d has closed its device: %w", d.rank, transport.ErrPeerGone)
	for _, p := range d.f.devices {
		if p == nil || p.closed {
			continue
		}
		for _, m := range p.sent {
			if m.to == d {
				p.end(m, gone)
			}
		}
		p.event(transport.Packet{Event: transport.Down, Peer: int32(d.rank), Err: gone})
	}
	return nil
}

// What follows is called with the lock held.

// event reports to the rank, and wakes it if it asked for that. A rank that computes needs to hear of no event: what it
// has posted is filled in and what it has sent is fetched without it.
func (d *Device) event(pkt transport.Packet) {
	if !d.closed {
		d.events = append(d.events, pkt)
		d.show(pkt.Event != transport.TaggedDone)
	}
}

func (d *Device) show(urgent bool) {
	if d.armed && (urgent || d.level != transport.Urgent) {
		d.armed = false
		d.wake(d.level == transport.Thread)
	}
}

// end ends a send that was not matched.
func (d *Device) end(m *message, err error) {
	delete(d.sent, m.cookie)
	d.event(transport.Packet{Event: transport.TaggedDone, Cookie: m.cookie, Peer: int32(m.to.rank), Err: err})
}

// drop forgets a message that was sent to d.
func (d *Device) drop(m *message) {
	for number, o := range d.taken {
		if o == m {
			delete(d.taken, number)
			return
		}
	}
	d.table.Remove(&m.Message)
}

// fill gives a message to a receive.
func (d *Device) fill(buf transport.Mem, cookie uint64, source, tag int32, payload []byte) {
	if buf.Len > 0 {
		copy(buf.Bytes(), payload)
	}
	p := transport.Packet{Event: transport.TaggedDone, Cookie: cookie, Peer: source}
	p.Header.Tag, p.Header.Len = tag, uint64(len(payload))
	d.event(p)
}

// fetch gives a message that has waited to a receive.
func (d *Device) fetch(buf transport.Mem, cookie uint64, m *message) {
	d.fill(buf, cookie, m.Source, m.Tag, m.payload)
	if m.waits {
		m.from.end(m, nil)
	} else {
		d.kept[m.from]--
	}
}

// full reports whether there is no room this time. There is room at the next Poll.
func (d *Device) full() bool {
	f := d.f
	f.calls++
	if f.busy == 0 || f.calls%f.busy != 0 {
		return false
	}
	if !d.roomQueued {
		d.roomQueued = true
		d.event(transport.Packet{Event: transport.Room, Peer: int32(d.rank)})
	}
	return true
}

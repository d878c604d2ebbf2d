//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gorun-mpi/mpi/internal/topology"
)

var errClosed = errors.New("the device is closed")

// Events of a device that this rank must hear of; enum ibv_event_type.
const (
	eventCQError     = 0
	eventQPFatal     = 1
	eventQPRequest   = 2
	eventQPAccess    = 3
	eventDeviceFatal = 8
	eventPortActive  = 9
	eventPortError   = 10
	eventLID         = 11
	eventPKey        = 12
	eventSM          = 13
	eventSRQError    = 14
	eventSRQLimit    = 15
	eventReregister  = 17
	eventGID         = 18
)

// watchDevice starts the goroutine that takes the device's events: what it says apart from completions.
func (d *Device) watchDevice() (err error) {
	d.eventFile, err = d.watch(d.hca.async(), "gorun-verbs-events", d.takeEvents)
	return err
}

func (d *Device) takeEvents() {
	for {
		kind, of, ok := d.hca.event()
		if !ok {
			return
		}
		d.happened(kind, of)
	}
}

// happened takes one event. of is the owner of the queue pair or the number of the port, if it is of one.
func (d *Device) happened(kind, of uint32) {
	switch kind {
	case eventPortActive, eventLID, eventPKey, eventSM, eventReregister, eventGID:
		if int(of) == d.at.number {
			d.readdress(kind)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	what := fmt.Errorf("the device %s: %s", d.at.device, eventText(kind))
	switch kind {
	case eventQPFatal, eventQPRequest, eventQPAccess:
		if s := d.table.Load().owner(of); s != nil {
			d.abort(s, what, true)
		}
	case eventCQError, eventDeviceFatal, eventSRQError:
		d.dead.Store(true)
		d.opt.Log("the device has failed", "device", d.at.device, "event", eventText(kind))
		for _, s := range d.sessions {
			d.abort(s, what, true)
		}
		for _, s := range d.table.Load().all { // own.go's too
			d.abort(s, what, true)
		}
		d.tellNotice()
	case eventSRQLimit:
		d.recv.watched.Store(false)
		d.wakeSleepers()
	case eventPortError, eventPortActive:
		if int(of) != d.at.number {
			return
		}
		d.portDown.Store(kind == eventPortError)
		d.opt.Log("the port's state has changed", "device", d.at.device, "port", d.at.number, "event", eventText(kind))
	}
}

// readdress asks for the address of the port again. Connections from now on use it, since each hello has it. Those that
// there are go on, or fail by themselves: their queue pairs have the address that they were made with.
func (d *Device) readdress(kind uint32) {
	key, err := topology.ParsePKey(d.opt.Partition)
	var now port
	if err == nil {
		now, err = d.hca.usable(d.at.number, key)
	}
	if err != nil {
		d.opt.Log("the port can take no new connections", "device", d.at.device, "port", d.at.number,
			"event", eventText(kind), "error", err)
		return
	}
	d.mu.Lock()
	old := d.at.where()
	d.at.moveTo(&now)
	d.mu.Unlock()
	if where := now.where(); where != old {
		d.opt.Log("the port's address has changed, for new connections", "device", d.at.device, "port", d.at.number,
			"event", eventText(kind), "old", old, "new", where)
	}
}

// moveTo takes the address of o, which is the same port at a later time.
func (p *port) moveTo(o *port) {
	p.lid, p.mtu, p.gid, p.gidIndex, p.global, p.net, p.pkey, p.why = o.lid, o.mtu, o.gid, o.gidIndex, o.global, o.net,
		o.pkey, o.why
}

// where is what a hello says of the port, for a log.
func (p *port) where() string {
	return fmt.Sprintf("LID %d, GID %d %v, P_Key %d %v, MTU %d", p.lid, p.gidIndex, netip.AddrFrom16(p.gid), p.pkey.Index,
		p.pkey, mtuBytes(p.mtu))
}

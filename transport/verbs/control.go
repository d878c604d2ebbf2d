//go:build verbs && linux && cgo

package verbs

import (
	"fmt"

	"github.com/gorun-mpi/mpi/internal/eventset"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// The control connections are a whole tcp device: it knows which processes belong to the job, which of a peer's
// addresses lead to it, what to do when two ranks dial each other at once, and when a peer is gone, which queue pairs
// alone notice late or never. A goroutine looks after it, so that a queue pair is made also while this rank computes.

// controlMessage is something for a peer. Owner: Device.outbox until it is sent.
type controlMessage struct {
	peer    int
	header  wire.Header
	payload []byte
}

func (d *Device) openControl() (err error) {
	if d.control, err = tcp.New(d.opt.Control); err != nil {
		return err
	}
	if d.controlSet, err = eventset.New(d.control); err != nil {
		return err
	}
	d.address = encodeAddress(d.at.layer, d.control.Address())
	d.wg.Go(d.controlLoop)
	return nil
}

// sendControl sends something to a peer that there is a connection with, or will be. mu is held or not.
func (d *Device) sendControl(peer int, tag int32, payload []byte) {
	d.controlMu.Lock()
	d.outbox = append(d.outbox, controlMessage{peer, wire.Header{Kind: wire.Eager, Tag: tag}, payload})
	d.controlMu.Unlock()
	d.controlSet.Interrupt()
}

// controlLoop is the goroutine.
func (d *Device) controlLoop() {
	var pkts [8]transport.Packet
	for d.ctx.Err() == nil {
		d.controlMu.Lock()
		d.sendOut()
		n := d.control.Poll(pkts[:])
		armed := n == 0 && d.controlSet.Arm(transport.Any, false)
		d.controlMu.Unlock()
		for i := range n {
			d.onControl(&pkts[i])
		}
		if armed {
			d.controlSet.Park(false)
			d.controlMu.Lock()
			d.controlSet.Disarm()
			d.controlMu.Unlock()
		}
	}
	d.controlMu.Lock()
	d.sendOut() // the last messages of this rank
	d.controlMu.Unlock()
}

// sendOut sends what is in the outbox, as far as there is room. controlMu is held.
func (d *Device) sendOut() {
	kept := d.outbox[:0]
	for _, m := range d.outbox {
		link := d.control.Link(m.peer)
		if link == nil || !link.TrySend(&m.header, m.payload) {
			kept = append(kept, m)
		}
	}
	clear(d.outbox[len(kept):])
	d.outbox = kept
}

// onControl takes a packet of the control connections.
func (d *Device) onControl(pkt *transport.Packet) {
	peer := int(pkt.Peer)
	switch {
	case pkt.Event == transport.Down:
		d.onGone(peer, pkt.Err)
	case pkt.Event != transport.Arrived:
	case pkt.Header.Tag == tagHello:
		d.onHello(peer, pkt.Payload)
	case pkt.Header.Tag == tagReady:
		d.onReady(peer)
	case pkt.Header.Tag == tagBroken:
		d.onGone(peer, fmt.Errorf("%w: its queue pair for this rank: %.200q", transport.ErrPeerGone, pkt.Payload))
	}
}

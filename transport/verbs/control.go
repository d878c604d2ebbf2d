//go:build verbs && linux && cgo

package verbs

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// The control connections are a whole tcp device: it knows who belongs to the job, which of a peer's addresses lead to
// it, what to do when two ranks dial each other at once, and when a peer is gone, which queue pairs alone notice late or
// never. A goroutine looks after it, so that a queue pair is made also while this rank computes.

// letter is something for a peer. Owner: Device.outbox until it is sent.
type letter struct {
	peer    int
	header  wire.Header
	payload []byte
}

// reach makes sure that there is a control connection with peer.
func (d *Device) reach(ctx context.Context, peer int, address []byte) error {
	_, err := d.control.Connect(ctx, peer, address)
	return err
}

// write sends something to a peer that there is a connection with, or will be. mu is held or not.
func (d *Device) write(peer int, tag int32, payload []byte) {
	d.controlMu.Lock()
	d.outbox = append(d.outbox, letter{peer, wire.Header{Kind: wire.Eager, Tag: tag}, payload})
	d.controlMu.Unlock()
	d.control.Interrupt()
}

// talk is the goroutine.
func (d *Device) talk() {
	var pkts [8]transport.Packet
	for d.ctx.Err() == nil {
		d.controlMu.Lock()
		d.sendOut()
		n := d.control.Poll(pkts[:])
		armed := n == 0 && d.control.Arm(transport.Any, false)
		d.controlMu.Unlock()
		for i := range n {
			d.hear(&pkts[i])
		}
		if armed {
			d.control.Park(false)
			d.controlMu.Lock()
			d.control.Disarm()
			d.controlMu.Unlock()
		}
	}
	d.controlMu.Lock()
	d.sendOut() // the last words of this rank
	d.controlMu.Unlock()
}

// sendOut sends what is in the outbox, as far as there is room. controlMu is held.
func (d *Device) sendOut() {
	kept := d.outbox[:0]
	for _, l := range d.outbox {
		link := d.control.Link(l.peer)
		if link == nil || !link.TrySend(&l.header, l.payload) {
			kept = append(kept, l)
		}
	}
	clear(d.outbox[len(kept):])
	d.outbox = kept
}

// hear is told what a peer has said.
func (d *Device) hear(pkt *transport.Packet) {
	peer := int(pkt.Peer)
	switch {
	case pkt.Event == transport.Down:
		d.left(peer, pkt.Err)
	case pkt.Event != transport.Arrived:
	case pkt.Header.Tag == tagHello:
		d.greeted(peer, pkt.Payload)
	case pkt.Header.Tag == tagReady:
		d.answered(peer)
	case pkt.Header.Tag == tagBroken:
		d.left(peer, fmt.Errorf("%w: its queue pair for this rank: %.200q", transport.ErrPeerGone, pkt.Payload))
	}
}

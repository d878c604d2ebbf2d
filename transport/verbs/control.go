//go:build verbs && linux && cgo

package verbs

import (
	"context"
	"sync"

	"github.com/gorun-mpi/mpi/internal/eventset"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// The control connections are a whole tcp device: it knows which processes belong to the job, which of a peer's
// addresses lead to it, what to do when two ranks dial each other at once, and when a peer is gone, which queue pairs
// alone notice late or never. A goroutine looks after it, so that a queue pair is made also while this rank computes.

// controlPlane is that device, and what waits to be sent. Its goroutine hands out what arrives.
type controlPlane struct {
	tcp *tcp.Device
	set *eventset.Set // where the goroutine sleeps
	on  func(pkt *transport.Packet)
	ctx context.Context // ends the goroutine

	mu     sync.Mutex // guards the use of tcp by the goroutine, and the outbox. It is taken within Device.mu
	outbox []controlMessage
}

// controlMessage is something for a peer. Owner: the outbox until it is sent.
type controlMessage struct {
	peer    int
	header  wire.Header
	payload []byte
}

// open listens. What it has opened belongs to close also after an error.
func (c *controlPlane) open(ctx context.Context, opt tcp.Options, on func(pkt *transport.Packet)) (err error) {
	c.ctx, c.on = ctx, on
	if c.tcp, err = tcp.New(opt); err != nil {
		return err
	}
	c.set, err = eventset.New(c.tcp)
	return err
}

// close follows the end of the goroutine.
func (c *controlPlane) close() {
	if c.set != nil {
		c.set.Close()
	}
	if c.tcp != nil {
		c.tcp.Close()
	}
}

// send sends something to a peer that there is a connection with, or will be. Device.mu is held or not.
func (c *controlPlane) send(peer int, tag int32, payload []byte) {
	c.mu.Lock()
	c.outbox = append(c.outbox, controlMessage{peer, wire.Header{Kind: wire.Eager, Tag: tag}, payload})
	c.mu.Unlock()
	c.set.Interrupt()
}

// loop is the goroutine.
func (c *controlPlane) loop() {
	var pkts [8]transport.Packet
	for c.ctx.Err() == nil {
		c.mu.Lock()
		c.sendOut()
		n := c.tcp.Poll(pkts[:])
		armed := n == 0 && c.set.Arm(transport.Any, false)
		c.mu.Unlock()
		for i := range n {
			c.on(&pkts[i])
		}
		if armed {
			c.set.Park(false)
			c.mu.Lock()
			c.set.Disarm()
			c.mu.Unlock()
		}
	}
	c.mu.Lock()
	c.sendOut() // the last messages of this rank
	c.mu.Unlock()
}

// sendOut sends what is in the outbox, as far as there is room. mu is held.
func (c *controlPlane) sendOut() {
	kept := sendInOrder(c.outbox, func(m *controlMessage) bool {
		link := c.tcp.Link(m.peer)
		return link != nil && link.TrySend(&m.header, m.payload)
	})
	clear(c.outbox[len(kept):])
	c.outbox = kept
}

// sendInOrder sends messages, and moves to the beginning of all what is kept: what send refuses, and what is for the same
// peer behind that. A connection may be made between two calls of send, and a known that overtakes its hello is lost.
func sendInOrder(all []controlMessage, send func(m *controlMessage) bool) (kept []controlMessage) {
	var waits map[int]bool
	kept = all[:0]
	for _, m := range all {
		if !waits[m.peer] && send(&m) {
			continue
		}
		if waits == nil {
			waits = map[int]bool{}
		}
		waits[m.peer] = true
		kept = append(kept, m)
	}
	return kept
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
		d.moreReceives()
	case pkt.Header.Tag == tagReady:
		d.onReady(peer)
	case pkt.Header.Tag == tagKnown:
		d.onKnown(peer)
	case pkt.Header.Tag == tagBroken:
		d.onBroken(peer, pkt.Payload)
	}
}

//go:build ucx && linux && cgo

package ucx

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// peer is another rank, or this one.
type peer struct {
	to   *target // nil: Reach has not been called, or Poll has not come to it
	ep   endpoint
	gone error

	answered bool // it is in flusher.answered
	unheard  bool // it would be there, and cannot be reached yet
}

// target is where a peer is.
type target struct {
	address  []byte // of its worker
	sameHost bool   // its end is seen by this host's kernel, and not by UCX
	stop     func() // ends the watch
}

// Reach is transport.Tagged's.
func (d *Device) Reach(_ context.Context, rank int, address []byte) error {
	c, err := readCard(address, libraryVersion())
	if err != nil {
		return fmt.Errorf("ucx: rank %d: %w", rank, err)
	}
	peer := process{c.Host, c.PID, c.Start}
	t := &target{address: c.Address, sameHost: peer.host == d.self.host, stop: func() {}}
	if t.sameHost && peer.pid != d.self.pid {
		t.stop, err = peer.watch(func() {
			d.notify(notice{peer: int32(rank)})
		})
		if err != nil {
			return transport.Gone("ucx: rank %d cannot be reached: %w", rank, err)
		}
	}
	if !t.sameHost {
		d.links.watch(func() {
			d.reached.silent.Store(true)
			d.reached.some.Store(true)
			d.sleep.wakeSleepers()
		})
	}
	d.notify(notice{int32(rank), t})
	return nil
}

// notify has Poll take a notice, and wakes this rank for it: another one may have ended, or waits for answers.
func (d *Device) notify(n notice) {
	d.reached.add(n)
	d.sleep.wakeSleepers()
}

// takeNotices does what Reach and the watches have asked for.
func (d *Device) takeNotices() {
	for _, n := range d.reached.take() {
		p := &d.peers[n.peer]
		if n.to != nil {
			p.to = n.to
			d.opt.Debug("a rank can be reached", "peer", n.peer, "its end is seen by", seenBy(n.to))
			if !n.to.sameHost { // UCX says only of an endpoint that it has failed
				d.endpointOf(n.peer) // without a way to it, it is gone
			}
			if p.unheard {
				p.unheard = false
				d.answers(n.peer, 0)
			}
			continue
		}
		d.down(n.peer, transport.Gone("its process has ended"))
	}
	if !d.reached.silent.Swap(false) {
		return
	}
	if cut := d.links.cut(); cut > 0 {
		d.opt.Log("UCX's connections to another host are ended: no answer, the link is down, or that host is",
			"connections", cut, "GORUN_PEER_TIMEOUT", d.opt.PeerTimeout)
	}
}

func seenBy(t *target) string {
	if t.sameHost {
		return "the kernel"
	}
	return "UCX"
}

// endpointOf makes the endpoint on first use.
func (d *Device) endpointOf(rank int32) (endpoint, error) {
	p := &d.peers[rank]
	if p.ep != 0 && p.gone == nil {
		return p.ep, nil
	}
	if d.reached.some.Load() {
		d.takeNotices()
		d.show()
	}
	switch {
	case p.gone != nil:
		return 0, p.gone
	case p.to == nil:
		return 0, fmt.Errorf("ucx: rank %d was not reached", rank)
	case p.ep != 0:
		return p.ep, nil
	}
	if err := d.connect(rank); err != nil { // it cannot send to this rank either, which may wait for it
		d.down(rank, fmt.Errorf("ucx: no way to rank %d with what UCX_TLS and UCX_NET_DEVICES leave: %w: %w", rank,
			transport.ErrUnavailable, err))
		d.show()
		return 0, p.gone
	}
	return p.ep, nil
}

// connect makes the endpoint to a rank that has been reached.
func (d *Device) connect(rank int32) error {
	if err := d.ops.reserve(0, len(d.peers)); err != nil {
		return err
	}
	p := &d.peers[rank]
	ep, err := d.w.connect(p.to.address, rank, !p.to.sameHost)
	if err == nil {
		p.ep = ep
	}
	return err
}

// drainTurns is how many steps of UCX follow the end of a peer at most. A queue of its shared memory holds 256 packets.
const drainTurns = 4096

// down reports the end of a peer, once, when what it has sent is received: it writes to no buffer afterwards.
func (d *Device) down(rank int32, err error) {
	p := &d.peers[rank]
	if p.gone != nil {
		return
	}
	p.gone = err
	d.disconnect(p)
	d.w.drain(drainTurns) // what it wrote before its end
	d.lost = append(d.lost, transport.Packet{Event: transport.Down, Peer: rank, Err: err})
	d.giveUpDoomed()
}

func (d *Device) disconnect(p *peer) {
	if p.ep != 0 {
		d.w.disconnect(p.ep)
	}
}

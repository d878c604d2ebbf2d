//go:build ofi && linux && cgo

package ofi

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// peer is another rank, or this one.
type peer struct {
	to      uint64 // its number in libfabric
	reached bool
	gone    error
}

// answer tells a sender that its synchronous message has been received.
type answer struct {
	peer   int32
	number uint64
}

// Reach is transport.Tagged's. The control connection proves that the peer is of this job, and says when it is gone.
func (d *Device) Reach(ctx context.Context, rank int, address []byte) error {
	c, err := readCard(address, d.card)
	if err != nil {
		return fmt.Errorf("ofi: rank %d: %w", rank, err)
	}
	if rank != d.opt.Rank {
		if _, err := d.control.Connect(ctx, rank, c.Control); err != nil {
			return fmt.Errorf("ofi: the control connection with rank %d: %w", rank, err)
		}
	}
	d.reached.add(notice{int32(rank), c.Address})
	d.looks.wakeSleepers()
	return nil
}

// takeNotices does what Reach has asked for.
func (d *Device) takeNotices() {
	for _, n := range d.reached.take() {
		p := &d.peers[n.peer]
		if p.reached || p.gone != nil {
			continue
		}
		to, err := d.e.insert(n.address)
		if err != nil {
			d.down(n.peer, transport.Gone("ofi: no way to rank %d by %s: %w", n.peer, d.own.provider, err))
			continue
		}
		p.to, p.reached = to, true
		d.opt.Debug("a rank can be reached", "peer", n.peer)
	}
}

// addressOf is where a rank is that Reach has been called for.
func (d *Device) addressOf(rank int32) (uint64, error) {
	p := &d.peers[rank]
	if d.reached.some.Load() && !p.reached {
		d.takeNotices()
		d.show()
	}
	switch {
	case p.gone != nil:
		return 0, p.gone
	case !p.reached:
		return 0, fmt.Errorf("ofi: rank %d was not reached", rank)
	}
	return p.to, nil
}

// pollControl looks for the ends of peers.
func (d *Device) pollControl() {
	var pkts [8]transport.Packet
	n := d.control.Poll(pkts[:])
	for i := range n {
		if pkts[i].Event == transport.Down {
			d.down(pkts[i].Peer, pkts[i].Err)
		}
	}
}

// drainTurns are of libfabric, after the end of a peer: what it sent before is in the kernel, or in the device.
const drainTurns = 256

// down reports the end of a peer, once, when what it has sent is received.
func (d *Device) down(rank int32, err error) {
	if uint(rank) >= uint(len(d.peers)) {
		return
	}
	p := &d.peers[rank]
	if p.gone != nil {
		return
	}
	p.gone = err
	d.e.drain(drainTurns)
	d.lost = append(d.lost, transport.Packet{Event: transport.Down, Peer: rank, Err: err})
	d.giveUpDoomed()
}

// answerTo answers the sender of a synchronous message, which has been received.
func (d *Device) answerTo(rank int32, number uint64) {
	if uint(rank) >= uint(len(d.peers)) { // a message of a stranger
		return
	}
	if !d.answer(answer{rank, number}) {
		d.answers = append(d.answers, answer{rank, number})
	}
}

// answer reports whether that is over.
func (d *Device) answer(a answer) bool {
	switch p := &d.peers[a.peer]; {
	case p.gone != nil:
		return true
	case !p.reached: // the engine has it reached, since there is a message of it
		return false
	default:
		return d.e.answer(p.to, a.number) != stFull
	}
}

func (d *Device) flushAnswers() {
	kept := d.answers[:0]
	for _, a := range d.answers {
		if !d.answer(a) {
			kept = append(kept, a)
		}
	}
	d.answers = kept
}

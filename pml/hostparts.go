package pml

import (
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
)

// A message from device memory to memory of the same host. Its receiver knows nothing of devices and asks for a stream.
// The sender asks to be asked for parts, as by a receiver of device memory: then its device copies them into the
// receiver's pinned memory (peerpool.go), which only the sender need pin, and the receiver copies them out.
//
//	sender                                  receiver
//	  │◄────────────────────────────────── CTS ┤
//	  ├ AskParts ─────────────────────────────►│
//	  │◄───── Ask  where in its memory ────────┤

// prefersParts has the receiver ask for parts where that is better than a stream. It reports whether it has.
func (o *deviceOp) prefersParts(t *transfer, a *rendezvous.Action) bool {
	p := t.peer
	if a.Off > 0 || t.snd.Unsent() <= o.a.out.small.size || p.zcopy != nil || !p.link.Caps().SameHost {
		return false
	}
	o.inParts = true
	o.a.e.links.transfers.l.worklist.remove(jobStream, t) // until it is asked
	p.sendControl(wire.Header{Kind: wire.AskParts, Flags: wire.Urgent, Key: t.snd.To()})
	return true
}

// onAskParts is called when the sender of a stream would rather be asked for parts.
func (ts *transfers) onAskParts(p *peer, h *wire.Header) {
	t := ts.receiving(p, h.Key)
	switch {
	case t == nil: // over: its sender has failed it
	case t.r.device() != nil || !t.rcv.Streaming() || t.rcv.Have() > 0:
		p.breaks("it asked to be asked for parts of a message that is under way")
	case t.r.pieces != nil || p.zcopy != nil:
		ts.onReceiver(t, t.rcv.Again())
	case ts.accel != nil:
		ts.askParts(t)
	default:
		id := t.id
		ts.l.e.wg.Go(func() { ts.l.e.makeParts(p, id) })
	}
}

// makeParts makes the memory for parts, which takes long.
func (e *Engine) makeParts(p *peer, id uint64) {
	err := e.mapStaging()
	e.lock()
	defer e.unlock()
	ts := &e.links.transfers
	switch t := ts.receiving(p, id); {
	case t == nil || t.failed != nil:
	case t.r.device() != nil || !t.rcv.Streaming() || t.rcv.Have() > 0:
		p.breaks("it sends a message that it asked to be asked for in parts")
	case err != nil:
		ts.onReceiver(t, t.rcv.Again())
	default:
		ts.askParts(t)
	}
	e.exitCall()
}

// mapStaging makes sure that there is memory for parts.
func (e *Engine) mapStaging() error {
	ts := &e.links.transfers
	ts.making.Lock()
	defer ts.making.Unlock()
	e.lock()
	a, closed := ts.accel, e.closed
	e.unlock()
	if closed != nil || a != nil {
		return closed
	}
	a, err := e.newAccelerators()
	if err != nil {
		return err
	}
	e.lock()
	defer e.unlock()
	if e.gone {
		a.unmap()
		return e.closed
	}
	ts.accel = a
	return nil
}

// askParts asks for parts of the message that t receives into memory of the host.
func (ts *transfers) askParts(t *transfer) {
	o := &deviceOp{a: ts.accel, r: t.r, host: true}
	t.r.pieces, t.r.extra = &pieces{unpacker: o, device: o}, true
	ts.rest(t)
	t.rcv.InParts()
	o.askMore(t)
}

// endHost is called when a receive of askParts ends, if o is one: there is no copy to wait for.
func (o *deviceOp) endHost() {
	if o == nil || !o.host {
		return
	}
	o.over = true
	o.letGo()
}

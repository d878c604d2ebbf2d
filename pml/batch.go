package pml

import (
	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Short messages that have queued up for a peer go several in a packet. A link takes a few hundred packets, then waits
// for its receiver. Where both ranks compute on one processor each, a rank looks at its links once in a time slice of
// Go's scheduler: what a link holds is what moves in that time. As single packets, 8 bytes take a slot each.
//
// A batch is nothing to matching, credit or order: its receiver handles each message as if it had come alone, and a
// message alone in front of others that are not short goes as a packet of its own.

const (
	// batchMax bytes are in a batch at most. More of them gain little: a message in a batch of 8 bytes each takes 20
	// bytes of a link's room, and a batch that is refused is packed again.
	batchMax = 8 << 10
	// batchedMax is the longest message that goes in a batch. What is longer fills a link by its bytes.
	batchedMax = batchMax / 4
)

// batchLimit is the longest batch that a link takes; 0: none. Messages that a device could match go one by one.
func batchLimit(caps *transport.Caps) int {
	if caps.Offload {
		return 0
	}
	return min(batchMax, caps.EagerMax)
}

// sendBatch hands what can be a batch of limit bytes at the front of p's queue to the link. It reports whether there is
// one, which has been sent then unless the link is full.
func (p *peer) sendBatch(limit int) (ok, full bool) {
	l, n, cost := p.l, 0, int64(0)
	b := l.batch[:0]
	for _, r := range p.queue.items() {
		size := r.buf.Len
		if r.mode != Standard || r.announce || size > min(batchedMax, p.out.Limit()) ||
			len(b)+wire.BatchHeader+size > limit || !p.out.TakePayload(size) {
			break
		}
		b = wire.AppendBatch(b, r.recv.Ctx, r.recv.Tag, copyOut(r.buf))
		cost += eager.Cost(size)
		n++
	}
	l.batch = b
	if n < 2 {
		p.out.Refund(cost)
		return false, false
	}
	h := wire.Header{Kind: wire.Batch}
	if n < p.queue.len() {
		h.Flags = wire.Urgent // as a full link is: else its receiver would sleep on while much more comes
	}
	if !p.out.SendPaid(h, b, cost) {
		return true, true
	}
	for range n {
		r := p.queue.items()[0]
		p.queue.pop()
		l.sentEager(r)
	}
	return true, false
}

// onBatch handles the messages of a batch one by one.
func (l *linkPath) onBatch(p *peer, payload []byte) {
	if p.tags.able {
		p.breaks("it sent messages around the device that matches them")
	}
	for len(payload) > 0 && p.err == nil {
		ctx, tag, message, rest, err := wire.NextInBatch(payload)
		if err != nil {
			p.breaks("it sent a batch that makes no sense: " + err.Error())
			return
		}
		l.onEager(p, ctx, tag, message)
		payload = rest
	}
}

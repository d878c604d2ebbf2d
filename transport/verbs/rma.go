//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// pieceMax is the most that one READ or WRITE moves, so that short messages get in between and several are under way.
const pieceMax = 4 << 20

// rmaOp is a READ or WRITE of any length, cut into pieces, or an atomic operation. Its memory is the device's from the
// call that starts it to RMADone.
type rmaOp struct {
	s             *session
	cookie        uint64
	opcode        uint16
	local, remote uint64 // of what is not posted yet
	left          int    // bytes that are not posted yet
	parts         int    // requests that the device has
	lkey, rkey    uint32
	reg           *registration // nil: the memory is registered for as long as it lives, or in pieces, or copied
	pieces        *pieces       // nil: the memory is not registered in pieces
	mem           transport.Mem // is copied: a READ's in the end, a WRITE's with the request; else zero
	buffer        int32         // of sendPool.send, which is moved in place of mem; negative: none
	inline        bool          // the request carries mem
	noted         bool          // the last piece of a WRITE tells the peer note
	note          uint32
	result        int32 // of an atomic: number in rmaPool.results, whose owner is the device until then; else negative
	err           error
	waits         bool // in rmaPool.waitingRMA: bytes are left that no request moves
	next          *rmaOp
}

// rmaPool are the operations of all sessions.
type rmaPool struct {
	spareRMA   *rmaOp   // records, linked by next
	usedRMA    int      // records of operations that are not over
	waitingRMA []*rmaOp // that have something to post, and found no room, or memory that is not registered yet
	results    atomicResults
}

// register is transport.RMA's. The key is that of the device.
func (l *link) register(mem transport.Mem, access transport.Access) (addr, key uint64, ok bool) {
	d := l.s.d
	lasting := access&transport.Lasting != 0
	access &^= transport.Lasting
	switch {
	case d.closed.Load() || mem.Kind != transport.Host:
		return 0, 0, false
	case mem.Len == 0:
		return 0, 0, true // the peer has nothing to do there
	}
	if r, found, err := d.reachable(mem, access); found {
		return mem.Number(), uint64(r.rkey), err == nil
	}
	register := d.register
	switch {
	case lasting:
		register = d.registerLasting
	case mem.Len < d.opt.RegisterFrom:
		return 0, 0, false
	case mem.Len > registerAtOnce:
		register = d.prepared
	}
	x, err := register(mem, d.rights(access))
	if err != nil {
		return 0, 0, false
	}
	d.regs.advertise(x)
	return mem.Number(), uint64(x.region.rkey), true
}

// prepare is transport.RMA's. It reports whether a registration has begun.
func (l *link) prepare(mem transport.Mem, access transport.Access, cookie uint64) bool {
	d := l.s.d
	lasting := access&transport.Lasting != 0
	access &^= transport.Lasting
	if l.s.failed || d.closed.Load() {
		return false
	}
	then := func(err error) {
		d.events = append(d.events, transport.Packet{Event: transport.RMADone, Peer: int32(l.s.peer), Cookie: cookie,
			Err: err})
	}
	if found, begun := d.prepareAllocation(mem, access, then); found {
		return begun
	}
	rights := d.rights(access)
	switch {
	case !d.isLong(mem):
		return false
	case lasting:
		return d.prepareLasting(mem, rights, then)
	case mem.Len < d.opt.RegisterFrom:
		return false
	}
	d.prepareOne(mem, rights, then)
	return true
}

func (l *link) deregister(_, key uint64) {
	d := l.s.d
	if x := d.regs.withdraw(uint32(key)); x != nil {
		d.deregister(x)
	}
}

// revoke is transport.RMA's.
func (l *link) revoke(_, key uint64) (end func()) {
	d := l.s.d
	x := d.regs.withdraw(uint32(key))
	switch {
	case x == nil:
		return nil
	case x.uses > 0 || x.region.bytes <= registerAtOnce || d.closed.Load():
		d.deregister(x)
		return nil
	}
	return d.later.endBy(x)
}

func (l *link) get(dst transport.Mem, addr, key, cookie uint64) (transport.State, error) {
	return l.s.move(opRead, localWrite|relaxed, dst, addr, key, cookie)
}

func (l *link) put(src transport.Mem, addr, key, cookie uint64) (transport.State, error) {
	return l.s.move(opWrite, 0, src, addr, key, cookie)
}

func (s *session) move(opcode uint16, rights int, mem transport.Mem,
	addr, key, cookie uint64) (transport.State, error) {
	if mem.Len == 0 {
		return transport.Done, nil
	}
	g, st, err := s.begin(opcode, rights, mem, addr, key, cookie)
	if g == nil {
		return st, err
	}
	g.advance(s.d)
	return transport.Started, nil
}

func (l *link) putNote(src transport.Mem, addr, key uint64, note uint32, cookie uint64) (transport.State, error) {
	s := l.s
	g, st, err := s.begin(opWrite, 0, src, addr, key, cookie)
	if g == nil {
		return st, err
	}
	if src.Len == 0 {
		return g.single(s.d, op{qp: s.qp, opcode: opWriteImm, flags: signaled, imm: note})
	}
	g.noted, g.note = true, note
	g.advance(s.d)
	return transport.Started, nil
}

// begin makes an operation of which nothing is posted yet; nil: there is none, for that reason.
func (s *session) begin(opcode uint16, rights int, mem transport.Mem,
	addr, key, cookie uint64) (*rmaOp, transport.State, error) {
	d := s.d
	switch {
	case s.failed || d.closed.Load():
		return nil, 0, s.unreachable()
	case key>>32 != 0:
		return nil, 0, fmt.Errorf("verbs: %#x is no registration key: it has 32 bits", key)
	case !s.room(1):
		s.refuse()
		return nil, transport.Full, nil
	}
	d.armAgain()
	g := d.newRMA()
	*g = rmaOp{s: s, cookie: cookie, opcode: opcode, result: -1, buffer: -1, local: mem.Number(), remote: addr,
		left: mem.Len, rkey: uint32(key)}
	if mem.Len == 0 {
		return g, 0, nil
	}
	if d.copies(mem) {
		if !g.copied(mem) {
			d.freeRMA(g)
			s.refuse()
			return nil, transport.Full, nil
		}
		return g, 0, nil
	}
	if d.isLong(mem) {
		g.pieces = newPieces(mem, rights)
		return g, 0, nil
	}
	r, x, err := d.usable(mem, rights)
	if err != nil {
		d.freeRMA(g)
		return nil, 0, fmt.Errorf("verbs: registering %d bytes: %w", mem.Len, err)
	}
	g.reg, g.lkey = x, r.lkey
	return g, 0, nil
}

// copies reports whether mem is short enough that copying it costs less than registering it, and is not registered.
func (d *Device) copies(mem transport.Mem) bool {
	if mem.Len > eagerMax || mem.Kind != transport.Host || d.regs.cache != nil && mem.Len >= cacheLeast {
		return false
	}
	_, known := d.allocs.find(mem)
	return !known
}

// copied has g move a buffer of its own in place of mem, or, if it is a WRITE, carry a copy. It reports whether there
// was a buffer.
func (g *rmaOp) copied(mem transport.Mem) bool {
	d := g.s.d
	g.mem = mem
	if g.inline = g.opcode == opWrite && mem.Len <= g.s.inline; g.inline {
		return true
	}
	last := len(d.freeSends) - 1
	if last < 0 {
		return false
	}
	g.buffer = int32(d.freeSends[last])
	d.freeSends = d.freeSends[:last]
	piece := d.send.piece(uint32(g.buffer))
	g.local, g.lkey = addressOf(piece), d.send.region.lkey
	if g.opcode == opWrite {
		d.stats.Copied += uint64(copy(piece, mem.Bytes()))
	}
	return true
}

func (s *session) unreachable() error {
	return fmt.Errorf("%w: verbs: rank %d cannot be reached", transport.ErrPeerGone, s.peer)
}

// single posts all of g as one request.
func (g *rmaOp) single(d *Device, o op) (transport.State, error) {
	s := g.s
	d.one[0] = o
	if !s.submit(record{buffer: -1, rma: g}) {
		if g.result >= 0 {
			d.results.take(g.result)
		}
		d.freeRMA(g)
		if s.failed {
			return 0, s.unreachable()
		}
		return transport.Full, nil
	}
	s.unsignaled = 0
	g.parts++
	return transport.Started, nil
}

// advance posts as many pieces as there is room for.
func (g *rmaOp) advance(d *Device) {
	s := g.s
	piece := min(pieceMax, d.at.maxLength)
	for g.left > 0 && g.err == nil && !s.failed && s.room(1) {
		n := min(g.left, piece)
		if g.pieces != nil {
			if n = g.registeredPart(d, n); n == 0 {
				break
			}
		}
		d.one[0] = op{qp: s.qp, opcode: g.opcode, flags: signaled, local: g.local, remote: g.remote, length: uint32(n),
			lkey: g.lkey, rkey: g.rkey}
		if g.inline {
			d.one[0].flags |= inlined
		}
		if g.noted && n == g.left {
			d.one[0].opcode, d.one[0].imm = opWriteImm, g.note
		}
		if !s.submit(record{buffer: -1, rma: g}) {
			break
		}
		s.unsignaled = 0
		g.parts++
		g.left -= n
		g.local += uint64(n)
		g.remote += uint64(n)
		if g.opcode == opRead {
			d.stats.Reads++
		} else {
			d.stats.Writes++
		}
	}
	switch {
	case g.left > 0 && !g.waits:
		g.waits = true
		d.waitingRMA = append(d.waitingRMA, g)
	case g.left == 0 && g.parts == 0:
		g.end(d)
	}
}

// partDone is called when the device has moved a piece, or will not.
func (g *rmaOp) partDone(d *Device, err error) {
	g.parts--
	if err != nil && g.err == nil {
		g.err = fmt.Errorf("verbs: moving memory of rank %d: %w", g.s.peer, err)
	}
	if g.over() && !g.waits {
		g.end(d)
	}
}

// over reports whether neither the device nor a goroutine is at the memory, and nothing more is to be done.
func (g *rmaOp) over() bool {
	return g.parts == 0 && (g.left == 0 || g.err != nil) && (g.pieces == nil || g.pieces.missing == 0)
}

// end gives the memory back to its owner, by RMADone.
func (g *rmaOp) end(d *Device) {
	if g.reg != nil {
		d.deregister(g.reg)
	}
	if g.pieces != nil {
		g.pieces.end(d)
	}
	if g.buffer >= 0 {
		if g.opcode == opRead && g.err == nil {
			d.stats.Copied += uint64(copy(g.mem.Bytes(), d.send.piece(uint32(g.buffer))))
		}
		d.freeSends = append(d.freeSends, uint32(g.buffer))
	}
	if g.err != nil && g.s.failed && !errors.Is(g.err, transport.ErrPeerGone) {
		g.err = fmt.Errorf("%w: %w", transport.ErrPeerGone, g.err) // Down follows
	}
	pkt := transport.Packet{Event: transport.RMADone, Peer: int32(g.s.peer), Cookie: g.cookie, Err: g.err}
	if g.result >= 0 {
		pkt.Value = d.results.take(g.result)
	}
	d.events = append(d.events, pkt)
	d.freeRMA(g)
}

// advanceWaiting posts what had no room, or was not registered, and ends what belongs to failed sessions. A device that
// is closed has no queue pairs.
func (d *Device) advanceWaiting() {
	waiting := d.waitingRMA
	d.waitingRMA = d.waitingRMA[:0]
	for _, g := range waiting {
		g.waits = false
		switch {
		case g.err != nil || g.s.failed || d.closed.Load():
			g.left = 0
			if g.err == nil {
				g.err = g.s.why
			}
			if g.err == nil {
				g.err = errClosed
			}
			if g.over() {
				g.end(d)
			}
		default:
			g.advance(d)
		}
	}
}

func (p *rmaPool) newRMA() *rmaOp {
	p.usedRMA++
	g := p.spareRMA
	if g == nil {
		return new(rmaOp)
	}
	p.spareRMA = g.next
	return g
}

func (p *rmaPool) freeRMA(g *rmaOp) {
	p.usedRMA--
	*g = rmaOp{next: p.spareRMA}
	p.spareRMA = g
}

// releaseRMA is for Close: the queue pairs are destroyed.
func (d *Device) releaseRMA() {
	for _, s := range d.table.Load().all {
		s.release(s.next, errClosed)
	}
	d.advanceWaiting()
}

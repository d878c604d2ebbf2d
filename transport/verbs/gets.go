//go:build verbs && linux && cgo

package verbs

import (
	"fmt"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// getPiece is the most that one READ or WRITE moves, so that short messages get in between and several are under way.
const getPiece = 4 << 20

// get is a READ or WRITE of any length, cut into pieces. Its memory is the device's from TryGet to the packet Got.
type get struct {
	s            *session
	cookie       uint64
	opcode       uint16
	local, there uint64 // of what is not posted yet
	left         int    // bytes that are not posted yet
	parts        int    // requests that the device has
	lkey, rkey   uint32
	exposed      *exposure // nil: memory that is registered for good
	noted        bool      // the last piece of a WRITE tells the peer note
	note         uint32
	word         int32 // of an atomic: number of Device.words, whose owner is the device until then; else negative
	err          error
	listed       bool // in Device.waiting
	next         *get
}

// Register is transport.Getter's. The key is that of the device.
func (l *link) Register(buf []byte) (addr, key uint64, ok bool) {
	d := l.s.d
	if d.closed.Load() {
		return 0, 0, false
	}
	if len(buf) == 0 {
		return 0, 0, true // nothing is ever read of it
	}
	if reg, known := d.memory.known(buf); known {
		return addressOf(buf), uint64(reg.rkey), true
	}
	if len(buf) < d.opt.RegisterFrom {
		return 0, 0, false
	}
	x, err := d.expose(buf, localWrite|remoteRead|remoteWrite)
	if err != nil {
		return 0, 0, false
	}
	d.memory.show(x)
	return addressOf(buf), uint64(x.reg.rkey), true
}

// Deregister is transport.Getter's.
func (l *link) Deregister(_, key uint64) {
	l.s.d.hide(uint32(key), l.s.failed)
}

// TryGet is transport.Getter's.
func (l *link) TryGet(dst []byte, addr, key uint64, cookie uint64) (transport.GetState, error) {
	return l.s.move(opRead, localWrite, dst, addr, key, cookie)
}

// TryPut is transport.Putter's.
func (l *link) TryPut(src []byte, addr, key uint64, cookie uint64) (transport.GetState, error) {
	return l.s.move(opWrite, 0, src, addr, key, cookie)
}

func (s *session) move(opcode uint16, access int, mem []byte, addr, key uint64, cookie uint64) (transport.GetState, error) {
	if len(mem) == 0 {
		return transport.GetDone, nil
	}
	g, st, err := s.begin(opcode, access, mem, addr, key, cookie)
	if g == nil {
		return st, err
	}
	g.advance(s.d)
	return transport.GetStarted, nil
}

// begin makes a get of which nothing is posted yet; nil: there is none, for that reason.
func (s *session) begin(opcode uint16, access int, mem []byte, addr, key uint64, cookie uint64) (*get, transport.GetState, error) {
	d := s.d
	switch {
	case s.failed || d.closed.Load():
		return nil, 0, fmt.Errorf("%w: verbs: rank %d cannot be reached", transport.ErrPeerGone, s.peer)
	case key>>32 != 0:
		return nil, 0, fmt.Errorf("verbs: %#x is no registration key: it has 32 bits", key)
	case !s.room(1):
		return nil, transport.GetFull, nil
	}
	g := d.newGet()
	*g = get{s: s, cookie: cookie, opcode: opcode, word: -1, local: addressOf(mem), there: addr, left: len(mem), rkey: uint32(key)}
	if len(mem) == 0 {
		return g, 0, nil
	}
	if reg, known := d.memory.known(mem); known {
		g.lkey = reg.lkey
	} else {
		x, err := d.expose(mem, access)
		if err != nil {
			d.freeGet(g)
			return nil, 0, fmt.Errorf("verbs: registering %d bytes: %w", len(mem), err)
		}
		g.exposed, g.lkey = x, x.reg.lkey
	}
	return g, 0, nil
}

// advance posts as many pieces as there is room for.
func (g *get) advance(d *Device) {
	s := g.s
	piece := min(getPiece, d.at.maxLength)
	for g.left > 0 && g.err == nil && !s.failed && s.room(1) {
		n := min(g.left, piece)
		d.one[0] = op{qp: s.qp, opcode: g.opcode, flags: signaled, local: g.local, remote: g.there, length: uint32(n), lkey: g.lkey, rkey: g.rkey}
		if g.noted && n == g.left {
			d.one[0].opcode, d.one[0].imm = opWriteImm, g.note
		}
		if !s.submit(record{buffer: -1, get: g}) {
			break
		}
		s.quiet = 0
		g.parts++
		g.left -= n
		g.local += uint64(n)
		g.there += uint64(n)
		if g.opcode == opRead {
			d.stats.Reads++
		} else {
			d.stats.Writes++
		}
	}
	switch {
	case g.left > 0 && !g.listed:
		g.listed = true
		d.waiting = append(d.waiting, g)
	case g.left == 0 && g.parts == 0:
		g.end(d)
	}
}

// partDone: the device has moved a piece, or will not.
func (g *get) partDone(d *Device, err error) {
	g.parts--
	if err != nil && g.err == nil {
		g.err = fmt.Errorf("verbs: moving memory of rank %d: %w", g.s.peer, err)
	}
	if g.parts == 0 && (g.left == 0 || g.err != nil) && !g.listed {
		g.end(d)
	}
}

// end gives the memory back to its owner, who is told.
func (g *get) end(d *Device) {
	if g.exposed != nil {
		d.conceal(g.exposed)
	}
	pkt := transport.Packet{Event: transport.Got, Peer: int32(g.s.peer), Header: wire.Header{ID: g.cookie}, Err: g.err}
	if g.word >= 0 {
		pkt.Header.Key = d.words.take(g.word)
	}
	d.events = append(d.events, pkt)
	d.freeGet(g)
}

// goOn posts what had no room.
func (d *Device) goOn() {
	waiting := d.waiting
	d.waiting = d.waiting[:0]
	for _, g := range waiting {
		g.listed = false
		switch {
		case g.err != nil || g.s.failed:
			g.left = 0
			if g.err == nil {
				g.err = g.s.why
			}
			if g.parts == 0 {
				g.end(d)
			}
		default:
			g.advance(d)
		}
	}
}

func (d *Device) newGet() *get {
	g := d.gets
	if g == nil {
		return new(get)
	}
	d.gets = g.next
	return g
}

func (d *Device) freeGet(g *get) {
	*g = get{next: d.gets}
	d.gets = g
}

// dropGets ends those of a session that has failed and that had nothing with the device.
func (d *Device) dropGets(*session) {
	if len(d.waiting) > 0 {
		d.goOn()
	}
}

// releaseGets is for Close: the queue pairs are destroyed.
func (d *Device) releaseGets() {
	for _, s := range d.table.Load().all {
		s.release(s.next, errClosed)
	}
	d.goOn()
}

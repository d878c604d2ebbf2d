package pml

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/memfile"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// Between ranks of one host the sender puts a message into its receiver's pinned memory by itself: the copy from its
// device goes there, or the CPU copies a buffer of the host there. No byte goes through the link.
//
//	sender                                  receiver
//	  │◄───── Ask  where in its pinned memory ─┤ has a piece of it
//	  │◄───── Ask ─────────────────────────────┤ has another
//	  │ copies there                           │
//	  ├ Filled ───────────────────────────────►│ copies the piece to its device
//	  │ copies the next                        │ asks for more
//
// The memory is the receiver's, and only the receiver's messages need it. A sender has none of its own here that other
// sends could wait for. Where the sender cannot map the memory, or its driver not pin it, it sends Data as to any rank.
//
// A peer that has failed may still copy into a piece that it was to fill: no message says when it has ended. Such a
// piece is not used again (accelerators.retire).

// targetsMost is how many parts a receiver may ask for at a time.
const targetsMost = 64

// target is where in its receiver's memory a part of a message goes.
type target struct {
	from, n int64 // of the message
	at      int64 // in the pool
	begun   bool  // its copy has been started
	ready   int64 // bytes that are there
	told    int64 // bytes of which the receiver has been told
}

// peerPool is the pinned memory for receives of a peer, as this rank has mapped it.
type peerPool struct {
	file    *memfile.Memory
	mem     transport.Mem
	pin     pinState
	waiting []*deviceOp // sends, until it is pinned
	users   int         // copies under way
	gone    bool        // the peer has failed
}

// pinState is whether the devices of this rank can copy to a peerPool.
type pinState uint8

const (
	notPinned pinState = iota
	pinning
	isPinned
	cannotPin
)

// onAsk is called when the receiver asks for a part of a message, and perhaps says where it goes.
func (ts *transfers) onAsk(p *peer, h *wire.Header, handle []byte) {
	if len(handle) > 0 && !p.takePool(handle) {
		return
	}
	t := ts.sending(p, h.ID, "it asked for")
	if t == nil || t.failed != nil {
		return
	}
	began := !t.snd.Streaming()
	pieces := t.r.pieces
	if pieces != nil && len(pieces.targets) > 0 && !t.snd.Continues(h) {
		p.breaks("it asked again for a part of a message that it has asked for")
		return
	}
	if o := t.r.device(); o != nil {
		o.inParts = true
	}
	a := t.snd.OnAsk(h)
	if a.Do == rendezvous.Nothing && h.Ctx != 0 && t.snd.Streaming() && !ts.aim(t, h) {
		return
	}
	ts.stream(t, a, began)
}

// takePool maps the memory of a handle of p, which may be no handle. It reports whether p may share memory now. The
// calls of the kernel wait for no process.
func (p *peer) takePool(handle []byte) bool {
	s := p.sharing()
	if s.pool != nil {
		p.breaks("it shares its pinned memory twice")
		return false
	}
	s.pool = new(peerPool)
	f, err := memfile.Open(handle)
	if err != nil {
		p.saysWhyNot("mapped", err)
		return true
	}
	s.pool.file, s.pool.mem = f, transport.HostMem(f.Bytes())
	return true
}

// saysWhyNot logs why messages to p go through the link.
func (p *peer) saysWhyNot(what string, err error) {
	if debug := p.l.e.cfg.Debug; debug != nil {
		debug("messages to device memory go through the link, since the peer's pinned memory cannot be "+what, "peer",
			p.rank, "reason", err)
	}
}

// aim notes that a part goes where h says. It reports whether t goes on.
func (ts *transfers) aim(t *transfer, h *wire.Header) bool {
	p := t.peer
	at, n := int64(h.Ctx)-1, int64(h.Len)
	if p.shares == nil || p.shares.pool == nil {
		p.breaks("it asked for a message in memory that it has not shared")
		return false
	}
	pool := p.shares.pool
	o := t.r.device()
	if pool.file == nil || o != nil && pool.pin == cannotPin {
		return true // it goes through the link
	}
	if n > int64(pool.mem.Len)-at {
		p.breaks("it asked for a message where its pinned memory has ended")
		return false
	}
	if t.r.pieces == nil {
		t.r.pieces, t.r.extra = &pieces{}, true
	}
	if len(t.r.pieces.targets) == targetsMost {
		p.breaks("it asks for too much at a time")
		return false
	}
	t.r.pieces.targets = append(t.r.pieces.targets, &target{from: int64(h.Addr), n: n, at: at})
	if o != nil {
		o.fillTargets(pool)
		return !o.over
	}
	return true
}

// fillTargets starts the copies of the parts that the receiver has asked for, when the message may be touched and the
// memory is pinned here.
func (o *deviceOp) fillTargets(pool *peerPool) {
	switch {
	case !o.mayTouch():
		return
	case pool.pin == notPinned:
		o.a.pinPool(o.r.peer, pool)
		fallthrough
	case pool.pin == pinning:
		if !slices.Contains(pool.waiting, o) {
			pool.waiting = append(pool.waiting, o)
		}
		return
	}
	for _, g := range o.r.pieces.targets {
		if !g.begun && o.broken == nil {
			o.fillTarget(pool, g)
		}
	}
}

func (o *deviceOp) fillTarget(pool *peerPool, g *target) {
	g.begun = true
	err := o.a.start(o, o.b.Memory.Device, pool.mem.Number()+uint64(g.at), o.b.Addr+uint64(g.from), g.n,
		func(err error) {
			pool.leave(o.a)
			g.ready = g.n
			o.copied(err)
		})
	if err != nil {
		o.cannotRead(err)
		return
	}
	pool.users++
}

// copied is called when a copy of a send has ended.
func (o *deviceOp) copied(err error) {
	if err != nil {
		o.cannotRead(deviceError("copying the message from it", err))
		return
	}
	o.cannotRead(nil)
	if t := o.r.transfer; !o.over && o.broken == nil && t != nil && t.failed == nil {
		o.a.e.links.transfers.l.worklist.set(jobStream, t, t.snd.Streaming())
	}
}

// cannotRead ends a send whose message cannot be read, when the copies of it have ended: its receiver uses the memory
// again.
func (o *deviceOp) cannotRead(err error) {
	if o.broken == nil {
		o.broken = err
	}
	if o.broken != nil && o.copies == 0 && !o.over {
		o.breaks(o.broken)
	}
}

// pinPool pins a peer's memory for this rank's devices.
func (a *accelerators) pinPool(p *peer, pool *peerPool) {
	pool.pin = pinning
	pool.users++
	a.beside(func() func() {
		err := a.driver.Pin(pool.file.Bytes())
		return func() {
			pool.pin = isPinned
			if err != nil {
				pool.pin = cannotPin
				p.saysWhyNot("pinned", err)
			}
			waiting := pool.waiting
			pool.waiting = nil
			for _, o := range waiting {
				switch t := o.r.transfer; {
				case o.over || t == nil || t.failed != nil:
				case err != nil:
					o.r.pieces.targets = nil
					a.e.links.transfers.l.worklist.set(jobStream, t, t.snd.Streaming())
				default:
					o.fillTargets(pool)
				}
			}
			pool.leave(a)
		}
	})
}

// tell tells the receiver of bytes that are where it wants them: of the first target, which a is in. It returns
// how many; negative: that was much work; 0: t is parked until there is something to do, or the link is full.
func (ts *transfers) tell(t *transfer, a *rendezvous.Action) int64 {
	p, ps := t.peer, t.r.pieces
	g := ps.targets[0]
	if a.Off != g.from+g.told {
		p.breaks("it asked again for a part of a message that it has asked for")
		return 0
	}
	if ps.device == nil && g.ready == g.told {
		g.ready += ts.fillWithCPU(t, g, p.shares.pool)
	}
	n := g.ready - g.told
	if n == 0 || ps.device != nil && ps.device.broken != nil {
		ts.l.worklist.remove(jobStream, t) // until a copy has ended
		return 0
	}
	ts.l.hdr = wire.Header{Kind: wire.Filled, Flags: wire.Urgent, Tag: a.Header.Tag, Key: a.Header.Key,
		Addr: uint64(a.Off), Len: uint64(n)}
	if !p.link.TrySend(&ts.l.hdr, nil) {
		ts.l.worklist.stall(p)
		return 0
	}
	if g.told += n; g.told == g.n {
		ps.targets = slices.Delete(ps.targets, 0, 1)
	}
	if ps.device != nil {
		return n
	}
	return -n
}

// fillWithCPU copies the next bytes of a message in memory of the host.
func (ts *transfers) fillWithCPU(t *transfer, g *target, pool *peerPool) int64 {
	n := min(stagingSizes.step, g.n-g.ready)
	to := pool.mem.Part(g.at+g.ready, n)
	if from := g.from + g.ready; t.r.pieces.packer != nil {
		t.r.pieces.packer.Pack(to.Bytes(), from)
	} else {
		copyIn(to, copyOut(t.r.buf.Part(from, n)))
	}
	return n
}

// leave is called when a copy does not use the memory any more.
func (s *peerPool) leave(a *accelerators) {
	s.users--
	s.closeIfDue(a)
}

// closeIfDue unmaps the memory of a peer that has failed when no copy goes there.
func (s *peerPool) closeIfDue(a *accelerators) {
	if !s.gone || s.users > 0 || s.file == nil {
		return
	}
	f := s.file
	s.file = nil
	if s.pin != isPinned {
		f.Close()
		return
	}
	work := func() func() {
		a.driver.Unpin(f.Bytes())
		f.Close()
		return func() {}
	}
	if a.ended {
		work()
		return
	}
	a.beside(work)
}

// The receiving end.

// askFor asks for a part that goes to b. It reports whether the sender may put it there by itself.
func (p *peer) askFor(h wire.Header, b *pinned) (mayFill bool) {
	if b.place == 0 || p.zcopy != nil || !p.link.Caps().SameHost {
		p.sendControl(h)
		return false
	}
	h.Ctx = b.place
	s := p.sharing()
	if s.lentPool {
		p.sendControl(h)
		return true
	}
	s.lentPool = true
	p.sendWith(h, p.l.transfers.accel.file.Handle())
	return true
}

// onFilled is called when p has put a part, or some of it, into the memory that it was asked for in.
func (ts *transfers) onFilled(p *peer, h *wire.Header) {
	t := ts.receiving(p, h.Key)
	if t == nil {
		return // over: its sender has failed it
	}
	o := t.r.device()
	if o == nil {
		p.breaks("it has put a message into pinned memory, and was not asked to")
		return
	}
	a := t.rcv.OnData(h.Tag, int64(h.Addr), int64(h.Len))
	if a.Do == rendezvous.Copy {
		if !o.mayBeFilled(a.Off, a.Len) {
			p.breaks("it has put a message into pinned memory, and was not asked to")
			return
		}
		o.landed(t, a.Off+a.Len)
		a = t.rcv.Copied(a.Len)
	}
	ts.onReceiver(t, a)
}

// mayBeFilled reports whether the sender has been told where n bytes of the message go.
func (o *deviceOp) mayBeFilled(from, n int64) bool {
	for _, q := range o.parts {
		if q.from < from+n && from < q.from+q.n && !q.mayFill {
			return false
		}
	}
	return true
}

// retire is called in place of pool.put for a piece that a peer which has failed may still write to. Another takes its
// part: where that cannot be pinned its copies are slow, or fail.
func (a *accelerators) retire(b *pinned) {
	if a.ended {
		return
	}
	pool, driver := b.pool, a.driver
	a.beside(func() func() {
		mem, err := unix.Mmap(-1, 0, int(pool.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return func() { pool.put(&pinned{pool: pool, mem: transport.HostMem(make([]byte, pool.size))}) }
		}
		s := &spareMem{mem: mem}
		if driver != nil {
			s.pinned = driver.Pin(mem) == nil
		}
		return func() {
			a.spare = append(a.spare, s)
			pool.put(&pinned{pool: pool, mem: transport.HostMem(mem)})
		}
	})
}

// spareMem is a piece of memory that has taken the part of another.
type spareMem struct {
	mem    []byte
	pinned bool
}

func (s *spareMem) free(a *accelerators) {
	if !s.pinned || a.driver != nil && a.driver.Unpin(s.mem) == nil {
		unix.Munmap(s.mem)
	}
}

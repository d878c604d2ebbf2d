package shm

import (
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/ring"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// outSegment is the memory of a ring that this rank writes.
type outSegment struct {
	geo ring.Geometry
	fd  int // kept until the bulk area is committed
	at  int // where the ring is in the memory of fd
	mem []byte
	p   *ring.Producer

	claimed bool // of the peer's rings: fd is that of its contact, and stays open
}

func newOutSegment(g ring.Geometry) (*outSegment, error) {
	fd, mem, err := newSegment("ring", g.Size(), g.BulkAt())
	if err != nil {
		return nil, err
	}
	p, err := ring.NewProducer(mem, g)
	if err != nil {
		unix.Close(fd)
		unix.Munmap(mem)
		return nil, err
	}
	return &outSegment{geo: g, fd: fd, mem: mem, p: p}, nil
}

func (s *outSegment) close() {
	s.closeFD()
	unix.Munmap(s.mem)
}

func (s *outSegment) closeFD() {
	if s.fd >= 0 && !s.claimed {
		unix.Close(s.fd)
	}
	s.fd = -1
}

// link sends to one peer.
type link struct {
	*outSegment
	d         *Device
	peer      int
	pid       int           // in this process's PID namespace; 0: not visible
	pidFD     int           // of that process; -1: none
	seen      time.Duration // when the process was last seen alive: since opened. The caller's of get and put
	number    uint32        // of the ring, at the peer
	box       *inbox        // the peer's
	doorbells               // the peer's
	contact   *contact      // owns the peer's inbox and doorbells; nil: inbox does
	inbox     *sharedInbox
	conn      *net.UnixConn // nil: of a link by contact
	channel   channel       // for the memory of mpi.Alloc
	letter    *letter       // in the ring; nil: it was handed over by conn
	freed     freedSegments
	caps      transport.Caps
	bulk      bool        // the bulk area is committed
	noBulk    bool        // there was no room for it
	shrunk    bool        // FragMax has, since a packet was refused: a shorter one may find room
	dead      atomic.Bool // the peer is gone: packets are dropped
	refused   bool        // in Device.refused
	looking   atomic.Bool // lookForRoom runs
	past      bool        // the last payload in an area went past the caches
	copier    copier
}

func (l *link) Caps() *transport.Caps { return &l.caps }

// peerPolls implements transport.Presence: a rank that is not armed is in the library, or has nothing under way.
func (l *link) peerPolls() bool { return l.box.state.Load() == stIdle }

// peerWaits implements transport.Presence.
func (l *link) peerWaits() bool { return l.box.state.Load() <= stThread }

// oneLine is the longest payload in the first line of a slot, after a short header.
const oneLine = ring.SlotSize/2 - 8 - 8*shortAt

// TrySend implements transport.Link.
func (l *link) TrySend(h *wire.Header, payload []byte) bool {
	s := l.p.Slot()
	if s == nil {
		return l.full()
	}
	s.W[0] = uint64(h.Ctx) | uint64(uint32(h.Tag))<<32
	meta := uint32(h.Kind) | uint32(h.Flags)<<8
	n := len(payload)
	if h.Kind.Short() && n <= inlineShort {
		copy(s.Bytes(shortAt), payload)
		meta |= uint32(n) << 16
	} else if meta = l.long(s, h, payload, meta); meta == 0 {
		return l.full()
	}
	if l.p.Publish(s, meta) {
		l.signal(h.Flags&(wire.Urgent|wire.Wake) != 0)
	} else if h.Flags != 0 && l.box.state.Load() != stIdle {
		l.signal(h.Flags&(wire.Urgent|wire.Wake) != 0) // the ring is polled, but its owner is not polling now
	}
	if h.More {
		l.p.PrefetchWSlots()
	}
	if n > oneLine {
		if n <= inlineShort {
			l.p.PrefetchWSlot()
		} else {
			if l.copier.under != nil {
				l.copier.took(n, time.Since(opened))
			}
			if h.Kind.Short() && !l.past {
				l.p.PrefetchWSmall(n)
			}
		}
	}
	if h.Flags&wire.Wake != 0 {
		ringDoorbell(l.goroutineFD)
	}
	return true
}

// full is the answer of TrySend where there is no room. It reports whether the packet counts as sent, which it does on
// a dead link. An owner that sleeps until something urgent comes is woken: behind what fills the ring nothing urgent
// can come. It cannot arm without seeing that, so one load is enough.
func (l *link) full() bool {
	if l.box.state.Load() != stIdle {
		l.wake(l.box, true)
	}
	if l.dead.Load() {
		return true
	}
	if !l.refused {
		l.refused = true
		l.d.refused = append(l.d.refused, l)
	}
	if l.p.Want(); l.hasRoom() {
		l.d.own.wake(l.d.own.box, true) // this rank may sleep since before that, and the peer has not seen that it is wanted
	}
	l.lookIfUntold()
	return false
}

// untold reports whether room is wanted and the peer cannot tell of it. It has not opened this rank's inbox yet, or is
// not allowed to.
func (l *link) untold() bool {
	return l.letter != nil && l.letter.met.Load() == 0 && l.p.Wanted() && !l.dead.Load()
}

// lookIfUntold has this rank look by itself then.
func (l *link) lookIfUntold() {
	if l.untold() && l.looking.CompareAndSwap(false, true) {
		l.d.start(l.lookForRoom)
	}
}

// lookForRoom wakes this rank each roomPause, and once more after the peer has met it.
func (l *link) lookForRoom() {
	for untold := true; untold; l.d.own.wake(l.d.own.box, true) {
		if !l.d.pause(roomPause) {
			return
		}
		untold = l.untold()
	}
	l.looking.Store(false)
	l.lookIfUntold()
}

// roomPause is short where a peer is about to meet this rank, and long enough where it never does.
const roomPause = time.Millisecond

// hasRoom reports whether what was refused may be tried again.
func (l *link) hasRoom() bool { return l.p.Released() || l.shrunk }

// long fills in what does not fit the fast case; 0: no room.
func (l *link) long(s *ring.Slot, h *wire.Header, payload []byte, meta uint32) uint32 {
	at := shortAt
	if !h.Kind.Short() {
		s.W[1], s.W[2], s.W[3], s.W[4] = h.ID, h.Len, h.Addr, h.Key
		at = longAt
		if len(payload) <= inlineLong {
			copy(s.Bytes(at), payload)
			return meta | uint32(len(payload))<<16
		}
	}
	where := uint32(inSmall)
	var mem []byte
	var off uint32
	if h.Kind == wire.Data && l.bulkReady() {
		where = inBulk
		mem, off = l.p.AllocBulk(len(payload))
	} else {
		mem, off = l.p.AllocSmall(len(payload), h.More)
	}
	if mem == nil {
		return 0
	}
	l.past = false
	if len(payload) >= pastMin {
		s := l.copier.storesFor(len(payload))
		if s.sampled() {
			l.copier.sample(s)
		}
		l.past = s.past
	}
	if l.past {
		ring.Stream(mem, payload)
	} else {
		copy(mem, payload)
	}
	s.W[at] = uint64(off) | uint64(len(payload))<<32
	return meta | where<<24
}

// bulkReady commits the bulk area on first use. It reports whether there is one.
func (l *link) bulkReady() bool {
	if l.bulk || l.noBulk {
		return l.bulk
	}
	if l.geo.Bulk == 0 || commitRange(l.fd, "bulk area of a ring", l.at+l.geo.BulkAt(), l.geo.Bulk) != nil {
		l.noBulk, l.shrunk = true, true
		l.caps.FragMax = l.geo.Small / 4
		return false
	}
	l.closeFD()
	l.bulk = true
	return true
}

// signal marks the ring in the peer's doorbell bitmap, and wakes the peer if it sleeps.
func (l *link) signal(urgent bool) {
	l.box.mark(l.number)
	l.wake(l.box, urgent)
}

// rma is for a peer whose memory the probe has reached.
func (l *link) rma() *transport.RMA {
	return &transport.RMA{Register: l.register, Deregister: func(addr, key uint64) {}, Get: l.get,
		GetSome: l.getSome, Put: l.put}
}

// register is transport.RMA's. The peer can read and write all memory of this process, whatever access says; that of
// mpi.Alloc can be mapped, which is faster.
func (l *link) register(mem transport.Mem, _ transport.Access) (addr, key uint64, ok bool) {
	return mem.Number(), l.d.segments.share(l, mem.Bytes()), true
}

// get is transport.RMA's. The copy is always complete when it returns. The number of a process that has ended may be
// another one's: if the peer has not ended after the copy, it is the one that was read.
func (l *link) get(dst transport.Mem, addr, key, _ uint64) (transport.State, error) {
	switch {
	case l.dead.Load():
		return transport.Done, l.goneError()
	case !l.p.BeginAccess():
		return transport.Done, l.revokedError()
	}
	var err error
	if key == 0 || !l.d.segments.copyFrom(l.peer, key, dst.Bytes(), addr) {
		if err = readPeer(l.pid, dst.Bytes(), addr); err == nil && l.gone() {
			err = l.goneError()
		}
	}
	l.p.EndAccess()
	return transport.Done, err
}

// getSome is transport.RMA's: one system call, most of whose cost is that of finding the process. What it has read does
// not count if the number may have been another process's.
func (l *link) getSome(reads []transport.Read) (done int) {
	for i := range reads {
		if reads[i].Key != 0 {
			reads = reads[:i] // what is mapped is copied
			break
		}
	}
	if len(reads) == 0 || l.dead.Load() || !l.p.BeginAccess() {
		return 0
	}
	moved := readSome(l.pid, reads)
	gone := l.gone()
	l.p.EndAccess()
	if gone {
		return 0
	}
	for done < len(reads) && moved >= reads[done].Dst.Len {
		moved -= reads[done].Dst.Len
		done++
	}
	return done
}

// put likewise, but what is written into another process cannot be taken back, so the peer is looked at before. What is
// left is a peer that ends, is collected by its parent and has its number given away, all between that look and the
// copy: numbers are given out in turn, so that thousands of processes would have to start in these microseconds.
func (l *link) put(src transport.Mem, addr, key, _ uint64) (transport.State, error) {
	switch {
	case l.gone():
		return transport.Done, l.goneError()
	case !l.p.BeginAccess():
		return transport.Done, l.revokedError()
	}
	var err error
	if key == 0 || !l.d.segments.copyTo(l.peer, key, src.Bytes(), addr) {
		err = writePeer(l.pid, src.Bytes(), addr)
	}
	l.p.EndAccess()
	return transport.Done, err
}

// reuse is less than the time in which the kernel could give all other numbers away and then that of a process that has
// ended: 32,768 processes would have to start. To ask the kernel each time took 0.3 µs of each piece of a message.
const reuse = time.Millisecond

// gone reports whether the peer's number may be another process's by now.
func (l *link) gone() bool {
	if l.dead.Load() {
		return true
	}
	now := time.Since(opened) // before the look, which may be held up
	if l.pidFD < 0 || now-l.seen < reuse && l.seen != 0 {
		return false
	}
	if ended(l.pidFD) {
		return true
	}
	l.seen = now
	return false
}

func (l *link) goneError() error { return transport.Gone("its process has ended") }

package shm

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/board"
	"github.com/gorun-mpi/mpi/internal/ring"
	"github.com/gorun-mpi/mpi/transport"
)

// maxPolled is how many rings a poll reads at most without a mark.
const maxPolled = 8

// polledFor is how many empty polls a ring stays polled while another ring is.
const polledFor = 4096

// Device is one rank's end.
type Device struct {
	opt   Options
	geo   ring.Geometry
	probe *[8]byte // in the heap, which does not move: peers read it to see whether process_vm_readv works

	own   ownInbox
	facts transport.Facts

	host     hostID   // of this rank; none: it cannot be reached directly
	token    [16]byte // which its inbox holds, and its address
	contacts contacts

	card     []byte // sent to peers in the hello; set before the first Connect
	auth     *auth.Handshaker
	acceptor *auth.Acceptor
	address  []byte

	poller

	life // its mu guards what follows

	rings    []*inRing // by number; nil: 0, which is the notices, and rings not in use. Replaced, never edited
	inUse    atomic.Pointer[[]*inRing]
	byPeer   map[int]*inRing // also those that are not in use yet
	notices  []notice
	reported map[int]bool  // peers whose Down has been reported
	links    map[int]*link // by peer
	inboxes  map[int]*sharedInbox

	segments segments
}

// poller belongs to the caller of Poll (the engine, under its lock).
type poller struct {
	polled   []*inRing // read by every poll; all other rings are armed
	last     []*inRing // rings whose packets the previous Poll returned
	turn     int       // the polled ring that short looks at first, if there are so many
	burst    *inRing   // the ring that short goes on with, which it has just looked at all else for; nil: none
	left     int       // messages that short may still take from it
	refused  []*link   // that have found no room, and of which no Room has been reported since
	full     bool      // the previous Poll was full of polled rings' packets: the next one begins with the marks
	nextMark int       // the marked ring that is read first
	boards   board.Set
}

// notice is the end of peer's process, as seen on one of its connections. Goroutines leave it for Poll.
type notice struct {
	peer int
	err  error
}

// New makes the device. An error says what was missing.
func New(opt Options) (*Device, error) {
	if opt.Log == nil {
		opt.Log = func(string, ...any) {}
	}
	if opt.Local <= 0 {
		opt.Local = opt.Size
	}
	d := &Device{opt: opt, geo: geometry(opt),
		byPeer: map[int]*inRing{}, reported: map[int]bool{}, links: map[int]*link{},
		inboxes: map[int]*sharedInbox{}, probe: new([8]byte),
		life: life{conns: map[*net.UnixConn]struct{}{}, ending: make(chan struct{})}}
	d.setRings([]*inRing{nil})
	rand.Read(d.probe[:])
	d.segments.init()
	if err := d.open(); err != nil {
		d.Close()
		return nil, fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
	}
	return d, nil
}

// geometry keeps a rank's rings together under some tens of MB when it talks to every other rank of the host.
func geometry(opt Options) ring.Geometry {
	g := ring.Geometry{Slots: 256, Small: 512 << 10, Bulk: 512 << 10}
	if opt.Local > 4 {
		g.Small = 128 << 10
	}
	if opt.Local > 16 {
		g = ring.Geometry{Slots: 128, Small: 32 << 10, Bulk: 256 << 10}
	}
	if opt.Local > 64 {
		g = ring.Geometry{Slots: 64, Small: 16 << 10, Bulk: 128 << 10}
	}
	if opt.Bulk > 0 {
		g.Bulk = (min(max(opt.Bulk, 16<<10), 64<<20) + 4095) &^ 4095
	}
	return g
}

func (d *Device) open() (err error) {
	rings := 0
	if d.opt.Size > 1 {
		rings = min(d.opt.Local, d.opt.Size, maxClaims, max(1, regionMax/d.geo.Size()))
		if err = checkRoom("inbox and first ring", inboxSize+d.geo.Size()); err != nil {
			return err
		}
	}
	if d.own, err = newInbox(d.geo, rings); err != nil {
		return err
	}
	if rings > 0 { // a lack of room for the first of them is an error of New
		at := inboxSize + firstRing(d.opt.Rank, rings)*d.geo.Size()
		if err = commitRange(d.own.fd, "first ring", at, d.geo.BulkAt()); err != nil {
			return err
		}
	}
	d.setRings(make([]*inRing, 1+rings)) // what can be claimed has the first numbers
	if err = d.describe(); err != nil {
		return err
	}
	heard := d.own.heard
	d.facts = transport.Facts{
		Wake: []transport.Wake{{FD: heard.goroutineFD, ThreadFD: heard.threadFD, Clear: heard.clear,
			Word: &d.own.box.state, Asleep: stFutex}},
		Memory:     &transport.Memory{Alloc: d.alloc, Free: d.free},
		Introducer: &transport.Introducer{Introduce: d.introduce, Card: d.cardOf},
		Short:      d.short(),
		Refused:    func() uint64 { return d.acceptor.Refused() },
	}
	if d.host != (hostID{}) {
		d.facts.ConnectNow = d.connectNow
		d.facts.Boards = &transport.Boards{Make: d.makeBoard, Join: d.joinBoard}
	}
	if d.opt.Size > 1 && !d.opt.NoGet {
		allowReads(d.opt.Tracer)
	}
	if err = d.contacts.open(d); err != nil {
		return err
	}
	return d.listen()
}

// firstRing is the one of a rank's rings whose memory is committed in New. The next rank claims it.
func firstRing(rank, rings int) int { return (rank + 1) % rings }

// Name is "shm".
func (d *Device) Name() string { return "shm" }

// Address is published to the other ranks.
func (d *Device) Address() []byte { return d.address }

func (d *Device) setRings(rs []*inRing) {
	d.rings = rs
	d.inUse.Store(&rs)
}

// Facts is transport.Device's.
func (d *Device) Facts() *transport.Facts { return &d.facts }

// stateOf is what the owner of an inbox writes into its state for a level.
var stateOf = [...]uint32{transport.Urgent: stUrgent, transport.Any: stAny,
	transport.Thread: stThread, transport.Futex: stFutex}

// Arm implements transport.Device.
func (d *Device) Arm(level transport.Level) bool {
	// This rank stores the state, then arms the rings, then reads them. A sender publishes, then reads whether the ring
	// is armed, then marks it and reads the state. Whatever the interleaving, this rank sees the packet or the sender
	// sees the state. A peer that releases room stores how far it is, then reads the state: likewise.
	d.release() // what the last Poll has returned may be of rings that are not polled any more
	d.own.box.state.Store(stateOf[level])
	if len(d.refused) != 0 && d.hasRoom() {
		d.own.box.state.Store(stIdle)
		return false
	}
	if level == transport.Urgent {
		return d.armUrgent() && d.armBoards()
	}
	for _, r := range d.polled {
		r.polled = false
		r.flush()
		r.c.SetArmed(true)
		if r.ready() {
			d.own.box.mark(r.number)
		}
	}
	d.polled = d.polled[:0]
	if d.own.box.summary.Load() != 0 && d.marked() {
		d.own.box.state.Store(stIdle)
		return false
	}
	return d.armBoards()
}

// armBoards is the last thing that Arm does: a member that raises what a board expects, and sees that, finds the state.
// It reports whether no board has what it expects.
func (d *Device) armBoards() bool {
	if !d.boards.Arm() {
		d.own.box.state.Store(stIdle)
		return false
	}
	return true
}

// armUrgent leaves the rings polled: a sender of something urgent reads the state in any case. So other messages cost a
// rank that computes, and their senders, nothing. armUrgent reports whether there is nothing to poll.
func (d *Device) armUrgent() bool {
	for _, r := range d.polled {
		r.flush()
		if r.ready() {
			d.own.box.state.Store(stIdle)
			return false
		}
	}
	if d.own.box.summary.Load() != 0 && d.marked() {
		d.own.box.state.Store(stIdle)
		return false
	}
	return true
}

// Disarm is transport.Device's.
func (d *Device) Disarm() {
	d.boards.Disarm()
	if d.own.box.state.Load() != stIdle {
		d.own.box.state.Store(stIdle)
	}
}

// ownInbox is this rank's inbox with the rings behind it, and both ends of its doorbells.
type ownInbox struct {
	fd        int
	mem       []byte // the inbox
	box       *inbox
	rings     []byte    // for peers to claim. Memory is committed by the peer that claims one
	doorbells           // this rank's own, for its goroutines to ring
	offered   doorbells // handed to peers, which open them once more
	heard     doorbells // the other ends, readable when rung
}

// regionMax bounds the address space that an inbox takes.
const regionMax = 1 << 32

func newInbox(g ring.Geometry, rings int) (own ownInbox, err error) {
	own = ownInbox{fd: -1, doorbells: noDoorbells, offered: noDoorbells, heard: noDoorbells}
	defer func() {
		if err != nil {
			own.close()
		}
	}()
	size := inboxSize + rings*g.Size()
	if own.fd, err = newMemory("inbox", size, inboxSize); err != nil {
		return own, err
	}
	const access = unix.PROT_READ | unix.PROT_WRITE
	if own.mem, err = unix.Mmap(own.fd, 0, inboxSize, access, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return own, noRoom("inbox", inboxSize, err)
	}
	own.box = inboxOf(own.mem)
	if rings > 0 {
		if own.rings, err = unix.Mmap(own.fd, inboxSize, rings*g.Size(), access, unix.MAP_SHARED); err != nil {
			return own, noRoom("inbox", size, err) // no address space: ulimit -v
		}
	}
	if own.heard.goroutineFD, own.offered.goroutineFD, err = newDoorbell(); err != nil {
		return own, err
	}
	if own.heard.threadFD, own.offered.threadFD, err = newDoorbell(); err != nil {
		return own, err
	}
	own.doorbells, err = own.offered.reopen()
	return own, err
}

// close leaves the inbox's mapping until the process ends: an Interrupt may be under way. It is one page.
func (o *ownInbox) close() {
	if o.fd >= 0 {
		unix.Close(o.fd)
		o.fd = -1
	}
	for _, b := range []*doorbells{&o.doorbells, &o.offered, &o.heard} {
		b.close()
	}
	unix.Munmap(o.rings)
	o.rings = nil
}

// allowReads lets the other ranks read this process where Yama, by default, lets only ancestors: those that descend
// from tracer. If that is not known it is this process's parent, which most launchers make that of all ranks of a host.
// Where there is no Yama it does nothing.
func allowReads(tracer int) {
	unix.Prctl(unix.PR_SET_PTRACER, uintptr(cmp.Or(tracer, os.Getppid())), 0, 0, 0)
}

// Close is transport.Device's.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	close(d.ending)
	if d.own.box != nil { // New may have failed before
		d.own.box.owner.closed.Store(1)
		d.adoptAll()
	}
	for c := range d.conns {
		c.Close()
	}
	d.mu.Unlock()
	d.contacts.stop()
	if d.acceptor != nil {
		d.acceptor.Close()
	}
	d.wg.Wait() // no goroutine of the device touches the memory any more
	for _, l := range d.links {
		if l.contact != nil {
			l.release()
		}
	}
	rings := d.rings
	d.setRings([]*inRing{nil})
	d.polled, d.last, d.refused = nil, nil, nil
	for _, r := range rings {
		if r != nil {
			d.revoke(int(r.peer))
			unix.Munmap(r.mem)
			d.releaseInbox(r.sharedInbox)
		}
	}
	d.segments.close()
	d.contacts.close()
	d.own.close()
	return nil
}

//go:build verbs && linux && cgo

package verbs

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/doze"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

const (
	// eagerMax is the longest message that is sent into a receive buffer of the peer; what is longer is read by it.
	eagerMax = 8 << 10
	// slotSize is a receive buffer, and a send buffer: the longest frame, in whole cache lines.
	slotSize = eagerMax + 64
	// receives is how many buffers the shared receive queue has, and sends how many wait for their completion with the
	// device. Less if the memory may not be locked.
	receives    = 1024
	sends       = 512
	leastBuffer = 64
	// depth is how much one queue pair takes, and outstanding all together: each may end as an error, for which there
	// must be room in the completion queue.
	depth       = 64
	outstanding = 4096
	// lastRequests is for how many sessions that fail at once there is room in the completion queue for a request more.
	lastRequests = 64
	// signalEvery is how many sends to a peer are confirmed at once.
	signalEvery = 16
	// giveBackAt is how many receive buffers are given back at once, unless the queue runs dry.
	giveBackAt = 16
	// inlineMax is what is asked for: short frames go to the device with the request, and need no buffer.
	inlineMax = 220
	// nodEvery is how often a rank that does not poll and is not armed is made to: see nod.
	nodEvery = 20 * time.Millisecond
	// closePatience is how long Close lets the device deliver what has been sent.
	closePatience = 5 * time.Second
)

// Device is one rank's end.
type Device struct {
	opt     Options
	hca     *hca
	at      port
	place   *doze.Place
	control *tcp.Device
	address []byte
	limit   int // of outstanding
	memory  memory
	tagOps  int // operations of the list of tagged buffers that the device takes

	recv slab // the receive buffers. Owner of a buffer: the device while posted, the caller of Poll until the next, then again this
	send slab // the send buffers. Owner: nobody while in free, the device from post to completion

	// These belong to the caller of Poll (the engine, under its lock).
	posted   int      // receive buffers that the device has
	lent     []uint32 // receive buffers whose payloads the last Poll has handed out
	back     []uint32 // those that it may have again
	free     []uint32 // send buffers
	inFlight int      // requests that the device has, of all queue pairs
	tags     tagging
	numbers  numbers
	wcs      [pollMax]completion
	stash    []completion // of wcs: found by Arm, for the next Poll
	events   []transport.Packet
	rooms    []*session
	hungry   []*session // refused because others hold what all share
	ending   []*session // that have failed and are not flushed yet
	one      [1]op      // what is posted next
	scratch  []byte     // of send, its last piece: a frame that goes with its request
	gets     *get       // spare records
	words    words
	waiting  []*get
	polls    uint64
	stats    Counters

	active    atomic.Uint64 // == polls, for nod
	armed     atomic.Bool
	wake      atomic.Pointer[func()] // ends the sleep of this rank
	nodder    *time.Timer
	nodding   sync.Mutex // held by nod; the device is there as long
	eventFile *os.File   // what the device says apart from completions
	seen      uint64
	news      atomic.Bool
	closed    atomic.Bool
	table     atomic.Pointer[table] // of sessions; replaced and never edited: Poll reads it without mu

	mu       sync.Mutex // guards what follows; taken when connections come and go
	sessions map[int]*session
	lost     []*session // that have ended without Poll
	wg       sync.WaitGroup
	ctx      context.Context // ends with the device
	stop     context.CancelFunc

	// The control connections belong to whoever has this lock, which is taken within mu, never the other way round.
	controlMu sync.Mutex
	outbox    []letter
}

// New opens the device. The error, a transport.ErrUnavailable, says what was missing.
func New(opt Options) (transport.Device, error) {
	opt.fill()
	d := &Device{opt: opt, sessions: map[int]*session{}, limit: outstanding}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.table.Store(&table{})
	d.nodder = time.AfterFunc(time.Hour, d.nod)
	d.nodder.Stop()
	if err := d.open(); err != nil {
		d.Close()
		return nil, fmt.Errorf("%w: verbs: %w", transport.ErrUnavailable, err)
	}
	return d, nil
}

func (d *Device) open() (err error) {
	if err := load(d.opt.Library); err != nil {
		return fmt.Errorf("opening libibverbs: %w", err)
	}
	if d.hca, d.at, err = choose(d.opt.Devices, d.opt.Partition); err != nil {
		return err
	}
	if d.opt.entries > 0 {
		d.at.caps.maxEntries = d.opt.entries
	}
	if err := d.makeBuffers(); err != nil {
		return err
	}
	if d.place, err = doze.New(); err != nil {
		return err
	}
	if err := d.place.Add(d.hca.channel()); err != nil {
		return err
	}
	d.Join(d.place.Interrupt)
	if err := d.watchDevice(); err != nil {
		return err
	}
	if d.control, err = tcp.New(d.opt.Control); err != nil {
		return fmt.Errorf("the control connections: %w", err)
	}
	d.address = encodeAddress(d.at.layer, d.control.Address())
	d.wg.Go(d.talk)
	if d.opt.RegisterFrom <= 0 {
		d.opt.RegisterFrom = d.measure()
	}
	d.useCache(d.opt.Cache)
	d.nodder.Reset(nodEvery)
	d.opt.Debug("verbs device", "device", d.at.device, "port", d.at.number, "gid", d.at.gidIndex, "partition", d.at.pkey, "because", d.at.why, "library", libraryPath(),
		"receive-buffers", d.recv.count, "register-from", d.opt.RegisterFrom)
	return nil
}

// makeBuffers makes the queues and the memory that the device knows from the beginning: as much as it is allowed to lock.
func (d *Device) makeBuffers() error {
	raiseMemlock()
	tags, ops, err := d.prepareTags()
	if err != nil {
		return err
	}
	forTags := 2*tags + ops // MATCH and DATA_VALID of each entry, and its operations
	ask := min(receives+outstanding+forTags+lastRequests, d.at.caps.maxEntries)
	want := min(receives, d.at.caps.maxReceives, ask/2)
	cqe, srq, err := d.hca.make(uint32(ask), uint32(want), slotSize, tags, ops)
	if err != nil {
		return err
	}
	d.makeTags(tags, ops)
	d.limit = int(cqe) - int(srq) - forTags - lastRequests
	if d.limit < depth {
		return fmt.Errorf("a completion queue of %d entries is too short", cqe)
	}
	nr, ns := min(want, int(srq)), sends
	for {
		if d.recv, err = d.slab(nr, slotSize); err == nil {
			if d.send, err = d.slab(ns+1, slotSize); err == nil {
				break
			}
			d.recv.drop(d.hca)
		}
		if nr, ns = nr/2, ns/2; ns < leastBuffer {
			return fmt.Errorf("%d KiB for receive and send buffers: %w", (2*nr+2*ns)*slotSize>>10, explainMemlock(err))
		}
	}
	for i := range ns {
		d.free = append(d.free, uint32(i))
	}
	d.scratch = d.send.piece(uint32(ns))
	d.hca.receiveFrom(addressOf(d.recv.mem), d.recv.reg.lkey)
	for i := range d.recv.count {
		d.back = append(d.back, uint32(i))
	}
	d.posted = len(d.back)
	if _, err := d.hca.turn(d.back, nil); err != nil {
		return fmt.Errorf("posting %d receive buffers: %w", len(d.back), err)
	}
	d.back = d.back[:0]
	return nil
}

// Name is "verbs".
func (d *Device) Name() string { return "verbs" }

// Address is published to the other ranks.
func (d *Device) Address() []byte { return d.address }

// Introduce is transport.Introducer's.
func (d *Device) Introduce(card []byte) { d.control.Introduce(card) }

// Card is transport.Introducer's.
func (d *Device) Card(peer int) []byte { return d.control.Card(peer) }

// Refused is transport.Guarded's.
func (d *Device) Refused() uint64 { return d.control.Refused() }

// Descriptor is transport.Joint's: the completion channel.
func (d *Device) Descriptor() int { return d.hca.channel() }

// Clear is transport.Joint's. What the channel has is forgotten by the next Arm: not here, where another sleeper might
// be just about to be woken by it.
func (d *Device) Clear() {}

// Join is transport.Joint's.
func (d *Device) Join(wake func()) { d.wake.Store(&wake) }

// Arm is transport.Device's. Urgent packets are sent solicited, and nothing else is: so the device itself knows what a
// computing rank is to be woken for.
func (d *Device) Arm(level transport.Level, hold bool) bool {
	if d.closed.Load() || d.has() {
		return false
	}
	if err := d.hca.notify(level == transport.Urgent); err != nil {
		// The device is gone, which a queue that lies in our own memory does not say. When its sessions have ended there is
		// nothing to hear from it, and this rank may sleep.
		if d.failAll(fmt.Errorf("asking for the next completion: %w", err)); d.has() {
			return false
		}
	}
	n, err := d.hca.turn(nil, d.wcs[:])
	d.stash = d.wcs[:n]
	if n > 0 || err != nil {
		return false
	}
	d.place.Arm(hold)
	if d.news.Load() { // somebody has rung who may have been too early
		d.place.Disarm()
		return false
	}
	d.armed.Store(true)
	return true
}

// has: there is something for Poll that makes no completion: so is the end of a session, once its requests are back.
func (d *Device) has() bool {
	return d.news.Load() || len(d.stash)+len(d.events)+len(d.rooms)+len(d.ending) > 0
}

// Disarm is transport.Device's.
func (d *Device) Disarm() {
	d.armed.Store(false)
	d.place.Disarm()
}

// Park is transport.Device's.
func (d *Device) Park(hold bool) { d.place.Park(hold) }

// Interrupt is transport.Device's.
func (d *Device) Interrupt() { d.place.Interrupt() }

// nod makes a rank poll that has not for a while: if it is not armed nobody is to wake it, and peers may wait for it all
// the same, to take a message back for example. A completion queue cannot be looked at from here. If it is armed, the
// channel says whether something has come that has woken nobody.
func (d *Device) nod() {
	d.nodding.Lock()
	defer d.nodding.Unlock()
	if d.closed.Load() {
		return
	}
	polls := d.active.Load()
	if polls == d.seen && len(d.table.Load().all) > 0 && (!d.armed.Load() || readable(d.hca.channel())) {
		d.rouse()
	}
	d.seen = polls
	d.nodder.Reset(nodEvery)
}

func readable(fd int) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(p[:], 0)
	return n > 0
}

// rouse ends the sleep of this rank.
func (d *Device) rouse() {
	if wake := d.wake.Load(); wake != nil {
		(*wake)()
	}
}

// Close is transport.Device's. What has been sent is delivered first, unless the peer has no room for it.
func (d *Device) Close() error {
	d.nodding.Lock()
	was := d.closed.Swap(true)
	d.nodding.Unlock()
	if was {
		return nil
	}
	d.nodder.Stop()
	if d.control != nil {
		d.settle(time.Now().Add(cmp.Or(d.opt.closing, closePatience)))
	}
	d.stop()
	if d.control != nil {
		d.control.Interrupt()
	}
	if d.eventFile != nil {
		d.eventFile.SetReadDeadline(time.Now()) // ends its goroutine
	}
	d.wg.Wait()
	if d.control != nil {
		d.control.Close()
	}
	for _, s := range d.table.Load().all {
		s.destroy()
	}
	d.releaseGets()
	d.concealTagged()
	d.memory.drop(d.hca)
	d.words.slab.drop(d.hca)
	d.send.drop(d.hca)
	d.recv.drop(d.hca)
	if d.place != nil {
		d.place.Close()
	}
	if d.hca != nil {
		d.hca.close()
	}
	return nil
}

// settle waits until the device has delivered everything.
func (d *Device) settle(until time.Time) {
	for d.inFlight > 0 && time.Now().Before(until) {
		for _, s := range d.table.Load().all {
			if !s.failed {
				s.confirm()
			}
		}
		if d.news.Load() {
			d.takeNews() // who is gone gets nothing any more
		}
		took := d.take(pollMax)
		for i := range took {
			switch w := &took[i]; w.id & ownMask {
			case 0:
				d.sent(w)
			case ownBuffer:
				d.posted--
				d.back = append(d.back, uint32(w.id)) // the peers want to get rid of theirs too
			}
		}
		if len(took) == 0 {
			time.Sleep(10 * time.Microsecond)
		}
	}
}

var (
	_ transport.Joint      = (*Device)(nil)
	_ transport.Introducer = (*Device)(nil)
	_ transport.Guarded    = (*Device)(nil)
	_ transport.Memory     = (*Device)(nil)
	_ transport.Adopter    = (*Device)(nil)
)

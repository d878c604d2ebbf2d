package tcp

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/eventset"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Options of a Device. Rank and Size are of the world.
type Options struct {
	Rank, Size int
	Job        string                 // its name
	Protocol   string                 // what is spoken over the connections; "": that of the transport tcp
	Secret     func() ([]byte, error) // the job's; called at the first connection, and may block until it is known
	Interfaces Filter                 // which addresses are used; the zero value: all
	Ports      PortRange              // to listen on; the zero value: any
	TLS        bool
	// Call has a peer dial this rank, which has dialled in vain; it returns before the peer has. An error that wraps
	// transport.ErrPeerGone: the peer has ended. Another error: the peer is not told. nil: no peer can be told.
	Call func(ctx context.Context, peer int) error
	// PeerTimeout is how long a peer may leave without an answer what the kernel sends it.
	PeerTimeout time.Duration
	// Timeout is how long a peer whose kernel answers may stand still while a connection is made or made again.
	Timeout time.Duration
	Log     func(msg string, args ...any) // nil: silent

	handshakeLimit time.Duration // until a dialler has proved itself; 0: package auth's. Tests have less
}

const (
	defaultPeerTimeout = 30 * time.Second
	defaultTimeout     = time.Minute
)

// Device is one rank's end: where it is found, what comes in, what goes out, and the connections.
type Device struct {
	opt   Options
	set   *set
	facts transport.Facts
	endpoint
	receiving
	sending
	connections

	// These belong to the caller of Poll (the engine, under its lock).
	rooms []*session // whose Room is owed
	downs []*session // whose Down is
	armed bool       // Arm has said yes, and neither Disarm nor left has ended that

	wake   atomic.Pointer[func(thread bool)] // ends a sleep of this rank; nil: it sleeps elsewhere, or never
	check  eventset.Check                    // for a rank that has not armed: a socket cannot tell what is urgent
	behind atomic.Bool                       // left, after the last Poll; check asks
	closed atomic.Bool
}

// endpoint is where this rank is found, and how a peer and this rank prove themselves.
type endpoint struct {
	address    []byte
	local      localNets // where this rank is, which says which of a peer's addresses are near
	acceptor   *auth.Acceptor
	handshaker *handshaker
}

// New makes the device and listens. The error says what was missing.
func New(opt Options) (*Device, error) {
	if opt.PeerTimeout <= 0 {
		opt.PeerTimeout = defaultPeerTimeout
	}
	if opt.Timeout <= 0 {
		opt.Timeout = defaultTimeout
	}
	if opt.Log == nil {
		opt.Log = func(string, ...any) {}
	}
	d := &Device{opt: opt}
	d.plain = make([]byte, wire.LongSize+coalesceMax)
	d.sessions = map[int]*session{}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.inUse.Store(new([]slot))
	d.flushTimer = time.AfterFunc(time.Hour, d.onFlushTimer)
	d.flushTimer.Stop()
	d.check.Init(func() bool { return d.behind.Load() || d.set.any() || d.directReadable() }, d.wakeGoroutine)
	if err := d.open(); err != nil {
		d.Close()
		return nil, fmt.Errorf("%w: tcp: %w", transport.ErrUnavailable, err)
	}
	return d, nil
}

func (d *Device) open() (err error) {
	if d.set, err = newSet(); err != nil {
		return err
	}
	d.facts = transport.Facts{
		// The set itself is readable when one of its sockets is, until Poll has read the socket.
		Wake: []transport.Wake{{FD: d.set.fd, ThreadFD: d.set.fd,
			Notify: func(wake func(bool)) { d.wake.Store(&wake) }}},
		Introducer: &transport.Introducer{Introduce: d.introduce, Card: d.cardOf},
		Refused:    func() uint64 { return d.acceptor.Refused() },
	}
	ln, err := listen(d.opt.Interfaces, d.opt.Ports)
	if err != nil {
		return err
	}
	return d.serveOn(ln)
}

// serveOn publishes the listener's addresses and accepts connections of the job's ranks.
func (d *Device) serveOn(ln *filteredListener) (err error) {
	if d.local, err = look(d.opt.Interfaces); err != nil {
		ln.Close()
		return err
	}
	d.address = d.local.publish(ln).encode()
	h := &handshaker{admit: d.admit, dropped: d.dropped,
		Handshaker: &auth.Handshaker{Protocol: cmp.Or(d.opt.Protocol, protocol),
			Job: d.opt.Job, Rank: d.opt.Rank, Size: d.opt.Size,
			TLS: d.opt.TLS, Secret: d.opt.Secret, Limit: d.opt.handshakeLimit, Patience: d.opt.Timeout}}
	d.handshaker = h
	d.introduce(nil)
	d.acceptor = auth.Serve(ln, auth.Options{Name: d.Name(), Allows: ln.allows, Serve: d.serve,
		Log:    d.opt.Log,
		Accept: func(nc net.Conn) (*auth.Session, error) { return h.Accept(h.wrap(nc)) }})
	return nil
}

// Name is "tcp".
func (d *Device) Name() string { return "tcp" }

// Address is published to the other ranks.
func (d *Device) Address() []byte { return d.address }

// Facts is transport.Device's.
func (d *Device) Facts() *transport.Facts { return &d.facts }

func (d *Device) introduce(card []byte) { d.handshaker.introduce(packCard(d.address, card)) }

func (d *Device) cardOf(peer int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[peer]; s != nil {
		return s.card
	}
	return nil
}

// Poll is transport.Device's.
func (d *Device) Poll(pkts []transport.Packet) int {
	if len(pkts) == 0 || d.closed.Load() {
		return 0
	}
	d.polls++
	d.check.Polled(d.polls)
	if len(d.empty) > 0 {
		d.reclaim()
	}
	if len(d.dirty) > 0 {
		d.flush()
	}
	n, first := 0, d.full // a flood from one peer must not starve the others: then the set comes first
	if d.full = false; first {
		n = d.pollSet(pkts)
	}
	if n < len(pkts) {
		n += d.poll(pkts[n:])
	}
	left := d.left() // no socket shows that
	if left != d.behind.Load() {
		d.behind.Store(left)
	}
	if left && d.armed {
		d.armed = false
		d.endSleep()
	}
	return n
}

// left reports whether there is something for the next Poll that is in no socket.
func (d *Device) left() bool { return len(d.rooms)+len(d.downs)+len(d.ready) > 0 }

// poll looks at the set last, if at all, and notes that it was full before that.
func (d *Device) poll(pkts []transport.Packet) int {
	n := 0
	if d.notices.Load() {
		if n = d.takeNotices(pkts); n == len(pkts) {
			d.full = true
			return n
		}
	}
	if d.left() {
		if n += d.handOut(pkts[n:]); n == len(pkts) {
			d.full = true
			return n
		}
	}
	if d.hot != nil && d.blocked == 0 {
		if got := d.hot.read(d, pkts[n:]); got > 0 {
			d.misses = 0
			if d.run++; d.run >= directAfter {
				d.pollDirect()
			}
			n += got
			if d.streak++; d.streak < hotReads {
				return n
			}
			if n == len(pkts) {
				d.full = true
				return n
			}
		} else if d.misses++; d.misses%hotMisses != 0 {
			return n
		}
	}
	d.streak = 0
	return n + d.pollSet(pkts[n:])
}

// pollSet reads the sockets that the set reports. For which there is no room it reads the next time, before it asks the
// set again: so each has its turn.
func (d *Device) pollSet(pkts []transport.Packet) int {
	n, reads := 0, 0
	slots := *d.inUse.Load()
	var only *conn
	for asked := false; n < len(pkts); {
		if len(d.reported) == 0 {
			if asked {
				break
			}
			asked = true
			d.askSet(slots)
			continue
		}
		number := d.reported[0]
		d.reported = d.reported[1:]
		if c := connAt(slots, number); c != nil {
			reads++
			n += c.read(d, pkts[n:])
			only = c
		}
	}
	if n > 0 {
		if reads+len(d.reported) > 1 {
			only = nil
		}
		d.setHot(only)
	}
	if len(d.rooms) > 0 && n < len(pkts) {
		n += d.handOut(pkts[n:])
	}
	return n
}

// askSet asks what there is to read, and sends where there is room again.
func (d *Device) askSet(slots []slot) {
	d.reported = d.reports[:0]
	for _, ev := range d.events[:d.set.wait(&d.events)] {
		if ev.slot == doorbellSlot {
			d.set.clearRing()
			continue
		}
		c := connAt(slots, ev.slot)
		if c == nil {
			continue
		}
		if ev.out {
			d.outMu.Lock()
			c.flush(d)
			d.outMu.Unlock()
		}
		if ev.in {
			d.reported = append(d.reported, ev.slot)
		}
	}
}

// connAt is the connection of a slot; nil: it has gone.
func connAt(slots []slot, number uint32) *conn {
	if uint64(number) >= uint64(len(slots)) {
		return nil
	}
	return slots[number].Load()
}

// handOut fills in what needs no socket: the end of peers, room, and frames of which there were more than packets.
func (d *Device) handOut(pkts []transport.Packet) int {
	n := 0
	for ; n < len(pkts) && len(d.rooms) > 0; n++ {
		s := d.rooms[0]
		d.rooms = d.rooms[:copy(d.rooms, d.rooms[1:])]
		pkts[n] = transport.Packet{Event: transport.Room, Peer: int32(s.peer)}
	}
	for ; n < len(pkts) && len(d.downs) > 0; n++ { // all that came from them has been handed out
		s := d.downs[0]
		d.downs = d.downs[:copy(d.downs, d.downs[1:])]
		s.gone.Store(true)
		pkts[n] = transport.Packet{Event: transport.Down, Peer: int32(s.peer), Err: s.err}
	}
	for i := len(d.ready); i > 0 && n < len(pkts); i-- {
		c := d.ready[0]
		d.ready = d.ready[:copy(d.ready, d.ready[1:])]
		c.listed = false
		if c.over == nil && c.more && (c.received() == 0 || c.received() < c.need) && c.readIn != d.polls {
			n += c.read(d, pkts[n:])
			continue
		}
		c.readIn = d.polls
		n += c.parse(d, pkts[n:])
	}
	return n
}

// reportRoom notes that s has room again after it has refused something.
func (d *Device) reportRoom(s *session) {
	s.refused = false
	d.rooms = append(d.rooms, s)
}

// wakeGoroutine makes this rank poll if it computes.
func (d *Device) wakeGoroutine() {
	if wake := d.wake.Load(); wake != nil {
		(*wake)(false)
	}
}

// endSleep makes this rank poll, whichever way it sleeps.
func (d *Device) endSleep() {
	if wake := d.wake.Load(); wake != nil {
		(*wake)(true)
		(*wake)(false)
	}
}

// Arm implements transport.Device. It wakes a computing rank for every arrival, not only for what is urgent: a socket
// says that bytes are there, and not which.
func (d *Device) Arm(transport.Level) bool {
	if d.closed.Load() {
		return false
	}
	if len(d.dirty) > 0 {
		d.flush()
	}
	d.backToSet()
	d.armed = !d.notices.Load() && !d.left() && d.set.wait(&d.events) == 0
	return d.armed
}

// Disarm is transport.Device's. The set goes on showing what it has.
func (d *Device) Disarm() { d.armed = false }

// Close is transport.Device's. The kernel still delivers what was sent.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.flushTimer.Stop()
	d.check.Stop()
	d.stop()
	if d.acceptor != nil {
		d.acceptor.Close()
	}
	d.wg.Wait()
	slots := *d.inUse.Load()
	for i := range slots {
		if c := slots[i].Load(); c != nil {
			c.shutdown(d)
		}
	}
	d.inUse.Store(new([]slot))
	if d.set != nil {
		d.set.close()
	}
	d.hot, d.ready, d.dirty, d.empty, d.spare = nil, nil, nil, nil, nil
	return nil
}

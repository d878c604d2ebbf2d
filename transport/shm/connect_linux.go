package shm

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/ring"
	"github.com/gorun-mpi/mpi/transport"
)

// The published address and the payloads of the handshake (internal/auth), in little-endian words:
//
//	address  magic u32, version u32, host [16], reach (process u32, inbox u32, token [16]), name of the socket …
//	hello    slots, small, bulk (u32 each), card …      + the ring's memory, inbox, two doorbells; with the confirmation
//	welcome  ring number u32, probe address u64, probe value [8]           + inbox, two doorbells; with the answer
//	ready    one byte, when the dialler has taken all of that. Without it the connection was an attempt.
//
// A hello of no bytes asks for no ring, and is welcomed with no bytes: the connection is for segments alone.
const (
	magic    = 0x4d485347 // "GSHM"
	version  = 6
	protocol = "gorun shm 5"

	addressMin  = 48
	addressMax  = addressMin + 108 // the kernel's limit for a name
	helloSize   = 12               // without the card
	maxCard     = 1024
	welcomeSize = 20
	ready       = 1

	// handshakeTime is how long a dialler may take to prove itself.
	handshakeTime = 20 * time.Second
	// turnedAwayFor is how long to go on dialling a peer that closes the connection: too many may be open there.
	turnedAwayFor = 600 * time.Millisecond
)

func (d *Device) listen() error {
	var name [16]byte
	rand.Read(name[:])
	at := "@gorun-" + hex.EncodeToString(name[:])
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: at, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("shm: listening on abstract socket %s: %w", at, err)
	}
	b := binary.LittleEndian.AppendUint32(nil, magic)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = append(b, d.host[:]...)
	d.address = append(d.reach().encode(b), at...)
	d.auth = &auth.Handshaker{Protocol: protocol, Job: d.opt.Job, Rank: d.opt.Rank, Size: d.opt.Size,
		Secret: d.opt.Secret, Limit: cmp.Or(d.opt.handshakeLimit, handshakeTime)}
	d.acceptor = auth.Serve(ln, auth.Options{Name: d.Name(), Pending: pendingMin + d.opt.Local,
		Accept: d.authenticate, Serve: d.serve, Log: d.opt.Log})
	return nil
}

// pendingMin connections may be open that have proved nothing, plus one for each rank of the host.
const pendingMin = 128

// authenticate is the acceptor's side of the handshake up to the peer's proof.
func (d *Device) authenticate(conn net.Conn) (*auth.Session, error) {
	c := conn.(*net.UnixConn)
	if err := checkUser(c); err != nil {
		return nil, err
	}
	p := &packetConn{UnixConn: c}
	s, err := d.auth.Accept(p)
	if err != nil {
		p.closeFDs()
	}
	if outOfDescriptors(err) {
		d.awaitDescriptors() // the peer, whose ring is lost, dials again when this connection is closed
	}
	return s, err
}

// outOfDescriptors reports whether this process or the host has no free descriptor, which may change.
func outOfDescriptors(err error) bool {
	return errors.Is(err, errNoDescriptors) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// descriptorPause is between two looks at whether there is a free descriptor again.
const descriptorPause = 10 * time.Millisecond

// linkDescriptors is how many a link takes while it is made, in both directions: one that is free now may be wanted by
// this rank's own Connect.
const linkDescriptors = 14

// awaitDescriptors returns when there are enough for a link again, but not later than a dialler may take.
func (d *Device) awaitDescriptors() {
	for end := time.Now().Add(handshakeTime); time.Now().Before(end) && d.pause(descriptorPause); {
		var free []int
		for len(free) < linkDescriptors {
			fd, err := unix.FcntlInt(uintptr(d.own.fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				break
			}
			free = append(free, fd)
		}
		closeFDs(free)
		if len(free) == linkDescriptors {
			return
		}
	}
}

// checkUser looks whose process is at the other end: this user's, or the administrator's.
func checkUser(c *net.UnixConn) error {
	if cred, err := credentials(c); err != nil || int(cred.Uid) != os.Getuid() && cred.Uid != 0 {
		return &auth.Error{Why: auth.OtherUser}
	}
	return nil
}

// serve handles an incoming connection of a peer that has proved itself, from the handing over of its ring, through the
// segments that it sends, to its end.
func (d *Device) serve(s *auth.Session) {
	defer s.Close()
	p := s.Conn.(*packetConn)
	if len(s.Payload) == 0 {
		d.serveChannel(s, p)
		return
	}
	r, err := d.takeRing(s.Peer, s.Payload, p)
	if outOfDescriptors(err) {
		d.awaitDescriptors() // as in authenticate
	}
	if err != nil {
		return // the peer sees the closed connection
	}
	p.out = d.own.handed()
	if err = s.Answer(d.welcome(r)); err == nil {
		_, err = s.Finish()
	}
	if err == nil {
		err = p.awaitReady(cmp.Or(d.opt.handshakeLimit, handshakeTime))
	}
	if err != nil { // the peer lives, as far as this connection says, and may connect again
		d.dropRing(r)
		return
	}
	if !d.useRing(r) {
		d.dropRing(r)
		return
	}
	err = d.segments.receive(p.UnixConn, s.Peer)
	d.segments.forget(func(k segKey) bool { return k.peer == s.Peer })
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if !closed {
		d.lostPeer(s.Peer, goneError(s.Peer, err))
	}
}

func goneError(peer int, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return transport.Gone("its process has ended")
	}
	return fmt.Errorf("%w: connection to rank %d: %v", transport.ErrPeerGone, peer, err)
}

// takeRing maps the ring that a peer hands over. The peer is of the job, but its hello may be wrong all the same.
func (d *Device) takeRing(peer int, hello []byte, p *packetConn) (*inRing, error) {
	g, card, err := decodeHello(hello)
	if err != nil {
		return nil, err
	}
	fds, err := p.take(1 + inboxFDs)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fds[0])
	in, err := d.takeInbox(peer, fds[1:])
	if err != nil {
		return nil, err
	}
	mem, err := mapPeer(fds[0], g.Size(), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		d.releaseInbox(in)
		return nil, err
	}
	r, err := d.addRing(mem, g, peer, card, senderOver(p.UnixConn, in))
	if err != nil {
		unix.Munmap(mem)
		d.releaseInbox(in)
		return nil, err
	}
	return r, nil
}

func (d *Device) welcome(r *inRing) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(make([]byte, 0, welcomeSize), r.number)
	b = le.AppendUint64(b, addressOf(d.probe[:]))
	return append(b, d.probe[:]...)
}

func (d *Device) hello(g ring.Geometry) []byte {
	b := make([]byte, 0, helloSize+len(d.card))
	for _, v := range []int{g.Slots, g.Small, g.Bulk} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return append(b, d.card...)
}

func decodeHello(b []byte) (g ring.Geometry, card []byte, err error) {
	if len(b) < helloSize || len(b) > helloSize+maxCard {
		return g, nil, fmt.Errorf("shm: a hello of %d bytes", len(b))
	}
	le := binary.LittleEndian
	g = ring.Geometry{Slots: int(le.Uint32(b)), Small: int(le.Uint32(b[4:])), Bulk: int(le.Uint32(b[8:]))}
	return g, b[helloSize:], g.Check()
}

// addRing gives the ring a number. Polls do not find it before useRing.
func (d *Device) addRing(mem []byte, g ring.Geometry, peer int, card []byte, from sender) (*inRing, error) {
	c, err := ring.NewConsumer(mem, g)
	if err != nil {
		return nil, err
	}
	c.SetArmed(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byPeer[peer] != nil {
		return nil, fmt.Errorf("shm: rank %d is connected already", peer)
	}
	if d.own.box.bar(peer, d.claims()) >= 0 {
		return nil, fmt.Errorf("shm: rank %d has claimed a ring already", peer)
	}
	r := &inRing{c: c, mem: mem, number: uint32(len(d.rings)), peer: int32(peer), card: card, sender: from}
	r.inbox.Store(&from.sharedInbox.peerInbox)
	d.setRings(append(d.rings[:len(d.rings):len(d.rings)], nil))
	d.byPeer[peer] = r
	return r, nil
}

// useRing makes polls find the ring. Its sender may have marked it before that: then it is marked once more. useRing
// reports whether polls find the ring: not if the end of its sender has been reported already.
func (d *Device) useRing(r *inRing) bool {
	d.mu.Lock()
	if d.reported[int(r.peer)] {
		d.mu.Unlock()
		return false
	}
	rings := slices.Clone(d.rings)
	rings[r.number], r.inUse = r, true
	d.setRings(rings)
	ended := r.ended != nil
	d.mu.Unlock()
	if ended || r.c.Begun() {
		d.own.box.mark(r.number)
		d.own.wake(d.own.box, true)
		ringDoorbell(d.own.goroutineFD) // a packet with wire.Wake has rung before polls could find the ring
	}
	return true
}

// dropRing ends a ring that is not in use. Its number is not used again.
func (d *Device) dropRing(r *inRing) {
	d.mu.Lock()
	delete(d.byPeer, int(r.peer))
	ended := r.ended
	d.mu.Unlock()
	unix.Munmap(r.mem)
	d.releaseInbox(r.sharedInbox)
	if ended != nil { // the sender's, which another connection has told meanwhile
		d.addNotice(int(r.peer), ended)
	}
}

// Connect is transport.Device's.
func (d *Device) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	name, err := d.checkAddress(peer, address)
	if err != nil {
		return nil, err
	}
	var l *link
	met := false
	err = auth.Retry(ctx, turnedAwayFor, func() (err error) {
		for {
			if l, err = d.connectDirectly(peer, name, address); l == nil && err == nil {
				l, err = d.connect(ctx, peer, name, &met)
			}
			if !outOfDescriptors(err) || ctx.Err() != nil || !d.pause(descriptorPause) {
				return err
			}
		}
	})
	switch {
	case met && errors.Is(err, unix.ECONNREFUSED):
		return nil, transport.Gone("shm: connecting to rank %d: its process has ended meanwhile: %w", peer, err)
	case errors.Is(err, auth.ErrTurnedAway):
		return nil, fmt.Errorf("%w: shm: connecting to rank %d: it %w", transport.ErrPeerGone, peer, err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w: shm: connecting to rank %d: its process does not answer (stopped?): %w",
			transport.ErrTimeout, peer, err)
	case err != nil:
		return nil, fmt.Errorf("shm: connecting to rank %d: %w", peer, err)
	}
	if !d.addLink(l) {
		l.release()
		return nil, fmt.Errorf("%w: shm: closed", transport.ErrUnavailable)
	}
	return l, nil
}

// checkAddress returns the name of the peer's socket.
func (d *Device) checkAddress(peer int, address []byte) (name string, err error) {
	if peer < 0 || peer >= d.opt.Size {
		return "", fmt.Errorf("shm: connecting to rank %d: the world has ranks 0 to %d", peer, d.opt.Size-1)
	}
	le := binary.LittleEndian
	if len(address) <= addressMin || len(address) > addressMax || le.Uint32(address) != magic ||
		address[addressMin] != '@' {
		return "", fmt.Errorf("%w: shm: rank %d published an address that is not one of shm (%d bytes)",
			transport.ErrUnavailable, peer, len(address))
	}
	if v := le.Uint32(address[4:]); v != version {
		return "", fmt.Errorf("%w: shm: rank %d has version %d, this is version %d",
			transport.ErrUnavailable, peer, v, version)
	}
	return string(address[addressMin:]), nil
}

// addLink makes the ends of the link known to it: of the peer, and of the device. It reports whether the device is
// open.
func (d *Device) addLink(l *link) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.links[l.peer] = l
	l.dead.Store(d.reported[l.peer] || l.contact != nil && l.contact.ended)
	if l.contact == nil {
		d.wg.Go(l.watch)
	}
	return true
}

// connect makes a link over the peer's socket. It says whether it has met the peer's process, also in an attempt
// before.
func (d *Device) connect(ctx context.Context, peer int, name string, met *bool) (*link, error) {
	c, err := d.dialSocket(ctx, name, met)
	if err != nil {
		return nil, err
	}
	seg, err := newOutSegment(d.geo)
	if err != nil {
		d.drop(c)
		return nil, err
	}
	l := &link{outSegment: seg, d: d, peer: peer, conn: c}
	l.channel.name = name
	if err := l.handshake(ctx); err != nil {
		d.drop(c)
		seg.close()
		return nil, err
	}
	return l, nil
}

// dialSocket connects to a process of this user, or the administrator's. The connection is one of those that Close
// ends.
func (d *Device) dialSocket(ctx context.Context, name string, met *bool) (*net.UnixConn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unixpacket", name)
	switch {
	case errors.Is(err, unix.EAGAIN), outOfDescriptors(err), *met && errors.Is(err, unix.ECONNREFUSED):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: it is on another host, in another network namespace, or has ended: %w",
			transport.ErrUnavailable, err)
	}
	c := conn.(*net.UnixConn)
	if !d.keep(c) {
		return nil, fmt.Errorf("%w: closed", transport.ErrUnavailable)
	}
	if err := checkUser(c); err != nil { // it has taken the name of a rank that has ended
		d.drop(c)
		return nil, fmt.Errorf("%w: the process at its address %w", transport.ErrUnavailable, err)
	}
	*met = true
	return c, nil
}

// handshake hands the ring over and takes the peer's inbox.
func (l *link) handshake(ctx context.Context) error {
	p := &packetConn{UnixConn: l.conn}
	defer p.closeFDs()
	s, err := l.d.auth.Dial(ctx, p, l.peer)
	if err != nil {
		return err
	}
	p.out = append([]int{l.fd}, l.d.own.handed()...)
	if err := s.Confirm(l.d.hello(l.geo)); err != nil {
		return err
	}
	fds, err := p.take(inboxFDs)
	if err == nil {
		err = l.onWelcome(fds, s.Payload)
	}
	if err != nil {
		s.Close()
		return err
	}
	if _, err = s.Finish(); err == nil {
		_, err = l.conn.Write([]byte{ready})
	}
	if err != nil {
		l.releasePeer()
		return auth.TurnedAway(err)
	}
	return nil
}

// onWelcome owns fds.
func (l *link) onWelcome(fds []int, welcome []byte) (err error) {
	if len(welcome) != welcomeSize {
		closeFDs(fds)
		return fmt.Errorf("shm: an answer of %d bytes that is no welcome", len(welcome))
	}
	if l.inbox, err = l.d.takeInbox(l.peer, fds); err != nil {
		return err
	}
	le := binary.LittleEndian
	l.box, l.doorbells, l.number = l.inbox.box, l.inbox.doorbells, le.Uint32(welcome)
	l.pidFD = -1
	l.setCaps()
	if cred, err := credentials(l.conn); err == nil {
		l.pid = int(cred.Pid)
		// It is of the process that has this number now; that this is the peer, the value says that is read afterwards.
		// An older kernel has none: then only what the connection says is known of the peer's end.
		l.pidFD, _ = unix.PidfdOpen(l.pid, 0)
	}
	l.probeGet(le.Uint64(welcome[4:]), [8]byte(welcome[12:]))
	return nil
}

// setCaps fills in the caps, but for RMA.
func (l *link) setCaps() {
	l.caps = transport.Caps{EagerMax: min(32<<10, l.geo.Small/4), EagerSure: 8 << 10,
		FragMax: min(32<<10, l.geo.Bulk/4)}
	if l.geo.Bulk == 0 {
		l.caps.FragMax = l.geo.Small / 4
	}
	l.caps.Cut, l.caps.SameHost = l.cut, true
	l.caps.Presence = &transport.Presence{Polls: l.peerPolls, Waits: l.peerWaits}
}

// releasePeer gives back what it has of the peer.
func (l *link) releasePeer() {
	if l.pidFD >= 0 {
		unix.Close(l.pidFD)
	}
	l.d.releaseInbox(l.inbox)
}

// probeGet reads the peer's probe, which is the only way to know whether this process may.
func (l *link) probeGet(addr uint64, want [8]byte) {
	if l.d.opt.NoGet {
		l.caps.WhyNoRMA, l.pid = "process_vm_readv is switched off (GORUN_SHM_CMA)", 0
		return
	}
	if l.pid == 0 {
		l.caps.WhyNoRMA = "process_vm_readv: the peer's process is not visible here (PID namespace)"
		return
	}
	got := make([]byte, 8)
	if err := readPeer(l.pid, got, addr); err != nil {
		l.caps.WhyNoRMA = err.Error() + " (Yama, seccomp or another user?)"
		return
	}
	if [8]byte(got) != want || l.gone() {
		l.caps.WhyNoRMA = fmt.Sprintf("process_vm_readv reached process %d, which is not the peer", l.pid)
		return
	}
	l.caps.RMA = l.rma()
}

// watch waits for the end of the peer.
func (l *link) watch() {
	var b [1]byte
	_, err := l.conn.Read(b[:])
	l.d.mu.Lock()
	closed := l.d.closed
	l.d.mu.Unlock()
	if !closed {
		l.dead.Store(true)
		l.d.lostPeer(l.peer, goneError(l.peer, err))
		<-l.d.ending
	}
	l.release()
}

// release frees what the link holds. The device is closed, so the engine sends no more.
func (l *link) release() {
	if l.conn != nil {
		l.d.drop(l.conn)
	}
	l.dead.Store(true)
	// A caller may still hold the link: its ring is always full from now on, and it drops packets.
	unmapped := l.outSegment
	l.outSegment, l.box, l.letter = &outSegment{fd: -1, p: ring.Full()}, new(inbox), nil
	if l.contact == nil {
		l.releasePeer()
	}
	unmapped.close()
}

// introduce is transport.Introducer's.
func (d *Device) introduce(card []byte) {
	if len(card) <= maxCard {
		d.card = card
	}
}

// cardOf is transport.Introducer's.
func (d *Device) cardOf(peer int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.byPeer[peer]; r != nil && len(r.card) > 0 {
		return r.card
	}
	return nil
}

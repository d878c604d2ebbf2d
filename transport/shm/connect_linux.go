package shm

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/ring"
	"github.com/gorun-mpi/mpi/transport"
)

// Addresses and the two messages of a handshake, in little-endian words:
//
//	address  magic u32, version u32, token [16], name of the socket …
//	hello    magic, version, rank, slots, small, bulk (u32 each), probe address u64, probe value [8], token [16], card …   + ring's memory
//	welcome  magic, version, ring number, status (u32 each), probe address u64, probe value [8]   + inbox, two eventfds
//
// The token is the receiver's: whoever has it could read what the ranks publish to each other, so is of the job.
const (
	magic   = 0x4d485347 // "GSHM"
	version = 2

	addressMin  = 24
	helloSize   = 56 // without the card
	maxCard     = 1024
	welcomeSize = 32

	handshakeTime = 20 * time.Second
)

func (d *Device) listen() error {
	var name [16]byte
	rand.Read(name[:])
	at := "@gorun-" + hex.EncodeToString(name[:])
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: at, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("shm: listening on abstract socket %s: %w", at, err)
	}
	d.listener = ln
	b := binary.LittleEndian.AppendUint32(nil, magic)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = append(b, d.token[:]...)
	d.address = append(b, at...)
	return nil
}

// keep notes an open connection, or refuses it because the device is closing.
func (d *Device) keep(c *net.UnixConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		c.Close()
		return false
	}
	d.conns[c] = struct{}{}
	return true
}

func (d *Device) drop(c *net.UnixConn) {
	c.Close()
	d.mu.Lock()
	delete(d.conns, c)
	d.mu.Unlock()
}

// start runs f in a goroutine that Close waits for.
func (d *Device) start(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		f()
	}()
	return true
}

// accept takes connections until Close.
func (d *Device) accept() {
	for {
		c, err := d.listener.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors: the connection waits in the kernel
			continue
		}
		if !d.keep(c) {
			return
		}
		if !d.start(func() { d.serve(c) }) {
			d.drop(c)
		}
	}
}

// serve is the life of an incoming connection: handshake, then whatever the sender hands over, then its end.
func (d *Device) serve(c *net.UnixConn) {
	defer d.drop(c)
	c.SetDeadline(time.Now().Add(handshakeTime))
	r, err := d.welcome(c)
	if r == nil {
		return // a stranger, or a peer that died before it had said who it is: nobody to tell
	}
	c.SetDeadline(time.Time{})
	if err == nil {
		err = d.segments.receive(c, int(r.peer))
	}
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if !closed {
		d.notice(int(r.peer), goneError(int(r.peer), err))
	}
}

func goneError(peer int, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the process of rank %d has ended", transport.ErrPeerGone, peer)
	}
	return fmt.Errorf("%w: connection to rank %d: %v", transport.ErrPeerGone, peer, err)
}

func (d *Device) welcome(c *net.UnixConn) (*inRing, error) {
	b := make([]byte, helloSize+maxCard+1)
	n, fds, err := receiveFDs(c, b, 1)
	if err != nil {
		return nil, err
	}
	defer closeFDs(fds)
	cred, err := credentials(c)
	if err != nil {
		return nil, err
	}
	g, peer, err := d.checkHello(b[:n], fds, cred)
	if err != nil {
		return nil, err
	}
	mem, err := mapPeer(fds[0], g.Size(), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	r, err := d.addRing(mem, g, peer, b[helloSize:n:n])
	if err != nil {
		unix.Munmap(mem)
		return nil, err
	}
	le := binary.LittleEndian
	out := le.AppendUint32(nil, magic)
	out = le.AppendUint32(out, version)
	out = le.AppendUint32(out, r.number)
	out = le.AppendUint32(out, 0)
	out = le.AppendUint64(out, addressOf(d.probe[:]))
	out = append(out, d.probe[:]...)
	_, _, err = c.WriteMsgUnix(out, unix.UnixRights(d.boxFD, d.bellFD, d.threadFD), nil)
	return r, err
}

// checkHello trusts nothing in b before the token.
func (d *Device) checkHello(b []byte, fds []int, cred *unix.Ucred) (g ring.Geometry, peer int, err error) {
	le := binary.LittleEndian
	switch {
	case len(b) < helloSize || len(b) > helloSize+maxCard || le.Uint32(b) != magic:
		return g, 0, errors.New("shm: not a hello")
	case subtle.ConstantTimeCompare(b[40:56], d.token[:]) != 1:
		return g, 0, errors.New("shm: wrong token")
	case int(cred.Uid) != os.Getuid() && cred.Uid != 0:
		return g, 0, fmt.Errorf("shm: process %d belongs to user %d", cred.Pid, cred.Uid)
	case le.Uint32(b[4:]) != version:
		return g, 0, fmt.Errorf("shm: version %d, ours is %d", le.Uint32(b[4:]), version)
	case len(fds) != 1:
		return g, 0, fmt.Errorf("shm: %d descriptors, 1 is needed", len(fds))
	}
	peer = int(le.Uint32(b[8:]))
	if peer >= d.opt.Size || peer == d.opt.Rank {
		return g, 0, fmt.Errorf("shm: rank %d of %d says hello to rank %d", peer, d.opt.Size, d.opt.Rank)
	}
	g = ring.Geometry{Slots: int(le.Uint32(b[12:])), Small: int(le.Uint32(b[16:])), Bulk: int(le.Uint32(b[20:]))}
	return g, peer, g.Check()
}

// addRing gives the ring a number and lets polls find it.
func (d *Device) addRing(mem []byte, g ring.Geometry, peer int, card []byte) (*inRing, error) {
	c, err := ring.NewConsumer(mem, g)
	if err != nil {
		return nil, err
	}
	c.SetCold(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byPeer[peer] != nil {
		return nil, fmt.Errorf("shm: rank %d is connected already", peer)
	}
	r := &inRing{c: c, mem: mem, number: uint32(len(d.rings)), peer: int32(peer), card: card}
	d.setRings(append(d.rings[:len(d.rings):len(d.rings)], r))
	d.byPeer[peer] = r
	return r, nil
}

// Connect is transport.Device's.
func (d *Device) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	if peer < 0 || peer >= d.opt.Size {
		return nil, fmt.Errorf("shm: connecting to rank %d: the world has ranks 0 to %d", peer, d.opt.Size-1)
	}
	le := binary.LittleEndian
	if len(address) <= addressMin || le.Uint32(address) != magic || address[addressMin] != '@' {
		return nil, fmt.Errorf("%w: shm: rank %d published an address that is not ours (%d bytes)", transport.ErrUnavailable, peer, len(address))
	}
	if v := le.Uint32(address[4:]); v != version {
		return nil, fmt.Errorf("%w: shm: rank %d speaks version %d, this is version %d", transport.ErrUnavailable, peer, v, version)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unixpacket", string(address[addressMin:]))
	if err != nil {
		return nil, fmt.Errorf("%w: shm: rank %d is on another host, in another network namespace, or has ended: %w", transport.ErrUnavailable, peer, err)
	}
	c := conn.(*net.UnixConn)
	if !d.keep(c) {
		return nil, fmt.Errorf("%w: shm: closed", transport.ErrUnavailable)
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	l, err := d.greet(ctx, c, peer, address[8:addressMin])
	if !stop() { // the deadline is spoilt
		if err == nil {
			l.release()
		}
		err = ctx.Err()
	}
	if err != nil {
		d.drop(c)
		return nil, fmt.Errorf("shm: connecting to rank %d: %w", peer, err)
	}
	d.mu.Lock()
	d.links[peer] = l
	l.dead.Store(d.told[peer])
	d.mu.Unlock()
	if !d.start(func() { l.watch() }) {
		l.release()
		return nil, fmt.Errorf("%w: shm: closed", transport.ErrUnavailable)
	}
	return l, nil
}

func (d *Device) greet(ctx context.Context, c *net.UnixConn, peer int, token []byte) (*link, error) {
	deadline := time.Now().Add(handshakeTime)
	if t, ok := ctx.Deadline(); ok && t.Before(deadline) {
		deadline = t
	}
	c.SetDeadline(deadline)
	if err := ctx.Err(); err != nil { // what its end did to the deadline is overwritten
		return nil, err
	}
	seg, err := d.takeSegment()
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	b := make([]byte, 0, helloSize+len(d.card))
	for _, v := range []int{magic, version, d.opt.Rank, seg.geo.Slots, seg.geo.Small, seg.geo.Bulk} {
		b = le.AppendUint32(b, uint32(v))
	}
	b = le.AppendUint64(b, addressOf(d.probe[:]))
	b = append(b, d.probe[:]...)
	b = append(b, token...)
	b = append(b, d.card...)
	if _, _, err = c.WriteMsgUnix(b, unix.UnixRights(seg.fd), nil); err != nil {
		seg.close()
		return nil, err
	}
	l := &link{outSegment: seg, d: d, peer: peer, conn: c}
	if err := l.readWelcome(); err != nil {
		seg.close()
		return nil, err
	}
	c.SetDeadline(time.Time{})
	return l, nil
}

// takeSegment uses the one that New made, then new ones.
func (d *Device) takeSegment() (*outSegment, error) {
	d.mu.Lock()
	s := d.spare
	d.spare = nil
	d.mu.Unlock()
	if s != nil {
		return s, nil
	}
	return newOutSegment(d.geo)
}

func (l *link) readWelcome() error {
	var b [welcomeSize + 1]byte
	n, fds, err := receiveFDs(l.conn, b[:], 3)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: the process has ended or refused us", transport.ErrPeerGone)
		}
		return err
	}
	le := binary.LittleEndian
	if n != welcomeSize || le.Uint32(b[:]) != magic || le.Uint32(b[4:]) != version || len(fds) != 3 {
		closeFDs(fds)
		return fmt.Errorf("shm: an answer of %d bytes and %d descriptors that is not a welcome", n, len(fds))
	}
	// We ring while others wait for us: a bell that is no eventfd of the kind we make could keep us for ever.
	for _, bell := range fds[1:] {
		if mode, err := unix.FcntlInt(uintptr(bell), unix.F_GETFL, 0); err != nil || mode&unix.O_NONBLOCK == 0 {
			closeFDs(fds)
			return fmt.Errorf("shm: a bell that can block (mode %#x, %v)", mode, err)
		}
	}
	if l.boxMem, err = mapPeer(fds[0], inboxSize, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		closeFDs(fds)
		return err
	}
	unix.Close(fds[0])
	l.box, l.doorbells, l.number = inboxOf(l.boxMem), doorbells{fds[1], fds[2]}, le.Uint32(b[8:])
	l.caps = transport.Caps{EagerMax: min(32<<10, l.geo.Small/4), WaitMax: min(8<<10, l.geo.Small/4), FragMax: min(32<<10, l.geo.Bulk/4)}
	if l.geo.Bulk == 0 {
		l.caps.FragMax = l.geo.Small / 4
	}
	l.caps.Presence = &transport.Presence{Polls: l.peerPolls, Waits: l.peerWaits}
	l.probeGet(le.Uint64(b[16:]), [8]byte(b[24:32]))
	return nil
}

// probeGet reads the peer's probe, which is the only way to know whether we may.
func (l *link) probeGet(addr uint64, want [8]byte) {
	if l.d.opt.NoGet {
		l.caps.WhyNoRMA = "process_vm_readv is switched off"
		return
	}
	cred, err := credentials(l.conn)
	if err != nil || cred.Pid == 0 {
		l.caps.WhyNoRMA = "process_vm_readv: the peer's process is not visible here (PID namespace)"
		return
	}
	l.pid = int(cred.Pid)
	got := make([]byte, 8)
	if err := readPeer(l.pid, got, addr); err != nil {
		l.caps.WhyNoRMA = err.Error() + " (Yama, seccomp or another user?)"
		return
	}
	if [8]byte(got) != want {
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
		l.d.notice(l.peer, goneError(l.peer, err))
		<-l.d.ending
	}
	l.release()
}

// release gives back what the link holds. The device is closed: nobody sends any more.
func (l *link) release() {
	l.d.drop(l.conn)
	l.dead.Store(true)
	// A caller may still hold the link: it finds a ring that is always full, and drops.
	unmapped := l.outSegment
	l.outSegment, l.box = &outSegment{fd: -1, p: ring.Full()}, new(inbox)
	unix.Close(l.bellFD)
	unix.Close(l.threadFD)
	unix.Munmap(l.boxMem)
	unmapped.close()
}

func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return nil, e
	}
	return cred, err
}

// receiveFDs reads one message with at most max descriptors, which are the caller's to close.
func receiveFDs(c *net.UnixConn, b []byte, max int) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*max))
	n, oobn, flags, err := soon(c, b, oob)
	if err != nil {
		return 0, nil, err
	}
	if n == 0 && oobn == 0 {
		return 0, nil, io.EOF
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, nil, err
	}
	for _, m := range msgs {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeFDs(fds)
		return 0, nil, errors.New("shm: over-long handshake message")
	}
	return n, fds, nil
}

// soonTime is how long an answer is worth waiting for without giving up this goroutine's processor. On a rank that
// computes on its only one, getting it back takes a time slice (10 ms), and a peer waits.
const soonTime = 500 * time.Microsecond

// soon reads a message; other processes run meanwhile, other goroutines of this one only if it takes long.
func soon(c *net.UnixConn, b, oob []byte) (n, oobn, flags int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	start := time.Now()
	e := raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), b, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			switch {
			case err == unix.EINTR:
			case err != unix.EAGAIN:
				return true
			case time.Since(start) > soonTime:
				return false
			default:
				unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			}
		}
	})
	if e != nil {
		err = e
	}
	return n, oobn, flags, err
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

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

package tcp

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// serve takes a connection that a peer has made.
func (d *Device) serve(a *auth.Session) {
	err := d.take(a)
	if err != nil && auth.Why(err) != auth.Gone {
		d.opt.Log("a connection could not be taken", "peer", a.Peer, "why", err)
	}
}

// take has the descriptor before the peer is told that this is the connection: it could send something at once.
func (d *Device) take(a *auth.Session) error {
	fd, err := d.duplicateLater(a.Conn)
	if err != nil {
		a.Close()
		return err
	}
	prepare(fd, d.opt.PeerTimeout)
	r, err := d.handshaker.answer(a)
	if err != nil || r.code != accepted {
		unix.Close(fd)
		return err
	}
	r.fd = fd
	d.mu.Lock()
	s := d.session(r.peer)
	d.mu.Unlock()
	return d.install(r, s)
}

// duplicateLater is duplicate, which it tries again for as long as there is no descriptor and the peer waits.
func (d *Device) duplicateLater(nc net.Conn) (fd int, err error) {
	for end := time.Now().Add(d.opt.Timeout); ; {
		if fd, err = duplicate(nc); !outOfDescriptors(err) || time.Now().After(end) {
			return fd, err
		}
		select {
		case <-time.After(crossingRetry):
		case <-d.ctx.Done():
			return 0, err
		}
	}
}

// duplicate makes a descriptor of nc's socket that is not one of package net's.
func duplicate(nc net.Conn) (fd int, err error) {
	if wire, ok := nc.(*switchConn); ok {
		nc = wire.Conn
	}
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return 0, fmt.Errorf("a %T is no TCP connection", nc)
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return 0, err
	}
	const aboveStreams = 3
	var errno error
	err = raw.Control(func(orig uintptr) { fd, errno = unix.FcntlInt(orig, unix.F_DUPFD_CLOEXEC, aboveStreams) })
	return fd, cmp.Or(err, errno)
}

// install puts a connection into use. From the moment it is in the set its descriptor is Poll's.
func (d *Device) install(r *handshakeResult, s *session) error {
	c := d.adopt(r, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	s.coming = s.coming && r.dialed
	if d.closed.Load() || s.err != nil || s.conn.Load() != nil {
		unix.Close(c.fd)
		return errClosing
	}
	s.introduced(r.card)
	d.enter(c)
	if own := s.own; own != nil && !r.dialed {
		own.yielded = true // the peer answers it by crossing, if anything
		own.stop()
	}
	s.last = dialled{r.dialed, r.number}
	if err := d.letUse(c); err != nil {
		d.leave(c)
		unix.Close(c.fd)
		return err
	}
	if s.held.broken || c.early {
		s.held = resumeState{}
		d.begun = append(d.begun, c)
		defer d.notify()
	}
	if !d.watched {
		d.watched = true
		d.check.Start()
		d.wg.Add(1)
		go d.watch()
	}
	s.changed()
	return nil
}

// letUse lets the link send by c, and Poll receive. A send that fills the socket has the set report room, so it waits,
// for outMu, until c is there.
func (d *Device) letUse(c *conn) error {
	d.outMu.Lock()
	defer d.outMu.Unlock()
	c.s.conn.Store(c)
	err := d.set.add(c.fd, c.slot)
	if err != nil {
		c.s.conn.Store(nil)
	}
	return err
}

// adopt takes the connection out of the hands of package net.
func (d *Device) adopt(r *handshakeResult, s *session) *conn {
	c := &conn{s: s, fd: r.fd, where: fmt.Sprintf("%v ↔ %v", r.conn.LocalAddr(), r.conn.RemoteAddr())}
	r.conn.Close()
	if c.tls = r.tls; c.tls != nil {
		r.wire.adopt(c.takeCipher, c.giveCipher)
		c.buf = make([]byte, readBuffer)
		c.out = make([]byte, 0, fragMax+4*coalesceFull)
		c.early = !c.emptyTLS(c.buf) || c.w > 0
	}
	return c
}

package shm

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport"
)

// The end of a connection is not that of the peer's process, which may be at this process's memory, and go on. So each
// READ and WRITE of a peer stands between two words of its ring (ring.Producer.BeginAccess), and Down is reported when
// the peer has been told to stop and has stopped, or its process has ended. That holds for peers that run this code: a
// process of the same user can always write here, with or without a ring.

// sender is the process that has made a ring.
type sender struct {
	conn        *net.UnixConn // over which the ring has come; nil: it was claimed
	sharedInbox *sharedInbox  // likewise
	pid         int           // 0: not visible here
}

func senderOver(c *net.UnixConn, in *sharedInbox) sender {
	s := sender{conn: c, sharedInbox: in}
	if cred, err := credentials(c); err == nil {
		s.pid = int(cred.Pid)
	}
	return s
}

// lostPeer reports the end of a peer when it cannot touch this process's memory any more. It may wait: no caller holds
// a lock.
func (d *Device) lostPeer(peer int, err error) {
	d.revoke(peer)
	d.addNotice(peer, err)
}

// revoke returns when the peer is not at this process's memory, and will not be.
func (d *Device) revoke(peer int) { whileAccessed(func() bool { return d.accessed(peer) }) }

// whileAccessed returns when accessed says that no access to this process's memory goes on.
func whileAccessed(accessed func() bool) {
	for nap := 10 * time.Microsecond; accessed(); nap = min(2*nap, time.Millisecond) {
		time.Sleep(nap)
	}
}

// accessed revokes the peer's access and reports whether it goes on. mu keeps the ring. A ring that the peer has
// claimed is found here if not by a poll, so that what it holds comes before the peer's end; else the peer claims none
// any more.
func (d *Device) accessed(peer int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.byPeer[peer]
	if r == nil {
		if r = d.adopt(d.own.box.bar(peer, d.claims())); r == nil {
			return false
		}
	}
	r.c.Revoke()
	return r.c.Accessed() && !r.sender.ended()
}

// ended reports whether the process has ended. One that ends in the middle of a copy does not say that it is over.
func (s *sender) ended() bool {
	if s.pid == 0 { // in a PID namespace that is not visible here
		return false
	}
	fd, err := unix.PidfdOpen(s.pid, 0)
	if err != nil { // an old kernel, no free descriptor, or it has ended
		return unix.Kill(s.pid, 0) == unix.ESRCH
	}
	defer unix.Close(fd)
	return ended(fd)
}

// cut is transport.Caps's. The goroutines of the connections report the end; without them it is told and reported here.
func (l *link) cut() {
	if l.letter != nil {
		l.letter.cut.Store(1)
		l.signal(true)
	}
	d, peer := l.d, l.peer
	d.mu.Lock()
	r := d.byPeer[peer]
	d.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
	}
	if r != nil && r.conn != nil {
		r.conn.Close()
	}
	if l.contact != nil {
		l.dead.Store(true)
		d.start(func() { d.lostPeer(peer, l.revokedError()) })
	}
}

func (l *link) revokedError() error {
	return transport.Gone("it has ended the connection (shm)")
}

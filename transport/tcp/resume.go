package tcp

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport"
)

// A connection that ends while nothing is under way has lost nothing: firewalls drop idle ones, and an address may
// have moved. Then both ends keep their session, either dials again, and each compares how many frames the other has
// sent and received with its own numbers. If they agree all goes on; if they do not, or there is no answer, the peer is
// gone. A process that has ended answers with a refusal, so that the detour takes no time where it matters.

// redialSilence is how long a peer may be silent whose connection the other end has closed.
const redialSilence = 5 * time.Second

// resumeState is what a session without a connection keeps.
type resumeState struct {
	broken         bool // there was a connection, and there may be one again
	sent, received uint64
}

// giveUpRequest is judge's request to Poll to give up a connection, since the peer makes a new one. There may be
// several for one connection, the last of which Poll sees when there is a new one.
type giveUpRequest struct {
	c    *conn
	done chan struct{} // closed when it is given up
}

// ended takes c out of use, after all that came over it has been handed out. It returns 1 if that was the end of the
// peer, and pkts[0] says so.
func (d *Device) ended(c *conn, why error, pkts []transport.Packet) int {
	s := c.s
	if s.conn.Load() != c {
		return 0
	}
	d.outMu.Lock()
	unsent := c.unsent()
	d.outMu.Unlock()
	whole := c.received() == 0 && c.into == nil && c.skip == 0 && unsent == 0 && !s.torn && !s.bye
	err := c.broken(why)
	again := whole && cutOff(why) && !c.gaveUp(why)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.discard(c)
	if again {
		s.held = resumeState{true, s.sent, s.received}
		d.wg.Add(1)
		go d.redial(s, err)
		return 0
	}
	s.end(err)
	s.gone.Store(true)
	pkts[0] = transport.Packet{Event: transport.Down, Peer: int32(s.peer), Err: err}
	return 1
}

// end ends the session. mu is held.
func (s *session) end(err error) {
	if s.err == nil {
		s.err = err
		s.changed()
	}
}

// discard closes c. mu is held until what has become of the session is noted: a dial of the peer that was judged before
// that would seem to be one of a peer that had no connection yet.
func (d *Device) discard(c *conn) {
	if c.blocked {
		c.blocked = false
		d.blocked--
	}
	if d.hot == c {
		d.hot = nil
		d.direct.Store(nil)
	}
	d.leave(c)
	d.outMu.Lock()
	d.set.remove(c.fd)
	unix.Close(c.fd) // under both locks: the watch and the flush timer use descriptors only there
	c.closed = true
	d.outMu.Unlock()
	c.s.conn.Store(nil)
}

// redial makes the connection of s again. why is how the last one ended.
func (d *Device) redial(s *session, why error) {
	defer d.wg.Done()
	d.mu.Lock()
	limit := d.opt.Timeout
	if !s.known { // it was the peer that dialled, and it must again
		limit = min(limit, redialSilence)
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(d.ctx, limit, transport.ErrTimeout)
	defer cancel()
	d.opt.Log("connection lost while idle, dialling again", "peer", s.peer, "why", why)
	err := s.connect(ctx)
	if err == nil {
		return
	}
	d.mu.Lock()
	if s.err == nil { // else it has been cut
		s.end(fmt.Errorf("%w; dialling again: %v", why, err))
		d.lost = append(d.lost, s)
	}
	d.mu.Unlock()
	d.notify()
}

// notify makes Poll look at what goroutines have left for it.
func (d *Device) notify() {
	d.notices.Store(true)
	d.set.ring()
}

// takeNotices handles what goroutines have left for Poll.
func (d *Device) takeNotices(pkts []transport.Packet) int {
	d.notices.Store(false)
	d.mu.Lock()
	giveUps, lost, begun := d.giveUps, d.lost, d.begun
	d.giveUps, d.lost, d.begun = nil, nil, nil
	d.mu.Unlock()
	d.downs = append(d.downs, lost...)
	for _, c := range begun {
		if c.s.refused { // while there was none
			d.reportRoom(c.s)
		}
		if c.early {
			d.markReady(c)
		}
	}
	n := 0
	for i, a := range giveUps {
		if n == len(pkts) {
			d.mu.Lock()
			d.giveUps = append(d.giveUps, giveUps[i:]...)
			d.mu.Unlock()
			d.notify()
			break
		}
		n += d.giveUpNow(a, pkts[n:])
	}
	return n
}

// giveUpNow gives a connection up when everything that came over it has been handed out.
func (d *Device) giveUpNow(a *giveUpRequest, pkts []transport.Packet) int {
	c := a.c
	if c.s.conn.Load() != c {
		close(a.done)
		return 0
	}
	n := 0
	if c.over == nil {
		if n = c.read(d, pkts); n > 0 || c.readIn != d.polls {
			d.mu.Lock()
			d.giveUps = append(d.giveUps, a) // there may be more
			d.mu.Unlock()
			d.notify()
			return n
		}
	}
	if c.s.conn.Load() == c {
		n = d.ended(c, errReplaced, pkts)
	}
	close(a.done)
	return n
}

// errReplaced means that the peer has a new connection for this one, so that its end of this one is gone.
var errReplaced = fmt.Errorf("replaced: %w", io.EOF)

// shutdown sends goodbye on c and closes it. The device is not used any more.
func (c *conn) shutdown(d *Device) {
	d.outMu.Lock()
	defer d.outMu.Unlock()
	c.closed = true
	if !c.blocked {
		c.flush(d)
	}
	if c.over == nil && !c.s.torn {
		c.goodbye()
		if c.unsent() > 0 {
			rest := append(append([]byte(nil), c.out[c.sent:]...), c.lent...)
			go linger(c.fd, rest, min(d.opt.PeerTimeout, lingerFor))
			return
		}
	}
	c.hangUp()
}

// hangUp closes the socket so that the peer still gets all that the kernel has.
func (c *conn) hangUp() {
	unix.Shutdown(c.fd, unix.SHUT_WR)
	var rest [4096]byte
	for range 64 { // a close with unread bytes would throw away what the peer has not got yet
		if n, errno := recv(c.fd, rest[:]); n == 0 || errno != 0 {
			break
		}
	}
	unix.Close(c.fd)
}

func (c *conn) goodbye() {
	switch {
	case c.tls != nil:
		c.tls.Write(bye[:])
	case len(c.lent) > 0: // no request waits for it any more, or the device would not be closed
		return
	default:
		c.out = append(c.out, bye[:]...)
	}
	if !c.blocked {
		n, _ := send(c.fd, c.out[c.sent:])
		c.sent += n
	}
}

// lingerFor is how long a closed device's last bytes are offered to a peer that does not read.
const lingerFor = 10 * time.Second

// linger sends what the kernel had no room for when the device was closed. It does what the kernel does with the rest
// of the socket's data: goes on for a while after Close, and ends with the process.
func linger(fd int, rest []byte, limit time.Duration) {
	for end := time.Now().Add(limit); len(rest) > 0 && time.Now().Before(end); {
		n, errno := send(fd, rest)
		if errno != 0 && !again(errno) {
			break
		}
		if rest = rest[n:]; n == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	unix.Shutdown(fd, unix.SHUT_WR)
	unix.Close(fd)
}

package tcp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// prepare makes the kernel notice a peer that is gone while nothing is under way: within the peer timeout, in whole
// seconds. It is the peer's kernel that answers: its process may compute, or be stopped, also in the handshake.
func prepare(fd int, timeout time.Duration) {
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	seconds := max(int(timeout/time.Second), 1)
	idle := max(seconds/2, 1)
	interval := max(seconds/8, 1)
	keepAlive(fd, idle, interval, max((seconds-idle)/interval, 1))
}

// watch looks now and then whether a peer leaves unanswered what the kernel has sent to it. TCP_USER_TIMEOUT would do
// that in the kernel, but counts a receiver that is only slow, with its window closed, as gone.
func (d *Device) watch() {
	defer d.wg.Done()
	tick := time.NewTicker(LookEvery(d.opt.PeerTimeout))
	defer tick.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		slots := *d.inUse.Load()
		for i := range slots {
			if c := slots[i].Load(); c != nil {
				c.check(d.opt.PeerTimeout)
			}
		}
		d.mu.Unlock()
	}
}

// check shuts c down if the peer has not answered for too long; the next read notices. The peer, if it lives, learns of
// it by a reset: an end in good order would wait behind what does not arrive. mu is held, so that the descriptor is c's.
func (c *conn) check(timeout time.Duration) {
	silence := c.silence.Look(c.fd)
	if silence < timeout || c.dead.Load() != nil {
		return
	}
	err := c.silence.describe(silence, timeout)
	c.dead.Store(&err)
	unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Shutdown(c.fd, unix.SHUT_RDWR)
}

// LookEvery is how often connections are looked at whose peers may be silent for the timeout.
func LookEvery(timeout time.Duration) time.Duration {
	return min(max(timeout/10, 50*time.Millisecond), time.Second)
}

// answers is what the kernel knows of a connection's other end.
type answers struct {
	waiting bool          // for an acknowledgement, or the answer to a probe
	slow    bool          // the other end takes no more for now: an answer of any kind shows that it lives
	acked   uint64        // bytes
	silent  time.Duration // since anything was acknowledged or answered
	heard   time.Duration // since anything came
	mtu     int           // of the way, as far as is known
}

// Silence is how long a connection has been waiting for an answer.
type Silence struct {
	since int64 // by now(); 0: it does not wait
	acked uint64
	last  answers
}

// Look looks at the TCP socket fd, and returns for how long its peer has left something unanswered: that is, the oldest
// byte that it has not acknowledged, whatever else it says meanwhile.
func (s *Silence) Look(fd int) time.Duration {
	s.last = unanswered(fd)
	switch {
	case !s.last.waiting:
		s.since = 0
		return 0
	case s.since == 0, s.acked != s.last.acked: // it may have been silent for hours because it was not asked
		s.since, s.acked = now(), s.last.acked
		return 0
	}
	stood := time.Duration(now() - s.since)
	if s.last.slow {
		return min(stood, s.last.silent)
	}
	return stood
}

// describe is the error of a connection after a silence. A peer that was heard meanwhile lives.
func (s *Silence) describe(silence, timeout time.Duration) error {
	silence = silence.Round(100 * time.Millisecond)
	if s.last.slow || s.last.heard >= silence/2 {
		return fmt.Errorf("no answer for %v (GORUN_PEER_TIMEOUT is %v): the link is down, or the other host is; a firewall "+
			"that forgets idle connections, or a way that drops packets as long as this host's MTU of %d, looks the same",
			silence, timeout, s.last.mtu)
	}
	return fmt.Errorf("nothing acknowledged for %v (GORUN_PEER_TIMEOUT is %v), while the other host is heard: the way there "+
		"drops long packets, so that this host's MTU of %d bytes is too much (a tunnel?), or all that this host sends",
		silence, timeout, s.last.mtu)
}

var started = time.Now()

// now is a clock for short spans, in ns.
func now() int64 { return int64(time.Since(started)) }

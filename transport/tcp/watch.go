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
		for _, c := range *d.inUse.Load() {
			if c != nil {
				c.check(d.opt.PeerTimeout)
			}
		}
		d.mu.Unlock()
	}
}

// check shuts c down if the peer has not answered for too long; the next read notices. mu is held, so that the
// descriptor is c's.
func (c *conn) check(timeout time.Duration) {
	silence := c.silence.Look(c.fd)
	if silence < timeout || c.dead.Load() != nil {
		return
	}
	err := fmt.Errorf("no answer for %v (GORUN_PEER_TIMEOUT is %v): the link is down, or the other host is",
		silence.Round(100*time.Millisecond), timeout)
	c.dead.Store(&err)
	unix.Shutdown(c.fd, unix.SHUT_RDWR)
}

// LookEvery is how often connections are looked at whose peers may be silent for the timeout.
func LookEvery(timeout time.Duration) time.Duration {
	return min(max(timeout/10, 50*time.Millisecond), time.Second)
}

// Silence is how long a connection has been waiting for an answer.
type Silence struct{ since int64 } // by now(); 0: it does not wait

// Look looks at the TCP socket fd, and returns for how long its peer has left something unanswered.
func (s *Silence) Look(fd int) time.Duration {
	waiting, silent := unanswered(fd)
	switch {
	case !waiting:
		s.since = 0
		return 0
	case s.since == 0: // it may have been silent for hours because it was not asked
		s.since = now()
		return 0
	}
	return min(time.Duration(now()-s.since), silent)
}

var started = time.Now()

// now is a clock for short spans, in ns.
func now() int64 { return int64(time.Since(started)) }

package tcp

import (
	"sync"
	"sync/atomic"
	"time"
)

// sending is what a device sends later, and when. The connections' own parts of it are outgoing.
type sending struct {
	dirty   []*conn // with frames that wait for more; the caller's of Poll
	blocked int     // connections that wait for room; the caller's of Poll

	outMu    sync.Mutex // guards what the connections send: the flush timer does it too. Taken within connections.mu
	plain    []byte     // a frame that is to be encrypted
	spareOut []byte     // for the connection that needs a long one

	flushTimer *time.Timer
	pending    atomic.Bool // set under outMu: frames wait or are blocked, and the flush timer runs
}

// busy reports whether c has been written to a moment ago, and this rank has not polled since.
func (d *Device) busy(c *conn) bool {
	return c.s.wrotePoll == d.polls && c.s.wrotePoll != 0 && now()-c.s.wroteAt < int64(coalesceFor)
}

// wrote notes when c was last written to.
func (d *Device) wrote(c *conn) { c.s.wrotePoll, c.s.wroteAt = d.polls, now() }

// coalesce leaves what c has for the next Poll, or for the flush timer.
func (s *sending) coalesce(c *conn) {
	c.s.wroteAt = now()
	if !c.dirty {
		c.dirty = true
		s.dirty = append(s.dirty, c)
	}
	if !s.pending.Load() {
		s.startFlushTimer(lateFlush)
	}
}

func (d *Device) flush() {
	d.outMu.Lock()
	defer d.outMu.Unlock()
	for i, c := range d.dirty {
		c.dirty = false
		d.dirty[i] = nil
		if !c.blocked {
			c.flush(d)
		}
	}
	d.dirty = d.dirty[:0]
	if d.blocked == 0 {
		d.pending.Store(false)
	}
}

// startFlushTimer makes the timer send what was taken if the rank does not poll before: the engine knows nothing of it.
func (s *sending) startFlushTimer(after time.Duration) {
	s.pending.Store(true)
	s.flushTimer.Reset(after)
}

// onFlushTimer sends what is left. Room, errors and all else that follows are for Poll to find.
func (d *Device) onFlushTimer() {
	if !d.pending.Load() || d.closed.Load() {
		return
	}
	left := false
	d.outMu.Lock()
	slots := *d.inUse.Load()
	for i := range slots {
		if c := slots[i].Load(); c != nil && !c.closed && c.sent < len(c.out) {
			n, errno := send(c.fd, c.out[c.sent:])
			c.sent += n
			left = left || c.sent < len(c.out) && (errno == 0 || again(errno))
		}
	}
	d.pending.Store(left)
	d.outMu.Unlock()
	if left {
		d.flushTimer.Reset(blockedRetry)
	}
}

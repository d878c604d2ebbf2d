package tcp

import (
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
)

const (
	// coalesceMax is the longest frame that is copied behind others; longer ones are cheaper to write from where they
	// are.
	coalesceMax = 2 << 10
	// coalesceFull is when what has been coalesced is written, and the most that waits for room in a socket before the
	// link refuses more.
	coalesceFull = 16 << 10
	// coalesceFor is how long ago the last write may be for the next frame to wait for more. A frame alone is always
	// written at once; one that comes so soon after another is probably one of many.
	coalesceFor = 20 * time.Microsecond
	// lateFlush is when what waits is written if the rank has not polled since.
	lateFlush = 100 * time.Microsecond
	// blockedRetry is when a full socket is tried again if the rank neither polls nor sleeps where the kernel would
	// wake it, as long as it is full each time.
	blockedRetry = time.Millisecond
)

// put takes a frame, whose payload is copied unless it goes to the kernel at once. It reports whether there was room.
func (c *conn) put(d *Device, h *wire.Header, payload []byte) bool {
	d.outMu.Lock()
	defer d.outMu.Unlock()
	if c.cut {
		return false
	}
	c.alone = c.unsent() == 0
	taken := c.take(d, h, payload)
	return c.kept(taken)
}

// kept ends what put and lend have begun. It reports whether the frame is taken: one that found the connection cut off
// is not.
func (c *conn) kept(taken bool) bool {
	c.alone = false
	return taken && !c.cut
}

// take is put with outMu held, as it is in all that follows. It reports whether there was room.
func (c *conn) take(d *Device, h *wire.Header, payload []byte) bool {
	if c.blocked && (len(c.out)-c.sent >= coalesceFull || len(c.lent) > 0) {
		return false
	}
	if len(payload) <= coalesceMax || c.blocked || c.tls != nil {
		c.appendFrame(h, payload)
		if c.blocked {
			d.startFlushTimer(blockedRetry)
			return true
		}
		if d.busy(c) && h.Flags&wire.Wake == 0 && len(c.out)-c.sent < coalesceFull {
			d.coalesce(c)
			return true
		}
		c.flush(d)
	} else {
		c.out = c.appendHead(c.out, h, len(payload))
		if rest := c.writeBoth(d, payload); len(rest) > 0 {
			c.keep(d, rest)
		}
	}
	if c.blocked { // the engine has nothing more to do with it, and might not look for a long time
		d.startFlushTimer(blockedRetry)
	}
	return true
}

// lend takes a frame whose payload stays the caller's until the peer has it. It reports whether there was room.
func (c *conn) lend(d *Device, h *wire.Header, payload []byte) bool {
	d.outMu.Lock()
	defer d.outMu.Unlock()
	if c.blocked || c.cut {
		return false
	}
	c.alone = c.unsent() == 0
	if c.tls != nil || len(payload) <= coalesceMax {
		taken := c.take(d, h, payload)
		return c.kept(taken)
	}
	c.out = c.appendHead(c.out, h, len(payload))
	c.lent = c.writeBoth(d, payload)
	return c.kept(true)
}

func (c *conn) appendHead(b []byte, h *wire.Header, length int) []byte {
	var enc [wire.LongSize]byte
	return append(b, enc[:putHead(enc[:], h, length)]...)
}

// appendFrame appends a frame to out; with TLS, encrypted.
func (c *conn) appendFrame(h *wire.Header, payload []byte) {
	if c.sent > coalesceFull { // or it would grow for as long as the socket is never quite empty
		c.out = c.out[:copy(c.out, c.out[c.sent:])]
		c.sent = 0
	}
	if c.tls != nil {
		c.encrypt(h, payload)
		return
	}
	c.out = c.appendHead(c.out, h, len(payload))
	c.out = append(c.out, payload...)
}

// writeBoth writes out and then payload in one call, and returns what of payload did not fit.
func (c *conn) writeBoth(d *Device, payload []byte) []byte {
	n, errno := sendBoth(c.fd, c.out[c.sent:], payload)
	d.wrote(c)
	switch {
	case errno == 0:
		if left := len(c.out) - c.sent; n >= left {
			c.emptied(d)
			payload = payload[n-left:]
		} else {
			c.sent += n
		}
		if len(payload) > 0 || len(c.out) > c.sent {
			c.block(d)
		}
		return payload
	case again(errno):
		c.block(d)
		return payload
	}
	c.fail(d, errno)
	return nil
}

// flush writes what is there, as far as there is room.
func (c *conn) flush(d *Device) {
	for c.sent < len(c.out) {
		n, errno := send(c.fd, c.out[c.sent:])
		d.wrote(c)
		if errno != 0 {
			c.refused(d, errno, again(errno))
			return
		}
		c.sent += n
	}
	c.emptied(d)
	for len(c.lent) > 0 {
		n, errno := send(c.fd, c.lent)
		if errno != 0 {
			c.refused(d, errno, again(errno))
			return
		}
		c.lent = c.lent[n:]
	}
	c.lent = nil
	c.unblock(d)
}

func (c *conn) refused(d *Device, err error, later bool) {
	if later {
		c.block(d)
		return
	}
	c.fail(d, err)
}

// keep appends what the socket had no room for.
func (c *conn) keep(d *Device, rest []byte) {
	if len(rest) > coalesceFull && d.spareOut != nil {
		c.out = append(d.spareOut, c.out[c.sent:]...)
		d.spareOut, c.sent = nil, 0
	}
	c.out = append(c.out, rest...)
}

// emptied is called when all of out is with the kernel. A long buffer is not kept for each connection, but one for all.
func (c *conn) emptied(d *Device) {
	c.out, c.sent = c.out[:0], 0
	if cap(c.out) > 4*coalesceFull && c.tls == nil { // which needs it for every fragment
		if d.spareOut == nil && cap(c.out) <= 4*fragMax {
			d.spareOut = c.out
		}
		c.out = nil
	}
}

// fail is called when nothing can be sent any more. What has come in is still handed out; then the end of it is
// reported. If all that is lost is the frame that is offered just now, it is refused, since it can go over another
// connection (resume.go): that this one is cut off, reads will say, after what has come in.
func (c *conn) fail(d *Device, err error) {
	if c.alone && c.sent == 0 && cutOff(err) {
		c.emptied(d)
		c.cut, c.more = true, true
		d.markReady(c)
		return
	}
	c.emptied(d)
	c.lent = nil
	c.s.torn = true
	c.unblock(d)
	if c.over == nil {
		c.over = err
		d.markReady(c)
	}
}

func (c *conn) block(d *Device) {
	if !c.blocked {
		c.blocked = true
		d.blocked++
		d.backToSet() // Poll reads no socket directly while one is blocked
		d.set.waitRoom(c.fd, c.slot, true)
	}
}

func (c *conn) unblock(d *Device) {
	if c.blocked {
		c.blocked = false
		d.blocked--
		d.set.waitRoom(c.fd, c.slot, false)
	}
	if c.s.refused {
		d.reportRoom(c.s)
	}
}

// encrypt writes a frame through TLS, whose records end up in out. That is memory: it cannot fail.
func (c *conn) encrypt(h *wire.Header, payload []byte) {
	plain := append(c.s.d.plain[:0], c.s.d.plain[:wire.LongSize]...)
	plain = plain[:putHead(plain, h, len(payload))]
	if len(payload) <= coalesceMax {
		c.tls.Write(append(plain, payload...))
		return
	}
	c.tls.Write(plain)
	c.long = true
	c.tls.Write(payload[:len(payload)-1])
	c.long = false // so that the kernel is told where it ends
	c.tls.Write(payload[len(payload)-1:])
}

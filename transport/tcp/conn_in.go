package tcp

import (
	"errors"
	"io"
	"syscall"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

const (
	// readBuffer is what one read may bring: the longest eager frame and the beginning of another.
	readBuffer = 128 << 10
	// directMax bounds one read into a user's buffer, during which nothing else is looked at.
	directMax = 4 << 20
	// spareBuffers bounds those that are kept for the next connection that has something.
	spareBuffers = 8
)

// errAgain means that nothing is there, or no room.
var errAgain = errors.New("not now")

// read asks the socket once and hands out what has come. It is called at most once per connection and Poll: the
// payloads of an earlier call would not survive.
func (c *conn) read(d *Device, pkts []transport.Packet) int {
	if c.readIn == d.polls || c.over != nil {
		return 0
	}
	c.readIn = d.polls
	if len(c.into) > 0 && c.received() == 0 {
		n, err := c.receive(c.into[:min(len(c.into), directMax)])
		if err != nil {
			return c.stop(d, err, pkts)
		}
		if c.more = c.tls != nil; c.more {
			d.markReady(c)
		}
		pkts[0] = c.placed(n)
		return 1
	}
	room := c.room(d)
	n, err := c.receive(room)
	if err != nil {
		return c.stop(d, err, pkts)
	}
	c.w += n
	c.more = c.tls != nil && !c.emptyTLS(room[n:])
	return c.parse(d, pkts)
}

// emptyTLS reads on until the tls.Conn has nothing left, since what it holds makes no socket readable. It reports
// whether it got there: otherwise there was no room for all of it, or something is wrong, which the next read will say.
func (c *conn) emptyTLS(room []byte) bool {
	for len(room) > 0 {
		n, err := c.receiveTLS(room)
		if err != nil {
			return err == errAgain
		}
		c.w += n
		room = room[n:]
	}
	return false
}

// receive reads into b, which is not empty.
func (c *conn) receive(b []byte) (int, error) {
	if c.tls != nil {
		return c.receiveTLS(b)
	}
	return c.fromSocket(b)
}

func (c *conn) fromSocket(b []byte) (int, error) {
	n, errno := recv(c.fd, b)
	switch {
	case errno == 0 && n == 0:
		return 0, io.EOF
	case errno == 0:
		return n, nil
	case again(errno):
		return 0, errAgain
	}
	return 0, errno
}

// receiveTLS reads records. One that is not complete yet stays in the tls.Conn.
func (c *conn) receiveTLS(b []byte) (int, error) {
	c.reading = true
	n, err := c.tls.Read(b)
	c.reading = false
	if n > 0 {
		return n, nil
	}
	var later interface{ Temporary() bool }
	if err == nil || errors.As(err, &later) && later.Temporary() {
		return 0, errAgain
	}
	return 0, err
}

// stop takes the failure of a read.
func (c *conn) stop(d *Device, err error, pkts []transport.Packet) int {
	if err == errAgain {
		c.more = false
		return 0
	}
	c.over = err
	d.markReady(c) // until Down has been reported
	return c.parse(d, pkts)
}

// room is where the next read goes: behind what is there, or at the front again.
func (c *conn) room(d *Device) []byte {
	switch {
	case c.buf == nil:
		c.buf = d.buffer()
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.need > len(c.buf):
		longer := d.longBuffer()
		c.w = copy(longer, c.buf[c.r:c.w])
		d.keepBuffer(c.buf)
		c.r, c.buf = 0, longer
	case c.r > 0 && (len(c.buf)-c.w < readBuffer/2 || c.need > len(c.buf)-c.r):
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	c.need = 0
	if c.streams && c.r == c.w && c.skip == 0 {
		return c.buf[:wire.LongSize]
	}
	return c.buf[c.w:]
}

// parse hands out the frames that are in the buffer.
func (c *conn) parse(d *Device, pkts []transport.Packet) int {
	n := 0
	for n < len(pkts) {
		if len(c.into) > 0 {
			if c.received() == 0 {
				break
			}
			m := copy(c.into, c.buf[c.r:c.w])
			c.r += m
			pkts[n] = c.placed(m)
			n++
			continue
		}
		if c.skip > 0 {
			m := min(c.skip, c.received())
			c.r += m
			if c.skip -= m; c.skip > 0 {
				break
			}
		}
		took := c.frame(d, &pkts[n])
		if took == nothing {
			break
		}
		if took == onePacket {
			n++
		}
	}
	switch {
	case n == len(pkts) && c.received() > 0, c.more && c.over == nil:
		d.markReady(c)
	case c.over != nil && n < len(pkts):
		n += d.ended(c, c.over, pkts[n:])
	}
	if c.received() == 0 {
		d.drained(c)
	}
	return n
}

// taken says what frame has done.
type taken uint8

const (
	nothing   taken = iota // more bytes are needed, or none will be looked at any more
	noPacket               // a frame that the engine does not get
	onePacket              // the packet is filled in
)

// frame takes the next one.
func (c *conn) frame(d *Device, p *transport.Packet) taken {
	b := c.buf[c.r:c.w]
	if len(b) >= wire.ShortSize && b[0] == byeKind {
		c.s.bye = true
		c.r = c.w
		c.over = io.EOF
		return nothing
	}
	h := &p.Header
	k, size, err := head(b, h)
	switch {
	case err != nil:
		c.r, c.over = c.w, err
		c.s.bye = true // not one to dial again
		return nothing
	case k == 0:
		c.need = len(b) + 1
		return nothing
	}
	c.streams = h.Kind == wire.Data && len(c.s.places) > 0
	if c.streams && c.findPlacement(h, size) {
		c.r += k
		c.s.received++
		return noPacket
	}
	if size > fragMax { // the stream is over for the receiver
		c.skip = size
		c.r += k
		c.s.received++
		return noPacket
	}
	if len(b) < k+size {
		c.need = k + size // seen to by the next read: what this Poll has handed out lies in the buffer
		return nothing
	}
	*p = transport.Packet{Event: transport.Arrived, Peer: int32(c.s.peer), Header: *h, Payload: b[k : k+size : k+size]}
	c.r += k + size
	c.s.received++
	return onePacket
}

// findPlacement sets into for a fragment. It reports whether a placement is for it.
func (c *conn) findPlacement(h *wire.Header, size int) bool {
	for i := range c.s.places {
		pl := &c.s.places[i]
		if pl.key != h.Key || pl.gen != h.Tag {
			continue
		}
		end := uint64(len(pl.dst))
		if h.Addr < uint64(pl.from) || h.Addr > end || uint64(size) > end-h.Addr || size == 0 {
			return false
		}
		c.into, c.coming = pl.dst[h.Addr:h.Addr+uint64(size)], *h
		return true
	}
	return false
}

// placed is the packet about n bytes that are where they belong.
func (c *conn) placed(n int) transport.Packet {
	h := c.coming
	h.Len = uint64(n)
	c.coming.Addr += uint64(n)
	if c.into = c.into[n:]; len(c.into) == 0 {
		c.into = nil
	}
	return transport.Packet{Event: transport.Placed, Peer: int32(c.s.peer), Header: h}
}

// displaced is called when the rest of a fragment has nowhere to go any more.
func (c *incoming) displaced() {
	c.skip += len(c.into)
	c.into = nil
}

// cutOff reports whether err is that of a socket whose other end is closed, or that this host's kernel has closed.
func cutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNABORTED)
}

package tcp

import "sync/atomic"

const (
	// hotReads is how many successful reads of the hot socket come before a poll of the set, and hotMisses how many in
	// vain.
	hotReads  = 32
	hotMisses = 32
	// directAfter is how many reads of the hot socket must have brought something before it leaves the set. A set costs
	// the sender of each packet half a microsecond (docs/decisions/tcp.md), going and coming back about one.
	directAfter = 16
)

// receiving is what a device reads next, and the buffers into which it does. It belongs to the caller of Poll (the
// engine, under its lock).
type receiving struct {
	polls  uint64
	hot    *conn                // the only one that has had something lately: read without asking the set
	direct atomic.Pointer[conn] // == hot, if that is not in the set; else nil
	streak int                  // reads of hot that brought something
	full   bool                 // the previous Poll was full before it came to the set
	misses int                  // reads of hot that did not
	run    int                  // reads that did since it has been hot
	ready  []*conn              // with something to hand out that makes no socket readable
	events [maxEvents]event

	// reported are the slots, in reports, that the set has reported and that have not been read since. In a slot may be
	// another connection by now.
	reported []uint32
	reports  [maxEvents]uint32

	empty []*conn  // with a buffer in which nothing is left, unless it has been lent by the Poll before
	spare [][]byte // buffers
	long  []byte   // a spare one for long frames
}

// setHot makes c the socket that is read without the set; nil: none.
func (d *Device) setHot(c *conn) {
	was := d.hot
	d.misses, d.streak = 0, 0
	if was == c {
		return
	}
	d.backToSet()
	d.hot, d.run = c, 0
	if was != nil && was.received() == 0 {
		d.drained(was)
	}
}

// pollDirect takes the hot socket out of the set, which need not report what is read directly. A sleeper needs the set.
// There is none if the read that led here has found the socket's end behind its last packets.
func (d *Device) pollDirect() {
	if d.hot != nil && !d.armed && !d.hot.blocked && d.direct.Load() == nil {
		d.set.remove(d.hot.fd)
		d.direct.Store(d.hot)
	}
}

// backToSet ends pollDirect: Poll does not read the socket directly any more, or the set must report room too.
func (d *Device) backToSet() {
	if c := d.direct.Load(); c != nil {
		d.set.add(c.fd, c.slot)
		d.direct.Store(nil)
		d.run = 0
	}
}

// directReadable reports whether the socket that is not in the set has something. Any goroutine may call it.
func (d *Device) directReadable() bool {
	d.outMu.Lock() // a descriptor is closed under it
	defer d.outMu.Unlock()
	c := d.direct.Load()
	return c != nil && !c.closed && readable(c.fd)
}

// markReady notes that c has something to hand out.
func (r *receiving) markReady(c *conn) {
	if !c.listed {
		c.listed = true
		r.ready = append(r.ready, c)
	}
}

// buffer returns a spare buffer, or a new one.
func (r *receiving) buffer() []byte {
	if n := len(r.spare); n > 0 {
		b := r.spare[n-1]
		r.spare = r.spare[:n-1]
		return b
	}
	return make([]byte, readBuffer)
}

// longBuffer returns a buffer for a frame that does not fit into others.
func (r *receiving) longBuffer() []byte {
	if b := r.long; b != nil {
		r.long = nil
		return b
	}
	return make([]byte, fragMax+readBuffer)
}

// keepBuffer keeps a buffer that is not used any more as a spare one; beyond a bound it leaves it to the collector.
func (r *receiving) keepBuffer(b []byte) {
	switch {
	case len(b) > readBuffer:
		r.long = b
	case len(r.spare) < spareBuffers:
		r.spare = append(r.spare, b)
	}
}

// drained notes that nothing is left in c's buffer: when its payloads are not in use any more, another connection gets
// it.
func (r *receiving) drained(c *conn) {
	if c != r.hot || len(c.buf) > readBuffer {
		r.empty = append(r.empty, c)
	}
}

// reclaim takes back the empty buffers: the payloads that the last Poll returned are not in use any more.
func (r *receiving) reclaim() {
	for i, c := range r.empty {
		r.empty[i] = nil
		if c.received() > 0 || c.buf == nil || c == r.hot && len(c.buf) == readBuffer {
			continue
		}
		r.keepBuffer(c.buf)
		c.buf, c.r, c.w = nil, 0, 0
	}
	r.empty = r.empty[:0]
}

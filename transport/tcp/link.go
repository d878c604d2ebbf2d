package tcp

import (
	"fmt"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// eagerMax: an eager message is copied once more than a large one, and a rendezvous costs a round trip.
const eagerMax = 64 << 10

// link sends to one peer, over the connection that its session has at the moment.
type link struct {
	s    *session
	caps transport.Caps
}

func newLink(s *session) *link {
	l := &link{s: s}
	l.caps = transport.Caps{EagerMax: eagerMax, FragMax: fragMax, Cut: l.cut,
		WhyNoRMA: "TCP cannot read another rank's memory",
		ZeroCopy: &transport.ZeroCopy{Send: l.lend, Max: lendMax, Reads: l.reads, Place: l.place, Displace: l.displace}}
	if s.d.opt.TLS {
		l.caps.ZeroCopy.Max = fragMax
	}
	return l
}

// Caps is transport.Link's.
func (l *link) Caps() *transport.Caps { return &l.caps }

// TrySend implements transport.Link. A link without a connection (it is being made again) has no room.
func (l *link) TrySend(h *wire.Header, payload []byte) bool {
	c, taken := l.ready(len(payload), fragMax)
	if c == nil {
		return taken
	}
	return l.s.count(c.put(l.s.d, h, payload))
}

// lend implements transport.ZeroCopy's Send.
func (l *link) lend(h *wire.Header, payload transport.Mem) bool {
	c, taken := l.ready(payload.Len, lendMax)
	if c == nil {
		return taken
	}
	return l.s.count(c.lend(l.s.d, h, payload.Bytes()))
}

// reads implements transport.ZeroCopy. After frames were lost it says yes until Down: then a message that has not come
// is no success for its sender.
func (l *link) reads() bool {
	s := l.s
	if s.gone.Load() || s.d.closed.Load() {
		return false
	}
	if c := s.conn.Load(); c != nil && len(c.lent) == 0 && !s.torn {
		return false
	}
	s.refused = true
	return true
}

// errCut means that the engine has found that the peer breaks the protocol, or that the job is over.
var errCut = fmt.Errorf("%w: this rank has cut the connection", transport.ErrPeerGone)

// cut is transport.Caps's. The next Poll closes the connection, after what it has to hand out.
func (l *link) cut() {
	s, d := l.s, l.s.d
	s.bye = true // not one to dial again
	if c := s.conn.Load(); c != nil {
		if c.over == nil {
			c.over = errCut
		}
		d.markReady(c)
	} else {
		d.mu.Lock()
		if s.err == nil {
			s.end(errCut)
			d.lost = append(d.lost, s)
		}
		d.mu.Unlock()
		d.notify()
	}
	d.armed = false
	d.endSleep()
}

// ready returns the connection; without one, what TrySend returns.
func (l *link) ready(length, most int) (c *conn, taken bool) {
	if length > most {
		panic(fmt.Sprintf("tcp: %d bytes over a link that takes %d", length, most))
	}
	if c = l.s.conn.Load(); c != nil {
		return c, false
	}
	if l.s.gone.Load() || l.s.d.closed.Load() {
		return nil, true
	}
	l.s.refused = true
	return nil, false
}

// count notes a frame that has been taken or refused. It reports whether it has been taken.
func (s *session) count(taken bool) bool {
	if taken {
		s.sent++
	} else {
		s.refused = true
	}
	return taken
}

// placement is where the fragments of one stream go.
type placement struct {
	key  uint64
	gen  int32
	dst  []byte
	from int64
}

// place is transport.ZeroCopy's.
func (l *link) place(key uint64, gen int32, dst transport.Mem, from int64) {
	l.displace(key)
	l.s.places = append(l.s.places, placement{key, gen, dst.Bytes(), from})
	if c := l.s.conn.Load(); c != nil {
		c.streams = true
	}
}

// displace is transport.ZeroCopy's.
func (l *link) displace(key uint64) {
	for i := range l.s.places {
		if l.s.places[i].key != key {
			continue
		}
		last := len(l.s.places) - 1
		l.s.places[i], l.s.places[last] = l.s.places[last], placement{}
		l.s.places = l.s.places[:last]
		if c := l.s.conn.Load(); c != nil && c.coming.Key == key {
			c.displaced()
		}
		return
	}
}

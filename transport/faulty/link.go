package faulty

import (
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// link misbehaves towards one peer.
type link struct {
	transport.Link
	d       *Device
	peer    int
	dice    *rand.Rand
	refuses int // further calls of TrySend that refuse
}

// over reports whether the plan has cut this link.
func (l *link) over() bool {
	c := l.d.cuts[l.peer]
	return c != nil && c.broken
}

func (l *link) TrySend(h *wire.Header, payload []byte) bool {
	if l.over() {
		return true
	}
	if !l.d.down[int32(l.peer)] { // a link whose peer is known to be gone never refuses
		if l.refuses == 0 && hit(l.dice, l.d.plan.Refuse) {
			l.refuses = 1 + l.dice.IntN(l.d.plan.RefuseFor+1)
		}
		if l.refuses > 0 {
			l.refuses--
			return false
		}
	}
	if !l.Link.TrySend(h, payload) {
		return false
	}
	l.d.count(l.peer)
	return true
}

// getter is a link that reads.
type getter struct {
	*link
	inner transport.Getter
}

// lateGet was started and has not read anything.
type lateGet struct {
	g         *getter
	dst       []byte
	addr, key uint64
	cookie    uint64
	due       uint64 // poll
	fails     bool
}

func (g *getter) Register(buf []byte) (addr, key uint64, ok bool) {
	if g.over() || hit(g.dice, g.d.plan.RefuseRegister) {
		return 0, 0, false
	}
	return g.inner.Register(buf)
}

func (g *getter) Deregister(addr, key uint64) { g.inner.Deregister(addr, key) }

func (g *getter) TryGet(dst []byte, addr, key uint64, cookie uint64) (transport.GetState, error) {
	p := &g.d.plan
	switch {
	case g.over():
		return transport.GetDone, fmt.Errorf("faulty: connection cut by plan: %w", transport.ErrPeerGone)
	case hit(g.dice, p.FullGet):
		return transport.GetFull, nil
	}
	fails := hit(g.dice, p.FailGet)
	if hit(g.dice, p.LateGet) {
		due := g.d.polls + 1 + uint64(g.dice.IntN(p.LateFor+1))
		g.d.gets = append(g.d.gets, lateGet{g: g, dst: dst, addr: addr, key: key, cookie: cookie, due: due, fails: fails})
		g.d.held++
		return transport.GetStarted, nil
	}
	if fails {
		g.spoil(dst)
		return transport.GetDone, ErrInjected
	}
	return g.inner.TryGet(dst, addr, key, cookie)
}

// spoil leaves a part of dst overwritten, as a read that fails half way does.
func (g *getter) spoil(dst []byte) {
	for i := range dst[:len(dst)/2] {
		dst[i] = 0xdb
	}
}

// finishGets reads what is due. Only now: an owner who reuses its memory before it is told so is found out.
func (d *Device) finishGets() {
	kept := d.gets[:0]
	for _, l := range d.gets {
		if d.polls < l.due {
			kept = append(kept, l)
			continue
		}
		state, err := l.read()
		switch {
		case err == nil && state == transport.GetFull:
			kept = append(kept, l)
		case err == nil && state == transport.GetStarted:
			d.held-- // the wrapped device will say when
		default:
			p := transport.Packet{Event: transport.Got, Peer: int32(l.g.peer), Err: err}
			p.Header.ID = l.cookie
			d.got = append(d.got, p)
		}
	}
	clear(d.gets[len(kept):])
	d.gets = kept
}

func (l *lateGet) read() (transport.GetState, error) {
	switch {
	case l.g.over():
		return transport.GetDone, fmt.Errorf("faulty: connection cut by plan: %w", transport.ErrPeerGone)
	case l.fails:
		l.g.spoil(l.dst)
		return transport.GetDone, ErrInjected
	}
	return l.g.inner.TryGet(l.dst, l.addr, l.key, l.cookie)
}

// presence is a link that guesses whether the peer looks.
type presence struct {
	l     *link
	inner transport.Presence
}

func (p *presence) PeerPolls() bool {
	return p.inner.PeerPolls() != hit(p.l.dice, p.l.d.plan.LiePresence)
}

func (p *presence) PeerWaits() bool {
	return p.inner.PeerWaits() != hit(p.l.dice, p.l.d.plan.LiePresence)
}

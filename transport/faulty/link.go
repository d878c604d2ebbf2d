package faulty

import (
	"math/rand/v2"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// link misbehaves towards one peer.
type link struct {
	transport.Link
	d           *Device
	peer        int
	caps        transport.Caps // those of the wrapped link, with functions of ours
	dice        *rand.Rand
	refuseUntil uint64 // poll
}

func (d *Device) wrapLink(inner transport.Link, peer int) *link {
	l := &link{Link: inner, d: d, peer: peer, caps: *inner.Caps(), dice: d.dice(16 + uint64(peer))}
	if l.caps.RMA != nil {
		l.caps.RMA = l.rma(l.caps.RMA)
	}
	if l.caps.Presence != nil {
		l.caps.Presence = l.presence(l.caps.Presence)
	}
	if l.caps.ZeroCopy != nil {
		l.caps.ZeroCopy = l.zeroCopy(l.caps.ZeroCopy)
	}
	if c := d.cuts[peer]; c != nil {
		c.inner.Store(&inner)
	}
	return l
}

// Caps is transport.Link's.
func (l *link) Caps() *transport.Caps { return &l.caps }

// isCut reports whether the plan has cut this link, or ended the device.
func (l *link) isCut() bool {
	c := l.d.cuts[l.peer]
	return l.d.dead || c != nil && c.broken
}

// TrySend implements transport.Link.
func (l *link) TrySend(h *wire.Header, payload []byte) bool {
	return l.send(func() bool { return l.Link.TrySend(h, payload) })
}

func (l *link) send(inner func() bool) bool {
	if l.isCut() {
		return true
	}
	if l.refuse() {
		return false
	}
	taken := inner()
	if most := l.Link.Caps().FragMax; most < l.caps.FragMax {
		l.caps.FragMax = most
	}
	if taken {
		l.d.count(l.peer)
	}
	return taken
}

// refuse throws the dice. It reports whether the link refuses: one whose peer is known to be gone never does.
func (l *link) refuse() bool {
	d := l.d
	if d.down[int32(l.peer)] {
		return false
	}
	if d.polls >= l.refuseUntil && hit(l.dice, d.plan.Refuse) {
		l.refuseUntil = d.in(l.dice, d.plan.RefuseFor)
		d.tellRoom(l.refuseUntil, l.peer)
	}
	return d.polls < l.refuseUntil
}

// rma keeps what the device cannot do nil.
func (l *link) rma(in *transport.RMA) *transport.RMA {
	out := *in
	out.Register = func(mem transport.Mem, access transport.Access) (addr, key uint64, ok bool) {
		if l.isCut() || hit(l.dice, l.d.plan.RefuseRegister) {
			return 0, 0, false
		}
		return in.Register(mem, access)
	}
	if in.Prepare != nil {
		out.Prepare = func(mem transport.Mem, access transport.Access, cookie uint64) bool {
			return !l.isCut() && in.Prepare(mem, access, cookie)
		}
	}
	out.Get = func(dst transport.Mem, addr, key, cookie uint64) (transport.State, error) {
		return l.operate(cookie, dst, func() (transport.State, error) { return in.Get(dst, addr, key, cookie) })
	}
	if in.GetSome != nil {
		out.GetSome = func(reads []transport.Read) int {
			if reads = l.some(reads); len(reads) == 0 {
				return 0
			}
			return in.GetSome(reads)
		}
	}
	var none transport.Mem
	if in.GetDevice != nil {
		out.GetDevice = func(dst uint64, n int64, local, addr, key, cookie uint64) (transport.State, error) {
			return l.operate(cookie, none, func() (transport.State, error) {
				return in.GetDevice(dst, n, local, addr, key, cookie)
			})
		}
	}
	if in.Put != nil {
		out.Put = func(src transport.Mem, addr, key, cookie uint64) (transport.State, error) {
			return l.operate(cookie, none, func() (transport.State, error) { return in.Put(src, addr, key, cookie) })
		}
	}
	if in.PutNote != nil {
		out.PutNote = func(src transport.Mem, addr, key uint64, note uint32, cookie uint64) (transport.State, error) {
			return l.operate(cookie, none, func() (transport.State, error) {
				return in.PutNote(src, addr, key, note, cookie)
			})
		}
	}
	if in.FetchAdd != nil {
		out.FetchAdd = func(add, addr, key, cookie uint64) (transport.State, error) {
			return l.operate(cookie, none, func() (transport.State, error) {
				return in.FetchAdd(add, addr, key, cookie)
			})
		}
		out.CompareSwap = func(compare, swap, addr, key, cookie uint64) (transport.State, error) {
			return l.operate(cookie, none, func() (transport.State, error) {
				return in.CompareSwap(compare, swap, addr, key, cookie)
			})
		}
	}
	return &out
}

// some are the READs up to the first with which something goes wrong. One that fails leaves a part of Dst overwritten.
func (l *link) some(reads []transport.Read) []transport.Read {
	plan := &l.d.plan
	for i := range reads {
		switch {
		case l.isCut() || hit(l.dice, plan.FullRMA) || hit(l.dice, plan.LateRMA):
			return reads[:i]
		case hit(l.dice, plan.FailRMA):
			poison(reads[i].Dst.Part(0, int64(reads[i].Dst.Len/2)).Bytes())
			return reads[:i]
		}
	}
	return reads
}

// operation begins one on the peer's memory.
type operation func() (transport.State, error)

// operate begins an operation, now or later. Later is when memory is read and written: an owner that reuses its memory
// before the end is reported is found out. One that fails leaves a part of dst overwritten, as a Get that fails half
// way.
func (l *link) operate(cookie uint64, dst transport.Mem, begin operation) (transport.State, error) {
	plan := &l.d.plan
	switch {
	case l.isCut():
		return transport.Done, errCut
	case hit(l.dice, plan.FullRMA):
		l.d.tellRoom(l.d.polls+1, l.peer)
		return transport.Full, nil
	}
	if hit(l.dice, plan.FailRMA) {
		begin = func() (transport.State, error) {
			poison(dst.Part(0, int64(dst.Len/2)).Bytes())
			return transport.Done, ErrInjected
		}
	}
	if !hit(l.dice, plan.LateRMA) {
		return begin()
	}
	l.d.comeLater(l.d.in(l.dice, plan.LateFor), func() (p transport.Packet, state transport.State) {
		err := errCut
		if !l.isCut() {
			if state, err = begin(); err != nil {
				state = transport.Done
			}
		}
		return transport.Packet{Event: transport.RMADone, Peer: int32(l.peer), Cookie: cookie, Err: err}, state
	})
	return transport.Started, nil
}

func (l *link) presence(in *transport.Presence) *transport.Presence {
	lie := func(truth func() bool) func() bool {
		return func() bool { return truth() != hit(l.dice, l.d.plan.LiePresence) }
	}
	return &transport.Presence{Polls: lie(in.Polls), Waits: lie(in.Waits)}
}

func (l *link) zeroCopy(in *transport.ZeroCopy) *transport.ZeroCopy {
	if l.d.cuts[l.peer] != nil || l.d.plan.Death != nil {
		return nil
	}
	out := *in
	out.Send = func(h *wire.Header, payload transport.Mem) bool {
		return l.send(func() bool { return in.Send(h, payload) })
	}
	if l.d.plan.IgnorePlace > 0 {
		out.Max = min(in.Max, l.caps.FragMax) // the peer, which misbehaves likewise, may get it as a packet
	}
	out.Place = func(key uint64, gen int32, dst transport.Mem, from int64) {
		if hit(l.dice, l.d.plan.IgnorePlace) {
			in.Displace(key) // an earlier one of this key ends all the same
			return
		}
		in.Place(key, gen, dst, from)
	}
	return &out
}

// offload is what the device has; nil if links are cut, or the device may die.
func (d *Device) offload(in *transport.Offload) *transport.Offload {
	if in == nil || len(d.cuts) > 0 || d.plan.Death != nil {
		return nil
	}
	dice := d.dice(4)
	out := *in
	out.Post = func(tag, mask uint64, buf transport.Mem, cookie uint64) transport.Posted {
		if hit(dice, d.plan.RefusePost) {
			return transport.PostedFull + transport.Posted(dice.IntN(2))
		}
		return in.Post(tag, mask, buf, cookie)
	}
	return &out
}

// tagged refuses now and then to begin what can be begun later.
type tagged struct {
	transport.Tagged
	d    *Device
	dice *rand.Rand
}

func (t *tagged) begin(inner operation) (transport.State, error) {
	if hit(t.dice, t.d.plan.Refuse) {
		t.d.tellRoom(t.d.polls+1, 0)
		return transport.Full, nil
	}
	return inner()
}

func (t *tagged) TrySend(peer int32, m transport.Match, buf transport.Mem, now bool) (sent, held bool) {
	if hit(t.dice, t.d.plan.Refuse) {
		return false, false
	}
	return t.Tagged.TrySend(peer, m, buf, now)
}

func (t *tagged) Send(peer int32, m transport.Match, buf transport.Mem, sync bool, cookie uint64) (
	transport.State, error) {
	return t.begin(func() (transport.State, error) { return t.Tagged.Send(peer, m, buf, sync, cookie) })
}

func (t *tagged) Post(m transport.Match, buf transport.Mem, cookie uint64, waits bool) (
	got transport.Probed, st transport.State, err error) {
	st, err = t.begin(func() (st transport.State, err error) {
		got, st, err = t.Tagged.Post(m, buf, cookie, waits)
		return st, err
	})
	return got, st, err
}

func (t *tagged) Take(message uint64, buf transport.Mem, cookie uint64) (transport.State, error) {
	return t.begin(func() (transport.State, error) { return t.Tagged.Take(message, buf, cookie) })
}

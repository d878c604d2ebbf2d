package looptag

import (
	"bytes"
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi/tagmatch"
	"github.com/gorun-mpi/mpi/transport"
)

// Limits is transport.Tagged's.
func (d *Device) Limits() transport.TaggedLimits {
	return transport.TaggedLimits{Contexts: 1<<32 - 1, Tag: 1<<31 - 1}
}

// Reach checks the address.
func (d *Device) Reach(_ context.Context, peer int, address []byte) error {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	switch {
	case peer < 0 || peer >= len(d.f.devices) || string(address) != string(d.f.devices[peer].Address()):
		return fmt.Errorf("looptag: rank %d at %.64q is not of this fabric", peer, address)
	case d.f.devices[peer].closed:
		return fmt.Errorf("looptag: rank %d: %w: it has closed its device", peer, transport.ErrPeerGone)
	}
	return nil
}

// TrySend implements transport.Tagged.
func (d *Device) TrySend(peer int32, m transport.Match, buf transport.Mem, _ bool) (sent, held bool) {
	d.f.mu.Lock()
	to := d.f.devices[peer]
	room := buf.Len <= keepMax && (to == d || to.kept[d] < keepMany)
	d.f.mu.Unlock()
	if !room {
		return false, false
	}
	st, err := d.Send(peer, m, buf, false, 0)
	return st == transport.Done && err == nil, false
}

// Send is transport.Tagged's.
func (d *Device) Send(peer int32, m transport.Match, buf transport.Mem,
	sync bool, cookie uint64) (transport.State, error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	to := d.f.devices[peer]
	switch {
	case to.closed:
		return transport.Done, fmt.Errorf("looptag: rank %d: %w: it has closed its device", peer, transport.ErrPeerGone)
	case d.full():
		return transport.Full, nil
	}
	var payload []byte
	if buf.Len > 0 {
		payload = buf.Bytes()
	}
	if r := to.table.Arrive(m.Context, m.Source, m.Tag); r != nil {
		p := r.Owner.(*receive)
		delete(to.posted, p.cookie)
		to.fill(p.buf, p.cookie, m.Source, m.Tag, payload)
		return transport.Done, nil
	}
	msg := &message{from: d, to: to, payload: payload, cookie: cookie,
		waits: sync || len(payload) > keepMax || to != d && to.kept[d] == keepMany}
	msg.Message = tagmatch.Message{Ctx: m.Context, Source: m.Source, Tag: m.Tag, Owner: msg}
	to.table.Queue(&msg.Message)
	to.arrived = true
	to.show(false)
	if msg.waits {
		d.sent[cookie] = msg
		return transport.Started, nil
	}
	msg.payload = bytes.Clone(payload)
	to.kept[d]++
	return transport.Done, nil
}

// Post is transport.Tagged's. Never Done.
func (d *Device) Post(m transport.Match, buf transport.Mem, cookie uint64,
	_ bool) (transport.Probed, transport.State, error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	if d.full() {
		return transport.Probed{}, transport.Full, nil
	}
	r := &receive{buf: buf, cookie: cookie}
	r.Receive = tagmatch.Receive{Ctx: m.Context, Source: m.Source, Tag: m.Tag, Owner: r}
	if found := d.table.Post(&r.Receive); found != nil {
		d.fetch(buf, cookie, found.Owner.(*message))
	} else {
		d.posted[cookie] = r
	}
	return transport.Probed{}, transport.Started, nil
}

// Probe is transport.Tagged's.
func (d *Device) Probe(m transport.Match, take bool) (transport.Probed, bool) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	found := d.table.Probe(m.Context, m.Source, m.Tag)
	if found == nil {
		return transport.Probed{}, false
	}
	msg := found.Owner.(*message)
	p := transport.Probed{Source: msg.Source, Tag: msg.Tag, Bytes: int64(len(msg.payload))}
	if take {
		d.table.Remove(found)
		d.last++
		p.Message = d.last
		d.taken[d.last] = msg
	}
	return p, true
}

// Take is transport.Tagged's.
func (d *Device) Take(number uint64, buf transport.Mem, cookie uint64) (transport.State, error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	msg := d.taken[number]
	switch {
	case msg == nil:
		return transport.Done, fmt.Errorf("looptag: message %d: %w: its sender has closed its device", number,
			transport.ErrPeerGone)
	case d.full():
		return transport.Full, nil
	}
	delete(d.taken, number)
	d.fetch(buf, cookie, msg)
	return transport.Started, nil
}

// Abandon is transport.Tagged's.
func (d *Device) Abandon(cookie uint64, _ bool) { d.Cancel(cookie) }

// Cancel is transport.Tagged's.
func (d *Device) Cancel(cookie uint64) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	if r := d.posted[cookie]; r != nil {
		delete(d.posted, cookie)
		d.table.Cancel(&r.Receive)
		d.event(transport.Packet{Event: transport.TaggedDone, Cookie: cookie, Peer: r.Source, Err: transport.ErrCancelled})
		return
	}
	m := d.sent[cookie]
	if m == nil {
		return // it has ended
	}
	for _, taken := range m.to.taken {
		if taken == m {
			return // too late: it is matched
		}
	}
	m.to.drop(m)
	d.end(m, transport.ErrCancelled)
}

package transporttest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi/internal/eventset"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// end is one device of a pair, the set in which its rank sleeps, and what a test needs to drive them. One goroutine at
// a time uses it.
type end struct {
	f          *fixture
	dev        transport.Device
	set        *eventset.Set
	rank, peer int
	link       transport.Link // to the peer; nil until connected
	pkts       []transport.Packet
	inbox      []transport.Packet // polled and not yet taken by next; payloads are copies
	slow       bool               // the test itself says Offload.Seen
	closed     bool
	cookie     uint64 // the last one given out
	polls      uint
}

func (f *fixture) end(d transport.Device, rank int) *end {
	f.Helper()
	set, err := eventset.New(d)
	f.must(err)
	return &end{f: f, dev: d, set: set, rank: rank, peer: 1 - rank, pkts: make([]transport.Packet, 16)}
}

func (e *end) connect(to *end) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := e.dev.Connect(ctx, e.peer, to.dev.Address())
	if err != nil {
		return fmt.Errorf("rank %d connects to rank %d: %w", e.rank, e.peer, err)
	}
	e.link = l
	return nil
}

// raw polls the device once. What it does not set is rubbish.
func (e *end) raw(pkts []transport.Packet) []transport.Packet {
	faulty.Spoil(pkts)
	n := e.dev.Poll(pkts)
	for i := range pkts[:n] {
		if p := &pkts[i]; p.Event > transport.TaggedDone || int(p.Peer) != e.peer && p.Event != transport.Reached {
			e.f.Errorf("rank %d: event %d of rank %d; the only peer is %d", e.rank, p.Event, p.Peer, e.peer)
		}
	}
	return pkts[:n]
}

// poll asks the device once and keeps copies of what it gives: of each packet what its event promises, and no more.
func (e *end) poll() int {
	if e.polls++; e.polls%4 != 0 && e.dev.Facts().Short != nil {
		if p, found := e.short(); found != transport.FoundOther {
			e.inbox = append(e.inbox, p...)
			return len(p)
		}
	}
	got := e.raw(e.pkts)
	for i := range got {
		var p transport.Packet
		faulty.Take(&p, &got[i])
		p.Payload = bytes.Clone(p.Payload)
		if p.Event == transport.Unmatched && !e.slow {
			e.dev.Facts().Offload.Seen()
		}
		if p.Event != transport.Room { // the suite tries again anyhow
			e.inbox = append(e.inbox, p)
		}
	}
	return len(got)
}

// short asks the device once for a short message, and keeps a copy.
func (e *end) short() ([]transport.Packet, transport.Found) {
	m, payload, found := e.dev.Facts().Short()
	if found != transport.FoundShort {
		return nil, found
	}
	if int(m.Source) != e.peer {
		e.f.Errorf("rank %d: a short message of rank %d; the only peer is %d", e.rank, m.Source, e.peer)
	}
	h := wire.Header{Kind: wire.Eager, Ctx: m.Ctx, Tag: m.Tag}
	return []transport.Packet{{Event: transport.Arrived, Peer: m.Source, Header: h, Payload: bytes.Clone(payload)}}, found
}

// send keeps trying, and polls in between as an engine does.
func (e *end) send(h wire.Header, payload []byte) error {
	for c := start(); !e.link.TrySend(&h, payload); {
		e.poll()
		if runtime.Gosched(); c.late() {
			return fmt.Errorf("rank %d: TrySend of a %v with %d bytes has been refused for %v",
				e.rank, h.Kind, len(payload), patience)
		}
	}
	return nil
}

// tryNext returns a packet of any event if one is there now.
func (e *end) tryNext() (p transport.Packet, ok bool) {
	if len(e.inbox) == 0 {
		e.poll()
	}
	if len(e.inbox) == 0 {
		return p, false
	}
	p = e.inbox[0]
	e.inbox = e.inbox[1:]
	return p, true
}

// next waits for a packet of any event.
func (e *end) next() (transport.Packet, error) {
	for c := start(); ; runtime.Gosched() {
		if p, ok := e.tryNext(); ok {
			return p, nil
		}
		if c.late() {
			return transport.Packet{}, fmt.Errorf("rank %d: nothing arrived within %v", e.rank, patience)
		}
	}
}

// nextPacket waits for a packet with a header and accepts nothing else.
func (e *end) nextPacket() (transport.Packet, error) {
	p, err := e.next()
	if err == nil && !sent(p) {
		err = fmt.Errorf("rank %d: got event %d (error %v) where a packet was expected", e.rank, p.Event, p.Err)
	}
	return p, err
}

// sent reports whether p is what the peer has sent.
func sent(p transport.Packet) bool {
	return p.Event == transport.Arrived || p.Event == transport.Unmatched
}

// down waits for one Down and for nothing else.
func (e *end) down() error {
	p, err := e.next()
	switch {
	case err != nil:
		return fmt.Errorf("the peer has closed its device: %w", err)
	case p.Event != transport.Down || !errors.Is(p.Err, transport.ErrPeerGone):
		return fmt.Errorf("rank %d: event %d, error %v; want Down and ErrPeerGone", e.rank, p.Event, p.Err)
	}
	return e.quiet()
}

// quiet checks that nothing more comes: after many polls and a while.
func (e *end) quiet() error {
	for until := time.Now().Add(30 * time.Millisecond); time.Now().Before(until); runtime.Gosched() {
		if p, ok := e.tryNext(); ok {
			return fmt.Errorf("rank %d: event %d, %v %+v, %d bytes, was not sent",
				e.rank, p.Event, p.Header.Kind, p.Header, len(p.Payload))
		}
	}
	return nil
}

// untilClosed polls, so that what was taken goes out, until stop is closed.
func (e *end) untilClosed(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			e.poll()
			runtime.Gosched()
		}
	}
}

// pattern is n bytes that differ from one seed to another and from one place to another.
func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	fill(b, seed)
	return b
}

func fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	var word [8]byte
	for i := 0; i < len(b); i += len(word) {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(word[:], x)
		copy(b[i:], word[:])
	}
}

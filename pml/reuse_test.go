package pml

import (
	"math"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A request that a caller held is used again after requestQuarantine others. What it was before must not shine through.
func TestReusedRequest(t *testing.T) {
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 512, unexpectedMax: 1 << 20})
	defer n.close()
	e, peer := n.engines[0], n.engines[1]
	collect := func(e *Engine, r *Request) {
		t.Helper()
		if done, _, err := r.Test(); !done || err != nil {
			t.Fatalf("done %v, %v", done, err)
		}
	}
	exchange := func(from, to int) {
		s := n.engines[from].Isend(nil, 1, to, 1, make([]byte, 1000), Standard)
		r := n.engines[to].Irecv(nil, 1, from, 1, make([]byte, 1000))
		n.awaitConnects()
		for range 4 {
			n.deliver(to, math.MaxInt)
			n.deliver(from, math.MaxInt)
		}
		collect(n.engines[from], s)
		collect(n.engines[to], r)
	}
	for i := range requestQuarantine + 100 {
		n.polls[0], n.polls[1] = i%4 < 2, i%4 < 2 // streams and READs
		exchange(i%2, 1-i%2)
	}

	// Receives that were READs, and sends that were announced, are synchronous eager sends now.
	var now []*Request
	for range 50 {
		now = append(now, e.Isend(nil, 1, 1, 2, make([]byte, 10), Synchronous))
		collect(peer, func() *Request {
			n.deliver(1, math.MaxInt)
			r := peer.Irecv(nil, 1, 0, 2, make([]byte, 10))
			n.deliver(0, math.MaxInt)
			return r
		}())
	}
	for _, r := range now {
		collect(e, r)
	}
	n.check(t)

	// None of them may be asked for the payload that it once had.
	r := e.Isend(nil, 1, 1, 2, make([]byte, 10), Synchronous)
	n.devices[0].inbox = append(n.devices[0].inbox, transport.Packet{Peer: 1, Header: wire.Header{Kind: wire.CTS, ID: r.transfer.id, Tag: 1, Addr: 0, Len: 1000}})
	n.work(0)
	if _, _, err := r.Test(); err == nil {
		t.Error("a peer that asks for 1000 bytes of 10 is believed")
	}
}

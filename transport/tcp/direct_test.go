package tcp

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A peer whose socket has no room does not keep from the caller of Poll what another one sends, also if that one's
// socket was the only one that had something, and is not in the set.
func TestBlockedBesidesDirect(t *testing.T) {
	a, b, c := newDevice(t, 0, 3), newDevice(t, 1, 3), newDevice(t, 2, 3)
	defer a.Close()
	defer b.Close()
	defer c.Close()
	connect := func(from, to *Device) transport.Link {
		l, err := from.Connect(context.Background(), to.opt.Rank, to.Address())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	toA, toC := connect(b, a), connect(a, c)
	limit := time.Now().Add(hang)
	pkts := make([]transport.Packet, 4)
	receive := func(tag int32) {
		t.Helper()
		if !toA.TrySend(&wire.Header{Kind: wire.Eager, Tag: tag}, nil) {
			t.Fatal("no room for one packet")
		}
		b.Poll(make([]transport.Packet, 1))
		for {
			for i := range a.Poll(pkts) {
				if p := &pkts[i]; p.Event == transport.Arrived && p.Peer == 1 && p.Header.Tag == tag {
					return
				}
			}
			if time.Now().After(limit) {
				t.Fatalf("packet %d of rank 1 does not come", tag)
			}
		}
	}
	tag := int32(0)
	for ; a.direct.Load() == nil; tag++ {
		receive(tag)
	}
	for toC.TrySend(&wire.Header{Kind: wire.Eager}, make([]byte, 32<<10)) { // rank 2 does not poll
	}
	receive(tag)
}

// Twice as many peers as the set reports at once send without end: each has its turn.
func TestManyFloods(t *testing.T) {
	const peers = 2 * maxEvents
	const burst = 50 // more than the receiver takes of each meanwhile, so that each has always something
	a := newDevice(t, 0, peers+1)
	defer a.Close()
	var links []transport.Link
	var devices []*Device
	for i := range peers {
		d := newDevice(t, i+1, peers+1)
		defer d.Close()
		l, err := d.Connect(context.Background(), 0, a.Address())
		if err != nil {
			t.Fatal(err)
		}
		links, devices = append(links, l), append(devices, d)
	}
	got, payload := make([]int, peers), make([]byte, 1000)
	pkts := make([]transport.Packet, 16)
	limit := time.Now().Add(hang)
	for round := 0; slices.Min(got) < 50; round++ {
		for i, l := range links {
			for range burst {
				l.TrySend(&wire.Header{Kind: wire.Eager}, payload)
			}
			devices[i].Poll(pkts)
		}
		for range 2 * peers {
			for i := range a.Poll(pkts) {
				if p := &pkts[i]; p.Event == transport.Arrived {
					got[p.Peer-1]++
				}
			}
		}
		if round > 1000 && time.Now().After(limit) {
			t.Fatalf("of each peer have come %v packets", got)
		}
	}
}

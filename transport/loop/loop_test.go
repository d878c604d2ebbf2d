package loop

import (
	"context"
	"errors"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

func connect(t *testing.T, from, to *Device) transport.Link {
	t.Helper()
	l, err := from.Connect(context.Background(), to.rank, to.Address())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A device sends to itself and polls in the same goroutine.
func TestSelf(t *testing.T) {
	d := New(1)[0]
	l := connect(t, d, d)
	h := wire.Header{Kind: wire.Eager, Ctx: 1, Tag: 2}
	var pkts [4]transport.Packet
	for i := range 1000 {
		for !l.TrySend(&h, []byte{byte(i)}) {
			t.Fatal("no room in an empty inbox")
		}
		if n := d.Poll(pkts[:]); n != 1 || pkts[0].Header != h || pkts[0].Payload[0] != byte(i) || pkts[0].Peer != 0 {
			t.Fatalf("round %d: polled %d, %+v", i, n, pkts[0])
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := d.Poll(pkts[:]); n != 0 {
		t.Errorf("a closed device polled the report of its own end: %+v", pkts[0])
	}
}

// A link that is not polled takes a bounded amount.
func TestBound(t *testing.T) {
	for _, size := range []int{0, 8, 32 << 10} {
		ds := New(2)
		l := connect(t, ds[0], ds[1])
		h := wire.Header{Kind: wire.Data}
		if size > l.Caps().FragMax {
			t.Fatalf("FragMax is %d", l.Caps().FragMax)
		}
		n := 0
		for ; n < 1000 && l.TrySend(&h, make([]byte, size)); n++ {
		}
		if n != maxPackets {
			t.Errorf("%d-byte packets: the link took %d, want %d", size, n, maxPackets)
		}
	}
}

func pair(*testing.T) transporttest.Pair {
	return pairOf(New(3))
}

func pairOf(ds []*Device) transporttest.Pair {
	return transporttest.Pair{A: ds[0], B: ds[1], Third: func() transport.Device { return ds[2] }}
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, pair, transporttest.Has(transporttest.Get|transporttest.Short|transporttest.Boards),
		transporttest.ChecksKeys())
}

func TestConformanceFaulty(t *testing.T) {
	transporttest.RunFaulty(t, pair, transporttest.Has(transporttest.Get|transporttest.Boards), transporttest.ChecksKeys())
}

func TestConformanceNoGet(t *testing.T) {
	transporttest.Run(t, func(*testing.T) transporttest.Pair {
		return pairOf(NewNoGet(3))
	}, transporttest.Has(transporttest.Short|transporttest.Boards), transporttest.Brief())
}

// A key is for the peer of the link that registered: a third rank cannot read with it.
func TestKeyIsForOnePeer(t *testing.T) {
	ds := New(3)
	mem := []byte("for rank 1")
	addr, key, ok := connect(t, ds[0], ds[1]).Caps().RMA.Register(transport.HostMem(mem), transport.Readable)
	if !ok {
		t.Fatal("Register refused")
	}
	for rank, may := range map[int]bool{1: true, 2: false} {
		dst := make([]byte, len(mem))
		_, err := connect(t, ds[rank], ds[0]).Caps().RMA.Get(transport.HostMem(dst), addr, key, 0)
		if read := err == nil && string(dst) == string(mem); read != may {
			t.Errorf("rank %d read %q, %v, with the key that was registered for rank 1", rank, dst, err)
		}
	}
}

// The end of a device is reported to all its peers, once, and to no other rank.
func TestDownToAllPeers(t *testing.T) {
	ds := New(5)
	connect(t, ds[0], ds[1])
	connect(t, ds[2], ds[0])
	connect(t, ds[3], ds[0])
	connect(t, ds[3], ds[0])
	for range 2 {
		if err := ds[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
	var pkts [4]transport.Packet
	for i, want := range []int{0, 1, 1, 1, 0} {
		n := ds[i].Poll(pkts[:])
		p := &pkts[0]
		down := p.Event == transport.Down && p.Peer == 0 && errors.Is(p.Err, transport.ErrPeerGone)
		if n != want || n == 1 && !down {
			t.Errorf("rank %d polled %d packets, want %d: %+v", i, n, want, pkts[:n])
		}
	}
	if _, err := ds[4].Connect(context.Background(), 0, ds[0].Address()); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Connect to the closed device: %v, want ErrPeerGone", err)
	}
}

// Ranks that send nothing cost next to nothing.
func TestIdleIsCheap(t *testing.T) {
	per := testing.AllocsPerRun(10, func() { New(256) }) / 256
	if per > 10 {
		t.Errorf("New allocates %v times for each rank", per)
	}
}

//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// oneSided are two devices, the second of which has memory that the first reaches.
func oneSided(t *testing.T, bytes int) (d [2]*Device, rma *transport.RMA, mem []byte, addr, key uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for rank := range d {
		d[rank] = newDevice(t, rank, 2)
		t.Cleanup(func() { d[rank].Close() })
	}
	var links [2]transport.Link
	for rank := range links {
		var err error
		if links[rank], err = d[rank].Connect(ctx, 1-rank, d[1-rank].Address()); err != nil {
			t.Fatal(err)
		}
	}
	mem, err := d[1].facts.Memory.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	addr, key = registerFor(t, links[1].(*link), mem, transport.Writable)
	return d, links[0].Caps().RMA, mem, addr, key
}

// event polls both until one of d's packets is of that kind.
func event(t *testing.T, d [2]*Device, rank int, kind transport.Event) transport.Packet {
	t.Helper()
	var pkts [8]transport.Packet
	for end := time.Now().Add(patience); time.Now().Before(end); {
		d[1-rank].Poll(pkts[:0])
		for _, p := range pkts[:d[rank].Poll(pkts[:])] {
			if p.Event == kind {
				return p
			}
		}
	}
	t.Fatalf("no event %d", kind)
	return transport.Packet{}
}

func TestAtomics(t *testing.T) {
	d, rma, mem, addr, key := oneSided(t, 64)
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(mem[8*i:]) }
	binary.NativeEndian.PutUint64(mem[8:], 40)
	for i, step := range []struct {
		try  func(cookie uint64) (transport.State, error)
		old  uint64
		then uint64
	}{
		{func(c uint64) (transport.State, error) { return rma.FetchAdd(2, addr+8, key, c) }, 40, 42},
		{func(c uint64) (transport.State, error) { return rma.FetchAdd(^uint64(0), addr+8, key, c) }, 42, 41},
		{func(c uint64) (transport.State, error) { return rma.CompareSwap(7, 9, addr+8, key, c) }, 41, 41},
		{func(c uint64) (transport.State, error) { return rma.CompareSwap(41, 1<<63, addr+8, key, c) }, 41, 1 << 63},
	} {
		if st, err := step.try(uint64(i + 1)); st != transport.Started || err != nil {
			t.Fatal(st, err)
		}
		p := event(t, d, 0, transport.RMADone)
		if p.Cookie != uint64(i+1) || p.Peer != 1 || p.Value != step.old || p.Err != nil || word(1) != step.then ||
			word(0) != 0 || word(2) != 0 {
			t.Errorf("step %d: %+v, and %d is there; want %d before and %d after", i, p, word(1), step.old, step.then)
		}
	}
	if _, err := rma.FetchAdd(1, addr+4, key, 1); err == nil {
		t.Error("an address that is no multiple of 8 is taken")
	}
	for range 3 * resultCount { // results are used again
		for {
			st, err := rma.FetchAdd(1, addr, key, 1)
			if err != nil {
				t.Fatal(err)
			}
			if st == transport.Started {
				break
			}
			event(t, d, 0, transport.RMADone)
		}
	}
	for end := time.Now().Add(patience); word(0) != 3*resultCount ||
		d[0].inFlight > 0; d[0].Poll(make([]transport.Packet, 8)) {
		if time.Now().After(end) {
			t.Fatalf("%d additions are there of %d", word(0), 3*resultCount)
		}
	}
	if len(d[0].results.free) != resultCount {
		t.Errorf("%d of %d places for results are free", len(d[0].results.free), resultCount)
	}
}

// A device reaches its own rank's memory, and tells no peer of it. If that way fails, its operations do.
func TestOwnRMA(t *testing.T) {
	d := newDevice(t, 0, 1)
	defer d.Close()
	rma := d.facts.OwnRMA()
	if rma == nil || rma != d.facts.OwnRMA() {
		t.Fatal("there is no way to the rank's own memory, or several")
	}
	mem, err := d.facts.Memory.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	addr, key, ok := rma.Register(transport.HostMem(mem), transport.Writable)
	if !ok {
		t.Fatal("not registered")
	}
	done := func(cookie uint64) (p transport.Packet) {
		var pkts [8]transport.Packet
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if n := d.Poll(pkts[:]); n > 0 {
				if n > 1 || pkts[0].Event != transport.RMADone || pkts[0].Peer != 0 || pkts[0].Cookie != cookie {
					t.Fatalf("%d packets, the first of which is %+v", n, pkts[0])
				}
				return pkts[0]
			}
		}
		t.Fatal("no packet")
		return p
	}
	for i := range uint64(3) {
		if st, err := rma.FetchAdd(5, addr, key, i); st != transport.Started || err != nil {
			t.Fatal(st, err)
		}
		if p := done(i); p.Value != 5*i || p.Err != nil {
			t.Errorf("%+v", p)
		}
	}
	rma.Deregister(addr, key)
	if _, err := rma.FetchAdd(5, addr, key+1, 7); err != nil {
		t.Fatal(err)
	}
	if p := done(7); p.Err == nil {
		t.Error("a key that there is not is taken")
	}
	for range 1000 {
		if n := d.Poll(make([]transport.Packet, 1)); n > 0 {
			t.Fatal("the end is told as the end of a peer")
		}
	}
	if _, err := rma.FetchAdd(5, addr, key, 8); err == nil {
		t.Error("no error")
	}
}

// A note comes when all that was written before it is there.
func TestPutNote(t *testing.T) {
	const long = pieceMax + 12345
	d, rma, mem, addr, key := oneSided(t, long)
	for i, n := range []int{0, 1, 100_000, long} {
		clear(mem)
		src := pattern(n, uint64(i))
		note := uint32(0xfeed0000) + uint32(i)
		if st, err := rma.PutNote(transport.HostMem(src), addr, key, note, uint64(i)); st != transport.Started || err != nil {
			t.Fatal(st, err)
		}
		if p := event(t, d, 0, transport.RMADone); p.Cookie != uint64(i) || p.Peer != 1 || p.Err != nil {
			t.Errorf("%d bytes: %+v", n, p)
		}
		p := event(t, d, 1, transport.Noted)
		if p.Value != uint64(note) || p.Peer != 0 || !bytes.Equal(mem[:n], src) {
			t.Errorf("%d bytes: %+v, and the memory is right: %v", n, p, bytes.Equal(mem[:n], src))
		}
	}
}

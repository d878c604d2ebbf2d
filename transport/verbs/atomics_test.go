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
func oneSided(t *testing.T, bytes int) (d [2]*Device, l transport.Atomics, mem []byte, addr, key uint64) {
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
	mem, err := d[1].Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	addr, key, ok := links[1].(transport.Getter).Register(mem)
	if !ok {
		t.Fatal("not registered")
	}
	return d, links[0].(transport.Atomics), mem, addr, key
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
	d, l, mem, addr, key := oneSided(t, 64)
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(mem[8*i:]) }
	binary.NativeEndian.PutUint64(mem[8:], 40)
	for i, step := range []struct {
		try  func(cookie uint64) (transport.GetState, error)
		old  uint64
		then uint64
	}{
		{func(c uint64) (transport.GetState, error) { return l.TryFetchAdd(2, addr+8, key, c) }, 40, 42},
		{func(c uint64) (transport.GetState, error) { return l.TryFetchAdd(^uint64(0), addr+8, key, c) }, 42, 41},
		{func(c uint64) (transport.GetState, error) { return l.TryCompareSwap(7, 9, addr+8, key, c) }, 41, 41},
		{func(c uint64) (transport.GetState, error) { return l.TryCompareSwap(41, 1<<63, addr+8, key, c) }, 41, 1 << 63},
	} {
		if st, err := step.try(uint64(i + 1)); st != transport.GetStarted || err != nil {
			t.Fatal(st, err)
		}
		p := event(t, d, 0, transport.Got)
		if p.Header.ID != uint64(i+1) || p.Header.Key != step.old || p.Err != nil || word(1) != step.then || word(0) != 0 || word(2) != 0 {
			t.Errorf("step %d: %+v, and %d is there; want %d before and %d after", i, p, word(1), step.old, step.then)
		}
	}
	if _, err := l.TryFetchAdd(1, addr+4, key, 1); err == nil {
		t.Error("an address that is no multiple of 8 is taken")
	}
	for range 3 * wordCount { // words are used again
		for {
			st, err := l.TryFetchAdd(1, addr, key, 1)
			if err != nil {
				t.Fatal(err)
			}
			if st == transport.GetStarted {
				break
			}
			event(t, d, 0, transport.Got)
		}
	}
	for end := time.Now().Add(patience); word(0) != 3*wordCount || d[0].inFlight > 0; d[0].Poll(make([]transport.Packet, 8)) {
		if time.Now().After(end) {
			t.Fatalf("%d additions are there of %d", word(0), 3*wordCount)
		}
	}
	if len(d[0].words.free) != wordCount {
		t.Errorf("%d of %d words are free", len(d[0].words.free), wordCount)
	}
}

// A note comes when all that was written before it is there.
func TestPutNote(t *testing.T) {
	const long = getPiece + 12345
	d, l, mem, addr, key := oneSided(t, long)
	for i, n := range []int{0, 1, 100_000, long} {
		clear(mem)
		src := pattern(n, uint64(i))
		note := uint32(0xfeed0000) + uint32(i)
		if st, err := l.TryPutNote(src, addr, key, note, uint64(i)); st != transport.GetStarted || err != nil {
			t.Fatal(st, err)
		}
		p := event(t, d, 1, transport.Noted)
		if p.Header.Ctx != note || p.Peer != 0 || !bytes.Equal(mem[:n], src) {
			t.Errorf("%d bytes: %+v, and the memory is right: %v", n, p, bytes.Equal(mem[:n], src))
		}
		if p := event(t, d, 0, transport.Got); p.Header.ID != uint64(i) || p.Err != nil {
			t.Errorf("%d bytes: %+v", n, p)
		}
	}
}

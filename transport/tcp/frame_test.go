package tcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A header of any kind, with any fields and length, comes back as it was.
func TestHead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		h := wire.Header{Kind: wire.Kind(1 + rng.IntN(12)), Flags: uint8(rng.Uint32()), Ctx: rng.Uint32(),
			Tag: int32(rng.Uint32() >> 1)}
		if !h.Kind.Short() {
			h.ID, h.Len, h.Addr, h.Key = rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64()
		}
		length := rng.IntN(fragMax + 1)
		var b [wire.LongSize]byte
		n := putHead(b[:], &h, length)
		for k := range n {
			if got, _, err := head(b[:k], new(wire.Header)); got != 0 || err != nil {
				t.Fatalf("%d of %d bytes of %+v: %d, %v; more are needed", k, n, h, got, err)
			}
		}
		var back wire.Header
		got, size, err := head(b[:], &back)
		if got != n || size != length || err != nil || back != h {
			t.Fatalf("%+v with %d bytes came back as %+v with %d: %v", h, length, back, size, err)
		}
	}
}

// The error names what cannot be.
func TestHeadRefuses(t *testing.T) {
	frame := func(change func(b []byte)) []byte {
		var b [wire.LongSize]byte
		putHead(b[:], &wire.Header{Kind: wire.RTS, Tag: 7}, 0)
		change(b[:])
		return b[:]
	}
	for what, b := range map[string][]byte{
		"kind 0":              frame(func(b []byte) { b[0] = 0 }),
		"a kind there is not": frame(func(b []byte) { b[0] = 99 }),
		"reserved bits":       frame(func(b []byte) { b[2] = 1 }),
		"a negative tag":      frame(func(b []byte) { b[11] = 0x80 }),
		"too long":            frame(func(b []byte) { binary.LittleEndian.PutUint32(b[lengthAt:], fragMax+1) }),
		"4 GiB":               frame(func(b []byte) { binary.LittleEndian.PutUint32(b[lengthAt:], 1<<32-1) }),
		"too long for data": frame(func(b []byte) {
			b[0] = byte(wire.Data)
			binary.LittleEndian.PutUint32(b[lengthAt:], lendMax+1)
		}),
	} {
		if _, _, err := head(b, new(wire.Header)); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// modelEvent is what a stream of frames means, one frame at a time and with all bytes at hand.
type modelEvent struct {
	header  wire.Header
	payload string
	size    int // of what is placed; its contents are compared at the end, since later ones may be written over it
	placed  bool
}

// modelOf reads a whole stream slowly. over: nothing is read any more, because of goodbye or nonsense.
func modelOf(b []byte, places []placement) (events []modelEvent, over bool) {
	for {
		if len(b) >= wire.ShortSize && b[0] == byeKind {
			return events, true
		}
		var h wire.Header
		n, size, err := head(b, &h)
		if err != nil {
			return events, true
		}
		if n == 0 {
			return events, false
		}
		body := b[n:min(len(b), n+size)]
		placed := false
		for _, p := range places {
			if h.Kind == wire.Data && p.key == h.Key && p.gen == h.Tag && size > 0 && h.Addr >= uint64(p.from) &&
				h.Addr <= uint64(len(p.dst)) && uint64(size) <= uint64(len(p.dst))-h.Addr {
				placed = true
				copy(p.dst[h.Addr:], body)
			}
		}
		switch {
		case placed:
			if len(body) > 0 { // as far as it goes
				events = append(events, modelEvent{header: h, size: len(body), placed: true})
			}
		case size > fragMax:
		case len(body) == size:
			events = append(events, modelEvent{header: h, payload: string(body)})
		}
		if len(body) < size {
			return events, false
		}
		b = b[n+size:]
	}
}

// feed gives a stream to a connection in parts, as a socket would, and returns what it hands out.
func feed(t *testing.T, stream []byte, cut func(left int) int, slots int, places []placement) (
	events []modelEvent, over bool) {
	d := &Device{}
	d.inUse.Store(new([]slot))
	s := &session{d: d, peer: 1, places: places}
	c := &conn{s: s}
	pkts := make([]transport.Packet, slots)
	take := func(n int) {
		for _, p := range pkts[:n] {
			switch p.Event {
			case transport.Placed:
				events = append(events, modelEvent{header: p.Header, size: int(p.Header.Len), placed: true})
			case transport.Arrived:
				events = append(events, modelEvent{header: p.Header, payload: string(p.Payload)})
			default:
				t.Fatalf("event %d", p.Event)
			}
		}
	}
	for len(stream) > 0 && c.over == nil {
		d.polls++
		for i := range pkts { // what the last poll returned is not in use any more
			pkts[i] = transport.Packet{}
		}
		if len(d.ready) > 0 {
			take(d.handOut(pkts))
			continue
		}
		if len(c.into) > 0 && c.received() == 0 {
			n := copy(c.into, stream[:min(len(stream), cut(len(stream)))])
			stream = stream[n:]
			pkts[0] = c.placed(n)
			take(1)
			continue
		}
		room := c.room(d)
		if len(room) == 0 {
			t.Fatal("there is no room to read into")
		}
		if cap(c.buf) > fragMax+readBuffer {
			t.Fatalf("the buffer has %d bytes", cap(c.buf))
		}
		n := copy(room, stream[:min(len(stream), cut(len(stream)))])
		stream = stream[n:]
		c.w += n
		take(c.parse(d, pkts))
	}
	for len(d.ready) > 0 {
		d.polls++
		take(d.handOut(pkts))
	}
	return events, c.over != nil
}

// same compares, with pieces of one fragment put together.
func same(t *testing.T, got, want []modelEvent, places, model []placement) {
	t.Helper()
	for i := range places {
		if !bytes.Equal(places[i].dst, model[i].dst) {
			t.Fatalf("what was placed for key %d differs", places[i].key)
		}
	}
	whole := got[:0]
	for _, g := range got {
		if last := len(whole) - 1; last >= 0 && g.placed && whole[last].placed &&
			last < len(want) && whole[last].size < want[last].size {
			if g.header.Addr != whole[last].header.Addr+uint64(whole[last].size) {
				t.Fatalf("event %d: after %d bytes at %d came %+v",
					last, whole[last].size, whole[last].header.Addr, g.header)
			}
			whole[last].size += g.size
			continue
		}
		whole = append(whole, g)
	}
	if len(whole) != len(want) {
		t.Fatalf("%d events came, want %d", len(whole), len(want))
	}
	for i, g := range whole {
		if g.placed {
			g.header.Len = want[i].header.Len // in a piece it is the piece's
		}
		if g != want[i] {
			t.Fatalf("event %d: %v, want %v", i, g, want[i])
		}
	}
}

func testPlaces() []placement {
	return []placement{{key: 1, gen: 1, dst: make([]byte, 1000), from: 0},
		{key: 2, gen: 1, dst: make([]byte, 300_000), from: 100}}
}

// Random streams of all kinds of frames, in random parts, with one or many slots to a poll.
func TestFrames(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 10
	}
	noise := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		var stream []byte
		for range 1 + rng.IntN(60) {
			h := wire.Header{Kind: wire.Kind(1 + rng.IntN(12)), Tag: int32(rng.IntN(3))}
			size := rng.IntN(200)
			switch rng.IntN(8) {
			case 0:
				size = rng.IntN(fragMax + 1)
			case 1, 2, 3:
				h.Kind, h.Key, h.Addr, h.Tag = wire.Data, 1+rng.Uint64N(3), rng.Uint64N(900), 1
			case 4:
				h.Kind, h.Key, h.Addr, h.Tag = wire.Data, 2, 100+rng.Uint64N(1000), 1
				size = rng.IntN(298_000)
			}
			var b [wire.LongSize]byte
			stream = append(stream, b[:putHead(b[:], &h, size)]...)
			stream = append(stream, noise[rng.IntN(len(noise)-size):][:size]...)
		}
		places, model := testPlaces(), testPlaces()
		want, _ := modelOf(stream, model)
		most := 16 << rng.IntN(16)
		got, _ := feed(t, stream, func(int) int { return 1 + rng.IntN(most) }, 1+rng.IntN(16), places)
		same(t, got, want, places, model)
		if t.Failed() {
			t.Fatal("seed ", seed)
		}
	}
}

// Anything that an authenticated peer sends: the same as the model, and never more memory than a frame.
func FuzzFrames(f *testing.F) {
	var b [wire.LongSize]byte
	n := putHead(b[:], &wire.Header{Kind: wire.Eager, Tag: 3}, 5)
	f.Add(append(bytes.Clone(b[:n]), "hello"...), uint8(7), uint8(2))
	n = putHead(b[:], &wire.Header{Kind: wire.Data, Key: 1, Tag: 1, Addr: 10}, 20)
	f.Add(append(bytes.Clone(b[:n]), make([]byte, 30)...), uint8(1), uint8(1))
	n = putHead(b[:], &wire.Header{Kind: wire.Data, Key: 9, Tag: 1}, lendMax)
	f.Add(append(bytes.Clone(b[:n]), make([]byte, 300)...), uint8(255), uint8(16))
	f.Add(bye[:], uint8(16), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, part, slots uint8) {
		places, model := testPlaces(), testPlaces()
		want, over := modelOf(stream, model)
		got, ended := feed(t, stream, func(int) int { return 1 + int(part) }, 1+int(slots%16), places)
		if over != ended {
			t.Fatalf("over: %v, want %v", ended, over)
		}
		if len(want) > 0 || len(got) > 0 {
			same(t, got, want, places, model)
		}
	})
}

func (e modelEvent) String() string {
	return fmt.Sprintf("%+v, %d bytes, placed %v (%d bytes)", e.header, len(e.payload), e.placed, e.size)
}

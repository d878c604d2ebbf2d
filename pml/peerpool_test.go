package pml

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/memfile"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// payloadCount is a device that counts the bytes of messages that its links take in fragments.
type payloadCount struct {
	transport.Device
	bytes *atomic.Int64
}

type payloadLink struct {
	transport.Link
	bytes *atomic.Int64
}

func (p payloadCount) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := p.Device.Connect(ctx, peer, address)
	return payloadLink{l, p.bytes}, err
}

func (l payloadLink) TrySend(h *wire.Header, payload []byte) bool {
	if !l.Link.TrySend(h, payload) {
		return false
	}
	if h.Kind == wire.Data {
		l.bytes.Add(int64(len(payload)))
	}
	return true
}

// newCountedRanks are two ranks whose device memory cannot be shared, and the bytes that go through their links.
func newCountedRanks(t testing.TB, o acceltest.Options) (*deviceRanks, *atomic.Int64) {
	o.NotShared = true
	n := new(atomic.Int64)
	return newDeviceRanksOver(t, 2, o, false, func(d transport.Device) transport.Device { return payloadCount{d, n} }), n
}

// holdCopies has the copies of rank 0 that are started from now on wait, until it is released.
func (d *deviceRanks) holdCopies() *acceltest.Stream {
	d.t.Helper()
	s := d.procs[0].Copies(0)
	s.Hold()
	return s
}

// until waits for what the progress of a rank brings.
func (d *deviceRanks) until(rank int, what string, is func() bool) {
	d.t.Helper()
	for limit := time.Now().Add(hangs / 4); ; time.Sleep(100 * time.Microsecond) {
		d.e[rank].lock()
		ok := is()
		d.e[rank].unlock()
		if ok {
			return
		}
		if time.Now().After(limit) {
			d.t.Fatal(what)
		}
	}
}

// parts is how many parts rank 1's receives from rank 0 have asked for and not got.
func (d *deviceRanks) parts() (n int) {
	for t := range d.e[1].links.transfers.values() {
		if o := t.r.device(); o != nil && t.recv {
			n += len(o.parts)
		}
	}
	return n
}

// Of a message from or to device memory no byte goes through the link between two ranks of a host: the sender puts it
// into its receiver's pinned memory. But a short one from device memory to the host does.
func TestDevicePoolNothingCrosses(t *testing.T) {
	for _, delay := range []time.Duration{0, 200 * time.Microsecond} {
		d, crossed := newCountedRanks(t, acceltest.Options{Delay: delay})
		for i, size := range []int64{1, 513, 8193, 16 << 10, 16<<10 + 1, 3*16<<10 + 7, 100_000} {
			for kind := range 4 {
				if kind > 0 && size <= 8<<10 {
					continue // it is eager, or short
				}
				from, want := d.buffer(0, i&1, size)
				to, _ := d.buffer(1, 0, size)
				host := make([]byte, size)
				var r, s *Request
				if kind == 3 {
					r = d.e[1].Irecv(nil, 0, 0, 3, host)
				} else {
					r = d.e[1].IrecvDevice(nil, 0, 0, 3, to)
				}
				switch kind {
				case 0, 3:
					s = d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
				case 1:
					s = d.e[0].Isend(nil, 0, 1, 3, want, Standard)
				case 2:
					apart := &spread{mem: make([]byte, 2*size)}
					for i, b := range want {
						apart.mem[2*i] = b
					}
					if s = d.e[0].IsendPieces(nil, 0, 1, 3, size, apart); s == nil {
						t.Fatal("it is not sent in pieces")
					}
				}
				d.waitAll(r, s)
				got := host
				if kind < 3 {
					got = d.read(1, to)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("%d bytes, kind %d: other bytes", size, kind)
				}
				if n := crossed.Load(); n > 0 {
					t.Fatalf("%d bytes, kind %d: %d bytes went through the link", size, kind, n)
				}
			}
		}
		d.left()
	}
}

// A rank that has no device memory receives messages from such, into one persistent request. Later it has device memory
// itself, and sends it.
func TestDeviceHostFirst(t *testing.T) {
	d, crossed := newCountedRanks(t, acceltest.Options{})
	const size = 50_000
	host := make([]byte, size)
	r := d.e[1].PrepareRecv(nil, 0, 0, 3, host)
	for i := range 6 {
		if i == 3 {
			if n := d.procs[1].Calls("Pin"); n != 0 {
				t.Errorf("a rank without device memory has pinned memory %d times", n)
			}
			from, want := d.buffer(1, 0, size)
			to, _ := d.buffer(0, 1, size)
			q, s := d.e[0].IrecvDevice(nil, 0, 1, 3, to), d.e[1].IsendDevice(nil, 0, 0, 3, from, Standard)
			d.waitAll(q, s)
			if !bytes.Equal(d.read(0, to), want) {
				t.Error("other bytes from the rank that had no device memory")
			}
		}
		from, want := d.buffer(0, 0, size)
		s := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
		if i == 4 { // from the host
			if err := s.Cancel(); err != nil {
				t.Fatal(err)
			}
			d.wait(s)
			s = d.e[0].Isend(nil, 0, 1, 3, want, Standard)
		}
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		d.waitAll(r, s)
		if !bytes.Equal(host, want) {
			t.Fatalf("message %d: other bytes", i)
		}
	}
	if n := crossed.Load(); n > 0 {
		t.Errorf("%d bytes went through the link", n)
	}
	d.left()
}

// A message from device memory that is received in pieces comes as a stream.
func TestDeviceToPieces(t *testing.T) {
	d, _ := newCountedRanks(t, acceltest.Options{})
	const size = 50_000
	for range 3 {
		from, want := d.buffer(0, 0, size)
		to := &spread{mem: make([]byte, 2*size), upTo: size}
		r := d.e[1].IrecvPieces(nil, 0, 0, 3, make([]byte, size), to)
		s := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
		d.waitAll(r, s)
		for i, b := range want {
			if to.mem[2*i] != b {
				t.Fatal("other bytes")
			}
		}
	}
	d.left()
}

// A sender that asks to be asked for parts of a message that is under way, or that comes in parts, is given up.
func TestHostileAskParts(t *testing.T) {
	for _, when := range []string{"under way", "in parts"} {
		v := newDeviceVictim(t, netOptions{noGet: true})
		v.net.linkAll()
		r := v.e.Irecv(nil, 0, 1, 3, make([]byte, 5000))
		v.gets(wire.Header{Kind: wire.RTS, ID: 7, Tag: 3, Len: 5000})
		id := v.number()
		if when == "under way" {
			v.getsWith(wire.Header{Kind: wire.Data, Key: id, Tag: 1}, make([]byte, 100))
		} else {
			v.gets(wire.Header{Kind: wire.AskParts, Key: id})
			for asked := false; !asked; time.Sleep(100 * time.Microsecond) {
				v.e.lock()
				asked = r.pieces != nil
				v.e.unlock()
			}
		}
		if err := v.failed(); err != nil {
			t.Fatal(err)
		}
		v.gets(wire.Header{Kind: wire.AskParts, Key: id})
		if v.failed() == nil {
			t.Errorf("%s: it goes on", when)
		}
		if _, err := r.Wait(); err == nil {
			t.Errorf("%s: it has been received", when)
		}
		v.net.close()
	}
}

// A receive asks for the next part of a message before the first is here.
func TestDeviceAsksAhead(t *testing.T) {
	d, _ := newCountedRanks(t, acceltest.Options{})
	from, want := d.buffer(0, 0, 100_000)
	to, _ := d.buffer(1, 0, 100_000)
	stream := d.holdCopies()
	defer stream.Release()
	r, s := d.e[1].IrecvDevice(nil, 0, 0, 3, to), d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
	d.until(1, "it has not asked for two parts", func() bool { return d.parts() == 2 })
	stream.Release()
	d.waitAll(r, s)
	if !bytes.Equal(d.read(1, to), want) {
		t.Fatal("other bytes")
	}
	d.left()
}

// Messages to memory of the host take none of the receiver's pinned memory while their streams stand still: another
// message goes on, though there are more of them than pieces.
func TestDeviceStreamsApartFromHost(t *testing.T) {
	d, _ := newCountedRanks(t, acceltest.Options{})
	const size, n = 50_000, 10
	stream := d.procs[0].Stream(0)
	stream.Hold()
	var all []*Request
	var got, want [n][]byte
	for i := range n {
		var from accel.Buffer
		from, want[i] = d.buffer(0, 0, size)
		from.Ordered, from.Stream = true, stream.Handle()
		got[i] = make([]byte, size)
		all = append(all, d.e[1].Irecv(nil, 0, 0, int32(i), got[i]),
			d.e[0].IsendDevice(nil, 0, 1, int32(i), from, Standard))
	}
	d.waiting(0, n)
	from, other := d.buffer(0, 0, size)
	host := make([]byte, size)
	r, s := d.e[1].Irecv(nil, 0, 0, 90, host), d.e[0].IsendDevice(nil, 0, 1, 90, from, Standard)
	d.goesOn(r, "a message waits for the stream of another")
	d.wait(s)
	d.wait(r)
	if !bytes.Equal(host, other) {
		t.Error("other bytes")
	}
	stream.Release()
	d.waitAll(all...)
	for i := range n {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("message %d is another", i)
		}
	}
	d.left()
}

// A copy of a peer that has been given up may end long after that. It touches no message of another.
func TestDevicePoolLateCopy(t *testing.T) {
	const size = 30_000 // two parts
	d := newDeviceRanks(t, 3, acceltest.Options{NotShared: true})
	streams := [2]*acceltest.Stream{d.holdCopies(), d.procs[1].Copies(0)}
	streams[1].Hold()
	for _, s := range streams {
		defer s.Release()
	}
	late, _ := d.buffer(0, 0, size)
	to, _ := d.buffer(1, 1, size)
	r, s := d.e[1].IrecvDevice(nil, 0, 0, 3, to), d.e[0].IsendDevice(nil, 0, 1, 3, late, Standard)
	d.until(1, "it does not ask", func() bool { return d.parts() == 2 })
	d.until(0, "its copies are not started", func() bool {
		a := d.e[0].links.transfers.accel
		return a != nil && len(a.under) == 2
	})
	d.e[1].lock()
	d.e[1].links.peers[0].breaks("the test says so")
	d.e[1].exitCall()
	d.e[1].unlock()
	if _, err := d.wait(r); err == nil {
		t.Error("a message of a peer that is given up has come")
	}
	from, want := d.buffer(2, 0, size)
	to, _ = d.buffer(1, 0, size)
	r = d.e[1].IrecvDevice(nil, 0, 2, 3, to)
	s2 := d.e[2].IsendDevice(nil, 0, 1, 3, from, Standard)
	d.until(1, "the other message does not come", func() bool { return len(d.e[1].links.transfers.accel.under) == 2 })
	streams[0].Release()
	d.wait(s)
	streams[1].Release()
	d.waitAll(r, s2)
	if !bytes.Equal(d.read(1, to), want) {
		t.Error("the late copy has gone into another message")
	}
	d.left()
}

// Where the sender's driver cannot pin its receiver's memory, messages go through the link.
func TestDevicePoolCannotBeUsed(t *testing.T) {
	for _, pins := range []bool{true, false} {
		d, crossed := newCountedRanks(t, acceltest.Options{})
		if !pins {
			d.procs[0].Fail("Pin", 2) // the first is of its own memory
		}
		total := int64(0)
		for range 5 {
			const size = 50_000
			from, want := d.buffer(0, 0, size)
			to, _ := d.buffer(1, 0, size)
			r := d.e[1].IrecvDevice(nil, 0, 0, 3, to)
			s := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
			d.waitAll(r, s)
			if total += size; !bytes.Equal(d.read(1, to), want) {
				t.Fatal("other bytes")
			}
		}
		if n := crossed.Load(); pins && n != 0 || !pins && n != total {
			t.Errorf("pinned %v: %d bytes of %d went through the link", pins, n, total)
		}
		d.left()
	}
}

// A persistent send from memory of the host goes to device memory, and to a host's, at each start.
func TestDevicePoolPersistentSend(t *testing.T) {
	d, _ := newCountedRanks(t, acceltest.Options{})
	const size = 40_000
	buf := make([]byte, size)
	s := d.e[0].PrepareSend(nil, 0, 1, 3, buf, Standard)
	to, _ := d.buffer(1, 0, size)
	host := make([]byte, size)
	for i := range 6 {
		want := d.bytes(size)
		copy(buf, want)
		var r *Request
		if i%2 == 0 {
			r = d.e[1].IrecvDevice(nil, 0, 0, 3, to)
		} else {
			r = d.e[1].Irecv(nil, 0, 0, 3, host)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		d.waitAll(r, s)
		got := host
		if i%2 == 0 {
			got = d.read(1, to)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("start %d: other bytes", i)
		}
	}
	d.left()
}

// A peer that names memory which is not its to name, or asks twice, is given up, and nothing is copied there. One whose
// memory cannot be mapped gets its message through the link.
func TestHostilePool(t *testing.T) {
	pool, err := memfile.Create(60_000, 50_000)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	handle := pool.Handle()
	const size = 40_000
	ask := func(ctx uint32, off, n uint64) wire.Header {
		return wire.Header{Kind: wire.Ask, Key: 1, Tag: 1, Ctx: ctx, Addr: off, Len: n}
	}
	for _, c := range []struct {
		what  string
		asks  []wire.Header
		with  [][]byte // their payloads
		fails bool
		data  bool // the message goes through the link
	}{
		{"what is right", []wire.Header{ask(1, 0, 20_000), ask(20_001, 20_000, 20_000)}, [][]byte{handle, nil}, false,
			false},
		{"no memory", []wire.Header{ask(1, 0, 20_000)}, [][]byte{nil}, true, false},
		{"no handle", []wire.Header{ask(1, 0, 20_000)}, [][]byte{[]byte("what is this?")}, false, true},
		{"beyond the end", []wire.Header{ask(30_002, 0, 20_000)}, [][]byte{handle}, true, false},
		{"far beyond", []wire.Header{ask(1<<32-1, 0, 1)}, [][]byte{handle}, true, false},
		{"shared twice", []wire.Header{ask(1, 0, 100), ask(1, 100, 100)}, [][]byte{handle, handle}, true, false},
		{"asked twice", []wire.Header{ask(1, 0, 100), ask(1, 0, 100)}, [][]byte{handle, nil}, true, false},
		{"a gap", []wire.Header{ask(1, 0, 100), ask(1, 200, 100)}, [][]byte{handle, nil}, true, false},
		{"past the message", []wire.Header{ask(1, 0, 20_000), ask(1, 20_000, 20_001)}, [][]byte{handle, nil}, true, false},
	} {
		for device := range 2 {
			v := newDeviceVictim(t, netOptions{noGet: true})
			v.net.linkAll()
			m := v.alloc(size)
			what := fmt.Sprintf("%s, device %d", c.what, device)
			var s *Request
			want := randomBytes(5, size)
			v.p.Write(m.Base, want)
			hold := v.p.Stream(0)
			hold.Hold() // until all has been asked for
			if device == 1 {
				s = v.e.IsendDevice(nil, 0, 1, 3, accel.Buffer{Driver: v.p, Memory: m, Addr: m.Base, Len: size, Ordered: true,
					Stream: hold.Handle()}, Standard)
			} else {
				s = v.e.Isend(nil, 0, 1, 3, want, Standard)
			}
			v.net.work(0)
			id := v.number()
			v.net.rooms[[2]int{0, 1}] = len(v.net.wires[[2]int{0, 1}]) // and so is a buffer of the host kept
			clear(pool.Bytes())
			for i, h := range c.asks {
				h.ID = id
				v.getsWith(h, c.with[i])
			}
			if err := v.failed(); (err != nil) != c.fails {
				t.Errorf("%s: %v", what, err)
			}
			time.Sleep(time.Millisecond)
			if v.net.work(0); v.p.Calls("Copy") > 0 {
				t.Errorf("%s: a copy was ahead of the stream", what)
			}
			hold.Release()
			delete(v.net.rooms, [2]int{0, 1})
			v.net.devices[0].tellRoom()
			filled, data := uint64(0), 0
			for limit := time.Now().Add(hangs / 8); !c.fails && time.Now().Before(limit); time.Sleep(100 * time.Microsecond) {
				v.net.work(0)
				filled, data = 0, 0
				for _, p := range v.net.wires[[2]int{0, 1}] {
					if p.Header.Kind == wire.Filled {
						filled += p.Header.Len
					}
					if p.Header.Kind == wire.Data {
						data += len(p.Payload)
					}
				}
				if filled == size || data == int(c.asks[0].Len) {
					break
				}
			}
			if !c.fails && !c.data && (filled != size || data != 0 || !bytes.Equal(pool.Bytes()[:size], want)) {
				t.Errorf("%s: %d bytes are said to be there, %d have been sent", what, filled, data)
			}
			if c.data && data != int(c.asks[0].Len) {
				t.Errorf("%s: %d bytes have been sent", what, data)
			}
			v.net.close()
			s.Wait()
			v.free(m)
		}
	}
}

// A peer that says that a message is where it was not asked to put it is given up.
func TestHostileFills(t *testing.T) {
	for what, h := range map[string]wire.Header{
		"more than was asked for": {Tag: 1, Len: 40_001},
		"nothing":                 {Tag: 1},
		"a negative length":       {Tag: 1, Len: 1 << 63},
		"a gap":                   {Tag: 1, Addr: 1, Len: 10},
	} {
		for device := range 2 {
			h := h
			v := newDeviceVictim(t, netOptions{noGet: true})
			v.net.linkAll()
			m := v.alloc(40_000)
			var r *Request
			if device == 1 {
				r = v.e.IrecvDevice(nil, 0, 1, 3, accel.Buffer{Driver: v.p, Memory: m, Addr: m.Base, Len: 40_000})
			} else {
				r = v.e.Irecv(nil, 0, 1, 3, make([]byte, 40_000))
				h.Addr, h.Len = 0, 10 // what would be right of a stream
			}
			v.gets(wire.Header{Kind: wire.RTS, ID: 7, Tag: 3, Len: 40_000})
			h.Kind, h.Key = wire.Filled, v.number()
			v.gets(h)
			if v.failed() == nil {
				t.Errorf("%s, device %d: it goes on", what, device)
			}
			if _, err := r.Wait(); err == nil {
				t.Errorf("%s, device %d: it has been received", what, device)
			}
			v.net.close()
			v.free(m)
		}
	}
}

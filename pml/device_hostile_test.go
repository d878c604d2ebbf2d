package pml

import (
	"bytes"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/memfile"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// FuzzDeviceHostile checks that whatever a peer sends about messages in device memory, and whenever, nothing is copied
// but into the buffers of receives under way, each request ends, and nothing is left of what the peer had opened.
func FuzzDeviceHostile(f *testing.F) {
	for seed := uint64(0); seed < 120; seed += inShort[uint64](1, 4) {
		f.Add(randomBytes(seed, 100+int(seed)*4))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := &deviceAttack{fuzzInput: fuzzInput{data[:min(len(data), 2000)]}}
		h.run(t)
	})
}

type deviceAttack struct {
	fuzzInput
	*deviceVictim
	m        accel.Memory    // of the victim
	handle   []byte          // of memory of the attacker
	pool     *memfile.Memory // the attacker's
	size     int64
	requests []*Request
	used     int64      // from here on the victim's memory is in no buffer
	outside  [][2]int64 // nor here
}

const attacked = 3 << 20

// anyNumber is perhaps one of a transfer or of memory that is shared.
func (h *deviceAttack) anyNumber() uint64 {
	switch h.upTo(4) {
	case 0:
		return uint64(h.upTo(5))
	case 1:
		return 1<<32 | uint64(1+h.upTo(5))
	}
	var ids []uint64
	h.e.lock()
	for t := range h.e.links.transfers.values() {
		ids = append(ids, t.id)
	}
	for _, p := range h.e.links.peers {
		if p != nil && p.shares != nil {
			for _, l := range p.shares.lent {
				ids = append(ids, l.number)
			}
		}
	}
	h.e.unlock()
	if len(ids) == 0 {
		return 7
	}
	return ids[h.upTo(len(ids))]
}

func (h *deviceAttack) length() uint64 {
	return [...]uint64{0, 1, 300, 5000, 40_000, uint64(h.size), uint64(h.size) + 1, math.MaxUint64, math.MaxInt64, 1 << 40,
		16 << 10, 512, math.MaxInt64 + 1}[h.upTo(13)]
}

// buffer is the next n bytes of the victim's memory.
func (h *deviceAttack) buffer(n int64) accel.Buffer {
	b := accel.Buffer{Driver: h.p, Memory: h.m, Addr: h.m.Base + uint64(h.used), Len: n}
	h.outside = append(h.outside, [2]int64{h.used + n, h.used + n + 64})
	h.used += n + 64
	return b
}

func (h *deviceAttack) run(t *testing.T) {
	h.deviceVictim = newDeviceVictimOn(t, netOptions{put: true, lends: h.upTo(3) == 0}, acceltest.Options{Adapters: true})
	attacker := h.machine.Process()
	theirs, err := attacker.Alloc(0, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	h.size = theirs.Size
	if h.handle, _, err = attacker.Export(theirs); err != nil {
		t.Fatal(err)
	}
	if h.pool, err = memfile.Create(50_000, 40_000); err != nil {
		t.Fatal(err)
	}
	defer h.pool.Close()
	h.m = h.alloc(attacked)
	before := randomBytes(1, attacked)
	h.p.Write(h.m.Base, before)
	n := h.net
	adapters := h.upTo(2) == 0
	for _, d := range n.devices {
		if d.caps.SameHost = !adapters; adapters {
			d.gpus = h.gpus()
		}
	}
	n.linkAll()
	send := h.peerSends
	last := uint64(0)
	for h.more() && len(h.requests) < 60 {
		tag := int32(h.upTo(2))
		switch h.upTo(18) {
		case 0, 1:
			h.requests = append(h.requests, h.e.IrecvDevice(nil, 0, 1, tag, h.buffer([]int64{1, 300, 5000, 40_000}[h.upTo(4)])))
		case 2, 3:
			b := h.buffer([]int64{1, 300, 5000, 40_000}[h.upTo(4)])
			h.requests = append(h.requests, h.e.IsendDevice(nil, 0, 1, tag, b, Standard))
		case 4:
			h.requests = append(h.requests, h.e.Irecv(nil, 0, 1, tag, make([]byte, 5000)))
		case 5, 6:
			last++
			send(wire.Header{Kind: wire.RTS, Flags: uint8(h.upTo(2))*wire.Device | uint8(h.upTo(2))*wire.Readable, Tag: tag,
				ID: last, Len: h.length(), Addr: h.length(), Key: uint64(h.upTo(3))}, nil)
		case 7:
			send(wire.Header{Kind: wire.Eager, Tag: tag}, make([]byte, []int{0, 1, 400, 8000}[h.upTo(4)]))
		case 8:
			send(wire.Header{Kind: wire.Data, Tag: int32(h.upTo(4)), Key: h.anyNumber(), Addr: h.length()},
				make([]byte, []int{0, 1, 300, 512, 4096}[h.upTo(5)]))
		case 9:
			send(wire.Header{Kind: []wire.Kind{wire.CTS, wire.Ask}[h.upTo(2)], ID: h.anyNumber(), Tag: int32(h.upTo(4)), Key: 1,
				Addr: h.length(), Len: h.length()}, nil)
		case 16:
			send(wire.Header{Kind: wire.Filled, Tag: int32(h.upTo(4)), Key: h.anyNumber(), Addr: h.length(),
				Len: h.length()}, nil)
		case 17: // parts of a message, of which each goes to a place of its own
			hdr := wire.Header{Kind: wire.Ask, ID: h.anyNumber(), Tag: int32(1 + h.upTo(3)), Key: 1, Addr: h.length(),
				Len: h.length()}
			for range 1 + h.upTo(3) {
				hdr.Ctx = uint32([]uint64{0, 1, 513, uint64(h.upTo(40_000)), math.MaxUint32}[h.upTo(5)])
				send(hdr, h.pool.Handle()[h.upTo(2)*len(h.pool.Handle()):])
				hdr.Addr, hdr.Len = hdr.Addr+hdr.Len, 300
			}
		case 10:
			send(wire.Header{Kind: []wire.Kind{wire.FIN, wire.Broken, wire.Cancel, wire.CancelReply, wire.PutReq,
				wire.AskParts}[h.upTo(6)],
				ID: h.anyNumber(), Key: h.anyNumber(), Len: uint64(h.upTo(2))}, nil)
		case 11, 12:
			handle := h.handle
			switch h.upTo(5) {
			case 0:
				handle = nil
			case 1:
				handle = make([]byte, h.upTo(80))
			}
			id := uint64(h.upTo(25))
			send(wire.Header{Kind: wire.Handle, Key: h.anyNumber(), Tag: int32([]int{0, 1, 1, 1, 2, 3, 3, 99}[h.upTo(8)]),
				ID: id, Len: []uint64{uint64(h.size), uint64(h.size), h.length()}[h.upTo(3)], Addr: h.length()}, handle)
		case 13:
			send(wire.Header{Kind: wire.HandleReq, ID: h.anyNumber(), Key: h.anyNumber(),
				Addr: []uint64{0, identity(h.p)}[h.upTo(2)], Len: uint64(h.upTo(3))}, nil)
		case 14:
			send(wire.Header{Kind: []wire.Kind{wire.Unmap, wire.Unmapped}[h.upTo(2)], ID: h.anyNumber()}, nil)
		case 15:
			time.Sleep(50 * time.Microsecond)
			if n.rmaUnderWay() > 0 {
				n.endRMA([]error{nil, nil, transport.ErrPeerGone}[h.upTo(3)])
			}
		}
		n.deliver(0, math.MaxInt)
		h.check()
	}
	n.close()
	for i, r := range h.requests {
		if done, _, _ := r.Test(); !done {
			t.Fatalf("request %d does not end", i)
		}
	}
	all := h.p.Read(h.m.Base, attacked)
	for _, gap := range append(h.outside, [2]int64{h.used, attacked}) {
		if !bytes.Equal(all[gap[0]:gap[1]], before[gap[0]:gap[1]]) {
			t.Fatal("something was copied to where no buffer is")
		}
	}
	if err := attacker.Free(theirs); err != nil {
		t.Fatal(err)
	}
	h.free(h.m)
}

// gpus are an adapter's that registers some memory, and whose READs end in each way. What it has READ it writes as the
// victim's own.
func (h *deviceAttack) gpus() *testGPUs {
	var keys, gets atomic.Uint64
	ways := uint64(len(h.data)) // any number: other goroutines, which READ too, must not take of the input
	return &testGPUs{devices: transport.Devices{
		Able: func() error { return nil },
		Near: func(string) (string, bool) { return "", false },
		Register: func(int, uint64, int64) (local, key uint64, by string, err error) {
			k := keys.Add(1)
			return k, k, "", nil
		},
		Deregister: func(uint64) {},
	}, get: func(l *testLink, dst uint64, n int64, cookie uint64) (transport.State, error) {
		net := l.d.net
		net.mu.Lock()
		defer net.mu.Unlock()
		read := func() { h.p.Write(dst, make([]byte, n)) }
		switch (ways + gets.Add(1)) % 5 {
		case 0:
			net.full[[2]int{l.d.rank, l.peer}] = true
			return transport.Full, nil
		case 1:
			return transport.Done, errors.New("the test says no")
		case 2:
			read()
			return transport.Done, nil
		}
		return l.later(cookie, read)
	}}
}

// check looks whether the books are right.
func (h *deviceAttack) check() {
	h.e.lock()
	defer h.e.unlock()
	l := &h.e.links
	if err := l.worklist.check(l.peers); err != nil {
		h.t.Fatal(err)
	}
	a := l.transfers.accel
	if a == nil {
		return
	}
	has := map[*pinned]bool{}
	for _, s := range []*side{&a.in, &a.out} {
		for _, p := range []*pool{&s.small, &s.large} {
			if len(p.free) > 0 && p.line.len() > 0 {
				h.t.Fatal("there is pinned memory, and somebody waits for some")
			}
			for _, b := range p.free {
				if has[b] {
					h.t.Fatal("pinned memory is free twice")
				}
				has[b] = true
			}
		}
	}
	for t := range l.transfers.values() {
		o := t.r.device()
		if o == nil {
			continue
		}
		own := []*pinned{o.buf}
		for _, q := range o.parts {
			own = append(own, q.b)
		}
		for _, b := range own {
			if b != nil && has[b] {
				h.t.Fatal("pinned memory has two owners")
			}
			has[b] = true
		}
	}
}

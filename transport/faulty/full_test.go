package faulty_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/loop"
)

// full is a device with every ability of the seam, over one of loop, so that all rules and all misfortunes can be
// tested on a bare machine. Its peer is in the same process. Operations that it starts it does when it is polled.
type full struct {
	transport.Device
	facts transport.Facts
	rank  int
	peer  *full
	link  transport.Link // of loop, to the peer
	pkts  []transport.Packet
	later []func()

	receives []receive
	unseen   int
	places   map[uint64]place
	begun    int // operations on the peer's memory

	level atomic.Int32 // of Arm, plus 1; 0: not armed

	mu         sync.Mutex // guards what follows
	out        []transport.Packet
	lastKey    uint64
	regions    map[uint64]region // by key
	memory     map[*byte]bool
	mine, card []byte
	wake       func(thread bool)
	closed     bool
}

type region struct {
	mem    []byte
	access transport.Access
}

type receive struct {
	tag, mask, cookie uint64
	buf               []byte
}

type place struct {
	gen  int32
	dst  []byte
	from int64
}

func newFull() (d [2]*full) {
	for rank, dev := range loop.New(2) {
		f := &full{Device: dev, rank: rank, pkts: make([]transport.Packet, 8), places: map[uint64]place{},
			regions: map[uint64]region{}, memory: map[*byte]bool{}}
		f.facts = transport.Facts{
			Wake: []transport.Wake{{FD: -1, ThreadFD: -1, Notify: f.notify}},
			Memory: &transport.Memory{Alloc: f.alloc, Free: f.free,
				Import: func([]byte) error { return nil }, Forget: func([]byte) {}},
			Introducer: &transport.Introducer{Introduce: func(card []byte) { f.mine = card }, Card: f.cardOf},
			Offload:    &transport.Offload{Tags: 16, Min: 64, Post: f.post, Cancel: f.cancel, Seen: f.seen},
			Refused:    func() uint64 { return 0 },
			Via:        f.via,
			Boards:     dev.Facts().Boards,
		}
		d[rank] = f
	}
	d[0].peer, d[1].peer = d[1], d[0]
	return d
}

func (d *full) Facts() *transport.Facts { return &d.facts }

func (d *full) notify(wake func(thread bool)) {
	d.mu.Lock()
	d.wake = wake
	d.mu.Unlock()
	d.Device.Facts().Wake[0].Notify(wake)
}

func (d *full) cardOf(int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.card
}

func (d *full) via(int) string {
	if d.link == nil {
		return ""
	}
	return d.Name()
}

func (d *full) alloc(n int) ([]byte, error) {
	if n <= 0 || n > 1<<40 {
		return nil, errors.New("that many bytes cannot be had")
	}
	mem := make([]byte, n)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory[&mem[0]] = true
	return mem, nil
}

func (d *full) free(mem []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.memory[&mem[0]] {
		return errors.New("not from Alloc")
	}
	delete(d.memory, &mem[0])
	return nil
}

// deliver has a Poll report what p is, and ends a sleep.
func (d *full) deliver(p ...transport.Packet) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out = append(d.out, p...)
	if level := d.level.Load(); level != 0 && d.wake != nil {
		d.wake(level == int32(transport.Thread)+1)
	}
}

func (d *full) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.out)
}

func (d *full) Arm(level transport.Level) bool {
	d.level.Store(int32(level) + 1)
	if d.waiting() == 0 && len(d.later) == 0 && d.Device.Arm(level) {
		return true
	}
	d.Disarm()
	return false
}

func (d *full) Disarm() {
	d.level.Store(0)
	d.Device.Disarm()
}

func (d *full) Poll(pkts []transport.Packet) int {
	later := d.later
	d.later = nil
	for _, do := range later {
		do()
	}
	if d.closed {
		return 0
	}
	if d.waiting() == 0 && len(pkts) > 0 { // else payloads that have not been given would be overwritten
		n := d.Device.Poll(d.pkts)
		for _, p := range d.pkts[:n] {
			d.deliver(d.arrived(p)...)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := copy(pkts, d.out)
	d.out = d.out[n:]
	return n
}

// arrived is what becomes of a packet of loop's.
func (d *full) arrived(p transport.Packet) []transport.Packet {
	h := &p.Header
	if p.Event != transport.Arrived {
		return []transport.Packet{p}
	}
	switch h.Kind {
	case wire.Data:
		size := uint64(len(p.Payload))
		pl, ok := d.places[h.Key]
		end := uint64(len(pl.dst))
		if ok && size > 0 && pl.gen == h.Tag && h.Addr >= uint64(pl.from) && h.Addr <= end && size <= end-h.Addr {
			copy(pl.dst[h.Addr:], p.Payload)
			p.Event, h.Len = transport.Placed, size
		}
	case wire.Eager, wire.EagerSync, wire.RTS:
		return d.match(p)
	}
	return []transport.Packet{p}
}

func (d *full) match(p transport.Packet) []transport.Packet {
	h := p.Header
	tag, fits := transport.PackTag(h.Ctx, p.Peer, h.Tag)
	i := slices.IndexFunc(d.receives, func(r receive) bool { return fits && tag&r.mask == r.tag })
	if i < 0 || d.unseen > 0 {
		d.unseen++
		p.Event = transport.Unmatched
		return []transport.Packet{p}
	}
	r := d.receives[i]
	d.receives = slices.Delete(d.receives, i, i+1)
	matched := transport.Packet{Event: transport.OffloadMatched, Peer: p.Peer, Cookie: r.cookie, Header: h}
	done := transport.Packet{Event: transport.OffloadDone, Peer: p.Peer, Cookie: r.cookie, Header: h}
	switch {
	case h.Kind != wire.RTS:
		copy(r.buf, p.Payload)
		done.Header.Len = uint64(len(p.Payload))
	case h.Flags&wire.Readable != 0 && h.Len <= uint64(len(r.buf)):
		d.later = append(d.later, func() { d.read(r.buf[:h.Len], done) })
		return []transport.Packet{matched}
	}
	return []transport.Packet{matched, done}
}

// read ends a rendezvous.
func (d *full) read(buf []byte, done transport.Packet) {
	h := &done.Header
	if !d.link.TrySend(&wire.Header{Kind: wire.FIN, ID: h.ID}, nil) {
		d.later = append(d.later, func() { d.read(buf, done) })
		return
	}
	done.Err = d.reach(h.Addr, h.Key, len(buf), transport.Readable, func(far []byte) { copy(buf, far) })
	h.Kind = wire.FIN
	d.deliver(done)
}

func (d *full) post(tag, mask uint64, buf transport.Mem, cookie uint64) transport.Posted {
	if len(d.receives) == d.facts.Offload.Tags {
		return transport.PostedFull
	}
	d.receives = append(d.receives, receive{tag, mask, cookie, buf.Bytes()})
	return transport.PostedDown
}

func (d *full) cancel(cookie uint64) {
	if i := slices.IndexFunc(d.receives, func(r receive) bool { return r.cookie == cookie }); i >= 0 {
		_, source, _ := transport.UnpackTag(d.receives[i].tag)
		d.receives = slices.Delete(d.receives, i, i+1)
		d.deliver(transport.Packet{Event: transport.OffloadBack, Cookie: cookie, Peer: source})
	}
}

func (d *full) seen() { d.unseen-- }

func (d *full) Close() error {
	d.closed = true
	return d.Device.Close()
}

// fullLink is the link of a full device.
type fullLink struct {
	transport.Link
	d    *full
	caps transport.Caps
}

func (d *full) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	inner, err := d.Device.Connect(ctx, peer, address)
	if err != nil {
		return nil, err
	}
	l := &fullLink{inner, d, *inner.Caps()}
	l.caps.Cut = func() {
		for _, end := range []*full{d, d.peer} {
			end.mu.Lock()
			clear(end.regions)
			end.mu.Unlock()
		}
		inner.Caps().Cut()
	}
	l.caps.RMA = &transport.RMA{Register: d.register, Deregister: d.deregister, Get: d.get, GetSome: d.getSome,
		Put: d.put, PutNote: d.putNote, FetchAdd: d.fetchAdd, CompareSwap: d.compareSwap}
	l.caps.Presence = &transport.Presence{
		Polls: func() bool { return d.peer.level.Load() == 0 },
		Waits: func() bool { level := d.peer.level.Load(); return level == 0 || level == int32(transport.Thread)+1 }}
	l.caps.ZeroCopy = &transport.ZeroCopy{
		Send:  func(h *wire.Header, payload transport.Mem) bool { return l.TrySend(h, payload.Bytes()) },
		Max:   l.caps.FragMax,
		Reads: func() bool { return false },
		Place: func(key uint64, gen int32, dst transport.Mem, from int64) {
			d.places[key] = place{gen, dst.Bytes(), from}
		},
		Displace: func(key uint64) { delete(d.places, key) },
	}
	l.caps.Offload = true
	d.link = inner
	d.peer.mu.Lock()
	defer d.peer.mu.Unlock()
	d.peer.card = d.mine
	return l, nil
}

func (l *fullLink) Caps() *transport.Caps { return &l.caps }

func (d *full) register(mem transport.Mem, access transport.Access) (addr, key uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastKey += 2
	key = d.lastKey + uint64(d.rank)
	d.regions[key] = region{mem.Bytes(), access}
	return key << 12, key, true
}

func (d *full) deregister(_, key uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.regions, key)
}

// reach does something with memory of the peer.
func (d *full) reach(addr, key uint64, n int, access transport.Access, do func(far []byte)) error {
	p := d.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.regions[key]
	off, size := addr-key<<12, uint64(len(r.mem))
	if r.access&access == 0 || off > size || uint64(n) > size-off {
		return errors.New("no such memory")
	}
	do(r.mem[off : off+uint64(n)])
	return nil
}

// start does an operation at the next Poll. Each third is refused until then.
func (d *full) start(cookie uint64, do func() (value uint64, err error)) (transport.State, error) {
	if d.begun++; d.begun%3 == 0 {
		d.deliver(transport.Packet{Event: transport.Room, Peer: int32(1 - d.rank)})
		return transport.Full, nil
	}
	d.later = append(d.later, func() {
		value, err := do()
		peer := int32(1 - d.rank)
		d.deliver(transport.Packet{Event: transport.RMADone, Peer: peer, Cookie: cookie, Value: value, Err: err})
	})
	d.deliver() // nothing yet: a rank that sleeps is to poll
	return transport.Started, nil
}

// get is done at once if it is short.
func (d *full) get(dst transport.Mem, addr, key, cookie uint64) (transport.State, error) {
	read := func() (uint64, error) {
		return 0, d.reach(addr, key, dst.Len, transport.Readable, func(far []byte) { copy(dst.Bytes(), far) })
	}
	if dst.Len < 100 {
		_, err := read()
		return transport.Done, err
	}
	return d.start(cookie, read)
}

func (d *full) getSome(reads []transport.Read) int {
	for i, r := range reads {
		if d.reach(r.Addr, r.Key, r.Dst.Len, transport.Readable, func(far []byte) { copy(r.Dst.Bytes(), far) }) != nil {
			return i
		}
	}
	return len(reads)
}

func (d *full) put(src transport.Mem, addr, key, cookie uint64) (transport.State, error) {
	return d.start(cookie, func() (uint64, error) {
		return 0, d.reach(addr, key, src.Len, transport.Writable, func(far []byte) { copy(far, src.Bytes()) })
	})
}

func (d *full) putNote(src transport.Mem, addr, key uint64, note uint32, cookie uint64) (transport.State, error) {
	return d.start(cookie, func() (uint64, error) {
		err := d.reach(addr, key, src.Len, transport.Writable, func(far []byte) { copy(far, src.Bytes()) })
		if err == nil {
			d.peer.deliver(transport.Packet{Event: transport.Noted, Peer: int32(d.rank), Value: uint64(note)})
		}
		return 0, err
	})
}

func (d *full) fetchAdd(add, addr, key, cookie uint64) (transport.State, error) {
	return d.atomic(addr, key, cookie, func(old uint64) uint64 { return old + add })
}

func (d *full) compareSwap(compare, swap, addr, key, cookie uint64) (transport.State, error) {
	return d.atomic(addr, key, cookie, func(old uint64) uint64 {
		if old == compare {
			return swap
		}
		return old
	})
}

func (d *full) atomic(addr, key, cookie uint64, change func(old uint64) uint64) (transport.State, error) {
	return d.start(cookie, func() (old uint64, err error) {
		err = d.reach(addr, key, 8, transport.Writable, func(far []byte) {
			old = binary.NativeEndian.Uint64(far)
			binary.NativeEndian.PutUint64(far, change(old))
		})
		return old, err
	})
}

package loop

import (
	"fmt"
	"sync"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// link sends from one device to another.
type link struct {
	from, to *Device
	// What is in to.inbox from here, guarded by its mutex. Invariant: packets <= maxPackets, bytes <= maxBytes.
	packets, bytes int
}

func (l *link) Caps() *transport.Caps { return &l.from.fabric.caps }

// TrySend passes a short header's own fields only, as transports do that encode it.
func (l *link) TrySend(h *wire.Header, payload []byte) bool {
	if len(payload) > fragMax {
		panic(fmt.Sprintf("loop: TrySend of %d bytes over a link whose FragMax is %d", len(payload), fragMax))
	}
	if l.from.closed.Load() {
		return true
	}
	p := transport.Packet{Peer: int32(l.from.rank), Header: *h, Payload: payload}
	if h.Kind.Short() {
		p.Header = wire.Header{Kind: h.Kind, Flags: h.Flags, Ctx: h.Ctx, Tag: h.Tag}
	}
	return l.to.deliver(l, p)
}

// regions is the memory that a device has made readable. An address is the key in pages plus the offset in the
// buffer: a number for the table and not a pointer, so whatever a peer asks for can be checked.
type regions struct {
	mu    sync.RWMutex // held for reading during a copy, so that Deregister and Close wait for it
	last  uint64       // key given out last
	byKey map[uint64]region
}

type region struct {
	buf  []byte
	peer *Device // the only one that may read it
}

func baseOf(key uint64) uint64 { return key << 12 }

func (l *link) Register(buf []byte) (addr, key uint64, ok bool) {
	if !l.from.fabric.caps.Get || l.from.closed.Load() {
		return 0, 0, false
	}
	r := &l.from.regions
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil {
		r.byKey = make(map[uint64]region)
	}
	r.last++
	r.byKey[r.last] = region{buf, l.to}
	return baseOf(r.last), r.last, true
}

func (l *link) Deregister(_, key uint64) {
	r := &l.from.regions
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byKey, key)
}

func (l *link) TryGet(dst []byte, addr, key uint64, _ uint64) (transport.GetState, error) {
	r := &l.to.regions
	r.mu.RLock()
	defer r.mu.RUnlock()
	if l.to.closed.Load() || l.from.closed.Load() {
		return transport.GetDone, fmt.Errorf("loop: rank %d reads from %d: %w", l.from.rank, l.to.rank, transport.ErrPeerGone)
	}
	m, ok := r.byKey[key]
	if !ok || m.peer != l.from {
		return transport.GetDone, fmt.Errorf("loop: rank %d reads from %d: key %#x is not registered for it", l.from.rank, l.to.rank, key)
	}
	off := addr - baseOf(key) // below the base: wraps to beyond any length
	if size := uint64(len(m.buf)); off > size || uint64(len(dst)) > size-off {
		return transport.GetDone, fmt.Errorf("loop: rank %d reads %d bytes at %#x from %d: key %#x has %d bytes at %#x",
			l.from.rank, len(dst), addr, l.to.rank, key, size, baseOf(key))
	}
	copy(dst, m.buf[off:])
	return transport.GetDone, nil
}

func (r *regions) close() {
	r.mu.Lock()
	r.byKey = nil
	r.mu.Unlock()
}

var (
	_ transport.Device = (*Device)(nil)
	_ transport.Getter = (*link)(nil)
)

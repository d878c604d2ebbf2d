package loop

import (
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// link sends from one device to another.
type link struct {
	from, to   *Device
	caps       transport.Caps
	packets    int         // in the queue of to, whose mutex guards them
	refused    bool        // something, and from has not been told that there is room; likewise
	roomQueued bool        // Room is in the queue of from, whose mutex guards this
	dead       atomic.Bool // cut: it drops packets
}

func (l *link) Caps() *transport.Caps { return &l.caps }

// TrySend implements transport.Link. It passes only the fields that a short header has, as transports that encode it
// do.
func (l *link) TrySend(h *wire.Header, payload []byte) bool {
	p := transport.Packet{Peer: int32(l.from.rank), Header: *h, Payload: payload}
	if h.Kind.Short() {
		p.Header = wire.Header{Kind: h.Kind, Flags: h.Flags, Ctx: h.Ctx, Tag: h.Tag}
	}
	return l.from.closed || l.dead.Load() || l.to.put(l, &p)
}

// cut is transport.Caps's: each end loses the other, and what it has registered for it.
func (l *link) cut() {
	f := l.from.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, end := range [][2]*Device{{l.from, l.to}, {l.to, l.from}} {
		d, peer := end[0], end[1]
		if !d.peers[peer] || d.closed {
			continue
		}
		delete(d.peers, peer)
		if out := d.links[peer]; out != nil {
			out.dead.Store(true)
		}
		maps.DeleteFunc(f.regions, func(_ uint64, r region) bool { return r.owner == d && r.reader == peer })
		d.put(new(link), &transport.Packet{Event: transport.Down, Peer: int32(peer.rank),
			Err: fmt.Errorf("loop: the link between ranks %d and %d is cut: %w", d.rank, peer.rank, transport.ErrPeerGone)})
	}
}

// region is registered memory. Its address is the key in pages: a number for the table and not a pointer, so that any
// address from a peer can be checked. Only the peer of the link that registered it may read it, or the members of a
// board.
type region struct {
	mem           []byte
	owner, reader *Device
	board         *byte // reader is nil; see lending
}

func (l *link) register(mem transport.Mem, access transport.Access) (addr, key uint64, ok bool) {
	f := l.from.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.from.closed || access&transport.Writable != 0 { // there is no Put
		return 0, 0, false
	}
	f.lastKey++
	f.regions[f.lastKey] = region{mem: mem.Bytes(), owner: l.from, reader: l.to}
	return f.lastKey << 12, f.lastKey, true
}

func (l *link) deregister(_, key uint64) {
	l.from.fabric.mu.Lock()
	defer l.from.fabric.mu.Unlock()
	delete(l.from.fabric.regions, key)
}

func (l *link) get(dst transport.Mem, addr, key, _ uint64) (transport.State, error) {
	l.from.fabric.mu.RLock()
	defer l.from.fabric.mu.RUnlock()
	r := l.from.fabric.regions[key]
	off, size := addr-key<<12, uint64(len(r.mem)) // below the base: wraps to beyond any length
	if r.owner != l.to || r.reader != l.from || off > size || uint64(dst.Len) > size-off {
		return transport.Done, fmt.Errorf("loop: rank %d reads %d bytes at %#x from %d: key %#x has %d bytes for it",
			l.from.rank, dst.Len, addr, l.to.rank, key, size)
	}
	copy(dst.Bytes(), r.mem[off:])
	return transport.Done, nil
}

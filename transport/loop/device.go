package loop

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/transport"
)

// fabric is what the devices of one New share.
type fabric struct {
	get     bool // links can read the peer's memory
	devices []*Device

	mu      sync.RWMutex // guards what follows; held for reading while memory is copied
	lastKey uint64
	regions map[uint64]region // by key
}

// Device is one rank of a fabric. Its queue is in queue.go.
type Device struct {
	*queue
	fabric *fabric
	rank   int
	facts  transport.Facts
	closed atomic.Bool          // set under fabric.mu
	known  map[*Device]struct{} // must hear of this one's end; under fabric.mu. Symmetric, without closed devices
}

// New returns the n devices of a fabric; device i is rank i. Nothing is allocated for a pair until it talks.
func New(n int) []*Device { return newFabric(n, true) }

// NewNoGet is New for links that cannot read the peer's memory, so that large messages go as streams.
func NewNoGet(n int) []*Device { return newFabric(n, false) }

func newFabric(n int, get bool) []*Device {
	f := &fabric{get: get, regions: map[uint64]region{}}
	for i := range n {
		d := &Device{queue: &queue{}, fabric: f, rank: i, known: map[*Device]struct{}{}}
		d.facts.Wake = []transport.Wake{{FD: -1, ThreadFD: -1, Notify: d.notifyBy}} // a sender calls what ends a sleep
		f.devices = append(f.devices, d)
	}
	return f.devices
}

// Name is "loop".
func (d *Device) Name() string { return "loop" }

// Address names the fabric and the rank; Connect checks it.
func (d *Device) Address() []byte { return fmt.Appendf(nil, "loop/%p/%d", d.fabric, d.rank) }

// Facts is transport.Device's.
func (d *Device) Facts() *transport.Facts { return &d.facts }

// Connect needs no handshake: it notes that the two know each other, so that either hears of the other's Close.
func (d *Device) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	err := ctx.Err()
	switch {
	case err != nil:
	case peer < 0 || peer >= len(d.fabric.devices):
		err = fmt.Errorf("this fabric has ranks 0 to %d", len(d.fabric.devices)-1)
	case string(address) != string(d.fabric.devices[peer].Address()):
		err = fmt.Errorf("address %.64q is not that of the peer, %q", address, d.fabric.devices[peer].Address())
	case d.closed.Load() || d.fabric.devices[peer].closed.Load():
		err = fmt.Errorf("%w: one of the two devices is closed", transport.ErrPeerGone)
	}
	if err != nil {
		return nil, fmt.Errorf("loop: connecting rank %d to %d: %w", d.rank, peer, err)
	}
	to := d.fabric.devices[peer]
	if d != to {
		d.known[to], to.known[d] = struct{}{}, struct{}{}
	}
	return newLink(d, to), nil
}

// Close tells every device that is known, after whatever d has sent to it, and lets go of all memory.
func (d *Device) Close() error {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	if d.closed.Swap(true) {
		return nil
	}
	d.mu.Lock()
	d.dead, d.armed, d.in, d.out, d.next = true, false, nil, nil, 0
	d.mu.Unlock()
	for p := range d.known {
		delete(p.known, d)
		p.put(nil, &transport.Packet{Event: transport.Down, Peer: int32(d.rank),
			Err: fmt.Errorf("loop: rank %d has closed its device: %w", d.rank, transport.ErrPeerGone)})
	}
	for key, r := range d.fabric.regions {
		if r.link.from == d {
			delete(d.fabric.regions, key)
		}
	}
	return nil
}

package loop

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/gorun-mpi/mpi/transport"
)

// fabric is what the devices of one New share.
type fabric struct {
	get     bool // links can read the peer's memory
	devices []*Device

	mu      sync.RWMutex // guards what follows; held for reading while memory is copied
	lastKey uint64
	regions map[uint64]region // by key
	boards  map[uint64]*posted
}

// Device is one rank of a fabric. Its queue is in queue.go.
type Device struct {
	queue
	fabric *fabric
	rank   int
	facts  transport.Facts
	peers  map[*Device]bool  // that hear of the end of this one, or it of theirs; under fabric.mu
	links  map[*Device]*link // the last one to each; under fabric.mu
}

// New returns the n devices of a fabric; device i is rank i. Nothing is allocated for a pair until one of it connects.
func New(n int) []*Device { return newFabric(n, true) }

// NewNoGet is New for links that cannot read the peer's memory, so that large messages go as streams.
func NewNoGet(n int) []*Device { return newFabric(n, false) }

func newFabric(n int, get bool) []*Device {
	f := &fabric{get: get, regions: map[uint64]region{}, boards: map[uint64]*posted{}}
	for i := range n {
		d := &Device{fabric: f, rank: i, peers: map[*Device]bool{}, links: map[*Device]*link{}}
		d.facts.Wake = []transport.Wake{{FD: -1, ThreadFD: -1, Notify: d.setWake}} // a sender calls what ends a sleep
		d.facts.Short = d.short
		d.facts.Boards = &transport.Boards{Make: d.makeBoard, Join: d.joinBoard}
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

// Connect needs no handshake. It makes the two devices peers, so that either gets a Down when the other closes.
func (d *Device) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	all, err := d.fabric.devices, ctx.Err()
	switch {
	case err != nil:
	case peer < 0 || peer >= len(all) || string(address) != string(all[peer].Address()):
		err = fmt.Errorf("%.64q is not its address; that of rank %d is %q", address, d.rank, d.Address())
	case d.closed || all[peer].closed:
		err = fmt.Errorf("%w: one of the two devices is closed", transport.ErrPeerGone)
	}
	if err != nil {
		return nil, fmt.Errorf("loop: connecting rank %d to %d of %d: %w", d.rank, peer, len(all), err)
	}
	to := all[peer]
	d.peers[to], to.peers[d] = true, true
	l := &link{from: d, to: to, caps: transport.Caps{EagerMax: 8 << 10, FragMax: 32 << 10, SameHost: true, WhyNoRMA: "loop.NewNoGet"}}
	d.links[to], l.caps.Cut = l, l.cut
	if d.fabric.get {
		l.caps.RMA = &transport.RMA{Register: l.register, Deregister: l.deregister, Get: l.get}
	}
	return l, nil
}

// tellEnd reports to another device that d is closed, but not over the link to it, which may be full.
func (d *Device) tellEnd(to *Device) {
	to.put(new(link), &transport.Packet{Event: transport.Down, Peer: int32(d.rank),
		Err: fmt.Errorf("loop: rank %d has closed its device: %w", d.rank, transport.ErrPeerGone)})
}

// watchOver sees to it that the end of another device is reported here, once.
func (d *Device) watchOver(peer *Device) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	if d.peers[peer] {
		return
	}
	if d.peers[peer] = true; peer.closed {
		peer.tellEnd(d)
	} else {
		peer.peers[d] = true
	}
}

// Close reports Down to every peer, behind all that d has sent to it, and drops what d has queued and registered.
func (d *Device) Close() error {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	d.mu.Lock()
	d.closed, d.armed, d.in, d.out, d.next = true, false, nil, nil, 0
	d.mu.Unlock()
	for p := range d.peers {
		d.tellEnd(p)
	}
	clear(d.peers) // a second Close reports nothing
	maps.DeleteFunc(d.fabric.regions, func(_ uint64, r region) bool { return r.owner == d })
	return nil
}

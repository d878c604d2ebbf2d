package loop

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

const (
	eagerMax = 8 << 10
	fragMax  = 32 << 10
)

// fabric is what the devices of one New share. Order of locks: fabric.mu, Device.regions.mu, inbox.mu.
type fabric struct {
	id      uint64
	caps    transport.Caps
	devices []*Device
	mu      sync.Mutex // guards Device.linked and the setting of Device.closed
}

var fabrics atomic.Uint64 // gives out fabric.id

// Device is one rank of a fabric.
type Device struct {
	fabric  *fabric
	rank    int
	closed  atomic.Bool
	done    chan struct{} // closed by Close
	inbox   inbox
	regions regions
	// linked are the devices that must hear of our end. Invariant: symmetric, and without closed devices.
	linked map[*Device]struct{}
	// tokens of Park(false) and Park(true), at most one each: it ends the present or the next Park.
	bell, held chan struct{}
}

// Option changes what New makes.
type Option func(*fabric)

// NoGet makes links that cannot read the peer's memory, so that large messages go as streams.
func NoGet() Option {
	return func(f *fabric) { f.caps.Get, f.caps.WhyNot = false, "switched off by loop.NoGet" }
}

// New returns the n devices of a fabric; device i is rank i. Nothing is allocated for a pair until it talks.
func New(n int, opts ...Option) []*Device {
	f := &fabric{id: fabrics.Add(1), caps: transport.Caps{EagerMax: eagerMax, FragMax: fragMax, Get: true}}
	for _, o := range opts {
		o(f)
	}
	f.devices = make([]*Device, n)
	for i := range f.devices {
		f.devices[i] = &Device{fabric: f, rank: i, done: make(chan struct{}),
			bell: make(chan struct{}, 1), held: make(chan struct{}, 1)}
	}
	return f.devices
}

// Name is "loop".
func (d *Device) Name() string { return "loop" }

// Address names the fabric and the rank; Connect checks it.
func (d *Device) Address() []byte { return fmt.Appendf(nil, "loop/%d/%d", d.fabric.id, d.rank) }

// Connect needs no handshake: it notes that the two know each other, so that either hears of the other's Close.
func (d *Device) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("loop: connecting rank %d to %d: %w", d.rank, peer, err)
	}
	if peer < 0 || peer >= len(d.fabric.devices) {
		return nil, fmt.Errorf("loop: connecting rank %d to %d: this fabric has ranks 0 to %d", d.rank, peer, len(d.fabric.devices)-1)
	}
	to := d.fabric.devices[peer]
	if string(address) != string(to.Address()) {
		return nil, fmt.Errorf("loop: connecting rank %d to %d: address %.64q is not that of the peer, %q", d.rank, peer, address, to.Address())
	}
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	switch {
	case d.closed.Load():
		return nil, fmt.Errorf("loop: connecting rank %d to %d: rank %d has closed its own device", d.rank, peer, d.rank)
	case to.closed.Load():
		return nil, fmt.Errorf("loop: connecting rank %d to %d: %w: it has closed its device", d.rank, peer, transport.ErrPeerGone)
	case d != to:
		d.link(to)
		to.link(d)
	}
	return &link{from: d, to: to}, nil
}

func (d *Device) link(to *Device) {
	if d.linked == nil {
		d.linked = make(map[*Device]struct{})
	}
	d.linked[to] = struct{}{}
}

// Poll is transport.Device's.
func (d *Device) Poll(pkts []transport.Packet) int { return d.inbox.take(pkts) }

// Arm is transport.Device's.
func (d *Device) Arm(level transport.Level, hold bool) bool {
	return d.inbox.arm(alarm{on: true, urgent: level == transport.Urgent, hold: hold})
}

// Disarm is transport.Device's.
func (d *Device) Disarm() { d.inbox.disarm() }

// Park needs no thread of its own to sleep on; hold only tells the two sleepers apart.
func (d *Device) Park(hold bool) {
	wake := d.bell
	if hold {
		if !d.inbox.armed() {
			return
		}
		wake = d.held
	}
	select {
	case <-wake:
	case <-d.done:
	}
}

// Interrupt leaves a token for both kinds of Park. One that is not under way returns early once, which it may.
func (d *Device) Interrupt() {
	ring(d.bell)
	ring(d.held)
}

func ring(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // a token is there already and has not been taken
	}
}

// Close tells every linked device, after whatever d has sent to it, and lets go of all memory.
func (d *Device) Close() error {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	if d.closed.Swap(true) {
		return nil
	}
	d.inbox.close()
	d.regions.close()
	for p := range d.linked {
		delete(p.linked, d)
		p.deliver(nil, transport.Packet{Event: transport.Down, Peer: int32(d.rank),
			Err: fmt.Errorf("loop: rank %d has closed its device: %w", d.rank, transport.ErrPeerGone)})
	}
	d.linked = nil
	close(d.done)
	return nil
}

// deliver puts a packet into d's inbox and wakes d if it asked for that. False: l has too much in there.
func (d *Device) deliver(l *link, p transport.Packet) bool {
	ok, woken := d.inbox.put(l, p)
	if woken.on && woken.hold {
		ring(d.held)
	}
	if woken.on && !woken.hold || p.Header.Flags&wire.Wake != 0 {
		ring(d.bell)
	}
	return ok
}

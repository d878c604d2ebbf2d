//go:build ucx && linux && cgo

package ucx

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/transport"
)

// mostRanks is how many ranks transport.PackTag tells apart.
const mostRanks = 1 << 17

// Device is one rank's end.
type Device struct {
	opt   Options
	w     *worker
	self  process
	bytes []byte // the address
	facts transport.Facts
	mem   mapped
	sleep sleeper
	links links

	// What follows belongs to the caller of Poll and of transport.Tagged (the engine, under its lock).

	peers []peer // by rank
	ops   operations
	// lost are ends of operations and of peers that UCX does not report.
	lost  []transport.Packet
	armed bool // since Arm, until Disarm or what the descriptor does not show
	row   row
	idle  flusher

	reached notices // of Reach and of the watches
	closed  atomic.Bool
}

// New opens a device. ErrUnavailable: there is no libucp, it is too old, or no transport is left to it.
func New(opt Options) (transport.Device, error) {
	opt.fill()
	if opt.Size > mostRanks {
		return nil, fmt.Errorf("%w: a tag of UCX has room for %d ranks, this job has %d", transport.ErrUnavailable,
			mostRanks, opt.Size)
	}
	if err := load(opt.Library); err != nil {
		return nil, err
	}
	w, err := openWorker()
	if err != nil {
		return nil, err
	}
	d := &Device{opt: opt, w: w, self: thisProcess(), peers: make([]peer, opt.Size)}
	d.mem.w = w
	d.row.atOnce = rowAtOnce
	d.ops.w, d.ops.taken = w, map[uint64]int32{}
	d.bytes = card{libraryVersion(), d.self.host, d.self.pid, d.self.start, w.address()}.encode()
	fd := w.fd()
	if fd < 0 {
		w.close()
		return nil, fmt.Errorf("%w: UCX has no descriptor by which it wakes a rank", transport.ErrUnavailable)
	}
	d.links.init(fd, opt.PeerTimeout)
	d.facts.Tagged = d
	d.facts.Wake = []transport.Wake{{FD: fd, ThreadFD: fd, OnlyArmed: w.mayUseTCP(), Notify: d.sleep.notifyBy}}
	d.facts.Memory = &transport.Memory{Alloc: d.mem.alloc, Free: d.mem.free}
	d.sleep.late.init(d.sleep.wakeSleepers)
	d.sleep.check.Init(d.sleep.dirty.Load, func() {
		d.sleep.looked.Store(true)
		d.sleep.wakeSleepers()
	})
	d.opt.Debug("UCX is opened", "version", libraryVersion(), "library", libraryPath(), "address bytes", len(d.bytes))
	return d, nil
}

// Name is "ucx".
func (d *Device) Name() string { return "ucx" }

// Address is what a peer's Reach needs.
func (d *Device) Address() []byte { return d.bytes }

// Facts is transport.Device's.
func (d *Device) Facts() *transport.Facts { return &d.facts }

// Connect makes no links.
func (d *Device) Connect(context.Context, int, []byte) (transport.Link, error) {
	return nil, fmt.Errorf("ucx: %w: it makes no links", errors.ErrUnsupported)
}

// notices is what goroutines tell the caller of Poll.
type notices struct {
	some   atomic.Bool
	silent atomic.Bool // links has silent connections; set before some
	mu     sync.Mutex
	all    []notice
}

// notice says that peer can be reached, or has ended.
type notice struct {
	peer int32
	to   *target // nil: it has ended
}

func (n *notices) add(x notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, x)
	n.some.Store(true)
}

func (n *notices) take() []notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.all
	n.all = nil
	n.some.Store(false)
	return all
}

// Close is transport.Device's. What UCX has not moved yet is lost: a job's ranks close when all have completed what
// they have begun (Member.Leave).
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.sleep.check.Stop()
	d.sleep.late.stop()
	d.links.stop()
	for i := range d.peers {
		if p := &d.peers[i]; p.to != nil {
			p.to.stop()
			d.disconnect(p)
		}
	}
	for _, n := range d.reached.take() {
		if n.to != nil {
			n.to.stop()
		}
	}
	d.mem.drop()
	d.w.close()
	d.mem.dropHeld()
	d.ops.unpin()
	return nil
}

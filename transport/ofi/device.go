//go:build ofi && linux && cgo

package ofi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// mostRanks is how many ranks transport.PackTag tells apart.
const mostRanks = 1 << 17

// Device is one rank's end.
type Device struct {
	opt     Options
	e       *endpoint
	own     facts
	card    card
	bytes   []byte // the address
	facts   transport.Facts
	control *tcp.Device
	looks   looks

	// What follows belongs to the caller of Poll and of transport.Tagged (the engine, under its lock).

	peers   []peer // by rank
	ops     operations
	lost    []transport.Packet // ends of operations and of peers that libfabric does not report
	answers []answer           // that libfabric has had no room for
	polls   uint64
	started bool   // looks
	refused bool   // Room is owed
	slept   bool   // Arm has been called since the last Poll
	armed   bool   // since Arm, until Disarm or what the descriptor does not show
	acted   uint64 // looks.active when Arm left the rank to the looks

	reached notices // of Reach
	closed  atomic.Bool
}

// New opens a device. ErrUnavailable: there is no libfabric, it is too old, or has no provider to use.
func New(opt Options) (transport.Device, error) {
	opt.fill()
	if opt.Size > mostRanks {
		return nil, fmt.Errorf("%w: a tag of libfabric has room for %d ranks, this job has %d", transport.ErrUnavailable,
			mostRanks, opt.Size)
	}
	if err := load(opt.Library); err != nil {
		return nil, err
	}
	e, err := openEndpoint(opt.Provider, opt.Rank, opt.registers)
	if err != nil {
		return nil, explainNone(opt.Provider, err)
	}
	d := &Device{opt: opt, e: e, own: e.facts(), peers: make([]peer, opt.Size)}
	d.ops.e, d.ops.taken = e, map[uint64]int32{}
	if d.control, err = tcp.New(opt.Control); err != nil {
		e.close()
		return nil, fmt.Errorf("the control connections: %w", err)
	}
	d.card = card{d.own.provider, d.own.format, d.own.address, d.control.Address()}
	d.bytes = d.card.encode()
	control, fd := d.control.Facts(), d.own.fd
	own := transport.Wake{FD: fd, ThreadFD: fd, OnlyArmed: fd >= 0, Notify: d.looks.notifyBy}
	d.facts = transport.Facts{
		Tagged:     d,
		Glances:    true,
		Wake:       append([]transport.Wake{own}, control.Wake...),
		Introducer: control.Introducer,
		Refused:    control.Refused,
	}
	if fd >= 0 {
		d.looks.init(time.Millisecond)
	} else {
		d.looks.init(100 * time.Microsecond)
	}
	d.opt.Debug("libfabric is opened", "version", libraryVersion(), "library", libraryPath(), "provider", d.own.provider,
		"registers memory", d.own.registers, "descriptor", fd >= 0, "longest message", d.own.longest)
	return d, nil
}

// explainNone says why there is no endpoint, and what to do.
func explainNone(provider string, err error) error {
	all, _ := list("")
	var names []string
	for _, x := range all {
		if len(names) == 0 || names[len(names)-1] != x[0] {
			names = append(names, x[0])
		}
	}
	switch {
	case !errors.Is(err, errNoProvider):
		return fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
	case provider != "":
		return fmt.Errorf("%w: %w: GORUN_OFI_PROVIDER=%s; those that could be used are %q", transport.ErrUnavailable, err,
			provider, names)
	}
	return fmt.Errorf("%w: libfabric has no provider of a fast fabric here, but %q, which GORUN_OFI_PROVIDER chooses",
		transport.ErrUnavailable, names)
}

// Name is "ofi".
func (d *Device) Name() string { return "ofi" }

// Address is what a peer's Reach needs.
func (d *Device) Address() []byte { return d.bytes }

// Facts is transport.Device's.
func (d *Device) Facts() *transport.Facts { return &d.facts }

// Connect makes no links.
func (d *Device) Connect(context.Context, int, []byte) (transport.Link, error) {
	return nil, fmt.Errorf("ofi: %w: it makes no links", errors.ErrUnsupported)
}

// notices is what goroutines tell the caller of Poll: the addresses of peers that can be reached.
type notices struct {
	some atomic.Bool
	mu   sync.Mutex
	all  []notice
}

type notice struct {
	peer    int32
	address []byte
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

// Arm implements transport.Device. libfabric does not tell what is urgent: every arrival is shown. A rank that computes
// and has just begun something, or polled an end, is left to the looks: to arm costs some steps of libfabric.
func (d *Device) Arm(level transport.Level) bool {
	armed, sleeper := d.arm(level), uint32(noSleeper)
	switch {
	case armed && level == transport.Thread:
		sleeper = threadSleeps
	case armed && level == transport.Any:
		sleeper = goroutineSleeps
	}
	d.looks.sleeps.Store(sleeper)
	return armed
}

func (d *Device) arm(level transport.Level) bool {
	if d.closed.Load() || d.reached.some.Load() || len(d.lost) > 0 || d.e.some() {
		return false
	}
	d.lookAfter()
	d.slept = true
	if active := d.looks.active.Load(); level == transport.Urgent && !d.armed && d.acted != active {
		d.acted = active
		return true
	}
	if !d.control.Arm(level) {
		return false
	}
	d.armed = d.e.arm() && !d.reached.some.Load()
	if !d.armed {
		d.control.Disarm()
	}
	return d.armed
}

// lookAfter begins the looks, unless they have begun.
func (d *Device) lookAfter() {
	if !d.started {
		d.started = true
		d.looks.start()
	}
}

// begins is for a rank that begins an operation. libfabric may have to move it yet when the call has ended it, and the
// rank may not call again.
func (d *Device) begins() {
	d.lookAfter()
	d.looks.acts()
}

// Disarm is transport.Device's.
func (d *Device) Disarm() {
	d.armed = false
	d.looks.sleeps.Store(noSleeper)
	d.control.Disarm()
}

// show wakes an armed rank for what the descriptor does not show: what has ended in a call, and not in a Poll.
func (d *Device) show() {
	if d.armed && (d.e.some() || len(d.lost) > 0) {
		d.armed = false
		d.looks.wakeSleepers()
	}
}

const (
	turns       = 2  // of libfabric in a Poll while nothing ends
	controlEach = 64 // one Poll in so many looks at the control connections, and each after a sleep
	retryEach   = 64 // and tries again what libfabric had no room for, or each in which something ends
)

// Poll is transport.Device's.
func (d *Device) Poll(pkts []transport.Packet) int {
	if d.closed.Load() || len(pkts) == 0 {
		return 0
	}
	d.polls++
	if d.reached.some.Load() {
		d.takeNotices()
	}
	found := d.looks.found.Load()
	if found {
		d.looks.found.Store(false)
	} else {
		d.looks.polls.Store(d.polls)
	}
	woken := d.slept || found
	d.slept = false
	if woken || d.polls%controlEach == 0 {
		d.pollControl()
	}
	if !d.e.some() && len(d.lost) == 0 {
		d.e.turn(turns)
	}
	if len(d.answers) > 0 {
		d.flushAnswers()
	}
	n := copy(pkts, d.lost)
	d.lost = append(d.lost[:0], d.lost[n:]...)
	for n < len(pkts) {
		x, ok := d.e.next()
		if !ok {
			break
		}
		d.ended(x, &pkts[n])
		n++
	}
	if n > 0 {
		d.looks.acts()
	}
	if d.refused && n < len(pkts) && (n > 0 || woken || d.polls%retryEach == 0) {
		d.refused = false
		pkts[n].Event, pkts[n].Peer = transport.Room, int32(d.opt.Rank)
		n++
	}
	return n
}

// Close is transport.Device's. What libfabric has not moved yet is lost: a job's ranks close when all have completed
// what they have begun (Member.Leave).
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.looks.stop()
	d.e.drain(closeTurns)
	d.control.Close()
	d.e.close()
	d.ops.unpin()
	return nil
}

// closeTurns are of libfabric, before an endpoint is closed: what it was asked to send at once may wait in it.
const closeTurns = 64

//go:build verbs && linux && cgo

package verbs

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

const (
	// eagerMax is the longest message that is sent into a receive buffer of the peer; what is longer is read by it.
	eagerMax = 8 << 10
	// slotSize is a receive buffer, and a send buffer: the longest frame, in whole cache lines.
	slotSize = eagerMax + 64
	// receives is how many buffers the shared receive queue has in the beginning, and sends how many wait for their
	// completion with the device. Less if the memory may not be locked.
	receives    = 1024
	sends       = 512
	leastBuffer = 64
	// depth is how much one queue pair takes, and outstanding all together: each may end as an error, for which there
	// must be room in the completion queue.
	depth       = 64
	outstanding = 4096
	// deepQueues is how many queue pairs take so much. libmlx5 takes 40 KiB for each, and from that many on they share
	// outstanding, which is less than signalEvery for each of them. Those after them take depthOfMany, so that one request
	// more fits than are confirmed at once, and 10 KiB: docs/decisions/verbs.md has the sum.
	deepQueues  = outstanding / signalEvery
	depthOfMany = signalEvery + 1
	// lastRequests is for how many sessions that fail at once there is room in the completion queue for a request more.
	lastRequests = 64
	// signalEvery is how many sends to a peer are confirmed at once.
	signalEvery = 16
	// giveBackAt is how many receive buffers are given back at once, unless few are posted.
	giveBackAt = 16
	// inlineMax is what is asked for: short frames go to the device with the request, and need no buffer.
	inlineMax = 220
	// closePatience is how long Close lets the device deliver what has been sent.
	closePatience = 5 * time.Second
)

// Device is one rank's end. Parts that belong together are types of their own, with their invariants.
type Device struct {
	opt     Options
	hca     *hca
	at      port
	address []byte
	facts   transport.Facts
	control controlPlane
	peers
	prover prover
	wakeState
	background

	// What follows belongs to the caller of Poll (the engine, under its lock), but for what its types except.
	registry
	recv receiveQueue
	sendPool
	outcomes
	rmaPool
	own  ownLink
	tags tagList
	ids  idTable

	devices deviceRegions // has a lock of its own
	tails   tailWatch
	polls   uint64
	stats   Counters
}

// background are the goroutines of a device, and its end.
type background struct {
	ctx       context.Context // ends with the device
	stop      context.CancelFunc
	wg        sync.WaitGroup
	eventFile *os.File // what the device says apart from completions
	closed    atomic.Bool
	dead      atomic.Bool // the device has failed: it completes nothing any more
	portDown  atomic.Bool
}

// New opens the device. The error, a transport.ErrUnavailable, says what was missing.
func New(opt Options) (transport.Device, error) {
	opt.fill()
	d := &Device{opt: opt, peers: peers{sessions: map[int]*session{}}, sendPool: sendPool{limit: outstanding}}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.table.Store(&table{})
	d.check.Init(d.mayWait, d.wakeSleepers)
	if err := d.open(); err != nil {
		d.Close()
		return nil, fmt.Errorf("%w: verbs: %w", transport.ErrUnavailable, err)
	}
	return d, nil
}

func (d *Device) open() (err error) {
	if err := load(d.opt.Library); err != nil {
		return fmt.Errorf("opening libibverbs: %w", err)
	}
	if d.hca, d.at, err = choose(&d.opt); err != nil {
		return err
	}
	d.devices.init(d.hca, d.at.device, &d.opt)
	d.registry = registry{dev: d.hca, port: &d.at, opt: &d.opt, stats: &d.stats}
	d.later.init(d.hca, d.makeRegion, d.tellNotice)
	if d.opt.entries > 0 {
		d.at.caps.maxEntries = d.opt.entries
	}
	if err := d.makeBuffers(); err != nil {
		return err
	}
	if err := d.control.open(d.ctx, d.opt.Control, d.onControl); err != nil {
		return fmt.Errorf("the control connections: %w", err)
	}
	d.address = encodeAddress(d.at.layer, d.control.tcp.Address())
	d.wg.Go(d.control.loop)
	d.makeFacts()
	if d.opt.RegisterFrom <= 0 {
		d.opt.RegisterFrom = d.measure()
	}
	d.useCache(d.opt.Cache)
	d.check.Start()
	d.wg.Go(d.watchTails)
	d.opt.Debug("verbs device", "device", d.at.device, "port", d.at.number, "gid", d.at.gidIndex, "partition", d.at.pkey,
		"because", d.at.why, "library", libraryPath(), "receive-buffers", d.recv.count, "register-from", d.opt.RegisterFrom)
	return d.watchDevice() // which changes at
}

// makeBuffers makes the queues and the memory that the device knows from the beginning: as much as this rank may lock.
func (d *Device) makeBuffers() error {
	raiseMemlock()
	most, err := d.makeQueues(tagSizes(&d.opt, &d.at))
	if err != nil {
		return err
	}
	if err := d.startProver(); err != nil { // before the buffers take all memory that may be locked
		return fmt.Errorf("what paths are proved by: %w", err)
	}
	nr, ns := min(d.opt.firstReceives(), most), sends
	for {
		if err = d.recv.open(d.hca, nr, most); err == nil {
			if d.send, err = d.slab(ns+1, slotSize, localWrite|relaxed); err == nil {
				break
			}
			d.recv.drop(d.hca)
		}
		if nr, ns = nr/2, ns/2; ns < leastBuffer {
			return fmt.Errorf("%d KiB for receive and send buffers: %w", (2*nr+2*ns)*slotSize>>10, explainMemlock(err))
		}
		most = nr
	}
	d.fillSends(ns)
	return d.recv.fill()
}

// makeQueues makes the queues and returns how many receive buffers there may ever be: drivers do not lengthen the queue
// later. A device that refuses a list of tags gets an ordinary receive queue: what it says that it can does not depend
// on its link layer, and libmlx5 makes no such list over Ethernet.
func (d *Device) makeQueues(tags, ops int) (buffers int, err error) {
	forTags := 2*tags + ops // MATCH and DATA_VALID of each entry, and its operations
	most := d.opt.mostReceives()
	ask := min(most+outstanding+forTags+lastRequests, d.at.caps.maxEntries)
	want := min(most, d.at.caps.maxReceives, ask/2)
	cqe, srq, err := d.hca.make(uint32(ask), uint32(want), slotSize, tags, ops)
	if err != nil && tags > 0 {
		d.hca.unmake()
		d.opt.Log("the RDMA device refuses to match tags (GORUN_TM), so software does", "device", d.at.device, "error", err)
		return d.makeQueues(0, 0)
	}
	if err != nil {
		return 0, err
	}
	d.tags.init(d, tags, ops)
	d.entries = int(cqe)
	d.limit = int(cqe) - int(srq) - forTags - lastRequests
	if d.limit < depth {
		return 0, fmt.Errorf("a completion queue of %d entries is too short", cqe)
	}
	return min(want, int(srq)), nil
}

func (d *Device) makeFacts() {
	channel, control := d.hca.channel(), d.control.tcp.Facts()
	d.facts = transport.Facts{
		Wake:       []transport.Wake{{FD: channel, ThreadFD: channel, Notify: d.notifyBy}},
		Memory:     &transport.Memory{Alloc: d.allocMem, Free: d.freeMem, Import: d.importMem, Forget: d.forgetMem},
		Introducer: control.Introducer,
		Refused:    control.Refused,
		OwnRMA:     d.ownRMA,
	}
	if d.tags.on() {
		// A buffer takes the longest message that is sent without asking: one that is too long breaks the connection.
		d.facts.Offload = &transport.Offload{Tags: len(d.tags.all), Min: eagerMax,
			Post: d.tags.post, Cancel: d.tags.cancel, Seen: d.tags.sawOne}
	}
}

// Name is "verbs".
func (d *Device) Name() string { return "verbs" }

// Address is published to the other ranks.
func (d *Device) Address() []byte { return d.address }

// Facts is transport.Device's. The completion channel serves both sleepers: it stays readable until the next Arm.
func (d *Device) Facts() *transport.Facts { return &d.facts }

var _ transport.Device = (*Device)(nil)

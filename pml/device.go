package pml

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/eventset"
	"github.com/gorun-mpi/mpi/internal/memfile"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Messages in device memory. Such a request is one like any other to matching, order, cancelling and failure. What is
// different is its data, which only the driver of the device copies:
//
//	send      is always announced, so that it keeps its place in the order. When it is asked for, its data is copied
//	          into pinned memory, and goes from there as a stream (staging.go).
//	receive   of a short message: its payload is copied through pinned memory. Of an announced one: it asks for as much
//	          as it has pinned memory for, copies that, and asks for more (staging.go). Where the message is in device
//	          memory of the same host, one copy moves it (sharing.go). Between hosts an adapter that reaches device
//	          memory moves it (adapter.go).
//
// Neither side knows beforehand what kind of memory the other has.
//
// The buffer is the library's as long as a copy of it is under way, whatever happens: complete does not end the request
// before (Request.hold).

var (
	// ErrDevice means that a device, or its driver, has failed. It is wrapped with what it said.
	ErrDevice = errors.New("the device has failed")
	// errBroken is what a receive ends with whose sender cannot read its message.
	errBroken = fmt.Errorf("%w: at the sender, while it read the message", ErrDevice)
	// errNoDevices is for engines that leave matching to a library.
	errNoDevices = fmt.Errorf("%w: device memory cannot be sent through a device that matches by itself; "+
		"choose other transports with GORUN_TRANSPORTS", transport.ErrUnavailable)
	errTwoDrivers = fmt.Errorf("%w: its memory is of another driver than that of earlier messages", ErrDevice)
)

// deviceOp is what a request has whose message is in device memory. The engine's lock guards it.
type deviceOp struct {
	a *accelerators
	r *Request
	b accel.Buffer

	host    bool  // the message goes into memory of the host: b is nothing, and there are no copies (hostparts.go)
	inParts bool  // of a send: it has been asked for parts, or has asked its receiver to do that
	copies  int   // under way, of its buffer
	over    bool  // complete has been told: it ends when nothing is under way any more
	done    bool  // the request has ended, and may be another's
	mark    mark  // of the user's stream, which comes before the copies
	waiting *pool // in whose line it stands; nil: in none

	// buf is pinned memory that a send has, for bytes from … from+n of the message, of which the first ready are there,
	// until its bytes are sent.
	buf     *pinned
	from, n int64
	ready   int64
	broken  error  // of a send: its message cannot be read, and some copies of it are under way
	parts   []part // of a receive: what it has asked for and is not here, in order
	rest    []byte // of a receive: what has come of a short message, from from on, and is not being copied yet

	share   share
	reading reading
}

// accelerators are what an engine needs for messages in device memory: pinned memory and the copies under way. It is
// made for the first such message.
type accelerators struct {
	e       *Engine
	driver  accel.Driver     // nil: this rank has no message in device memory, and receives such (hostparts.go)
	inner   transport.Device // the engine's, which the accelerators are polled before
	bell    *eventset.Bell   // rings when copies have ended, while the rank sleeps
	mem     []byte           // pinned
	file    *memfile.Memory  // in which mem is; nil: no other process can map it
	spare   []*spareMem      // which has taken the part of some of it
	out     side             // for sends
	in      side             // for receives. Two sides: a send never waits for a receive
	under   []copying        // oldest first of each device
	started map[int]int      // how many of them are on the stream of a device
	streams []*userStream    // that messages wait for
	since   time.Time        // when one of them has come or gone last
	marks   atomic.Uint64    // number of the last mark
	aside   int              // calls of beside that go on
	ended   bool             // finish has been called
	using   map[uint64]int   // how many requests that have not ended use an allocation, by its ID
	over    chan struct{}    // closed when no copy and no idle region is left after that

	notShared bool   // the log has the reason why memory is not shared with a rank of this host
	lastLent  uint64 // number of what was lent last
	uses      uint64 // messages that have been lent, or that an adapter was to move, ever
	forgets   []forgetter

	adapters []*adapter
	full     []*deviceOp // receives whose link had no room for their READ
}

// startedMost is how many copies the library's stream of a device has at a time. A driver whose stream is full blocks
// its caller, which has the engine's lock.
const startedMost = 256

// copying is a copy that is under way, or is started when there is room for it: then event is 0.
type copying struct {
	device int
	event  accel.Event
	dst    uint64
	src    uint64
	n      int64
	op     *deviceOp // whose buffer it touches; nil: of none
	from   uint64    // ID of the allocation that it reads, where that is another rank's of this process
	asked  bool      // the bell rings some time after its end
	end    func(error)
}

// MovesDevices reports whether this engine moves messages in device memory. It does not where it leaves matching to a
// library.
func (e *Engine) MovesDevices() bool { return e.direct }

// useAccelerator returns what messages of that driver need. The lock is not held: pinning takes long.
func (e *Engine) useAccelerator(d accel.Driver) (*accelerators, error) {
	if !e.direct {
		return nil, errNoDevices
	}
	ts := &e.links.transfers
	ts.making.Lock()
	defer ts.making.Unlock()
	e.lock()
	a, closed := ts.accel, e.closed
	if closed == nil { // Close waits: the memory may be there
		e.wg.Add(1)
		defer e.wg.Done()
	}
	e.unlock()
	switch {
	case closed != nil:
		return nil, closed
	case a != nil && a.driver == d:
		return a, nil
	case a != nil && a.driver != nil:
		return nil, errTwoDrivers
	}
	made := a == nil
	if made {
		var err error
		if a, err = e.newAccelerators(); err != nil {
			return nil, err
		}
	}
	err := a.pin(d)
	if err == nil {
		err = a.begin(d)
	}
	if err != nil && made {
		a.unmap()
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// newAccelerators are without a driver. Their memory is not pinned.
func (e *Engine) newAccelerators() (*accelerators, error) {
	a := &accelerators{e: e, using: map[uint64]int{}, started: map[int]int{}, over: make(chan struct{})}
	return a, a.mapMemory()
}

// begin begins to use d, for which the memory is pinned.
func (a *accelerators) begin(d accel.Driver) error {
	e := a.e
	bell, err := eventset.NewBell(e.sleep.Interrupt)
	if err != nil {
		a.notBegun(d)
		return err
	}
	e.lock()
	defer e.unlock()
	if e.gone {
		a.notBegun(d)
		bell.Close()
		return e.closed
	}
	a.driver, a.bell = d, bell
	a.inner, e.dev = e.dev, (*copyingDevice)(a)
	e.sleep.Through(e.dev)
	e.links.transfers.accel = a
	return nil
}

// notBegun ends pin.
func (a *accelerators) notBegun(d accel.Driver) {
	d.Unpin(a.mem)
	for _, s := range a.spare {
		if s.pinned {
			s.pinned = d.Unpin(s.mem) != nil
		}
	}
}

// mapMemory makes the memory that will be pinned.
func (a *accelerators) mapMemory() error {
	s := &stagingSizes
	each := s.small*s.smalls + s.large*s.larges
	var err error
	if a.file, err = memfile.Create(int(2*each), int(each)); err == nil {
		a.mem = a.file.Bytes()
	} else {
		a.mem, err = unix.Mmap(-1, 0, int(2*each), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	}
	if err != nil {
		return fmt.Errorf("%w: mapping %d bytes to pin: %w", transport.ErrNoMemory, 2*each, err)
	}
	a.in.init(a.mem[:each], a.file != nil)
	a.out.init(a.mem[each:], false)
	return nil
}

// pin pins the memory. What has taken the part of some of it is pinned if that can be.
func (a *accelerators) pin(d accel.Driver) error {
	for i := len(a.mem) / 2; i < len(a.mem); i += 4096 {
		a.mem[i] = 0 // pinning is faster where there are pages; the first half may be in use
	}
	if err := d.Pin(a.mem); err != nil {
		return fmt.Errorf("%w: pinning %d bytes: %w", ErrDevice, len(a.mem), err)
	}
	a.e.lock()
	spare := a.spare
	a.e.unlock()
	for _, s := range spare {
		s.pinned = d.Pin(s.mem) == nil
	}
	return nil
}

func (a *accelerators) unpin() {
	switch {
	case a.driver == nil || a.driver.Unpin(a.mem) == nil:
		a.unmap()
	case a.file != nil: // a device may reach the memory still: it stays mapped
		a.file.Hide()
	}
	for _, s := range a.spare {
		s.free(a)
	}
	a.mem, a.spare = nil, nil
}

func (a *accelerators) unmap() {
	if a.file != nil {
		a.file.Close()
	} else {
		unix.Munmap(a.mem)
	}
}

// copyingDevice is the engine's device with the copies that are under way: they are polled with it, and end a sleep.
type copyingDevice accelerators

func (c *copyingDevice) Name() string                { return c.inner.Name() }
func (c *copyingDevice) Address() []byte             { return c.inner.Address() }
func (c *copyingDevice) Facts() *transport.Facts     { return c.inner.Facts() }
func (c *copyingDevice) Disarm()                     { c.inner.Disarm() }
func (c *copyingDevice) Close() error                { return c.inner.Close() }
func (c *copyingDevice) accelerators() *accelerators { return (*accelerators)(c) }

func (c *copyingDevice) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	return c.inner.Connect(ctx, peer, address)
}

func (c *copyingDevice) Poll(pkts []transport.Packet) int {
	if len(c.under)+len(c.streams) > 0 {
		c.accelerators().poll()
	}
	n := c.inner.Poll(pkts)
	if len(c.full) > 0 {
		c.accelerators().readAgain()
	}
	return n
}

// Arm reports whether the rank may sleep. It arms the inner device first. A bell that rings before that ends no sleep:
// a copy may end, and a stream come to its mark, as soon as the driver has been asked to ring.
func (c *copyingDevice) Arm(level transport.Level) bool {
	if !c.inner.Arm(level) {
		return false
	}
	if a := c.accelerators(); len(a.under)+len(a.streams) > 0 {
		if a.poll() > 0 {
			c.inner.Disarm()
			return false
		}
		a.notify()
		a.askLater()
	}
	return true
}

// notify has the bell rung when what is under way has ended. A device that is to ring behind a copy that is under way
// is not asked again: what it is asked for stays on its stream until then, and a driver whose stream is full blocks.
func (a *accelerators) notify() {
	for i := range a.under {
		dev := a.under[i].device
		of := func(c copying) bool { return c.device == dev }
		if slices.ContainsFunc(a.under, func(c copying) bool { return of(c) && c.asked }) {
			continue
		}
		a.bell.Expect()
		if a.driver.Notify(dev, a.bell.FD()) != nil {
			a.bell.Ring() // look again at once, and as often as it takes
			continue
		}
		for j := range a.under {
			a.under[j].asked = a.under[j].asked || of(a.under[j]) && a.under[j].event != 0
		}
	}
}

// poll ends the copies that are over, and goes on with the messages whose streams have come to their marks. It returns
// how many. The copies of one device end in their order: behind one that is under way no other is asked about.
func (a *accelerators) poll() (n int) {
	n = a.pollStreams()
	waits := uint64(0)
	for i := 0; i < len(a.under); {
		c := a.under[i]
		bit := uint64(1) << (c.device & 63)
		var done bool
		var err error
		if c.event == 0 {
			err = a.tryStart(&a.under[i])
		} else if waits&bit == 0 {
			if done, err = a.driver.Done(c.device, c.event); done || err != nil {
				a.started[c.device]--
			} else {
				waits |= bit
			}
		}
		if !done && err == nil {
			i++
			continue
		}
		a.under = append(a.under[:i], a.under[i+1:]...)
		n++
		if c.op != nil {
			c.op.copies--
		}
		c.end(err)
		if c.op != nil {
			c.op.settle()
		}
		i = 0 // the list may be another
	}
	if n > 0 {
		a.ends()
		a.forgetting()
	}
	return n
}

// start starts a copy of n bytes on a device. end is told how it has ended, unless start returns an error.
func (a *accelerators) start(op *deviceOp, device int, dst, src uint64, n int64, end func(error)) error {
	c := copying{device: device, dst: dst, src: src, n: n, op: op, end: end}
	if !a.queue(device) {
		if err := a.tryStart(&c); err != nil {
			return deviceError("starting a copy", err)
		}
	}
	if op != nil {
		op.copies++
	}
	a.under = append(a.under, c)
	a.begins()
	return nil
}

// queue reports whether copies of a device wait to be started.
func (a *accelerators) queue(device int) bool {
	for i := len(a.under) - 1; i >= 0; i-- {
		if a.under[i].device == device {
			return a.under[i].event == 0
		}
	}
	return false
}

// tryStart starts c if there is room for it on the device's stream. The copies before it have been started.
func (a *accelerators) tryStart(c *copying) (err error) {
	if a.started[c.device] < startedMost {
		if c.event, err = a.driver.Copy(c.device, c.dst, c.src, c.n); err == nil {
			a.started[c.device]++
		}
	}
	return err
}

// begins is called when there is one more thing to poll for.
func (a *accelerators) begins() {
	if len(a.under)+len(a.streams) == 1 {
		a.leaveShorts(true)
	}
	// Whoever sleeps, or is about to be left asleep, must have asked for the bell.
	a.e.wait.isNot()
	a.e.wakeLeader()
}

// ends is called when there is less to poll for.
func (a *accelerators) ends() {
	if len(a.under)+len(a.streams) == 0 {
		a.leaveShorts(false)
	}
}

// leaveShorts leaves all messages to Poll while there is something to poll for, which a look for short ones would pass
// over.
func (a *accelerators) leaveShorts(on bool) {
	s := &a.e.links.shorts
	if a.e.closed != nil || s.next == nil {
		return
	}
	if s.next = a.inner.Facts().Short; on {
		s.next = func() (transport.Short, []byte, transport.Found) { return transport.Short{}, nil, transport.FoundOther }
	}
}

// finish is called when the engine has failed and is not polled any more. It returns when no copy is under way. The
// lock is held, and given up meanwhile.
func (a *accelerators) finish() {
	if a == nil || a.ended {
		return
	}
	a.ended = true
	for _, s := range []*side{&a.in, &a.out} {
		for _, p := range []*pool{&s.small, &s.large} {
			for p.line.len() > 0 {
				op := p.line.items()[0]
				p.line.pop()
				op.waiting, op.rest = nil, nil
				op.r.fails(a.e.closed)
				op.settle()
			}
		}
	}
	a.leaveStreams()
	for len(a.under) > 0 {
		if a.poll() == 0 {
			a.notify()
			a.e.unlock()
			a.bell.Await()
			a.e.lock()
		}
	}
	for _, p := range a.e.links.peers {
		if p != nil {
			p.unshare()
		}
	}
	a.dropRegions()
	close(a.over)
	a.forgetting()
	a.e.unlock()
	if a.bell != nil {
		a.bell.Close()
	}
	a.unpin()
	a.e.lock()
}

// IsendDevice is Isend of a message in device memory.
func (e *Engine) IsendDevice(cc context.Context, ctx uint32, dest int, tag int32, b accel.Buffer, mode Mode) *Request {
	return e.ReadyDevice(b).Isend(cc, ctx, dest, tag, mode)
}

// IrecvDevice is Irecv into device memory.
func (e *Engine) IrecvDevice(cc context.Context, ctx uint32, source int, tag int32, b accel.Buffer) *Request {
	return e.ReadyDevice(b).Irecv(cc, ctx, source, tag)
}

// Ready is device memory in which a message can begin: the driver has done what may fail before that. A caller that
// tells another rank of a message looks at Err before. Isend, Irecv or Drop takes a Ready.
type Ready struct {
	Err error // why no message can begin; nil: one can

	e *Engine
	a *accelerators // nil: there are no bytes, or there is an error
	b accel.Buffer
	m mark
}

// ReadyDevice prepares a message in b, which takes long for the first one. It blocks while the stream of b is full.
func (e *Engine) ReadyDevice(b accel.Buffer) Ready {
	d := Ready{e: e, b: b}
	if b.Len > 0 {
		d.a, d.m, d.Err = e.useBuffer(&b)
	}
	return d
}

// Isend starts a send from d. It is over at once if d has an error.
func (d Ready) Isend(cc context.Context, ctx uint32, dest int, tag int32, mode Mode) *Request {
	e := d.e
	if d.b.Len == 0 {
		return e.Isend(cc, ctx, dest, tag, nil, mode)
	}
	e.lock()
	defer e.unlock()
	r := e.requests.handle()
	r.prepareSend(cc, ctx, dest, tag, nil, mode)
	r.buf.Len, r.announce = int(d.b.Len), true
	e.startDevice(r, d.a, d.b, d.m, d.Err)
	return r
}

// Irecv starts a receive into d, likewise.
func (d Ready) Irecv(cc context.Context, ctx uint32, source int, tag int32) *Request {
	e := d.e
	if d.b.Len == 0 {
		return e.Irecv(cc, ctx, source, tag, nil)
	}
	e.lock()
	defer e.unlock()
	r := e.requests.handle()
	r.prepareRecv(cc, ctx, source, tag, nil)
	e.startDevice(r, d.a, d.b, d.m, d.Err)
	return r
}

// Drop gives up d: no message begins in it.
func (d Ready) Drop() {
	if d.Err == nil && d.a != nil {
		d.a.dropMark(&d.b, d.m)
	}
}

// MrecvDevice is Imrecv into device memory.
func (e *Engine) MrecvDevice(cc context.Context, m *Message, b accel.Buffer) (*Request, error) {
	if b.Len == 0 {
		return e.Imrecv(cc, m, nil)
	}
	a, place, err := e.useBuffer(&b)
	if err != nil {
		return nil, err
	}
	e.lock()
	defer e.unlock()
	if m.recv {
		a.dropMark(&b, place)
		return nil, fmt.Errorf("%w: the message has been received already", ErrRequest)
	}
	m.recv = true
	r := e.requests.handle()
	r.prepareRecv(cc, m.ctx, int(m.status.Source), m.status.Tag, nil)
	r.state, r.err = stActive, nil
	e.load.outstanding++
	r.onDevice(a, b, place)
	if e.gone { // and so is the device's memory
		e.complete(r, e.closed)
	} else {
		e.path.take(m.found, r)
	}
	e.exitCall()
	return r, nil
}

// startDevice starts r, or ends it with err.
func (e *Engine) startDevice(r *Request, a *accelerators, b accel.Buffer, m mark, err error) {
	if err == nil && b.Len > math.MaxInt {
		a.dropMark(&b, m)
		err = fmt.Errorf("%w: %d bytes", ErrRequest, b.Len)
	}
	if err != nil {
		r.state, r.err, r.status = stActive, nil, Status{}
		e.load.outstanding++
		e.complete(r, err)
		e.exitCall()
		return
	}
	r.onDevice(a, b, m)
	e.start(r)
	e.exitCall()
}

// onDevice says where the message of r is, and what comes before its copies.
func (r *Request) onDevice(a *accelerators, b accel.Buffer, m mark) {
	o := &deviceOp{a: a, r: r, b: b, mark: m}
	a.using[b.Memory.ID]++
	r.extra, r.hold = true, holdCopies
	r.pieces = &pieces{unpacker: o, device: o}
}

// device is what r has besides if its message is in device memory, else nil.
func (r *Request) device() *deviceOp {
	if r.pieces == nil {
		return nil
	}
	return r.pieces.device
}

// held is called when r is over but for its copies. It reports whether some are under way.
func (o *deviceOp) held() bool {
	o.over = true
	o.flush()
	o.letGo()
	if o.busy() {
		return true
	}
	if n := o.a.using[o.b.Memory.ID] - 1; n > 0 {
		o.a.using[o.b.Memory.ID] = n
	} else {
		delete(o.a.using, o.b.Memory.ID)
	}
	o.r.hold, o.done = holdNothing, true
	return false
}

// busy reports whether something goes on with the buffer without a peer.
func (o *deviceOp) busy() bool { return o.copies > 0 || len(o.rest) > 0 }

// settle ends a request that was held.
func (o *deviceOp) settle() {
	if o.over && !o.done && !o.busy() {
		o.a.e.complete(o.r, nil)
	}
}

// letGo gives back what an operation has that will not go on, but for what copies touch. What has come goes on.
func (o *deviceOp) letGo() {
	o.unlend()
	o.unread()
	if len(o.rest) == 0 {
		o.unmark()
	}
	if len(o.a.full) > 0 {
		o.a.full = slices.DeleteFunc(o.a.full, func(other *deviceOp) bool { return other == o })
	}
	if o.waiting != nil && len(o.rest) == 0 {
		o.waiting.leave(o)
	}
	if o.buf != nil && o.ready == o.n { // else copies into it are under way, or will be settled by the last one
		o.giveBack()
	}
	parts := o.parts
	o.parts = nil
	for _, q := range parts {
		if q.mayFill {
			o.a.retire(q.b)
		} else {
			q.b.pool.put(q.b)
		}
	}
}

// giveBack gives back the pinned memory.
func (o *deviceOp) giveBack() {
	b := o.buf
	o.buf, o.n, o.ready = nil, 0, 0
	b.pool.put(b)
}

// deviceError is what a driver has answered.
func deviceError(what string, err error) error { return fmt.Errorf("%w: %s: %w", ErrDevice, what, err) }

// fails notes why r ends; the first reason counts.
func (r *Request) fails(err error) {
	if r.err == nil {
		r.err = err
	}
}

// onDevice handles the packets that are about messages in device memory.
func (ts *transfers) onDevice(p *peer, h *wire.Header, payload []byte) {
	switch h.Kind {
	case wire.Ask:
		ts.onAsk(p, h, payload)
	case wire.Filled:
		ts.onFilled(p, h)
	case wire.AskParts:
		ts.onAskParts(p, h)
	case wire.Broken:
		ts.onBroken(p, h)
	case wire.HandleReq:
		ts.onHandleReq(p, h)
	case wire.Handle:
		ts.onHandle(p, h, payload)
	case wire.Unmap:
		ts.onUnmap(p, h)
	case wire.Unmapped:
		ts.onUnmapped(p, h)
	}
}

package pml

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Messages from device memory to device memory of one host: one copy moves them.
//
//	sender                                  receiver
//	  │  RTS  Device                           │
//	  ├───────────────────────────────────────►│ matched
//	  │◄───────────────────────────── HandleReq┤
//	  ├ Handle  allocation, offset ───────────►│ opens the allocation, unless it has it open
//	  │                                        │ copies
//	  │◄─────────────────────────────────── FIN┤
//
// Where the sender cannot share its memory, or the receiver not open it, the receiver asks for a stream (staging.go).
//
// The sender alone decides what stays open: it numbers the allocations that a peer may have open (lent), and has the
// least recently used one closed (Unmap) where there are too many, or before its memory is freed. Memory that is freed
// and allocated again at the same address is another allocation, with another number: the peer opens that anew. The
// receiver keeps what the numbers stand for (borrowed).

const (
	// lentMost is how many allocations a peer may have open of this rank's.
	lentMost = 16
	// closingMost is how many it is asked to close at a time, beside these.
	closingMost = 16
	// handleMost is the longest handle that is believed to be one.
	handleMost = 1 << 10
)

// Values of Tag in Handle.
const (
	notReached  = iota // the receiver asks for a stream
	reachedOpen        // by opening the allocation
	reachedHere        // the receiver is in this process: ID is in direct
)

// share is what a deviceOp knows of its other end.
type share struct {
	offered bool   // of a receive: the message is in device memory
	id      uint64 // likewise: the sender's number of it
	unready bool   // likewise: it waits for the sender's stream
	asked   bool   // likewise: a Handle is to come
	at      uint64 // likewise: where it is in the allocation
	located bool   // of a send: it has been asked where it is
	here    bool   // likewise: by a receiver in this process
	held    bool   // likewise: the answer waits for the user's stream
	lent    *lent  // likewise: of which the receiver copies it
	direct  uint64 // likewise: its number in direct; 0: none
}

// shares are what this rank and a peer have open of each other.
type shares struct {
	lent     []*lent
	borrowed map[uint64]*borrowed // by the peer's number
	pool     *peerPool            // the peer's pinned memory; nil: the peer has not shared any
	lentPool bool                 // this rank's has been shared with the peer
}

// lent is an allocation of this rank that a peer may have open.
type lent struct {
	number  uint64
	id      uint64 // of its Memory
	size    int64
	offset  int64 // of its Memory in it
	users   int   // messages that the peer copies
	used    uint64
	forget  bool // it is to be closed when there are no users
	closing bool // the peer has been asked to
}

// borrowed is an allocation of a peer.
type borrowed struct {
	handle []byte
	size   int64
	users  int // copies under way, and receives that wait until it is open
	gone   bool
	open   map[int]*opened // by the device that copies
}

// opened is such an allocation as one device has it.
type opened struct {
	addr    uint64
	known   bool  // Open has answered
	err     error // so
	waiting []*deviceOp
}

// direct are messages that a receiver in this process copies.
var direct = struct {
	sync.Mutex
	messages   map[uint64]directMessage
	identities map[accel.Driver]uint64 // a number that no other process knows
}{messages: map[uint64]directMessage{}, identities: map[accel.Driver]uint64{}}

type directMessage struct {
	b   accel.Buffer
	key uint64 // the receiver's number
}

// identity tells two ranks of one process that they have one driver.
func identity(d accel.Driver) uint64 {
	direct.Lock()
	defer direct.Unlock()
	id := direct.identities[d]
	for id == 0 {
		id = rand.Uint64()
		direct.identities[d] = id
	}
	return id
}

// lendDirect puts a message into direct.
func lendDirect(b accel.Buffer, key uint64) uint64 {
	direct.Lock()
	defer direct.Unlock()
	for {
		if n := rand.Uint64(); n != 0 && direct.messages[n].b.Driver == nil {
			direct.messages[n] = directMessage{b, key}
			return n
		}
	}
}

// takeDirect takes it out again.
func takeDirect(n uint64) directMessage {
	direct.Lock()
	defer direct.Unlock()
	m := direct.messages[n]
	delete(direct.messages, n)
	return m
}

// beside runs work, which may take long, beside the engine, and then what it returns with the lock.
func (a *accelerators) beside(work func() (then func())) {
	e := a.e
	e.wg.Add(1)
	a.aside++
	go func() {
		defer e.wg.Done()
		then := work()
		e.lock()
		a.aside--
		then()
		e.exitCall()
		e.unlock()
	}()
}

func (p *peer) sharing() *shares {
	if p.shares == nil {
		p.shares = &shares{borrowed: map[uint64]*borrowed{}}
	}
	return p.shares
}

// The sending end.

// onHandleReq is called when the receiver asks where a message is.
func (ts *transfers) onHandleReq(p *peer, h *wire.Header) {
	t := ts.sending(p, h.ID, "it asked for")
	switch {
	case t == nil:
	case t.r.device() == nil:
		p.breaks("it asked where in device memory a message is that is in none")
	case t.snd.Asked() || t.r.device().share.located:
		p.breaks("it asked again for a message that it has asked for")
	default:
		o := t.r.device()
		t.snd.OnHandleReq(h.Key)
		o.reading.byKey = h.Len == wantsRead
		o.share.located, o.share.here = true, !o.reading.byKey && h.Addr == identity(o.b.Driver)
		if o.share.held = !o.mayTouch(); !o.share.held {
			o.answer()
		}
	}
}

// answerHere tells a receiver in this process that the message is in the buffer of o. It copies in the library's stream
// of its device.
func (o *deviceOp) answerHere(t *transfer) {
	o.share.direct = lendDirect(o.b, t.snd.To())
	t.peer.sendControl(wire.Header{Kind: wire.Handle, Flags: wire.Urgent, Key: t.snd.To(), Tag: reachedHere,
		ID: o.share.direct})
}

// answer tells the receiver where the message is, which is there.
func (o *deviceOp) answer() {
	if o.reading.byKey {
		o.answerRead()
		return
	}
	t, m := o.r.transfer, o.b.Memory
	if o.share.here {
		o.answerHere(t)
		return
	}
	if !t.peer.link.Caps().SameHost { // it has only waited
		o.refuse()
		return
	}
	s := t.peer.sharing()
	if l := s.find(m.ID); l != nil {
		o.lend(l, nil)
		return
	}
	if !s.room(t.peer) {
		o.refuse()
		return
	}
	o.a.beside(func() func() {
		handle, offset, err := o.a.driver.Export(m)
		return func() {
			switch t := o.r.transfer; {
			case o.over || t == nil || t.failed != nil:
			case err != nil || offset < 0 || len(handle) == 0 || len(handle) > handleMost || offset > math.MaxInt64-m.Size:
				o.a.tellNotShared(err)
				o.refuse()
			default:
				if l := s.find(m.ID); l != nil { // another message has been faster
					o.lend(l, nil)
				} else if !s.room(t.peer) {
					o.refuse()
				} else {
					o.a.lastLent++
					l := &lent{number: o.a.lastLent, id: m.ID, size: offset + m.Size, offset: offset}
					s.lent = append(s.lent, l)
					o.lend(l, handle)
				}
			}
		}
	})
}

// find is what is lent of an allocation; nil: nothing, or it is being closed.
func (s *shares) find(id uint64) *lent {
	for _, l := range s.lent {
		if l.id == id && !l.closing && !l.forget {
			return l
		}
	}
	return nil
}

// room makes room for one more allocation. It reports whether there is.
func (s *shares) room(p *peer) bool {
	var oldest *lent
	open := 0
	for _, l := range s.lent {
		if l.closing {
			continue
		}
		if open++; l.users == 0 && (oldest == nil || l.used < oldest.used) {
			oldest = l
		}
	}
	if open < lentMost {
		return true
	}
	if oldest == nil || len(s.lent) >= lentMost+closingMost {
		return false
	}
	oldest.unmap(p)
	return true
}

func (l *lent) unmap(p *peer) {
	l.closing = true
	p.sendControl(wire.Header{Kind: wire.Unmap, Flags: wire.Wake | wire.Urgent, ID: l.number})
}

func (o *deviceOp) refuse() {
	t := o.r.transfer
	t.peer.sendControl(wire.Header{Kind: wire.Handle, Flags: wire.Urgent, Key: t.snd.To(), Tag: notReached})
}

func (o *deviceOp) lend(l *lent, handle []byte) {
	o.a.uses++
	o.share.lent, l.used = l, o.a.uses
	l.users++
	t := o.r.transfer
	t.peer.sendWith(wire.Header{Kind: wire.Handle, Flags: wire.Urgent, Key: t.snd.To(), Tag: reachedOpen,
		ID: l.number, Len: uint64(l.size), Addr: uint64(l.offset) + o.b.Addr - o.b.Memory.Base}, handle)
}

// unlend is called when the message of a send is over.
func (o *deviceOp) unlend() {
	if l := o.share.lent; l != nil {
		o.share.lent = nil
		if l.users--; l.users == 0 && l.forget && !l.closing {
			l.unmap(o.r.peer)
		}
	}
	if o.share.direct != 0 {
		takeDirect(o.share.direct)
		o.share.direct = 0
	}
}

// onUnmapped is called when the peer has closed an allocation.
func (ts *transfers) onUnmapped(p *peer, h *wire.Header) {
	s := p.sharing()
	i := slices.IndexFunc(s.lent, func(l *lent) bool { return l.number == h.ID && l.closing })
	if i < 0 {
		p.breaks("it closed memory that it was not asked to close")
		return
	}
	s.lent = slices.Delete(s.lent, i, i+1)
	ts.accel.forgetting()
}

// The receiving end.

// askWhere asks the sender where the message is, if this rank may be able to reach it. It reports whether it has.
func (o *deviceOp) askWhere(t *transfer) bool {
	if !o.share.offered || !t.peer.link.Caps().SameHost {
		return false
	}
	o.request(t, wire.Header{Addr: identity(o.b.Driver)})
	return true
}

// request sends a HandleReq. Its answer comes when the message is ready.
func (o *deviceOp) request(t *transfer, h wire.Header) {
	o.share.asked, o.share.unready = true, false
	h.Kind, h.Flags, h.ID, h.Key = wire.HandleReq, wire.Urgent, o.share.id, t.id
	t.peer.sendControl(h)
}

// onHandle takes the sender's answer, which may say anything.
func (ts *transfers) onHandle(p *peer, h *wire.Header, handle []byte) {
	t := ts.receiving(p, h.Key)
	if t == nil {
		return // over: its sender has failed it
	}
	o := t.r.device()
	if o == nil || !o.share.asked {
		p.breaks("it said where a message is, and was not asked")
		return
	}
	o.share.asked = false
	toRead := o.reading.asked
	o.reading.asked = false
	switch {
	case h.Tag == notReached:
		o.askMore(t)
	case toRead != (h.Tag == reachedRead):
		p.breaks("it said where a message is in another way than it was asked to")
	case toRead:
		o.reading.addr, o.reading.key = h.Addr, h.ID
		o.read(t)
	case h.Tag == reachedHere:
		m := takeDirect(h.ID)
		if m.b.Driver != o.b.Driver || m.key != t.id || m.b.Len != t.rcv.Size() {
			p.breaks("it said that a message is in this process, which has no such message")
			return
		}
		o.pull(t, m.b.Addr, &m.b, nil)
	default:
		o.reach(t, h, handle)
	}
}

// reach copies the message from the allocation that the sender says, when that is open.
func (o *deviceOp) reach(t *transfer, h *wire.Header, handle []byte) {
	p := t.peer
	s := p.sharing()
	b := s.borrowed[h.ID]
	switch {
	case h.Len > math.MaxInt64 || h.Addr > h.Len || uint64(t.rcv.Size()) > h.Len-h.Addr:
		p.breaks("it said that a message is where there is no memory for it")
		return
	case b == nil && (len(handle) == 0 || len(handle) > handleMost || len(s.borrowed) >= lentMost):
		p.breaks("it said that a message is in memory that it has not shared, or it shares too much")
		return
	case b != nil && (len(handle) != 0 || b.size != int64(h.Len)):
		p.breaks("it shares memory twice")
		return
	case b == nil:
		b = &borrowed{handle: slices.Clone(handle), size: int64(h.Len), open: map[int]*opened{}}
		s.borrowed[h.ID] = b
	}
	device := o.b.Memory.Device
	at := b.open[device]
	if at == nil {
		at = &opened{}
		b.open[device] = at
		o.a.beside(func() func() {
			addr, err := o.a.driver.Open(device, b.handle, b.size)
			return func() { o.a.hasOpened(b, device, at, addr, err) }
		})
	}
	o.share.at = h.Addr
	b.users++
	if !at.known {
		at.waiting = append(at.waiting, o)
		return
	}
	o.copyFrom(t, b, at)
}

const notSharedBecause = "messages between devices of this host go through pinned memory, not by one copy"

// tellNotShared says once why one copy does not move the messages.
func (a *accelerators) tellNotShared(why error) {
	if debug := a.e.cfg.Debug; debug != nil && !a.notShared {
		a.notShared = true
		debug(notSharedBecause, "because", why)
	}
}

// hasOpened is called when Open has answered.
func (a *accelerators) hasOpened(b *borrowed, device int, at *opened, addr uint64, err error) {
	if err != nil {
		a.tellNotShared(err)
	}
	at.addr, at.err, at.known = addr, err, true
	waiting := at.waiting
	at.waiting = nil
	for _, o := range waiting {
		if o.over {
			b.leave(a)
			continue
		}
		o.copyFrom(o.r.transfer, b, at)
	}
	if b.gone && b.users == 0 {
		b.close(a, nil)
	}
}

// copyFrom is reach with an answer of Open.
func (o *deviceOp) copyFrom(t *transfer, b *borrowed, at *opened) {
	if at.err != nil {
		b.users--
		o.askMore(t)
		return
	}
	o.pull(t, at.addr+o.share.at, nil, b)
}

// leave is called when a receive does not use b any more.
func (b *borrowed) leave(a *accelerators) {
	if b.users--; b.users == 0 && b.gone {
		b.close(a, nil)
	}
}

// close closes b, which has no users and is off its peer's list. then is called with the lock.
func (b *borrowed) close(a *accelerators, then func()) {
	var addrs []uint64
	var devices []int
	for device, at := range b.open {
		if !at.known {
			return // hasOpened comes again
		}
		if at.err == nil {
			addrs, devices = append(addrs, at.addr), append(devices, device)
		}
	}
	b.open = nil
	if then == nil {
		then = func() {}
	}
	work := func() func() {
		for i, addr := range addrs {
			a.driver.Close(devices[i], addr)
		}
		return then
	}
	if a.ended {
		work()
		return
	}
	a.beside(work)
}

// pull copies the message from addr: here is the buffer there if it is in this process, b the allocation if it is not.
func (o *deviceOp) pull(t *transfer, addr uint64, here *accel.Buffer, b *borrowed) {
	a, device := o.a, o.b.Memory.Device
	err := a.start(o, device, o.b.Addr, addr, t.rcv.Left(), func(err error) {
		if err != nil {
			o.r.fails(deviceError("copying the message from device to device", err))
		}
		o.pulled(b)
	})
	switch {
	case err != nil:
		o.r.fails(err)
		o.pulled(b)
	case here != nil:
		a.under[len(a.under)-1].from = here.Memory.ID
	}
}

// pulled is called when the message is there, or will not come.
func (o *deviceOp) pulled(b *borrowed) {
	if b != nil {
		b.leave(o.a)
	}
	if t := o.r.transfer; !o.over && t != nil && t.failed == nil {
		o.a.e.links.transfers.onReceiver(t, t.rcv.Over())
	}
}

// onUnmap is called when the peer wants an allocation closed.
func (ts *transfers) onUnmap(p *peer, h *wire.Header) {
	s := p.sharing()
	b := s.borrowed[h.ID]
	if b == nil || b.users > 0 {
		p.breaks("it asked to close memory that is not open, or is in use by a message of its own")
		return
	}
	delete(s.borrowed, h.ID)
	id := h.ID
	b.close(ts.accel, func() { p.sendControl(wire.Header{Kind: wire.Unmapped, Flags: wire.Urgent, ID: id}) })
}

// unshare is called when p has failed.
func (p *peer) unshare() {
	s := p.shares
	p.shares = nil
	if s == nil {
		return
	}
	a := p.l.transfers.accel
	for _, b := range s.borrowed {
		if b.gone = true; b.users == 0 {
			b.close(a, nil)
		}
	}
	if s.pool != nil {
		s.pool.gone = true
		s.pool.closeIfDue(a)
	}
	if a != nil {
		a.forgetting()
	}
}

// Forgetting.

// forgetter waits until an allocation may be freed.
type forgetter struct {
	r  *Request
	id uint64
}

// ForgetDevice returns when no peer has the allocation open any more, or has died, no adapter knows it, and no copy
// touches it; then its memory may be freed. The caller starts no message from or to it meanwhile.
func (e *Engine) ForgetDevice(m accel.Memory) error {
	e.lock()
	defer e.unlock()
	a := e.links.transfers.accel
	if a == nil {
		return nil
	}
	if a.ended {
		e.unlock()
		<-a.over
		e.lock()
		return nil
	}
	for _, p := range e.links.peers {
		if p == nil || p.shares == nil {
			continue
		}
		for _, l := range p.shares.lent {
			if l.id == m.ID && !l.closing {
				if l.forget = true; l.users == 0 {
					l.unmap(p)
				}
			}
		}
	}
	a.forgetRegions(m.ID)
	r := e.requests.take()
	r.op, r.state, r.err, r.status = opForget, stActive, nil, Status{}
	r.buf, r.cctx, r.peer = transport.Mem{}, nil, nil
	e.load.outstanding++
	a.forgets = append(a.forgets, forgetter{r, m.ID})
	if a.forgetting(); r.state != stDone {
		e.await(r)
	}
	err := r.err
	e.requests.putBack(r)
	e.exitCall()
	return err
}

// DeviceUsers is how many requests that have not ended use an allocation of d. has: there have been messages in memory
// of d.
func (e *Engine) DeviceUsers(d accel.Driver, id uint64) (n int, has bool) {
	e.lock()
	defer e.unlock()
	a := e.links.transfers.accel
	if a == nil || a.driver != d {
		return 0, false
	}
	if a.ended {
		return 0, true
	}
	return a.using[id], true
}

// forgetting ends the waits that may end.
func (a *accelerators) forgetting() {
	a.forgets = slices.DeleteFunc(a.forgets, func(f forgetter) bool {
		if !a.ended && a.touches(f.id) {
			return false
		}
		a.e.complete(f.r, nil)
		return true
	})
}

// touches reports whether a peer may have an allocation open, an adapter may know it, or a copy touches it.
func (a *accelerators) touches(id uint64) bool {
	for i := range a.under {
		if c := &a.under[i]; c.from == id || c.op != nil && c.op.b.Memory.ID == id {
			return true
		}
	}
	for _, p := range a.e.links.peers {
		if p != nil && p.shares != nil && slices.ContainsFunc(p.shares.lent, func(l *lent) bool { return l.id == id }) {
			return true
		}
	}
	return a.hasRegion(id)
}

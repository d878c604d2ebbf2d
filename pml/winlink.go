package pml

import (
	"context"
	"errors"

	"github.com/gorun-mpi/mpi/transport"
)

// Memory of a window that the link itself reads and writes (transport.RMA): the rank whose memory it is lends it to the
// ranks that ask, and has no part in what they do there.
//
// An operation is a transfer without a message, of which no peer knows the number. Its buffer is the library's until
// the link has let go of it, like that of any other transfer.

// Lent is how another rank reaches memory of this one, or this rank that of another one. It is zero where none is
// reached.
type Lent struct {
	Addr, Key            uint64
	Reads, Writes, Steps bool   // what the borrower's link may do there; Steps: atomic steps
	Notes                uint16 // the number of the window in notes there; 0: they are messages
	ByDevice             bool   // all atomic steps there are the device's, also without Steps: a CPU makes none
}

// loan is memory that a rank has been lent.
type loan struct {
	rma *transport.RMA // nil: the memory is not registered
	mem transport.Mem  // keeps it reachable
	Lent
}

// Lend lends memory to a rank of the world, until Withdraw, and tells then how the rank reaches it: now, or when there
// is a link and the link has registered the memory. A window has one memory. It is for Handle.
func (w *Window) Lend(rank int32, mem []byte, then func(Lent)) {
	if l, known := w.loans[rank]; known || w.over || len(mem) == 0 || !w.e.direct || int(rank) == w.e.cfg.Rank {
		l.ByDevice = w.byDevice
		then(l.Lent)
		return
	}
	p := w.e.links.peer(rank)
	if p.link == nil && p.err == nil {
		p.linked = append(p.linked, func() { w.Lend(rank, mem, then) })
		p.ensureConnected()
		return
	}
	g := &lending{w: w, p: p, mem: transport.HostMem(mem), then: then}
	l := loan{mem: g.mem}
	if p.rma != nil && p.err == nil {
		l = g.register()
	}
	if w.loans == nil {
		w.loans = map[int32]loan{}
	}
	w.loans[rank] = l // also while the link is at it: a rank asks once
	if p.rma == nil || p.err != nil || l.Reads || !g.prepare() {
		g.tell(l)
	}
}

// lending is memory that a rank is to be lent.
type lending struct {
	w    *Window
	p    *peer
	mem  transport.Mem
	then func(Lent)
}

// access is what the rank may do.
func (g *lending) access() transport.Access {
	if g.p.rma.Put == nil {
		return transport.Readable | transport.Lasting
	}
	return transport.Readable | transport.Writable | transport.Lasting
}

// register has the link register the memory, unless that takes long and is not prepared.
func (g *lending) register() loan {
	l, rma := loan{mem: g.mem}, g.p.rma
	if addr, key, ok := rma.Register(g.mem, g.access()); ok {
		l.rma = rma
		l.Lent = Lent{Addr: addr, Key: key, Reads: true, Writes: rma.Put != nil}
		l.Steps = g.w.steps && rma.FetchAdd != nil
		if rma.PutNote != nil {
			l.Notes = g.w.number
		}
	}
	return l
}

// prepare has the link begin to register the memory, and reports whether it has. Follow goes on.
func (g *lending) prepare() bool {
	w, e := g.w, g.w.e
	r := e.requests.take()
	if !e.links.transfers.prepareMemory(r, g.p, g.p.rma, g.mem, g.access()) {
		e.requests.putBack(r)
		return false
	}
	e.detach(r)
	r.then, r.window, r.extra = g, w, true
	w.moving++
	return true
}

// Follow implements Follower: the link has registered the memory, or cannot. The window may have ended meanwhile.
func (g *lending) Follow(Status, error) {
	w, l := g.w, loan{mem: g.mem}
	if !w.e.gone {
		l = g.register()
	}
	if !w.over {
		w.loans[g.p.rank] = l
	} else if l.Reads {
		if end := l.revoke(); end != nil {
			go end() // no rank knows the key
		}
		l = loan{mem: g.mem}
	}
	g.tell(l)
}

func (g *lending) tell(l loan) {
	l.ByDevice = g.w.byDevice
	g.then(l.Lent)
}

// Withdraw ends what Lend has lent. An operation of a rank that comes later fails, and that rank's link with it. A link
// may still be registering the memory for a rank that has failed: until WhenIdle.
func (w *Window) Withdraw() {
	for _, end := range w.revoke() {
		end()
	}
}

// revoke is Withdraw but for what it returns, which takes long: the caller calls it without the lock.
func (w *Window) revoke() (ends []func()) {
	w.e.lock()
	defer w.e.unlock()
	for _, l := range w.loans {
		if !l.Reads || w.e.gone {
			continue
		}
		if end := l.revoke(); end != nil {
			ends = append(ends, end)
		}
	}
	w.loans, w.over = nil, true
	w.e.windows.unnumber(w)
	return ends
}

// revoke ends a loan. What it returns takes long, and is called without the lock; nil: the loan has ended.
func (l *loan) revoke() (end func()) {
	if l.rma.Revoke == nil {
		l.rma.Deregister(l.Addr, l.Key)
		return nil
	}
	return l.rma.Revoke(l.Addr, l.Key)
}

// Keep has the memory stay lent as long as the engine lives. It reports whether some rank has been lent it: if not, no
// rank will be.
func (w *Window) Keep() bool {
	w.e.lock()
	defer w.e.unlock()
	w.over = true
	for _, l := range w.loans {
		if l.Reads {
			w.e.windows.kept = append(w.e.windows.kept, w)
			return true
		}
	}
	return false
}

// Reach is memory of another rank that has been lent to this one, and the operations there. Any goroutine may call its
// methods.
type Reach struct {
	p    *peer
	rma  *transport.RMA // of the link to p; or of the device's own way to this rank's memory
	lent Lent

	// Guarded by the engine's lock:
	began          uint64    // operations, ever
	oldest, newest *transfer // those under way, linked by transfer.one
	flushes        fifo[flush]
	err            error // of an operation that is over, of which no Flush has told
}

// flush is a wait for the operations up to a number.
type flush struct {
	upTo uint64
	r    *Request
}

// oneSided is the part of a transfer that is an operation of a Reach.
type oneSided struct {
	reach        *Reach // nil: it is a message's
	put          bool   // else it is a get
	at           uint64 // where the memory begins there
	off          int64  // bytes that are over
	under        int64  // bytes that the link has
	isNote       bool   // it is a put with a note
	note         uint32 // as the link has it
	isStep       bool   // it is an atomic step
	step         Step
	value        uint64  // that it has found
	tell         *Result // is set at the end of the step; nil: nothing is
	started      bool    // the link has taken some
	gone         bool    // the link has said that the peer is, and reports Down
	tries        int     // that have failed
	number       uint64  // of the reach's operations
	older, newer *transfer
	gate         *Request // of a caller that waits until the link has all; nil: none does
}

// mostTries bounds how often an operation is tried that fails though its peer lives.
const mostTries = 100

// aloneMost is the longest operation that the link does while the peer polls, if this rank's processor does the link's
// work: in a message of that length both ranks copy.
const aloneMost = 128 << 10

// errOtherWay is the result of an operation that the link cannot begin.
var errOtherWay = errors.New("the link cannot do this operation")

// Reach prepares operations on memory that a rank of the world has lent this one. nil: the link does not reach it.
func (e *Engine) Reach(rank int, lent Lent) *Reach {
	e.lock()
	defer e.unlock()
	if !e.direct {
		return nil
	}
	p := e.links.peers[rank]
	if p == nil || !lent.Reads {
		return nil
	}
	rma := p.rma
	if rank == e.cfg.Rank {
		rma = e.ownRMA()
	}
	if rma == nil {
		return nil
	}
	lent.Writes = lent.Writes && rma.Put != nil
	lent.Steps = lent.Steps && rma.FetchAdd != nil
	return &Reach{p: p, rma: rma, lent: lent}
}

// Put begins to write src to an offset of the memory. src is the engine's until a Flush that is called later has
// returned without an error of its context. Put waits while the link has no room; if cc ends meanwhile, the operation
// goes on, and the error is the context's. ok: it has begun; otherwise the link cannot do it, and has not.
func (f *Reach) Put(cc context.Context, src []byte, off int64) (ok bool, err error) {
	_, ok, err = f.begin(cc, false, true, src, off)
	return ok, err
}

// Get likewise begins to read into dst.
func (f *Reach) Get(cc context.Context, dst []byte, off int64) (ok bool, err error) {
	_, ok, err = f.begin(cc, false, false, dst, off)
	return ok, err
}

// StartPut is Put with a request, which is done when src is the caller's again; nil: there is an error.
func (f *Reach) StartPut(cc context.Context, src []byte, off int64) (r *Request, ok bool, err error) {
	return f.begin(cc, true, true, src, off)
}

// StartGet is Get with a request, which is done when dst has the bytes; nil: there is an error.
func (f *Reach) StartGet(cc context.Context, dst []byte, off int64) (r *Request, ok bool, err error) {
	return f.begin(cc, true, false, dst, off)
}

// begin begins an operation, and returns when the link has all of it. asked: the caller wants a request for it.
func (f *Reach) begin(cc context.Context, asked, put bool, buf []byte, off int64) (r *Request, ok bool, err error) {
	if put && !f.lent.Writes {
		return nil, false, nil
	}
	p, e := f.p, f.p.l.e
	e.lock()
	defer e.unlock()
	if len(buf) > aloneMost && p.presence != nil && p.presence.Polls() && p.err == nil {
		return nil, false, nil
	}
	if asked {
		r = e.requests.handle()
		e.activate(r, cc)
	} else {
		r = e.unasked()
	}
	ts := &e.links.transfers
	t := f.open(r, transport.HostMem(buf), off)
	t.one.put = put
	id := t.id
	if p.err != nil {
		ts.end(t, p.err)
	} else if err = ts.tryOperation(t); err == nil && ts.find(id) == t && t.operationDue() {
		gate := f.waits(cc)
		t.one.gate = gate
		e.await(gate)
		err = gate.err
		e.requests.putBack(gate)
	}
	defer e.exitCall()
	switch {
	case err == errOtherWay:
		return nil, false, nil
	case err != nil && asked && ts.find(id) == t: // its caller does not hear of it
		ts.desert(t, err)
		e.requests.release(r)
		return nil, true, err
	}
	return r, true, err
}

// open begins a transfer for an operation.
func (f *Reach) open(r *Request, buf transport.Mem, off int64) *transfer {
	p := f.p
	r.buf, r.recv.Source = buf, p.rank
	r.status = Status{Source: p.rank, Bytes: int64(buf.Len)}
	t := p.l.transfers.open(r, p)
	f.began++
	t.one = oneSided{reach: f, at: f.lent.Addr + uint64(off), number: f.began, older: f.newest}
	if f.newest != nil {
		f.newest.one.newer = t
	} else {
		f.oldest = t
	}
	f.newest = t
	return t
}

// unasked makes the request of an operation for which no caller has one.
func (e *Engine) unasked() *Request {
	r := e.requests.take()
	e.detach(r)
	return r
}

// detach activates a request that no caller has.
func (e *Engine) detach(r *Request) {
	r.detached = true
	e.load.detached++
	e.activate(r, nil)
}

// desert ends the request of an operation, since its context has ended. The operation goes on.
func (ts *transfers) desert(t *transfer, why error) {
	r, own := t.r, ts.l.e.unasked()
	own.buf, own.status, own.recv.Source = r.buf, r.status, r.recv.Source
	own.transfer, r.transfer = t, nil
	t.r = own
	ts.l.e.endCancelled(r, why)
}

// activate begins something that no path hears of.
func (e *Engine) activate(r *Request, cc context.Context) {
	r.op, r.vain, r.state, r.err, r.cctx = opLink, 0, stActive, nil, cc
	r.recv.Ctx, r.recv.Tag = 0, 0
	e.load.outstanding++
}

// waits makes a request for a caller that waits for the link.
func (f *Reach) waits(cc context.Context) *Request {
	e := f.p.l.e
	r := e.requests.take()
	e.activate(r, cc)
	r.waits, r.extra = f, true
	return r
}

// unwait ends such a wait, since its context has ended.
func (f *Reach) unwait(r *Request, why error) {
	f.flushes.deleteFunc(func(w flush) bool { return w.r == r })
	for t := f.oldest; t != nil; t = t.one.newer {
		if t.one.gate == r {
			t.one.gate = nil
		}
	}
	f.p.l.e.complete(r, why)
}

// Flush returns when all operations are over that were begun before. The error is that cc has ended first, or of an
// operation without a request.
func (f *Reach) Flush(cc context.Context) error {
	e := f.p.l.e
	e.lock()
	defer e.unlock()
	defer e.exitCall()
	if f.oldest != nil {
		r := f.flushNow(cc)
		e.await(r)
		err := r.err
		if e.requests.putBack(r); err != nil {
			return err
		}
	}
	err := f.err
	f.err = nil
	return err
}

// flushNow makes a request that is done when the operations are over that have been begun. Some are under way.
func (f *Reach) flushNow(cc context.Context) *Request {
	r := f.waits(cc)
	f.flushes.push(flush{f.began, r})
	return r
}

// over is called when an operation is.
func (f *Reach) over(t *transfer, err error) {
	o, e := &t.one, f.p.l.e
	if o.older != nil {
		o.older.one.newer = o.newer
	} else {
		f.oldest = o.newer
	}
	if o.newer != nil {
		o.newer.one.older = o.older
	} else {
		f.newest = o.older
	}
	o.older, o.newer = nil, nil
	if o.isStep {
		o.stepped(e, err)
	} else if err != nil && err != errOtherWay && f.err == nil && t.r.detached {
		f.err = err
	}
	o.pass(e, nil)
	for f.flushes.len() > 0 {
		first := f.flushes.items()[0]
		if f.oldest != nil && f.oldest.one.number <= first.upTo {
			break
		}
		f.flushes.pop()
		e.complete(first.r, nil)
	}
}

// pass lets the caller go on that waits until the link has all of the operation.
func (o *oneSided) pass(e *Engine, err error) {
	if gate := o.gate; gate != nil {
		o.gate = nil
		e.complete(gate, err)
	}
}

func (o *oneSided) job() jobKind {
	if o.put {
		return jobWrite
	}
	return jobRead
}

// operationDue reports whether the link is to be given a part of t, which is an operation.
func (t *transfer) operationDue() bool {
	o := &t.one
	return o.under == 0 && !o.gone && t.failed == nil && o.off < int64(t.r.buf.Len)
}

// operate is tryOperation as a job: it reports whether something has been done.
func (ts *transfers) operate(t *transfer) int {
	id := t.id
	ts.tryOperation(t)
	if ts.find(id) == t && t.peer.stalled && t.operationDue() {
		return 0
	}
	return 1
}

// tryOperation gives the link the next part of an operation. t may be closed afterwards. The error is that the link
// cannot do it, and that t's request is free again.
func (ts *transfers) tryOperation(t *transfer) error {
	o, p := &t.one, t.peer
	n := min(int64(t.r.buf.Len)-o.off, p.readPiece())
	var st transport.State
	var err error
	at, key := o.at+uint64(o.off), o.reach.lent.Key
	switch {
	case o.isStep:
		st, err = o.step.begin(o.reach.rma, at, key, t.id)
	case o.isNote:
		st, err = o.reach.rma.PutNote(t.r.buf.Part(o.off, n), at, key, o.note, t.id)
	case o.put:
		st, err = o.reach.rma.Put(t.r.buf.Part(o.off, n), at, key, t.id)
	default:
		st, err = o.reach.rma.Get(t.r.buf.Part(o.off, n), at, key, t.id)
	}
	switch {
	case err != nil:
		return ts.operationFailed(t, err)
	case st == transport.Full:
		ts.l.worklist.add(o.job(), t)
		ts.l.worklist.park(o.job(), t)
		return nil
	case st == transport.Started:
		o.under = n
	default:
		o.off += n
	}
	o.started = true
	ts.operated(t)
	return nil
}

// operated goes on after a part of an operation.
func (ts *transfers) operated(t *transfer) {
	o, size := &t.one, int64(t.r.buf.Len)
	if o.off == size {
		ts.end(t, nil)
		return
	}
	if ts.l.worklist.set(o.job(), t, t.operationDue()); o.off+o.under == size && !o.isStep {
		o.pass(ts.l.e, nil)
	}
}

// operationDone is called when the link has let go of what it had of an operation.
func (ts *transfers) operationDone(t *transfer, value uint64, err error) {
	o := &t.one
	n := o.under
	o.under, o.value = 0, value
	switch {
	case n == 0:
	case t.failed != nil:
		ts.release(t)
	case err != nil:
		ts.operationFailed(t, err)
	default:
		o.off += n
		ts.operated(t)
	}
}

// operationFailed is called when the link cannot do a part of an operation. One of which it has done nothing is taken
// back, which is the error. Otherwise it is tried again: its buffer may be the link's since long, and the peer lives. A
// step that has begun may have been made, and is not tried again.
func (ts *transfers) operationFailed(t *transfer, err error) error {
	o := &t.one
	o.tries++
	switch {
	case errors.Is(err, transport.ErrPeerGone) && !o.reach.isOwn(): // Down ends it
		o.gone = true
		ts.l.worklist.remove(o.job(), t)
		if !o.isStep {
			o.pass(ts.l.e, nil)
		}
	case o.reach.isOwn() || o.isStep && o.started:
		ts.end(t, err)
	case !o.started:
		ts.takeBack(t)
		return errOtherWay
	case o.tries < mostTries:
		ts.l.worklist.add(o.job(), t)
	default:
		ts.end(t, err)
	}
	return nil
}

// takeBack ends an operation that has not begun as if it had not been asked for.
func (ts *transfers) takeBack(t *transfer) {
	r, e := t.r, ts.l.e
	if t.one.isNote {
		t.peer.out.Refund(noteCost)
	}
	t.one.pass(e, errOtherWay)
	t.one.reach.over(t, errOtherWay)
	ts.close(t)
	e.load.outstanding--
	if r.detached {
		r.detached = false
		e.load.detached--
		e.requests.putBack(r)
	} else {
		e.requests.release(r)
	}
}

package pml

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/transport"
)

// taggedPath leaves matching and moving to a device that does both by itself (transport.Tagged). What the engine keeps
// is what the device has no room for, in order, and which request each operation of the device belongs to: its cookie
// is an index.
//
// A cookie is free, or of an operation that the device has begun, from then until TaggedDone. If the device has given
// the operation up before, the cookie has no request from then on.
//
// An operation's buffer is the device's from Send, Post or Take until TaggedDone, also when it is to fail: then it is
// cancelled, and the request completes with its error when the device has let go.
type taggedPath struct {
	e      *Engine
	dev    transport.Tagged
	limits transport.TaggedLimits
	peers  []*taggedPeer // by rank; nil until first contact
	plain  uint32        // limits.Contexts, or 0: a context is revoked, and each receive needs a look

	begun []*Request // by cookie: what the device has begun; nil: the cookie is free, or its operation is given up
	free  []uint32   // cookies
	spare *taggedOp  // for reuse

	freed   []uint32 // the contexts that were dropped last: messages of them may come late
	revoked []uint32 // of these, the ones that were revoked, if no sender takes a message back

	receives taggedQueue    // Post and Take
	refused  []*taggedQueue // those that the device has refused; Room will say when they may go on
	held     bool           // the device may hold sends, until the next poll; load.stalled counts that
}

// taggedPeer is a rank that something was sent to, or received from.
type taggedPeer struct {
	rank     int32
	reached  bool // the device can send to it
	reaching bool // it is being made able to
	err      error
	sends    taggedQueue
}

// taggedQueue are operations that the device has not begun, oldest first.
type taggedQueue struct {
	ops     []*Request
	refused bool // in taggedPath.refused
}

// taggedOp is what few operations have besides their requests. Invariant: Request.extra is set where Request.tagged is
// not nil.
type taggedOp struct {
	taking  bool // message is what a probe has taken
	message uint64
	copied  bool // of a send: the device reads kept, so that the request can end before it
	kept    []byte
	failed  error     // why it fails although the device may say that it was cancelled
	next    *taggedOp // of spare, whose other fields are zero
}

func newTaggedPath(e *Engine, dev transport.Tagged) *taggedPath {
	limits := dev.Limits()
	return &taggedPath{e: e, dev: dev, limits: limits, plain: limits.Contexts, peers: make([]*taggedPeer, e.cfg.Size)}
}

func (t *taggedPath) address() []byte { return t.e.cfg.Net.Address() }

// peer returns the record of a rank, made on first contact.
func (t *taggedPath) peer(rank int32) *taggedPeer {
	if t.peers[rank] == nil {
		t.peers[rank] = &taggedPeer{rank: rank}
	}
	return t.peers[rank]
}

func (t *taggedPath) gone(rank int32) error {
	if p := t.peers[rank]; p != nil {
		return p.err
	}
	return nil
}

// rare makes r's taggedOp, unless it has one.
func (t *taggedPath) rare(r *Request) *taggedOp {
	if op := r.tagged; op != nil {
		return op
	}
	op := t.spare
	if op == nil {
		op = new(taggedOp)
	}
	t.spare, op.next = op.next, nil
	r.tagged, r.extra = op, true
	return op
}

// cookie returns a free one, which stays free until note takes it.
func (t *taggedPath) cookie() uint32 {
	if len(t.free) == 0 {
		t.free = append(t.free, uint32(len(t.begun)))
		t.begun = append(t.begun, nil)
	}
	return t.free[len(t.free)-1]
}

// has reports whether the device has begun r, and not ended it.
func (t *taggedPath) has(r *Request) bool {
	i := r.offload.cookie
	return i < uint64(len(t.begun)) && t.begun[i] == r
}

// end completes an operation that the device does not have, or not any more.
func (t *taggedPath) end(r *Request, err error) {
	if op := r.tagged; op != nil {
		*op = taggedOp{next: t.spare}
		r.tagged, t.spare = nil, op
	}
	if r.op == opLost {
		t.e.requests.putBack(r)
		return
	}
	t.e.complete(r, err)
}

// all are the operations now, whether the device has begun them or not. What is done with one may end others.
func (t *taggedPath) all() []*Request {
	all := slices.DeleteFunc(slices.Clone(t.begun), func(r *Request) bool { return r == nil })
	for _, p := range t.peers {
		if p != nil {
			all = append(all, p.sends.ops...)
		}
	}
	return append(all, t.receives.ops...)
}

// sends reports whether r is a send, of which there may be nothing left but the copy that the device reads.
func (r *Request) sends() bool { return r.op == opSend || r.op == opLost && !r.takes() }

// takes reports whether r receives what a probe has taken.
func (r *Request) takes() bool { return r.tagged != nil && r.tagged.taking }

// unclaimed is a request of which no caller hears: of a message that is lost, or a copy that the device reads.
func (t *taggedPath) unclaimed() *Request {
	r := t.e.requests.take()
	r.op, r.state, r.mode, r.buf = opLost, stActive, Standard, transport.Mem{} // reset leaves the buffer's length
	return r
}

// refuse says why the device cannot match a message of r, or nil.
func (t *taggedPath) refuse(r *Request) error {
	switch {
	case r.recv.Ctx >= t.limits.Contexts:
		return fmt.Errorf("%w: the device matches contexts below %d, not context %d", transport.ErrUnavailable,
			t.limits.Contexts, r.recv.Ctx)
	case r.recv.Tag > t.limits.Tag:
		return fmt.Errorf("%w: its tags are 0 to %d", ErrTag, t.limits.Tag)
	}
	return nil
}

func (t *taggedPath) send(r *Request) {
	p := t.peer(r.recv.Source)
	err := p.err
	if err == nil {
		err = t.refuse(r)
	}
	if err != nil {
		t.e.complete(r, err)
		return
	}
	if p.reached {
		t.add(&p.sends, r)
	} else {
		p.sends.ops = append(p.sends.ops, r)
		t.contact(p)
	}
}

// sendNow sends a message that the device takes at once, for which there is no request then. It reports whether the
// device has taken it.
// What it sends leaves at once if the caller waits, or else with the next poll.
func (t *taggedPath) sendNow(ctx uint32, dest int, tag int32, buf []byte) bool {
	p := t.peers[dest]
	if p == nil || !p.reached || p.err != nil || len(p.sends.ops) > 0 || len(buf) > tryMax || t.e.closed != nil ||
		ctx >= t.limits.Contexts || tag > t.limits.Tag {
		return false
	}
	m := transport.Match{Context: ctx, Source: int32(t.e.cfg.Rank), Tag: tag}
	sent, held := t.dev.TrySend(p.rank, m, transport.HostMem(buf), t.e.wait.calling)
	if held && !t.held {
		t.held = true
		t.e.load.stalled++
	}
	return sent
}

// tryMax is the longest message that sendNow tries.
const tryMax = 64

// contact lets the device reach p, unless that is under way.
func (t *taggedPath) contact(p *taggedPeer) {
	if !p.reaching {
		p.reaching = true
		t.e.wg.Add(1)
		go t.reach(p)
	}
}

// meet has the device know a rank from which something is received: it says when that rank is gone.
func (t *taggedPath) meet(rank int32) {
	if rank >= 0 && int(rank) != t.e.cfg.Rank && t.peers[rank] == nil {
		t.contact(t.peer(rank))
	}
}

// reach runs in a goroutine of its own: it may have to wait for the peer.
func (t *taggedPath) reach(p *taggedPeer) {
	e := t.e
	defer e.wg.Done()
	ctx, cancel := context.WithTimeout(e.ctx, e.cfg.ConnectTimeout)
	defer cancel()
	address, err := e.cfg.Lookup(ctx, int(p.rank))
	if err != nil {
		err = fmt.Errorf("looking up its address: %w", err)
	} else {
		err = t.dev.Reach(ctx, int(p.rank), address)
	}
	e.lock()
	defer e.unlock()
	p.reaching = false
	if err != nil {
		t.failPeer(p, &PeerError{int(p.rank), err})
	} else if p.err == nil {
		p.reached = true
		t.flush(&p.sends)
	}
	e.exitCall()
}

func (t *taggedPath) post(r *Request) {
	if source := r.recv.Source; uint(source) < uint(len(t.peers)) && r.recv.Ctx < t.plain &&
		r.recv.Tag <= t.limits.Tag {
		if p := t.peers[source]; p != nil && p.err == nil { // the usual case of what follows
			if len(t.receives.ops) > 0 || !t.receive(r) {
				t.queue(&t.receives, r)
			}
			return
		}
	}
	err := t.refuse(r)
	if err == nil {
		err = t.e.inVain(r.recv.Source, r.recv.Ctx, r.recv.Tag)
		if r.serves() {
			err = nil
		}
	}
	if err == nil {
		t.meet(r.recv.Source)
		t.add(&t.receives, r)
		return
	}
	if r.recv.Source < 0 && len(t.receives.ops) == 0 { // what has come is still received
		if f, ok := t.probe(r.recv.Ctx, r.recv.Source, r.recv.Tag, true); ok {
			t.take(f, r)
			return
		}
	}
	t.e.complete(r, err)
}

func (t *taggedPath) take(f found, r *Request) {
	op := t.rare(r)
	op.taking, op.message = true, f.message
	r.status = f.status
	t.add(&t.receives, r)
}

// add lets the device begin r, when it has begun those before it.
func (t *taggedPath) add(q *taggedQueue, r *Request) {
	if len(q.ops) > 0 || !t.begin(r) {
		t.queue(q, r)
	}
}

func (t *taggedPath) queue(q *taggedQueue, r *Request) {
	q.ops = append(q.ops, r)
	t.note(q)
}

// flush lets the device begin what it has room for, in order.
func (t *taggedPath) flush(q *taggedQueue) {
	n := 0
	for ; n < len(q.ops) && t.begin(q.ops[n]); n++ {
	}
	q.ops = slices.Delete(q.ops, 0, n)
	t.note(q)
}

// note keeps account of the queues that the device has refused.
func (t *taggedPath) note(q *taggedQueue) {
	switch refused := len(q.ops) > 0; {
	case refused && !q.refused:
		t.refused = append(t.refused, q)
		t.e.load.stalled++
	case !refused && q.refused:
		t.refused = without(t.refused, q)
		t.e.load.stalled--
		t.e.wakeLeader() // it may be what it waits for: see Flush
	}
	q.refused = len(q.ops) > 0
}

// begin reports whether the device has room for r. r may be over afterwards.
func (t *taggedPath) begin(r *Request) bool {
	switch {
	case r.op == opSend:
		buf, cookie := r.buf, t.cookie()
		if t.limits.SendsStay && r.mayEnd() {
			buf = t.rare(r).keep(buf)
		}
		m := transport.Match{Context: r.recv.Ctx, Source: int32(t.e.cfg.Rank), Tag: r.recv.Tag}
		st, err := t.dev.Send(r.recv.Source, m, buf, r.mode == Synchronous, uint64(cookie))
		return t.begins(r, cookie, st, err)
	case r.extra && r.takes():
		cookie := t.cookie()
		st, err := t.dev.Take(r.tagged.message, r.buf, uint64(cookie))
		began := t.begins(r, cookie, st, err)
		t.takesFrom(r)
		return began
	}
	return t.receive(r)
}

// receive is begin of a receive. It reports whether the device has room.
func (t *taggedPath) receive(r *Request) bool {
	cookie := t.cookie()
	waits := t.e.wait.calling && t.e.pace.spins()
	m := transport.Match{Context: r.recv.Ctx, Source: r.recv.Source, Tag: r.recv.Tag}
	got, st, err := t.dev.Post(m, r.buf, uint64(cookie), waits)
	if st == transport.Started && err == nil {
		t.started(r, cookie)
		return true
	}
	if st == transport.Done {
		r.status = Status{Source: got.Source, Tag: got.Tag, Bytes: got.Bytes}
	}
	return t.begins(r, cookie, st, err)
}

// begins goes on with what the device has returned of r, and reports whether it had room.
func (t *taggedPath) begins(r *Request, cookie uint32, st transport.State, err error) bool {
	switch {
	case err != nil:
		t.end(r, r.error(err))
	case st == transport.Full:
		return false
	case st == transport.Done:
		t.done(r, nil)
	default:
		t.started(r, cookie)
	}
	return true
}

// started notes that the device has begun r.
func (t *taggedPath) started(r *Request, cookie uint32) {
	t.free = t.free[:len(t.free)-1]
	t.begun[cookie], r.offload.cookie = r, uint64(cookie)
}

// takesFrom gives up what a probe has taken if it may never be here as a whole: its sender is gone.
func (t *taggedPath) takesFrom(r *Request) {
	if r.op == opLost || !t.has(r) || uint(r.status.Source) >= uint(len(t.peers)) {
		return
	}
	if err := t.gone(r.status.Source); err != nil {
		t.abort(r, err)
	}
}

// mayEnd reports whether a context may end r before its message is received.
func (r *Request) mayEnd() bool { return r.cctx != nil || r.other != nil && r.other.cctx != nil }

// keep is a copy of what is sent. It is made before the device has the message, which it would not give back.
func (op *taggedOp) keep(buf transport.Mem) transport.Mem {
	if !op.copied {
		op.copied = true
		if buf.Len > 0 {
			op.kept = slices.Clone(buf.Bytes())
		}
	}
	return transport.HostMem(op.kept)
}

// error is what a request is told of a device's error.
func (r *Request) error(err error) error {
	if r.op == opSend {
		return &PeerError{int(r.recv.Source), err}
	}
	return err
}

// events also looks for the messages that probes wait for: the device does not say that one has come.
func (t *taggedPath) events(pkts []transport.Packet) int {
	if t.held {
		t.held = false
		t.e.load.stalled--
	}
	for i := range pkts {
		if pkt := &pkts[i]; pkt.Event == transport.TaggedDone {
			r := t.begun[pkt.Cookie]
			t.begun[pkt.Cookie] = nil
			t.free = append(t.free, uint32(pkt.Cookie))
			t.done(r, pkt)
		} else {
			t.event(pkt)
		}
	}
	waiting := len(t.e.probers)
	if waiting == 0 {
		return 0
	}
	t.e.probers.end(t.e, func(r *Request) bool {
		_, found := t.probe(r.recv.Ctx, r.recv.Source, r.recv.Tag, false)
		return found
	}, nil)
	return waiting - len(t.e.probers)
}

func (t *taggedPath) event(pkt *transport.Packet) {
	switch pkt.Event {
	case transport.Down:
		if uint(pkt.Peer) < uint(len(t.peers)) {
			t.failPeer(t.peer(pkt.Peer), &PeerError{int(pkt.Peer), pkt.Err})
		}
	case transport.Room:
		t.resume()
	case transport.TaggedGivenUp:
		r := t.begun[pkt.Cookie]
		t.begun[pkt.Cookie] = nil
		t.done(r, pkt)
	}
}

// done is called when the device has ended r. pkt says how; nil: well, and what a receive has got is in its status. r
// is nil where the operation was given up before.
func (t *taggedPath) done(r *Request, pkt *transport.Packet) {
	if r == nil {
		return
	}
	if pkt != nil && r.op == opRecv && pkt.Err == nil {
		r.status = Status{Source: pkt.Peer, Tag: pkt.Header.Tag, Bytes: int64(pkt.Header.Len)}
	}
	from := r.status.Source
	switch {
	case r.op == opLost:
		t.end(r, nil)
	case pkt != nil && pkt.Err != nil:
		t.doneBadly(r, pkt.Err)
	case r.extra && r.failure() != nil &&
		t.e.closed != nil: // its sender's buffer may have been another one's meanwhile
		t.doneBadly(r, nil)
	case r.op == opSend:
		t.end(r, nil)
	case uint(from) >= uint(len(t.peers)):
		r.status = Status{}
		t.end(r, fmt.Errorf("a message has come that says it is of rank %d; the job has ranks 0 to %d", from,
			len(t.peers)-1))
	default:
		if t.peers[from] == nil {
			t.meet(from)
		}
		if r.status.Bytes > int64(r.buf.Len) {
			err := r.truncated(r.status.Bytes)
			r.status.Bytes = int64(r.buf.Len)
			t.end(r, err)
		} else if r.plain() && !r.detached {
			r.completePlain(&t.e.load)
		} else {
			t.end(r, nil)
		}
	}
}

// failure is why r fails whatever the device says; nil: it does not.
func (r *Request) failure() error {
	if r.tagged == nil {
		return nil
	}
	return r.tagged.failed
}

func (t *taggedPath) doneBadly(r *Request, err error) {
	switch why := r.failure(); {
	case why != nil:
		err = why
	case errors.Is(err, transport.ErrCancelled):
		r.status.Cancelled, err = true, r.cancelErr
	default:
		err = r.error(err)
	}
	if r.op == opRecv || r.status.Cancelled {
		r.status.Bytes = 0
	}
	t.end(r, err)
}

func (t *taggedPath) cancel(r *Request, why error) {
	begun := t.has(r)
	switch {
	case !begun && !r.takes():
		t.dequeue(r)
		r.status.Cancelled, r.status.Bytes = true, 0
		t.end(r, why)
	case r.tagged != nil && r.tagged.copied && why != nil: // the message may be received all the same
		t.leave(r)
		r.status.Cancelled, r.status.Bytes = true, 0
		t.end(r, why)
	case begun && !r.cancelling:
		r.cancelling, r.extra, r.cancelErr = true, true, why
		t.dev.Cancel(r.offload.cookie)
	}
}

// leave leaves the device's operation of r, which sends from a copy, to a request of nobody's.
func (t *taggedPath) leave(r *Request) {
	lost := t.unclaimed()
	lost.recv.Source, lost.offload.cookie = r.recv.Source, r.offload.cookie
	lost.tagged, lost.extra, r.tagged = r.tagged, true, nil
	t.begun[r.offload.cookie] = lost
}

// dequeue takes r, which the device has not begun, off its queue. It reports whether r was there.
func (t *taggedPath) dequeue(r *Request) bool {
	q, may := &t.receives, true
	if r.sends() {
		p := t.peers[r.recv.Source]
		q, may = &p.sends, p.reached
	}
	i := slices.Index(q.ops, r)
	if i < 0 {
		return false
	}
	if q.ops = slices.Delete(q.ops, i, i+1); may {
		t.flush(q)
	}
	return true
}

// abort lets r fail with err, when the device has let go of its buffer.
func (t *taggedPath) abort(r *Request, err error) {
	if !t.has(r) {
		if t.dequeue(r) {
			t.end(r, err)
		}
		return
	}
	if op := t.rare(r); op.failed == nil {
		op.failed = err
	} else if t.e.closed == nil {
		return
	}
	t.dev.Abandon(r.offload.cookie, t.e.closed != nil)
}

func (t *taggedPath) probe(ctx uint32, source, tag int32, take bool) (found, bool) {
	if t.e.gone { // and so is the device's memory
		return found{}, false
	}
	m, ok := t.dev.Probe(transport.Match{Context: ctx, Source: source, Tag: tag}, take)
	return found{ctx: ctx, status: Status{Source: m.Source, Tag: m.Tag, Bytes: m.Bytes}, message: m.Message}, ok
}

// resume tries again what the device has refused.
func (t *taggedPath) resume() {
	for i := len(t.refused) - 1; i >= 0; i-- {
		if i < len(t.refused) {
			t.flush(t.refused[i])
		}
	}
}

// stalled starts the server if a message has come for it, and takes late messages of revoked contexts, whose senders
// wait for that: the device says of neither. It reports whether there is something to do, and there is not: the server
// is a goroutine.
func (t *taggedPath) stalled() bool {
	for _, ctx := range t.revoked {
		t.lose(ctx)
	}
	s := &t.e.server
	if s.start == nil {
		return false
	}
	if _, found := t.probe(s.ctx, AnySource, s.tag, false); found {
		t.e.startServer()
	}
	return false
}

// drop also takes the messages of that communicator, and late ones of those before it, so that no other gets them.
func (t *taggedPath) drop(ctx uint32, err error) {
	for _, r := range t.all() {
		if r.op == opRecv && r.recv.Ctx == ctx && !r.takes() {
			t.abort(r, err)
		}
	}
	t.freed = appendLast(t.freed, ctx)
	for _, ctx := range t.freed {
		t.lose(ctx)
	}
}

// freedMax is for how many contexts that have been dropped late messages are looked for when another one is.
const freedMax = 64

// appendLast appends to the last freedMax contexts.
func appendLast(all []uint32, ctx uint32) []uint32 {
	if len(all) == freedMax {
		all = slices.Delete(all, 0, 1)
	}
	return append(all, ctx)
}

// lose takes the messages of a communicator that has been freed.
func (t *taggedPath) lose(ctx uint32) {
	for t.e.dropped.has(ctx) {
		f, ok := t.probe(ctx, AnySource, AnyTag, true)
		if !ok {
			return
		}
		t.take(f, t.unclaimed())
	}
}

func (t *taggedPath) fail(err error) {
	for _, r := range t.all() {
		if t.has(r) {
			t.abort(r, err)
		}
	}
	t.forget(&t.receives, err)
	for _, p := range t.peers {
		if p != nil {
			p.err = err
			t.forget(&p.sends, err)
		}
	}
}

// forget empties a queue, whose operations fail.
func (t *taggedPath) forget(q *taggedQueue, err error) {
	for _, r := range q.ops {
		t.end(r, err)
	}
	q.ops = nil
	t.flush(q)
}

func (t *taggedPath) finish() {
	for _, r := range t.begun {
		if r != nil {
			t.end(r, r.failure())
		}
	}
	t.begun, t.free = nil, nil
	t.forget(&t.receives, t.e.closed) // of messages that were taken before the engine failed, and received after that
}

// failPeer ends what involves p: it is gone.
func (t *taggedPath) failPeer(p *taggedPeer, err error) {
	if p.err != nil {
		return
	}
	p.err = err
	t.e.lose(p.rank, err)
	for _, r := range t.all() {
		switch {
		case r.sends():
			if r.recv.Source == p.rank {
				t.abort(r, err)
			}
		case r.op != opRecv || r.serves():
		case r.takes():
			if r.status.Source == p.rank && t.has(r) {
				t.abort(r, err)
			}
		// A receive from any source might have been meant for this peer; that cannot be known, so its caller is told.
		case r.recv.Source == p.rank || r.recv.Source == AnySource && t.e.recovery.lostTo(r.recv.Ctx) != nil:
			t.abort(r, err)
		}
	}
	t.e.probers.end(t.e, t.e.probesLosing(p.rank), err)
	t.e.windows.failed(t.e, p.rank, err)
}

func (t *taggedPath) count(s Stats) Stats {
	for _, r := range t.all() {
		if !r.sends() && !r.takes() {
			s.Posted++
		}
	}
	return s
}

package pml

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/transport"
)

// taggedPath leaves matching and moving to a device that does both by itself (transport.Tagged). What the engine keeps
// is what the device has no room for, in order, and which request each operation of the device belongs to.
//
// An operation's buffer is the device's from Send, Post or Take until TaggedDone, also when it is to fail: then it is
// cancelled, and the request completes with its error when the device has let go.
type taggedPath struct {
	e      *Engine
	dev    transport.Tagged
	limits transport.TaggedLimits
	peers  []*taggedPeer // by rank; nil until first contact
	lost   error         // of the first other rank that has failed

	ops   numbers[taggedOp]
	spare *taggedOp // for reuse

	freed []uint32 // the contexts that were dropped last: messages of them may come late

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
	ops     []*taggedOp
	refused bool // in taggedPath.refused
}

// taggedOp is one operation.
type taggedOp struct {
	cookie  uint64
	r       *Request    // nil: its message is lost
	to      *taggedPeer // of a send
	taking  bool        // message is what a probe has taken
	message uint64
	begun   bool // the device has it
	copied  bool // of a send: the device reads kept, so that the request can end before it
	kept    []byte
	failed  error     // why it fails although the device may say that it was cancelled
	next    *taggedOp // of spare, whose other fields are zero, but cookie and message
}

func newTaggedPath(e *Engine, dev transport.Tagged) *taggedPath {
	return &taggedPath{e: e, dev: dev, limits: dev.Limits(), peers: make([]*taggedPeer, e.cfg.Size)}
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
	if rank < 0 {
		return t.lost
	}
	if p := t.peers[rank]; p != nil {
		return p.err
	}
	return nil
}

// open makes an operation of r.
func (t *taggedPath) open(r *Request) *taggedOp {
	op := t.spare
	if op == nil {
		op = new(taggedOp)
	}
	t.spare, op.next = op.next, nil
	op.r, op.cookie = r, t.ops.add(op)
	if r != nil {
		r.offload.cookie = op.cookie
	}
	return op
}

// end completes an operation that the device does not have, or not any more.
func (t *taggedPath) end(op *taggedOp, err error) {
	r := op.r
	t.ops.remove(op.cookie)
	op.r, op.to, op.failed, op.kept = nil, nil, nil, nil
	op.taking, op.begun, op.copied = false, false, false
	op.next, t.spare = t.spare, op
	if r != nil {
		t.e.complete(r, err)
	}
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
	op := t.open(r)
	op.to = p
	if p.reached {
		t.add(&p.sends, op)
	} else {
		p.sends.ops = append(p.sends.ops, op)
		t.begins(p)
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

// begins lets the device reach p, unless that is under way.
func (t *taggedPath) begins(p *taggedPeer) {
	if !p.reaching {
		p.reaching = true
		t.e.wg.Add(1)
		go t.reach(p)
	}
}

// meet has the device know a rank from which something is received: it says when that rank is gone.
func (t *taggedPath) meet(rank int32) {
	if rank >= 0 && int(rank) != t.e.cfg.Rank && t.peers[rank] == nil {
		t.begins(t.peer(rank))
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
	err := t.refuse(r)
	if err == nil {
		err = t.gone(r.recv.Source)
		if r.serves() {
			err = nil
		}
	}
	if err == nil {
		t.meet(r.recv.Source)
		t.receive(t.open(r))
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
	op := t.open(r)
	op.taking, op.message = true, f.message
	if r != nil {
		r.status = f.status
	}
	t.receive(op)
}

func (t *taggedPath) receive(op *taggedOp) { t.add(&t.receives, op) }

// add lets the device begin op, when it has begun those before it.
func (t *taggedPath) add(q *taggedQueue, op *taggedOp) {
	if len(q.ops) > 0 || !t.begin(op) {
		q.ops = append(q.ops, op)
		t.note(q)
	}
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

// begin reports whether the device has room for op. op may be over afterwards.
func (t *taggedPath) begin(op *taggedOp) bool {
	var buf transport.Mem
	if op.r != nil {
		buf = op.r.buf
	}
	var st transport.State
	var err error
	switch {
	case op.to != nil:
		if t.limits.SendsStay && op.r.mayEnd() {
			buf = op.keep(buf)
		}
		m := transport.Match{Context: op.r.recv.Ctx, Source: int32(t.e.cfg.Rank), Tag: op.r.recv.Tag}
		st, err = t.dev.Send(op.to.rank, m, buf, op.r.mode == Synchronous, op.cookie)
	case op.taking:
		st, err = t.dev.Take(op.message, buf, op.cookie)
	default:
		m := transport.Match{Context: op.r.recv.Ctx, Source: op.r.recv.Source, Tag: op.r.recv.Tag}
		var got transport.Probed
		waits := t.e.wait.calling && t.e.pace.spins()
		if got, st, err = t.dev.Post(m, buf, op.cookie, waits); st == transport.Done {
			op.r.status = Status{Source: got.Source, Tag: got.Tag, Bytes: got.Bytes}
		}
	}
	switch {
	case err != nil:
		t.end(op, op.error(err))
	case st == transport.Full:
		return false
	case st == transport.Done:
		t.done(op, nil)
	default:
		op.begun = true
		if err := t.takesFrom(op); err != nil {
			t.abort(op, err)
		}
	}
	return true
}

// takesFrom is why what a probe has taken may never be here as a whole: its sender is gone.
func (t *taggedPath) takesFrom(op *taggedOp) error {
	if !op.taking || op.r == nil || uint(op.r.status.Source) >= uint(len(t.peers)) {
		return nil
	}
	return t.gone(op.r.status.Source)
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
func (op *taggedOp) error(err error) error {
	if op.to != nil {
		return &PeerError{int(op.to.rank), err}
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
		t.event(&pkts[i])
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
	case transport.TaggedDone:
		if op := t.ops.find(pkt.Cookie); op != nil && op.begun {
			t.done(op, pkt)
		}
	}
}

// done is called when the device has ended op. pkt says how; nil: well, and what a receive has got is in its status.
func (t *taggedPath) done(op *taggedOp, pkt *transport.Packet) {
	r := op.r
	switch {
	case r == nil:
		t.end(op, nil)
	case pkt != nil && pkt.Err != nil:
		t.doneBadly(op, pkt.Err)
	case op.failed != nil && t.e.closed != nil: // its sender's buffer may have been another one's while it was read
		t.doneBadly(op, op.failed)
	case r.op == opSend:
		t.end(op, nil)
	default:
		if pkt != nil {
			r.status = Status{Source: pkt.Peer, Tag: pkt.Header.Tag, Bytes: int64(pkt.Header.Len)}
		}
		if from := r.status.Source; uint(from) >= uint(len(t.peers)) {
			r.status = Status{}
			t.end(op, fmt.Errorf("a message has come that says it is of rank %d; the job has ranks 0 to %d", from,
				len(t.peers)-1))
			return
		}
		t.meet(r.status.Source)
		err := r.truncated(r.status.Bytes)
		r.status.Bytes = min(r.status.Bytes, int64(r.buf.Len))
		t.end(op, err)
	}
}

func (t *taggedPath) doneBadly(op *taggedOp, err error) {
	r := op.r
	switch {
	case op.failed != nil:
		err = op.failed
	case errors.Is(err, transport.ErrCancelled):
		r.status.Cancelled, err = true, r.cancelErr
	default:
		err = op.error(err)
	}
	if r.op == opRecv || r.status.Cancelled {
		r.status.Bytes = 0
	}
	t.end(op, err)
}

func (t *taggedPath) cancel(r *Request, why error) {
	op := t.ops.find(r.offload.cookie)
	switch {
	case !op.begun && !op.taking:
		t.dequeue(op)
		r.status.Cancelled, r.status.Bytes = true, 0
		t.end(op, why)
	case op.copied && why != nil: // the device has the copy; the message may be received all the same
		op.r = nil
		r.status.Cancelled, r.status.Bytes = true, 0
		t.e.complete(r, why)
	case op.begun && !r.cancelling:
		r.cancelling, r.extra, r.cancelErr = true, true, why
		t.dev.Cancel(op.cookie)
	}
}

// dequeue takes op, which the device has not begun, off its queue.
func (t *taggedPath) dequeue(op *taggedOp) {
	q := &t.receives
	if op.to != nil {
		q = &op.to.sends
	}
	q.ops = without(q.ops, op)
	if op.to == nil || op.to.reached {
		t.flush(q)
	}
}

// abort lets op fail with err, when the device has let go of its buffer.
func (t *taggedPath) abort(op *taggedOp, err error) {
	switch {
	case !op.begun:
		t.dequeue(op)
		t.end(op, err)
	case op.failed == nil || t.e.closed != nil:
		if op.failed == nil {
			op.failed = err
		}
		t.dev.Abandon(op.cookie, t.e.closed != nil)
	}
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

func (t *taggedPath) stalled() bool { return false }

// drop also takes the messages of that communicator, and late ones of those before it, so that no other gets them.
func (t *taggedPath) drop(ctx uint32, err error) {
	for op := range t.ops.values() {
		if op.r != nil && op.r.op == opRecv && op.r.recv.Ctx == ctx && !op.taking {
			t.abort(op, err)
		}
	}
	if len(t.freed) == freedMax {
		t.freed = slices.Delete(t.freed, 0, 1)
	}
	t.freed = append(t.freed, ctx)
	for _, ctx := range t.freed {
		t.lose(ctx)
	}
}

// freedMax is for how many contexts that have been dropped late messages are looked for when another one is.
const freedMax = 64

// lose takes the messages of a communicator that has been freed.
func (t *taggedPath) lose(ctx uint32) {
	for t.e.dropped.has(ctx) {
		f, ok := t.probe(ctx, AnySource, AnyTag, true)
		if !ok {
			return
		}
		t.take(f, nil)
	}
}

func (t *taggedPath) fail(err error) {
	for op := range t.ops.values() {
		if op.begun {
			t.abort(op, err)
		} else {
			t.end(op, err)
		}
	}
	t.forget(&t.receives)
	for _, p := range t.peers {
		if p != nil {
			p.err = err
			t.forget(&p.sends)
		}
	}
}

// forget empties a queue, whose operations are over.
func (t *taggedPath) forget(q *taggedQueue) {
	q.ops = nil
	t.flush(q)
}

func (t *taggedPath) finish() {
	for op := range t.ops.values() {
		t.end(op, op.failed)
	}
}

// failPeer ends what involves p: it is gone.
func (t *taggedPath) failPeer(p *taggedPeer, err error) {
	if p.err != nil {
		return
	}
	p.err = err
	if t.lost == nil && int(p.rank) != t.e.cfg.Rank {
		t.lost = err
		t.e.startServer()
	}
	for op := range t.ops.values() {
		switch r := op.r; {
		case op.to == p:
			t.abort(op, err)
		case r == nil || r.op != opRecv || r.serves():
		case op.taking:
			if op.begun && r.status.Source == p.rank {
				t.abort(op, err)
			}
		// A receive from any source might have been meant for this peer; that cannot be known, so its caller is told.
		case r.recv.Source == p.rank || r.recv.Source == AnySource && int(p.rank) != t.e.cfg.Rank:
			t.abort(op, err)
		}
	}
	t.e.probers.end(t.e, probesExpecting(p.rank), err)
	t.e.windows.failed(t.e, p.rank, err)
}

func (t *taggedPath) count(s Stats) Stats {
	for op := range t.ops.values() {
		if op.to == nil && !op.taking {
			s.Posted++
		}
	}
	return s
}

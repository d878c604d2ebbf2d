package window

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// A context ends the wait of a call, and not what has been asked: the other rank may do it at any time. Until it has
// answered, the memory of the answer stays, and until the next Flush without an error the buffers are the window's.

// Remote is what a window knows of a rank that it has asked for something.
type Remote struct {
	link atomic.Pointer[pml.Reach] // by which puts and gets go, once it is known; nil: by messages

	// Each has an element for each request under way that is to be answered: see rma.AsksMost.
	asks, locks chan struct{}
	// flushing has an element while a goroutine waits for operations: another one's Flush returns when they are done.
	flushing chan struct{}
	flushed  uint64 // of sent, how many are complete there; guarded by flushing

	// held is a request with its elements that has not been sent; nil: there is none. See hold. order guards its
	// changes, and is held until the engine has the request. No handler of the engine's takes order.
	held  atomic.Pointer[scratch]
	order sync.Mutex

	// Guarded by the window's mu.
	known   bool
	count   int64      // elements that it has
	device  bool       // makes all atomic steps there; does not change once known
	locked  bool       // by LockAll: that asks each rank for its lock when it is first used
	contact *contact   // one goroutine at a time asks for these; nil: none does
	pending []transfer // messages that carry elements of operations
	spare   []transfer // empty: the memory of the next pending
	sent    uint64     // operations whose requests have been sent, or are held
	wrote   uint64     // sent when the last one was added of which only a Flush says that it is complete
	handled uint64     // of sent, how many that rank has handled, if not more
	moves   int        // those that are in pending, or about to be, since the last flush: see rma.MovesMost
	moving  int        // of moves, those whose requests have been sent
}

// transfer is a message that carries elements of an operation, and which elements the operation names.
type transfer struct {
	m     *pml.Request
	at, n int64
}

// contact is the first contact with a rank, in an epoch or at all.
type contact struct {
	over      chan struct{} // closed at its end
	info      bool          // it asks for the number of elements
	lock      bool          // it asks for the lock
	abandoned bool          // UnlockAll has been called: the lock is let go when it comes; guarded by the window's mu
}

// scratch has a request, and an answer.
type scratch struct {
	want rma.Request // of hold
	out  []byte
	in   [rma.AnswerSize + elementsMost]byte
}

// remote returns the record of a rank, made on first contact.
func (w *Window) remote(rank int) *Remote {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.far[rank]
	if r == nil {
		r = &Remote{asks: make(chan struct{}, rma.AsksMost), locks: make(chan struct{}, rma.AsksMost),
			flushing: make(chan struct{}, 1)}
		w.far[rank] = r
	}
	return r
}

// enter adds an element to a channel. The error is the context's, which has ended first.
func enter(ctx context.Context, room chan struct{}) error {
	select {
	case room <- struct{}{}:
		return nil
	default:
	}
	if ctx == nil {
		room <- struct{}{}
		return nil
	}
	select {
	case room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reach is reachWithin without a context.
func (w *Window) reach(op string, rank int) (*Remote, error) { return w.reachWithin(nil, op, rank) }

// reachWithin prepares operations at a rank: this rank knows how many elements it has, and has its lock if LockAll is
// to have it.
func (w *Window) reachWithin(ctx context.Context, op string, rank int) (*Remote, error) {
	r := w.remote(rank)
	for {
		w.mu.Lock()
		info, lock := !r.known && (w.near[rank] == nil || w.nic) && w.regions == nil, w.epochs.LocksAll() && !r.locked
		if !info && !lock {
			w.mu.Unlock()
			return r, nil
		}
		c := r.contact
		first := c == nil
		if first {
			c = &contact{over: make(chan struct{}), info: info, lock: lock}
			r.contact = c
		}
		w.mu.Unlock()
		var err error
		switch {
		case first && ctx == nil:
			err = w.meet(op, rank, r, c)
		case first:
			err = w.within(ctx, op, func() error { return w.meet(op, rank, r, c) })
		case ctx == nil:
			<-c.over
		default:
			select {
			case <-c.over: // if it has failed, this caller asks itself
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			return nil, w.wrap(op, rank, err)
		}
	}
}

// meet is what a contact does.
func (w *Window) meet(op string, rank int, r *Remote, c *contact) error {
	var m rma.Region
	var link *pml.Reach
	var err error
	if c.info {
		m, link, err = w.borrow(op, rank)
	}
	has := false
	if c.lock && err == nil {
		err = w.ask(op, rank, &rma.Request{Kind: rma.Lock, Op: uint8(rma.Shared) | rma.LockFirst}, nil, nil)
		has = err == nil
	}
	w.mu.Lock()
	if c.info && err == nil {
		if !r.known {
			r.link.Store(link) // else operations are under way on the one that there is
		}
		r.known, r.count, r.device = true, m.Count, m.ByDevice
	}
	release := has && c.abandoned
	r.locked = r.locked || has && !c.abandoned
	if r.contact == c {
		r.contact = nil
	}
	w.mu.Unlock()
	close(c.over)
	if release {
		err = w.giveUp(op, rank)
	}
	return err
}

// within runs f in the background, and returns its error, or the error of ctx if that ends first.
func (w *Window) within(ctx context.Context, op string, f func() error) error {
	done := w.background(op, f)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish runs f, on whose end other ranks count, and waits for it no longer than ctx.
func (w *Window) finish(ctx context.Context, op string, rank int, f func() error) error {
	return w.wrap(op, rank, w.within(ctx, op, f))
}

// background runs f on a goroutine of the library. Free waits for it: it may ask other ranks for something.
func (w *Window) background(op string, f func() error) (done <-chan error) {
	w.mu.Lock()
	w.late++
	w.mu.Unlock()
	return w.group.InBackground(op, func() error {
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.late--; w.late == 0 && w.onTime != nil {
				close(w.onTime)
				w.onTime = nil
			}
		}()
		return f()
	})
}

// awaitLate returns when nothing goes on in the background.
func (w *Window) awaitLate() {
	w.mu.Lock()
	over := w.onTime
	if w.late > 0 && over == nil {
		over = make(chan struct{})
		w.onTime = over
	}
	w.mu.Unlock()
	if over != nil {
		<-over
	}
}

// slot is a tag that no other operation under way at a rank has.
func (w *Window) slot(of int32) int32 {
	last := &w.slots
	if of == tagLocks {
		last = &w.lockSlot
	}
	return of + last.Add(1)&(tagsEach-1)
}

func (w *Window) take() *scratch {
	if s, ok := w.scratch.Get().(*scratch); ok {
		return s
	}
	return &scratch{out: make([]byte, 0, requestMost)}
}

// tellRequest sends a request whose answer, if it has one, is not waited for here. sent: it is on its way, also if ctx
// has ended.
func (w *Window) tellRequest(ctx context.Context, op string, rank int, far *Remote, r *rma.Request, elements []byte) (
	sent bool, err error) {
	if ctx != nil && ctx.Err() != nil {
		return false, w.wrap(op, rank, ctx.Err())
	}
	if err := w.release(ctx, op, rank, far); err != nil {
		return false, err
	}
	s := w.take()
	s.out = append(r.Append(s.out[:0]), elements...)
	if ctx == nil {
		err = w.group.Engine.Send(nil, w.requests(), w.group.ToWorld(rank), tagRequest, s.out, pml.Standard)
		w.scratch.Put(s)
		return err == nil, w.wrap(op, rank, err)
	}
	return w.awaitSent(ctx, op, rank, w.startRequest(rank, s), s)
}

// startRequest begins to send the request of a scratch.
func (w *Window) startRequest(rank int, s *scratch) *pml.Request {
	return w.group.Engine.Isend(nil, w.requests(), w.group.ToWorld(rank), tagRequest, s.out, pml.Standard)
}

// awaitSent returns when the message m with the request of a scratch is sent, and gives the scratch back. sent is as in
// tellRequest.
func (w *Window) awaitSent(ctx context.Context, op string, rank int, m *pml.Request, s *scratch) (sent bool,
	err error) {
	if ctx != nil {
		if err := m.Await(ctx); err != nil {
			w.later(m, func() { w.scratch.Put(s) })
			return true, w.wrap(op, rank, err)
		}
	}
	_, err = m.Wait()
	w.scratch.Put(s)
	return err == nil, w.wrap(op, rank, err)
}

// later collects a request whose caller has gone, and calls f then.
func (w *Window) later(m *pml.Request, f func()) {
	w.background("", func() error {
		_, err := m.Wait()
		f()
		return err
	})
}

// ask is askWithin without a context.
func (w *Window) ask(op string, rank int, r *rma.Request, elements, answer []byte) error {
	return w.askWithin(nil, op, rank, r, elements, answer)
}

// askWithin sends a request and waits for its answer, which must have so many bytes behind the first ones.
func (w *Window) askWithin(ctx context.Context, op string, rank int, r *rma.Request, elements, answer []byte) error {
	far := w.remote(rank)
	room, tags := far.asks, int32(tagAnswers)
	if r.Kind == rma.Lock {
		room, tags = far.locks, tagLocks
	}
	if err := enter(ctx, room); err != nil {
		return w.wrap(op, rank, err)
	}
	s := w.take()
	r.Slot = w.slot(tags)
	to := w.group.ToWorld(rank)
	if ctx != nil {
		m := w.group.Engine.Irecv(nil, w.requests(), to, r.Slot, s.in[:])
		sent, err := w.tellRequest(ctx, op, rank, far, r, elements)
		return w.awaitAnswer(ctx, op, rank, r, asked{m, s, room, sent, err}, answer)
	}
	defer w.give(s, room)
	if err := w.release(nil, op, rank, far); err != nil {
		return err
	}
	s.out = append(r.Append(s.out[:0]), elements...)
	st, err := w.group.Engine.Sendrecv(nil, w.requests(), to, tagRequest, s.out, to, r.Slot, s.in[:])
	if err != nil {
		return w.wrap(op, rank, err)
	}
	return w.answered(op, rank, r, s.in[:st.Bytes], answer)
}

// asked is a request whose answer is to be received.
type asked struct {
	m    *pml.Request // receives the answer
	s    *scratch     // of the answer
	room chan struct{}
	sent bool  // the request is on its way
	err  error // of sending it
}

// awaitAnswer waits for an answer no longer than ctx, and reads it.
func (w *Window) awaitAnswer(ctx context.Context, op string, rank int, r *rma.Request, a asked, answer []byte) error {
	err := a.err
	if err == nil {
		err = a.m.Await(ctx)
	}
	switch {
	case err != nil && a.sent: // the answer may come at any time
		w.later(a.m, func() { w.give(a.s, a.room) })
		return w.wrap(op, rank, err)
	case err != nil:
		a.m.Cancel()
	}
	st, failed := a.m.Wait()
	defer w.give(a.s, a.room)
	if err == nil {
		err = failed
	}
	if err != nil {
		return w.wrap(op, rank, err)
	}
	return w.answered(op, rank, r, a.s.in[:st.Bytes], answer)
}

// answered reads what a rank has sent as the answer to a request, which must have so many bytes behind the first ones.
func (w *Window) answered(op string, rank int, r *rma.Request, in, answer []byte) error {
	var a rma.Answer
	has, err := a.Decode(in)
	who := w.group.RankOf(a.Rank)
	switch {
	case err != nil:
		return w.fail(op, mpierr.ErrAborted, rank, "the rank has sent what is no answer to a %v request: %w", r.Kind,
			err)
	case a.Result == rma.Outside:
		if r.Kind != rma.Flush && r.Kind != rma.Unlock { // the request itself
			a.Kind = 0
		}
		return w.fail(op, mpierr.ErrRange, rank, "%s", w.outside(a.Kind, a.At, a.N))
	case a.Result == rma.HalfDone:
		return w.wrap(op, rank, w.fail(op, mpierr.ErrPeerFailed, rank, "%w", &halfDone{who}))
	case a.Result == rma.PeerFailed:
		return w.wrap(op, rank, w.lockLost(op, rank, who, nil))
	case a.Result == rma.Returned:
		return w.wrap(op, rank, w.lockLost(op, rank, who, pml.ErrReturned))
	case a.Result == rma.Freed:
		return w.wrap(op, rank, w.fail(op, mpierr.ErrPeerFailed, rank, freedThere))
	case a.Result == rma.DeviceFailed:
		return w.fail(op, mpierr.ErrDevice, rank, "an operation at the rank has failed, and its elements are not defined: %q",
			has)
	case a.Result == rma.Done && len(has) == len(answer):
		copy(answer, has)
		return nil
	}
	return w.fail(op, mpierr.ErrAborted, rank, "the rank has refused a %v request", r.Kind)
}

// freedThere is what a call hears from a rank whose Free has failed.
const freedThere = "the rank has freed the window, after another rank had failed or returned; free it here too"

// unread says why the elements of a Get have not come. They may be outside only if ranks attach memory: else this rank
// has checked that. k is outside's.
func (w *Window) unread(k rma.Kind, at, n int64) (class error, why string) {
	if w.regions == nil {
		return mpierr.ErrPeerFailed, freedThere
	}
	return mpierr.ErrRange, w.outside(k, at, n)
}

// give gives back what askWithin needs.
func (w *Window) give(s *scratch, room chan struct{}) {
	w.scratch.Put(s)
	<-room
}

// reserve is called before a request of PutAlone or Get. If there have been many, it flushes first: the other rank
// keeps something for each.
func (w *Window) reserve(ctx context.Context, op string, rank int, r *Remote) error {
	for {
		w.mu.Lock()
		full := r.moves >= rma.MovesMost
		if !full {
			r.moves++
		}
		w.mu.Unlock()
		if !full {
			return nil
		}
		if err := w.complete(ctx, op, rank, r, rma.Flush); err != nil {
			return err
		}
	}
}

// announce asks a rank for a message with elements, which the caller begins if sent. It has begun then, also with an
// error: ctx has ended.
func (w *Window) announce(ctx context.Context, op string, rank int, r *Remote, want *rma.Request) (sent bool,
	err error,
) {
	if err := w.reserve(ctx, op, rank, r); err != nil {
		return false, err
	}
	if sent, err = w.tellRequest(ctx, op, rank, r, want, nil); !sent {
		w.unreserve(r)
	}
	return sent, err
}

// began notes an operation whose request is held.
func (w *Window) began(r *Remote) {
	w.mu.Lock()
	r.sent++
	r.wrote = r.sent
	w.mu.Unlock()
}

// beganTransfer notes an operation whose request has been sent. A message of its own has the elements that want names.
func (w *Window) beganTransfer(r *Remote, want *rma.Request, m *pml.Request) {
	w.mu.Lock()
	if r.sent++; want.Kind != rma.Get {
		r.wrote = r.sent
	}
	r.moving++
	r.pending = append(r.pending, transfer{m, want.At, want.N})
	w.mu.Unlock()
}

// unreserve ends reserve where nothing has been sent.
func (w *Window) unreserve(r *Remote) {
	w.mu.Lock()
	r.moves--
	w.mu.Unlock()
}

// Put writes src at a rank. src is the window's until the next flush there. A short one may be held until then.
func (w *Window) Put(ctx context.Context, op string, r *Remote, rank int, at int64, src []byte) error {
	if l := r.link.Load(); l != nil {
		if ok, err := l.Put(ctx, src, at*int64(w.elem)); ok {
			return w.wrap(op, rank, err)
		}
	}
	_, err := w.put(ctx, op, r, rank, at, src, false)
	return err
}

// StartPut is Put with a request, which is done when src is the caller's again; nil: it is.
func (w *Window) StartPut(ctx context.Context, op string, r *Remote, rank int, at int64, src []byte) (*pml.Request,
	error) {
	if l := r.link.Load(); l != nil {
		if m, ok, err := l.StartPut(ctx, src, at*int64(w.elem)); ok {
			return m, w.wrap(op, rank, err)
		}
	}
	return w.put(ctx, op, r, rank, at, src, true)
}

func (w *Window) put(ctx context.Context, op string, r *Remote, rank int, at int64, src []byte, proxy bool) (
	request *pml.Request, err error) {
	want := rma.Request{Kind: rma.Put, At: at, N: w.count(src)}
	if len(src) <= elementsMost {
		return nil, w.hold(ctx, op, rank, r, &want, src)
	}
	want.Kind, want.Slot = rma.PutAlone, w.slot(tagElements)
	sent, err := w.announce(ctx, op, rank, r, &want)
	if !sent {
		return nil, err
	}
	m := w.group.Engine.Isend(nil, w.requests(), w.group.ToWorld(rank), want.Slot, src, pml.Standard)
	if proxy && err == nil {
		request = m.Proxy(ctx, nil)
	}
	w.beganTransfer(r, &want, m)
	return request, err
}

// Get reads elements of a rank into dst, which is the window's until the next flush there.
func (w *Window) Get(ctx context.Context, op string, r *Remote, rank int, at int64, dst []byte) error {
	if l := r.link.Load(); l != nil {
		if ok, err := l.Get(ctx, dst, at*int64(w.elem)); ok {
			return w.wrap(op, rank, err)
		}
	}
	_, err := w.get(ctx, op, r, rank, at, dst, false)
	return err
}

// StartGet is Get with a request, which is done when dst has the elements.
func (w *Window) StartGet(ctx context.Context, op string, r *Remote, rank int, at int64, dst []byte) (*pml.Request,
	error) {
	if l := r.link.Load(); l != nil {
		if m, ok, err := l.StartGet(ctx, dst, at*int64(w.elem)); ok {
			return m, w.wrap(op, rank, err)
		}
	}
	return w.get(ctx, op, r, rank, at, dst, true)
}

func (w *Window) get(ctx context.Context, op string, r *Remote, rank int, at int64, dst []byte, proxy bool) (
	request *pml.Request, err error) {
	if err := w.reserve(ctx, op, rank, r); err != nil {
		return nil, err
	}
	want := rma.Request{Kind: rma.Get, At: at, N: w.count(dst), Slot: w.slot(tagAnswers)}
	m := w.group.Engine.Irecv(nil, w.requests(), w.group.ToWorld(rank), want.Slot, dst)
	sent, err := w.tellRequest(ctx, op, rank, r, &want, nil)
	if !sent {
		m.Cancel()
		m.Wait()
		w.unreserve(r)
		return nil, err
	}
	if proxy && err == nil {
		class, why := w.unread(0, at, want.N)
		request = m.Proxy(ctx, mpierr.New("", class, "%s", why))
	}
	w.beganTransfer(r, &want, m)
	return request, err
}

// Accumulate combines src with elements of a rank.
func (w *Window) Accumulate(ctx context.Context, call string, r *Remote, rank int, at int64, op uint8,
	src []byte) error {
	return w.pieces(len(src), func(from, to int) error {
		want := rma.Request{Kind: rma.Update, Op: op, At: at + w.count(src[:from]), N: w.count(src[from:to])}
		return w.hold(ctx, call, rank, r, &want, src[from:to])
	})
}

// Fetch is Accumulate that returns the elements as they were. src may be empty.
func (w *Window) Fetch(ctx context.Context, call string, rank int, at int64, op uint8, src, before []byte) error {
	if len(before) == stepBytes && w.nic {
		if ok, err := w.stepByLink(ctx, call, rank, at, op, src, before); ok {
			return err
		}
	}
	return w.pieces(len(before), func(from, to int) error {
		want := rma.Request{Kind: rma.Fetch, Op: op, At: at + w.count(before[:from]), N: w.count(before[from:to])}
		var piece []byte
		if len(src) > 0 {
			piece = src[from:to]
		}
		return w.stepAsked(ctx, call, rank, &want, piece, before[from:to])
	})
}

// Swap is rma.Swap, of two elements.
func (w *Window) Swap(ctx context.Context, call string, rank int, at int64, two, before []byte) error {
	if w.nic {
		if ok, err := w.swapByLink(ctx, call, rank, at, two, before); ok {
			return err
		}
	}
	return w.stepAsked(ctx, call, rank, &rma.Request{Kind: rma.Swap, At: at, N: 1}, two, before)
}

func (w *Window) count(b []byte) int64 {
	if w.elem == 0 {
		return 0
	}
	return int64(len(b) / w.elem)
}

// pieces calls f with the ends of pieces of n bytes that fit a request.
func (w *Window) pieces(n int, f func(from, to int) error) error {
	most := elementsMost / max(1, w.elem) * max(1, w.elem)
	for from := 0; from < n; from += most {
		if err := f(from, min(n, from+most)); err != nil {
			return err
		}
	}
	return nil
}

// settle returns when the messages with elements at a rank are over: the callers' buffers are theirs again. r.flushing
// is held. ended: ctx has ended before.
func (w *Window) settle(ctx context.Context, op string, rank int, r *Remote) (ended bool, err error) {
	if ended, err = w.flushLink(ctx, op, rank, r); ended {
		return true, err
	}
	w.mu.Lock()
	pending := r.pending
	r.pending, r.spare = r.spare, nil
	w.mu.Unlock()
	for i, t := range pending {
		m := t.m
		if failed := m.Await(ctx); failed != nil && ctx != nil {
			w.mu.Lock()
			r.pending = append(pending[i:len(pending):len(pending)], r.pending...)
			r.settledWith(err)
			w.mu.Unlock()
			return true, w.wrap(op, rank, failed)
		}
		if m.Short() && err == nil {
			class, why := w.unread(rma.Get, t.at, t.n)
			err = w.fail(op, class, rank, "%s", why)
		}
		if _, failed := m.Wait(); failed != nil && err == nil {
			err = w.wrap(op, rank, failed)
		}
	}
	clear(pending)
	w.mu.Lock()
	r.spare = pending[:0]
	r.settledWith(err)
	w.mu.Unlock()
	return false, err
}

// settledWith has the next flush ask the rank after an error: the rank tells of it too, or is gone, and each flush is
// to say so. The window's mu is held.
func (r *Remote) settledWith(err error) {
	if err != nil {
		r.wrote = r.sent
	}
}

// settled is settle for a caller that does not hold r.flushing.
func (w *Window) settled(ctx context.Context, op string, rank int) error {
	r := w.remote(rank)
	if err := enter(ctx, r.flushing); err != nil {
		return w.wrap(op, rank, err)
	}
	defer func() { <-r.flushing }()
	_, err := w.settle(ctx, op, rank, r)
	return err
}

// flush is flushWithin without a context.
func (w *Window) flush(op string, rank int) error { return w.flushWithin(nil, op, rank) }

// flushWithin returns when the operations at a rank are complete there whose calls have returned.
func (w *Window) flushWithin(ctx context.Context, op string, rank int) error {
	w.mu.Lock()
	r := w.far[rank]
	w.mu.Unlock()
	if r == nil {
		return nil
	}
	return w.complete(ctx, op, rank, r, rma.Flush)
}

// complete sends a Flush, unless there is nothing to flush, or an Unlock, and waits for the answer. A Get is complete
// when its elements have come: then there is nothing to ask.
func (w *Window) complete(ctx context.Context, op string, rank int, r *Remote, kind rma.Kind) error {
	if err := enter(ctx, r.flushing); err != nil {
		return w.wrap(op, rank, err)
	}
	defer func() { <-r.flushing }()
	w.mu.Lock()
	sent, wrote, moving := r.sent, r.wrote, r.moving
	w.mu.Unlock()
	if kind == rma.Flush && sent == r.flushed {
		_, err := w.flushLink(ctx, op, rank, r)
		return err
	}
	ended, err := w.settle(ctx, op, rank, r)
	if ended {
		return err
	}
	var failed error
	if kind != rma.Flush || err != nil || wrote > r.flushed {
		failed = w.askEnd(ctx, op, rank, r, kind)
	}
	if ctx != nil && ctx.Err() != nil && errors.Is(failed, ctx.Err()) {
		return errors.Join(err, failed) // the next flush asks again
	}
	if err == nil || failed == nil || !tellTheSame(err, failed) {
		err = errors.Join(err, failed)
	}
	w.mu.Lock()
	r.moves -= moving
	r.moving -= moving
	if failed == nil {
		r.handled = max(r.handled, sent)
	}
	w.mu.Unlock()
	if !errors.Is(err, mpierr.ErrPeerFailed) { // else they never are, and each call says so
		r.flushed = sent
	}
	return err
}

// tellTheSame reports whether the error of a Get, which has found its elements missing, is what the rank tells of too.
func tellTheSame(get, told error) bool {
	return errors.Is(get, mpierr.ErrRange) && errors.Is(told, mpierr.ErrRange) || get.Error() == told.Error()
}

// flushAll is flush of all ranks.
func (w *Window) flushAll(op string) error { return w.flushAllWithin(nil, op) }

func (w *Window) flushAllWithin(ctx context.Context, op string) error {
	return w.eachRemote(func(rank int, _ *Remote) error { return w.flushWithin(ctx, op, rank) })
}

// eachRemote calls f with each rank that this one has asked for something, in no order. It returns the first error.
func (w *Window) eachRemote(f func(rank int, r *Remote) error) (err error) {
	w.mu.Lock()
	all := make([]int, 0, len(w.far))
	for rank := range w.far {
		all = append(all, rank)
	}
	w.mu.Unlock()
	for _, rank := range all {
		if failed := f(rank, w.remote(rank)); err == nil {
			err = failed
		}
	}
	return err
}

// giveUp lets a lock go that has come too late.
func (w *Window) giveUp(op string, rank int) error {
	return w.ask(op, rank, &rma.Request{Kind: rma.Unlock, Op: rma.UnlockUnused}, nil, nil)
}

// askUnlock lets the lock of a rank go when the operations there are complete.
func (w *Window) askUnlock(op string, rank int) error {
	return w.complete(nil, op, rank, w.remote(rank), rma.Unlock)
}

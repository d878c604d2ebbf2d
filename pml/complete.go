package pml

import (
	"context"
	"fmt"
)

// What a holder does with a request. Every method that collects a result gives the request back; a second collection
// is answered with ErrRequest.

// Wait returns when r is done, with its result, and gives r back.
func (e *Engine) Wait(r *Request) (Status, error) {
	e.lock()
	defer e.unlock()
	if err := r.claim(); err != nil {
		return Status{}, err
	}
	if r.state == stActive {
		r.waited = true
		e.await(r)
	}
	st, err := e.collect(r)
	e.leave()
	return st, err
}

// claim checks that r can be waited for.
func (r *Request) claim() error {
	switch {
	case r.state == stFree:
		return fmt.Errorf("%w: it has been waited for already", ErrRequest)
	case r.state == stIdle:
		return fmt.Errorf("%w: a persistent request must be started first", ErrRequest)
	case r.waited:
		return fmt.Errorf("%w: another goroutine waits for it", ErrRequest)
	}
	return nil
}

// collect takes the result of a request that is done.
func (e *Engine) collect(r *Request) (Status, error) {
	st, err := r.status, r.err
	e.release(r)
	return st, err
}

// Test is Wait that does not wait: done says whether there was a result, which is then collected.
func (e *Engine) Test(r *Request) (done bool, st Status, err error) {
	e.lock()
	defer e.unlock()
	if err := r.claim(); err != nil {
		return false, Status{}, err
	}
	e.tryProgress(r)
	if r.state != stDone {
		return false, Status{}, nil
	}
	st, err = e.collect(r)
	e.leave()
	return true, st, err
}

// tryProgress polls once if nobody else does.
func (e *Engine) tryProgress(r *Request) {
	if r.state != stDone && !e.leading {
		e.progress()
	}
	if r.state != stDone && r.cctx != nil && r.cctx.Err() != nil {
		e.cancel(r, r.cctx.Err())
	}
	e.leave()
}

// Set is some requests; At may return nil for one that is not there.
type Set struct {
	Len int
	At  func(i int) *Request
}

// Each is told the result of the set's request i.
type Each func(i int, st Status, err error)

// claim checks all before anything is done with one: the index of the first that cannot be waited for, or -1.
func (s *Set) claim() (int, error) {
	for i := range s.Len {
		if r := s.At(i); r != nil {
			if err := r.claim(); err != nil {
				return i, err
			}
		}
	}
	return -1, nil
}

func (s *Set) setWaited(v bool) (present int) {
	for i := range s.Len {
		if r := s.At(i); r != nil {
			r.waited = v
			present++
		}
	}
	return present
}

// cancelEnded cancels the requests whose contexts have ended.
func (e *Engine) cancelEnded(s *Set) {
	for i := range s.Len {
		if r := s.At(i); r != nil && r.state == stActive && r.cctx != nil && r.cctx.Err() != nil {
			e.cancel(r, r.cctx.Err())
		}
	}
}

// WaitAll waits for all of s and hands each result to each. If one cannot be waited for, its index and why; then
// nothing has been waited for.
func (e *Engine) WaitAll(s Set, each Each) (int, error) {
	e.lock()
	defer e.unlock()
	if i, err := s.claim(); err != nil {
		return i, err
	}
	s.setWaited(true)
	for i := range s.Len {
		r := s.At(i)
		if r == nil {
			continue
		}
		if r.state == stFree || r.state == stIdle { // twice in the same set
			each(i, Status{}, ErrRequest)
			continue
		}
		if r.state == stActive {
			e.await(r)
		}
		st, err := e.collect(r)
		each(i, st, err)
	}
	e.leave()
	return -1, nil
}

// WaitSome waits until at least one of s is done and hands every result that is there to each, at most max of them.
func (e *Engine) WaitSome(s Set, max int, each Each) (int, error) {
	e.lock()
	defer e.unlock()
	if i, err := s.claim(); err != nil {
		return i, err
	}
	if s.setWaited(true) > 0 {
		w := want{set: s, cc: s.context()}
		for !w.ready() {
			e.block(&w)
			e.cancelEnded(&s)
			if w.cc != nil && w.cc.Err() != nil {
				w.cc = nil // its requests have been cancelled, or complete in their own time
			}
		}
	}
	s.setWaited(false)
	e.collectSome(&s, max, each)
	e.leave()
	return -1, nil
}

// context that can end the waiting for a set: that of its first request that has one.
func (s *Set) context() context.Context {
	for i := range s.Len {
		if r := s.At(i); r != nil && r.state == stActive && r.cctx != nil {
			return r.cctx
		}
	}
	return nil
}

func (e *Engine) collectSome(s *Set, max int, each Each) {
	for i := 0; i < s.Len && max != 0; i++ {
		if r := s.At(i); r != nil && r.state == stDone {
			max--
			st, err := e.collect(r)
			each(i, st, err)
		}
	}
}

// TestSome is WaitSome that does not wait. all: only if every one of s is done; it reports whether that is so.
func (e *Engine) TestSome(s Set, max int, all bool, each Each) (done bool, bad int, err error) {
	e.lock()
	defer e.unlock()
	if i, err := s.claim(); err != nil {
		return false, i, err
	}
	if !e.leading {
		e.progress()
	}
	e.cancelEnded(&s)
	done = true
	for i := range s.Len {
		if r := s.At(i); r != nil && r.state != stDone {
			done = false
		}
	}
	if !all || done {
		e.collectSome(&s, max, each)
	}
	e.leave()
	return done, -1, nil
}

// Done returns a channel that is closed when r is done; its result must still be collected.
func (e *Engine) Done(r *Request) <-chan struct{} {
	e.lock()
	defer e.unlock()
	if r.done == nil {
		r.done = make(chan struct{})
		if r.state != stActive {
			close(r.done)
		} else {
			e.followers++ // somebody waits
			e.leave()
		}
	}
	return r.done
}

// PrepareSend returns a persistent request for a send, which Start starts.
func (e *Engine) PrepareSend(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) *Request {
	e.lock()
	defer e.unlock()
	r := e.cfg.NewRequest()
	r.recv.Owner = r
	r.prepareSend(cc, ctx, dest, tag, buf, mode)
	return r.persist()
}

// PrepareRecv is PrepareSend for a receive.
func (e *Engine) PrepareRecv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) *Request {
	e.lock()
	defer e.unlock()
	r := e.cfg.NewRequest()
	r.recv.Owner = r
	r.prepareRecv(cc, ctx, source, tag, buf)
	return r.persist()
}

// persist keeps what start and release would lose.
func (r *Request) persist() *Request {
	r.persistent, r.state = true, stIdle
	r.keep = &kept{buf: r.buf, cctx: r.cctx, source: r.recv.Source, tag: r.recv.Tag}
	return r
}

// kept are a persistent request's arguments.
type kept struct {
	buf         []byte
	cctx        context.Context
	source, tag int32
}

// Start starts a persistent request.
func (e *Engine) Start(r *Request) error {
	e.lock()
	defer e.unlock()
	switch {
	case !r.persistent:
		return fmt.Errorf("%w: only persistent requests are started", ErrRequest)
	case r.state == stFree:
		return fmt.Errorf("%w: it has been freed", ErrRequest)
	case r.state != stIdle:
		return fmt.Errorf("%w: it is started already and its result has not been collected", ErrRequest)
	}
	r.buf, r.cctx, r.recv.Source, r.recv.Tag = r.keep.buf, r.keep.cctx, r.keep.source, r.keep.tag
	e.start(r)
	e.leave()
	return nil
}

// StartDone is Start for an operation that the caller has done in another way.
func (e *Engine) StartDone(r *Request, st Status) error {
	e.lock()
	defer e.unlock()
	if r.state != stIdle {
		return fmt.Errorf("%w: it is started already or has been freed", ErrRequest)
	}
	r.state, r.status, r.err = stDone, st, nil
	return nil
}

// FreeRequest ends a persistent request that is not active.
func (e *Engine) FreeRequest(r *Request) error {
	e.lock()
	defer e.unlock()
	if r.state == stFree {
		return fmt.Errorf("%w: it has been freed already", ErrRequest)
	}
	if r.state == stActive {
		return fmt.Errorf("%w: it is under way; wait for it first", ErrRequest)
	}
	r.state, r.persistent = stFree, true
	r.keep = nil
	return nil
}

// Completed makes a request that is done already: an operation with ProcNull.
func (e *Engine) Completed(st Status) *Request {
	e.lock()
	defer e.unlock()
	r := e.handle()
	r.persistent, r.state, r.status = false, stDone, st
	return r
}

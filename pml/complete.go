package pml

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/transport"
)

// What a holder does with a request, or with a set of them. Every method that collects a result gives the request back;
// a second collection is answered with ErrRequest. The methods of a Request are for one that an engine has made: see
// Request.Engine.

// Wait returns when r is done, with its result, and gives r back.
func (r *Request) Wait() (st Status, err error) {
	e := r.e
	e.lock()
	if s := r.state; s >= stActive && r.claimed == 0 {
		if s == stActive {
			r.claimed = e.requests.nextClaim()
			if r.op == opRounds {
				r.awaitRounds()
			} else {
				e.await(r)
			}
		}
		st, err = r.status, r.err
		e.requests.release(r)
		e.exitCall()
	} else if s == stIdle {
		st = Empty
	} else {
		err = r.checkWaitable()
	}
	e.unlock()
	return st, err
}

// awaitRounds is await for a caller that has not deferred to give up the lock: local work may end the goroutine.
func (r *Request) awaitRounds() {
	left := true
	defer func() {
		if left {
			r.e.unlock()
		}
	}()
	r.e.await(r)
	left = false
}

// Empty is the status of a persistent request that is not started; MPI 4.1 §3.7.3.
var Empty = Status{Source: AnySource, Tag: AnyTag}

// checkWaitable checks that r can be waited for.
func (r *Request) checkWaitable() error {
	switch {
	case r.state == stFree:
		return fmt.Errorf("%w: its result has been collected already; wait for a request once", ErrRequest)
	case r.state == stIdle:
		return fmt.Errorf("%w: a persistent request must be started first", ErrRequest)
	case r.claimed != 0:
		return fmt.Errorf("%w: another goroutine waits for it, or it is in the list twice", ErrRequest)
	}
	return nil
}

// Test is Wait that does not wait: done says whether there was a result, which is then collected.
func (r *Request) Test() (done bool, st Status, err error) {
	e := r.e
	e.lock()
	defer e.unlock()
	if r.state == stIdle {
		return true, Empty, nil
	}
	if err := r.checkWaitable(); err != nil {
		return false, Status{}, err
	}
	if r.state != stDone && e.wait.mayPoll() {
		e.progress()
	}
	if r.state != stDone && r.cctx != nil && r.cctx.Err() != nil {
		e.cancel(r, r.cctx.Err())
	}
	if r.state != stDone {
		e.lookedInVain(&waitFor{e: e, r: r})
		e.exitCall()
		e.schedules.letWork()
		return false, Status{}, nil
	}
	st, err = r.status, r.err
	e.requests.release(r)
	e.exitCall()
	return true, st, err
}

// Set is some requests; nil for one that is not there.
type Set []*Request

// Each is told the result of the set's request i, which is the caller's until Each returns.
type Each func(i int, st Status, err error)

// claimed are those of a set that a caller waits for. A persistent request that was not started when the caller came is
// not one of them, as if it were not there (§3.7.5): another goroutine may start it meanwhile, and wait for it.
type claimed struct {
	set Set
	e   *Engine
	by  uint64 // in Request.claimed of each
}

// at is request i; nil: it is not one of them.
func (s *claimed) at(i int) *Request {
	if r := s.set[i]; r != nil && r.claimed == s.by {
		return r
	}
	return nil
}

// claim makes all of set the caller's before anything is done with one: the index of the first that cannot be waited
// for, and then none is claimed, or -1. How many there are.
func (s *claimed) claim() (bad, present int, err error) {
	for i, r := range s.set {
		switch {
		case r == nil:
		case r.e != s.e:
			s.unclaim()
			return i, 0, r.foreign()
		case r.state >= stActive && r.claimed == 0:
			r.claimed = s.by
			present++
		case r.state == stIdle:
		default:
			err := r.checkWaitable() // before it is given back: it may be here twice
			s.unclaim()
			return i, 0, err
		}
	}
	return -1, present, nil
}

// foreign is the error of a request in a set of another engine's.
func (r *Request) foreign() error {
	if r.e == nil {
		return fmt.Errorf("%w: no operation has returned it", ErrRequest)
	}
	return fmt.Errorf("%w: it belongs to another rank than those before it", ErrRequest)
}

// unclaim gives them back.
func (s *claimed) unclaim() {
	for i := range s.set {
		if r := s.at(i); r != nil {
			r.claimed = 0
		}
	}
}

// cancelEnded cancels the requests whose contexts have ended.
func (s *claimed) cancelEnded(e *Engine) {
	for i := range s.set {
		if r := s.at(i); r != nil && r.state == stActive && !r.ended && r.cctx != nil && r.cctx.Err() != nil {
			r.ended, r.extra = true, true
			e.cancel(r, r.cctx.Err())
		}
	}
}

// WaitAll waits for all of s and hands each result to each, or, unless all, only those that are errors. If one
// cannot be waited for, its index and why; then nothing has been waited for.
func (e *Engine) WaitAll(s Set, all bool, each Each) (int, error) {
	e.lock()
	c, left, told := claimed{s, e, e.requests.nextClaim()}, true, false
	defer func() {
		if left { // local work has ended the goroutine
			c.unclaim()
		}
		e.unlock()
	}()
	if i, _, err := c.claim(); err != nil {
		return i, err
	}
	for i, r := range s {
		if r == nil || r.claimed != c.by {
			continue
		}
		if r.state == stActive && e.await(r) && !told {
			told = true // the caller waits for all that are left
			for k := range s[i+1:] {
				if r := c.at(i + 1 + k); r != nil {
					e.links.saysBlocked(r)
				}
			}
		}
		if all || r.err != nil {
			each(i, r.status, r.err)
		}
		e.requests.release(r)
	}
	left = false
	e.exitCall()
	return -1, nil
}

// WaitSome waits until at least one of s is done and hands every result that is there to each, at most max of them.
// begin is told before how many; it may be nil. If one cannot be waited for, its index and why.
func (e *Engine) WaitSome(s Set, max int, begin func(n int), each Each) (int, error) {
	e.lock()
	defer e.unlock()
	c := claimed{s, e, e.requests.nextClaim()}
	i, present, err := c.claim()
	if err != nil {
		return i, err
	}
	n := 0
	if present > 0 {
		e.takeIn()
		if n = c.done(); n == 0 {
			c.awaitSome(e)
			n = c.done()
		}
	}
	if max < 0 || max > n {
		max = n
	}
	if begin != nil && max > 0 {
		begin(max)
	}
	c.collect(e, max, each)
	if max < present {
		c.unclaim()
	}
	e.exitCall()
	return -1, nil
}

// takeInPolls bounds takeIn.
const takeInPolls = 8

// takeIn takes what has come for requests that are posted, though some of the caller's are done already: sends are at
// once. Else who sends and receives would do the one until the links are full, and then the other.
func (e *Engine) takeIn() {
	e.wait.calling, e.wait.untilDone = true, true
	for polls := 0; polls < takeInPolls && e.wait.mayPoll() && e.load.outstanding != 0; polls++ {
		if e.progress() < len(e.pkts) {
			break
		}
	}
	e.wait.calling, e.wait.untilDone = false, false
}

// done is how many are.
func (s *claimed) done() int {
	n := 0
	for _, r := range s.set {
		if r != nil && r.state == stDone && r.claimed == s.by {
			n++
		}
	}
	return n
}

// awaitSome returns when one of s is done. Requests whose contexts end meanwhile are cancelled, or complete in their
// own time.
func (s *claimed) awaitSome(e *Engine) {
	w := waitFor{e: e, set: *s}
	var stop func()
	w.cc, stop = s.context()
	for !w.ready() {
		w.block()
		s.cancelEnded(e)
		if w.cc != nil && w.cc.Err() != nil {
			stop()
			w.cc, stop = s.context()
		}
	}
	stop()
	if w.slept {
		e.boards.awake(&w)
	}
}

// context ends when one of those of the set's requests does; nil if none can. stop frees it.
func (s *claimed) context() (cc context.Context, stop func()) {
	stop = func() {}
	var cancel context.CancelFunc
	for i := range s.set {
		r := s.at(i)
		switch {
		case r == nil || r.state != stActive || r.cctx == nil || r.ended:
		case cc == nil:
			cc = r.cctx
		case r.cctx.Done() == cc.Done(): // the usual case: one for all
		default:
			if cancel == nil {
				cc, cancel = context.WithCancel(cc)
				stop = cancel
			}
			off, before := context.AfterFunc(r.cctx, cancel), stop
			stop = func() { off(); before() }
		}
	}
	return cc, stop
}

// collect hands out the results that are there, at most max of them.
func (s *claimed) collect(e *Engine, max int, each Each) {
	for i := 0; i < len(s.set) && max != 0; i++ {
		if r := s.at(i); r != nil && r.state == stDone {
			max--
			each(i, r.status, r.err)
			e.requests.release(r)
		}
	}
}

// TestSome is WaitSome that does not wait. all: only if every one of s is done; it reports whether that is so.
func (e *Engine) TestSome(s Set, max int, all bool, each Each) (done bool, bad int, err error) {
	e.lock()
	defer e.unlock()
	c := claimed{s, e, e.requests.nextClaim()}
	if i, _, err := c.claim(); err != nil {
		return false, i, err
	}
	if e.wait.mayPoll() {
		e.progress()
	}
	c.cancelEnded(e)
	done = true
	for i := range s {
		if r := c.at(i); r != nil && r.state != stDone {
			done = false
		}
	}
	if !all || done {
		c.collect(e, max, each)
	}
	if !done {
		e.lookedInVain(&waitFor{e: e, set: c})
	}
	c.unclaim()
	e.exitCall()
	if !done {
		e.schedules.letWork()
	}
	return done, -1, nil
}

// Done returns a channel that is closed when r is done; its result must still be collected.
func (r *Request) Done() <-chan struct{} {
	e := r.e
	e.lock()
	defer e.unlock()
	if r.state != stActive {
		// Not kept: the request may be in use again before any caller asks for the next one.
		over := make(chan struct{})
		close(over)
		return over
	}
	if r.done == nil {
		r.done, r.extra = make(chan struct{}), true
		e.wait.followers++ // a caller waits on the channel
		e.links.saysBlocked(r)
		e.exitCall()
	}
	return r.done
}

// PrepareSend returns a persistent request for a send, which Request.Start starts.
func (e *Engine) PrepareSend(cc context.Context, ctx uint32, dest int, tag int32, buf []byte, mode Mode) *Request {
	e.lock()
	defer e.unlock()
	r := e.requests.fresh()
	r.prepareSend(cc, ctx, dest, tag, buf, mode)
	return r.persist()
}

// PrepareRecv is PrepareSend for a receive.
func (e *Engine) PrepareRecv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) *Request {
	e.lock()
	defer e.unlock()
	r := e.requests.fresh()
	r.prepareRecv(cc, ctx, source, tag, buf)
	return r.persist()
}

// persist keeps what start and release would lose.
func (r *Request) persist() *Request {
	r.state = stIdle
	r.keep = &kept{buf: r.buf, cctx: r.cctx, source: r.recv.Source, tag: r.recv.Tag}
	return r
}

// kept are a persistent request's arguments; nothing, once it has been freed.
type kept struct {
	buf         transport.Mem
	cctx        context.Context
	source, tag int32
	rounds      *Rounds
	device      *accel.Buffer // not nil: the message is there, and StartDevice starts the request
}

// Start starts a persistent request.
func (r *Request) Start() error {
	e := r.e
	e.lock()
	if r.state != stIdle {
		err := r.notIdle()
		e.unlock()
		return err
	}
	r.restart()
	e.exitCall()
	e.unlock()
	return nil
}

// restart is start of a persistent request, which is idle.
func (r *Request) restart() {
	e, k := r.e, r.keep
	switch {
	case r.op == opSend && r.mode == Standard:
		if p := e.links.peers[k.source]; p.sure(k.buf.Len, Standard) && p.out.Send(r.recv.Ctx, k.tag, k.buf.Bytes()) {
			r.sentAs(int(k.source), k.tag, k.buf.Len)
			e.links.sent(k.buf.Len)
			return
		}
		if e.links.sendUnawaited(r, r.recv.Ctx, int(k.source), k.tag, k.buf.Bytes(), Standard) {
			return
		}
	case r.op == opRounds:
		r.cctx = k.cctx
		e.schedules.start(r, k.rounds)
		return
	}
	r.vain = 0
	r.buf, r.cctx, r.recv.Source, r.recv.Tag = k.buf, k.cctx, k.source, k.tag
	if r.op == opRecv {
		e.startRecv(r)
	} else {
		e.start(r)
	}
}

// notIdle is why r, which is not idle, cannot be started.
func (r *Request) notIdle() error {
	switch {
	case r.keep == nil:
		return fmt.Errorf("%w: only persistent requests can be started; SendInit and RecvInit make them", ErrRequest)
	case r.state == stFree:
		return fmt.Errorf("%w: it has been freed", ErrRequest)
	}
	return fmt.Errorf("%w: it is started already; collect its result with Wait or Test first", ErrRequest)
}

// StartDone is Start for an operation that the caller has done in another way.
func (r *Request) StartDone(st Status) error {
	r.e.lock()
	defer r.e.unlock()
	if r.state != stIdle {
		return fmt.Errorf("%w: it is started already, has been freed, or is not persistent", ErrRequest)
	}
	r.state, r.status, r.err = stDone, st, nil
	return nil
}

// Free ends a persistent request that is not started, or whose result has been collected.
func (r *Request) Free() error {
	r.e.lock()
	defer r.e.unlock()
	switch {
	case r.state == stFree:
		return fmt.Errorf("%w: it has been freed already", ErrRequest)
	case r.state != stIdle: // whether it is done depends on the time
		return fmt.Errorf("%w: it is started; collect its result with Wait or Test first", ErrRequest)
	}
	r.state, r.keep = stFree, new(kept)
	return nil
}

// Completed makes a request that is done already: an operation with ProcNull.
func (e *Engine) Completed(st Status) *Request {
	e.lock()
	defer e.unlock()
	r := e.requests.handle()
	r.state, r.status = stDone, st
	return r
}

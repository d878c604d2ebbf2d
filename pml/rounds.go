package pml

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// Rounds is an operation that consists of rounds: messages, and then local work, after which the next round begins.
// Collective calls use it. A Script says what the rounds are.
//
// The goroutine that finds the last message of a round complete posts the next round, under the lock: a caller that
// leads, or the watcher. Local work may take long, and may be a user's code: it runs without the lock, on the
// goroutine of the caller that waits for the request, if it cannot return before. Otherwise a goroutine is started
// for it.
//
// A Rounds is the engine's from its start until Script.End is called.
type Rounds struct {
	script Script
	ctx    uint32
	tag    int32

	hold   bool     // Release has not been called
	front  *Request // the caller's; nil: its context has ended, and what other ranks count on goes on
	open   int      // messages of the round that are under way; one more while the round is being posted
	kind   RoundKind
	queued bool  // in schedules.work
	ended  error // why front ends as soon as the caller's memory is not used any more; nil: it does not
	next   *Rounds
}

// Script says what the rounds of an operation are. Its methods are called one at a time. All but Work are called under
// the engine's lock, so they neither wait nor call the engine.
type Script interface {
	// Begin is told that the operation starts.
	Begin()
	// Next begins the next round: it posts the messages by Rounds.Recv and Rounds.Send, first the receives.
	Next(r *Rounds) RoundKind
	// Got is told how message i of the round has ended, unless it is a send that went well. i is -1 if the engine has
	// been closed in place of local work.
	Got(i int, st Status, err error)
	// Work does the local work of the round. It may end its goroutine (runtime.Goexit): the operation goes on, and
	// another goroutine may wait for its request.
	Work()
	// End is told that the operation is over, and says with which error. lost: the caller does not hear of it. Nothing
	// of the operation is used after that.
	End(lost bool) error
}

// RoundKind is what a round has.
type RoundKind uint8

const (
	RoundOver     RoundKind = iota // there is none
	RoundMessages                  // messages, or nothing
	RoundWork                      // local work after them
	RoundMemory                    // local work that uses memory which is the caller's again when the context has ended
	RoundHeld                      // not yet: after Release
)

// Set says what an operation is, before it is started: which script, and with what context and tag its messages go.
// hold: it waits for Release, where the script says so.
func (r *Rounds) Set(script Script, ctx uint32, tag int32, hold bool) {
	*r = Rounds{script: script, ctx: ctx, tag: tag, hold: hold}
}

// Held reports whether it waits for Release. It is for the script.
func (r *Rounds) Held() bool { return r.hold }

// Lost reports whether the context of the caller has ended, so that it does not hear of the result. It is for the
// script.
func (r *Rounds) Lost() bool { return r.front == nil }

// Lose ends the caller's request with why; the operation goes on. It is for the script, in Next, which uses no memory
// of the caller's any more.
func (r *Rounds) Lose(e *Engine, why error) { e.schedules.lose(r, why) }

// schedules are the Rounds of an engine.
type schedules struct {
	e         *Engine
	ready     roundsQueue // their next round can begin; load.pending counts them
	work      roundsQueue // their local work is to be done
	working   int         // how many are in work, or have local work that is being done
	advancing bool
	help      func() // the schedules' own, as a value: to start it allocates nothing then
}

func (s *schedules) init(e *Engine) {
	s.e = e
	s.help = s.doOne
}

// roundsQueue is chained by next.
type roundsQueue struct{ first, last *Rounds }

func (q *roundsQueue) empty() bool { return q.first == nil }

func (q *roundsQueue) push(r *Rounds) {
	if q.first == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
}

// pop takes the one whose request front is; nil: the first that no caller waits for.
func (q *roundsQueue) pop(front *Request) *Rounds {
	var before *Rounds
	for r := q.first; r != nil; before, r = r, r.next {
		if front != nil && r.front != front || front == nil && r.awaited() {
			continue
		}
		if before == nil {
			q.first = r.next
		} else {
			before.next = r.next
		}
		if q.last == r {
			q.last = before
		}
		r.next = nil
		return r
	}
	return nil
}

// awaited reports whether a caller waits that does the local work, awake or asleep.
func (r *Rounds) awaited() bool { return r.front != nil && r.front.awaited }

// Start starts r at e. The request is the caller's until it is collected. It cannot be cancelled. When cc ends, it ends
// with cc's error, and the operation goes on.
func (r *Rounds) Start(cc context.Context, e *Engine) *Request {
	e.lock()
	front := e.requests.handle()
	front.prepareRounds(cc, r)
	e.schedules.start(front, r)
	e.exitCall()
	e.unlock()
	return front
}

// Prepare returns a persistent request for r at e, which Request.Start starts.
func (r *Rounds) Prepare(cc context.Context, e *Engine) *Request {
	e.lock()
	defer e.unlock()
	front := e.requests.fresh()
	front.prepareRounds(cc, r)
	front.persist()
	front.keep.rounds = r
	return front
}

func (r *Request) prepareRounds(cc context.Context, o *Rounds) {
	r.op, r.mode, r.cctx, r.peer = opRounds, Standard, cc, nil
	r.recv.Ctx, r.recv.Source, r.recv.Tag = o.ctx, AnySource, AnyTag
	r.buf = transport.Mem{}
}

// Release lets an operation go on that is held.
func (r *Rounds) Release(e *Engine) {
	e.lock()
	r.hold = false
	if r.kind == RoundHeld {
		r.kind = RoundMessages
		e.schedules.proceed(r)
		e.schedules.advance()
	}
	e.exitCall()
	e.unlock()
}

func (s *schedules) start(r *Request, o *Rounds) {
	r.state, r.err, r.status = stActive, nil, Empty
	r.rounds, r.extra = o, true
	s.e.load.outstanding++
	s.e.wait.rounds++
	o.front, o.open, o.kind, o.ended = r, 0, RoundMessages, nil
	o.script.Begin()
	s.proceed(o)
	s.advance()
}

// proceed is called when o's next round can begin.
func (s *schedules) proceed(o *Rounds) {
	s.ready.push(o)
	s.e.load.pending++
}

// advance begins the rounds that can begin. It returns how many.
func (s *schedules) advance() (n int) {
	if s.advancing {
		return 0 // the one who advances comes to it
	}
	s.advancing = true
	for ; !s.ready.empty(); n++ {
		o := s.ready.first
		s.ready.first, o.next = o.next, nil
		s.e.load.pending--
		s.begin(o)
	}
	s.advancing = false
	return n
}

// begin posts o's next round.
func (s *schedules) begin(o *Rounds) {
	if s.e.closed != nil {
		o.script.Got(-1, Status{}, s.e.closed)
	}
	o.open = 1
	o.kind = o.script.Next(o)
	o.open--
	switch {
	case o.kind == RoundHeld:
	case o.kind == RoundOver:
		s.end(o)
	case o.open == 0:
		s.received(o)
	}
}

// Recv posts a receive of the round that Next begins: message i.
func (r *Rounds) Recv(e *Engine, i, source int, buf []byte) {
	c := e.schedules.part(r, i)
	c.prepareRecv(nil, r.ctx, source, r.tag, buf)
	e.start(c)
}

// Send starts a send of the round that Next begins: message i.
func (r *Rounds) Send(e *Engine, i, dest int, buf []byte) {
	if e.links.sendNow(r.ctx, dest, r.tag, buf) {
		return
	}
	c := e.schedules.part(r, i)
	c.prepareSend(nil, r.ctx, dest, r.tag, buf, Standard)
	e.start(c)
}

// part is a request for message i of a round.
func (s *schedules) part(o *Rounds, i int) *Request {
	c := s.e.requests.take()
	c.rounds, c.part, c.extra = o, int32(i), true
	c.detached = true
	s.e.load.detached++
	o.open++
	return c
}

// got is called when a message of the round is complete.
func (s *schedules) got(c *Request) {
	o := c.rounds
	if c.op == opRecv || c.err != nil {
		o.script.Got(int(c.part), c.status, c.err)
	}
	if o.open--; o.open == 0 {
		s.received(o)
	}
}

// received is called when all messages of the round are complete.
func (s *schedules) received(o *Rounds) {
	if o.kind == RoundMessages {
		s.proceed(o)
		return
	}
	s.work.push(o)
	o.queued = true
	s.working++
	if !o.awaited() {
		s.askHelp()
		return
	}
	switch w := o.front.w; w {
	case nil: // the caller is awake
	case &s.e.parked:
		s.e.wakeLeader()
	default:
		w.wake()
		s.e.woken()
	}
}

// askHelp starts a goroutine that does local work.
func (s *schedules) askHelp() {
	s.e.woken()
	go s.help()
}

// letWork is for a caller that looks again and again whether a request is complete, perhaps on the only processor: if
// there is local work it lets other goroutines run. The lock is given up meanwhile.
func (s *schedules) letWork() {
	if s.working > 0 {
		s.e.offer()
	}
}

// doOne does the local work of one operation for which no caller waits.
func (s *schedules) doOne() {
	e := s.e
	e.lock()
	defer e.unlock()
	s.do(nil)
	e.exitCall()
}

// do does the local work of front's operation, or, if that is nil, of one that no caller waits for, if there is any.
// The caller does not lead: it holds the lock, which is given up meanwhile.
func (s *schedules) do(front *Request) {
	o := s.work.pop(front)
	if o == nil {
		return
	}
	o.queued = false
	s.e.exitCall()
	s.e.unlock()
	left := true
	defer func() { s.done(o, front, left) }()
	o.script.Work()
	left = false
}

// done is called when the local work of o has been done. left: it has ended its goroutine, which was, if front is not
// nil, that of the caller. The lock is held then for what that goroutine has deferred.
func (s *schedules) done(o *Rounds, front *Request, left bool) {
	s.e.lock()
	if left && front != nil {
		front.claimed, front.awaited = 0, false
	}
	s.working--
	if o.ended != nil {
		s.lose(o, o.ended)
	}
	s.proceed(o)
	s.advance()
	if left {
		s.e.exitCall()
	}
}

// cancel is called when the context of r's caller has ended.
func (s *schedules) cancel(r *Request, why error) {
	if o := r.rounds; o.kind == RoundMemory {
		o.ended = why
	} else {
		s.lose(o, why)
	}
}

// lose completes o's request with why. o goes on, and counts as an operation that no caller will collect.
func (s *schedules) lose(o *Rounds, why error) {
	r := o.front
	if r == nil {
		return
	}
	o.front, o.ended = nil, nil
	s.e.load.outstanding++
	s.e.load.detached++
	s.e.complete(r, why)
	if o.queued {
		s.askHelp() // the caller would have done it
	}
}

// end is called when o is over.
func (s *schedules) end(o *Rounds) {
	r := o.front
	o.front = nil
	s.e.wait.rounds--
	err := o.script.End(r == nil)
	if r == nil {
		s.e.load.outstanding--
		s.e.load.detached--
		s.e.wakeLeader() // it may be what Flush waits for
		return
	}
	s.e.complete(r, err)
}

// fail ends all operations but those whose local work is being done: these follow when it is.
func (s *schedules) fail() {
	for o := s.work.first; o != nil; o = s.work.first {
		s.work.first, o.next, o.queued = o.next, nil, false
		s.working--
		s.proceed(o)
	}
	s.advance()
}

// errNotCancelled is the error of Cancel for a collective operation: see Request.Cancel.
var errNotCancelled = fmt.Errorf("%w: a collective operation cannot be cancelled; wait for it", ErrRequest)

package pml

import (
	"context"

	"github.com/gorun-mpi/mpi/tagmatch"
	"github.com/gorun-mpi/mpi/transport"
)

// Status of a completed operation.
type Status struct {
	Source    int32 // rank in the world
	Tag       int32
	Bytes     int64
	Cancelled bool
}

// Mode of a send; MPI 4.1 §3.4.
type Mode uint8

const (
	Standard    Mode = iota
	Synchronous      // completes only when it is matched
	// withSend is a receive's that goes with a send: of an Isendrecv.
	withSend
)

type opKind uint8

const (
	opSend opKind = iota
	opRecv
	opProbe
	opRounds
	opBoard
	opEarly  // fetches a message before it is matched
	opLost   // an operation of a Tagged device of which no caller hears
	opLink   // an operation of a Reach, a wait for one, or the registration of what is lent
	opProxy  // another request for an operation
	opForget // a wait for an allocation of a device that may be freed
)

// reqState is where a request is. Who owns it:
//
//	stFree      the engine's free list
//	stIdle      its holder: a persistent request that is not started
//	stActive    the engine; recv is the table's while posted, buf the engine's and the transport's
//	stDone      its holder, who must collect the result (Wait, Test)
type reqState uint8

const (
	stFree reqState = iota
	stIdle
	stActive
	stDone
)

// Request is one operation.
type Request struct {
	recv tagmatch.Receive // its envelope, for sends too: Ctx, Source (the destination then), Tag

	// The first three cache lines, up to next, are all that a short message touches, and keep.

	state    reqState
	op       opKind
	mode     Mode
	detached bool  // no caller will collect it: back to the free list when done
	queued   bool  // in its peer's queue
	extra    bool  // extras may not be zero
	announce bool  // it is not eager, however short
	vain     uint8 // a send: looks that found it not done; isBlocked: a caller waits for it, and its RTS or Blocked says so

	e       *Engine // that has made it
	claimed uint64  // the number of the wait for it or for a set with it; 0: no caller waits

	buf    transport.Mem // the caller's; the engine's from start to completion
	status Status

	err  error
	peer *peer
	cctx context.Context
	w    *sema // whom to wake: a follower, or the engine's parked; nil: no caller sleeps
	next *Request

	extras
	own      sema
	other    *Request  // Isendrecv: the receive and its send, which is detached, while the send is under way
	transfer *transfer // while peers speak of it by a number
	offload  offloadRef
	keep     *kept // not nil ⇔ persistent. The last: what the caller keeps behind it is in the same cache line
}

// extras are what few requests have.
type extras struct {
	done       chan struct{} // for Done; closed on completion
	cancelErr  error         // the result, if cancelling succeeds
	cancelling bool          // the receiver has been asked
	ended      bool          // its context has, and that has been acted on
	hold       hold          // why complete does not end it yet
	awaited    bool          // a caller waits that does the local work of it
	unflushed  bool          // Flush neither waits for it nor counts it: load.serving does
	part       int32         // which message of the Rounds
	rounds     *Rounds       // whose front it is, or whose message
	pieces     *pieces       // nil: the message is one piece of memory
	then       Follower      // hears of the end of a message of a window; nil: nobody does, or it is another's
	window     *Window       // counts the message as one that moves; nil: none does
	waits      *Reach        // for which its caller waits; nil: it is no such wait
	proxy      *Request      // is done when this request is; nil: there is none
	proxied    *Request      // of a proxy, the request that it is for
	short      error         // of a proxy: see Proxy
	tagged     *taggedOp
}

// hold is why complete does not end a request yet.
type hold uint8

const (
	holdNothing hold = iota
	holdHalf         // an Isendrecv: neither its send nor its receive is over
	holdCopies       // its message is in device memory, and a copy of it may be under way
)

// Engine is the one that has made r; nil: none has.
func (r *Request) Engine() *Engine { return r.e }

// sema is where one goroutine sleeps.
type sema struct {
	ch chan struct{} // capacity 1, made on first use
	parks
}

func (w *sema) channel() chan struct{} {
	if w.ch == nil {
		w.ch = make(chan struct{}, 1)
	}
	return w.ch
}

func (w *sema) wake() {
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

// reset forgets what r refers to.
func (r *Request) reset() {
	r.buf.Addr, r.err, r.cctx = nil, nil, nil // r.peer stays: it lives as long as the engine
	if r.extra {
		r.extra, r.extras = false, extras{}
	}
}

// plain reports whether r is a receive of one thing for which no caller sleeps.
func (r *Request) plain() bool { return r.w == nil && !r.extra }

// completePlain is Engine.complete for such a request when all went well.
func (r *Request) completePlain(l *load) {
	r.state = stDone
	l.outstanding--
	l.completed++
}

// complete ends r, or one part of it. Everything that refers to it but its holder has let go of it; or the other part
// has not yet.
func (e *Engine) complete(r *Request, err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
	if r.extra && r.hold != holdNothing && r.holds() {
		return
	}
	r.state = stDone
	e.load.outstanding--
	e.load.completed++
	switch r.w {
	case nil:
	case &e.parked:
		e.wakeLeader()
	default:
		r.w.wake()
		e.woken()
	}
	r.w = nil
	if r.extra && r.done != nil {
		close(r.done)
		e.wait.followers--
	}
	if r.extra && r.proxy != nil {
		r.endProxy()
	}
	if r.extra && r.unflushed {
		r.unflushed = false
		e.load.serving--
		if !r.detached {
			e.load.detached--
		}
	}
	if r.detached {
		r.detached = false
		e.load.detached--
		if e.flushLeads {
			e.wakeLeader()
		}
		if r.extra && r.then != nil {
			e.windows.over(e, r)
			return
		}
		if r.op == opEarly {
			e.links.fetched(r)
			return
		}
		if r.extra && r.rounds != nil {
			e.schedules.got(r)
			e.requests.putBack(r)
			return
		}
		whole, err := r.other, r.err
		r.other = nil
		e.requests.putBack(r)
		if whole != nil {
			whole.other = nil
			e.complete(whole, err)
		}
	}
}

// holds reports whether r, of which complete has been told, is not over yet.
func (r *Request) holds() bool {
	if r.hold == holdHalf {
		r.hold = holdNothing
		return true
	}
	return r.pieces.device.held()
}

// requests are those of one engine: made, lent and reused.
type requests struct {
	free    *Request
	handles requestQueue
	claims  uint64          // the last number in Request.claimed
	fresh   func() *Request // makes one for a caller to hold
}

// nextClaim is a number for a wait.
func (q *requests) nextClaim() uint64 {
	q.claims++
	return q.claims
}

// take takes one of the engine's own, for a blocking call; putBack returns it.
func (q *requests) take() *Request {
	r := q.free
	if r == nil {
		r = new(Request)
		r.recv.Owner = r
		return r
	}
	q.free = r.next
	r.next = nil
	return r
}

func (q *requests) putBack(r *Request) {
	r.reset()
	r.state = stFree
	r.next = q.free
	q.free = r
}

// handle takes a request for a caller to hold; release returns it when its result has been collected.
func (q *requests) handle() *Request {
	if r := q.handles.get(); r != nil {
		return r
	}
	return q.fresh()
}

func (q *requests) release(r *Request) {
	r.reset()
	r.claimed = 0
	if r.keep != nil {
		r.state = stIdle
		return
	}
	r.state = stFree
	q.handles.put(r)
}

// requestQueue reuses the requests that callers hold in the order of their release, and only when there are many, so
// that a caller that waits twice finds its request free and is told so, rather than waiting for a stranger's.
type requestQueue struct {
	head *Request  // chained by next
	end  **Request // where the next one is chained
	n    int
}

const requestQuarantine = 32

func (q *requestQueue) init() { q.end = &q.head }

func (q *requestQueue) put(r *Request) {
	*q.end, q.end = r, &r.next
	q.n++
}

// get leaves always one in the queue. What it returns keeps next, which counts in the queue alone.
func (q *requestQueue) get() *Request {
	if q.n <= requestQuarantine {
		return nil
	}
	r := q.head
	q.head = r.next
	q.n--
	return r
}

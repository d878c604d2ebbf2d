package pml

import (
	"context"
	"time"

	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/tagmatch"
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
)

type opKind uint8

const (
	opSend opKind = iota
	opRecv
	opProbe
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

	// The first three cache lines, up to next, are all that a short message touches.

	state      reqState
	op         opKind
	mode       Mode
	persistent bool
	detached   bool   // nobody will collect it: back to the free list when done
	cancelling bool   // the receiver has been asked
	parts      int8   // completions still to come beside the last one: Isendrecv
	canGet     bool   // the sender's memory can be read
	jobs       jobSet // what is in Engine.todo
	waited     bool   // a caller waits for it
	ended      bool   // its context has, and that has been acted on
	queued     bool   // in its peer's queue
	extra      bool   // done or cancelErr is set
	hand       hand   // posted receive: who may match it

	buf    []byte // the caller's; the engine's from start to completion
	status Status

	err  error
	peer *peer
	cctx context.Context
	w    *sema  // who to wake; nil: nobody sleeps
	id   uint64 // in Engine.ids; 0: none
	next *Request

	cancelErr error         // the result, if cancelling succeeds
	done      chan struct{} // for Done; closed on completion
	own       sema
	part      *Request // the other way round, while the send is under way
	whole     *Request // a detached send: the request of which it is a part
	keep      *kept    // a persistent request's arguments

	// A transfer. send: snd; receive: rcv and where the sender has it.
	snd             rendezvous.Sender
	rcv             rendezvous.Receiver
	read            rendezvous.Action // the READ to do next, while it has jobRead
	remote, at, key uint64            // the sender's id, address and registration key
	size            int64
	frontDone       time.Time // of a split message, if it is measured
	began           time.Time // and how it was chosen, if it is measured
	tuned           *tuned
	crowd           *crowd // the run it belongs to
	scheme          rendezvous.Scheme
	fetching        bool // counted in Engine.fetching

	// Split. receive: its registration for the sender, while putOpen. send: what is still to be written there.
	putAddr, putKey uint64
	putLen, putLeft int64
	putOpen         bool
	putBusy         bool // a TryPut is under way
	placing         bool // receive: its buffer is with the link's Place

	cookie uint64 // of its slot, while hand is handDown
}

// sema is where one goroutine sleeps.
type sema struct {
	ch chan struct{} // capacity 1, made on first use
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

// requestQueue reuses the requests that callers hold in the order of their release, and only when there are many, so
// that a caller who waits twice finds its request free and is told so, rather than waiting for a stranger's.
type requestQueue struct {
	ring       []*Request // as long as a power of two
	head, tail uint       // head <= tail <= head+len(ring)
}

const requestQuarantine = 512

func (q *requestQueue) put(r *Request) {
	if q.tail-q.head == uint(len(q.ring)) {
		q.grow()
	}
	q.ring[q.tail&uint(len(q.ring)-1)] = r
	q.tail++
}

func (q *requestQueue) grow() {
	larger := make([]*Request, max(2*len(q.ring), 2*requestQuarantine))
	n := q.tail - q.head
	for i := range n {
		larger[i] = q.ring[(q.head+i)&uint(len(q.ring)-1)]
	}
	q.ring, q.head, q.tail = larger, 0, n
}

func (q *requestQueue) get() *Request {
	if q.tail-q.head <= requestQuarantine {
		return nil
	}
	r := q.ring[q.head&uint(len(q.ring)-1)] // stays there until its place is needed: it is not garbage anyway
	q.head++
	return r
}

// request takes one of the engine's own, for a blocking call.
func (e *Engine) request() *Request {
	r := e.free
	if r == nil {
		r = new(Request)
		r.recv.Owner = r
		return r
	}
	e.free = r.next
	r.next = nil
	return r
}

// letGo drops what r refers to.
func (r *Request) letGo() {
	r.buf, r.err, r.peer, r.cctx = nil, nil, nil, nil
	if r.extra {
		r.extra, r.cancelErr, r.done = false, nil, nil
	}
}

// recycle gives it back.
func (e *Engine) recycle(r *Request) {
	r.letGo()
	r.state = stFree
	r.next = e.free
	e.free = r
}

// handle takes a request for a caller to hold.
func (e *Engine) handle() *Request {
	if r := e.handles.get(); r != nil {
		return r
	}
	return e.fresh()
}

// fresh makes one.
func (e *Engine) fresh() *Request {
	r := e.cfg.NewRequest(e)
	r.recv.Owner = r
	return r
}

// release takes it back when its result has been collected.
func (e *Engine) release(r *Request) {
	r.letGo()
	r.waited = false
	if r.persistent {
		r.state = stIdle
		return
	}
	r.state = stFree
	e.handles.put(r)
}

// complete ends r. Everything that refers to it but its holder has let go of it.
func (e *Engine) complete(r *Request, err error) {
	if r.id != 0 {
		e.ids.release(r)
	}
	e.finish(r, err)
}

// plain: nobody sleeps for r, and it is one thing with no number.
func (r *Request) plain() bool {
	return r.w == nil && r.id == 0 && r.parts == 0 && !r.extra && !r.detached
}

// finishPlain is finish for such a request when all went well.
func (e *Engine) finishPlain(r *Request) {
	r.state = stDone
	e.outstanding--
	if e.wait.leader == leaderParked {
		e.wakeLeader()
	}
}

// finish ends r, or one part of it: the other may still have r's number.
func (e *Engine) finish(r *Request, err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
	if r.parts > 0 {
		r.parts--
		return
	}
	r.state = stDone
	e.outstanding--
	if r.w != nil {
		r.w.wake()
		r.w = nil
		e.wait.followerWoken = true
	}
	if r.extra && r.done != nil {
		close(r.done)
		e.wait.followers--
	}
	e.wakeLeader() // the caller that polls may be the one who waits for this
	if r.detached {
		r.detached = false
		e.detached--
		whole, err := r.whole, r.err
		r.whole = nil
		e.recycle(r)
		if whole != nil {
			whole.part = nil
			e.finish(whole, err)
		}
	}
}

// idTable gives requests numbers that peers return. A number is used once.
type idTable struct {
	slots []idSlot
	free  []uint32
}

type idSlot struct {
	r   *Request
	gen uint32
}

// of gives r a number.
func (t *idTable) of(r *Request) uint64 {
	if r.id != 0 {
		return r.id
	}
	var i uint32
	if n := len(t.free); n > 0 {
		i = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		i = uint32(len(t.slots))
		t.slots = append(t.slots, idSlot{})
	}
	s := &t.slots[i]
	s.gen++
	s.r = r
	r.id = uint64(s.gen)<<32 | uint64(i+1)
	return r.id
}

// find returns the request with that number if it is one of peer's and still active.
func (t *idTable) find(id uint64, p *peer) *Request {
	i := uint32(id) - 1
	if uint64(i) >= uint64(len(t.slots)) {
		return nil
	}
	s := &t.slots[i]
	if s.r == nil || s.r.id != id || s.r.peer != p {
		return nil
	}
	return s.r
}

func (t *idTable) release(r *Request) {
	i := uint32(r.id) - 1
	t.slots[i].r = nil
	t.free = append(t.free, i)
	r.id = 0
}

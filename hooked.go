package mpi

import (
	"context"
	"errors"
	"runtime/trace"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/report"
)

// How calls come to hooks. A program with hooks gets stand-ins for the communicators, requests, messages and windows. A
// stand-in fails what each call checks before anything else: a Comm has a context, which is a *hooked; a Request and a
// Message have no Comm, and a Win has no state. So a call on a stand-in takes the branch that rejects wrong arguments,
// and finds errHooked there, or looks for hooks first in that branch. It then calls the hooks, and itself with the
// plain one. A call without hooks has no test that it would not have otherwise. The calls whose instructions the guard
// counts have the branch in a function of its own: its code would change how the compiler uses registers before it.

// errHooked is what the checks of a call return for a stand-in. No caller of the package gets it.
var errHooked error = hookedMark

var hookedMark = &Error{Op: "a call", Class: ErrComm, Peer: Undefined, Tag: Undefined,
	Err: errors.New("it does not know hooks, which is a fault of the library")}

// hookState is what the stand-ins of a rank share.
type hookState struct {
	hooks Hooks
	rank  int
	owner uintptr   // the goroutine that has own; see report.Goroutine
	own   Call      // the owner's: it needs neither a lock nor a pool
	calls sync.Pool // *Call, of the other goroutines
	spare sync.Pool // *standIn
}

// hooked is the context of a Comm that stands for plain.
type hooked struct {
	context.Context // of WithContext, or one that does not end
	*hookState
	plain  *Comm
	labels labels
}

// withHooks returns what the program gets for c, which is plain.
func withHooks(c *Comm, o *Hooks) *Comm {
	if o == nil || o.Before == nil && o.After == nil {
		return c
	}
	s := &hookState{hooks: *o, rank: c.Rank(), owner: report.Goroutine()}
	if s.hooks.Before == nil {
		s.hooks.Before = func(*Call) {}
	}
	if s.hooks.After == nil {
		s.hooks.After = func(*Call) {}
	}
	s.calls.New = func() any { return new(Call) }
	s.spare.New = func() any { return new(standIn) }
	return s.stand(c)
}

// observed returns what the program gets for its world, which is plain, and its reporter, if it has one.
func observed(world *Comm, o options) (*Comm, *reporter) {
	hooks, set := hooksOf(o), join.Observers(o)
	if set.Labels || set.CPUProfile != "" {
		hooks = hooks.around((&marker{tasks: map[*Request]*trace.Task{}}).hooks())
	}
	var r *reporter
	if set.Report != "" {
		r = newReporter(world, set.Report)
		hooks = hooks.around(r.hooks())
	}
	return withHooks(world, hooks), r
}

// stand returns a Comm that stands for c; nil for nil.
func (s *hookState) stand(c *Comm) *Comm {
	if c == nil {
		return nil
	}
	return s.standWithin(c, c.ctx)
}

// standWithin is stand of a Comm that WithContext has made of ctx. A context that does not end is of no use to calls,
// and may have labels of profiles, or a task.
func (s *hookState) standWithin(c *Comm, ctx context.Context) *Comm {
	if ctx == nil {
		ctx = context.Background()
	}
	return &Comm{commState: c.commState, ctx: &hooked{Context: ctx, hookState: s, plain: c}}
}

// hook returns the hooks of c; nil: it has none.
func (c *Comm) hook() *hooked {
	if c == nil {
		return nil
	}
	h, _ := c.ctx.(*hooked)
	return h
}

// withoutHooks is c, or what it stands for.
func (c *Comm) withoutHooks() *Comm {
	if h := c.hook(); h != nil {
		return h.plain
	}
	return c
}

// begin calls the hooks before a call.
func (h *hooked) begin(call Call) *Call {
	k := h.call()
	kept, done := k.kept, k.Done
	*k = call
	k.kept, k.Done = kept, done
	return h.before(k)
}

// message is begin of callWith for the calls that programs make by the million: it copies no Call.
func (h *hooked) message(op string, kind CallKind, peer, tag int, bytes int64) *Call {
	return h.before(h.take(op, kind, peer, tag, bytes))
}

// take returns the Call of callWith, whose hooks have not been called.
func (h *hooked) take(op string, kind CallKind, peer, tag int, bytes int64) *Call {
	k := h.call()
	k.Op, k.Kind, k.Peer, k.Tag, k.Bytes = op, kind, peer, tag, bytes
	k.Dest, k.DestTag, k.SentBytes, k.keep = Undefined, Undefined, 0, false
	return k
}

// call returns a Call that is not in use. The goroutine that has joined the job makes most calls, and most of them one
// after the other.
func (h *hooked) call() *Call {
	if g := report.Goroutine(); g == 0 || g != h.owner || h.own.own {
		return h.calls.Get().(*Call)
	}
	h.own.own = true
	return &h.own
}

// before completes k and calls the hooks.
func (h *hooked) before(k *Call) *Call {
	k.at, k.Rank = h, h.rank
	k.Comm, k.Context = h.plain, h.plain.group.Context
	k.World, k.DestWorld = h.world(k.Peer), h.world(k.Dest)
	h.hooks.Before(k)
	return k
}

// end calls the hooks after a call, which has got err. Then the use of the requests that it has completed is over. It
// keeps no pointer of the call.
func (k *Call) end(err error) {
	h, done := k.at, k.Done
	k.Err = err
	h.hooks.After(k)
	for i := range done {
		if s := done[i].Request.standIn(); s != nil {
			s.release(k)
		}
	}
	clear(done)
	clear(k.plain)
	clear(k.stands)
	k.Done, k.plain, k.stands, k.moved = done[:0], k.plain[:0], k.stands[:0], k.moved[:0]
	k.at, k.Comm, k.Request, k.Err, k.Data, k.region = nil, nil, nil, nil, nil, nil
	if k.own {
		k.own = false
		return
	}
	h.calls.Put(k)
}

// world is the rank in the world of a peer; what is no rank stays what it is.
func (h *hooked) world(peer int) int {
	if uint(peer) < uint(h.plain.group.Size) {
		return h.plain.group.ToWorld(peer)
	}
	return peer
}

// got notes the message that a receive has got.
func (k *Call) got(st Status, err error) {
	if err == nil || errors.Is(err, ErrTruncate) {
		k.Peer, k.Tag, k.Bytes = st.Source, st.Tag, st.Bytes
		k.World = k.at.world(st.Source)
	} else {
		k.Bytes = 0
	}
}

// observe calls f, which makes the call on plain.
func (h *hooked) observe(call Call, f func(plain *Comm) error) error {
	k := h.begin(call)
	err := f(h.plain)
	k.end(err)
	return err
}

// receives is observe of a call that returns the status of a message.
func (h *hooked) receives(call Call, f func(plain *Comm) (Status, error)) (Status, error) {
	k := h.begin(call)
	st, err := f(h.plain)
	k.got(st, err)
	k.end(err)
	return st, err
}

// starts is observe of a call that returns a request, for which the program gets a stand-in.
func (h *hooked) starts(call Call, f func(plain *Comm) (*Request, error)) (*Request, error) {
	k := h.begin(call)
	r, err := f(h.plain)
	return k.started(r, err)
}

// started ends a call that has returned r or err, and returns what the program gets.
func (k *Call) started(r *Request, err error) (*Request, error) {
	if err == nil && r != nil {
		r = k.at.standFor(r, k)
	}
	k.end(err)
	return r, err
}

// creates is observe of a call that makes a communicator, whose ranks get one with hooks.
func (h *hooked) creates(op string, f func(plain *Comm) (*Comm, error)) (*Comm, error) {
	k := h.begin(callOf(op, CallCreate))
	c, err := f(h.plain)
	k.end(err)
	return h.stand(c), err
}

// callOf is a call without a peer.
func callOf(op string, kind CallKind) Call {
	return Call{Op: op, Kind: kind, Peer: Undefined, Tag: Undefined, Dest: Undefined, DestTag: Undefined}
}

// callWith is a call with a peer.
func callWith(op string, kind CallKind, peer, tag int, bytes int64) Call {
	return Call{Op: op, Kind: kind, Peer: peer, Tag: tag, Bytes: bytes, Dest: Undefined, DestTag: Undefined}
}

// preparing is callWith of a call that makes a persistent request.
func preparing(op string, kind CallKind, peer, tag int, bytes int64) Call {
	k := callWith(op, kind, peer, tag, bytes)
	k.keep = true
	return k
}

// standIn is a Request that stands for another one. Its engine is nil, and so is its Comm. The code of its call is
// opStandIn: a field more would make each Request larger.
type standIn struct {
	Request // first: standInOf relies on it
	hookedRequest
}

// standIn returns the stand-in that r is; nil: r is the library's own request.
func (r *Request) standIn() *standIn {
	if r == nil || r.op != opStandIn {
		return nil
	}
	return standInOf(r)
}

// hookedRequest is what a Request stands for.
type hookedRequest struct {
	at     *hooked
	plain  *Request // nil: the result has been collected
	active bool
	keep   bool // it is persistent

	// Of the call that has made it.
	op               string
	kind             CallKind
	context          uint32
	peer, world, tag int
	bytes            int64
}

// standFor returns a request that stands for r, which the call k has returned.
func (h *hooked) standFor(r *Request, k *Call) *Request {
	s := h.newStandIn(k)
	// Field by field: see report.Recorder.Record.
	s.at, s.plain, s.active, s.keep = h, r, !k.keep, k.keep
	s.op, s.kind, s.context = k.Op, k.Kind, k.Context
	s.peer, s.world, s.tag, s.bytes = k.Peer, k.World, k.Tag, k.Bytes
	if k.keep {
		k.Kind = CallPrepare
	}
	s.Request.op = opStandIn
	k.Request = &s.Request
	return &s.Request
}

// withoutHooks is r, or what it stands for.
func (r *Request) withoutHooks() *Request {
	if s := r.standIn(); s != nil && s.plain != nil {
		return s.plain
	}
	return r
}

// begin calls the hooks before a call on the request.
func (s *standIn) begin(op string, kind CallKind) *Call {
	k := s.at.take(op, kind, Undefined, Undefined, 0)
	k.Request = &s.Request
	return s.at.before(k)
}

// collected is the error of a call on a request whose result has been collected.
func (s *standIn) collected(op string) error {
	return mpierr.On(mpierr.New(op, ErrRequest, "its result has been collected already; wait for a request once"),
		s.at.plain.Name())
}

// completed notes the result of the request, unless the call could not wait for it, or it was not started.
func (k *Call) completed(s *standIn, st Status, err error) {
	if !s.active || isMisuse(err) {
		return
	}
	n := len(k.Done)
	k.Done = slices.Grow(k.Done, 1)[:n+1]
	d := &k.Done[n] // field by field, as in standFor
	d.Request, d.Op, d.Kind, d.Comm, d.Context = &s.Request, s.op, s.kind, s.at.plain, s.context
	d.Peer, d.World, d.Tag, d.Bytes = s.peer, s.world, s.tag, s.bytes
	d.Cancelled, d.Err = st.Cancelled, err
	if d.Cancelled {
		d.Bytes = 0
		return
	}
	switch s.kind {
	case CallRecv, CallSendrecv:
		if d.Bytes = 0; err == nil || errors.Is(err, ErrTruncate) {
			d.Peer, d.Tag, d.Bytes = st.Source, st.Tag, st.Bytes
			d.World = s.at.world(st.Source)
		}
	}
}

// isMisuse reports whether a request could not be waited for.
func isMisuse(err error) bool {
	e, ok := err.(*Error)
	return ok && e.Class == ErrRequest
}

// release ends the use of a request that k has completed. k keeps the stand-in for the next request: a pool of the
// runtime takes locked instructions to give the second one.
func (s *standIn) release(k *Call) {
	if s.active = false; s.keep {
		return
	}
	s.plain = nil
	if len(k.spare) < mostSpare {
		k.spare = append(k.spare, s)
	} else {
		s.at.spare.Put(s)
	}
}

// mostSpare is how many stand-ins a Call keeps.
const mostSpare = 128

// newStandIn returns a stand-in that is not in use.
func (h *hooked) newStandIn(k *Call) *standIn {
	last := len(k.spare) - 1
	if last < 0 {
		return h.spare.Get().(*standIn)
	}
	s := k.spare[last]
	k.spare[last], k.spare = nil, k.spare[:last]
	return s
}

func (s *standIn) wait() (Status, error) {
	k := s.begin("Wait", CallWait)
	if s.plain == nil {
		err := s.collected("Wait")
		k.end(err)
		return Status{}, err
	}
	st, err := s.plain.Wait()
	k.completed(s, st, err)
	k.end(err)
	return st, err
}

func (s *standIn) test() (bool, Status, error) {
	k := s.begin("Test", CallWait)
	if s.plain == nil {
		err := s.collected("Test")
		k.end(err)
		return false, Status{}, err
	}
	done, st, err := s.plain.Test()
	if done {
		k.completed(s, st, err)
	}
	k.end(err)
	return done, st, err
}

// about is observe of a call on the request that completes nothing.
func (s *standIn) about(op string, kind CallKind, f func(plain *Request) error) error {
	k := s.begin(op, kind)
	err := error(nil)
	if s.plain == nil {
		err = s.collected(op)
	} else {
		err = f(s.plain)
	}
	k.end(err)
	return err
}

func (s *standIn) start() error {
	call := callWith("Start", s.kind, s.peer, s.tag, s.bytes)
	call.Request = &s.Request
	k := s.at.begin(call)
	err := error(nil)
	if s.plain == nil {
		err = s.collected("Start")
	} else if err = s.plain.Start(); err == nil {
		s.active = true
	}
	k.end(err)
	return err
}

func (s *standIn) free() error {
	return s.about("Free", CallOther, func(r *Request) error {
		err := r.Free()
		if err == nil {
			s.plain = nil
		}
		return err
	})
}

// result is how a request of a set has ended.
type result struct {
	index  int
	status Status
	err    error
}

// hookedSet makes a call with a set of requests: testSome, or waitAll or waitSome if it waits. It returns the results,
// or, unless wanted, those that are errors. It calls nothing of its caller's, and keeps rs in no function: the compiler
// would have every set, with hooks or without, on the heap. The first request that is not nil is a stand-in.
func hookedSet(op string, rs []*Request, max int, all, waits, wanted bool) (results []result, over bool, err error) {
	var k *Call
	for i, r := range rs {
		if r == nil {
			continue
		}
		s := r.standIn()
		if k == nil {
			k = s.at.message(op, CallWait, Undefined, Undefined, 0)
			k.plain = slices.Grow(k.plain, len(rs))[:len(rs)]
			k.stands = slices.Grow(k.stands, len(rs))[:len(rs)]
			k.Done = slices.Grow(k.Done, len(rs))
		}
		k.plain[i], k.stands[i] = r.withoutHooks(), s
		if s != nil && s.plain == nil && err == nil {
			err = setMisuse(op, rs, i, s.collected(op))
		}
	}
	if err != nil {
		k.end(err)
		return nil, false, err
	}
	add := func(i int, st Status, err error) {
		if s := k.stands[i]; s != nil {
			k.completed(s, st, err)
		}
		if wanted || err != nil {
			results = append(results, result{i, st, err})
		}
	}
	switch {
	case !waits:
		over, err = testSome(op, k.plain, max, all, add)
	case all:
		err = waitAll(k.plain, true, add)
	default:
		err = waitSome(op, k.plain, max, nil, add)
	}
	k.end(err)
	return results, over, err
}

// performWithin is perform of a Comm that has a context, or of a mistake.
func (c *Comm) performWithin(p *coll.Plan, err error) error {
	h := c.hook()
	switch {
	case h == nil && err != nil:
		return c.mistaken(coll.Blocking, err)
	case h == nil:
		return p.Perform(c.ctx)
	case err != nil:
		return h.observe(callOf(opOf(err), CallCollective), func(c *Comm) error { return c.mistaken(coll.Blocking, err) })
	}
	return h.observe(collectiveCall(c, p, coll.Blocking), func(c *Comm) error { return c.perform(p, nil) })
}

// startWithin is start and keep of a Comm that has hooks.
func (h *hooked) startWithin(p *coll.Plan, w coll.Way, err error, f func(c *Comm) (*Request, error)) (*Request, error) {
	call := callOf(opOf(err), CallCollective)
	if err == nil {
		call = collectiveCall(h.plain, p, w)
	}
	call.keep = w == coll.Persistent
	return h.starts(call, f)
}

// opOf is the call that an error names.
func opOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Op
	}
	return "collective call"
}

// collectiveCall describes the call that p makes. On an intercommunicator the root of p is of both groups.
func collectiveCall(c *Comm, p *coll.Plan, w coll.Way) Call {
	k := callOf(w.Call(p.Operation), CallCollective)
	if p.Operation.Facts().Rooted && !c.IsInter() {
		k.Peer = p.Root
	}
	for _, s := range []collectives.Space{collectives.In, collectives.Out} {
		for _, b := range p.Blocks(s) {
			k.Bytes += int64(len(b))
		}
		if k.Bytes > 0 {
			break
		}
	}
	return k
}

// sends is observe of a call that sends a message.
func (h *hooked) sends(op string, dest, tag int, bytes int64, f func(plain *Comm) error) error {
	return h.observe(callWith(op, CallSend, dest, tag, bytes), f)
}

// sendsObject is SendObject. The length is known when the value has been encoded.
func (h *hooked) sendsObject(v any, dest, tag int) error {
	k := h.begin(callWith("SendObject", CallSend, dest, tag, 0))
	err := h.plain.checkSend("SendObject", dest, tag)
	if err == nil && dest != ProcNull {
		var b []byte
		if b, err = encodeObject(h.plain, v, dest, tag); err == nil {
			k.Bytes = int64(len(b))
			err = send(h.plain, "SendObject", b, dest, tag, 0)
		}
	}
	k.end(err)
	return err
}

// probes is observe of a call that looks for a message and may find none.
func (h *hooked) probes(op string, source, tag int, f func(plain *Comm) (Status, bool, error)) error {
	k := h.begin(callWith(op, CallProbe, source, tag, 0))
	st, found, err := f(h.plain)
	if found {
		k.got(st, err)
	}
	k.end(err)
	return err
}

// hookedMessage is what a Message stands for.
type hookedMessage struct {
	at    *hooked
	comm  *Comm // whose context is at
	plain *Message
}

// call describes a receive of the message.
func (m *hookedMessage) call(op string, bytes int64) Call {
	return callWith(op, CallRecv, m.plain.source, m.plain.tag, bytes)
}

func (c *Comm) mprobeHooked(op string, source, tag int, f func(c *Comm) (*Message, Status, bool, error)) (m *Message,
	st Status, found bool, err error,
) {
	h := c.hook()
	err = h.probes(op, source, tag, func(plain *Comm) (Status, bool, error) {
		m, st, found, err = f(plain)
		return st, found, err
	})
	if m != nil {
		m = &Message{hooked: &hookedMessage{h, c, m}}
	}
	return m, st, found, err
}

// sendrecvCall describes a call that sends and receives a message.
func sendrecvCall(op opCode, sent int64, dest, stag int, room int64, source, rtag int) Call {
	k := callWith(op.String(), CallSendrecv, source, rtag, room)
	k.Dest, k.DestTag, k.SentBytes = dest, stag, sent
	return k
}

// bytesIn is how many bytes the elements of buf have.
func bytesIn[T any](buf []T) int64 { return int64(len(buf)) * int64(sizeOf[T]()) }

// hookedWin is what a Win stands for.
type hookedWin[T any] struct {
	at    *hooked // its Comm is the window's
	plain *Win[T]
}

// standWin returns a Win that stands for w.
func standWin[T any](s *hookState, w *Win[T]) *Win[T] {
	if w == nil {
		return nil
	}
	return &Win[T]{hooked: &hookedWin[T]{s.stand(w.comm).hook(), w}}
}

// makesWin is observe of a call that makes a window.
func makesWin[T any](h *hooked, op string, n int, f func(plain *Comm) (*Win[T], error)) (*Win[T], error) {
	k := h.begin(callWith(op, CallCreate, Undefined, Undefined, int64(n)*int64(sizeOf[T]())))
	w, err := f(h.plain)
	k.end(err)
	return standWin(h.hookState, w), err
}

// observed returns err, unless it is that w stands for a window, with which f makes the call then.
func (w *Win[T]) observed(err error, op string, kind CallKind, rank, n int, f func(w *Win[T]) error) error {
	if err != errHooked {
		return err
	}
	h := w.hooked
	call := callWith(op, kind, rank, Undefined, int64(n)*int64(sizeOf[T]()))
	return h.at.observe(call, func(*Comm) error { return f(h.plain) })
}

// begun is observed of a call that returns a request.
func (w *Win[T]) begun(err error, op string, kind CallKind, rank, n int, f func(w *Win[T]) (*Request, error)) (*Request,
	error,
) {
	if err != errHooked {
		return nil, err
	}
	h := w.hooked
	call := callWith(op, kind, rank, Undefined, int64(n)*int64(sizeOf[T]()))
	return h.at.starts(call, func(*Comm) (*Request, error) { return f(h.plain) })
}

// elementsIn is how many elements of T a layout has.
func elementsIn[T any](l Layout) int { return int(l.Size()) / max(1, sizeOf[T]()) }

// withoutHooks is w, or what it stands for.
func (w *Win[T]) withoutHooks() *Win[T] {
	if w != nil && w.hooked != nil {
		return w.hooked.plain
	}
	return w
}

package pml

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/transport"
)

// Message is one that a matched probe has taken off the queue; MPI 4.1 §3.8.2. Its payload stays where it is until
// Mrecv.
type Message struct {
	found
	recv bool // has been received
}

// Probe waits until a message matches and describes it. take: it is taken off the queue.
func (e *Engine) Probe(cc context.Context, ctx uint32, source int, tag int32, take bool) (*Message, Status, error) {
	return e.probe(cc, ctx, source, source, tag, take)
}

// ProbeAny waits until there is a message of any rank, as long as the rank that is expected lives, whichever others
// have failed.
func (e *Engine) ProbeAny(cc context.Context, ctx uint32, expected int, tag int32) error {
	_, _, err := e.probe(cc, ctx, AnySource, expected, tag, false)
	return err
}

// probe waits until the rank expected fails.
func (e *Engine) probe(cc context.Context, ctx uint32, source, expected int, tag int32, take bool) (*Message, Status,
	error) {
	e.lock()
	defer e.unlock()
	for {
		if f, ok := e.path.probe(ctx, int32(source), tag, take); ok {
			e.exitCall()
			return f.held(take), f.status, nil
		}
		if err := e.probeWait(cc, ctx, source, expected, tag); err != nil {
			e.exitCall()
			return nil, Status{}, err
		}
	}
}

// Iprobe is Probe that does not wait.
func (e *Engine) Iprobe(ctx uint32, source int, tag int32, take bool) (*Message, Status, bool, error) {
	e.lock()
	if e.wait.mayPoll() {
		e.progress()
	}
	var err error
	f, ok := e.path.probe(ctx, int32(source), tag, take)
	if !ok {
		switch { // as unreachable does, whose call would cost each probe more than this
		case e.closed != nil:
			err = e.closed
		case source < 0:
			err = e.recovery.lostTo(ctx)
		default:
			if err = e.path.gone(int32(source)); err == nil {
				e.links.vigil.foundNone(int32(source))
			}
		}
		w := &waitFor{e: e}
		e.boards.glances(w)
		e.links.foundNothing(w)
	}
	e.exitCall()
	e.unlock()
	return f.held(ok && take), f.status, ok, err
}

func (f found) held(taken bool) *Message {
	if !taken {
		return nil
	}
	return &Message{found: f}
}

// probeWait waits for a message that may match.
func (e *Engine) probeWait(cc context.Context, ctx uint32, source, expected int, tag int32) error {
	r, err := e.startProbe(cc, ctx, source, expected, tag)
	if err != nil {
		return err
	}
	e.await(r)
	err = r.err
	e.requests.putBack(r)
	return err
}

// startProbe returns a request that is done when a message comes that may match.
func (e *Engine) startProbe(cc context.Context, ctx uint32, source, expected int, tag int32) (*Request, error) {
	if err := e.unreachable(expected, ctx); err != nil {
		return nil, err
	}
	if err := e.recovery.revoked[ctx]; err != nil {
		return nil, err
	}
	r := e.requests.take()
	r.op = opProbe
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(source), tag
	r.buf, r.cctx, r.peer = transport.Mem{}, cc, nil
	r.state, r.err, r.status = stActive, nil, Status{Source: int32(expected)}
	e.load.outstanding++
	e.probers = append(e.probers, r)
	return r, nil
}

// unreachable says why no caller waits for what source may send with a context, or nil.
func (e *Engine) unreachable(source int, ctx uint32) error {
	if e.closed != nil {
		return e.closed
	}
	return e.lost(int32(source), ctx)
}

// everyProbe reports whether a probe is among all, which it is. The functions below choose the probes that a message
// ends, and the probes that a message of source might end.
func everyProbe(*Request) bool { return true }

func probesFinding(ctx uint32, source, tag int32) func(*Request) bool {
	return func(r *Request) bool {
		k := &r.recv
		return k.Ctx == ctx && (k.Source == AnySource || k.Source == source) && (k.Tag == AnyTag || k.Tag == tag)
	}
}

func probesOf(source int32) func(*Request) bool {
	return func(r *Request) bool { return r.recv.Source == source || r.recv.Source == AnySource }
}

// probers are the probes that wait. The requests are the engine's own.
type probers []*Request

// end completes those of which that says so.
func (p *probers) end(e *Engine, which func(*Request) bool, err error) {
	*p = slices.DeleteFunc(*p, func(r *Request) bool {
		if !which(r) {
			return false
		}
		e.complete(r, err)
		return true
	})
}

// Imrecv starts to receive m into buf.
func (e *Engine) Imrecv(cc context.Context, m *Message, buf []byte) (*Request, error) {
	e.lock()
	defer e.unlock()
	if m.recv {
		return nil, fmt.Errorf("%w: the message has been received already", ErrRequest)
	}
	m.recv = true
	r := e.requests.handle()
	r.prepareRecv(cc, m.ctx, int(m.status.Source), m.status.Tag, buf)
	r.state, r.err = stActive, nil
	e.load.outstanding++
	if e.gone { // and so is the device's memory
		e.complete(r, e.closed)
	} else {
		e.path.take(m.found, r)
	}
	e.exitCall()
	return r, nil
}

// Bytes of m's payload.
func (m *Message) Bytes() int64 {
	if m.recv {
		return 0
	}
	return m.status.Bytes
}

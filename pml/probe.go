package pml

import (
	"context"
	"fmt"
)

// Message is one that a matched probe has taken off the queue; MPI 4.1 §3.8.2. Its payload stays where it is until
// Mrecv.
type Message struct {
	e *Engine
	u *unexpected // nil: received
}

func (u *unexpected) status() Status {
	return Status{Source: u.peer.rank, Tag: u.m.Tag, Bytes: u.size}
}

// Probe waits until a message matches and describes it. take: it is taken off the queue.
func (e *Engine) Probe(cc context.Context, ctx uint32, source int, tag int32, take bool) (*Message, Status, error) {
	e.lock()
	defer e.unlock()
	for {
		if m := e.table.Probe(ctx, int32(source), tag); m != nil {
			msg, st := e.probed(m.Owner.(*unexpected), take)
			e.exitCall()
			return msg, st, nil
		}
		if err := e.probeWait(cc, ctx, source, tag); err != nil {
			e.exitCall()
			return nil, Status{}, err
		}
	}
}

// Iprobe is Probe that does not wait.
func (e *Engine) Iprobe(ctx uint32, source int, tag int32, take bool) (*Message, Status, bool, error) {
	e.lock()
	defer e.unlock()
	if e.wait.leader == noLeader {
		e.progress()
	}
	defer e.exitCall()
	m := e.table.Probe(ctx, int32(source), tag)
	if m == nil {
		return nil, Status{}, false, e.unreachable(source)
	}
	msg, st := e.probed(m.Owner.(*unexpected), take)
	return msg, st, true, nil
}

func (e *Engine) probed(u *unexpected, take bool) (*Message, Status) {
	st := u.status()
	if !take {
		return nil, st
	}
	e.table.Remove(&u.m)
	u.taken = true
	return &Message{e, u}, st
}

// probeWait waits for a message that may match.
func (e *Engine) probeWait(cc context.Context, ctx uint32, source int, tag int32) error {
	if err := e.unreachable(source); err != nil {
		return err
	}
	r := e.request()
	r.op = opProbe
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(source), tag
	r.buf, r.cctx, r.peer = nil, cc, nil
	r.state, r.err, r.status = stActive, nil, Status{}
	e.outstanding++
	e.probers = append(e.probers, r)
	e.await(r)
	err := r.err
	e.recycle(r)
	return err
}

// unreachable says why nothing more can come from source, or nil.
func (e *Engine) unreachable(source int) error {
	if e.closed == nil && source >= 0 {
		if p := e.peers[source]; p != nil {
			return p.err
		}
	}
	return e.closed
}

// tellProbers completes the probes that u matches.
func (e *Engine) tellProbers(u *unexpected) {
	kept := e.probers[:0]
	for _, r := range e.probers {
		k := &r.recv
		if k.Ctx == u.m.Ctx && (k.Source == AnySource || k.Source == u.m.Source) && (k.Tag == AnyTag || k.Tag == u.m.Tag) {
			e.complete(r, nil)
		} else {
			kept = append(kept, r)
		}
	}
	clear(e.probers[len(kept):])
	e.probers = kept
}

func (e *Engine) dropProber(r *Request) {
	for i, o := range e.probers {
		if o == r {
			e.probers = append(e.probers[:i], e.probers[i+1:]...)
			return
		}
	}
}

// Mrecv receives m into buf.
func (e *Engine) Mrecv(cc context.Context, m *Message, buf []byte) (Status, error) {
	r, err := e.Imrecv(cc, m, buf)
	if err != nil {
		return Status{}, err
	}
	return e.Wait(r)
}

// Imrecv starts to receive m into buf.
func (e *Engine) Imrecv(cc context.Context, m *Message, buf []byte) (*Request, error) {
	e.lock()
	defer e.unlock()
	u := m.u
	if u == nil {
		return nil, fmt.Errorf("%w: the message has been received already", ErrRequest)
	}
	m.u = nil
	r := e.handle()
	r.prepareRecv(cc, u.m.Ctx, int(u.m.Source), u.m.Tag, buf)
	r.state, r.err, r.cancelling, r.waited, r.ended = stActive, nil, false, false, false
	e.outstanding++
	e.deliver(r, u)
	e.exitCall()
	return r, nil
}

// Bytes of m's payload.
func (m *Message) Bytes() int64 {
	if m.u == nil {
		return 0
	}
	return m.u.size
}

package pml

import (
	"context"

	"github.com/gorun-mpi/mpi/transport"
)

// A receive's life: posted to the path (links.go), where it may be matched at once; else it is complete when some
// caller or the watcher polls what it is matched with.
//
// Recv first looks for a message that has come for no other receive, or is about to, and copies it straight into its
// buffer (land): there is no request then. The lock is held meanwhile, so this receive is younger than all that are
// posted, and what it does not take has come before it.

// Recv receives into buf. source and tag may be wildcards.
func (e *Engine) Recv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) (Status, error) {
	e.lock()
	if st, landed := e.links.land(ctx, int32(source), tag, buf, landPolls); landed {
		e.exitCall()
		e.unlock()
		return st, nil
	}
	return e.recvSlow(cc, ctx, source, tag, buf)
}

// recvSlow is Recv of what has not landed. The lock is held, and is released.
func (e *Engine) recvSlow(cc context.Context, ctx uint32, source int, tag int32, buf []byte) (Status, error) {
	r := e.requests.take()
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(source), tag
	r.buf, r.cctx = transport.HostMem(buf), cc
	e.wait.calling = true
	e.startRecv(r)
	e.wait.calling = false
	if r.state != stDone {
		e.await(r)
	}
	st, err := r.status, r.err
	e.requests.putBack(r)
	e.exitCall()
	e.unlock()
	return st, err
}

// Irecv starts a receive. The request is the caller's until it is collected.
func (e *Engine) Irecv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) *Request {
	e.lock()
	r := e.requests.handles.get()
	if r == nil {
		r = e.requests.fresh()
	}
	if e.load.outstanding == 0 {
		if st, landed := e.links.land(ctx, int32(source), tag, buf, 1); landed {
			r.op, r.state, r.status = opRecv, stDone, st
			e.exitCall()
			e.unlock()
			return r
		}
	}
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(source), tag
	r.buf, r.cctx = transport.HostMem(buf), cc
	if e.direct && e.closed == nil { // startRecv, without the call
		r.op, r.mode, r.state = opRecv, Standard, stActive
		r.status = Status{}
		e.load.outstanding++
		if m := e.links.table.Post(&r.recv); m != nil || e.links.needsCheck != 0 {
			e.links.posted(r, m)
		}
	} else {
		e.startRecv(r)
	}
	if e.wait.armed == armedNot || e.load.pending|e.wait.followers != 0 { // else arm would do nothing
		e.exitCall()
	}
	e.unlock()
	return r
}

// startRecv is prepareRecv and start in one, where the arguments are in r already.
func (e *Engine) startRecv(r *Request) {
	r.op, r.mode, r.state = opRecv, Standard, stActive
	r.status = Status{}
	e.load.outstanding++
	if e.closed != nil {
		e.complete(r, e.closed)
		return
	}
	if !e.direct {
		e.path.post(r)
		return
	}
	if m := e.links.table.Post(&r.recv); m != nil || e.links.needsCheck != 0 {
		e.links.posted(r, m)
	}
}

func (r *Request) prepareRecv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) {
	r.op, r.mode = opRecv, Standard
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(source), tag
	r.buf, r.cctx = transport.HostMem(buf), cc
}

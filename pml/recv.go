package pml

import (
	"context"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/transport"
)

// A receive's life: posted to the path (links.go), where it may be matched at once; else it is complete when some caller
// or the watcher polls what it is matched with.
//
// Recv first looks for a message that has come for no other receive, or is about to, and copies it straight into its
// buffer (land): there is no request then. The lock is held meanwhile, so this receive is younger than all that are
// posted, and what it does not take has come before it.

// Recv receives into buf. source and tag may be wildcards.
func (e *Engine) Recv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) (Status, error) {
	e.lock()
	if st, landed := e.land(ctx, int32(source), tag, buf); landed {
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

// mayLand reports whether a receive may look for a message before it is posted: the device can show it one, no caller
// polls, no peer has failed or wants credit, and nothing is under way of which a peer asks whether this rank polls.
func (e *Engine) mayLand() bool {
	return e.short != nil && e.links.needsCheck == 0 && e.wait.leader == noLeader && e.load.pending == 0 &&
		e.links.transfers.none()
}

// landPolls is how many messages land looks at, and how often where the caller may spin.
const landPolls = 64

// land copies the message for a receive with this envelope into buf, if it is queued or comes next, is short, and fits.
func (e *Engine) land(ctx uint32, source, tag int32, buf []byte) (st Status, landed bool) {
	if !e.mayLand() {
		return st, false
	}
	l := &e.links
	if l.table.Unexpected() != 0 {
		if m := l.table.Probe(ctx, source, tag); m != nil {
			return l.takeOut(m.Owner.(*unexpected), buf)
		}
	}
	for range landPolls {
		if e.unpolled++; e.unpolled > maxUnpolled {
			return st, false
		}
		m, found := e.short()
		if found == transport.FoundShort {
			wanted := m.Ctx == ctx && (m.Source == source || source == AnySource) && (m.Tag == tag || tag == AnyTag)
			if wanted && len(m.Payload) <= len(buf) &&
				(l.table.Posted() == 0 || l.table.Peek(m.Ctx, m.Source, m.Tag) == nil) {
				if p := l.known(m.Source); p != nil {
					copy(buf, m.Payload)
					e.stats.MatchedOnArrival++
					p.returnCredit(eager.Cost(len(m.Payload)))
					return Status{Source: m.Source, Tag: m.Tag, Bytes: int64(len(m.Payload))}, true
				}
			}
			if l.onShort(m); wanted || !e.mayLand() {
				break
			}
		} else if found == transport.FoundOther || !e.spinsUnarmed() || e.wanted.Load() != 0 || e.wait.followerWoken {
			break
		}
	}
	return st, false
}

// Irecv starts a receive. The request is the caller's until it is collected.
func (e *Engine) Irecv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) *Request {
	e.lock()
	r := e.requests.handle()
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(source), tag
	r.buf, r.cctx = transport.HostMem(buf), cc
	e.startRecv(r)
	e.exitCall()
	e.unlock()
	return r
}

// startRecv is prepareRecv and start in one, where the arguments are in r already.
func (e *Engine) startRecv(r *Request) {
	r.op, r.mode, r.state = opRecv, Standard, stActive
	r.cancelling, r.waited, r.ended = false, false, false
	r.status = Status{}
	e.load.outstanding++
	if e.closed != nil {
		e.complete(r, e.closed)
		return
	}
	if e.direct {
		e.links.post(r)
	} else {
		e.path.post(r)
	}
}

func (r *Request) prepareRecv(cc context.Context, ctx uint32, source int, tag int32, buf []byte) {
	r.op, r.mode = opRecv, Standard
	r.recv.Ctx, r.recv.Source, r.recv.Tag = ctx, int32(source), tag
	r.buf, r.cctx = transport.HostMem(buf), cc
}

package pml

import "github.com/gorun-mpi/mpi/internal/wire"

// What a program needs that outlives other ranks: which ranks have failed, whose failure ends a wait for any source,
// and contexts that are revoked. It costs nothing before the first failure and the first revocation: a posted receive
// looks here only if linkPath.needsCheck is set, which it is then.

// Loss is the failure of another rank of the world, as this rank has heard of it.
type Loss struct {
	Rank int32
	Err  error
}

// recovery is the part of an Engine that has it.
type recovery struct {
	losses  []Loss // in the order in which this rank has heard of them; only appended to
	concern func(ctx uint32, losses []Loss) error
	revoked map[uint32]error // why all operations with a context fail
}

// Losses returns the failures of other ranks but for the first n.
func (e *Engine) Losses(n int) []Loss {
	e.lock()
	defer e.unlock()
	all := e.recovery.losses
	return all[min(n, len(all)):len(all):len(all)]
}

// SetConcern sets what decides whose failure ends a wait for any source with a context: f returns the error of the
// first loss that does, or nil. f is called under the engine's lock, so it neither waits nor calls the engine. Without
// it the first loss ends all such waits.
func (e *Engine) SetConcern(f func(ctx uint32, losses []Loss) error) {
	e.lock()
	e.recovery.concern = f
	e.unlock()
}

// lostTo says why no message of any source is waited for with a context, or nil: a rank has failed that may have been
// meant to send it. It is inlined: before the first failure it is one look.
func (s *recovery) lostTo(ctx uint32) error {
	if len(s.losses) == 0 {
		return nil
	}
	return s.concerned(ctx)
}

// concerned is lostTo after a failure.
func (s *recovery) concerned(ctx uint32) error {
	if s.concern == nil {
		return s.losses[0].Err
	}
	return s.concern(ctx, s.losses)
}

// lose notes that a rank of the world has failed, and has the server look.
func (e *Engine) lose(rank int32, err error) {
	if e.closed != nil || int(rank) == e.cfg.Rank {
		return
	}
	e.recovery.losses = append(e.recovery.losses, Loss{rank, err})
	e.startServer()
	s := &e.server
	e.probers.end(e, func(r *Request) bool {
		return s.most > 0 && r.recv.Ctx == s.ctx && r.recv.Tag == s.tag && int(r.status.Source) == e.cfg.Rank
	}, nil)
}

// lost says why nothing comes from a rank with a context, or nil.
func (e *Engine) lost(rank int32, ctx uint32) error {
	if rank < 0 {
		return e.recovery.lostTo(ctx)
	}
	return e.path.gone(rank)
}

// probesLosing chooses the probes that wait no longer when a rank has failed, which is in losses.
func (e *Engine) probesLosing(rank int32) func(*Request) bool {
	return func(r *Request) bool {
		from := r.status.Source
		return from == rank || from == AnySource && e.recovery.lostTo(r.recv.Ctx) != nil
	}
}

// refusal says why no request with a context starts, or nil.
func (e *Engine) refusal(ctx uint32) error {
	if e.closed != nil {
		return e.closed
	}
	return e.recovery.revoked[ctx]
}

// Revoke ends what is under way with n contexts, from first on, and what begins later: it fails with err. An operation
// whose message is being moved fails when that is over.
func (e *Engine) Revoke(first, n uint32, err error) {
	e.lock()
	defer e.unlock()
	if len(e.recovery.revoked) == 0 {
		e.recovery.revoked = map[uint32]error{}
		e.links.needsCheck++
		e.refuses = true
	}
	for ctx := first; ctx < first+n; ctx++ {
		e.recovery.revoked[ctx] = err
		e.path.revokeReceives(ctx, err)
		e.probers.end(e, func(r *Request) bool { return r.recv.Ctx == ctx }, err)
	}
	e.path.revoke(func(r *Request) bool { return r.recv.Ctx-first < n }, err)
	e.exitCall()
}

// Unrevoke forgets that contexts are revoked: their communicator has been freed.
func (e *Engine) Unrevoke(first, n uint32) {
	e.lock()
	defer e.unlock()
	if len(e.recovery.revoked) == 0 {
		return
	}
	for ctx := first; ctx < first+n; ctx++ {
		delete(e.recovery.revoked, ctx)
	}
	if len(e.recovery.revoked) == 0 {
		e.links.needsCheck--
		e.refuses = e.closed != nil
	}
}

// revokeReceives implements path. A message whose sender waits for it stays until the sender has taken it back, or the
// communicator is freed: if it were lost, its send would end well.
func (l *linkPath) revokeReceives(ctx uint32, err error) {
	receives, messages := l.table.DropContext(ctx)
	l.failReceives(receives, err)
	for _, m := range messages {
		if u := m.Owner.(*unexpected); u.Kind == wire.Eager && u.early == notEarly {
			l.discard(u)
		} else {
			l.table.Queue(m)
		}
	}
}

// revokeReceives implements path.
func (t *taggedPath) revokeReceives(ctx uint32, err error) {
	if t.limits.SendsStay { // no sender takes a message back
		t.e.dropped.add(ctx)
		t.revoked = appendLast(t.revoked, ctx)
	}
	t.drop(ctx, err)
}

// revoke implements path. A send that is not matched is taken back, and fails whatever the receiver answers.
func (l *linkPath) revoke(which func(*Request) bool, err error) {
	var sends []*Request
	for _, p := range l.peers {
		if p == nil {
			continue
		}
		for _, r := range p.queue.items() {
			if which(r) {
				r.failsWith(err)
				sends = append(sends, r)
			}
		}
	}
	for t := range l.transfers.values() {
		if t.one.reach != nil || !which(t.r) {
			continue
		}
		t.r.failsWith(err)
		if t.unmatched() && !t.r.queued {
			sends = append(sends, t.r)
		}
	}
	l.e.cancelAll(sends, which, err)
}

// revoke implements path.
func (t *taggedPath) revoke(which func(*Request) bool, err error) {
	t.plain = 0 // each receive is looked at from now on
	var sends []*Request
	for _, r := range t.all() {
		if !which(r) || r.op == opLost {
			continue
		}
		if r.failsWith(err); r.sends() {
			sends = append(sends, r)
		}
	}
	t.e.cancelAll(sends, which, err)
}

// failsWith has r end with err, however it ends.
func (r *Request) failsWith(err error) {
	if r.err == nil && r.device() == nil {
		r.err = err
	}
}

// cancelAll cancels requests that which chooses. One that is cancelled may let others go on, which may be over then.
func (e *Engine) cancelAll(all []*Request, which func(*Request) bool, why error) {
	for _, r := range all {
		if r.state == stActive && which(r) {
			e.cancel(r, why)
		}
	}
}

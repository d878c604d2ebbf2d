package pml

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// The holder of a request may have to wait for it although it has handed the operation on to another holder, who waits
// for it too, gives it up, or never looks. Each of them has a request then: the operation's, and its proxy.

// Proxy returns a request that is done when r is, and with the same result, or with the error short if r is a receive
// of a message that is shorter than its buffer. Both must be collected. If cc ends first, the proxy ends with its
// error, and r goes on. A request has one proxy.
func (r *Request) Proxy(cc context.Context, short error) *Request {
	e := r.e
	e.lock()
	defer e.unlock()
	p := e.requests.handle()
	p.op, p.mode, p.buf, p.cctx, p.peer = opProxy, Standard, transport.Mem{}, cc, nil
	p.recv.Ctx, p.recv.Source, p.recv.Tag = r.recv.Ctx, r.recv.Source, r.recv.Tag
	p.status, p.err = r.status, r.err
	if r.state == stDone {
		if p.state = stDone; r.isShort() {
			p.err = short
		}
		return p
	}
	p.state = stActive
	e.load.outstanding++
	p.extra, p.proxied, p.short = true, r, short
	r.extra, r.proxy = true, p
	e.exitCall()
	return p
}

// endProxy is called when r is over, which has a proxy.
func (r *Request) endProxy() {
	p := r.proxy
	r.proxy, p.proxied = nil, nil
	err := r.err
	if p.status = r.status; r.isShort() {
		err = p.short
	}
	r.e.complete(p, err)
}

// isShort reports whether r, which is done, has received fewer bytes than its buffer has.
func (r *Request) isShort() bool {
	size := int64(r.buf.Len)
	if o := r.device(); o != nil && !o.host { // r.buf is nothing then
		size = int64(o.b.Len)
	}
	return r.op == opRecv && r.err == nil && !r.status.Cancelled && r.status.Bytes < size
}

// Short reports whether r is done and has received fewer bytes than its buffer has. Its result is not collected.
func (r *Request) Short() bool {
	r.e.lock()
	defer r.e.unlock()
	return r.state == stDone && r.isShort()
}

var errProxyNotCancelled = fmt.Errorf("%w: the operation cannot be cancelled; wait for it", ErrRequest)

// cancelProxy ends the proxy r, whose context has ended.
func (e *Engine) cancelProxy(r *Request, why error) {
	r.proxied.proxy, r.proxied = nil, nil
	e.endCancelled(r, why)
}

// Await returns when r is done, or cc has ended: then r is under way still, and the error is that of cc. In neither
// case it collects the result.
func (r *Request) Await(cc context.Context) error {
	e := r.e
	e.lock()
	defer e.unlock()
	if r.state < stActive || r.claimed != 0 {
		return r.checkWaitable()
	}
	r.claimed = e.requests.nextClaim()
	w := waitFor{e: e, r: r, cc: cc}
	var err error
	for err == nil && !w.ready() {
		err = w.block()
	}
	if w.slept {
		e.boards.awake(&w)
	}
	r.claimed = 0
	e.exitCall()
	if w.ready() {
		return nil
	}
	return err
}

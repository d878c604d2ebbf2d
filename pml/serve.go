package pml

import (
	"context"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// server is what answers the messages with a context and a tag that other ranks send when one has failed, and hears of
// failures. It costs nothing before.
type server struct {
	ctx   uint32
	tag   int32
	most  int32  // the last of the tags of answers, which follow tag; 0: there is no server
	start func() // nil: there is none, or it has been started
}

// StartServer has f run, on a goroutine of its own, when this rank hears that another one has failed (also from
// EnsureLink), or a synchronous message with this context and tag has come. Where a library matches messages, it is
// found when a caller has waited for a while. f calls Serve until that
// returns an error. It answers with tags above that one, up to most, also when its rank has returned: no rank that
// waits for the answer is told that its server's rank has.
func (e *Engine) StartServer(ctx uint32, tag, most int32, f func()) {
	e.lock()
	defer e.unlock()
	e.server = server{ctx, tag, most, f}
	if len(e.recovery.losses) != 0 {
		e.startServer()
	}
}

// CallServer starts the server, unless it runs.
func (e *Engine) CallServer() {
	e.lock()
	e.startServer()
	e.unlock()
}

func (e *Engine) startServer() {
	if f := e.server.start; f != nil && e.closed == nil {
		e.server.start = nil
		e.woken() // else it waits until the caller sleeps
		go f()
	}
}

// has reports whether messages with that context and tag are for servers or of them.
func (s *server) has(ctx uint32, tag int32) bool {
	return ctx == s.ctx && tag >= s.tag && tag <= s.most && s.most > 0
}

// excuse has Flush neither wait for r, which may never end, nor count it.
func (e *Engine) excuse(r *Request) {
	r.unflushed, r.extra = true, true
	e.load.serving++
	if !r.detached {
		e.load.detached++
	}
}

// AwaitServer waits for a message without a payload that the server of this rank sends to it, with a tag of answers.
// The caller waits as in Recv: it leads unless another one does. Flush neither waits for it nor counts it.
func (e *Engine) AwaitServer(cc context.Context, ctx uint32, tag int32) error {
	e.lock()
	defer e.unlock()
	r := e.requests.take()
	r.prepareRecv(cc, ctx, e.cfg.Rank, tag, nil)
	e.excuse(r)
	e.wait.calling = true
	e.start(r)
	e.wait.calling = false
	if r.state != stDone {
		e.await(r)
	}
	err := r.err
	e.requests.putBack(r)
	e.exitCall()
	return err
}

// serverWaits reports whether r is the wait of Serve, or of AwaitServer.
func (e *Engine) serverWaits(r *Request) bool {
	k := &r.recv
	return e.server.has(k.Ctx, k.Tag) && (k.Source == AnySource || int(k.Source) == e.cfg.Rank)
}

// calledUpon is called when a message has come unmatched whose sender waits for the match.
func (e *Engine) calledUpon(h *wire.Header) {
	if s := &e.server; s.start != nil && h.Tag == s.tag && h.Ctx == s.ctx {
		e.startServer()
	}
}

// SendToServer sends buf to a server, which starts if it has not, and does not wait. buf is the engine's from then on.
// Flush neither waits for it nor counts it: a rank that takes this one for dead takes no message of it. The engine
// sends it until it is closed. That is when all living ranks have left, and none of them waits for a message.
func (e *Engine) SendToServer(ctx uint32, dest int, tag int32, buf []byte) {
	e.lock()
	defer e.unlock()
	r := e.requests.take()
	r.prepareSend(nil, ctx, dest, tag, buf, Synchronous)
	r.detached = true
	e.load.detached++
	e.excuse(r)
	e.start(r)
	e.exitCall()
}

// Serve waits until there is a message of any rank, whichever ranks have failed, or more ranks have failed than so
// many, or the engine is closed. Flush neither waits for it nor counts it. The caller takes the message with Iprobe.
func (e *Engine) Serve(ctx uint32, tag int32, losses int) error {
	e.lock()
	defer e.unlock()
	for {
		if _, is := e.path.probe(ctx, AnySource, tag, false); is || len(e.recovery.losses) > losses {
			e.exitCall()
			return nil
		}
		r, err := e.startProbe(nil, ctx, AnySource, e.cfg.Rank, tag)
		if err == nil {
			e.serveWait(r)
			err = r.err
			e.requests.putBack(r)
		}
		if err != nil {
			e.exitCall()
			return err
		}
	}
}

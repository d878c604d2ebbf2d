package pml

import "github.com/gorun-mpi/mpi/internal/wire"

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
		go f()
	}
}

// has reports whether messages with that context and tag are for servers or of them.
func (s *server) has(ctx uint32, tag int32) bool {
	return ctx == s.ctx && tag >= s.tag && tag <= s.most && s.most > 0
}

// probes reports whether r is the server's own wait for messages.
func (s *server) probes(r *Request) bool {
	return s.most > 0 && r.recv.Ctx == s.ctx && r.recv.Tag == s.tag && r.recv.Source == AnySource
}

// calledUpon is called when a message has come unmatched whose sender waits for the match.
func (e *Engine) calledUpon(h *wire.Header) {
	if s := &e.server; s.start != nil && h.Tag == s.tag && h.Ctx == s.ctx {
		e.startServer()
	}
}

// Serve waits until there is a message of any rank, whichever ranks have failed, or more ranks have failed than so
// many, or the engine is closed. Flush neither waits for it nor counts it. The caller takes the message with Iprobe.
func (e *Engine) Serve(ctx uint32, tag int32, losses int) error {
	e.lock()
	defer e.unlock()
	for {
		_, ok := e.path.probe(ctx, AnySource, tag, false)
		ok = ok || len(e.recovery.losses) > losses
		var err error
		if !ok {
			e.load.serving++
			e.load.detached++
			err = e.probeWait(nil, ctx, AnySource, e.cfg.Rank, tag)
			e.load.serving--
			e.load.detached--
		}
		if ok || err != nil {
			e.exitCall()
			return err
		}
	}
}

package pml

// The messages of a window. Other ranks ask this one to work on its memory, and it may be computing: whoever polls
// takes each request, a caller or the watcher, and hands it to the window's Handler. That may start messages, of which
// a Follower hears when they are over.
//
// Requests of one rank are handled in the order of their sending.

// Window is what receives the requests of one context. It is open until the context is dropped.
type Window struct {
	e      *Engine
	ctx    uint32
	tag    int32
	buf    []byte // the engine's while a receive is posted, and Handle's meanwhile
	handle Handler
	moving int    // messages whose Followers are not told yet
	idle   func() // is to be called when there are none; nil: nothing
	loans  map[int32]loan
	over   bool // nothing is lent any more

	number  uint16 // in notes; 0: no link brings any
	noteTag int32  // of the messages that notes are

	steps    bool // links make atomic steps in what is lent
	byDevice bool // and nothing else does
}

// Handler handles requests. Its methods are called under the engine's lock, so they neither wait nor call a method
// of Engine. msg is a message of any length up to the buffer's, of any content.
type Handler interface {
	// Handle handles a request. again: it cannot now, and is called again with the next look; no other request is
	// handled before.
	Handle(source int32, msg []byte) (again bool)
	Failed(rank int32, err error) // a rank of the world has failed, or this engine has been closed
	Returned()                    // this rank makes no call any more
	Locks() []int32               // the ranks of the world of which this rank has the lock
}

// Follower hears that a message of Window.Send or Window.Recv is over, as Handler does.
type Follower interface {
	Follow(st Status, err error)
}

// windows are those of an engine that are open, and the messages that are over, whose Followers are to be told. These
// are chained by next, and load.pending counts them.
type windows struct {
	open        []*Window
	first, last *Request
	again       int // of these, requests that are to be handled again
	telling     bool
	kept        []*Window // whose memory may be reached as long as the engine lives
	notes       notes
}

// OpenWindow opens a window for the messages of a context and tag. A message that is longer than buf is lost.
func (e *Engine) OpenWindow(ctx uint32, tag int32, buf []byte, h Handler) *Window {
	w := &Window{e: e, ctx: ctx, tag: tag, buf: buf, handle: h}
	e.lock()
	defer e.unlock()
	e.wait.rounds++ // a request may come at any time, and its rank waits for it: every arrival counts
	e.windows.open = append(e.windows.open, w)
	w.post()
	e.exitCall()
	return w
}

// post posts the receive for the next request.
func (w *Window) post() {
	r := w.e.requests.take()
	r.prepareRecv(nil, w.ctx, AnySource, w.tag, w.buf)
	r.then, r.extra = w, true
	r.detached = true
	w.e.load.detached++
	w.e.excuse(r)
	w.e.start(r)
}

// Follow implements Follower: a request has come.
func (w *Window) Follow(st Status, err error) { w.came(st, err) }

// came is called with a request, or with an error in its place. A request that came before the context was dropped is
// lost, like any other message. Nothing comes any more once the context is revoked.
func (w *Window) came(st Status, err error) {
	switch {
	case w.e.dropped.has(w.ctx) || w.e.refusal(w.ctx) != nil:
		w.e.wait.rounds--
		w.e.windows.open = without(w.e.windows.open, w)
		if w.e.closed != nil {
			w.handle.Failed(int32(w.e.cfg.Rank), w.e.closed)
		}
		return
	case err == nil && w.handle.Handle(st.Source, w.buf[:st.Bytes]):
		r := w.e.requests.take()
		r.then, r.extra = postponed{w}, true
		r.status, r.err = st, nil
		w.e.windows.again++
		w.e.windows.over(w.e, r)
		return
	}
	w.post()
}

// postponed is a request in the window's buffer that is to be handled again.
type postponed struct{ *Window }

// Follow implements Follower.
func (p postponed) Follow(st Status, err error) {
	p.e.windows.again--
	p.came(st, err)
}

// Send sends a message. It is for Handle and Follow. buf is the engine's until f hears of its end.
func (w *Window) Send(dest int, tag int32, buf []byte, f Follower) {
	r := w.e.requests.take()
	r.prepareSend(nil, w.ctx, dest, tag, buf, Standard)
	w.start(r, f)
}

// SendNow sends a short message if that is possible at once, and reports whether it has: then buf is the caller's
// again.
func (w *Window) SendNow(dest int, tag int32, buf []byte) (sent bool) {
	return w.e.links.sendNow(w.ctx, dest, tag, buf)
}

// Recv receives a message, as Send sends one.
func (w *Window) Recv(source int, tag int32, buf []byte, f Follower) {
	r := w.e.requests.take()
	r.prepareRecv(nil, w.ctx, source, tag, buf)
	w.start(r, f)
}

func (w *Window) start(r *Request, f Follower) {
	r.detached = true
	w.e.load.detached++
	if f != nil {
		r.then, r.window, r.extra = f, w, true
		w.moving++
	}
	w.e.start(r)
}

// WhenIdle has f called, on a goroutine of its own, when no message of Send or Recv is under way any more.
func (w *Window) WhenIdle(f func()) {
	w.e.lock()
	defer w.e.unlock()
	w.idle = f
	w.rest()
}

// rest calls idle if there are no messages.
func (w *Window) rest() {
	if f := w.idle; f != nil && w.moving == 0 {
		w.idle = nil
		go f()
	}
}

// serves reports whether r receives the requests of a window, which come from ranks that live whichever have failed.
func (r *Request) serves() bool {
	if !r.extra {
		return false
	}
	_, is := r.then.(*Window)
	return is
}

// over notes that r is.
func (s *windows) over(e *Engine, r *Request) {
	if r.next = nil; s.first == nil {
		s.first = r
	} else {
		s.last.next = r
	}
	s.last = r
	e.load.pending++
	e.wakeLeader()
}

// tell tells the Followers. It returns how many messages were over, without the requests that are to be handled again:
// with these nothing goes on.
func (s *windows) tell(e *Engine) (n int) {
	if s.telling {
		return 0 // the one who tells comes to it
	}
	s.telling = true
	for last := s.last; s.first != nil; { // a Follower may add to them for the next time
		r := s.first
		s.first, r.next = r.next, nil
		e.load.pending--
		then, of, st, err := r.then, r.window, r.status, r.err
		e.requests.putBack(r)
		if then.Follow(st, err); of != nil {
			of.moving--
			of.rest()
		}
		if n++; r == last {
			break
		}
	}
	s.telling = false
	return n - s.again
}

// failed tells the windows that a rank of the world has failed.
func (s *windows) failed(e *Engine, rank int32, err error) {
	for _, w := range s.open {
		r := e.requests.take()
		r.then, r.extra = failedPeer{w}, true
		r.status, r.err = Status{Source: rank}, err
		s.over(e, r)
	}
}

// returned tells the windows that this rank makes no call any more.
func (s *windows) returned() {
	for _, w := range s.open {
		w.handle.Returned()
	}
}

// failedPeer tells a window that a rank has failed.
type failedPeer struct{ *Window }

// Follow implements Follower.
func (f failedPeer) Follow(st Status, err error) { f.handle.Failed(st.Source, err) }

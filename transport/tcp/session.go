package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport"
)

// session is what this rank has with one peer, from the first contact on. It outlives a connection that is dropped
// while nothing is under way: counts on both sides say whether that was so (resume.go).
type session struct {
	d    *Device
	peer int

	conn atomic.Pointer[conn] // nil: none yet, or it is being made again, or the peer is gone
	gone atomic.Bool          // Down has been reported: what is sent is dropped

	// The caller's of the device's methods.
	sent, received uint64 // frames, and one more: 0 in a handshake means that there has been no connection yet
	refused        bool   // TrySend has said no, and Room is owed for it
	torn           bool   // a frame was lost on the way out
	bye            bool   // the peer has said goodbye, or nonsense
	places         []placement
	wrotePoll      uint64 // the Poll before the last write
	wroteAt        int64  // ns

	// Guarded by connections.mu.
	address address
	known   bool // address has been given; before that only the peer can dial
	held    resumeState
	dials   uint64        // by this rank
	taken   uint64        // the number of the peer's last dial that this rank has accepted
	last    dialled       // by which the last connection was made
	own     *ownDial      // this rank dials; if the peer does too, the lower rank's connection is the one. nil: it does not
	coming  bool          // this rank has accepted the peer's connection, which is not installed yet
	up      chan struct{} // closed when a connection stands, or the session has ended; nil: it is not waited for
	card    []byte
	err     error // why it has ended; nil: it has not
}

// connections is which peers a device is connected with, and what goroutines have left for Poll.
type connections struct {
	notices atomic.Bool            // giveUps, lost or begun has something
	inUse   atomic.Pointer[[]slot] // changed under mu: Poll reads it without mu
	wg      sync.WaitGroup
	ctx     context.Context // ends with the device
	stop    context.CancelFunc

	mu       sync.Mutex // guards what follows; taken when connections come and go
	free     []uint32   // slots of inUse
	sessions map[int]*session
	giveUps  []*giveUpRequest
	lost     []*session // ended by a goroutine; Poll has not reported Down yet
	begun    []*conn    // that Poll must read once without a report of the set
	watched  bool       // the watch runs
}

// slot has a connection; nil: it is free.
type slot = atomic.Pointer[conn]

// enter gives c a slot. mu is held. A new slot lies behind the end of what Poll may be reading, so that a connection
// costs the same however many there are.
func (n *connections) enter(c *conn) {
	slots := *n.inUse.Load()
	if k := len(n.free); k > 0 {
		c.slot = n.free[k-1]
		n.free = n.free[:k-1]
	} else {
		c.slot = uint32(len(slots))
		slots = append(slots, slot{})
		n.inUse.Store(&slots)
	}
	slots[c.slot].Store(c)
}

// leave frees the slot of c. mu is held.
func (n *connections) leave(c *conn) {
	(*n.inUse.Load())[c.slot].Store(nil)
	n.free = append(n.free, c.slot)
}

// session returns that of a peer, made on first contact. mu is held.
func (d *Device) session(peer int) *session {
	s := d.sessions[peer]
	if s == nil {
		s = &session{d: d, peer: peer, sent: 1, received: 1}
		d.sessions[peer] = s
	}
	return s
}

// Connect is transport.Device's. If the peer has connected to us already, or does while we try, that is the connection.
// A host that does not answer is given up after PeerTimeout. A process that does not answer may be stopped: how long it
// is waited for is ctx's to say.
func (d *Device) Connect(ctx context.Context, peer int, b []byte) (transport.Link, error) {
	if peer < 0 || peer >= d.opt.Size || peer == d.opt.Rank {
		return nil, fmt.Errorf("tcp: connecting rank %d to %d: the ranks are 0 to %d", d.opt.Rank, peer, d.opt.Size-1)
	}
	to, err := parseAddress(b)
	if err != nil {
		return nil, fmt.Errorf("tcp: rank %d published an address that makes no sense: %w", peer, err)
	}
	d.mu.Lock()
	if d.closed.Load() {
		d.mu.Unlock()
		return nil, fmt.Errorf("tcp: connecting rank %d to %d: rank %d has closed its own device",
			d.opt.Rank, peer, d.opt.Rank)
	}
	s := d.session(peer)
	s.address, s.known = to, true
	ended := s.err
	d.mu.Unlock()
	if ended != nil {
		return nil, ended
	}
	if err := s.connect(ctx); err != nil {
		return nil, fmt.Errorf("tcp: connecting rank %d to rank %d: %w", d.opt.Rank, peer, err)
	}
	return newLink(s), nil
}

// Link returns the way to a peer that there has been a connection with, made by either side; nil: there has been none.
func (d *Device) Link(peer int) transport.Link {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[peer]; s != nil {
		return newLink(s)
	}
	return nil
}

// connect returns when there is a connection, made by either side. Where this process has no descriptor for one it
// waits for that too, and where it cannot reach the peer, for the peer's own connection.
func (s *session) connect(ctx context.Context) error {
	for start, next := time.Now(), callSoon; ; {
		pause := crossingRetry
		up, own, err := s.begin()
		if err != nil {
			return err
		}
		if own != nil {
			err = s.dial(ctx, own)
			if s.stopDialing(own) {
				err = nil // the peer's connection is the one
			}
		}
		if s.conn.Load() != nil {
			return nil
		}
		if err != nil && !noDescriptor(err) {
			if err = s.callAfter(ctx, err, start); err != nil {
				return err
			}
			pause, next = next, min(2*next, callAgain)
		}
		select { // the peer's own connection is on its way, or it must look first at what it has got
		case <-up:
		case <-time.After(pause):
		case <-ctx.Done():
			if err == nil && ctx.Err() == context.DeadlineExceeded {
				err = errNoAnswer
			}
			return cmp.Or(err, context.Cause(ctx))
		case <-s.d.ctx.Done():
			return errClosing
		}
	}
}

const (
	// crossingRetry is how long to wait for the other side's connection before dialling again: it may have failed.
	crossingRetry = 100 * time.Millisecond
	// callFirst is how long a dial is given before the peer is called to dial as well. callSoon is the first pause before
	// the next dial and the next call of a rank that reaches no address of the peer, and callAgain the longest one: a
	// peer that has been killed refuses at once, and its launcher may hear of the end a moment later than this rank.
	callFirst = time.Second
	callSoon  = 5 * time.Millisecond
	callAgain = time.Second
)

var (
	errClosing  = errors.New("this rank has closed its device")
	errNoAnswer = fmt.Errorf("%w: it answers, but its own connection, which is the one, does not come",
		transport.ErrTimeout)
	errLost   = errors.New("frames were lost with the last connection")
	errEnding = fmt.Errorf("%w: it is closing its device", transport.ErrPeerGone)
)

// begin gives the caller what to say in a dial, unless there is a connection, or one is about to be: the peer's, or
// that of another caller. So this rank's dials come one after the other, by which the peer knows what an older one is.
// What the peer dials from then on is not in own: its connection would count as one that this rank has lost.
func (s *session) begin() (up chan struct{}, own *ownDial, err error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.up == nil {
		s.up = make(chan struct{})
	}
	switch {
	case s.err != nil:
		return nil, nil, s.err
	case s.conn.Load() != nil, s.coming, s.own != nil, !s.known:
		return s.up, nil, nil
	}
	s.dials++
	s.own = &ownDial{says: history{s.held.sent, s.held.received, s.dials, s.taken}, token: newToken()}
	s.own.ctx, s.own.stop = context.WithCancel(s.d.ctx)
	return s.up, s.own, nil
}

// changed ends the waits of connect. mu is held.
func (s *session) changed() {
	if s.up != nil {
		close(s.up)
		s.up = nil
	}
}

// ownDial is a dial by this rank.
type ownDial struct {
	says    history
	token   token // its holder alone proves this rank to the peer
	yielded bool  // guarded by connections.mu; the peer's dial is accepted instead
	ctx     context.Context
	stop    context.CancelFunc
}

// yield gives the dial up for one by the peer. It reports whether it has: it has not if this rank has proved itself in
// the dial, since the peer may have accepted it then. mu is held.
func (o *ownDial) yield() bool {
	select {
	case <-o.token:
		o.yielded = true
		o.stop()
	default:
	}
	return o.yielded
}

// stopDialing ends a dial, and reports whether it has yielded.
func (s *session) stopDialing(own *ownDial) bool {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.own = nil
	own.stop()
	return own.yielded
}

// patience is how long an address of the peer may take to be connected, and how long the peer's own connection is
// waited for where none is.
func (s *session) patience() time.Duration {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.held.broken {
		return min(s.d.opt.PeerTimeout, redialSilence)
	}
	return s.d.opt.PeerTimeout
}

// callAfter calls the peer after a dial that has failed since it reached no address. nil: the peer was told, and time is
// left since start in which it may dial. A refusal alone does not say that the peer is gone then: a firewall refuses too.
func (s *session) callAfter(ctx context.Context, failed error, start time.Time) error {
	var e *dialError
	if s.d.opt.Call == nil || !errors.As(failed, &e) || e.reached() {
		return failed
	}
	switch err := s.d.opt.Call(ctx, s.peer); {
	case errors.Is(err, transport.ErrPeerGone):
		return err // what became of each address says no more
	case err != nil:
		return failed
	case time.Since(start) < s.patience():
		return nil
	}
	return &uncalledError{e}
}

// callMeanwhile calls the peer if a dial takes long: a firewall may drop what this rank sends and not what the peer
// does. It ends the dial of a peer that has ended: another process may have its port, and leave connections there
// unanswered. The caller calls stop when the dial is over.
func (s *session) callMeanwhile(ctx context.Context, end context.CancelCauseFunc) (stop func()) {
	if s.d.opt.Call == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause, err := callFirst, error(nil); err == nil; pause = callAgain {
			select {
			case <-time.After(pause):
				if err = s.d.opt.Call(ctx, s.peer); errors.Is(err, transport.ErrPeerGone) {
					end(err)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// dial makes a connection to any of the peer's addresses. Without one and without an error the peer's is on its way.
func (s *session) dial(ctx context.Context, own *ownDial) error {
	d := s.d
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(own.ctx, func() { cancel(nil) })()
	defer s.callMeanwhile(ctx, cancel)()
	d.mu.Lock()
	to := s.address
	d.mu.Unlock()
	handshake := func(ctx context.Context, nc net.Conn) (*handshakeResult, error) {
		fd, err := duplicate(nc)
		if err != nil {
			nc.Close()
			return nil, err
		}
		prepare(fd, d.opt.PeerTimeout)
		r, err := d.handshaker.dial(ctx, nc, own.token, s.peer, own.says)
		if err != nil || r.code != accepted {
			unix.Close(fd)
			return r, err
		}
		r.fd = fd
		return r, nil
	}
	r, err := dialAny(ctx, order(to, d.local), s.patience(), handshake)
	var failed *dialError
	if errors.As(err, &failed) && to.host != d.local.host {
		for i := range failed.failed {
			a := &failed.failed[i]
			a.own = d.local.has(a.to.Addr())
		}
	}
	switch why := context.Cause(ctx); {
	case err != nil && errors.Is(why, transport.ErrPeerGone):
		return why // what became of each address says no more
	case err != nil:
		return err
	case r.code == accepted:
		return d.install(r, s)
	case r.code == mismatch:
		return errLost
	case r.code == closing:
		return errEnding
	}
	return nil
}

// admit is asked for each peer that has proved itself on a connection it has made.
func (d *Device) admit(peer int, h history) code {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return closing
	}
	s := d.session(peer)
	if c := s.conn.Load(); c != nil && s.last.before(&h) {
		d.giveUp(c)
	}
	switch {
	case s.err != nil:
		return closing
	case s.conn.Load() != nil, s.coming, !s.last.before(&h), s.own != nil && d.opt.Rank < peer && !s.own.yield():
		return crossing
	case max(h.received, 1) != max(s.held.sent, 1) || max(h.sent, 1) != max(s.held.received, 1):
		return mismatch
	}
	s.coming, s.taken = true, max(s.taken, h.dial)
	return accepted
}

// dialled is a dial that has made a connection.
type dialled struct {
	own    bool   // by this rank
	number uint64 // see history; 0: there has been no connection yet
}

// before reports whether a peer that dials has had the connection of l and lost it. Otherwise its dial is an older one,
// which the handshake of l has overtaken: where both have lost a connection, both dial. However late such a dial is
// heard, the connection of l must live, and if it is lost by then the dial's counts are out of date.
func (l dialled) before(of *history) bool {
	if l.own {
		return of.accepted >= l.number
	}
	return of.dial > l.number
}

// giveUp asks Poll to give up c, since the peer has made another one. If this rank does not poll
// in time the peer will ask again. mu is held, and given up meanwhile.
func (d *Device) giveUp(c *conn) {
	a := &giveUpRequest{c, make(chan struct{})}
	d.giveUps = append(d.giveUps, a)
	d.mu.Unlock()
	d.notify()
	d.endSleep()
	select {
	case <-a.done:
	case <-time.After(time.Second):
	case <-d.ctx.Done():
	}
	d.mu.Lock()
}

// dropped is called when the connection of an accepted peer broke before it was one.
func (d *Device) dropped(peer int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[peer]; s != nil {
		s.coming = false
	}
}

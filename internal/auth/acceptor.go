package auth

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Options of an Acceptor. Accept and Serve are called in a goroutine of the connection's own.
type Options struct {
	Name    string                           // of the protocol, for the log
	Pending int                              // at most so many connections that have proved nothing; 0: 128
	Allows  func(local netip.Addr) bool      // whether connections to this address of ours are accepted; nil: all are
	Accept  func(net.Conn) (*Session, error) // a Handshaker's, after what the caller has to do first
	Serve   func(*Session)                   // owns the session; Close closes its connection and waits for it
	Log     func(msg string, args ...any)    // gets whole sentences
}

const defaultPending = 128

// Acceptor takes connections from a listener and hands on the ones that prove to be of the job. It bounds the cost of
// the others: Options.Pending connections, each for the time limit of a handshake, and a line in the log per second and
// reason.
type Acceptor struct {
	opt    Options
	ln     net.Listener
	failed [reasons]atomic.Uint64 // handshakes, by reason
	quit   chan struct{}          // closed by Close
	noted  chan struct{}          // holds an element if notices are to be logged
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows; not held while anything waits
	closed  bool
	pending []*pendingConn       // in order of arrival; at most Options.Pending
	perHost map[netip.Prefix]int // how many of them come from where
	served  map[net.Conn]struct{}
	notices [reasons]notice
	stuck   error // why no connection could be accepted, if that has not been logged yet
}

// pendingConn is a connection that has proved nothing yet.
type pendingConn struct {
	conn   net.Conn
	host   netip.Prefix  // with IPv6 its network, of whose addresses a host has as many as it likes
	closed bool          // to make room; guarded by Acceptor.mu
	done   chan struct{} // closed when its goroutine is about to go on or to end
}

// Serve accepts from ln, which it owns, until Close.
func Serve(ln net.Listener, opt Options) *Acceptor {
	if opt.Pending == 0 {
		opt.Pending = defaultPending
	}
	a := &Acceptor{opt: opt, ln: ln, quit: make(chan struct{}), noted: make(chan struct{}, 1),
		perHost: map[netip.Prefix]int{}, served: map[net.Conn]struct{}{}}
	a.wg.Go(a.accept)
	a.wg.Go(a.logNotices)
	return a
}

// Refused is how many connections were closed because the other end did not prove to belong to the job. Those that a
// dialler of the job drops because another of its connections was faster are not counted.
func (a *Acceptor) Refused() (n uint64) {
	for why := range reasons {
		if why.refused() {
			n += a.failed[why].Load()
		}
	}
	return n
}

// Close ends all that is under way, also the connections that are being served, and waits for it.
func (a *Acceptor) Close() {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		a.wg.Wait()
		return
	}
	a.closed = true
	for _, p := range a.pending {
		p.conn.Close()
	}
	for conn := range a.served {
		conn.Close()
	}
	a.mu.Unlock()
	close(a.quit)
	a.ln.Close()
	a.wg.Wait()
	a.logNow()
}

func (a *Acceptor) accept() {
	var pause time.Duration
	for {
		conn, err := a.ln.Accept()
		switch {
		case err == nil:
			pause = 0
			a.take(conn)
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, syscall.ECONNABORTED), errors.Is(err, syscall.EINTR):
		default:
			// Mostly there are no descriptors left. Pending connections may have them. The kernel says so also when no
			// connection waits: then none has to go.
			if pause == 0 {
				a.noteStuck(err)
			}
			if oneWaits(a.ln) {
				a.makeRoom()
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-a.quit:
				return
			}
		}
	}
}

// oneWaits reports whether a connection waits to be accepted, or true where ln cannot tell.
func oneWaits(ln net.Listener) bool {
	socket, ok := ln.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false // it is closed
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) })
	return err == nil && n > 0
}

// take begins the handshake on conn.
func (a *Acceptor) take(conn net.Conn) {
	if a.opt.Allows != nil && !a.opt.Allows(addrOf(conn.LocalAddr())) {
		silentClose(conn)
		a.note(&Error{Why: elsewhere}, addrOf(conn.RemoteAddr()))
		return
	}
	p := &pendingConn{conn: conn, host: hostOf(addrOf(conn.RemoteAddr())), done: make(chan struct{})}
	for !a.admit(p) {
		a.makeRoom()
	}
}

// admit starts p's goroutine. It reports whether p is taken care of: it is not if too many connections are pending.
func (a *Acceptor) admit(p *pendingConn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		p.conn.Close()
		return true
	}
	if len(a.pending) >= a.opt.Pending {
		return false
	}
	a.pending = append(a.pending, p)
	a.perHost[p.host]++
	a.wg.Go(func() { a.attend(p) })
	return true
}

// makeRoom closes the oldest pending connection of the host that most of them come from, so that a host that floods the
// port pushes out its own. It waits for the end of that handshake, so that goroutines do not pile up.
func (a *Acceptor) makeRoom() {
	a.mu.Lock()
	var oldest *pendingConn
	for _, p := range a.pending {
		if oldest == nil || a.perHost[p.host] > a.perHost[oldest.host] {
			oldest = p
		}
	}
	if oldest == nil {
		a.mu.Unlock()
		return
	}
	oldest.closed = true
	a.remove(oldest)
	a.mu.Unlock()
	silentClose(oldest.conn)
	<-oldest.done
}

// remove takes p off the pending ones. mu is held.
func (a *Acceptor) remove(p *pendingConn) {
	i := slices.Index(a.pending, p)
	a.pending = slices.Delete(a.pending, i, i+1)
	if a.perHost[p.host]--; a.perHost[p.host] == 0 {
		delete(a.perHost, p.host)
	}
}

// attend does p's handshake and serves what has proved itself.
func (a *Acceptor) attend(p *pendingConn) {
	s, err := a.opt.Accept(p.conn)
	if Why(err).silent() {
		silentClose(p.conn)
	}
	a.mu.Lock()
	madeRoom, closed := p.closed, a.closed
	if !madeRoom {
		a.remove(p)
	}
	if err == nil && !madeRoom && !closed {
		a.served[p.conn] = struct{}{}
	}
	a.mu.Unlock()
	close(p.done)
	switch {
	case madeRoom:
		a.note(&Error{Why: crowded}, addrOf(p.conn.RemoteAddr()))
	case closed:
	case err != nil:
		a.note(err, addrOf(p.conn.RemoteAddr()))
	default:
		a.opt.Serve(s)
		a.mu.Lock()
		delete(a.served, p.conn)
		a.mu.Unlock()
		return
	}
	if s != nil {
		s.Close()
	}
	p.conn.Close()
}

// silentClose closes without a farewell: the connection leaves nothing in the kernel.
func silentClose(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// addrOf is the address without its port; the zero value if there is none.
func addrOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// hostOf is what counts as one origin. What has no address is all of this host.
func hostOf(a netip.Addr) netip.Prefix {
	if a.Is6() {
		p, _ := a.WithZone("").Prefix(64)
		return p
	}
	return netip.PrefixFrom(a, 32)
}

package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// Acceptor is a [Reach] for agents that dial. It lets in one agent for each host, by the key of its call, and nothing
// else. It does not start them. readmit.go has what it does for a job that goes on when an agent is lost.
type Acceptor struct {
	ln       net.Listener
	build    string
	log      func(msg string, args ...any)
	acceptor *auth.Acceptor
	timer    *time.Timer
	readmits bool           // it listens until Close; never changes
	holding  sync.WaitGroup // agents that wait for a place, until they have an answer

	mu      sync.Mutex
	hosts   map[string]*pendingHost // guarded by mu; by host
	absent  int                     // guarded by mu; those that have not come
	hold    time.Duration           // guarded by mu; how long an agent waits whose host has one already
	waiting int                     // guarded by mu; how many do
	shut    chan struct{}           // closed when no more are let in
	why     error                   // guarded by mu; written before shut is closed, unless all have come
	gone    bool                    // guarded by mu; Close was called
}

// pendingHost is the agent of a host.
type pendingHost struct {
	connected bool             // guarded by Acceptor.mu
	wrong     *time.Timer      // guarded by Acceptor.mu; nil: no agent of another build has come
	came      chan pendingConn // has room for the one there is
	free      chan struct{}    // closed when an agent that waits for the place may look again
}

// pendingConn is the connection to an agent, or why it cannot be used.
type pendingConn struct {
	conn net.Conn
	err  error
}

// AcceptorOptions are the options of an Acceptor.
type AcceptorOptions struct {
	Call  Call     // what the agents are told
	Hosts []string // that are to have an agent; their names are different
	// Limit is when the Acceptor stops listening, whether all have come or not; 0: when it is closed.
	Limit time.Duration
	// Readmit lets agents come again (readmit.go): the Acceptor listens until Close.
	Readmit bool
	Log     func(msg string, args ...any) // gets whole sentences
}

// Listen serves the agents that dial ln, which it owns, until all have come.
func Listen(ln net.Listener, o AcceptorOptions) *Acceptor {
	d := &Acceptor{ln: ln, build: o.Call.Build, log: o.Log, hosts: map[string]*pendingHost{}, shut: make(chan struct{}),
		absent: len(o.Hosts), readmits: o.Readmit, hold: defaultHold}
	for _, host := range o.Hosts {
		d.hosts[host] = newPendingHost()
	}
	h := handshaker(o.Call.Job, o.Call.Key, auth.Launcher)
	h.Limit = proving
	d.acceptor = auth.Serve(ln, auth.Options{Name: "agents", Pending: pending + 2*len(o.Hosts), Log: o.Log,
		Accept: h.Accept, Serve: d.welcome})
	if d.absent == 0 { // a job of one host listens to none
		d.Fail(nil)
	}
	if o.Limit > 0 {
		d.mu.Lock()
		d.timer = time.AfterFunc(o.Limit, func() {
			d.Fail(fmt.Errorf("its agent has not come in %v", o.Limit))
		})
		d.mu.Unlock()
	}
	return d
}

func newPendingHost() *pendingHost {
	return &pendingHost{came: make(chan pendingConn, 1), free: make(chan struct{})}
}

// proving is how long a connection may take to prove itself. Tests have less.
var proving = 5 * time.Second

// pending connections may be open that have proved nothing, plus two for each agent.
const pending = 128

// welcome has a session whose other side knows the key.
func (d *Acceptor) welcome(s *auth.Session) {
	build, host, _ := strings.Cut(string(s.Payload), " ")
	g, refusal, held := d.enter(build, host)
	if held {
		defer d.holding.Done()
	}
	if g == nil {
		s.Answer([]byte(refusal))
		s.Close()
		return
	}
	err := s.Answer(nil)
	var conn net.Conn
	if err == nil {
		conn, err = s.Finish()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil: // it may come again
		g.connected = false
		g.wake()
		if g.wrong != nil && !d.gone { // its time may have been over while this one was here
			g.wrong.Reset(strange)
		}
		return
	case d.gone || d.hosts[host] != g: // or it is not expected any more
		raw(conn).Close()
		return
	}
	g.came <- pendingConn{conn: conn}
	if d.absent--; d.absent == 0 && !d.readmits {
		d.close(nil)
	}
}

// enter gives the agent of a host its place, or says why not. held is awaitPlace's.
func (d *Acceptor) enter(build, host string) (place *pendingHost, refusal string, held bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	held = d.awaitPlace(host)
	g := d.hosts[host]
	switch {
	case d.gone && d.readmits:
		return nil, jobOver, held
	case g == nil:
		return nil, fmt.Sprintf("the job has no host %.80q", host), held
	case g.connected:
		return nil, fmt.Sprintf("host %.80q %s", host, taken), held
	case build != d.build:
		if g.wrong == nil {
			g.wrong = time.AfterFunc(strange, func() { d.giveUp(g) })
		}
		return nil, "this one is of " + otherBuilds, held
	}
	g.connected = true
	return g, "", held
}

// giveUp is called a while after an agent of another build has come, and after the last of the right one has failed. If
// no other has come, it will not.
func (d *Acceptor) giveUp(g *pendingHost) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !g.connected && !d.gone {
		g.connected = true
		g.came <- pendingConn{err: &Error{Err: fmt.Errorf("its gorun is of %s", otherBuilds), Final: true}}
	}
}

// Ends of refusals, which the agent understands.
const (
	taken   = "has an agent already"
	jobOver = "the job has ended"
)

const otherBuilds = "another build than the one that starts the job: all hosts must have the same, of one image or " +
	"package"

// close lets in no more. mu is held.
func (d *Acceptor) close(why error) {
	select {
	case <-d.shut:
		return
	default:
	}
	d.why = why
	close(d.shut)
	d.ln.Close()
}

// Fail stops the listening: agents that have not come will not.
func (d *Acceptor) Fail(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.close(why)
}

// Open is Reach's. It waits for the agent of a host, and may be called again after it has failed.
func (d *Acceptor) Open(ctx context.Context, host string) (*Edge, error) {
	d.mu.Lock()
	g := d.hosts[host]
	d.mu.Unlock()
	if g == nil {
		return nil, &Error{Err: fmt.Errorf("no agent of host %s is expected", host), Final: true}
	}
	select {
	case a := <-g.came:
		return a.edge()
	case <-ctx.Done():
		return nil, d.Late()
	case <-d.shut:
	}
	select {
	case a := <-g.came: // before it was shut
		return a.edge()
	default:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	why := d.why
	if why == nil {
		why = errors.New("its agent has come before")
	}
	return nil, &Error{Err: fmt.Errorf("%w%s", why, d.refusals()), Final: true}
}

// Late is the error where an agent has not come in time.
func (d *Acceptor) Late() error { return fmt.Errorf("its agent has not come in time%s", d.refusals()) }

// refusals says that strangers came.
func (d *Acceptor) refusals() string {
	if n := d.acceptor.Refused(); n > 0 {
		return fmt.Sprintf(" (%d connections without the job's key were refused)", n)
	}
	return ""
}

func (a pendingConn) edge() (*Edge, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &Edge{Reader: a.conn, Writer: a.conn, end: func() { raw(a.conn).Close() },
		why: func() string { return "the connection has ended" }}, nil
}

// Close ends what is under way, and closes what was not taken.
func (d *Acceptor) Close() {
	d.mu.Lock()
	d.gone = true
	d.close(errors.New("the job ends"))
	if d.timer != nil {
		d.timer.Stop()
	}
	for _, g := range d.hosts {
		if g.wrong != nil {
			g.wrong.Stop()
		}
		g.wake()
	}
	d.mu.Unlock()
	d.tellWaiting()
	d.acceptor.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.hosts {
		select {
		case a := <-g.came:
			if a.err == nil {
				raw(a.conn).Close()
			}
		default:
		}
	}
}

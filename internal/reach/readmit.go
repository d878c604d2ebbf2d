package reach

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// An Acceptor with AcceptorOptions.Readmit listens until it is closed. It lets in one more agent of a host
// after each call of [Acceptor.Expect]: its owner makes that call when the host's agent is known to be lost. An agent
// that comes earlier waits in its handshake, for a bounded time.

// defaultHold is how long an agent waits whose host has one already. It is more than the silence after which that one
// is lost.
const defaultHold = 45 * time.Second

// Hold sets how long an agent waits whose host has one already. It is then told so.
func (d *Acceptor) Hold(limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hold = limit
}

// Expect lets in an agent of a host, which may be new. The agent that it had is lost, if there was any: its connection
// is closed where Open has not returned it.
func (d *Acceptor) Expect(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return
	}
	d.drop(host)
	d.hosts[host] = newPendingHost()
	d.absent++
}

// Forget has no place for a host any more.
func (d *Acceptor) Forget(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(host)
	delete(d.hosts, host)
}

// drop ends what there is of the agent of a host. mu is held.
func (d *Acceptor) drop(host string) {
	g := d.hosts[host]
	if g == nil {
		return
	}
	if g.wrong != nil {
		g.wrong.Stop()
	}
	select {
	case a := <-g.came:
		if a.err == nil {
			raw(a.conn).Close()
		}
	default:
	}
	g.wake()
}

// wake has those look again that wait for the place of an agent. Acceptor.mu is held.
func (g *pendingHost) wake() {
	close(g.free)
	g.free = make(chan struct{})
}

// awaitPlace waits while the host has an agent, if that may be found lost. mu is held, and not while it waits. It
// reports whether it has waited: then the caller calls holding.Done when the agent has its answer.
func (d *Acceptor) awaitPlace(host string) (held bool) {
	if g := d.hosts[host]; !d.readmits || d.gone || g == nil || !g.connected {
		return false
	}
	d.holding.Add(1)
	d.waiting++
	defer func() { d.waiting-- }()
	late := time.NewTimer(d.hold)
	defer late.Stop()
	limit := d.hold
	for over, said := false, false; !over && !d.gone; {
		g := d.hosts[host]
		if g == nil || !g.connected {
			break
		}
		free := g.free
		d.mu.Unlock()
		if !said {
			said = true
			d.log(fmt.Sprintf("a second agent has come for host %s, whose agent is not known to be lost: it waits for up "+
				"to %v", host, limit))
		}
		select {
		case <-free:
		case <-late.C:
			over = true
		}
		d.mu.Lock()
	}
	return true
}

// tellWaiting gives the agents that wait for a place a moment to hear that the job has ended.
func (d *Acceptor) tellWaiting() {
	told := make(chan struct{})
	go func() {
		d.holding.Wait()
		close(told)
	}()
	select {
	case <-told:
	case <-time.After(ending):
	}
}

// An agent gets ErrOver if it comes when the job has ended, and ErrTaken if its host has another agent.
var (
	ErrOver  = errors.New(jobOver)
	ErrTaken = errors.New(taken)
)

// refused is the error of an agent that gorun does not let in.
func refused(why []byte) error {
	err := fmt.Errorf("gorun refuses this agent: %.200q", why)
	switch text := string(why); {
	case text == jobOver:
		return fmt.Errorf("%w (%w)", err, ErrOver)
	case strings.HasSuffix(text, taken):
		return &refusal{err, ErrTaken}
	}
	return &Error{Err: err, Final: true}
}

// refusal is an error that is another one too, whose text it has already.
type refusal struct {
	error
	is error
}

func (r *refusal) Unwrap() error { return r.is }

// Dialler is an agent that this process has started and that dials gorun. It ends with this process.
type Dialler struct{ p *process }

// StartDialler starts an agent with a call.
func (s *Self) StartDialler(c Call) (*Dialler, error) {
	p := &process{cmd: exec.Command(s.Path, s.words(Dialling)...), ended: make(chan struct{})}
	p.cmd.Stderr = os.Stderr
	if err := p.start(0); err != nil { // it sees the end of its input
		return nil, err
	}
	go p.in.Write(c.encode()) // a pipe takes it
	go func() {
		<-p.ended
		p.in.Close()
		p.out.Close()
	}()
	return &Dialler{p}, nil
}

// Ended is closed when the agent has ended.
func (a *Dialler) Ended() <-chan struct{} { return a.p.ended }

// Well reports whether an agent that has ended was told to end. Else Why says how it has ended.
func (a *Dialler) Well() bool { return a.p.cmd.ProcessState.Success() }

// Why says how an agent has ended.
func (a *Dialler) Why() string { return a.p.cmd.ProcessState.String() }

// Leave ends the agent's connection, and so its ranks and itself.
func (a *Dialler) Leave() { a.p.in.Close() }

// Kill ends the agent at once. Its ranks end with it.
func (a *Dialler) Kill() { a.p.kill() }

package launcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/reach"
)

// pods are the pods of a job in which ranks may start again, as the head sees them. Each pod but the head's own has a
// keeper (keeper.go). A keeper dials the head, and starts an agent of its pod for each run that has ranks there. The
// keeper is the pod's presence: when it is lost, all agents of the pod are. Then a pod that Kubernetes makes for the
// same index may come. It is let in when each run has taken the loss of the old agents into account, so that no news of
// the old pod is taken for news of the new one.
//
// It is a [reach.Reach], whose Open any goroutine may call.
type pods struct {
	run      *run // of the first job
	acceptor *reach.Acceptor
	silence  time.Duration
	over     context.Context // ends with the job
	end      context.CancelFunc
	serving  sync.WaitGroup

	mu     sync.Mutex
	hosts  map[string]*pod // the map never changes
	agents int             // guarded by mu; how many were asked for
}

// pod is what is known of one of them. Its fields are guarded by pods.mu.
type pod struct {
	came    bool // it has been there at least once
	link    *frames.Link
	edge    *reach.Edge
	why     error                  // it cannot be used, and is waited for no more
	says    string                 // why it leaves or starts no agent, as it says
	told    bool                   // a run has lost an agent of it, and said so
	lost    chan struct{}          // closed when the one that is there is lost; nil: none is there
	opening map[string]bool        // names of agents that are on their way
	agents  map[*reach.Edge]string // names of those that a run has
	changed chan struct{}          // closed and made anew at each change
}

func (p *pod) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// keepPods is the way to the pods of a job whose ranks may start again.
func (r *run) keepPods(o *Others) *Others {
	p := &pods{run: r, acceptor: o.Pods, silence: r.job.Agents.silence(), hosts: map[string]*pod{}}
	p.over, p.end = context.WithCancel(context.Background())
	p.acceptor.Hold(p.silence * 3 / 2)
	for _, h := range r.plan.Hosts {
		if h.Name != r.plan.Host {
			p.hosts[h.Name] = &pod{opening: map[string]bool{}, agents: map[*reach.Edge]string{},
				changed: make(chan struct{})}
		}
	}
	for host := range p.hosts {
		p.serving.Go(func() { p.serve(host) })
	}
	return &Others{Reach: p, Close: p.close, Together: true, pods: p}
}

// shared is the way to the pods for one more run, with whose end they stay.
func (o *Others) shared() *Others {
	s := *o
	s.Close, s.Reach = func() {}, podsNow{s.pods}
	return &s
}

// podsNow is the way to the pods that are there now: a job that starts waits for pods, and Replace has waited before.
type podsNow struct{ *pods }

func (p podsNow) Open(ctx context.Context, host string) (*reach.Edge, error) {
	e, err := p.pods.Open(ctx, host)
	if err != nil {
		err = &reach.Error{Err: err, Final: true}
	}
	return e, err
}

// serve is the life of the pods of an index, one after the other.
func (p *pods) serve(host string) {
	for again := false; ; again = true {
		edge, err := p.acceptor.Open(p.over, host)
		if err != nil {
			if !p.refuse(host, err) {
				return
			}
			p.acceptor.Expect(host)
			continue
		}
		lost := p.arrive(host, edge, again)
		select {
		case err = <-lost:
		case <-p.over.Done():
			err = p.dismiss(host, lost)
		}
		edge.Close()
		if !p.lose(host, err) {
			return
		}
		p.acceptor.Expect(host)
	}
}

// refuse notes that no keeper can come. It reports whether another one may.
func (p *pods) refuse(host string, err error) (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[host]
	if again = h.came && p.over.Err() == nil; !again {
		h.why = err
		h.notify()
	} else {
		p.say("a pod that came again for host %s was refused: %v", host, err)
	}
	return again
}

// arrive begins to speak with a keeper. What it returns gets the end of the link.
func (p *pods) arrive(host string, edge *reach.Edge, again bool) <-chan error {
	lost := make(chan error, 1)
	p.mu.Lock()
	h := p.hosts[host]
	h.came, h.edge, h.says, h.told, h.lost = true, edge, "", false, make(chan struct{})
	h.link = frames.New(edge, edge, frames.Options{Silence: p.silence,
		Receive: func(f frames.Frame) error { return p.receive(h, f) },
		Lost:    func(err error) { lost <- err }})
	h.link.Send(frames.Agent, encode(agentMessage{Silence: p.silence}))
	if again {
		p.run.spawns.find(host)
		p.run.spawns.deaths.hostBack(host)
	}
	h.notify()
	p.mu.Unlock()
	if again {
		p.say("host %s is there again: a pod has come for its index, and Replace may start ranks in it", host)
	}
	return lost
}

// say says something to the user, after all that the supervisor does now.
func (p *pods) say(format string, args ...any) {
	go p.run.post(func() { p.run.say(format, args...) })
}

// receive is called with what a keeper says, which is as little to be believed as anything from outside.
func (p *pods) receive(h *pod, f frames.Frame) error {
	switch f.Kind {
	case frames.Failed:
		m, err := decode[failedMessage](f)
		if err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		ends := m.Stopped || h.opening[m.Agent] // it leaves, or starts no agent: another pod may be of more use
		if ends || slices.Contains(slices.Collect(maps.Values(h.agents)), m.Agent) {
			h.says = oneLine(fmt.Sprintf("%.500s", m.Err))
		} // else the agent was asked for in vain, and its end means nothing
		if ends && h.edge != nil {
			h.edge.Close()
		}
		return nil
	case frames.Finished:
		return frames.ErrEnded
	}
	return fmt.Errorf("a %v frame of a keeper", f.Kind)
}

// dismiss has the keeper of a pod leave, and waits for it a moment.
func (p *pods) dismiss(host string, lost <-chan error) error {
	p.mu.Lock()
	link := p.hosts[host].link
	p.mu.Unlock()
	link.Send(frames.Order, encode(order{Finish: true}))
	select {
	case err := <-lost:
		return err
	case <-time.After(leaving):
		link.Close()
		return frames.ErrEnded
	}
}

// leaving is how long a keeper may take to leave in the end, with what agents it has.
const leaving = 2 * time.Second

// lose deals with the end of a pod: the connections of its agents end, and the runs hear of that first. It reports
// whether another pod may come for the index.
func (p *pods) lose(host string, err error) (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[host]
	idle := len(h.agents) == 0 && !h.told
	h.link, h.edge = nil, nil
	if h.says == "" {
		h.says = err.Error()
	}
	close(h.lost)
	p.run.spawns.lose(host)
	for e := range h.agents {
		go e.Close()
	}
	h.notify()
	for p.over.Err() == nil && len(h.opening)+len(h.agents) > 0 {
		changed := h.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-p.over.Done():
		}
		p.mu.Lock()
	}
	if again = p.over.Err() == nil; again && idle {
		p.say("host %s is lost: %s; no rank ran there", host, h.says)
	}
	return again
}

// Open is Reach's: the keeper of a pod starts one more agent. Where the pod has not come yet, Open waits for it; where
// it has come and is lost, that is an error.
func (p *pods) Open(ctx context.Context, host string) (*reach.Edge, error) {
	h, name, lost, err := p.ask(ctx, host)
	if err != nil {
		return nil, err
	}
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-lost:
			cancel()
		case <-until.Done():
		}
	}()
	edge, err := p.acceptor.Open(until, name)
	p.acceptor.Forget(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer h.notify()
	delete(h.opening, name)
	gone := isClosed(lost)
	if err == nil && !gone {
		edge.Explain(func() string { return p.whyGone(h, lost) })
		h.agents[edge] = name
		return edge, nil
	}
	if err == nil {
		go edge.Close()
	}
	if gone {
		return nil, errPodLost(h.says)
	}
	if ctx.Err() != context.Canceled { // else the job ends
		h.edge.Close()
	}
	return nil, err
}

func errPodLost(why string) error { return fmt.Errorf("its pod is lost: %s", why) }

// ask asks the keeper of a host for an agent, which comes under a name. lost is closed when the pod is lost.
func (p *pods) ask(ctx context.Context, host string) (h *pod, name string, lost <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h = p.hosts[host]; h == nil {
		return nil, "", nil, &reach.Error{Err: errors.New("the job has no such pod"), Final: true}
	}
	for h.link == nil {
		switch {
		case h.why != nil:
			return nil, "", nil, h.why
		case h.came:
			return nil, "", nil, errPodLost(h.says)
		}
		changed := h.changed
		p.mu.Unlock()
		select {
		case <-changed:
			p.mu.Lock()
		case <-ctx.Done():
			p.mu.Lock()
			return nil, "", nil, p.acceptor.Late()
		}
	}
	p.agents++
	name = fmt.Sprintf("%s/%d", host, p.agents)
	p.acceptor.Expect(name)
	h.opening[name] = true
	h.link.Send(frames.Agent, encode(agentMessage{Name: name}))
	return h, name, h.lost, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// whyGone is why an agent of a pod is gone, if the pod says that soon.
func (p *pods) whyGone(h *pod, lost <-chan struct{}) string {
	select {
	case <-lost:
	case <-time.After(200 * time.Millisecond):
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.says != "" && !strings.HasPrefix(h.says, frames.ErrEnded.Error()) {
		return h.says
	}
	return "the connection has ended"
}

// leavePod is called when the run of a child has taken into account that it has no agent any more. lost: the agent was
// lost. Then the pod is, as a whole.
func (c *child) leavePod(lost bool) {
	if c.edge == nil || c.fleet.others == nil || c.fleet.others.pods == nil {
		return
	}
	p := c.fleet.others.pods
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[c.name]
	if h == nil || h.agents[c.edge] == "" {
		return
	}
	delete(h.agents, c.edge)
	if h.told = h.told || lost; lost && h.edge != nil {
		h.edge.Close()
	}
	h.notify()
}

// close ends the job in all pods.
func (p *pods) close() {
	p.end()
	p.serving.Wait()
	p.acceptor.Close()
}

// awaitHosts waits until Replace may choose hosts: until the ends of the dead ranks are known, and for a time until the
// lost pods of theirs have come again. That time is --host-timeout, but at most half of GORUN_TIMEOUT at the rank that
// asks: the other half is for the start.
func (r *run) awaitHosts(takes []rankID, limit time.Duration) {
	r.awaitEnds(takes, limit)
	first := r.first()
	if others := first.job.Agents.Others; others == nil || others.pods == nil || len(takes) == 0 {
		return
	}
	most := first.job.Agents.Patience
	if limit > 0 {
		most = min(most, limit/2)
	}
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		changed, host := first.spawns.unlessThere(takes)
		if changed == nil {
			return
		}
		select {
		case <-changed:
			continue
		case <-r.over:
			return
		case <-late.C:
		}
		r.post(func() {
			r.say("no pod has come again for host %s within %v, so its ranks start in another one (--host-timeout; at most "+
				"half of GORUN_TIMEOUT)", host, most)
		})
		return
	}
}

// unlessThere returns nil if no host is lost of the processes that have these ranks. Else it returns what is closed at
// the next change, and such a host.
func (l *roster) unlessThere(takes []rankID) (<-chan struct{}, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range takes {
		if h := l.holders[at]; h != nil && l.lost[h.host] {
			if l.changed == nil {
				l.changed = make(chan struct{})
			}
			return l.changed, h.host
		}
	}
	return nil, ""
}

// find notes that a host is not lost any more.
func (l *roster) find(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lost, host)
	l.notify()
}

// hostBack notes that a host is there again: when it is lost once more, that is news. So is what was said of gorun or of
// all hosts.
func (d *deaths) hostBack(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = slices.DeleteFunc(d.hosts, func(why string) bool {
		return strings.HasPrefix(why, "host "+host+" is lost: ") || !strings.HasPrefix(why, "host ")
	})
}

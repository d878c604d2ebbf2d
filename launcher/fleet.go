package launcher

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/waits"
)

// fleet is the agents that a head, or an agent, has started itself. Those that they start in turn are theirs.
type fleet struct {
	run       supervisor
	parent    *parent      // of an agent; nil: this is the head
	host      string       // this one
	programs  []string     // the executables that other hosts are sent
	server    *pmi.Server  // the head's has all keys of the job, and no ranks of its own
	start     startMessage // what all are told, but for the hosts and the input
	self      *reach.Self
	children  []*child
	others    *Others         // nil: it starts the agents itself
	opened    context.Context // ends when hosts are not reached for any more
	cancel    context.CancelFunc
	turns     chan struct{}  // so many are reached for at a time
	lastOrder order          // to all
	ended     []int          // ranks that all were told of as ended: those that join later are told then
	first     map[string]int // the first rank of each host that has an agent, by its hostID
	left      int            // children that may still start ranks
	saidAdopt bool           // that an agent cannot start others
	// joined is how many children have had an agent; all is closed when ranks may be started.
	joined int
	all    chan struct{}
	// dismissed is when the agents were told to finish, or later, when the last of their output was taken.
	dismissed time.Time
	pulse     *procs.Pulse // of a head; nil: this is an agent's
}

// newFleet makes a fleet for these hosts.
func newFleet(run supervisor, start startMessage, hosts []hostPart, server *pmi.Server, me *reach.Self) *fleet {
	f := &fleet{run: run, server: server, start: start, self: me, others: start.Agents.Others,
		first: map[string]int{}}
	f.opened, f.cancel = context.WithCancel(context.Background())
	width := start.Agents.Width
	if width == 0 {
		width = DefaultWidth
	}
	if f.others != nil {
		width = len(hosts) // no agent starts others, and none waits for its turn
	}
	f.all = make(chan struct{})
	if f.others == nil || !f.others.Together {
		close(f.all)
	}
	f.turns = make(chan struct{}, width)
	return f
}

// add makes the children that start the ranks of these hosts.
func (f *fleet) add(hosts []hostPart) {
	for _, part := range parts(hosts, cap(f.turns)) {
		f.children = append(f.children, newChild(f, part))
	}
	f.left = len(f.children)
}

// openInputs gives the children whose ranks have the standard input a pipe each, and returns the ends to be fed. All
// have been started. It may be called of nil.
func (f *fleet) openInputs() (near []*os.File, err error) {
	if f == nil {
		return nil, nil
	}
	for _, c := range f.children {
		if c.ended || c.input() == nil {
			continue
		}
		read, write, err := os.Pipe()
		if err != nil {
			return near, err
		}
		near = append(near, write)
		go c.feed(read)
	}
	return near, nil
}

// open reaches for all hosts, some at a time.
func (f *fleet) open() {
	for _, c := range f.children {
		go c.begin()
	}
}

// isHost is told on what host an agent is. Two names of one host in a list end the job: the ranks of both would be
// bound to the same CPUs. Where agents come by themselves their names are the scheduler's, and not looked up.
func (f *fleet) isHost(m hostMessage) {
	r := f.run
	if f.parent != nil {
		f.parent.link.Send(frames.Host, encode(m))
		return
	}
	if m.ID == "" || f.others != nil || f.start.Agents.Local {
		return
	}
	other, known := f.first[m.ID]
	if !known {
		f.first[m.ID] = m.Rank
		return
	}
	name, again := r.hostOf(min(other, m.Rank)), r.hostOf(max(other, m.Rank)) // in the order of the list
	r.cannotStart(fmt.Errorf("%s and %s of the list are one host, which calls itself %s, so their ranks "+
		"would share its CPUs: name it once, with all its slots (getent hosts %s shows where a name leads)", name, again,
		oneLine(fmt.Sprintf("%.253s", m.Name)), again), CodeCannotStart)
}

// otherHosts returns the children of other hosts that are heard, or should be.
func (f *fleet) otherHosts() (others []*child) {
	for _, c := range f.children {
		if c.link != nil && !c.ended && !c.hosts[0].Own {
			others = append(others, c)
		}
	}
	return others
}

// send sends an order to all agents, if it says something new. It may be called of nil.
func (f *fleet) send(o order) {
	if f == nil {
		return
	}
	o.Finish = o.Finish || f.lastOrder.Finish // also where a signal comes while their ends are awaited
	if o == f.lastOrder && o.Signal == 0 && o.Gone == 0 {
		return
	}
	f.lastOrder = order{Phase: o.Phase, Finish: o.Finish}
	o.Silent = o.Signal == syscall.SIGSTOP && f.parent == nil
	body := encode(o)
	for _, c := range f.children {
		if c.link != nil && !c.ended {
			c.link.Send(frames.Order, body)
		}
	}
	if o.Phase == killing {
		f.cancel() // of the hosts that are still being reached for
	}
}

// ask asks ranks of other hosts what they do. It may be called of nil.
func (f *fleet) ask(q question) {
	if f == nil {
		return
	}
	body := encode(order{Phase: f.run.phase(), Finish: f.lastOrder.Finish, Ask: q})
	for _, c := range f.children {
		if c.link != nil && !c.ended && (q.Rank == waits.Any || slices.Contains(c.ranks, q.Rank)) {
			c.link.Send(frames.Order, body)
		}
	}
}

// announceDeath tells all agents of a rank that has ended, without which the job goes on. It may be called of nil.
func (f *fleet) announceDeath(rank int) {
	if f == nil {
		return
	}
	f.ended = append(f.ended, rank)
	f.send(order{Phase: f.run.phase(), Gone: rank + 1})
}

// drain waits until orders are on their way. It may be called of nil.
func (f *fleet) drain() {
	if f == nil {
		return
	}
	deadline := time.Now().Add(100 * time.Millisecond)
	for _, c := range f.children {
		if c.link != nil && !c.ended {
			c.link.Drain(time.Until(deadline))
		}
	}
}

// dismiss has the agents finish, and gives up what is still being reached for.
func (f *fleet) dismiss() {
	f.cancel()
	f.send(order{Phase: f.run.phase(), Finish: true})
	for _, c := range f.children {
		if c.link == nil {
			c.gone()
		}
	}
	f.dismissed = time.Now()
}

// abandon gives up the agents that were told to finish, and do not after so long in which there was no output of theirs
// left to be taken. It may be called of nil.
func (f *fleet) abandon(limit time.Duration, quiet bool) {
	if f == nil || f.dismissed.IsZero() {
		return
	}
	if !quiet {
		f.dismissed = time.Now()
	}
	if time.Since(f.dismissed) < limit {
		return
	}
	for _, c := range f.children {
		if !c.ended {
			f.run.say("host %s: its agent does not end, and is left", c.name)
			c.gone()
		}
	}
}

// finished waits until all output of all hosts has come.
func (f *fleet) finished() {
	for _, c := range f.children {
		<-c.done
	}
}

// close ends all streams.
func (f *fleet) close() {
	var all sync.WaitGroup
	for _, c := range f.children {
		if c.link != nil {
			c.link.Close()
		}
		if c.edge != nil {
			all.Go(c.edge.Close)
		}
	}
	all.Wait()
	for _, c := range f.children {
		c.leavePod(false)
	}
	if f.others != nil {
		f.others.Close()
	}
}

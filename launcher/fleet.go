package launcher

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/program"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/stdio"
)

// Agents says how ranks come to be on other hosts.
type Agents struct {
	Shell []string // the words of a remote shell, before the host; nil: reach.SSH
	// Local: all hosts are this one, whatever they are called, also where Shell leads to them. It is for tests of jobs
	// on many hosts.
	Local  bool
	Others *Others `json:"-"` // nil: gorun starts the agents, and they each other
	// Here is what this host is called in Hosts; "": what it calls itself.
	Here string `json:"-"`
	// Patience is how long hosts are waited for that do not answer; 0: DefaultPatience, and a name that is not known is
	// an error at once.
	Patience time.Duration
	// Silence is GORUN_PEER_TIMEOUT: after so long without a word a host is lost to gorun, and gorun to its agents,
	// which then end their ranks; 0: 30 s. Each pings the other; what the ranks do does not matter.
	Silence time.Duration
	// Width is how many agents gorun, and each agent, starts itself; those start the others. 0: DefaultWidth.
	Width int
}

// Others is the way to agents that others start, all at once: the tasks of a step of Slurm's, or the pods of a Job.
type Others struct {
	reach.Reach
	Close func() // called once, when the job ends
	// Own: that of gorun's own host is one of them.
	Own bool
	// Together: ranks are started when all agents are there. They may be minutes late, and ranks wait for each other
	// for GORUN_TIMEOUT.
	Together bool
}

func (a *Agents) silence() time.Duration { return cmp.Or(a.Silence, defaultSilence) }

// way is how an agent comes to a host where no others start it. here: the host is this one.
func (a *Agents) way(self *reach.Self, here bool) reach.Reach {
	switch {
	case here || a.Local && a.Shell == nil:
		return reach.Exec{Self: self}
	case a.Shell != nil:
		return reach.Shell{Words: a.Shell, Self: self}
	}
	return reach.Shell{Words: reach.SSH, Self: self}
}

// usual: no way to hosts is named, so that it may be Slurm's.
func (a *Agents) usual() bool { return a.Shell == nil && !a.Local && a.Others == nil }

const (
	// DefaultPatience is how long a host may take to answer.
	DefaultPatience = 30 * time.Second
	// DefaultWidth is how many agents one process starts itself. It is as many at a time.
	DefaultWidth = 32
	// The time between two attempts to reach a host.
	firstPause, longestPause = 50 * time.Millisecond, time.Second
)

// fleet is the agents that a head, or an agent, has started itself. Those that they start in turn are theirs.
type fleet struct {
	run      *run
	server   *pmi.Server  // the head's has all keys of the job, and no ranks of its own
	start    startMessage // what all are told, but for the hosts and the input
	self     *reach.Self
	children []*child
	others   *Others         // nil: it starts the agents itself
	opened   context.Context // ends when hosts are not reached for any more
	cancel   context.CancelFunc
	turns    chan struct{}  // so many are reached for at a time
	told     order          // the last one to all
	ended    []int          // ranks that all were told of as ended: those that join later are told then
	first    map[string]int // the first rank of each host that has an agent, by its hostID
	left     int            // children that may still start ranks
	said     bool           // that an agent cannot start others
	// joined is how many children have had an agent; all is closed when ranks may be started.
	joined int
	all    chan struct{}
	// dismissed is when the agents were told to finish, or later, when the last of their output was taken.
	dismissed time.Time
	pulse     *procs.Pulse // of a head; nil: this is an agent's
}

// child is an agent with its host and all those below. Its fields belong to the supervisor unless said otherwise.
type child struct {
	fleet *fleet
	name  string // of its host
	reach reach.Reach
	ranks []int // of all of its hosts
	below *pmi.Below
	edge  *reach.Edge
	link  *frames.Link // set before the first frame is received

	over         int  // of its ranks, those whose end was reported
	loss         bool // a host below is lost
	begun, ended bool // all its ranks have been started or will not be; it is finished, or lost

	output *stdio.Intake
	done   chan struct{} // closed when all its output is in the outlets, and there is no more

	// Of the goroutine that receives, once there is one.
	hosts   []hostPart   // its own, and those below
	known   map[int]bool // of the first rank of each of hosts: its agent has said what host it is on
	seen    map[int]rankSeen
	started bool // AllStarted has come
	left    bool // Finished has come
}

// rankSeen is what an agent has said of a rank.
type rankSeen int

const (
	notStarted rankSeen = iota
	running
	exited
)

// runFleet runs a job whose ranks are on other hosts too.
func (j *Job) runFleet(plan *Plan) int {
	me, err := reach.Me()
	if err != nil {
		fmt.Fprintf(j.Stderr, "gorun: %v\n", err)
		return CodeCannotStart
	}
	r := j.newRun(plan)
	defer close(r.over)
	r.streams = stdio.New(j.Stdout, j.Stderr)
	r.log = logger(j.LogLevel, r.streams.Stderr)
	f := j.headFleet(r, me)
	f.pulse = procs.NewPulse(f.start.Agents.silence())
	defer f.pulse.Stop()
	defer f.server.Close()
	r.announce()
	go f.showProgress()
	f.open()
	r.watch()
	return r.finish()
}

// headFleet makes the fleet of a head.
func (j *Job) headFleet(r *run, me *reach.Self) *fleet {
	server := pmi.NewServer(r.plan.World, pmi.Options{Tree: true, Survive: j.Recover})
	secret := make([]byte, secretSize)
	rand.Read(secret)
	start := startMessage{
		Options: j.Options, World: r.plan.World, Apps: j.Apps, Environ: j.Environ, Dir: workingDir(), Agents: j.Agents,
		Coloured: [2]bool{r.streams.Stdout.Coloured(), r.streams.Stderr.Coloured()},
		Name:     server.Name(), Secret: secret, Mapping: r.plan.Layout.Order.Mapping(),
	}
	switch {
	case j.Stdin == nil:
	case r.plan.stdins.all:
		start.Stdin = []int{-1}
	case r.plan.stdins.rank >= 0:
		start.Stdin = []int{r.plan.stdins.rank}
	}
	hosts := make([]hostPart, len(r.plan.Layout.Hosts))
	for i, h := range r.plan.Layout.Hosts {
		hosts[i] = hostPart{Name: h.Name, Own: h.Name == r.plan.Host}
	}
	for rank, host := range r.plan.Layout.Order.Ranks(r.plan.World) {
		hosts[host].Ranks = append(hosts[host].Ranks, rank)
	}
	return newFleet(r, start, hosts, server, me)
}

// newFleet makes a fleet for these hosts.
func newFleet(r *run, start startMessage, hosts []hostPart, server *pmi.Server, me *reach.Self) *fleet {
	f := &fleet{run: r, server: server, start: start, self: me, others: start.Agents.Others,
		first: map[string]int{}}
	f.opened, f.cancel = context.WithCancel(context.Background())
	r.fleet = f
	width := start.Agents.Width
	if width == 0 {
		width = DefaultWidth
	}
	if r.plan.Slurm {
		f.others = f.slurm(hosts)
	}
	if f.others != nil {
		width = len(hosts) // no agent starts others, and none waits for its turn
	}
	f.all = make(chan struct{})
	if f.others == nil || !f.others.Together {
		close(f.all)
	}
	f.turns = make(chan struct{}, width)
	for _, h := range hosts {
		for _, rank := range h.Ranks {
			r.ranks[rank] = &rankState{host: h.Name}
		}
	}
	for _, part := range parts(hosts, width) {
		f.children = append(f.children, newChild(f, part))
	}
	f.left = len(f.children)
	r.starting++
	return f
}

// slurm is the way to the hosts of an allocation: one srun starts all agents, also that of this host, so that Slurm
// watches all ranks. What srun says while the job runs is said to the user, such as that its time is over.
func (f *fleet) slurm(hosts []hostPart) *Others {
	r := f.run
	o := reach.SlurmOptions{
		Self: f.self, Environ: r.job.Environ, Limit: cmp.Or(r.job.Agents.Patience, DefaultPatience), Log: r.log.Debug,
		Survive: r.job.Recover,
		Say: func(line string) {
			r.post(func() {
				if r.policy.phase == working {
					r.say("%s", line)
				}
			})
		},
	}
	for _, h := range hosts {
		o.Hosts = append(o.Hosts, h.Name)
	}
	s := reach.NewSlurm(o)
	return &Others{Reach: s, Close: s.Close, Own: true}
}

// newChild makes the child of some hosts, the first of which is its own. The barrier of the ranks waits for it from now
// on.
func newChild(f *fleet, hosts []hostPart) *child {
	c := &child{fleet: f, name: hosts[0].Name, hosts: hosts, output: stdio.NewIntake(), done: make(chan struct{}),
		known: map[int]bool{}, seen: map[int]rankSeen{}}
	switch {
	case f.others != nil && (f.others.Own || !hosts[0].Own):
		c.reach = f.others
	default:
		c.reach = f.start.Agents.way(f.self, hosts[0].Own && f.run.parent == nil)
	}
	for _, h := range hosts {
		c.ranks = append(c.ranks, h.Ranks...)
	}
	for _, rank := range c.ranks {
		c.seen[rank] = notStarted
	}
	c.below = f.server.NewBelow(len(c.ranks), c)
	go c.pumpOutput()
	return c
}

// openInputs gives the children whose ranks have the standard input a pipe each, and returns the ends to be fed. All have
// been started. It may be called of nil.
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

// feed sends the input of a child.
func (c *child) feed(from *os.File) {
	defer from.Close() // what feeds it sees that no more is taken
	buf := make([]byte, frames.Piece)
	for {
		k, err := from.Read(buf)
		if k > 0 && c.link.SendBulk(frames.Stdin, frames.Stdin, buf[:k]) != nil {
			return
		}
		if err != nil {
			c.link.SendAfter(frames.StdinEnd, nil)
			return
		}
	}
}

// input is which of the ranks of a child have the standard input: those of all that are its own.
func (c *child) input() []int {
	to := c.fleet.start.Stdin
	if len(to) > 0 && (to[0] < 0 || slices.Contains(c.ranks, to[0])) {
		return to
	}
	return nil
}

// open reaches for all hosts, some at a time.
func (f *fleet) open() {
	for _, c := range f.children {
		go c.begin()
	}
}

// begin reaches for the host of a child, in its turn.
func (c *child) begin() {
	f := c.fleet
	select {
	case f.turns <- struct{}{}:
	case <-f.opened.Done():
		f.run.post(c.gone)
		return
	}
	edge, err := c.open(f.opened)
	<-f.turns
	f.run.post(func() {
		if err != nil {
			c.cannotBegin(err)
			return
		}
		c.join(edge)
	})
}

// open tries until the host answers, or there is no hope. An agent tries once: what it cannot reach, gorun can perhaps.
func (c *child) open(ctx context.Context) (*reach.Edge, error) {
	r := c.fleet.run
	given := c.fleet.start.Agents.Patience
	patience := given
	if patience == 0 {
		patience = DefaultPatience
	}
	if r.parent != nil {
		ctx, cancel := context.WithTimeout(ctx, patience/2)
		defer cancel()
		return c.reach.Open(ctx, c.name)
	}
	deadline := time.Now().Add(patience)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	pause := firstPause
	for last := error(nil); ; {
		edge, err := c.reach.Open(ctx, c.name)
		if err == nil {
			return edge, nil
		}
		if !reach.Again(err, given > 0) {
			if reach.Again(err, true) {
				err = fmt.Errorf("%w; if its name is still to come, say with --host-timeout how long to wait", err)
			}
			return nil, err
		}
		if ctx.Err() != nil && last != nil { // this try was cut off: the one before says more
			err = fmt.Errorf("%w; and in the last try %w", last, err)
		}
		if time.Until(deadline) < pause || ctx.Err() != nil {
			return nil, fmt.Errorf("%w (tried for %v, which --host-timeout sets)", err, patience)
		}
		if last == nil {
			r.post(func() {
				r.say("host %s does not answer yet: %v; trying again for up to %v", c.name, err, patience)
			})
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause, last = min(2*pause, longestPause), err
	}
}

// cannotBegin deals with a host that is not to be had.
func (c *child) cannotBegin(err error) {
	r := c.fleet.run
	switch {
	case r.stop.Load():
	case r.parent != nil:
		r.parent.refused(c.hosts, err.Error())
		c.below.Leave()
	default:
		r.do(r.policy.cannotStart(fmt.Errorf("host %s cannot be used: %w", c.name, err), CodeCannotStart))
	}
	c.gone()
}

// join begins to speak with the agent.
func (c *child) join(edge *reach.Edge) {
	r := c.fleet.run
	if c.edge = edge; r.stop.Load() {
		c.gone()
		return
	}
	first := make(chan struct{}) // what comes waits until link is set
	c.link = frames.New(edge, edge, frames.Options{Silence: c.fleet.start.Agents.silence(),
		Receive: func(fr frames.Frame) error { <-first; return c.receive(fr) },
		Lost: func(err error) {
			if errors.Is(err, frames.ErrEnded) {
				err = agentGone(edge.Why())
			}
			r.post(func() { c.lost(err) })
			edge.Close() // while the job ends: what is not heard does not end by itself
		}})
	f := c.fleet
	if f.joined++; f.others != nil && f.others.Together && f.joined == len(f.children) {
		close(f.all)
	}
	m := f.start
	m.Hosts, m.Stdin = c.hosts, c.input()
	start := encode(m.with(widen))
	for _, rank := range f.ended {
		c.link.Send(frames.Order, encode(order{Phase: r.policy.phase, Gone: rank + 1}))
	}
	close(first)
	go c.tell(start)
}

// tell sends the programs that gorun has built, and the start. It has a goroutine of its own.
func (c *child) tell(start []byte) {
	r := c.fleet.run
	for _, app := range r.job.Apps {
		if !app.Sent {
			continue
		}
		if err := c.sendFile(app.Path); err != nil {
			r.post(func() {
				r.do(r.judge().cannotStart(err, CodeCannotStart))
				c.gone()
			})
			return
		}
	}
	select {
	case <-c.fleet.all:
		c.link.SendAfter(frames.Start, start)
	case <-r.over:
	}
}

// sendFile sends an executable. Where the link has ended, Lost has reported why.
func (c *child) sendFile(path string) error {
	return program.Send(path, func(piece []byte) error {
		if len(piece) == 0 {
			return c.link.SendAfter(frames.File, nil)
		}
		return c.link.SendBulk(frames.File, frames.File, piece)
	})
}

// receive is called with what the agent says, by a goroutine of the link. Nothing of it is believed before it has been
// looked at: the ranks must be its own, and in the right state.
func (c *child) receive(f frames.Frame) error {
	r := c.fleet.run
	if c.left {
		return fmt.Errorf("a %v frame after the last one", f.Kind)
	}
	switch f.Kind {
	case frames.Stdout, frames.Stderr, frames.StdoutPart, frames.StderrPart:
		return c.output.Put(f)
	case frames.Put:
		put, err := decode[[]pmi.Pair](f)
		if err != nil {
			return err
		}
		return c.below.Put(pairs(put, narrow))
	case frames.Fence:
		return c.below.Fence()
	case frames.Question:
		return c.below.Ask(f.Body)
	case frames.Host:
		m, err := decode[hostMessage](f)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(c.hosts, func(h hostPart) bool { return h.Ranks[0] == m.Rank }) || c.known[m.Rank] {
			return fmt.Errorf("the host of rank %d out of turn", m.Rank)
		}
		c.known[m.Rank] = true
		c.post(func() { c.fleet.isHost(m) })
	case frames.Started:
		m, err := decode[startedMessage](f)
		if err != nil {
			return err
		}
		if seen, own := c.seen[m.Rank]; !own || seen != notStarted || c.started {
			return fmt.Errorf("the start of rank %d out of turn", m.Rank)
		}
		c.seen[m.Rank] = running
		c.post(func() { r.ranks[m.Rank].pid = m.Pid; r.rankStarted(started{rank: m.Rank}) })
	case frames.AllStarted:
		if c.started {
			return errors.New("the end of the start out of turn")
		}
		c.started = true
		c.post(c.allStarted)
	case frames.Exited:
		m, err := decode[exitedMessage](f)
		if err != nil {
			return err
		}
		if c.seen[m.Rank] != running || m.Code < 0 || m.Code > 255 || m.Signal < 0 || m.Signal > 127 {
			return fmt.Errorf("the end of rank %d out of turn, with code %d and signal %d", m.Rank, m.Code, m.Signal)
		}
		c.seen[m.Rank] = exited
		c.post(func() { c.rankEnded(m) })
	case frames.Aborted:
		m, err := decode[abortedMessage](f)
		if err != nil {
			return err
		}
		if _, own := c.seen[m.Rank]; !own {
			return fmt.Errorf("an abort of rank %d", m.Rank)
		}
		c.post(func() {
			by := procs.Exit{Rank: m.Rank, Pid: r.ranks[m.Rank].pid, Host: r.hostOf(m.Rank)}
			r.do(r.judge().aborted(time.Now(), abortCall{by, m.Code, m.Message, m.Consequence}))
		})
	case frames.Failed:
		m, err := decode[failedMessage](f)
		if err != nil {
			return err
		}
		c.post(func() { c.failed(m) })
	case frames.Refused:
		m, err := decode[refusedMessage](f)
		if err != nil {
			return err
		}
		return c.handOver(m)
	case frames.Finished:
		c.left = true
		c.post(c.finished)
	}
	return nil
}

// post has the supervisor call f, unless the host is given up by then: nothing of it is counted twice.
func (c *child) post(f func()) {
	c.fleet.run.post(func() {
		if !c.ended {
			f()
		}
	})
}

// Release is pmi.Down's, as Answer.
func (c *child) Release() { c.link.Send(frames.Released, nil) }

func (c *child) Answer(text []byte) { c.link.Send(frames.Answer, text) }

func (c *child) Call(to, from int) { c.link.Send(frames.Call, encode(callMessage{to, from})) }

// pumpOutput carries the output of a host to the outlets, a whole line at a time.
func (c *child) pumpOutput() {
	defer close(c.done)
	c.fleet.run.streams.Merge(c.output, func(k int) { c.link.Send(frames.OutputRoom, frames.Room(k)) })
}

// The rest runs on the supervisor.

func (c *child) allStarted() {
	r := c.fleet.run
	for _, rank := range c.ranks {
		if st := r.ranks[rank]; st.started || st.ended || r.policy.phase != working {
			continue
		}
		if r.job.Recover && c.loss {
			c.neverStarted(rank)
		} else {
			err := fmt.Errorf("host %s: its agent has not started rank %d, and does not say why", r.hostOf(rank), rank)
			r.do(r.judge().cannotStart(err, CodeCannotStart))
		}
	}
	c.startsNoMore()
}

// neverStarted is the end of a rank whose host was lost before, in a job that goes on.
func (c *child) neverStarted(rank int) {
	r := c.fleet.run
	r.ranks[rank].ended = true
	c.isOver()
	if r.parent == nil {
		r.announceDeath(rank)
	}
}

// isOver counts a rank that has ended.
func (c *child) isOver() {
	if c.over++; c.over == len(c.ranks) && c.fleet.run.job.Recover {
		c.below.Leave() // there is no rank there that could enter a fence
	}
}

// isHost is told on what host an agent is. Two names of one host in a list end the job: the ranks of both would be bound
// to the same CPUs. Where agents come by themselves their names are the scheduler's, and not looked up.
func (f *fleet) isHost(m hostMessage) {
	r := f.run
	if r.parent != nil {
		r.parent.link.Send(frames.Host, encode(m))
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
	r.do(r.policy.cannotStart(fmt.Errorf("%s and %s of the list are one host, which calls itself %s, so their ranks "+
		"would share its CPUs: name it once, with all its slots (getent hosts %s shows where a name leads)", name, again,
		oneLine(fmt.Sprintf("%.253s", m.Name)), again), CodeCannotStart))
}

// failed is a failure that an agent reports.
func (c *child) failed(m failedMessage) {
	r, err := c.fleet.run, errors.New(oneLine(m.Err))
	if m.Lost {
		c.loss = true
		r.do(r.judge().hostLost(time.Now(), err))
		return
	}
	code := min(max(m.Code, 1), 255)
	if m.Stopped {
		r.do(r.judge().agentStopped(time.Now(), err, code))
		return
	}
	r.do(r.judge().cannotStart(err, code))
}

func (c *child) startsNoMore() {
	if c.begun {
		return
	}
	c.begun = true
	if c.fleet.left--; c.fleet.left == 0 {
		c.fleet.run.rankStarted(started{last: true})
	}
}

func (c *child) rankEnded(m exitedMessage) {
	r := c.fleet.run
	st := r.ranks[m.Rank]
	if st.ended {
		return
	}
	st.ended = true
	r.alive--
	e := procs.Exit{Rank: m.Rank, Pid: m.Pid, Host: r.hostOf(m.Rank), Code: m.Code, Signal: m.Signal, Core: m.Core}
	if m.Err != "" {
		e.Err = errors.New(oneLine(m.Err))
	}
	c.isOver()
	r.endings.note(e)
	r.do(r.judge().exited(time.Now(), rankEnd{e, m.Unfinished, m.Consequence}))
}

// finished is the end of an agent in order, if the head has said so or the job is ending.
func (c *child) finished() {
	if !c.fleet.told.Finish && c.fleet.run.policy.phase == working {
		c.lost(errors.New("its agent has left before the job has ended"))
		return
	}
	c.gone()
}

// lost reports the end of the stream to an agent that has not finished.
func (c *child) lost(err error) {
	if c.ended {
		return
	}
	r := c.fleet.run
	r.do(r.judge().hostLost(time.Now(), c.whyLost(err)))
	c.gone()
}

// agentGone is the end of the stream to an agent: how the agent has ended, and what it said last.
type agentGone string

func (a agentGone) Error() string { return "its agent is gone: " + string(a) }

// whyLost blames the host that is lost, unless it was gorun that was not heard.
func (c *child) whyLost(err error) error {
	f := c.fleet
	var gone agentGone
	if f.pulse != nil && errors.As(err, &gone) {
		if gap := f.pulse.Stopped(); gap > 0 {
			return fmt.Errorf("gorun itself was stopped for %v (by a signal, in a frozen container, or with its machine), "+
				"and agents end their ranks when they have not heard it for %v (GORUN_PEER_TIMEOUT)",
				gap.Round(100*time.Millisecond), f.start.Agents.silence())
		}
	}
	var silence frames.Silence
	if others := f.apart(); f.pulse != nil && errors.As(err, &silence) && len(others) > 1 &&
		!slices.ContainsFunc(others, func(o *child) bool { return o != c && !o.link.Silent() }) {
		var names []place.Host
		for _, o := range others {
			names = append(names, place.Host{Name: o.name})
		}
		return fmt.Errorf("the %d other hosts (%s) fell silent together: this host, %s, is cut off from them, and has heard "+
			"none of them for %v (GORUN_PEER_TIMEOUT)", len(others), someHosts(names), f.run.plan.Host,
			time.Duration(silence))
	}
	started := slices.ContainsFunc(c.ranks, func(rank int) bool { return f.run.ranks[rank].started })
	return fmt.Errorf("host %s is lost: %w", c.name, whileStarting(err, started))
}

// apart is the children of other hosts that are heard, or should be.
func (f *fleet) apart() (others []*child) {
	for _, c := range f.children {
		if c.link != nil && !c.ended && !c.hosts[0].Own {
			others = append(others, c)
		}
	}
	return others
}

// whileStarting adds to the error of a host that is silent before it has started a rank what may be wrong: its agent
// has said hello, in short packets, and the start goes in long ones.
func whileStarting(err error, started bool) error {
	var silence frames.Silence
	if started || !errors.As(err, &silence) {
		return err
	}
	return fmt.Errorf("%w: its agent answered and then no rank was started; the way there may drop long packets, where the "+
		"MTU of a host is larger than the way's (a tunnel?)", err)
}

// gone is the end of a child: no rank of it runs as far as can be known.
func (c *child) gone() {
	if c.ended {
		return
	}
	c.ended = true
	r := c.fleet.run
	for _, rank := range c.ranks {
		st := r.ranks[rank]
		if !st.started && !st.ended && r.job.Recover && r.policy.phase == working {
			c.neverStarted(rank)
		}
		if !st.started || st.ended {
			continue
		}
		st.ended = true
		r.alive--
		switch {
		case r.parent != nil:
			r.parent.exited(time.Now(), rankEnd{Exit: procs.Exit{Rank: rank, Pid: st.pid, Err: errors.New("its host is lost")}})
		case r.job.Recover:
			r.announceDeath(rank)
		}
	}
	if r.job.Recover {
		c.below.Leave()
	}
	c.startsNoMore()
	c.output.End()
}

// tell sends an order to all agents, if it says something new. It may be called of nil.
func (f *fleet) tell(o order) {
	if f == nil {
		return
	}
	o.Finish = o.Finish || f.told.Finish // also where a signal comes while their ends are awaited
	if o == f.told && o.Signal == 0 && !o.Hold && o.Gone == 0 {
		return
	}
	f.told = order{Phase: o.Phase, Finish: o.Finish}
	o.Silent = o.Signal == syscall.SIGSTOP && f.run.parent == nil
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

// announceDeath tells all agents of a rank that has ended, without which the job goes on. It may be called of nil.
func (f *fleet) announceDeath(rank int) {
	if f == nil {
		return
	}
	f.ended = append(f.ended, rank)
	f.tell(order{Phase: f.run.policy.phase, Gone: rank + 1})
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
	f.tell(order{Phase: f.run.policy.phase, Finish: true})
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
	if f.others != nil {
		f.others.Close()
	}
}

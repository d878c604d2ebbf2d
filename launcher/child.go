package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/program"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/stdio"
	"github.com/gorun-mpi/mpi/internal/waits"
)

// child is an agent with its host and all those below. Its fields belong to the supervisor unless said otherwise.
type child struct {
	fleet *fleet
	name  string // of its host
	reach reach.Reach
	ranks []int // of all of its hosts
	below *pmi.Below
	edge  *reach.Edge
	link  *frames.Link // set before the first frame is received

	endedRanks   int  // whose end was reported
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

// newChild makes the child of some hosts, the first of which is its own. The barrier of the ranks waits for it from now
// on.
func newChild(f *fleet, hosts []hostPart) *child {
	c := &child{fleet: f, name: hosts[0].Name, hosts: hosts, output: stdio.NewIntake(), done: make(chan struct{}),
		known: map[int]bool{}, seen: map[int]rankSeen{}}
	switch {
	case f.others != nil && (f.others.Own || !hosts[0].Own):
		c.reach = f.others
	default:
		c.reach = f.start.Agents.way(f.self, hosts[0].Own && f.parent == nil)
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
	if c.fleet.parent != nil {
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
	case r.stopping():
	case c.fleet.parent != nil:
		c.fleet.parent.refused(c.hosts, err.Error())
		c.below.Leave()
	default:
		if c.fleet.others == nil || c.fleet.others.pods == nil {
			r.hostUnusable(c.name) // before a rank can ask for it again
		}
		r.cannotStart(fmt.Errorf("host %s cannot be used: %w", c.name, err), CodeCannotStart)
	}
	c.gone()
}

// join begins to speak with the agent.
func (c *child) join(edge *reach.Edge) {
	r := c.fleet.run
	if c.edge = edge; r.stopping() {
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
		c.link.Send(frames.Order, encode(order{Phase: r.phase(), Gone: rank + 1}))
	}
	close(first)
	go c.sendStart(start)
}

// sendStart sends the programs that gorun has built, and the start. It has a goroutine of its own.
func (c *child) sendStart(start []byte) {
	r := c.fleet.run
	for _, path := range c.fleet.programs {
		if err := c.sendFile(path); err != nil {
			r.post(func() {
				r.cannotStart(err, CodeCannotStart)
				c.gone()
			})
			return
		}
	}
	select {
	case <-c.fleet.all:
		c.link.SendAfter(frames.Start, start)
	case <-r.closed():
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
		c.post(func() { r.remoteStarted(m.Rank, m.Pid) })
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
		c.post(func() { r.aborted(abortCall{procs.Exit{Rank: m.Rank}, m.Code, m.Message, m.Consequence}) })
	case frames.State:
		m, err := decode[stateMessage](f)
		if err != nil {
			return err
		}
		if _, own := c.seen[m.Rank]; !own || len(m.Text) > waits.Most {
			return fmt.Errorf("an account of rank %d, of %d bytes", m.Rank, len(m.Text))
		}
		c.post(func() { r.state(m) })
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
	c.fleet.run.merge(c.output, func(k int) { c.link.Send(frames.OutputRoom, frames.Room(k)) })
}

// The rest runs on the supervisor.

func (c *child) allStarted() {
	r := c.fleet.run
	for _, rank := range c.ranks {
		if r.started(rank) || r.ended(rank) || r.phase() != working {
			continue
		}
		if c.fleet.start.Recover && c.loss {
			c.neverStarted(rank)
		} else {
			err := fmt.Errorf("host %s: its agent has not started rank %d, and does not say why", r.hostOf(rank), rank)
			r.cannotStart(err, CodeCannotStart)
		}
	}
	c.startsNoMore()
}

// neverStarted is the end of a rank whose host was lost before, in a job that goes on.
func (c *child) neverStarted(rank int) {
	c.isOver()
	c.fleet.run.neverStarted(rank)
}

// isOver counts a rank that has ended.
func (c *child) isOver() {
	if c.endedRanks++; c.endedRanks == len(c.ranks) && c.fleet.start.Recover {
		c.below.End() // there is no rank there that could enter a fence
	}
}

// failed is a failure that an agent reports.
func (c *child) failed(m failedMessage) {
	r, err := c.fleet.run, errors.New(oneLine(m.Err))
	if m.Lost {
		c.loss = true
		r.hostLost(err)
		return
	}
	code := min(max(m.Code, 1), 255)
	if m.Stopped {
		r.agentStopped(err, code)
		return
	}
	r.cannotStart(err, code)
}

func (c *child) startsNoMore() {
	if c.begun {
		return
	}
	c.begun = true
	if c.fleet.left--; c.fleet.left == 0 {
		c.fleet.run.fleetStarted()
	}
}

func (c *child) rankEnded(m exitedMessage) {
	r := c.fleet.run
	if r.ended(m.Rank) {
		return
	}
	e := procs.Exit{Rank: m.Rank, Pid: m.Pid, Host: r.hostOf(m.Rank), Code: m.Code, Signal: m.Signal, Core: m.Core}
	if m.Err != "" {
		e.Err = errors.New(oneLine(m.Err))
	}
	if m.Lost {
		e.Err = errHostLost
	}
	c.isOver()
	r.remoteEnded(rankEnd{e, m.Unfinished, m.Consequence})
}

// finished is the end of an agent in order, if the head has said so or the job is ending.
func (c *child) finished() {
	if !c.fleet.lastOrder.Finish && c.fleet.run.phase() == working {
		c.lost(errors.New("its agent has left before the job has ended"))
		return
	}
	c.gone()
}

// lost reports the end of the stream to an agent that has not finished.
func (c *child) lost(err error) {
	if c.ended {
		c.leavePod(false)
		return
	}
	r := c.fleet.run
	r.hostLost(c.whyLost(err))
	c.gone()
	c.leavePod(true)
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
			return fmt.Errorf("gorun itself was stopped for %v (by a signal, in a frozen container, or with its "+
				"machine), and agents end their ranks when they have not heard it for %v (GORUN_PEER_TIMEOUT)",
				gap.Round(100*time.Millisecond), f.start.Agents.silence())
		}
	}
	var silence frames.Silence
	if others := f.otherHosts(); f.pulse != nil && errors.As(err, &silence) && len(others) > 1 &&
		!slices.ContainsFunc(others, func(o *child) bool { return o != c && !o.link.Silent() }) {
		var names []place.Host
		for _, o := range others {
			names = append(names, place.Host{Name: o.name})
		}
		return fmt.Errorf("the %d other hosts (%s) fell silent together: this host, %s, is cut off from them, and "+
			"has heard none of them for %v (GORUN_PEER_TIMEOUT)", len(others), someHosts(names), f.host,
			time.Duration(silence))
	}
	started := slices.ContainsFunc(c.ranks, f.run.started)
	return fmt.Errorf("host %s is lost: %w", c.name, whileStarting(err, started))
}

// whileStarting adds to the error of a host that is silent before it has started a rank what may be wrong: its agent
// has said hello, in short packets, and the start goes in long ones.
func whileStarting(err error, started bool) error {
	var silence frames.Silence
	if started || !errors.As(err, &silence) {
		return err
	}
	return fmt.Errorf("%w: its agent answered and then no rank was started; the way there may drop long packets, "+
		"where the MTU of a host is larger than the way's (a tunnel?)", err)
}

// gone is the end of a child: no rank of it runs as far as can be known.
func (c *child) gone() {
	if c.ended {
		return
	}
	c.ended = true
	r := c.fleet.run
	for _, rank := range c.ranks {
		switch running := r.started(rank) && !r.ended(rank); {
		case running:
			r.remoteLost(rank)
		case !r.ended(rank) && c.fleet.start.Recover && r.phase() == working:
			c.neverStarted(rank)
		}
	}
	if c.fleet.start.Recover {
		c.below.End()
	}
	c.startsNoMore()
	c.output.End()
	if c.link == nil {
		c.leavePod(false)
	}
}

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
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/reach"
)

// Agents says how ranks come to be on other hosts.
type Agents struct {
	Shell []string // the words of a remote shell, before the host; nil: reach.SSH
	// Local: all hosts are this one, whatever they are called. It is for tests of jobs on many hosts.
	Local bool
	// Patience is how long hosts are waited for that do not answer; 0: DefaultPatience, and a name that is not known is
	// an error at once.
	Patience time.Duration
	// Silence is GORUN_PEER_TIMEOUT: after so long without a word a host is lost to gorun, and gorun to its agents,
	// which then end their ranks; 0: 30 s. Each pings the other; what the ranks do does not matter.
	Silence time.Duration
}

func (a *Agents) silence() time.Duration { return cmp.Or(a.Silence, defaultSilence) }

const (
	// DefaultPatience is how long a host may take to answer.
	DefaultPatience = 30 * time.Second
	// atOnce is how many agents are being started.
	atOnce = 32
	// The time between two attempts to reach a host.
	firstPause, longestPause = 50 * time.Millisecond, time.Second
)

// fleet is the agents of a head.
type fleet struct {
	run    *run
	server *pmi.Server // of all keys of the job; it has no connections
	secret []byte
	nodes  []*node
	opened context.Context // ends when hosts are not reached for any more
	cancel context.CancelFunc
	told   order // the last one to all
	left   int   // nodes that may still start ranks
	// dismissed is when the agents were told to finish, or later, when the last of their output was taken.
	dismissed time.Time

	mu      sync.Mutex
	inFence int // guarded by mu; nodes all ranks of which are in it
}

// node is a host with its agent. Its fields belong to the supervisor unless said otherwise.
type node struct {
	fleet *fleet
	index int
	name  string
	reach reach.Reach
	ranks []int
	stdin *os.File // where its part of the standard input comes from; nil: it has none
	edge  *reach.Edge
	link  *frames.Link // set before the first frame is received

	begun, ended bool // all its ranks have been started or will not be; it is finished, or lost

	output *intake
	done   chan struct{} // closed when all its output is in the outlets, and there is no more

	// Of the goroutine that receives.
	seen    map[int]rankSeen
	fenced  bool // guarded by fleet.mu
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
	r.streams.init(j)
	r.log = logger(j.LogLevel, r.streams.stderr)
	f := newFleet(r, me)
	defer f.server.Close()
	r.announce()
	if err := f.openInputs(); err != nil {
		r.starting = false
		r.do(r.policy.cannotStart(err, CodeCannotStart))
		return r.finish()
	}
	go f.showProgress()
	f.open()
	r.watch()
	return r.finish()
}

func newFleet(r *run, me *reach.Self) *fleet {
	f := &fleet{run: r, secret: make([]byte, secretSize), server: pmi.NewServer(r.plan.World, pmi.Options{})}
	rand.Read(f.secret)
	f.opened, f.cancel = context.WithCancel(context.Background())
	r.fleet = f
	for i, h := range r.plan.Layout.Hosts {
		n := &node{fleet: f, index: i, name: h.Name, output: newIntake(), done: make(chan struct{}),
			seen: map[int]rankSeen{}}
		switch {
		case h.Name == r.plan.Host || r.job.Agents.Local:
			n.reach = reach.Exec{Self: me}
		case r.job.Agents.Shell != nil:
			n.reach = reach.Shell{Words: r.job.Agents.Shell, Self: me}
		default:
			n.reach = reach.Shell{Words: reach.SSH, Self: me}
		}
		f.nodes = append(f.nodes, n)
	}
	for rank, host := range r.plan.Layout.Order.Ranks(r.plan.World) {
		n := f.nodes[host]
		n.ranks = append(n.ranks, rank)
		n.seen[rank] = notStarted
	}
	for _, n := range f.nodes {
		go n.pumpOutput()
	}
	f.left = len(f.nodes)
	return f
}

// hostOf is where a rank is.
func (f *fleet) hostOf(rank int) string { return f.nodes[f.run.plan.Layout.Order.HostOf(rank)].name }

// openInputs gives the nodes whose ranks have the standard input a pipe each, which is fed.
func (f *fleet) openInputs() error {
	r := f.run
	var near []*os.File
	for _, n := range f.nodes {
		if r.job.Stdin == nil || !r.plan.stdins.all && !slices.Contains(n.ranks, r.plan.stdins.rank) {
			continue
		}
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		n.stdin, near = read, append(near, write)
	}
	if near == nil {
		return nil
	}
	feeder, err := newFeeder(r.job.Stdin, near)
	if err == nil {
		r.streams.feed(feeder)
		feeder.start()
	}
	return err
}

// open reaches for all hosts, some at a time.
func (f *fleet) open() {
	turns := make(chan struct{}, atOnce)
	for _, n := range f.nodes {
		go func() {
			select {
			case turns <- struct{}{}:
			case <-f.opened.Done():
				f.run.post(func() { n.gone() })
				return
			}
			edge, err := n.open(f.opened)
			<-turns
			f.run.post(func() {
				if err != nil {
					n.cannotBegin(err)
					return
				}
				n.join(edge)
			})
		}()
	}
}

// open tries until the host answers, or there is no hope.
func (n *node) open(ctx context.Context) (*reach.Edge, error) {
	r := n.fleet.run
	patience := r.job.Agents.Patience
	if patience == 0 {
		patience = DefaultPatience
	}
	deadline := time.Now().Add(patience)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	pause := firstPause
	for said := false; ; said = true {
		edge, err := n.reach.Open(ctx, n.name)
		if err == nil {
			return edge, nil
		}
		var why *reach.Error
		if errors.As(err, &why) && (why.Final || why.Unnamed && r.job.Agents.Patience == 0) {
			return nil, err
		}
		if time.Until(deadline) < pause || ctx.Err() != nil {
			return nil, fmt.Errorf("%w (tried for %v, which --host-timeout sets)", err, patience)
		}
		if !said {
			r.post(func() {
				r.say("host %s does not answer yet: %v; trying again for up to %v", n.name, err, patience)
			})
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
	}
}

// cannotBegin reports a host that is not to be had.
func (n *node) cannotBegin(err error) {
	r := n.fleet.run
	if !r.stop.Load() {
		r.do(r.policy.cannotStart(fmt.Errorf("host %s cannot be used: %w", n.name, err), CodeCannotStart))
	}
	n.gone()
}

// join begins to speak with the agent.
func (n *node) join(edge *reach.Edge) {
	f := n.fleet
	r := f.run
	if n.edge = edge; r.stop.Load() {
		n.gone()
		return
	}
	first := make(chan struct{}) // what comes waits until link is set
	n.link = frames.New(edge, edge, frames.Options{Silence: r.job.Agents.silence(),
		Receive: func(fr frames.Frame) error { <-first; return n.receive(fr) },
		Lost: func(err error) {
			if errors.Is(err, frames.ErrEnded) {
				err = fmt.Errorf("its agent is gone: %s", edge.Why())
			}
			r.post(func() { n.lost(err) })
			edge.Close() // while the job ends: what is not heard does not end by itself
		}})
	close(first)
	go n.begin(encode(n.start().with(widen)))
}

// start is what the agent has to know.
func (n *node) start() startMessage {
	r := n.fleet.run
	j := r.job
	m := startMessage{
		Host: n.name, World: r.plan.World, Ranks: n.ranks, Apps: j.Apps, Environ: j.Environ, Dir: workingDir(),
		OwnHost: n.name == r.plan.Host, Place: j.Place, Bind: j.Bind, Report: j.ReportBindings,
		Tag: j.TagOutput, Time: j.Timestamp,
		Coloured: [2]bool{r.streams.stdout.coloured, r.streams.stderr.coloured}, Output: j.OutputDir,
		LogLevel: j.LogLevel, Name: n.fleet.server.Name(), Secret: n.fleet.secret,
		Mapping: r.plan.Layout.Order.Mapping(), Silence: j.Agents.silence(),
	}
	for _, rank := range n.ranks {
		m.AppOf = append(m.AppOf, r.plan.Specs[rank].App)
	}
	switch {
	case n.stdin == nil:
	case r.plan.stdins.all:
		m.Stdin = []int{-1}
	default:
		m.Stdin = []int{r.plan.stdins.rank}
	}
	return m
}

// begin sends the programs that gorun has built, the start, and then the input. It has a goroutine of its own.
func (n *node) begin(start []byte) {
	for _, app := range n.fleet.run.job.Apps {
		if !app.Sent {
			continue
		}
		if err := n.sendFile(app.Path); err != nil {
			n.fleet.run.post(func() { n.cannotBegin(err) })
			return
		}
	}
	if n.link.SendAfter(frames.Start, start) != nil || n.stdin == nil {
		return
	}
	defer n.stdin.Close() // what feeds it sees that no more is taken
	buf := make([]byte, frames.Piece)
	for {
		k, err := n.stdin.Read(buf)
		if k > 0 && n.link.SendBulk(frames.Stdin, frames.Stdin, buf[:k]) != nil {
			return
		}
		if err != nil {
			n.link.SendAfter(frames.StdinEnd, nil)
			return
		}
	}
}

func (n *node) sendFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, 4*frames.Piece)
	for {
		k, err := file.Read(buf)
		if k > 0 && n.link.SendBulk(frames.File, frames.File, buf[:k]) != nil {
			return nil // Lost says why
		}
		if err != nil {
			n.link.SendAfter(frames.File, nil)
			return nil
		}
	}
}

// receive is called with what the agent says, by a goroutine of the link. Nothing of it is believed before it has been
// looked at: the ranks must be its own, and in the right state.
func (n *node) receive(f frames.Frame) error {
	r := n.fleet.run
	if n.left {
		return fmt.Errorf("a %v frame after the last one", f.Kind)
	}
	switch f.Kind {
	case frames.Stdout, frames.Stderr, frames.StdoutPart, frames.StderrPart:
		return n.output.put(f)
	case frames.Put, frames.Fence, frames.Question:
		return n.wireUp(f)
	case frames.Started:
		m, err := decode[startedMessage](f)
		if err != nil {
			return err
		}
		if seen, own := n.seen[m.Rank]; !own || seen != notStarted || n.started {
			return fmt.Errorf("the start of rank %d out of turn", m.Rank)
		}
		n.seen[m.Rank] = running
		n.post(func() { r.ranks[m.Rank].pid = m.Pid; r.rankStarted(started{rank: m.Rank}) })
	case frames.AllStarted:
		m, err := decode[allStartedMessage](f)
		if err != nil || n.started {
			return errors.Join(err, errors.New("the end of the start out of turn"))
		}
		n.started = true
		n.post(func() { n.allStarted(m) })
	case frames.Exited:
		m, err := decode[exitedMessage](f)
		if err != nil {
			return err
		}
		if n.seen[m.Rank] != running || m.Code < 0 || m.Code > 255 || m.Signal < 0 || m.Signal > 127 {
			return fmt.Errorf("the end of rank %d out of turn, with code %d and signal %d", m.Rank, m.Code, m.Signal)
		}
		n.seen[m.Rank] = exited
		n.post(func() { n.rankEnded(m) })
	case frames.Aborted:
		m, err := decode[abortedMessage](f)
		if err != nil {
			return err
		}
		if _, own := n.seen[m.Rank]; !own {
			return fmt.Errorf("an abort of rank %d", m.Rank)
		}
		n.post(func() {
			by := Exit{Rank: m.Rank, Pid: r.ranks[m.Rank].pid, Host: n.name}
			r.do(r.policy.aborted(time.Now(), by, m.Code, m.Message))
		})
	case frames.Finished:
		n.left = true
		n.post(n.finished)
	}
	return nil
}

// post has the supervisor call f, unless the host is given up by then: nothing of it is counted twice.
func (n *node) post(f func()) {
	n.fleet.run.post(func() {
		if !n.ended {
			f()
		}
	})
}

// wireUp is the part of an agent in the wire-up of the ranks.
func (n *node) wireUp(f frames.Frame) error {
	server := n.fleet.server
	switch f.Kind {
	case frames.Put:
		put, err := decode[[]pmi.Pair](f)
		if err != nil {
			return err
		}
		return server.Merge(pairs(put, narrow))
	case frames.Question:
		answer, err := server.Answer(f.Body)
		if err == nil {
			n.link.Send(frames.Answer, answer)
		}
		return err
	}
	return n.fleet.fence(n)
}

// fence counts a node in; the last one lets all out.
func (f *fleet) fence(n *node) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.fenced {
		return errors.New("it is in the fence twice")
	}
	n.fenced = true
	if f.inFence++; f.inFence < len(f.nodes) {
		return nil
	}
	f.inFence = 0
	for _, n := range f.nodes { // all have links: each has entered
		n.fenced = false
		n.link.Send(frames.Released, nil)
	}
	return nil
}

// pumpOutput carries the output of a host to the outlets, a whole line at a time.
func (n *node) pumpOutput() {
	defer close(n.done)
	s := &n.fleet.run.streams
	var lines [2][]byte
	n.output.run(func(f frames.Frame) {
		i, to, part := 0, s.stdout, f.Kind == frames.StdoutPart || f.Kind == frames.StderrPart
		if f.Kind == frames.Stderr || f.Kind == frames.StderrPart {
			i, to = 1, s.stderr
		}
		lines[i] = append(lines[i], f.Body...)
		if !part || len(lines[i]) > 2*maxLine {
			to.put(lines[i])
			lines[i] = lines[i][:0]
		}
	}, func(k int) { n.link.Send(frames.OutputRoom, frames.Room(k)) })
	s.stdout.put(lines[0])
	s.stderr.put(lines[1])
}

// The rest runs on the supervisor.

func (n *node) allStarted(m allStartedMessage) {
	r := n.fleet.run
	if m.Err != "" {
		r.do(r.policy.cannotStart(errors.New(oneLine(m.Err)), min(max(m.Code, 1), 255)))
	}
	for _, rank := range n.ranks {
		if !r.ranks[rank].started && r.policy.phase == working {
			err := fmt.Errorf("host %s: its agent has not started rank %d, and does not say why", n.name, rank)
			r.do(r.policy.cannotStart(err, CodeCannotStart))
		}
	}
	n.startsNoMore()
}

func (n *node) startsNoMore() {
	if n.begun {
		return
	}
	n.begun = true
	if n.fleet.left--; n.fleet.left == 0 {
		n.fleet.run.rankStarted(started{last: true})
	}
}

func (n *node) rankEnded(m exitedMessage) {
	r := n.fleet.run
	st := &r.ranks[m.Rank]
	if st.ended {
		return
	}
	st.ended = true
	r.alive--
	e := Exit{Rank: m.Rank, Pid: m.Pid, Host: n.name, Code: m.Code, Signal: m.Signal, Core: m.Core}
	if m.Err != "" {
		e.Err = errors.New(oneLine(m.Err))
	}
	r.endings.note(e)
	r.do(r.policy.exited(time.Now(), e, m.Unfinished))
}

// finished is the end of an agent in order, if the head has said so or the job is ending.
func (n *node) finished() {
	if !n.fleet.told.Finish && n.fleet.run.policy.phase == working {
		n.lost(errors.New("its agent has left before the job has ended"))
		return
	}
	n.gone()
}

// lost reports the end of the stream to an agent that has not finished.
func (n *node) lost(err error) {
	if n.ended {
		return
	}
	r := n.fleet.run
	r.do(r.policy.hostLost(time.Now(), fmt.Errorf("host %s is lost: %w", n.name, err)))
	n.gone()
}

// gone is the end of a node: no rank of it runs as far as can be known.
func (n *node) gone() {
	if n.ended {
		return
	}
	n.ended = true
	r := n.fleet.run
	for _, rank := range n.ranks {
		if st := &r.ranks[rank]; st.started && !st.ended {
			st.ended = true
			r.alive--
		}
	}
	n.startsNoMore()
	n.output.end()
}

// tell sends an order to all agents, if it says something new. It may be called of nil.
func (f *fleet) tell(o order) {
	if f == nil || o == f.told && o.Signal == 0 && !o.Hold {
		return
	}
	f.told = order{Phase: o.Phase, Finish: o.Finish}
	body := encode(o)
	for _, n := range f.nodes {
		if n.link != nil && !n.ended {
			n.link.Send(frames.Order, body)
		}
	}
	if o.Phase == killing {
		f.cancel() // of the hosts that are still being reached for
	}
}

// drain waits until orders are on their way. It may be called of nil.
func (f *fleet) drain() {
	if f == nil {
		return
	}
	deadline := time.Now().Add(100 * time.Millisecond)
	for _, n := range f.nodes {
		if n.link != nil && !n.ended {
			n.link.Drain(time.Until(deadline))
		}
	}
}

// dismiss has the agents finish, and gives up what is still being reached for.
func (f *fleet) dismiss() {
	if f.cancel != nil {
		f.cancel()
	}
	f.tell(order{Phase: f.run.policy.phase, Finish: true})
	for _, n := range f.nodes {
		if n.link == nil {
			n.gone()
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
	for _, n := range f.nodes {
		if !n.ended {
			f.run.say("host %s: its agent does not end, and is left", n.name)
			n.gone()
		}
	}
}

// finished waits until all output of all hosts has come.
func (f *fleet) finished() {
	for _, n := range f.nodes {
		<-n.done
	}
}

// close ends all streams.
func (f *fleet) close() {
	var all sync.WaitGroup
	for _, n := range f.nodes {
		if n.link != nil {
			n.link.Close()
		}
		if n.edge != nil {
			all.Go(n.edge.Close)
		}
	}
	all.Wait()
}

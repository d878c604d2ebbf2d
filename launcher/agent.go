package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/program"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/stdio"
)

// parent is the head, as an agent sees it.
type parent struct {
	link  *frames.Link
	start chan *startMessage // has room for the one there is
	gone  chan struct{}      // closed when there is no head any more
	said  chan struct{}      // closed after gone, when standard error has the reason: the head may still read it
	ready chan struct{}      // closed when run is set, or will not be
	run   *run               // set by serve
	input *stdio.Intake      // of the standard input

	programs program.Inbox

	begun, over bool  // Start has come; the job was to end before; of the receiving goroutine
	early       []int // ranks that had ended before Start came; of the receiving goroutine, until then
	dismissed   bool  // the supervisor's: nothing more is wanted but the end
}

// Agent is the life of an agent: it starts the ranks that the head at the other end of a stream asks for, watches them,
// and ends them when the stream ends. connect makes the stream. cleaner is a command that calls Clean.
func Agent(connect func(context.Context) (io.ReadWriter, error), cleaner []string) int {
	a := &parent{
		start: make(chan *startMessage, 1), gone: make(chan struct{}), said: make(chan struct{}),
		ready: make(chan struct{}), input: stdio.NewIntake(),
	}
	defer a.programs.Close()
	signals := procs.Signals() // before the first byte: the end of a stream is no reason to die of a signal
	var stream io.ReadWriter
	err := procs.UntilSignal(func(ctx context.Context) (err error) {
		stream, err = connect(ctx)
		return err
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "gorun: the agent on %s: %v\n", hostName(), err)
		return 1
	}
	a.link = frames.New(stream, stream, frames.Options{Down: true, Silence: defaultSilence, Receive: a.receive,
		Lost: a.headLost})
	for {
		select {
		case s := <-signals:
			if procs.Ends(s.(syscall.Signal)) {
				return 1
			}
		case <-a.gone:
			return 1
		case m := <-a.start:
			return a.live(m, stream, cleaner)
		}
	}
}

// live runs the job's part on this host, unless the job has ended before its start (m is nil), and takes leave.
func (a *parent) live(m *startMessage, stream io.ReadWriter, cleaner []string) int {
	if m != nil {
		a.link.SetSilence(m.Agents.silence())
		a.work(m, cleaner)
	}
	select {
	case <-a.gone:
		select {
		case <-a.said:
		case <-time.After(time.Second):
		}
		return 1
	default:
	}
	a.link.SendAfter(frames.Finished, nil)
	a.link.Drain(math.MaxInt64) // the way may be slow; if the head is gone, the link has ended
	if _, ok := stream.(reach.Dialled); ok {
		<-a.gone // what is on its way arrives
	}
	a.link.Close()
	return 0
}

// headLost is called when the link has ended.
func (a *parent) headLost(err error) {
	close(a.gone)
	if !errors.Is(err, frames.ErrEnded) {
		fmt.Fprintf(os.Stderr, "gorun: the agent on %s ends its ranks, for gorun is lost: %v\n", hostName(), err)
	}
	close(a.said)
}

// work runs the ranks of this host, and has agents run those of the hosts below.
func (a *parent) work(m *startMessage, cleaner []string) {
	a.link.Send(frames.Host, encode(hostMessage{m.Hosts[0].Ranks[0], hostID(), hostName()}))
	j, plan, err := a.plan(m)
	var me *reach.Self
	if err == nil {
		me, err = reach.Me()
	}
	if err != nil {
		close(a.ready)
		a.cannotStart(fmt.Errorf("host %s: %w", m.Hosts[0].Name, err), startCode(err))
		a.allStarted()
		return
	}
	r := j.newRun(plan)
	r.parent, r.log = a, nil
	r.policy.agentOn = plan.Host
	r.streams = stdio.NewTo(stdio.NewLinkOutlet(a.link, frames.StdoutPart, frames.Stdout, m.Coloured[0]),
		stdio.NewLinkOutlet(a.link, frames.StderrPart, frames.Stderr, m.Coloured[1]))
	local := procs.NewLocal(len(plan.Specs), true, cleaner)
	local.ServeAgent(plan.Host)
	r.supervise(local, pmi.Options{Name: m.Name, Secret: m.Secret, Mapping: m.Mapping, AppNums: appOf(m.Apps),
		Tree: true, Here: len(plan.Specs), Above: a, Survive: m.Recover, Joins: m.Joins}, func() {
		if below := m.Hosts[1:]; len(below) > 0 {
			r.addFleet(*m, below, r.server, me)
		}
	})
}

// plan makes a job of what the head has said.
func (a *parent) plan(m *startMessage) (*Job, *Plan, error) {
	if err := os.Chdir(m.Dir); err != nil && m.Dir != "" {
		return nil, nil, fmt.Errorf("gorun's folder %s is not there, use --wdir: %w", m.Dir, errors.Unwrap(err))
	}
	own := m.Hosts[0]
	j := &Job{Options: m.Options, Apps: slices.Clone(m.Apps), Environ: m.Environ, Alone: true, Spawn: m.Spawn,
		Before: m.Before, Again: m.Again, Announced: m.Before > 0}
	j.KillDelay = insist
	if !own.Own {
		j.Environ = procs.EnvironOn(m.Environ, os.Environ())
	}
	sent := 0
	for i := range j.Apps {
		if !j.Apps[i].Sent {
			continue
		}
		path, ok := a.programs.Path(sent)
		if !ok {
			return nil, nil, errors.New("a program was not sent")
		}
		j.Apps[i].Path = path
		sent++
	}
	p := &Plan{World: m.World, Host: own.Name, stdins: stdinMode{rank: -1}}
	apps := appOf(m.Apps)
	for _, rank := range own.Ranks {
		p.Specs = append(p.Specs, procs.Spec{Rank: rank, App: apps[rank]})
	}
	if err := j.fillSpecs(p, cpuset.Read()); err != nil {
		return nil, nil, err
	}
	if len(m.Stdin) > 0 {
		p.stdins = stdinMode{rank: m.Stdin[0], all: m.Stdin[0] < 0}
		far, near, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		j.Stdin = far
		go a.feed(near)
	}
	return j, p, nil
}

// feed writes the standard input to where the ranks have it from.
func (a *parent) feed(to *os.File) {
	a.input.Run(func(f frames.Frame) { to.Write(f.Body) }, // a rank that is gone takes no more
		func(n int) { a.link.Send(frames.StdinRoom, frames.Room(n)) })
	to.Close()
}

// serve gives the run what the head has said, and says from now on.
func (a *parent) serve(r *run) {
	a.run = r
	for _, rank := range a.early {
		r.announceDeath(rank)
	}
	close(a.ready)
	go func() {
		select {
		case <-a.gone:
			r.post(func() {
				a.dismissed = true
				r.do(r.policy.orphaned(time.Now()))
			})
		case <-r.over:
		}
	}()
}

// receive is called with what the head says.
func (a *parent) receive(f frames.Frame) error {
	switch f.Kind {
	case frames.File:
		return a.programs.Take(f.Body)
	case frames.Start:
		return a.begin(f)
	case frames.Stdin:
		return a.input.Put(f)
	case frames.StdinEnd:
		a.input.End()
		return nil
	}
	if f.Kind == frames.Order {
		return a.order(f)
	}
	switch r := a.running(); {
	case f.Kind == frames.Call:
		return r.called(f)
	case r == nil:
		return fmt.Errorf("a %v frame, and there are no ranks", f.Kind)
	case f.Kind == frames.Released:
		return r.server.Release()
	default:
		return r.server.Answered(f.Body)
	}
}

// called passes a call on, if there are ranks. It may be called of nil.
func (r *run) called(f frames.Frame) error {
	m, err := decode[callMessage](f)
	if err == nil && r != nil {
		r.server.Called(m.To, m.From)
	}
	return err
}

// running is the run, which the receiving goroutine waits for if it is just being made; nil: there is none.
func (a *parent) running() *run {
	if !a.begun {
		return nil
	}
	<-a.ready
	return a.run
}

func (a *parent) begin(f frames.Frame) error {
	m, err := decode[*startMessage](f)
	if err != nil {
		return err
	}
	if m == nil || a.programs.Partial() || a.begun {
		return errors.New("a start out of turn")
	}
	if err := m.check(); err != nil {
		return fmt.Errorf("a start that makes no sense: %w", err)
	}
	*m = m.with(narrow)
	if a.over {
		return nil
	}
	if len(a.early) > 0 && slices.Max(a.early) >= m.World {
		return endOfNone(slices.Max(a.early), m.World)
	}
	a.begun = true
	a.start <- m
	return nil
}

// endOfNone is the error where the head says that a rank has ended which the job does not have.
func endOfNone(rank, world int) error {
	return fmt.Errorf("rank %d has ended in a job of %d ranks", rank, world)
}

func (a *parent) order(f frames.Frame) error {
	o, err := decode[order](f)
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return err
	}
	r := a.running()
	switch {
	case r != nil && o.Gone > r.plan.World:
		return endOfNone(o.Gone-1, r.plan.World)
	case r != nil:
		a.link.Pause(o.Silent)
		r.post(func() { a.ordered(o) })
	case !a.begun && !a.over && (o.Phase != working || o.Finish): // before there are ranks
		a.over = true
		a.start <- nil
	case !a.begun && o.Gone > 0 && !slices.Contains(a.early, o.Gone-1): // orders overtake the start
		a.early = append(a.early, o.Gone-1)
	}
	return nil
}

// ordered carries out what the head wants. It runs on the supervisor.
func (a *parent) ordered(o order) {
	r := a.run
	if o.Ask.ID != 0 {
		r.policy.phase = max(r.policy.phase, o.Phase)
		r.inquiryOver(true) // the head has given up on an earlier one
		r.ask(o.Ask, nil)
		return
	}
	r.obey(o)
	if o.Gone > 0 {
		r.announceDeath(o.Gone - 1)
	}
	if o.Finish {
		a.dismissed = true
		r.lost = r.lost || r.alive > 0
	}
}

// obey takes over how far the end of the job has come, and sends a signal to the ranks if there is one.
func (r *run) obey(o order) {
	if r.policy.phase = max(r.policy.phase, o.Phase); o.Signal != 0 && r.policy.phase == working {
		r.signalAll(o.Signal)
		return
	}
	r.do(action{signal: o.Signal})
}

// wantsUs reports whether the parent may still want something of this agent. It may be called of nil.
func (a *parent) wantsUs() bool { return a != nil && !a.dismissed }

// started may be called of nil, as allStarted.
func (a *parent) started(rank, pid int) {
	if a != nil {
		a.link.Send(frames.Started, encode(startedMessage{rank, pid}))
	}
}

func (a *parent) allStarted() {
	if a != nil {
		a.link.Send(frames.AllStarted, nil)
	}
}

func (a *parent) exited(_ time.Time, e rankEnd) action {
	m := exitedMessage{Rank: e.Rank, Pid: e.Pid, Code: e.Code, Signal: e.Signal, Core: e.Core, Unfinished: e.unfinished,
		Consequence: e.consequence, Lost: e.Err == errHostLost}
	if e.Err != nil {
		m.Err = fmt.Sprintf("%.1000s", e.Err.Error())
	}
	a.link.Send(frames.Exited, encode(m))
	return action{}
}

func (a *parent) aborted(_ time.Time, b abortCall) action {
	a.link.Send(frames.Aborted, encode(abortedMessage{b.by.Rank, b.code, fmt.Sprintf("%.8000s", b.message),
		b.consequence}))
	return action{}
}

func (a *parent) cannotStart(err error, code int) action {
	a.fail(failedMessage{Err: err.Error(), Code: code})
	return action{}
}

func (a *parent) hostLost(_ time.Time, err error) action {
	a.fail(failedMessage{Err: err.Error(), Lost: true})
	return action{}
}

func (a *parent) agentStopped(_ time.Time, err error, code int) action {
	a.fail(failedMessage{Err: err.Error(), Code: code, Stopped: true})
	return action{}
}

func (a *parent) fail(m failedMessage) {
	m.Err = fmt.Sprintf("%.1500s", m.Err)
	a.link.Send(frames.Failed, encode(m))
}

// Fence is pmi.Above's, as Ask.
func (a *parent) Fence(put []pmi.Pair) {
	for _, body := range putFrames(put) {
		a.link.Send(frames.Put, body)
	}
	a.link.Send(frames.Fence, nil)
}

func (a *parent) Ask(request []byte) { a.link.Send(frames.Question, request) }

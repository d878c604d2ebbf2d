package launcher

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/stdio"
	"github.com/hashicorp/go-hclog"
)

// hearing is how long the control socket of a rank that has ended may take to be read to its end. There is one,
// whatever other process holds the socket: only a machine that stands still takes long, and must not make a good end a
// bad one.
const hearing = 30 * time.Second

// Tests set these.
var (
	// abandonStart is how long the start of a rank may take when nothing else is left of a job that is to end.
	abandonStart = time.Second
	// abandonAfter is how long a rank that has been killed may take to end. One that waits in the kernel for a dead
	// file server does not, and one that had all of a large memory takes its time.
	abandonAfter = 30 * time.Second
)

// run is a job in progress. Everything in it belongs to the goroutine of Job.Run, the supervisor, unless said
// otherwise. It has one of four roles: of a job on this host alone it supervises the ranks themselves; of a job on
// several hosts it is the head, which has a fleet of agents; as an agent it supervises the ranks of its host, and
// perhaps a fleet of others, and reports what the policy of the head decides upon; and of a spawned job it supervises
// the ranks, and reports to the first run.
//
// The supervisor never waits for anything but the next event: a signal comes through, whatever the ranks, the readers
// of their output and the file system do. What may take long has a goroutine of its own: starting ranks, hearing out
// the control socket of one that has ended, writing output.
type run struct {
	job     *Job
	plan    *Plan
	log     hclog.Logger
	policy  policy
	ranks   map[int]*rankState // those here, and those of the hosts below; no rank is added later
	endings endings
	streams *stdio.Streams
	local            // not of a head
	fleet   *fleet   // nil: there are no agents below
	parent  *parent  // of an agent
	spawned *spawned // of a spawned job
	spawns  spawns   // of the first run: the jobs that ranks have had started

	starting  int            // who still starts ranks: this host, and the fleet
	alive     int            // ranks that have been started and have not ended
	sent      syscall.Signal // the last one that was to end all ranks: for those that start later
	leaving   bool           // no rank is left, only output
	toldToEnd bool           // while leaving

	signals <-chan os.Signal
	starts  chan started     // with room for all
	mailbox                  // of the supervisor
	timeout <-chan time.Time // of the job
	timer   *time.Timer      // for policy.next
	abandon <-chan time.Time // when what is left is given up; nil: not yet known
	noStart <-chan time.Time // when a start is given up; nil: there is none, or ranks run
	lost    bool             // it is given up
	check   <-chan time.Time // when to look whether output is being read; nil: not at all

	stop atomic.Bool // shared with startRanks: start no more

	asking asking
}

// local is the state of the ranks that this host runs.
type local struct {
	server  *pmi.Server
	backend backend         // nil: the ranks of a head are on other hosts
	heard   chan procs.Exit // with room for all
	unheard int             // ranks that have ended and whose control socket is still being read
	stops   stops
}

// backend starts the processes of a job on this host. [procs.Local] is the one that is not a test's.
type backend interface {
	// Start starts one process. It is called from one goroutine.
	Start(s *procs.Spec) (pid int, err error)
	// Host is where the process of this rank runs, as the user should read it.
	Host(rank int) string
	// Exits delivers one Exit for each process that was started.
	Exits() <-chan procs.Exit
	// Signal sends a signal to the process of this rank and to the processes it started.
	Signal(rank int, sig syscall.Signal)
	// Close kills what is left of all ranks, waits for it, and releases what the backend holds. After it nothing
	// of the job runs any more.
	Close()
}

// judge is told what has become of ranks, and decides what is done.
type judge interface {
	exited(now time.Time, e rankEnd) action
	aborted(now time.Time, a abortCall) action
	cannotStart(err error, code int) action
	hostLost(now time.Time, err error) action
	agentStopped(now time.Time, err error, code int) action
}

func (r *run) judge() judge {
	switch {
	case r.parent != nil:
		return r.parent
	case r.spawned != nil:
		return r.spawned
	}
	return &r.policy
}

// mailbox takes functions that other goroutines want the supervisor to call.
type mailbox struct {
	posts chan func()
	over  chan struct{} // closed when nothing is taken from posts any more
}

func newMailbox() mailbox { return mailbox{posts: make(chan func()), over: make(chan struct{})} }

// post has the supervisor call f, and waits until it does. Where that is over, nothing is called.
func (m mailbox) post(f func()) {
	select {
	case m.posts <- f:
	case <-m.over:
	}
}

// call is post, and waits until f has returned.
func (m mailbox) call(f func()) {
	done := make(chan struct{})
	m.post(func() { f(); close(done) })
	select {
	case <-done:
	case <-m.over:
	}
}

// rankState is what is known of one rank.
type rankState struct {
	host string        // "": this one
	gone chan struct{} // closed when the rank has ended, or does not start

	// startRanks sets these.
	pid    int           // before started is sent, and before the control socket is served
	conn   controlConn   // our end of its control socket; before the rank exists
	served chan struct{} // closed when the server has read all that the rank said; made before the rank exists
	judged chan struct{} // closed when the policy has been told of its end; made before its streams

	started, ended bool
}

func newRankState(host string) *rankState { return &rankState{host: host, gone: make(chan struct{})} }

type controlConn interface {
	CloseRead() error
	CloseWrite() error
}

// Run starts the job, waits for its end, and returns the exit code for gorun. Messages go to Stderr.
func (j *Job) Run() int {
	plan, err := j.Plan()
	if err != nil {
		fmt.Fprintf(j.Stderr, "gorun: %v\n", err)
		return CodeUsage
	}
	if plan.Remote {
		return j.runFleet(plan)
	}
	return j.runPlan(plan, procs.NewLocal(j.Size(), j.Alone, j.Cleaner))
}

// newRun is a run of this many ranks, of which this host starts some.
func (j *Job) newRun(plan *Plan) *run {
	r := &run{
		job: j, plan: plan, ranks: make(map[int]*rankState, len(plan.Specs)),
		starts: make(chan started, len(plan.Specs)+1), mailbox: newMailbox(), timer: time.NewTimer(time.Hour),
	}
	for i := range plan.Specs {
		r.ranks[plan.Specs[i].Rank] = newRankState("")
	}
	if j.PrintExits {
		r.endings = make(endings, plan.World)
	}
	r.policy = policy{killDelay: j.KillDelay, insist: j.Insist, recover: j.Recover, step: plan.Slurm}
	r.spawns.deaths.most = j.Respawn
	r.policy.deaths = &r.spawns.deaths
	if r.policy.killDelay <= 0 {
		r.policy.killDelay = DefaultKillDelay
	}
	if j.Alone {
		r.signals = procs.Signals()
	}
	if j.Timeout > 0 {
		r.timeout = time.After(j.Timeout)
	}
	return r
}

func (j *Job) runPlan(plan *Plan, b backend) int {
	r := j.newRun(plan)
	r.streams = stdio.New(j.Stdout, j.Stderr)
	apps := make([]int, len(plan.Specs))
	for i := range plan.Specs {
		apps[i] = plan.Specs[i].App
	}
	o := pmi.Options{AppNums: apps, Mapping: plan.Layout.Order.Mapping(), Survive: j.Recover, Spawn: r.spawn}
	return r.supervise(b, o, func() {})
}

// supervise is the life of a run that has ranks on this host. addFleet makes those of hosts below, if there are any.
func (r *run) supervise(b backend, o pmi.Options, addFleet func()) int {
	defer close(r.over)
	r.log = logger(r.job.LogLevel, r.streams.Stderr)
	r.backend, r.heard = b, make(chan procs.Exit, len(r.plan.Specs))
	defer r.stops.begin(r.job.Alone)()
	r.announce()
	r.server = pmi.NewServer(r.plan.World, o)
	defer r.server.Close()
	r.starting++
	addFleet()
	if r.parent != nil {
		r.parent.serve(r)
	}
	go r.startRanks()
	if r.fleet != nil {
		r.fleet.open()
	}
	if r.parent == nil && r.job.Alone {
		defer r.serveStatus()()
	}
	r.beginWatch()
	r.watch()
	return r.finish()
}

// logger is silent unless the level says otherwise.
func logger(level string, to io.Writer) hclog.Logger {
	if level == "" || level == "off" {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: "gorun", Level: hclog.LevelFromString(level), Output: to})
}

// say queues one line of gorun itself.
func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.streams.Stderr, "gorun: "+format+"\n", args...)
}

// print queues the lines of an action.
func (r *run) print(a action) {
	for _, m := range a.say {
		r.say("%s", m)
	}
	for _, m := range a.print {
		fmt.Fprintln(r.streams.Stderr, m)
	}
}

// announce says before the start what the user should know.
func (r *run) announce() {
	if r.job.Announced {
		return
	}
	if r.plan.Over {
		of := ""
		if r.parent != nil {
			of = " of host " + r.plan.Host
		}
		late := ""
		if slices.ContainsFunc(r.plan.Specs, func(s procs.Spec) bool { return s.Lazy }) {
			late = ", and its timers may be 1 ms late"
		}
		r.say("%d ranks on %d usable %s%s: ranks outnumber CPUs, so a waiting rank gives the CPU away%s",
			len(r.plan.Specs), r.plan.CPUs.Usable(), plural(r.plan.CPUs.Usable(), "CPU"), of, late)
	}
	if r.plan.Unfit {
		r.say("PE=%d: host %s has too few cores for %d %s of so many, so no rank is bound", r.job.Place.PE, r.plan.Host,
			len(r.plan.Specs), plural(len(r.plan.Specs), "rank"))
	}
	if r.job.DisplayMap {
		for _, l := range mapLines(r.plan.Layout) {
			r.say("%s", l)
		}
	}
	if r.job.ReportBindings {
		for i := range r.plan.Specs {
			r.say("%s", r.plan.describe(&r.plan.Specs[i]))
		}
	}
}

// watch runs until no rank is left.
func (r *run) watch() {
	for !r.lost && (r.starting > 0 || r.alive > 0 || r.unheard > 0 || len(r.spawns.all) > 0 || r.parent.wantsUs()) {
		switch only := r.alive == 0 && r.unheard == 0 && len(r.spawns.all) == 0 && r.stop.Load(); {
		case !only:
			r.noStart = nil
		case r.noStart == nil:
			r.noStart = time.After(abandonStart)
		}
		r.step(nil)
	}
	r.noStart = nil
}

// step deals with the next event. It reports whether that was another one than the end of done.
func (r *run) step(done <-chan struct{}) bool {
	var exits <-chan procs.Exit
	var events <-chan pmi.Event
	if r.backend != nil {
		exits, events = r.backend.Exits(), r.server.Events()
	}
	select {
	case s := <-r.signals:
		r.signalled(s.(syscall.Signal))
	case <-done:
		return false
	case s := <-r.starts:
		r.rankStarted(s)
	case <-r.stops.signals:
		procs.StoppedChildren(r.childStopped)
	case f := <-r.posts:
		f()
	case e := <-exits:
		r.rankEnded(e)
	case e := <-r.heard:
		r.rankHeard(e)
	case e := <-events:
		r.serverEvent(e)
	case err := <-r.streams.Broken:
		r.unwritten(err)
	case <-r.timeout:
		r.timedOut()
	case <-r.timer.C:
		r.do(r.policy.tick(time.Now()))
	case <-r.abandon:
		r.giveUp()
	case <-r.noStart:
		if r.noStart = nil; len(r.starts) == 0 { // or the machine has stood still, and the start is over
			r.lost = true
		}
	case <-r.check:
		r.checkOutput()
	case <-r.answersOf():
		r.takeAnswers()
	case <-r.asking.over:
		r.inquiryOver(true)
	case <-r.asking.turn:
		r.watchTurn()
	}
	return true
}

func (r *run) rankStarted(s started) {
	if s.last {
		if err := s.err; err != nil {
			if r.parent != nil {
				err = fmt.Errorf("%w on host %s", err, r.plan.Host)
			}
			r.cannotStart(err, startCode(err))
		}
		if r.starting--; r.starting > 0 {
			return
		}
		if !r.stop.Load() {
			r.startInput()
		}
		r.parent.allStarted()
		return
	}
	r.alive++
	st := r.ranks[s.rank]
	st.started = true
	r.log.Debug("rank started", "rank", s.rank, "pid", st.pid)
	r.parent.started(s.rank, st.pid)
	if by := r.stops.early[st.pid]; by != 0 {
		r.rankStopped(s.rank, by)
	}
	if r.sent != 0 && r.backend != nil {
		r.backend.Signal(s.rank, r.sent)
	}
}

// rankEnded has the server hear what the rank has said to the end.
func (r *run) rankEnded(e procs.Exit) {
	st := r.ranks[e.Rank]
	st.ended = true
	r.alive--
	r.unheard++
	st.conn.CloseRead()  // delivers what is on its way, then the end, even if a child of the rank holds the socket
	st.conn.CloseWrite() // a reply would wait for that child
	go func() {
		if !waitServed(st.served) {
			r.log.Warn("the control connection of a rank that has ended is still busy", "rank", e.Rank)
		}
		r.heard <- e
	}()
}

// waitServed reports whether all that a rank has said was read within hearing. It waits in pieces: a machine that
// stands still for long takes one of them away and not all.
func waitServed(served <-chan struct{}) bool {
	for range 20 {
		select {
		case <-served:
			return true
		case <-time.After(hearing / 20):
		}
	}
	return false
}

// rankHeard reports the end of a rank to the policy, after all that it has said.
func (r *run) rankHeard(e procs.Exit) {
	r.unheard--
	for more := true; more; {
		select {
		case ev := <-r.server.Events():
			r.serverEvent(ev)
		default:
			more = false
		}
	}
	r.log.Debug("rank ended", "rank", e.Rank, "pid", e.Pid, "code", e.Code, "signal", int(e.Signal))
	r.endings.note(e)
	r.server.Ended(e.Rank)
	if e.Signal == syscall.SIGPIPE && r.parent == nil && r.wroteToUnread(e.Rank) {
		// The program alone would die without a word too.
		r.do(r.policy.unwritten(time.Now(), syscall.EPIPE))
		close(r.ranks[e.Rank].judged)
		return
	}
	s := r.server.State(e.Rank)
	r.do(r.judge().exited(time.Now(), rankEnd{e, s.Joined && !s.Finalized, s.PeerFailed}))
	r.rankGone(e.Rank)
	close(r.ranks[e.Rank].judged)
}

// wroteToUnread reports whether a rank of this host writes to gorun's own output, and the reader of that has gone.
func (r *run) wroteToUnread(rank int) bool {
	for i := range r.plan.Specs {
		s := &r.plan.Specs[i]
		if s.Rank == rank {
			return s.Stdout == r.job.Stdout && stdio.Unread(s.Stdout) ||
				s.Stderr == r.job.Stderr && stdio.Unread(s.Stderr)
		}
	}
	return false
}

func (r *run) serverEvent(e pmi.Event) {
	switch e.Kind {
	case pmi.EventAbort:
		r.aborted(abortCall{procs.Exit{Rank: e.Rank}, e.Code, e.Message, e.Consequence})
	case pmi.EventGarbage:
		r.say("%s spoke no PMI-1 on its control socket, which was closed: %v", r.nameOf(e.Rank), e.Err)
	default:
		r.log.Trace("control", "rank", e.Rank, "event", e.Kind.String())
	}
}

func (r *run) signalled(s syscall.Signal) {
	switch {
	case s == syscall.SIGTSTP:
		// The terminal stops only us; the ranks are in process groups of their own.
		r.signalAll(syscall.SIGSTOP)
		r.fleet.drain() // we go on when we are woken
		procs.StopSelf()
	case !slices.Contains(procs.Ending, s):
		r.signalAll(s)
	case r.leaving:
		r.leave(128+int(s), stoppedBy(s))
	default:
		if r.parent != nil && r.policy.phase == working {
			r.parent.agentStopped(time.Now(), fmt.Errorf("the agent on host %s was stopped by signal %d (%s)",
				r.plan.Host, int(s), s), 128+int(s))
		}
		r.do(r.policy.signalled(time.Now(), s))
	}
}

func (r *run) timedOut() {
	if r.leaving {
		r.leave(CodeTimeout, fmt.Sprintf("the job did not end within %v: its output is not read", r.job.Timeout))
		return
	}
	r.do(r.policy.timedOut(time.Now(), r.job.Timeout))
}

// do carries out what the policy decided.
func (r *run) do(a action) {
	if r.policy.phase != working {
		r.stop.Store(true)
	}
	if r.policy.phase == findingCause {
		r.streams.Fail()
	}
	if a.signal != 0 {
		r.log.Debug("signal to all ranks", "signal", a.signal.String())
		r.sent = a.signal
		r.signalLocal(a.signal)
	}
	r.fleet.send(order{Phase: r.policy.phase, Signal: a.signal})
	r.spawns.send(order{Phase: r.policy.phase, Signal: a.signal})
	if a.gone > 0 {
		r.announceDeath(a.gone - 1)
	}
	if a.signal == syscall.SIGKILL && r.abandon == nil {
		r.abandon = time.After(abandonAfter)
	}
	r.print(a)
	if a.ask {
		r.printTable(tableHead, 0, func() { r.do(r.policy.asked(time.Now())) })
	}
	if !r.policy.next.IsZero() {
		r.timer.Reset(time.Until(r.policy.next))
	}
}

// announceDeath has the other ranks told of one that has ended, without which the job goes on.
func (r *run) announceDeath(rank int) {
	if r.server != nil {
		r.server.Gone(rank)
	}
	r.fleet.announceDeath(rank)
}

// signalAll sends a signal that does not end the job.
func (r *run) signalAll(s syscall.Signal) {
	r.fleet.send(order{Phase: r.policy.phase, Signal: s})
	r.spawns.send(order{Phase: r.policy.phase, Signal: s})
	r.signalLocal(s)
}

// signalLocal sends a signal to the ranks of this host.
func (r *run) signalLocal(s syscall.Signal) {
	if r.backend == nil {
		return
	}
	for i := range r.plan.Specs {
		r.backend.Signal(r.plan.Specs[i].Rank, s)
	}
}

// hostOf is where a rank is, as the user should read it.
func (r *run) hostOf(rank int) string {
	if host := r.ranks[rank].host; host != "" {
		return host
	}
	return r.backend.Host(rank)
}

// nameOf is what the user reads of a rank.
func (r *run) nameOf(rank int) string {
	return r.job.titled(procs.Exit{Rank: rank}).Name()
}

// giveUp leaves behind what does not end although it was killed.
func (r *run) giveUp() {
	if r.lost, r.abandon = true, nil; r.alive <= 0 {
		return
	}
	var left []string
	for _, rank := range slices.Sorted(maps.Keys(r.ranks)) {
		if st := r.ranks[rank]; st.started && !st.ended {
			left = append(left, fmt.Sprintf("%s (pid %d)", r.nameOf(rank), st.pid))
		}
	}
	r.say("killed %v ago and still there, perhaps waiting for a file server, so left behind: %s", abandonAfter,
		strings.Join(left, ", "))
}

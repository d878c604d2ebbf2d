package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/term"
)

// Exit codes of gorun itself, as shells and timeout(1) have them.
const (
	CodeUsage       = 2
	CodeTimeout     = 124
	CodeCannotStart = 126
	CodeNotFound    = 127
)

// lingering is how long processes that the ranks left behind may go on after the last rank has ended well: the tee of a
// wrapper script has its last lines to write.
const lingering = 500 * time.Millisecond

// run is a job in progress. Everything in it belongs to the goroutine of Job.Run unless said otherwise.
type run struct {
	job     *Job
	plan    *Plan
	log     hclog.Logger
	server  *pmi.Server
	backend Backend
	policy  policy
	ranks   []rankState
	alive   int

	sink    sink
	streams []*stream
	pumps   sync.WaitGroup
	hold    atomic.Bool // shared with the pumps: a dump is coming
	ending  atomic.Bool // shared with the pumps: no rank is left
	feeder  *feeder
	timer   *time.Timer // for policy.next
}

// rankState is what is known of one rank.
type rankState struct {
	pid    int
	conn   interface{ CloseRead() error } // our end of its control socket
	served chan struct{}                  // closed when the server has read all that the rank said
	ended  bool
}

// Run starts the job, waits for its end, and returns the exit code for gorun. Messages go to Stderr.
func (j *Job) Run() int {
	plan, err := j.Plan()
	if err != nil {
		j.say(&sink{}, "%v", err)
		return CodeUsage
	}
	return j.runPlan(plan, Local(j.Size(), j.Alone, j.Cleaner))
}

func (j *Job) say(s *sink, format string, args ...any) {
	s.write(j.Stderr, []byte("gorun: "+fmt.Sprintf(format, args...)+"\n"))
}

func (j *Job) runPlan(plan *Plan, backend Backend) int {
	r := &run{job: j, plan: plan, log: j.Log, backend: backend, ranks: make([]rankState, len(plan.Specs))}
	if r.log == nil {
		r.log = hclog.NewNullLogger()
	}
	defer backend.Close()
	signals, stopSignals := j.catchSignals()
	defer stopSignals()
	r.announce()
	apps := make([]int, len(plan.Specs))
	for i := range plan.Specs {
		apps[i] = plan.Specs[i].App
	}
	r.server = pmi.NewServer(len(plan.Specs), pmi.Options{AppNums: apps})
	defer r.server.Close()
	r.policy = policy{killDelay: j.KillDelay}
	if r.policy.killDelay <= 0 {
		r.policy.killDelay = DefaultKillDelay
	}
	if err := r.start(); err != nil {
		backend.Close()
		r.drain()
		j.say(&r.sink, "%v", err)
		return startCode(err)
	}
	r.watch(signals)
	return r.finish()
}

// catchSignals leaves alone what was ignored when we were started (nohup, a shell's background job).
func (j *Job) catchSignals() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 16)
	if !j.Alone {
		return c, func() {}
	}
	for _, s := range caught {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}

var caught = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// announce says before the start what the user should know.
func (r *run) announce() {
	if r.plan.Over {
		r.job.say(&r.sink, "%d ranks on %d usable %s: ranks outnumber CPUs, so waiting ranks sleep instead of polling",
			len(r.plan.Specs), r.plan.CPUs.Usable(), plural(r.plan.CPUs.Usable(), "CPU"))
	}
	if r.job.ReportBindings {
		for i := range r.plan.Specs {
			r.job.say(&r.sink, "%s", r.plan.describe(&r.plan.Specs[i]))
		}
	}
}

// startError is a rank that could not be started.
type startError struct {
	rank int
	path string
	err  error
}

func (e *startError) Error() string {
	return fmt.Sprintf("rank %d cannot be started: %s: %v", e.rank, e.path, e.err)
}
func (e *startError) Unwrap() error { return e.err }

func startCode(err error) int {
	if errors.Is(err, os.ErrNotExist) {
		return CodeNotFound
	}
	return CodeCannotStart
}

func (r *run) start() error {
	if r.job.OutputDir != "" {
		if err := os.MkdirAll(r.job.OutputDir, 0o777); err != nil {
			return fmt.Errorf("--output-dir: %w", err)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	inputs, err := r.openInputs(null)
	if err != nil {
		return err
	}
	defer closeAll(inputs, null, r.job.Stdin)
	for i := range r.plan.Specs {
		if err := r.startRank(&r.plan.Specs[i], inputs[i]); err != nil {
			return err
		}
	}
	if r.feeder != nil {
		r.feeder.start()
	}
	return nil
}

func closeAll(files []*os.File, but ...*os.File) {
next:
	for _, f := range files {
		for _, b := range but {
			if f == b {
				continue next
			}
		}
		f.Close()
	}
}

// openInputs returns descriptor 0 of each rank.
func (r *run) openInputs(null *os.File) ([]*os.File, error) {
	inputs := make([]*os.File, len(r.plan.Specs))
	var near []*os.File
	for i := range inputs {
		inputs[i] = null
		if r.job.Stdin == nil || !(r.plan.stdins.all || r.plan.stdins.rank == i) {
			continue
		}
		if !r.plan.stdins.all && !term.IsTerminal(int(r.job.Stdin.Fd())) {
			// Handed over as it is: nothing is read unless the rank reads it.
			if _, err := r.job.Stdin.Stat(); err == nil {
				inputs[i] = r.job.Stdin
			}
			continue
		}
		n, far, err := inPipe()
		if err != nil {
			return nil, err
		}
		inputs[i], near = far, append(near, n)
	}
	if near == nil {
		return inputs, nil
	}
	var err error
	r.feeder, err = newFeeder(r.job.Stdin, near)
	return inputs, err
}

func (r *run) startRank(s *Spec, stdin *os.File) error {
	near, far, err := controlPair()
	if err != nil {
		return &startError{s.Rank, s.Path, err}
	}
	defer far.Close()
	s.Stdin, s.Control = stdin, far
	s.Env = append(s.Env, pmi.EnvJob+"="+r.server.Name())
	own, err := r.openOutput(s)
	if err != nil {
		near.Close()
		return &startError{s.Rank, s.Path, err}
	}
	pid, err := r.backend.Start(s)
	for _, f := range own {
		f.Close()
	}
	if err != nil {
		near.Close()
		return &startError{s.Rank, s.Path, err}
	}
	st := &r.ranks[s.Rank]
	*st = rankState{pid: pid, conn: near, served: make(chan struct{})}
	r.alive++
	go func() {
		defer close(st.served)
		r.server.ServeConn(s.Rank, near)
	}()
	r.log.Debug("rank started", "rank", s.Rank, "pid", pid, "path", s.Path, "cpus", s.CPUs)
	return nil
}

// openOutput sets descriptors 1 and 2 of a rank and returns those that must be closed here after the start.
func (r *run) openOutput(s *Spec) (own []*os.File, err error) {
	if r.job.OutputDir != "" {
		s.Stdout, s.Stderr, err = openOutputs(r.job.OutputDir, s.Rank)
		return []*os.File{s.Stdout, s.Stderr}, err
	}
	if len(r.plan.Specs) == 1 && !r.job.TagOutput {
		s.Stdout, s.Stderr = r.job.Stdout, r.job.Stderr // there is no other rank's output
		return nil, nil
	}
	if s.Stdout, err = r.addStream(s.Rank, r.job.Stdout); err != nil {
		return nil, err
	}
	if s.Stderr, err = r.addStream(s.Rank, r.job.Stderr); err != nil {
		return []*os.File{s.Stdout}, err
	}
	return []*os.File{s.Stdout, s.Stderr}, nil
}

func (r *run) addStream(rank int, to *os.File) (*os.File, error) {
	near, far, err := outPipe()
	if err != nil {
		return nil, err
	}
	st := &stream{
		from: near, to: to, sink: &r.sink, hold: &r.hold, ending: &r.ending,
		head: fmt.Sprintf("--- rank %d on host %s ---\n", rank, r.backend.Host(rank)),
	}
	if r.job.TagOutput {
		st.tag = tagOf(rank, coloured(to))
	}
	r.streams = append(r.streams, st)
	r.pumps.Go(st.pump)
	return far, nil
}

func coloured(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// watch runs until no rank is left. It reports to the policy what happens, and does what the policy says.
func (r *run) watch(signals <-chan os.Signal) {
	var timeout <-chan time.Time
	if r.job.Timeout > 0 {
		t := time.NewTimer(r.job.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	r.timer = time.NewTimer(time.Hour)
	defer r.timer.Stop()
	for r.alive > 0 {
		select {
		case e := <-r.backend.Exits():
			r.rankEnded(e)
		case e := <-r.server.Events():
			r.serverEvent(e)
		case s := <-signals:
			r.signalled(s.(syscall.Signal))
		case <-timeout:
			r.do(r.policy.timedOut(time.Now(), r.job.Timeout))
		case <-r.timer.C:
			r.do(r.policy.tick(time.Now()))
		}
	}
}

// rankEnded reports the end of a process to the policy, after the server has read all of its control socket.
func (r *run) rankEnded(e Exit) {
	st := &r.ranks[e.Rank]
	st.ended = true
	r.alive--
	st.conn.CloseRead() // delivers what is on its way, then the end, even if a child of the rank holds the socket
	if !waitServed(st.served) {
		r.log.Warn("the control connection of a rank that has ended is still busy", "rank", e.Rank)
	}
	for more := true; more; {
		select {
		case ev := <-r.server.Events():
			r.serverEvent(ev)
		default:
			more = false
		}
	}
	r.log.Debug("rank ended", "rank", e.Rank, "pid", e.Pid, "code", e.Code, "signal", int(e.Signal))
	s := r.server.State(e.Rank)
	r.do(r.policy.exited(time.Now(), e, s.Joined && !s.Finalized))
}

// waitServed waits for a second, in pieces: a machine that stands still for long takes one of them away and not all.
func waitServed(served <-chan struct{}) bool {
	for range 20 {
		select {
		case <-served:
			return true
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false
}

func (r *run) serverEvent(e pmi.Event) {
	switch e.Kind {
	case pmi.EventAbort:
		by := Exit{Rank: e.Rank, Pid: r.ranks[e.Rank].pid, Host: r.backend.Host(e.Rank)}
		r.do(r.policy.aborted(time.Now(), by, e.Code, e.Message))
	case pmi.EventGarbage:
		r.job.say(&r.sink, "rank %d spoke no PMI-1 on its control socket, which was closed: %v", e.Rank, e.Err)
	default:
		r.log.Trace("control", "rank", e.Rank, "event", e.Kind.String())
	}
}

func (r *run) signalled(s syscall.Signal) {
	switch s {
	case syscall.SIGTSTP:
		// The terminal stops only us; the ranks are in process groups of their own.
		r.signalAll(syscall.SIGSTOP)
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case syscall.SIGCONT, syscall.SIGUSR1, syscall.SIGUSR2:
		r.signalAll(s)
	default:
		r.do(r.policy.signalled(time.Now(), s))
	}
}

// do carries out what the policy decided.
func (r *run) do(a action) {
	if a.hold && len(r.plan.Specs) > 1 {
		r.hold.Store(true)
	}
	for _, m := range a.say {
		r.job.say(&r.sink, "%s", m)
	}
	if a.signal != 0 {
		r.log.Debug("signal to all ranks", "signal", a.signal.String())
		r.signalAll(a.signal)
	}
	if !r.policy.next.IsZero() {
		r.timer.Reset(time.Until(r.policy.next))
	}
}

func (r *run) signalAll(s syscall.Signal) {
	for rank := range r.ranks {
		r.backend.Signal(rank, s)
	}
}

// finish is the end of the job after the last rank's: nothing stays behind, all output is written.
func (r *run) finish() int {
	if r.policy.cause == "" {
		r.waitPumps(lingering)
	}
	r.backend.Close()
	r.drain()
	for _, m := range r.policy.last() {
		r.job.say(&r.sink, "%s", m)
	}
	if r.policy.code == 0 && r.sink.err != nil {
		r.job.say(&r.sink, "the output of the ranks could not be written: %v", r.sink.err)
		return 1
	}
	return r.policy.code
}

// waitPumps waits until all streams have ended, but not longer than d.
func (r *run) waitPumps(d time.Duration) {
	done := make(chan struct{})
	go func() {
		r.pumps.Wait()
		close(done)
	}()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// drain ends input and output. What the ranks have written is written out, however long the reader of our own output
// takes; a stream that stays silent is given up.
func (r *run) drain() {
	if r.feeder != nil {
		r.feeder.stop()
	}
	r.ending.Store(true)
	for _, s := range r.streams {
		s.end()
	}
	if r.policy.cause == "" {
		r.pumps.Wait()
		return
	}
	r.waitPumps(2 * time.Second)
}

// oneLine makes a message of a rank fit for one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/stdio"
)

// A rank may have gorun start a job of other ranks (pmi.Spawn). That is a run of its own, with a
// supervisor of its own, in this process. As long as it starts, it is judged by itself: a rank that does not come to
// Init is an error of the rank that has asked, and of no other. From then on its ranks are ranks of the whole job: the
// first run judges their ends, and all runs obey the signals of that.
//
// All spawned jobs are of the first run, also those that a spawned rank asks for: a run whose ranks have ended is over,
// whatever they have had started. The supervisor of the first run may wait for one of a run that has begun, and never
// the other way round: what a spawned job has to tell goes through a goroutine (tell).

// spawns are the jobs that the ranks of a job have had started. They are in its first run, and belong to the supervisor
// of that.
type spawns struct {
	all    []*spawned // from the request on until they are over
	phase  phase      // that they have been told of
	number int        // of the last one
	deaths deaths
	roster
}

// spawned is a job that a rank has had started. What is not said to be otherwise belongs to its supervisor.
type spawned struct {
	first  *run            // never changes
	origin *run            // in which the ranks were first that start again; nil: no rank does; never changes
	number int             // from 1 on; never changes
	gone   <-chan struct{} // is closed when the rank that has asked has ended
	run    *run
	begun  bool // run is there, and takes orders; of the supervisor of the first run

	want     pmi.Spawn
	asked    time.Time     // when the request came; never changes
	answer   func(error)   // to the rank that has asked; nil: it has had the last one
	answered chan struct{} // closed then; nil: the run has not begun
	joins    int           // how many barriers of the start are to come; 0: the rank that has asked has its last answer
	failed   bool          // to start: nothing is said of its ranks
	ending   bool          // the first run has said that the job ends
	late     *time.Timer   // when the ranks should have come to the next of them; nil: there is no such time
	slow     *time.Timer   // when it is said that they have not; nil: it is not
	told     chan struct{}
}

// errEnds is the error of a spawn in a job that ends.
var errEnds = errors.New("the job ends")

// spawn is pmi.Options.Spawn of the run that has all ranks of a job.
func (r *run) spawn(rank int, q pmi.Spawn, told func(error)) {
	takes, err := r.placesOf(q)
	if err != nil {
		told(err)
		return
	}
	first := r.first()
	s := &spawned{first: first, gone: r.ranks[rank].gone, want: q, asked: time.Now(), answer: told, joins: q.Joins()}
	r.awaitHosts(takes, q.Limit)
	first.post(func() { s.enter(r, rank, takes) })
}

// enter begins the life of a job that a rank of r has asked for. The supervisor of the first run calls it.
func (s *spawned) enter(r *run, rank int, takes []rankID) {
	if s.first.policy.phase != working || s.first.leaving || isClosed(s.gone) { // it would use up starts of --respawn
		s.answer(errEnds)
		return
	}
	j, err := s.prepare(r, rank, takes)
	if err != nil {
		r.sayRefused(takes, err)
		s.answer(err)
		return
	}
	s.first.spawns.all = append(s.first.spawns.all, s)
	go s.live(j)
}

// prepare makes the job that a rank of r has asked for. takes is of placesOf.
func (s *spawned) prepare(r *run, rank int, takes []rankID) (*Job, error) {
	l, start := &s.first.spawns, 0
	if len(takes) > 0 {
		var err error
		if start, err = l.deaths.take(len(takes)); err != nil {
			return nil, err
		}
	}
	l.number++
	s.number = l.number
	j, err := r.spawnedJob(s, rank, takes)
	if err == nil && len(takes) > 0 && takes[0] != noRank {
		s.origin = r.origin()
		r.startAgain(j, takes, start)
	}
	return j, err
}

// spawnElsewhere is pmi.Options.Spawn of a job whose agents come by themselves.
func spawnElsewhere(_ int, _ pmi.Spawn, told func(error)) {
	told(fmt.Errorf("%w: its agents are pods, which start more ranks with --respawn N only", pmi.ErrNoSpawn))
}

// spawnedJob is what a rank of r has asked for. It has the settings of the program of that rank.
func (r *run) spawnedJob(s *spawned, rank int, takes []rankID) (*Job, error) {
	q, number, plan := s.want, s.number, s.first.plan
	o, id := r.origin(), r.job.idOf(rank) // a rank that was started again has folders of its own
	spec := slices.IndexFunc(o.plan.Specs, func(spec procs.Spec) bool { return spec.Rank == id.rank })
	own := o.job.Apps[o.plan.Specs[spec].App]
	hosts, before := []place.Host{{Name: plan.Host}}, len(plan.Specs)
	if plan.Remote {
		hosts, before = r.hostsLeft(), (plan.World+len(plan.Layout.Hosts)-1)/len(plan.Layout.Hosts)
	}
	before += s.first.spawns.ranks() / len(hosts)
	var at []int
	if len(takes) > 0 {
		var err error
		if hosts, at, err = r.settle(takes, number); err != nil {
			return nil, err
		}
	}
	app := App{Ranks: q.Ranks, Path: q.Command, Name: q.Command, Args: q.Args, Dir: cmp.Or(q.Dir, own.Dir),
		Env: append(slices.Clone(own.Env), pmi.EnvSpawned+"=1")}
	if q.Command == "" {
		app.Path, app.Name, app.Sent = own.Path, own.Name, own.Sent
	}
	j := &Job{Options: r.job.Options, Apps: []App{app}, Environ: r.job.Environ, Hosts: hosts, at: at,
		step:   plan.Slurm,
		Agents: r.job.Agents, Stdout: r.job.Stdout, Stderr: r.job.Stderr, Cleaner: r.job.Cleaner, Announced: true,
		Spawn:  number,
		Before: before}
	j.Place, j.AllowUnused, j.StdinFor, j.Timeout, j.Stall = place.Request{MapBy: place.Node}, true, "none", 0, Stall{}
	j.PrintExits, j.Dump, j.Debug = false, "", ""
	folder := folderOf(number)
	if j.OutputDir != "" {
		j.OutputDir = filepath.Join(s.first.job.OutputDir, folder)
	}
	env := &j.Apps[0].Env
	for _, name := range []string{"GORUN_REPORT", "GORUN_CPUPROFILE"} {
		if dir := cmp.Or((&Job{Environ: own.Env}).variable(name), j.variable(name)); dir != "" {
			if o.job.Spawn != 0 { // the rank that asks has a folder of its own
				dir = strings.TrimSuffix(dir, string(filepath.Separator)+folderOf(o.job.Spawn))
			}
			*env = slices.DeleteFunc(*env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
			*env = append(*env, name+"="+filepath.Join(dir, folder))
		}
	}
	return j, nil
}

// folderOf is the folder of a spawned job in each folder in which files are named by ranks.
func folderOf(number int) string { return "spawn." + strconv.Itoa(number) }

// live is the life of a spawned job. It has a goroutine of its own, which becomes its supervisor.
func (s *spawned) live(j *Job) {
	code := s.supervise(j)
	s.reply(errEnds) // if nothing else was said
	s.first.spawns.dismiss(j)
	s.tell(func(r *run) {
		r.spawns.all = slices.DeleteFunc(r.spawns.all, func(other *spawned) bool { return other == s })
		r.policy.code = cmp.Or(r.policy.code, code)
	})
}

// supervise returns the exit code of the job, if that is its own.
func (s *spawned) supervise(j *Job) int {
	plan, err := j.Plan()
	var me *reach.Self
	if err == nil && plan.Remote {
		me, err = reach.Me()
	}
	if err != nil {
		s.sayFailed(j, err)
		s.reply(err)
		return 0
	}
	r := j.newRun(plan)
	r.spawned = s
	r.policy.deaths = &s.first.spawns.deaths
	if j.Again == nil {
		r.enroll()
	}
	if s.run = r; !s.begin() {
		s.sayFailed(j, errEnds)
		return 0
	}
	r.streams = stdio.NewTo(s.first.streams.Stdout, s.first.streams.Stderr)
	o := pmi.Options{Survive: j.Recover, Keys: s.want.Keys, Spawn: r.spawn, Joins: s.joins,
		Fenced: func(left int) { r.post(func() { s.joined(left) }) }}
	s.limit()
	if plan.Remote {
		r.lead(me, o)
		return r.policy.code
	}
	o.Mapping = plan.Layout.Order.Mapping()
	local, _ := s.first.backend.(*procs.Local)
	r.supervise(procs.NewSpawned(local, s.want.Ranks, j.Cleaner), o, func() {})
	return r.policy.code
}

// begin has the first run send its orders from now on. It reports whether the job is not about to end, and the rank
// that has asked is there. It waits for the first run, which does not know of this one before.
func (s *spawned) begin() bool {
	begun := make(chan bool, 1)
	s.first.post(func() {
		s.ending = s.first.policy.phase != working
		s.begun = !s.ending && !isClosed(s.gone)
		begun <- s.begun
	})
	select {
	case ok := <-begun:
		if ok {
			s.answered = make(chan struct{})
			go s.heedAsker()
		}
		return ok
	case <-s.first.over:
		s.ending = true
		return false
	}
}

// heedAsker gives up what is not started when the rank that has asked has ended, where the job goes on without it.
func (s *spawned) heedAsker() {
	select {
	case <-s.gone:
		s.run.post(func() {
			if s.joins > 0 {
				s.run.do(s.fail(errEnds))
			}
		})
	case <-s.answered:
	}
}

// lastAnswer is called when the rank that has asked has had its last answer. What answers it keeps its run, which may
// be over by now, and would so keep the one before that.
func (s *spawned) lastAnswer() {
	s.answer = nil
	if s.answered != nil {
		close(s.answered)
	}
}

// begun are those that take orders.
func (l *spawns) begun() iter.Seq[*spawned] {
	return func(yield func(*spawned) bool) {
		for _, s := range l.all {
			if s.begun && !yield(s) {
				return
			}
		}
	}
}

// ranks is how many ranks all of them have that are not in the places of others, which count where these were.
func (l *spawns) ranks() (n int) {
	for _, s := range l.all {
		if s.origin == nil {
			n += s.want.Ranks
		}
	}
	return n
}

// send passes an order on to the spawned jobs, if it says something new.
func (l *spawns) send(o order) {
	if o.Signal == 0 && o.Phase == l.phase {
		return
	}
	l.phase = o.Phase
	for s := range l.begun() {
		s.run.call(func() {
			s.ending = s.ending || o.Phase != working
			s.run.obey(o)
		})
	}
}

// first is the run of the first job.
func (r *run) first() *run {
	if r.spawned != nil {
		return r.spawned.first
	}
	return r
}

// tell has the supervisor of the first run call f, after all that it was told before. It does not wait.
func (s *spawned) tell(f func(first *run)) {
	before, told := s.told, make(chan struct{})
	s.told = told
	go func() {
		if before != nil {
			<-before
		}
		s.first.post(func() { f(s.first) })
		close(told)
	}()
}

// joined says to the rank that has asked that the ranks have left a barrier of the start. So many are to come.
func (s *spawned) joined(left int) {
	if s.joins > 0 && left == 0 {
		s.haveMet() // before the ranks hear of it, and say more
	}
	for s.joins > left { // one may be told of after the next
		s.answer(nil)
		if s.joins--; s.joins == 0 {
			s.lastAnswer()
		}
	}
	s.limit()
}

// limit begins the time that the ranks have for the next barrier of the start.
func (s *spawned) limit() {
	for _, t := range []*time.Timer{s.late, s.slow} {
		if t != nil {
			t.Stop()
		}
	}
	if at := s.joins; at > 0 && s.want.Limit > 0 {
		s.late = time.AfterFunc(s.patience(), func() { s.run.post(func() { s.run.do(s.isLate(at)) }) })
	}
	if at := s.joins; at > 0 && (s.want.Limit == 0 || s.want.Limit > slowStart) {
		s.slow = time.AfterFunc(slowStart, func() { s.run.post(func() { s.isSlow(at) }) })
	}
}

// patience is the time for the next barrier of the start. For the first one it begins with the request: awaitHosts may
// have used some of it, and half of it is left to the processes at least.
func (s *spawned) patience() time.Duration {
	if s.joins < s.want.Joins() {
		return s.want.Limit
	}
	return max(s.want.Limit-time.Since(s.asked), s.want.Limit/2)
}

// slowStart is after what time the user hears that processes have not come to a barrier of the start. Tests set it.
var slowStart = 10 * time.Second

// isSlow says that ranks have not come to a barrier of the start for some time. It and others were to come then.
func (s *spawned) isSlow(joins int) {
	if s.joins != joins || s.failed || s.ending {
		return
	}
	until := ""
	if s.want.Limit > 0 {
		until = fmt.Sprintf(" (given up after %v, GORUN_TIMEOUT)", s.want.Limit)
	}
	s.run.say("%s waits: for %v not all of the %d %s of %s have %s%s", s.call(), slowStart, s.want.Ranks,
		plural(s.want.Ranks, "process"), s.run.job.Apps[0].Name, s.start(), until)
}

// reply is the last answer to the rank that has asked, if it has not had that.
func (s *spawned) reply(err error) {
	if s.joins == 0 {
		return
	}
	s.joins = 0
	s.limit()
	s.answer(err)
	s.lastAnswer()
}

// call is what the ranks that ask for the job have called.
func (s *spawned) call() string {
	if s.want.InPlaces() {
		return "Replace"
	}
	return "Spawn"
}

// startsPrograms ends the error of a start that has failed.
func (s *spawned) startsPrograms() string {
	return s.call() + " starts programs that call mpi.Main or mpi.Init"
}

// start is what the ranks do until the next barrier of the start.
func (s *spawned) start() string {
	if s.joins < s.want.Joins() {
		return "met the ranks that called " + s.call()
	}
	return "called Init"
}

// fail gives the start up: the rank that has asked hears why, and all processes are killed.
func (s *spawned) fail(err error) action {
	s.failed = true
	s.sayFailed(s.run.job, err)
	s.reply(err)
	s.run.policy.phase = killing
	return action{signal: syscall.SIGKILL}
}

// isLate is called when the time for a barrier of the start is over. It and others were to come then.
func (s *spawned) isLate(joins int) action {
	if s.joins != joins {
		return action{}
	}
	return s.fail(fmt.Errorf("not all of the %d %s have %s within %v (GORUN_TIMEOUT); %s", s.want.Ranks,
		plural(s.want.Ranks, "process"), s.start(), s.want.Limit, s.startsPrograms()))
}

// exited is of judge, as the methods that follow.
func (s *spawned) exited(now time.Time, e rankEnd) action {
	e.Exit = s.run.job.titled(e.Exit)
	switch {
	case s.failed:
		return action{}
	case s.joins > 0:
		return s.fail(fmt.Errorf("%s before all %d had %s; %s", e.Exit, s.want.Ranks, s.start(), s.startsPrograms()))
	case s.run.job.Recover:
		return s.run.policy.exited(now, e)
	}
	s.tell(func(r *run) { r.do(r.policy.exited(time.Now(), e)) })
	return action{}
}

func (s *spawned) aborted(_ time.Time, a abortCall) action {
	a.by = s.run.job.titled(a.by)
	switch {
	case s.failed:
		return action{}
	case s.joins > 0:
		return s.fail(errors.New(cmp.Or(oneLine(a.message), fmt.Sprintf("it called Abort with code %d", a.code)) +
			" (" + a.by.Name() + ", before all had " + s.start() + ")"))
	}
	s.tell(func(r *run) { r.do(r.policy.aborted(time.Now(), a)) })
	return action{}
}

func (s *spawned) cannotStart(err error, code int) action {
	switch {
	case s.failed: // on another host before
		return action{}
	case s.joins > 0:
		return s.fail(err)
	}
	s.tell(func(r *run) { r.cannotStart(err, code) })
	return action{}
}

func (s *spawned) hostLost(now time.Time, err error) action {
	switch {
	case s.failed:
		return action{}
	case s.joins > 0:
		return s.fail(err)
	case s.run.job.Recover:
		return s.run.policy.hostLost(now, err)
	}
	s.tell(func(r *run) { r.do(r.policy.hostLost(time.Now(), err)) })
	return action{}
}

func (s *spawned) agentStopped(_ time.Time, err error, code int) action {
	switch {
	case s.failed:
		return action{}
	case s.joins > 0:
		return s.fail(err)
	}
	s.tell(func(r *run) { r.do(r.policy.agentStopped(time.Now(), err, code)) })
	return action{}
}

package launcher

import (
	"errors"
	"time"

	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/stdio"
)

// supervisor is all that a fleet and its children know of the run they belong to. Any goroutine may call the first four
// methods; the goroutine of the supervisor calls the others.
type supervisor interface {
	// post has the goroutine of the supervisor call f, and waits until it does. It calls nothing once closed is closed.
	post(f func())
	closed() <-chan struct{}
	// merge carries the output of a host to where the output of the job goes, until no more comes.
	merge(in *stdio.Intake, room func(int))
	// stopping reports whether no more ranks are to be started.
	stopping() bool

	say(format string, args ...any) // to the user
	phase() phase                   // of the end of the job
	hostOf(rank int) string         // as the user should read it
	started(rank int) bool
	ended(rank int) bool

	// These report ranks of other hosts.
	remoteStarted(rank, pid int)
	remoteEnded(e rankEnd)
	remoteLost(rank int)   // with its host
	neverStarted(rank int) // in a job that goes on
	fleetStarted()         // no more ranks are started there

	state(m stateMessage) // what a rank of another host has answered

	// These report failures, which the policy of the head judges.
	aborted(a abortCall)
	cannotStart(err error, code int)
	hostLost(err error)
	agentStopped(err error, code int)
	hostUnusable(host string) // no agent can be had there
}

func (r *run) closed() <-chan struct{} { return r.over }

func (r *run) merge(in *stdio.Intake, room func(int)) { r.streams.Merge(in, room) }

func (r *run) stopping() bool { return r.stop.Load() }

func (r *run) phase() phase { return r.policy.phase }

func (r *run) started(rank int) bool { return r.ranks[rank].started }

func (r *run) ended(rank int) bool { return r.ranks[rank].ended }

func (r *run) state(m stateMessage) {
	r.answered(m)
	r.inquiryOver(false)
}

func (r *run) remoteStarted(rank, pid int) {
	r.ranks[rank].pid = pid
	r.rankStarted(started{rank: rank})
}

// errHostLost is the end of a rank whose host is lost, below an agent.
var errHostLost = errors.New("its host is lost")

func (r *run) remoteEnded(e rankEnd) {
	r.ranks[e.Rank].ended = true
	if e.Err == errHostLost {
		r.first().spawns.lose(r.ranks[e.Rank].host)
	}
	r.alive--
	r.endings.note(e.Exit)
	r.do(r.judge().exited(time.Now(), e))
	r.rankGone(e.Rank)
}

func (r *run) remoteLost(rank int) {
	st := r.ranks[rank]
	st.ended = true
	r.alive--
	r.first().spawns.lose(st.host)
	r.rankGone(rank)
	switch {
	case r.parent != nil:
		r.parent.exited(time.Now(), rankEnd{Exit: procs.Exit{Rank: rank, Pid: st.pid, Err: errHostLost}})
	case r.spawned != nil && r.spawned.failed: // the rank that has asked for them has the error
	case r.job.Recover:
		r.policy.deaths.died(r.job.titled(procs.Exit{Rank: rank}), 1)
		r.announceDeath(rank)
	}
}

func (r *run) neverStarted(rank int) {
	r.ranks[rank].ended = true
	r.first().spawns.lose(r.ranks[rank].host)
	r.rankGone(rank)
	if r.parent == nil {
		r.policy.deaths.died(r.job.titled(procs.Exit{Rank: rank}), 1)
		r.announceDeath(rank)
	}
}

func (r *run) fleetStarted() { r.rankStarted(started{last: true}) }

func (r *run) aborted(a abortCall) {
	a.by.Pid, a.by.Host = r.ranks[a.by.Rank].pid, r.hostOf(a.by.Rank)
	r.do(r.judge().aborted(time.Now(), a))
}

func (r *run) cannotStart(err error, code int) { r.do(r.judge().cannotStart(err, code)) }

func (r *run) hostLost(err error) { r.do(r.judge().hostLost(time.Now(), err)) }

func (r *run) hostUnusable(host string) { r.first().spawns.lose(host) }

func (r *run) agentStopped(err error, code int) { r.do(r.judge().agentStopped(time.Now(), err, code)) }

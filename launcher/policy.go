package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// The times of a job that ends badly: from the first failure to the last rank's end within a second.
const (
	// causeWindow is how long the first failure may turn out to be the consequence of another: a rank that sees its
	// peer's sockets close may exit before the kernel reports the death of the peer.
	causeWindow = 30 * time.Millisecond
	// grace is how long the other ranks may report errors of their own.
	grace = 250 * time.Millisecond
	// insist is the time between SIGTERM and SIGKILL.
	insist = 250 * time.Millisecond
)

// dumping is how long the ranks may write their goroutines after SIGQUIT. Tests set it.
var dumping = 2 * time.Second

// phase is how far the end of a job has come. It only grows.
type phase int

const (
	working      phase = iota // nothing has gone wrong
	findingCause              // for causeWindow
	waiting                   // for grace
	terminating               // SIGTERM (or the user's signal) has been sent
	killing                   // SIGKILL has been sent
)

// policy decides which rank caused the end, what gorun prints, and which signals are sent when. Its caller reports what
// happens, gives the time, and carries out the actions.
type policy struct {
	killDelay time.Duration
	recover   bool   // ranks that fail do not end the job
	agentOn   string // the host, if this is the policy of an agent

	phase phase
	next  time.Time // when tick wants to be called; zero: not at all
	cause string    // what is said of it; "": nothing
	code  int       // the job's exit code
	soft  bool      // the cause may still give way to a death by signal, or to the loss of a host
	host  bool      // the cause is the loss of a host
	said  bool      // cause has been said
	first time.Time // when the first failure was seen
}

// action is what is to be done now.
type action struct {
	say    []string
	signal syscall.Signal // to all ranks; 0: none
	hold   bool           // collect the output of each rank: a dump follows
	gone   int            // a rank that has ended, and one more; the job goes on without it; 0: none
}

// exited reports the end of a process. unfinished: it had joined the job and did not call Finalize.
func (p *policy) exited(now time.Time, e Exit, unfinished bool) action {
	bad := e.status() != 0 || unfinished
	if !bad {
		return action{}
	}
	if p.phase == findingCause && p.soft && e.Signal != 0 {
		p.blame(e, unfinished)
		p.soft = false
		return action{}
	}
	if p.phase != working {
		return action{} // a consequence
	}
	if p.recover {
		cause, code := failure(e, unfinished)
		if p.code = cmp.Or(p.code, code); e.Err != nil {
			return action{gone: e.Rank + 1} // its host is lost, which was said
		}
		return action{gone: e.Rank + 1, say: []string{cause + "; the job goes on without it"}}
	}
	p.blame(e, unfinished)
	p.soft = e.Signal == 0
	return p.fail(now)
}

func (p *policy) blame(e Exit, unfinished bool) {
	p.cause, p.code = failure(e, unfinished)
	p.cause += "; the job is stopped"
}

// failure is what is said of a rank that has failed, and the exit code that it gives to the job.
func failure(e Exit, unfinished bool) (cause string, code int) {
	cause, code = e.String(), e.status()
	if code == 0 && unfinished {
		return cause + " without calling Finalize", 1
	}
	return cause, code
}

// aborted reports that a rank called Abort.
func (p *policy) aborted(now time.Time, by Exit, code int, message string) action {
	if p.phase != working {
		return action{}
	}
	p.code = code & 0xff
	if p.code == 0 {
		p.code = 1 // an aborted job has not succeeded, and 256 is no exit code
	}
	p.cause = fmt.Sprintf("rank %d (pid %d on host %s) called Abort with code %d", by.Rank, by.Pid, by.Host, code)
	if m := oneLine(message); m != "" {
		p.cause += ": " + m
	}
	p.cause += "; the job is stopped"
	p.soft = true
	return p.fail(now)
}

func (p *policy) fail(now time.Time) action {
	p.first, p.phase, p.next = now, findingCause, now.Add(causeWindow)
	return action{}
}

// signalled reports a signal to gorun that means stop.
func (p *policy) signalled(now time.Time, s syscall.Signal) action {
	if p.phase >= terminating {
		p.phase, p.next = killing, time.Time{}
		return action{signal: syscall.SIGKILL}
	}
	a := action{signal: s}
	if p.phase == working {
		p.code = 128 + int(s)
		p.cause = stoppedBy(s)
		if p.agentOn != "" {
			p.cause = fmt.Sprintf("the agent on host %s was stopped by signal %d (%s)", p.agentOn, int(s), s)
		}
	}
	a.say = p.last()
	p.phase, p.next = terminating, now.Add(p.killDelay)
	if s == syscall.SIGINT {
		a.say = append(a.say, fmt.Sprintf("interrupt: passed on to the ranks; they are killed in %v, "+
			"or at once by another Ctrl-C", p.killDelay))
	}
	return a
}

// unwritten reports that output cannot be written. Where its reader has gone, a program without ranks dies of SIGPIPE,
// without a word.
func (p *policy) unwritten(now time.Time, err error) action {
	if p.phase != working {
		return action{}
	}
	delay := p.killDelay
	if p.code = 128 + int(syscall.SIGPIPE); !errors.Is(err, syscall.EPIPE) {
		p.code, delay = 1, insist
		p.cause = fmt.Sprintf("the output of the ranks could not be written: %v; the job is stopped", err)
	}
	p.phase, p.next = terminating, now.Add(delay)
	return action{say: p.last(), signal: syscall.SIGTERM}
}

// cannotStart reports that a rank cannot be started. Those that run are killed.
func (p *policy) cannotStart(err error, code int) action {
	if p.phase != working {
		return action{}
	}
	p.code, p.cause = code, err.Error()
	p.phase = killing
	return action{signal: syscall.SIGKILL}
}

// hostLost reports that the agent of a host is gone, and with it the ranks there. A rank elsewhere may have seen their
// end, and have exited, before.
func (p *policy) hostLost(now time.Time, err error) action {
	first := p.phase == working
	if first && p.recover {
		p.code = cmp.Or(p.code, 1)
		return action{say: []string{err.Error() + "; the job goes on without its ranks"}}
	}
	if !first && (p.phase != findingCause || !p.soft || p.host) {
		return action{}
	}
	p.code, p.cause, p.soft, p.host = 1, err.Error()+"; the job is stopped", true, true
	if !first {
		return action{}
	}
	return p.fail(now)
}

// orphaned reports, on the host of an agent, that there is no head any more.
func (p *policy) orphaned(now time.Time) action {
	if p.phase == killing {
		return action{}
	}
	p.phase, p.next = terminating, now.Add(insist)
	return action{signal: syscall.SIGTERM}
}

// leave reports that the job is to end while only the output of its ranks is left.
func (p *policy) leave(code int, cause string) action {
	if p.phase != working {
		return action{}
	}
	p.phase, p.code, p.cause = killing, code, cause
	return action{say: p.last()}
}

// timedOut reports that the time of the job is over.
func (p *policy) timedOut(now time.Time, limit time.Duration) action {
	if p.phase != working {
		return action{}
	}
	p.code, p.said = CodeTimeout, true
	p.cause = fmt.Sprintf("the job did not end within %v", limit)
	p.phase, p.next = terminating, now.Add(dumping)
	return action{hold: true, signal: syscall.SIGQUIT, say: []string{
		p.cause + ": asking every rank for its goroutines (SIGQUIT), then stopping it"}}
}

// tick is called when next has come.
func (p *policy) tick(now time.Time) action {
	if p.next.IsZero() || now.Before(p.next) {
		return action{}
	}
	switch p.phase {
	case findingCause:
		p.phase, p.next = waiting, p.first.Add(grace)
		return action{say: p.last()}
	case waiting:
		p.phase, p.next = terminating, now.Add(insist)
		return action{signal: syscall.SIGTERM}
	}
	p.phase, p.next = killing, time.Time{}
	return action{signal: syscall.SIGKILL}
}

// stoppedBy is the cause of a job's end by a signal to gorun; "" for Ctrl-C, of which the user knows.
func stoppedBy(s syscall.Signal) string {
	if s == syscall.SIGINT {
		return ""
	}
	return fmt.Sprintf("the job was stopped by signal %d (%s)", int(s), s)
}

// last returns the cause if it has not been said.
func (p *policy) last() []string {
	if p.cause == "" || p.said {
		return nil
	}
	p.said = true
	return []string{p.cause}
}

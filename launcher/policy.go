package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/stdio"
)

// The times of a job that ends badly: from the first failure to the last rank's end within a second.
const (
	// causeWindow is how long the first failure may turn out to be the consequence of another: a rank that sees its
	// peer's sockets close may exit before the kernel reports the death of the peer.
	causeWindow = 30 * time.Millisecond
	// consequenceWindow is how long the end may take to be reported that a rank has heard of before gorun has. Where
	// the network has failed and no rank has ended, the job ends that much later.
	consequenceWindow = 3 * time.Second
	// grace is how long the other ranks may report errors of their own.
	grace = stdio.DedupWait
	// insist is the time between SIGTERM and SIGKILL, unless the job says another one.
	insist = 250 * time.Millisecond
	// impatience is how long after SIGKILL the user hears the cause although the job has not ended. Else it is the last
	// line of all.
	impatience = 2 * time.Second
)

// asksFor is how long the ranks may be asked what they do before the end of the job goes on. It is longer than
// patience, and than what it takes to write their goroutines.
const asksFor = 3 * time.Second

// stopped ends the cause of a job's end.
const stopped = "; the job is stopped"

// phase is how far the end of a job has come. It only grows.
type phase int

const (
	working      phase = iota // nothing has gone wrong
	findingCause              // for causeWindow, or consequenceWindow
	waiting                   // for grace
	terminating               // SIGTERM (or the user's signal) has been sent
	killing                   // SIGKILL has been sent
)

// policy decides which rank caused the end, what gorun prints, and which signals are sent when. Its caller reports what
// happens, gives the time, and carries out the actions.
type policy struct {
	killDelay time.Duration
	insist    time.Duration // 0: insist
	recover   bool          // ranks that fail do not end the job
	deaths    *deaths       // of all runs of the job, if recover is set
	step      bool          // the ranks are of a Slurm step, which ends with SIGKILL when one of its hosts is lost
	agentOn   string        // the host, if this is the policy of an agent

	phase phase
	next  time.Time // when tick wants to be called; zero: not at all
	cause string    // what is said of it; "": nothing
	code  int       // the job's exit code
	text  bool      // cause is the program's own text
	soft  bool      // the cause may still give way to a death by signal, or to the loss of a host
	weak  bool      // the cause is a consequence of an end that is still to be reported, and gives way to any other one
	host  bool      // the cause is the loss of a host or its agent
	agent bool      // the cause is a signal to an agent, or of a step, and may still give way to the loss of a host
	said  bool      // cause has been said
	first time.Time // when the first failure was seen

	texts map[string]bool // of ranks that have called Abort, as gist has them
}

// rankEnd is the end of the process of a rank.
type rankEnd struct {
	procs.Exit
	unfinished  bool // the rank had joined the job and did not call Finalize
	consequence bool // the rank had heard of the end of another one
}

// abortCall is a rank's call of Abort.
type abortCall struct {
	by          procs.Exit // what is known of the rank, which runs
	code        int
	message     string // why; "": the rank does not say
	consequence bool   // the rank has heard of the end of another one
}

// action is what is to be done now.
type action struct {
	say    []string       // lines of gorun
	print  []string       // lines of the program
	signal syscall.Signal // to all ranks; 0: none
	ask    bool           // the ranks what they do, for the user
	gone   int            // a rank that has ended, and one more; the job goes on without it; 0: none
}

// exited reports the end of a process.
func (p *policy) exited(now time.Time, e rankEnd) action {
	bad := e.Status() != 0 || e.unfinished
	if !bad {
		return action{}
	}
	switch {
	case p.gives() && !e.consequence && !p.recover:
		p.blame(e)
		return p.fail(now)
	case p.phase == findingCause && p.soft && !p.weak && e.Signal != 0 && !e.consequence:
		p.blame(e)
		p.soft = false
		return action{}
	case p.phase != working:
		return action{} // a consequence
	}
	if p.recover {
		cause, code := e.failure()
		if p.deaths.died(e.Exit, code); e.Err != nil {
			return action{gone: e.Rank + 1} // its host is lost, which was said
		}
		return action{gone: e.Rank + 1, say: []string{cause + p.deaths.goesOnWithout(e.Exit)}}
	}
	p.blame(e)
	return p.fail(now)
}

// result is the exit code of the job.
func (p *policy) result() int {
	if p.phase == working && p.deaths != nil {
		return cmp.Or(p.code, p.deaths.code())
	}
	return p.code
}

// gives reports whether the cause gives way to any end that is no consequence.
func (p *policy) gives() bool { return p.phase == findingCause && p.weak }

func (p *policy) blame(e rankEnd) {
	p.cause, p.code = e.failure()
	p.cause += stopped
	p.soft, p.weak, p.text = e.Signal == 0 || e.consequence, e.consequence, false
	p.agent = p.step && e.Signal == syscall.SIGKILL
}

// failure is what is said of a rank that has failed, and the exit code that it gives to the job.
func (e rankEnd) failure() (cause string, code int) {
	cause, code = e.String(), e.Status()
	if code == 0 && e.unfinished {
		return cause + " without calling Finalize", 1
	}
	return cause, code
}

// aborted reports that a rank called Abort.
func (p *policy) aborted(now time.Time, a abortCall) action {
	weak := a.consequence && !p.recover // a job that goes on without ranks ends by a decision
	text := oneLine(a.message)
	if p.phase != working && (weak || !p.gives()) {
		return p.another(a.by, text, weak)
	}
	p.code = a.code & 0xff
	if p.code == 0 {
		p.code = 1 // an aborted job has not succeeded, and 256 is no exit code
	}
	p.cause, p.text = ofRank(a.by, text), true
	if text == "" {
		p.cause = fmt.Sprintf("%s (pid %d on host %s) called Abort with code %d"+stopped,
			a.by.Name(), a.by.Pid, a.by.Host, a.code)
		p.text = false
	}
	p.soft, p.weak = true, weak
	p.texts = map[string]bool{gist(text): true}
	return p.fail(now)
}

// another is what is printed of a further Abort: a text that no rank has given before, while ranks may still report
// errors of their own.
func (p *policy) another(by procs.Exit, text string, weak bool) action {
	if weak || text == "" || p.texts[gist(text)] || p.phase >= terminating {
		return action{}
	}
	if p.texts == nil {
		p.texts = map[string]bool{}
	}
	p.texts[gist(text)] = true
	return action{print: []string{ofRank(by, text)}}
}

// gist is a text without the name of a collective call that package mpi has put in front: ranks that make different
// calls hear in the same words that these do not go together. It has no number of the rank from which they have heard.
func gist(text string) string {
	rest, ours := strings.CutPrefix(text, "mpi: ")
	op, what, found := strings.Cut(rest, ": ")
	if !ours || !found || strings.Contains(op, " ") && !strings.Contains(op, " on ") {
		return text
	}
	if from, said, found := strings.Cut(what, ": "); found {
		if number, ok := strings.CutPrefix(from, "rank "); ok && number != "" && strings.Trim(number, "0123456789") == "" {
			return said
		}
	}
	return what
}

// ofRank is a text of a rank with the place where the rank runs.
func ofRank(by procs.Exit, text string) string {
	return fmt.Sprintf("%s on %s: %s", by.Name(), by.Host, text)
}

// fail begins the end of the job. It may be called again for the end that is behind a consequence.
func (p *policy) fail(now time.Time) action {
	window := causeWindow
	switch {
	case p.weak:
		window = consequenceWindow
	case p.agent:
		window = grace
	}
	p.first, p.phase, p.next = now, findingCause, now.Add(window)
	return action{}
}

// signalled reports a signal to gorun that means stop.
func (p *policy) signalled(now time.Time, s syscall.Signal) action {
	if p.phase >= terminating {
		p.phase, p.next = killing, time.Time{}
		return action{signal: syscall.SIGKILL}
	}
	a := action{signal: s}
	if p.phase == working && s == syscall.SIGQUIT && p.agentOn == "" {
		p.code, p.cause = 128+int(s), stoppedBy(s)
		return p.askFirst(now)
	}
	if p.phase == working {
		p.code = 128 + int(s)
		if p.cause = stoppedBy(s); p.agentOn != "" {
			p.cause = "" // the head says it, once for all agents
		}
		a = p.last()
		a.signal = s
	}
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
	a := p.last()
	a.signal = syscall.SIGTERM
	return a
}

// cannotStart reports that a rank cannot be started. Those that run are killed.
func (p *policy) cannotStart(err error, code int) action {
	if p.phase != working && !p.gives() {
		return action{}
	}
	p.code, p.cause, p.text, p.next = code, err.Error(), false, time.Time{}
	p.phase = killing
	return action{signal: syscall.SIGKILL}
}

// hostLost reports that the agent of a host is gone, and with it the ranks there. A rank elsewhere may have seen their
// end, and have exited, before.
func (p *policy) hostLost(now time.Time, err error) action {
	first := p.phase == working
	if first && p.recover {
		if !p.deaths.hostLost(err.Error()) { // ranks of another run were there too
			return action{}
		}
		return action{say: []string{err.Error() + p.deaths.goesOn("its ranks")}}
	}
	if !first && (p.phase != findingCause || !p.agent && (!p.soft || p.host)) {
		return action{}
	}
	restart := first || p.weak
	p.agent = false
	p.code, p.cause, p.soft, p.host = 1, err.Error()+stopped, true, true
	if p.weak, p.text = false, false; !restart {
		return action{}
	}
	return p.fail(now)
}

// agentStopped reports that a signal has ended an agent, and with it its ranks: all agents of a Slurm step that ends
// get one. Their ranks may get it too, and die of it before. A step may end because one of its agents was killed, whose
// loss may be heard of later.
func (p *policy) agentStopped(now time.Time, err error, code int) action {
	switch {
	case p.recover && p.phase == working:
		return action{say: []string{err.Error()}}
	case p.phase != working && !p.gives() && (p.phase != findingCause || p.host || p.code != code):
		return action{}
	}
	p.code, p.cause, p.host, p.text, p.soft, p.weak = code, err.Error()+stopped, true, false, false, false
	p.agent = true
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
	return p.last()
}

// askFirst begins the end of the job with a question to the ranks.
func (p *policy) askFirst(now time.Time) action {
	p.first, p.phase, p.next = now, waiting, now.Add(asksFor)
	return action{ask: true}
}

// asked reports that the ranks have answered.
func (p *policy) asked(now time.Time) action {
	if p.phase == waiting {
		p.next = now
	}
	return p.tick(now)
}

// stalled reports that no rank can move, and that the job is to end then.
func (p *policy) stalled(now time.Time, limit time.Duration) action {
	if p.phase != working {
		return action{}
	}
	p.code = CodeStalled
	p.cause = fmt.Sprintf("no rank could move for %v (--stall abort)", limit) + stopped
	p.first, p.phase, p.next = now, waiting, now
	return p.tick(now)
}

// timedOut reports that the time of the job is over. The cause comes once more at the end, below the table.
func (p *policy) timedOut(now time.Time, limit time.Duration) action {
	if p.phase != working {
		return action{}
	}
	p.code = CodeTimeout
	p.cause = fmt.Sprintf("the job did not end within %v", limit)
	a := p.askFirst(now)
	a.say = []string{p.cause + ": asking every rank what it does, then stopping it"}
	return a
}

// tick is called when next has come.
func (p *policy) tick(now time.Time) action {
	if p.next.IsZero() || now.Before(p.next) {
		return action{}
	}
	switch p.phase {
	case findingCause:
		p.phase, p.next = waiting, p.first.Add(grace)
		return action{}
	case waiting:
		p.phase, p.next = terminating, now.Add(cmp.Or(p.insist, insist))
		return action{signal: syscall.SIGTERM}
	case killing:
		p.next = time.Time{}
		if p.cause == "" || p.said {
			return action{}
		}
		return action{say: []string{"its ranks have been killed and the job has not ended yet, because of: " +
			strings.TrimSuffix(p.cause, stopped)}}
	}
	p.phase, p.next = killing, now.Add(impatience)
	return action{signal: syscall.SIGKILL}
}

// stoppedBy is the cause of a job's end by a signal to gorun; "" for Ctrl-C, of which the user knows.
func stoppedBy(s syscall.Signal) string {
	if s == syscall.SIGINT {
		return ""
	}
	return fmt.Sprintf("the job was stopped by signal %d (%s)", int(s), s)
}

// last returns the cause if it has not been said. It is the last line that a user reads.
func (p *policy) last() action {
	if p.cause == "" || p.said {
		return action{}
	}
	p.said = true
	if p.text {
		return action{print: []string{p.cause}}
	}
	return action{say: []string{p.cause}}
}

package pml

import "fmt"

// waitState says who polls, who sleeps, and what will wake the one who sleeps: the state behind wait.go. It is pure: no
// device, no clock, no lock; the caller holds the engine's.
//
//	          lead                  park
//	noLeader ─────► leaderPolls ◄────────► leaderParked      a caller that waits for its own request
//	         ◄─────             wakeLeader, unpark
//	        stopLeading         yieldLeader
//	                            ◄────────► leaderYields
//	                            resumeLeader
//
//	        wakeWatcher              begin                yield
//	watcherAsleep ───► watcherWoken ──────► watcherPolls ◄───────► watcherYields     the goroutine that stands in for
//	              ◄────────────────────────              resume                      callers
//	                         rest
//
// The two are independent: a caller may begin to lead while the watcher polls, which then goes back to sleep.
type waitState struct {
	leader    leaderState
	watcher   watcherState
	armed     armedLevel // what the device wakes the watcher for; or it has, and the watcher is about to come
	followers int        // callers that sleep until their own requests are done; and channels of Done
	mayEnd    int        // callers that sleep until their contexts end, if not before
	rounds    int        // operations of several rounds: each message may be what the next round waits for
	// calling: an operation is being started whose caller is about to wait for it, or looks for its end.
	calling bool
	// untilDone: a look takes short messages only as long as something is outstanding.
	untilDone bool
	// missed: the watcher was woken while a caller led. That may not look again, since what it waits for was done while
	// it let others run, and what the watcher was woken for shows itself only once (wire.Wake).
	missed bool
	// resting: the watcher has left messages in the device, and comes back in a moment.
	resting bool
}

type leaderState uint8

const (
	noLeader     leaderState = iota
	leaderPolls              // or has offered the lock, and looks when it has it again
	leaderYields             // it lets other goroutines or processes run, and then polls
	leaderParked             // it sleeps in the device
)

type watcherState uint8

const (
	watcherAsleep watcherState = iota
	watcherWoken               // its sleep has been ended, and it has not come yet
	watcherPolls
	watcherYields // it lets others run, and then polls
)

// armedLevel is what a device is armed for, on behalf of the watcher.
type armedLevel uint8

const (
	armedNot    armedLevel = iota
	armedUrgent            // only peers that wait for an answer count
	armedAny               // a caller waits
)

// load is what an engine has under way.
type load struct {
	outstanding int  // requests and probes that are not complete
	detached    int  // those of them that no caller will collect
	serving     int  // those of these that may never end: see Engine.excuse
	pending     int  // work that no packet will remind it of
	stalled     int  // links that have refused something; Room will say when they have room
	ended       bool // this rank makes no call any more: the watcher reads what others still send
	completed   uint // requests that have completed, ever
}

// open is how many operations of callers are under way.
func (l *load) open() int { return max(0, l.outstanding-l.detached) }

// flushed reports whether all is over that is to be over before the rank ends.
func (l *load) flushed() bool { return l.outstanding <= l.serving && l.pending|l.stalled == 0 }

func (l *load) none() bool { return l.outstanding|l.pending|l.stalled == 0 && !l.ended }

// lead reports whether the caller leads from now on: no other one did.
func (s *waitState) lead() bool {
	if s.leader != noLeader {
		return false
	}
	s.leader, s.armed, s.missed = leaderPolls, armedNot, false
	return true
}

func (s *waitState) stopLeading() { s.leader = noLeader }

// park is called when the leader goes to sleep in the device. The caller has seen that nothing is pending.
func (s *waitState) park() { s.leader = leaderParked }

// unpark is called when the leader is back, for whatever reason.
func (s *waitState) unpark() { s.leader, s.armed = leaderPolls, armedNot }

// wakeLeader reports whether the device must be interrupted for it.
func (s *waitState) wakeLeader() bool {
	if s.leader != leaderParked {
		return false
	}
	s.leader = leaderPolls
	return true
}

// yieldLeader is called when the leader lets others run for a while, resumeLeader when it has.
func (s *waitState) yieldLeader()  { s.leader = leaderYields }
func (s *waitState) resumeLeader() { s.leader = leaderPolls }

// mayPoll reports whether a caller that has the lock may look at the device for itself: no leader does so at this
// moment. It is the one answer for all calls. A look does not end what the device is armed for, be it for the thread of
// a leader that sleeps, and a leader sees by its request what the look has brought.
func (s *waitState) mayPoll() bool { return s.leader != leaderPolls }

// need is what must be done before the lock is given up.
type need uint8

const (
	needNothing need = iota
	needUrgent       // arm the device for what is urgent
	needAny          // arm it for everything
	needWatcher      // wake the watcher
)

// needs: where no caller leads, the watcher must be woken: for everything if a caller waits or an operation has several
// rounds, else for what peers wait for.
func (s *waitState) needs(l *load) need {
	want := armedUrgent
	if s.followers|s.rounds > 0 || l.ended {
		want = armedAny
	}
	switch {
	case s.leader != noLeader || s.watcher == watcherWoken || l.none():
		return needNothing // a watcher that has been woken arms by itself, once there is nothing to poll
	case l.pending != 0:
		return needWatcher // nothing will arrive to remind it of that
	case s.armed >= want:
		return needNothing
	case want == armedAny:
		return needAny
	}
	return needUrgent
}

// isArmed: the device has been armed as needs has said. isNot: it refuses, since there is something to poll, and an
// earlier arming is over.
func (s *waitState) isArmed(n need) {
	if s.armed = armedUrgent; n == needAny {
		s.armed = armedAny
	}
}
func (s *waitState) isNot() { s.armed = armedNot }

// wakeWatcher reports whether the device must be interrupted for it.
func (s *waitState) wakeWatcher() bool {
	if s.watcher != watcherAsleep {
		return false
	}
	s.watcher = watcherWoken
	return true
}

// beginWatcher is called when the watcher has come.
func (s *waitState) beginWatcher() {
	s.watcher, s.armed, s.missed = watcherPolls, armedNot, s.leader != noLeader
}

// yieldWatcher is called when the watcher lets others run for a while, resumeWatcher when it has.
func (s *waitState) yieldWatcher()  { s.watcher = watcherYields }
func (s *waitState) resumeWatcher() { s.watcher = watcherPolls }

// standIn lets another goroutine do what the watcher would, without giving up the lock; standBack ends it.
func (s *waitState) standIn() (was watcherState) {
	was, s.watcher = s.watcher, watcherPolls
	return was
}

func (s *waitState) standBack(was watcherState) { s.watcher = was }

// restWatcher is called when the watcher sleeps again.
func (s *waitState) restWatcher() { s.watcher = watcherAsleep }

// computing reports whether no caller of this rank waits in the library, so that what it does itself is taken from a
// computation.
func (s *waitState) computing() bool { return s.leader == noLeader && !s.calling && s.followers == 0 }

// watching reports whether the watcher does what is done just now.
func (s *waitState) watching() bool { return s.watcher == watcherPolls }

// check says why nothing would go on with what is under way if the lock were given up now.
//
// Invariant: if operations are outstanding, work is pending or a link is stalled, then a caller leads and does not
// sleep over pending work, or the watcher is not asleep, or nothing is pending and the device is armed for the watcher:
// for everything if a caller waits.
func (s *waitState) check(l *load) error {
	switch {
	case l.none() || s.leader == leaderPolls || s.leader == leaderYields || s.watcher != watcherAsleep:
		return nil
	case s.leader == leaderParked && l.pending == 0:
		return nil
	case s.leader == noLeader && s.needs(l) == needNothing:
		return nil
	}
	return fmt.Errorf("nothing goes on: %+v, under way %+v", *s, *l)
}

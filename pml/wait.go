package pml

import (
	"context"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// Waiting. This is the only file that may sleep; who may, and what is done before, is waitstate.go's to say.
//
// At most one caller polls: the leader. It spins for a while, then sleeps in the kernel (Park(true)) where the next
// packet wakes it without a detour through the scheduler. Callers that come while there is a leader are followers:
// each sleeps on a channel of its own until its own request is complete.
//
// When no caller is in the library but operations are under way, the watcher, a goroutine that sleeps in Park(false),
// takes over: exitCall arms the device for it. So an operation that was started completes although its rank computes.
//
// Invariant: waitState.check, whenever the lock is given up.

const (
	// contextCheck polls happen between two looks at the context.
	contextCheck = 1024
	// The watcher polls for attendSpin at most for callers that wait: other goroutines may want the processor. A
	// stream's next fragment is worth attendStream, since giving the processor back to a computation costs a time slice.
	attendSpin   = 200 * time.Microsecond
	attendStream = 100 * time.Microsecond
)

// waitFor is what a caller waits for: one request, any of a set, or all that no caller will collect; or nothing, for a
// look that does not wait.
type waitFor struct {
	e   *Engine
	r   *Request
	set claimed
	// seen is load.completed when no request of set was done; looked: that is known.
	seen      uint
	looked    bool
	flush     bool
	cc        context.Context // ends the waiting; nil: nothing does
	slept     bool            // the boards have been told of it
	announced bool            // the receivers have been told that the caller waits
}

func (w *waitFor) ready() bool {
	if w.r != nil {
		return w.r.state == stDone
	}
	if w.flush {
		return w.e.closed != nil || w.e.load.open() > 0 || w.e.load.flushed()
	}
	if w.looked && w.seen == w.e.load.completed {
		return false
	}
	for i := range w.set.set {
		if r := w.set.at(i); r != nil && r.state == stDone {
			return true
		}
	}
	w.seen, w.looked = w.e.load.completed, true
	return false
}

// called reports whether there is local work of what the caller waits for.
func (w *waitFor) called() bool {
	return w.r != nil && w.r.op == opRounds && w.r.rounds.queued
}

// longer is called once in a while where the leader finds things, but not what it waits for. It reports whether the
// leader is to stop.
func (w *waitFor) longer() bool {
	w.e.links.letSendersGoOn(w)
	w.blocks()
	return w.ended()
}

func (w *waitFor) ended() bool { return w.cc != nil && w.cc.Err() != nil }

// await returns when r is done. If r's context ends first, r is cancelled, and if that comes too late, completed. It
// reports whether that took so long that r's receiver, if r is a send, has been told that a caller waits.
func (e *Engine) await(r *Request) (long bool) {
	if r.cctx == nil && e.wait.mayPoll() && e.links.transfers.none() {
		// The first thing that a leader does is all that it does in a stream of messages. The device may stay armed
		// meanwhile: no peer asks whether this rank polls while no transfer is under way.
		e.wait.calling, e.wait.untilDone = true, true
		e.progress()
		e.wait.calling, e.wait.untilDone = false, false
		if r.state == stDone {
			return false
		}
	}
	w := waitFor{e: e, r: r, cc: r.cctx}
	r.awaited = r.op == opRounds
	for !w.ready() {
		if w.called() {
			e.schedules.do(r)
			continue
		}
		if w.block() != nil {
			e.cancel(r, r.cctx.Err())
			w.cc = nil // once is enough
		}
	}
	if w.slept {
		e.boards.awake(&w)
	}
	return w.announced
}

// block returns when w is ready or its context has ended, or (rarely) before. The lock is held, and given up meanwhile.
func (w *waitFor) block() error {
	if w.cc != nil {
		if err := w.cc.Err(); err != nil {
			return err
		}
	}
	if !w.tryLead() && !w.ready() && !w.called() {
		return w.follow()
	}
	return nil
}

// tryLead leads, unless another caller does. It reports whether it has led: otherwise the caller should follow.
func (w *waitFor) tryLead() bool {
	if w.e.gone || !w.e.wait.lead() {
		return false
	}
	w.e.sleep.Disarm()
	follow := w.lead()
	if w.e.pace.woken { // what w waits for was done by another caller, or its context has ended
		w.e.pace.learn()
	}
	w.e.stopLeading()
	return !follow
}

// stopLeading ends tryLead. What the watcher was woken for while the caller led may lie behind more than one look
// finds: then the watcher is woken again, and looks until there is nothing.
func (e *Engine) stopLeading() {
	more := e.wait.missed && e.progress() != 0
	e.wait.stopLeading()
	if more && e.wait.wakeWatcher() {
		e.sleep.Interrupt()
	}
}

// lead polls until w is ready, something else must be looked at, or the caller should rather follow. It reports whether
// the caller should follow.
func (w *waitFor) lead() (follow bool) {
	e := w.e
	e.pace.begin()
	for polls := 1; ; polls++ {
		next := e.look()
		switch {
		case e.gone:
			return true
		case w.ready() || w.called() || polls%contextCheck == 0 && w.longer():
			return false
		case next == stepPoll:
		case next == stepPark:
			w.blocks()
			if follow := w.park(); follow || w.ended() {
				return follow
			}
		default:
			if next == stepStalled {
				w.blocks()
			}
			e.pause(next)
			if w.ready() {
				return false
			}
		}
	}
}

// pollFor is for how long the leader or the watcher polls when nothing comes.
func (e *Engine) pollFor() time.Duration {
	switch yields, waited := e.pace.policy.YieldCPU, e.wait.followers > 0; {
	case e.wait.leader != noLeader && yields && waited:
		return 0 // to let other processes run would not let those goroutines run
	case e.wait.leader != noLeader:
		return e.pace.spinFor()
	case e.load.none():
		return 0
	case e.links.worklist.streaming():
		return attendStream
	case waited && !yields:
		return min(e.pace.spinFor(), attendSpin)
	}
	return 0
}

// look polls once, and says what is to be done then.
func (e *Engine) look() step {
	if e.progress() != 0 {
		e.pace.came()
	} else if next := e.pace.next(e.pollFor(), e.wait.leader != noLeader); next != stepPoll {
		return next
	}
	if e.asked() {
		return stepOffer
	}
	return stepPoll
}

// pause does a step that neither polls nor parks. Only a leader yields (pace.next).
func (e *Engine) pause(s step) {
	switch s {
	case stepOffer:
		e.offer()
	case stepYield:
		e.wait.yieldLeader()
		began := e.pace.now()
		called := e.offer()
		e.wait.resumeLeader()
		e.pace.hasYielded(began, called)
	case stepYieldCPU:
		e.wait.yieldLeader()
		e.unlock()
		yieldProcessor()
		e.lock()
		e.wait.resumeLeader()
	case stepStalled:
		if e.path.stalled() {
			e.pace.came()
		}
	}
}

// giveWay lets others have the lock, and the processor, where something keeps the one who polls awake. A request of a
// window that is to be handled again may do so until another goroutine has run, which need not call the library.
func (e *Engine) giveWay() {
	if e.windows.again > 0 || e.asked() {
		e.offer()
	}
}

// park puts the leader's thread to sleep until something arrives. It reports whether the caller should follow instead,
// because other goroutines want the only processor. Then the watcher does the waiting: a thread that sleeps in the
// kernel keeps its processor from them until the scheduler's monitor notices. With more processors there is another for
// them.
func (w *waitFor) park() (follow bool) {
	e := w.e
	if e.pace.oneProcessor && e.pace.busyYields > 0 {
		return true
	}
	if w.sleeps() {
		return false
	}
	if e.links.transfers.inbound > 0 && e.links.letSendersGoOn(w) { // which were passed over, as w was not known
		e.pace.came()
		return false
	}
	if e.gone || e.load.pending != 0 || !e.sleep.Arm(transport.Any, true) {
		e.giveWay()
		e.pace.came()
		return false
	}
	e.links.vigil.begin()
	e.wait.park()
	e.parked.begin(e)
	w.attach(&e.parked)
	ends := w.cc != nil && w.cc.Done() != nil
	if ends {
		e.wait.mayEnd++
	}
	e.unlock()
	if !ends {
		e.sleep.Park(true)
	} else {
		stop := context.AfterFunc(w.cc, e.sleep.Interrupt)
		if w.cc.Err() == nil {
			e.sleep.Park(true)
		}
		stop()
	}
	e.lock()
	if ends {
		e.wait.mayEnd--
	}
	if e.wait.leader != leaderParked {
		e.wanted.Add(-away)
	}
	e.wait.unpark()
	w.attach(nil)
	e.sleep.Disarm()
	e.pace.hasParked()
	return false
}

// follow sleeps until w's requests are done, while another caller or the watcher polls.
func (w *waitFor) follow() error {
	if w.sleeps() {
		return nil
	}
	w.blocks()
	e, own := w.e, w.sema()
	ch := own.channel()
	select {
	case <-ch: // left over from an earlier wait
	default:
	}
	w.attach(own)
	own.begin(e)
	e.wait.followers++
	if e.links.transfers.inbound > 0 && len(e.links.wanting) > 0 {
		e.links.unheard = true // the leader may have passed senders over: it waits for another message
	}
	e.links.vigil.begin()
	e.exitCall()
	var err error
	if w.cc == nil {
		e.unlock()
		<-ch
		e.lock()
	} else {
		e.wait.mayEnd++
		e.unlock()
		select {
		case <-ch:
		case <-w.cc.Done():
			err = w.cc.Err()
		}
		e.lock()
		e.wait.mayEnd--
	}
	e.wait.followers--
	w.attach(nil)
	return err
}

// serveWait returns when r is done. The server never leads: it would spin on a processor for which it has nothing to
// do, while callers, or the goroutines that do what has come, wait for that. Nor is it a follower, for which a leader
// sleeps early. Every arrival counts, as for a window.
func (e *Engine) serveWait(r *Request) {
	e.excuse(r)
	e.wait.rounds++
	for ch := r.own.channel(); r.state != stDone; {
		select {
		case <-ch: // left over from an earlier wait
		default:
		}
		r.w = &r.own
		e.exitCall()
		e.unlock()
		<-ch
		e.lock()
	}
	e.wait.rounds--
}

// sleeps tells the boards that w is about to sleep. It reports whether w must stay awake, since that has ended w or
// left it local work.
func (w *waitFor) sleeps() bool {
	if len(w.e.boards.all) == 0 {
		return false
	}
	w.slept = true
	w.e.boards.sleeps(w)
	return w.ready() || w.called()
}

// lookedInVain is called where a caller looks at what w says, which is not done, and does not wait.
func (e *Engine) lookedInVain(w *waitFor) {
	e.boards.glances(w)
	e.links.foundNothing(w)
	w.each(e.links.triedInVain)
	e.links.vigil.begin()
}

// blocks tells the receivers of what w waits for that its caller does, once.
func (w *waitFor) blocks() {
	if w.announced {
		return
	}
	w.announced = true
	w.each(w.e.links.saysBlocked)
}

// each calls f with each request of w.
func (w *waitFor) each(f func(*Request)) {
	if w.r != nil {
		f(w.r)
	}
	for i := range w.set.set {
		if r := w.set.at(i); r != nil {
			f(r)
		}
	}
}

// requestOn is the first request of w that has that context and is under way; nil: there is none.
func (w *waitFor) requestOn(ctx uint32) *Request {
	if r := w.r; r != nil {
		if r.op == opBoard || r.recv.Ctx != ctx || r.state != stActive {
			return nil
		}
		return r
	}
	for i := range w.set.set {
		if r := w.set.at(i); r != nil && r.recv.Ctx == ctx && r.state == stActive {
			return r
		}
	}
	return nil
}

// has reports whether w waits for r.
func (w *waitFor) has(r *Request) bool {
	return r != nil && (r == w.r || w.set.by != 0 && r.claimed == w.set.by)
}

// sema is that of the first request.
func (w *waitFor) sema() *sema {
	if w.r != nil {
		return &w.r.own
	}
	for i := range w.set.set {
		if r := w.set.at(i); r != nil {
			return &r.own
		}
	}
	return new(sema)
}

func (w *waitFor) attach(own *sema) {
	if w.r != nil {
		w.r.w = own
		return
	}
	for i := range w.set.set {
		if r := w.set.at(i); r != nil && r.state == stActive {
			r.w = own
		}
	}
}

// exitCall is called at the end of every call, before the lock is given up.
func (e *Engine) exitCall() {
	if e.load.outstanding|e.load.pending|e.load.stalled != 0 { // else it needs nothing, and that is seen without a call
		e.arm()
	}
}

// arm makes sure that the watcher is woken when it must be.
func (e *Engine) arm() {
	if e.wait.armed != armedNot && e.load.pending|e.wait.followers|e.wait.rounds == 0 {
		return // as it is while receives are posted
	}
	e.schedules.advance()
	e.windows.tell(e)
	e.links.lookAgain()
	if e.load.pending != 0 { // the leader does not know of what this rank has sent itself
		e.wakeLeader()
	}
	if n := e.wait.needs(&e.load); n != needNothing && !e.gone {
		e.armFor(n)
	}
}

func (e *Engine) armFor(n need) {
	for tries := 0; tries < 8 && n != needWatcher; tries++ {
		// What has come is looked at first, and no more of it taken than was posted for: what is left in the links costs
		// this rank nothing, and holds back its senders. Where nothing is posted, a look would only let leave what the
		// device holds.
		if e.load.outstanding != 0 || tries > 0 {
			e.wait.untilDone = true
			e.progress()
			e.wait.untilDone = false
		}
		if n = e.wait.needs(&e.load); n == needNothing || n == needWatcher {
			break
		}
		level := transport.Urgent
		if n == needAny {
			level = transport.Any
		}
		if e.sleep.Arm(level, false) {
			e.wait.isArmed(n)
			return
		}
		e.wait.isNot()
	}
	if n == needNothing {
		return
	}
	if e.wait.wakeWatcher() {
		e.sleep.Interrupt()
	}
}

// wakeLeader wakes the leader if it sleeps.
func (e *Engine) wakeLeader() {
	if e.wait.wakeLeader() {
		e.wanted.Add(away)
		e.sleep.Interrupt()
	}
}

// watch is the watcher.
func (e *Engine) watch() {
	defer e.wg.Done()
	for {
		e.sleep.Park(false)
		e.lock()
		if e.gone {
			e.unlock()
			return
		}
		if e.wait.leader == noLeader {
			e.sleep.Disarm()
		}
		e.wait.beginWatcher()
		e.attend()
		e.wait.restWatcher()
		e.unlock()
	}
}

// attend polls until there is nothing to do and the device is armed, or a caller leads.
func (e *Engine) attend() {
	if e.wait.leader == noLeader {
		e.pace.beginWoken()
	}
	for idle := 0; e.wait.leader == noLeader && !e.gone; {
		next := e.look()
		if e.load.none() {
			if next != stepPoll && next != stepOffer {
				return
			}
			if idle++; e.leaves(idle) {
				return
			}
		}
		switch {
		case next == stepPoll:
		case next == stepPark:
			// Armed is not enough: what came while arm tried may have posted a receive, which arms, and left work.
			if e.arm(); e.wait.needs(&e.load) == needNothing && !e.links.hears() {
				return
			}
			e.wait.yieldWatcher()
			e.giveWay()
			e.wait.resumeWatcher()
		default:
			e.wait.yieldWatcher()
			e.pause(next)
			e.wait.resumeWatcher()
		}
	}
}

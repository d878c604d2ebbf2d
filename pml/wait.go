package pml

import (
	"context"
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// Waiting. This is the only file that may sleep.
//
// At most one caller polls: the leader. It spins for a while, then sleeps in the kernel (Park(true)) where the next
// packet wakes it without a detour through the scheduler. Callers that come while there is a leader are followers:
// each sleeps on a channel of its own until its own request is complete.
//
// When nobody is in the library but operations are under way, the watcher, a goroutine that sleeps in Park(false),
// takes over: leave arms the device for it. So an operation that was started completes although its rank computes.
//
// Invariant: if operations are outstanding, work is pending or a link is stalled (an answer that found it full), then a
// caller leads, or the watcher runs, or the device is armed for the watcher.

type armedFor uint8

const (
	forNothing armedFor = iota
	forUrgent
	forAny
)

const (
	// minSpin is about what a sleep and the waking cost. Less would save little, and two ranks that sleep in each turn of
	// a ping-pong are each too slow for the other's spin: they would go on sleeping.
	firstSpin = 50 * time.Microsecond
	minSpin   = 50 * time.Microsecond
	maxSpin   = 200 * time.Microsecond
	// A wait that has slept and was over within shortWait would have been better spun through: the next one spins for
	// twice as long as it took, up to longSpin. That is for devices whose sleep and waking cost far more than minSpin,
	// such as soft-RoCE (docs/decisions/0022-soft-roce-latency.md).
	shortWait = time.Millisecond
	longSpin  = 2 * shortWait
	// crowdedWait is the same for a crowded rank, which gives way for as long as another would spin: where all sleep, a
	// token of 32 ranks needs a millisecond or two to come round, and must not keep them asleep for that.
	crowdedWait = 4 * shortWait

	// spinCheck polls happen between two looks at the clock.
	spinCheck = 64
	// contextCheck polls happen between two looks at the context while packets come without end.
	contextCheck = 1024
	// yieldAfter is how long the leader spins before it lets other goroutines of its rank run, and how often then.
	yieldAfter = 20 * time.Microsecond
	// firstBackoff is how long to sleep when a link is blocked: the peer does not say when it has made room. As long as
	// nothing happens the sleeps become longer, each by an eighth, so that room is noticed late by about an eighth of
	// the time that it took, and a peer that computes for seconds is not looked at 1,000 times a second.
	firstBackoff = 20 * time.Microsecond
	lastBackoff  = 4 * time.Millisecond
	// wayTime is how long a crowded rank gives way at least before it sleeps.
	wayTime = 80 * time.Microsecond
	// busyRank is how long a yield takes at least if another goroutine has used it.
	busyRank = 5 * time.Microsecond
)

// want is what a caller waits for: one request, or any of a set.
type want struct {
	r   *Request
	set Set
	cc  context.Context // ends the waiting; nil: nothing does
}

func (w *want) ready() bool {
	if w.r != nil {
		return w.r.state == stDone
	}
	for i := range w.set {
		if r := w.set.at(i); r != nil && r.state == stDone {
			return true
		}
	}
	return false
}

// await returns when r is done. If r's context ends first, r is cancelled, and if that comes too late, completed.
func (e *Engine) await(r *Request) {
	w := want{r: r, cc: r.cctx}
	for !w.ready() {
		if e.block(&w) != nil {
			e.cancel(r, r.cctx.Err())
			w.cc = nil // once is enough
		}
	}
}

// block returns when w is ready or its context has ended, or (rarely) before. The lock is held, and given up meanwhile.
func (e *Engine) block(w *want) error {
	if w.cc != nil {
		if err := w.cc.Err(); err != nil {
			return err
		}
	}
	if e.leading {
		return e.follow(w)
	}
	e.leading = true
	follow := e.lead(w)
	e.leading = false
	if follow && !w.ready() {
		return e.follow(w)
	}
	return nil
}

// lead polls until w is ready, something else must be looked at, or (true) the caller should rather follow.
func (e *Engine) lead(w *want) bool {
	e.dev.Disarm()
	e.armed = forNothing
	idle, spun := 0, false
	var since, yielded time.Time
	for polls := 1; ; polls++ {
		if e.progress() != 0 {
			idle, e.backoff = 0, 0
		} else {
			idle++
			if e.hosted && e.cfg.Spin != 0 {
				yieldProcessor() // to the threads that are the device
			}
		}
		if w.ready() {
			if spun && e.spin < maxSpin {
				e.spin = min(e.spin*2, maxSpin)
			}
			return false
		}
		if e.woke || e.wanted.Load() != 0 {
			e.yield()
			if w.ready() {
				return false
			}
		}
		if polls%contextCheck == 0 && w.cc != nil && w.cc.Err() != nil {
			return false // however much arrives
		}
		if idle%spinCheck != 0 || idle == 0 {
			if e.cfg.Spin != 0 || idle == 0 {
				continue
			}
		}
		now := time.Now()
		if idle <= spinCheck {
			since, yielded, spun = now, now, true
			if e.cfg.Spin != 0 {
				continue
			}
		}
		if w.cc != nil && w.cc.Err() != nil {
			return false
		}
		if now.Sub(since) >= e.spinFor() {
			if e.takeOver() {
				idle = 0
				continue
			}
			blocked := e.todo.pending != 0 // then it is a backoff, whose end says nothing about the wait
			if sleep := e.sleepAsLeader(w); sleep != slept {
				return sleep == shouldFollow
			}
			if blocked {
				e.spinLess()
			} else {
				e.learn(time.Since(since))
			}
			idle = 0
			continue
		}
		if now.Sub(yielded) > yieldAfter {
			e.yield()
			yielded = time.Now()
		}
	}
}

func (e *Engine) spinFor() time.Duration {
	if e.cfg.Spin >= 0 {
		return e.cfg.Spin
	}
	return e.spin
}

// learn takes into account that a wait has ended by sleep, and how long it was.
func (e *Engine) learn(took time.Duration) {
	short := shortWait
	if e.cfg.GiveWay {
		short = crowdedWait
	}
	if took <= short {
		e.spin = max(e.spin, min(2*took, longSpin))
	} else {
		e.spinLess()
	}
}

func (e *Engine) spinLess() { e.spin = max(e.spin/2, minSpin) }

// yield lets others have the lock and the processor.
func (e *Engine) yield() {
	e.woke = false
	e.offer()
}

type sleepResult uint8

const (
	slept        sleepResult = iota
	shouldFollow             // the rank has other work for this thread
	ended                    // the context has
)

// sleepAsLeader puts the calling thread to sleep until something arrives.
func (e *Engine) sleepAsLeader(w *want) sleepResult {
	if e.todo.pending != 0 {
		e.sleepBlocked()
		return slept
	}
	if e.cfg.GiveWay && e.followers == 0 && e.giveWay(w) {
		return slept
	}
	if e.oneProcessor {
		if result, done := e.offerProcessor(w); done {
			return result
		}
	}
	if !e.dev.Arm(transport.Any, true) {
		return slept
	}
	e.leaderParked = true
	e.unlock()
	if w.cc == nil || w.cc.Done() == nil {
		e.dev.Park(true)
	} else {
		stop := context.AfterFunc(w.cc, e.dev.Interrupt)
		if w.cc.Err() == nil {
			e.dev.Park(true)
		}
		stop()
	}
	e.lock()
	e.leaderParked = false
	e.dev.Disarm()
	e.armed = forNothing
	if w.cc != nil && w.cc.Err() != nil {
		return ended
	}
	return slept
}

// sleepBlocked lets the peer of a blocked link make room.
func (e *Engine) sleepBlocked() {
	e.backoff = min(max(e.backoff+e.backoff/8, firstBackoff), lastBackoff)
	d := e.backoff
	e.unlock()
	time.Sleep(d)
	e.lock()
}

// pause lets things happen: polls if nobody does, and gives the processor away.
func (e *Engine) pause() {
	if !e.leading && e.progress() != 0 {
		e.backoff = 0
		return
	}
	e.leave()
	e.sleepBlocked()
}

// giveWay is what a crowded rank does instead of spinning: it gives the processor away after each look, for a while,
// and then sleeps. Whoever can do something does it meanwhile; if nobody can, the processor stays awake, and to wake a
// sleeping one is what costs most (docs/decisions/0014-giving-way.md).
func (e *Engine) giveWay(w *want) bool {
	for start := time.Now(); time.Since(start) < max(e.spin, wayTime); {
		e.unlock()
		yieldProcessor()
		e.lock()
		if e.progress() != 0 || w.ready() {
			return true
		}
	}
	return false
}

// offerProcessor: if other goroutines want the only processor they get it now, and then the watcher does the waiting: a
// thread that sleeps in the kernel keeps its processor from them until the scheduler's monitor notices. With more
// processors there is another for them, and the offer would only wake a thread that looks for work and finds none.
func (e *Engine) offerProcessor(w *want) (sleepResult, bool) {
	before := time.Now()
	e.unlock()
	runtime.Gosched()
	e.lock()
	switch {
	case w.ready() || e.todo.pending != 0:
		return slept, true
	case time.Since(before) <= busyRank:
		return slept, false
	case e.progress() == 0:
		return shouldFollow, true
	}
	return slept, true
}

// follow sleeps until w's requests are done, while somebody else polls.
func (e *Engine) follow(w *want) error {
	own := w.waiter()
	ch := own.channel()
	select {
	case <-ch: // left over from an earlier wait
	default:
	}
	w.attach(own)
	e.followers++
	e.leave()
	e.unlock()
	var err error
	if w.cc == nil {
		<-ch
	} else {
		select {
		case <-ch:
		case <-w.cc.Done():
			err = w.cc.Err()
		}
	}
	e.lock()
	e.followers--
	w.attach(nil)
	return err
}

// waiter is that of the first request.
func (w *want) waiter() *waiter {
	if w.r != nil {
		return &w.r.own
	}
	for i := range w.set {
		if r := w.set.at(i); r != nil {
			return &r.own
		}
	}
	return new(waiter)
}

func (w *want) attach(own *waiter) {
	if w.r != nil {
		w.r.w = own
		return
	}
	for i := range w.set {
		if r := w.set.at(i); r != nil && r.state == stActive {
			r.w = own
		}
	}
}

// leave is called at the end of every call, before the lock is given up.
func (e *Engine) leave() {
	if (e.outstanding != 0 || e.todo.pending|e.todo.stalled != 0) && !e.leading && (e.armed == forNothing || e.todo.pending|e.followers != 0) {
		e.arm()
	}
}

// arm makes sure that the watcher is woken: for everything if somebody waits, else for what peers wait for.
func (e *Engine) arm() {
	level, want := transport.Urgent, forUrgent
	if e.followers > 0 {
		level, want = transport.Any, forAny
	}
	for range 8 {
		if e.todo.pending != 0 {
			break // nothing will arrive to remind the watcher of that
		}
		if e.armed >= want || e.outstanding|e.todo.stalled == 0 {
			return
		}
		if e.dev.Arm(level, false) {
			e.armed = want
			return
		}
		e.progress()
	}
	if !e.called && !e.watching {
		e.called = true
		e.dev.Interrupt()
	}
}

// watch is the watcher.
func (e *Engine) watch() {
	defer e.wg.Done()
	for {
		e.dev.Park(false)
		e.lock()
		if e.closed != nil {
			e.unlock()
			return
		}
		e.watching, e.called, e.armed = true, false, forNothing
		e.attend()
		e.watching = false
		e.unlock()
	}
}

// attend polls until there is nothing to do and the device is armed, or a caller leads.
func (e *Engine) attend() {
	var quiet time.Time // since when nothing has come
	for !e.leading && e.closed == nil {
		n := e.progress()
		if e.woke || e.wanted.Load() != 0 {
			e.watching = false
			e.yield()
			e.watching = true
			quiet = time.Time{}
			continue
		}
		if n != 0 {
			quiet, e.backoff = time.Time{}, 0
			continue
		}
		if e.outstanding|e.todo.pending|e.todo.stalled == 0 {
			return
		}
		now := time.Now()
		if quiet.IsZero() {
			quiet = now
		}
		if now.Sub(quiet) < e.attendFor() {
			continue
		}
		if e.takeOver() {
			continue
		}
		if e.todo.pending != 0 {
			e.sleepBlocked()
			continue
		}
		if e.arm(); e.armed != forNothing {
			return
		}
	}
}

// attendFor is how long the watcher keeps the processor when nothing comes: a stream's next fragment is worth a
// short wait, since giving the processor back to a computation costs a time slice.
func (e *Engine) attendFor() time.Duration {
	if e.todo.streaming() || e.inbound > 0 {
		return 100 * time.Microsecond
	}
	if e.followers > 0 {
		return e.spinFor()
	}
	return 0
}

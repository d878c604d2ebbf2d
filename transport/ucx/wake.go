//go:build ucx && linux && cgo

package ucx

import (
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/internal/eventset"
	"github.com/gorun-mpi/mpi/transport"
)

// sleeper is how this rank is woken for what UCX's descriptor does not show. Any goroutine may use it.
type sleeper struct {
	wake atomic.Pointer[func(thread bool)] // ends a sleep of this rank; nil: it cannot sleep yet
	// dirty: UCX may still have to move what was sent, or answers. A rank that does not poll meanwhile is woken by
	// check.
	dirty  atomic.Bool
	looked atomic.Bool // check has found the rank so
	check  eventset.Check
	late   deadline
}

func (s *sleeper) notifyBy(wake func(thread bool)) { s.wake.Store(&wake) }

func (s *sleeper) wakeSleepers() {
	if wake := s.wake.Load(); wake != nil {
		(*wake)(true)
		(*wake)(false)
	}
}

// flusher finds out whether UCX has moved all that was sent, and its answers, of a rank that has been found idle. It
// belongs to the caller of Poll.
type flusher struct {
	polls   uint64
	started bool // the check
	// answered are ranks whose messages have been received since settle has last looked at them. A rank is there once,
	// since its peer.answered is set.
	answered []int32
}

// sends is called when something is about to be sent.
func (f *flusher) sends(s *sleeper) {
	if s.dirty.Load() {
		return
	}
	s.dirty.Store(true)
	if !f.started {
		f.started = true
		s.check.Start()
	}
}

// look is called by each Poll.
func (d *Device) look() {
	s := &d.sleep
	d.idle.polls++
	s.check.Polled(d.idle.polls)
	if s.looked.Load() {
		s.looked.Store(false)
		s.dirty.Store(!d.flushed())
	}
}

// answers counts the end of a receive, with which UCX sends word to the sender of a synchronous or long message, which
// waits for it. Nothing says whether the word has left, so it counts as something sent.
func (d *Device) answers(source, s int32) {
	if uint(source) < uint(len(d.peers)) && !d.peers[source].answered && status(s) != statusCancelled {
		d.answersTo(source)
	}
}

func (d *Device) answersTo(rank int32) {
	d.peers[rank].answered = true
	d.idle.answered = append(d.idle.answered, rank)
	d.idle.sends(&d.sleep)
}

// adoptions is how many of the ranks in flusher.answered one settle deals with: the caller holds the engine's lock.
const adoptions = 8

// flushed reports whether UCX has moved all that this rank has sent, and its answers.
func (d *Device) flushed() bool {
	now := min(adoptions, len(d.idle.answered))
	for _, rank := range d.idle.answered[:now] {
		p := &d.peers[rank]
		p.answered = false
		switch {
		case p.gone != nil:
		case p.to == nil:
			p.unheard = true // takeNotices goes on with it
		case p.ep != 0 || d.connect(rank) == nil: // to an endpoint that UCX has made for its answers, if there is one
			d.w.use(p.ep)
		}
	}
	d.idle.answered = append(d.idle.answered[:0], d.idle.answered[now:]...)
	return d.w.flushed() && len(d.idle.answered) == 0
}

// deadline is when UCX begins what a rank that makes no call has left held, and is armed for the rank. To arm at once
// would cost a rank that calls again soon several steps of UCX, and its peers a system call.
type deadline struct {
	timer *time.Timer
	waits atomic.Uint64 // counts begin and end: odd from begin to end. The rank alone writes it
	since atomic.Uint64 // waits when the timer was set: odd
	runs  atomic.Bool   // the timer is set
	over  atomic.Bool   // it has passed since the rank last began an operation: Arm does arm
}

// lateAfter is how long that takes, up to twice as long. Go's timers make 1 ms of it where all other threads sleep, and
// 10 ms where the rank has one processor and computes.
const lateAfter = 100 * time.Microsecond

func (l *deadline) init(wake func()) {
	l.timer = time.AfterFunc(time.Hour, func() {
		if l.passes() {
			l.over.Store(true)
			wake()
		}
	})
	l.timer.Stop()
}

// passes is called when the timer has run out. It reports whether the rank has waited since it was set. If the rank has
// polled meanwhile and waits again, the timer is set again.
func (l *deadline) passes() bool {
	since := l.since.Load() // before another timer may be set
	l.runs.Store(false)
	now := l.waits.Load()
	if now%2 == 1 && now != since {
		l.set(now)
	}
	return now == since
}

func (l *deadline) set(now uint64) {
	if !l.runs.Load() && !l.runs.Swap(true) {
		l.since.Store(now)
		l.timer.Reset(lateAfter)
	}
}

// begin has the rank be woken after the deadline, or sooner. It reports whether the deadline is to come yet.
func (l *deadline) begin() bool {
	if l.over.Load() {
		return false
	}
	now := l.waits.Load()
	if now%2 == 0 {
		now++
		l.waits.Store(now)
	}
	l.set(now)
	return true
}

// end ends begin: the rank polls.
func (l *deadline) end() {
	if now := l.waits.Load(); now%2 == 1 {
		l.waits.Store(now + 1)
	}
}

// called is for a rank that begins an operation.
func (l *deadline) called() {
	if l.over.Load() {
		l.over.Store(false)
	}
}

func (l *deadline) stop() {
	l.end()
	l.timer.Stop()
}

// Arm implements transport.Device. UCX does not tell what is urgent: every arrival is shown. A rank that computes is
// armed late.
func (d *Device) Arm(level transport.Level) bool {
	if d.closed.Load() || d.reached.some.Load() || len(d.lost) > 0 {
		return false
	}
	if level == transport.Urgent && !d.armed && d.sleep.late.begin() {
		return true
	}
	ok, err := d.w.arm()
	if err != nil {
		d.opt.Log("UCX does not wake this rank, which polls instead", "error", err)
	}
	d.armed = ok && !d.reached.some.Load()
	return d.armed
}

// Disarm is transport.Device's.
func (d *Device) Disarm() {
	d.armed = false
	d.sleep.late.end()
}

// show wakes an armed rank for what the descriptor does not show: what has ended in a call, and not in a Poll.
func (d *Device) show() {
	if d.armed && (d.w.some() || len(d.lost) > 0) {
		d.armed = false
		d.sleep.wakeSleepers()
	}
}

package pml

import (
	"fmt"
	"testing"
)

// The waiting state is driven through every interleaving of two callers, the watcher and a device, each step being what
// wait.go does between taking the lock and giving it up. Whenever the lock is given up the invariant holds; and where
// nothing can go on any more, every operation is done: no wake-up is lost.
func TestWaitStateExhaustively(t *testing.T) {
	for _, c := range []struct {
		name string
		waitWorld
	}{
		{"both wait", waitWorld{}},
		{"both wait, urgent", waitWorld{urgent: [packetKinds]bool{true, true}}},
		{"one gives up", waitWorld{impatient: true}},
		{"one sends", waitWorld{sends: true, impatient: true}},
		{"one sends and computes", waitWorld{sends: true, computes: [2]bool{false, true}, urgent: [packetKinds]bool{true, true}, mayFollow: true}},
		{"one processor", waitWorld{mayFollow: true}},
		{"one processor, rounds", waitWorld{mayFollow: true, events: 1 << roundPacket}},
		{"rounds, one computes", waitWorld{events: 1 << roundPacket, computes: [2]bool{true, false},
			urgent: [packetKinds]bool{true, false, true}}},
		{"computing", waitWorld{computes: [2]bool{true, true}, urgent: [packetKinds]bool{true, true}}},
		{"one computes", waitWorld{computes: [2]bool{true, false}, urgent: [packetKinds]bool{true, false}}},
		{"a stalled link", waitWorld{events: 1<<stalledPacket | 1<<roomPacket}},
		{"a stalled link, one gives up", waitWorld{events: 1<<stalledPacket | 1<<roomPacket, impatient: true, mayFollow: true}},
		{"a send is refused", waitWorld{refused: true, events: 1 << roomPacket, mayFollow: true}},
		{"a send is refused, one gives up", waitWorld{refused: true, events: 1 << roomPacket, impatient: true}},
		{"a send is refused, computing", waitWorld{refused: true, events: 1 << roomPacket, computes: [2]bool{false, true}, urgent: [packetKinds]bool{true, true}}},
		{"a peer takes a message back", waitWorld{events: 1 << backPacket,
			urgent: [packetKinds]bool{backPacket: true}}},
		{"a peer takes a message back, one computes", waitWorld{events: 1 << backPacket, few: true, mayFollow: true,
			computes: [2]bool{false, true}, urgent: [packetKinds]bool{true, true, backPacket: true}}},
		{"taken back by both sides", waitWorld{events: 1 << backPacket, few: true, taken: true,
			urgent: [packetKinds]bool{backPacket: true}}},
		{"few at a time", waitWorld{events: 1<<roundPacket | 1<<stalledPacket | 1<<roomPacket, few: true}},
		{"a third one looks", waitWorld{looks: 2, mayFollow: true, events: 1 << roundPacket}},
		{"a third one looks, urgent", waitWorld{looks: 2, few: true, computes: [2]bool{false, true},
			urgent: [packetKinds]bool{true, true}, events: 1 << backPacket}},
		{"a third one looks, a stalled link, one gives up", waitWorld{looks: 2, impatient: true,
			events: 1<<stalledPacket | 1<<roomPacket}},
		{"a send is refused, both compute", waitWorld{refused: true, sends: true, events: 1 << roomPacket, computes: [2]bool{true, true}, urgent: [packetKinds]bool{true, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if n := c.waitWorld.explore(t); n < 30 {
				t.Errorf("%d states only", n)
			}
		})
	}
}

// Each rule of the state is needed: without it some interleaving ends with an operation for ever under way, or breaks the
// invariant.
func TestWaitStateRulesAreNeeded(t *testing.T) {
	for name, w := range map[string]waitWorld{
		"the last call arms":             {forget: forgetExit, computes: [2]bool{true, true}, urgent: [packetKinds]bool{true, true}},
		"followers are worth any packet": {forget: forgetFollowers, mayFollow: true},
		"new work wakes the leader":      {forget: forgetWork, sends: true},
		"the watcher leaves no work":     {forget: forgetLeft, mayFollow: true, events: 1 << roundPacket},
		"a caller looks for the watcher": {forget: forgetMissed, taken: true, events: 1 << backPacket},
		"and may not see all":            {forget: forgetMore, taken: true, few: true, events: 1 << backPacket},
		"a look does not end the arming": {forget: forgetArmed, looks: 2},
	} {
		t.Run(name, func(t *testing.T) {
			var broken recorder
			w.explore(&broken)
			if !broken.failed {
				t.Error("nothing breaks without it")
			}
		})
	}
}

// A call that leaves operations under way arms for the watcher, and not while the watcher is about to come: a device
// that has much to poll refuses each time.
func TestCallsDoNotArmForAWokenWatcher(t *testing.T) {
	var s waitState
	l := load{outstanding: 1}
	if n := s.needs(&l); n != needUrgent {
		t.Errorf("the watcher sleeps: %d is needed", n)
	}
	s.wakeWatcher()
	for _, l := range []load{l, {outstanding: 1, pending: 1}} {
		if n := s.needs(&l); n != needNothing {
			t.Errorf("the watcher has been woken, %+v: %d is needed", l, n)
		}
	}
	if s.beginWatcher(); s.needs(&l) != needUrgent {
		t.Error("the watcher, which has come, cannot arm")
	}
}

// recorder is a test that may fail.
type recorder struct{ failed bool }

func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Helper()               {}

type reporter interface {
	Errorf(string, ...any)
	Helper()
}

// waitWorld is what does not change while it is explored.
type waitWorld struct {
	urgent    [packetKinds]bool
	events    uint8   // which kinds of packets come besides those that callers wait for
	computes  [2]bool // the caller never waits for what it has started
	impatient bool    // caller 0 may give up
	sends     bool    // what caller 1 starts is work
	refused   bool    // what caller 1 starts finds a link without room
	taken     bool    // another goroutine may take the operation of caller 0 back, while that leads and lets it run
	looks     uint8   // of a third caller, which does not wait
	few       bool    // a look finds one packet at most
	mayFollow bool    // a leader may become a follower: there is one processor
	forget    forgotten
}

type forgotten uint8

const (
	_ forgotten = iota
	forgetExit
	forgetFollowers
	forgetWork
	forgetLeft
	forgetMissed
	forgetMore
	forgetArmed
)

// Packets. The first two complete the operations of the callers.
const (
	_ = iota
	_
	roundPacket   // begins a round: a receive that arms, and a message of this rank to itself, which is work
	stalledPacket // its answer finds a link without room
	roomPacket    // which has room again
	backPacket    // a peer takes a message back: the watcher is woken, armed for or not, and with nothing under way
	packetKinds
)

// waitModel is one state of the world. It is comparable.
type waitModel struct {
	s       waitState
	l       load
	queue   uint8 // packets that the device has, one bit for each kind
	sent    uint8 // and has had
	alarm   armedLevel
	hold    bool // it is the leader's
	woken   bool // a follower has been, since the leader or the watcher has last let others run
	bell    bool // tokens: Park(false), Park(true)
	held    bool
	callers [2]modelCaller
	watcher modelStep
	looks   uint8 // that the third caller has taken
}

type modelCaller struct {
	at       modelStep
	early    bool // its message was there before it asked
	done     bool
	attached bool // it will be given the token
	token    bool
	gaveUp   bool
}

type modelStep uint8

const (
	atStart modelStep = iota
	atComputing
	atLeading
	atLed // it leads, and what it waits for is done
	atLeaderYields
	atParking // between giving up the lock and the device
	atParked
	atUnparking
	atFollowing
	atEnd
	// The watcher: atParked, or
	atAttending
	atYielding
	atArming // it has found nothing, and has the lock; something may come
)

// explore visits every state and returns how many there are.
func (w *waitWorld) explore(t reporter) int {
	t.Helper()
	first := waitModel{watcher: atParked}
	seen, worklist := map[waitModel]bool{first: true}, []waitModel{first}
	for len(worklist) > 0 {
		m := worklist[len(worklist)-1]
		worklist = worklist[:len(worklist)-1]
		stuck := true
		for _, next := range w.steps(m) {
			if next == m {
				continue
			}
			stuck = false
			if err := next.check(w); err != nil {
				t.Errorf("after %+v:\n%v", m, err)
				return len(seen)
			}
			if !seen[next] {
				seen[next] = true
				worklist = append(worklist, next)
			}
		}
		if stuck && (!m.callers[0].done || !m.callers[1].done || m.l.pending+m.l.stalled != 0 ||
			m.queue&(1<<backPacket) != 0) {
			t.Errorf("nothing goes on any more in %+v", m)
			return len(seen)
		}
	}
	return len(seen)
}

func (m *waitModel) check(w *waitWorld) error {
	if m.s.followers < 0 || m.l.outstanding < 0 {
		return fmt.Errorf("counted too far: %+v", m)
	}
	return m.s.check(&m.l)
}

// steps are the states that may be next.
func (w *waitWorld) steps(m waitModel) (next []waitModel) {
	try := func(f func(m *waitModel)) {
		n := m
		f(&n)
		next = append(next, n)
	}
	for k := range packetKinds {
		wanted := k < 2 || w.events&(1<<k) != 0
		if wanted && m.sent&(1<<k) == 0 && (k != roomPacket || m.l.stalled > 0) {
			try(func(m *waitModel) { w.deliver(m, k) })
		}
	}
	if m.watcher == atArming {
		try(w.attendArms)
		return next
	}
	for i := range m.callers {
		c := &m.callers[i]
		if w.impatient && i == 0 && (c.at == atParked || c.at == atFollowing) && !c.gaveUp {
			try(func(m *waitModel) { w.giveUp(m, i) })
		}
		switch c.at {
		case atStart:
			try(func(m *waitModel) { w.begin(m, i) })
		case atComputing:
			if !w.computes[i] {
				try(func(m *waitModel) { w.await(m, i) })
			}
		case atLeaderYields:
			try(func(m *waitModel) {
				m.s.resumeLeader()
				if m.callers[i].at = atLeading; m.callers[i].done { // it takes no other look
					m.callers[i].at = atLed
				}
			})
		case atLed:
			try(func(m *waitModel) {
				w.stopLeading(m)
				w.await(m, i)
			})
		case atLeading:
			if w.taken && i == 0 {
				try(func(m *waitModel) {
					w.complete(m, i)
					w.exit(m)
					m.callers[i].at = atLed
				})
			}
			try(func(m *waitModel) { w.leads(m, i, atParking) })
			if w.looks > 0 {
				try(func(m *waitModel) { w.leads(m, i, atLeaderYields) })
			}
			if w.mayFollow {
				try(func(m *waitModel) { w.leads(m, i, atFollowing) })
			}
		case atParking:
			try(func(m *waitModel) {
				if m.callers[i].at = atUnparking; m.alarm != armedNot && m.hold {
					m.callers[i].at = atParked
				}
			})
		case atParked:
			if m.held {
				try(func(m *waitModel) { m.held, m.callers[i].at = false, atUnparking })
			}
		case atUnparking:
			try(func(m *waitModel) {
				m.s.unpark()
				m.alarm = armedNot
				m.callers[i].at = atLeading
				if m.callers[i].gaveUp {
					w.stopLeading(m)
					w.cancelled(m, i)
				}
			})
		case atFollowing:
			if c.token || c.gaveUp {
				try(func(m *waitModel) { w.followed(m, i) })
			}
		}
	}
	if m.looks < w.looks && m.s.mayPoll() {
		try(func(m *waitModel) {
			m.looks++
			if w.forget == forgetArmed {
				m.alarm = armedNot
			}
			if w.progress(m); m.l.pending > 0 {
				w.wakeLeader(m) // as Engine.arm does
			}
			w.exit(m)
		})
	}
	switch m.watcher {
	case atParked:
		if m.bell {
			try(func(m *waitModel) {
				m.bell = false
				m.s.beginWatcher()
				w.attend(m)
			})
		}
	case atYielding:
		try(func(m *waitModel) {
			m.s.resumeWatcher()
			w.attend(m)
		})
	case atAttending:
		try(w.attend)
	}
	return next
}

// The device.

func (w *waitWorld) deliver(m *waitModel, kind int) {
	m.queue |= 1 << kind
	m.sent |= 1 << kind
	m.bell = m.bell || kind == backPacket
	if m.alarm == armedNot || m.alarm == armedUrgent && !w.urgent[kind] && kind < stalledPacket { // Room ends a sleep of any level
		return
	}
	if m.alarm = armedNot; m.hold {
		m.held = true
	} else {
		m.bell = true
	}
}

func (m *waitModel) arm(level armedLevel, hold bool) bool {
	m.alarm, m.hold = level, hold
	if m.queue != 0 {
		m.alarm = armedNot
	}
	return m.queue == 0
}

func (m *waitModel) interrupt() { m.bell, m.held = true, true }

// The engine.

func (w *waitWorld) progress(m *waitModel) (n int) {
	found := m.queue
	if w.few {
		found &= -found
	}
	round := found&(1<<roundPacket) != 0
	for k := range packetKinds {
		if found&(1<<k) == 0 {
			continue
		}
		n++
		switch k {
		case roundPacket, backPacket:
		case stalledPacket:
			m.l.stalled++
		case roomPacket:
			m.l.stalled--
		default:
			if c := &m.callers[k]; c.at == atStart {
				c.early = true
			} else if !c.done {
				w.complete(m, k)
			}
		}
	}
	m.queue &^= found
	if m.l.pending > 0 {
		m.l.pending = 0
		n++
	}
	if round {
		m.l.pending++
		if m.s.armed == armedNot && m.s.leader == noLeader && m.arm(armedUrgent, false) {
			m.s.isArmed(needUrgent)
		}
	}
	return n
}

func (w *waitWorld) addWork(m *waitModel) {
	m.l.pending++
	if w.forget != forgetWork {
		w.wakeLeader(m)
	}
}

func (w *waitWorld) complete(m *waitModel, i int) {
	c := &m.callers[i]
	c.done = true
	m.l.outstanding--
	if c.attached {
		c.attached, c.token, m.woken = false, true, true
	}
	if c.at == atParking || c.at == atParked || c.at == atUnparking { // it is what the leader waits for
		w.wakeLeader(m)
	}
}

func (w *waitWorld) wakeLeader(m *waitModel) {
	if m.s.wakeLeader() {
		m.interrupt()
	}
}

func (w *waitWorld) exit(m *waitModel) {
	if w.forget != forgetExit {
		w.armWatcher(m)
	}
}

func (w *waitWorld) armWatcher(m *waitModel) {
	for range 8 {
		n := m.s.needs(&m.l)
		if n == needNothing {
			return
		}
		if n == needWatcher {
			break
		}
		level := armedUrgent
		if n == needAny && w.forget != forgetFollowers {
			level = armedAny
		}
		if m.arm(level, false) {
			m.s.isArmed(n)
			return
		}
		m.s.isNot()
		w.progress(m)
	}
	if m.s.wakeWatcher() {
		m.interrupt()
	}
}

// Callers.

func (w *waitWorld) begin(m *waitModel, i int) {
	c := &m.callers[i]
	m.l.outstanding++
	c.at = atComputing
	if w.sends && i == 1 {
		w.addWork(m)
	}
	if w.refused && i == 1 {
		m.l.stalled++
	}
	if c.early {
		w.complete(m, i)
	}
	w.exit(m)
}

func (w *waitWorld) await(m *waitModel, i int) {
	c := &m.callers[i]
	switch {
	case c.done:
		c.at = atEnd
		w.exit(m)
	case m.s.lead():
		m.alarm = armedNot
		c.at = atLeading
	default:
		w.follow(m, i)
	}
}

func (w *waitWorld) follow(m *waitModel, i int) {
	c := &m.callers[i]
	c.at, c.attached, c.token = atFollowing, true, false
	m.s.followers++
	w.exit(m)
}

func (w *waitWorld) followed(m *waitModel, i int) {
	c := &m.callers[i]
	c.attached, c.token = false, false
	m.s.followers--
	if c.gaveUp {
		w.cancelled(m, i)
		return
	}
	w.await(m, i)
}

func (w *waitWorld) stopLeading(m *waitModel) {
	more := m.s.missed && w.forget != forgetMissed && w.progress(m) != 0
	m.s.stopLeading()
	if more && w.forget != forgetMore && m.s.wakeWatcher() {
		m.interrupt()
	}
}

// leads is one look of the leader. If it finds nothing it does what then says.
func (w *waitWorld) leads(m *waitModel, i int, then modelStep) {
	c := &m.callers[i]
	n := w.progress(m)
	if c.done {
		w.stopLeading(m)
		w.await(m, i)
		return
	}
	m.woken = false
	switch {
	case n > 0: // looks again
	case then == atLeaderYields:
		m.s.yieldLeader()
		c.at = atLeaderYields
	case then == atFollowing:
		w.stopLeading(m)
		w.follow(m, i)
	case m.arm(armedAny, true):
		m.s.park()
		c.at = atParking
	}
}

// giveUp ends the context of a caller.
func (w *waitWorld) giveUp(m *waitModel, i int) {
	m.callers[i].gaveUp = true
	m.interrupt()
}

func (w *waitWorld) cancelled(m *waitModel, i int) {
	c := &m.callers[i]
	if !c.done {
		w.complete(m, i)
	}
	c.at = atEnd
	w.exit(m)
}

// rests reports whether the watcher, which has armed, may sleep.
func (w *waitWorld) rests(m *waitModel) bool {
	if w.forget == forgetLeft {
		return m.s.armed != armedNot
	}
	return m.s.needs(&m.l) == needNothing
}

// attend is the watcher from when it has the lock until it gives it up, or arms.
func (w *waitWorld) attend(m *waitModel) {
	for m.s.leader == noLeader {
		n := w.progress(m)
		switch {
		case m.woken:
			m.woken = false
			m.s.yieldWatcher()
			m.watcher = atYielding
			return
		case n != 0:
			continue
		case m.l.none():
			m.s.restWatcher()
			m.watcher = atParked
			return
		}
		m.watcher = atArming
		return
	}
	m.s.restWatcher()
	m.watcher = atParked
}

func (w *waitWorld) attendArms(m *waitModel) {
	if w.armWatcher(m); !w.rests(m) {
		w.attend(m)
		return
	}
	m.s.restWatcher()
	m.watcher = atParked
}

package transporttest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// Pair is two fresh devices of one job that have not connected: A is rank 0, B is rank 1. The suite closes them. Third
// opens rank 2 for the rules that need it; where it is nil, those are left out.
type Pair struct {
	A, B  transport.Device
	Third func() transport.Device
}

// Option adapts the suite to what a transport promises beyond the seam, or does not.
type Option func(*suite)

// Has states the abilities of both devices and of their links. Without it they have none. One that is not as stated is
// a failure; the rules that run are those that the devices' abilities call for.
func Has(a Ability) Option { return func(s *suite) { s.stated |= a } }

// ChecksKeys says that an operation with a wrong key or out of bounds is an error, and so is one after Deregister.
func ChecksKeys() Option { return func(s *suite) { s.checksKeys = true } }

// BadKeysEnd says what ChecksKeys says, and that the connection is over then: Down follows.
func BadKeysEnd() Option { return func(s *suite) { s.badKeysEnd = true } }

// Unreliable says that operations that may fail or be refused now and then do: the suite tries again.
func Unreliable() Option { return func(s *suite) { s.unreliable = true } }

// Leaves is how many packets that were sent before Close arrive although the peer does not poll meanwhile. Of more, the
// rest is lost if the peer does not take it while Close waits.
func Leaves(packets int) Option { return func(s *suite) { s.leaves = packets } }

// Brief asks for a tenth of the rounds, for the second and further configurations of one transport. With -short the
// first has a twentieth of the rounds, and the others a fiftieth.
func Brief() Option { return func(s *suite) { s.brief = true } }

func (s *suite) rounds(n int) int {
	switch {
	case s.brief && testing.Short():
		return n / 50
	case testing.Short():
		return n / 20
	case s.brief:
		return n / 10
	}
	return n
}

// few is n, or with -short so many: of what is not a number of rounds.
func (s *suite) few(n, short int) int {
	if testing.Short() {
		return short
	}
	return n
}

// Without leaves out the rule of that name; why appears in the log.
func Without(rule, why string) Option { return func(s *suite) { s.without[rule] = why } }

type suite struct {
	open        func(t *testing.T) Pair
	without     map[string]string
	stated, has Ability

	checksKeys, badKeysEnd, unreliable, brief bool
	leaves                                    int // 0: all that the link takes
}

type rule struct {
	name  string
	needs Ability
	test  func(*fixture)
}

// rules in the order in which a new transport meets them.
var rules = []rule{
	{"address", 0, address},
	{"facts", 0, facts},
	{"header", 0, header},
	{"answers-name-their-message", 0, answersNameTheirMessage},
	{"blocked-senders", 0, blockedSenders},
	{"sizes", 0, sizes},
	{"order", 0, order},
	{"sender-keeps-buffer", 0, senderKeepsBuffer},
	{"payload-until-next-poll", 0, payloadUntilNextPoll},
	{"refusal-takes-nothing", 0, refusalTakesNothing},
	{"room-is-told", 0, roomIsTold},
	{"room-is-told-to-many", third, roomIsToldToMany},
	{"flood-both-ways", 0, floodBothWays},
	{"small-poll", 0, smallPoll},
	{"short", Short, short},
	{"flood-starves-none", third, floodStarvesNone},
	{"flood-outruns-poll", third, floodOutrunsPoll},

	{"arm-sees-arrived", 0, armSeesArrived},
	{"wake-thread", 0, func(f *fixture) { wake(f, true) }},
	{"wake-goroutine", 0, func(f *fixture) { wake(f, false) }},
	{"wake-both-ways", 0, wakeBothWays},
	{"urgent-not-woken-by-plain", steady, urgentNotWokenByPlain},
	{"urgent-woken-by-urgent", 0, urgentWokenByUrgent},
	{"urgent-behind-full", 0, urgentBehindFull},
	{"urgent-plain-is-polled", 0, urgentPlainIsPolled},
	{"poll-keeps-armed", 0, pollKeepsArmed},
	{"wake-flag", 0, wakeFlag},
	{"park-unarmed", 0, parkUnarmed},
	{"interrupt-during-park", 0, func(f *fixture) { interrupt(f, false) }},
	{"interrupt-after-disarm", 0, func(f *fixture) { interrupt(f, true) }},
	{"interrupt-before-park", 0, interruptBeforePark},
	{"interrupt-not-lost", 0, interruptNotLost},
	{"park-is-idle", steady | processTime, parkIsIdle},
	{"presence", Presence, presence},

	{"get-contents", Get, func(f *fixture) { rmaContents(f, get) }},
	{"put-contents", Put, func(f *fixture) { rmaContents(f, put) }},
	{"get-many", Get, func(f *fixture) { rmaMany(f, get) }},
	{"put-many", Put, func(f *fixture) { rmaMany(f, put) }},
	{"get-full-is-told", Get, func(f *fixture) { fullIsTold(f, get) }},
	{"put-full-is-told", Put, func(f *fixture) { fullIsTold(f, put) }},
	{"get-nothing", Get, func(f *fixture) { rmaNothing(f, get) }},
	{"put-nothing", Put, func(f *fixture) { rmaNothing(f, put) }},
	{"get-deregister", Get, func(f *fixture) { rmaDeregister(f, get) }},
	{"put-deregister", Put, func(f *fixture) { rmaDeregister(f, put) }},
	{"get-bad-key", Get | keysChecked, func(f *fixture) { rmaBadKey(f, get) }},
	{"put-bad-key", Put | keysChecked, func(f *fixture) { rmaBadKey(f, put) }},
	{"get-peer-closed", Get, func(f *fixture) { rmaPeerClosed(f, get) }},
	{"put-peer-closed", Put, func(f *fixture) { rmaPeerClosed(f, put) }},
	{"get-lasting", Get, func(f *fixture) { rmaLasting(f, get) }},
	{"put-lasting", Put, func(f *fixture) { rmaLasting(f, put) }},
	{"access-is-kept", Put | keysChecked, accessIsKept},
	{"put-note", PutNote, putNote},
	{"fetch-add", Atomics, fetchAdd},
	{"compare-swap", Atomics, compareSwap},
	{"atomics-many", Atomics, atomicsMany},
	{"rma-wakes", Get, rmaWakes},

	{"memory", Memory, memory},
	{"memory-import", Memory | Import, memoryImport},

	{"board-contents", Boards, boardContents},
	{"board-wakes-thread", Boards, func(f *fixture) { boardWakes(f, true) }},
	{"board-wakes-goroutine", Boards, func(f *fixture) { boardWakes(f, false) }},
	{"board-fails", Boards, boardFails},
	{"board-hostile-ticket", Boards, boardHostileTicket},
	{"board-lends", Boards | Get, boardLends},

	{"zero-copy-contents", ZeroCopy, zeroCopyContents},
	{"zero-copy-among-others", ZeroCopy, zeroCopyAmongOthers},
	{"displaced-is-left-alone", ZeroCopy, displacedIsLeftAlone},
	{"place-refuses-outside", ZeroCopy, placeRefusesOutside},

	{"offload-eager", Offload, offloadEager},
	{"offload-rendezvous", Offload | Get, offloadRendezvous},
	{"offload-unmatched", Offload, offloadUnmatched},
	{"offload-rests-until-seen", Offload, offloadRestsUntilSeen},
	{"offload-cancel", Offload, offloadCancel},
	{"offload-after-down", Offload, offloadAfterDown},
	{"offload-full", Offload, offloadFull},
	{"offload-order", Offload, offloadOrder},

	{"connect-both-ways-at-once", 0, connectBothWaysAtOnce},
	{"connect-twice", 0, connectTwice},
	{"connect-hostile-address", 0, connectHostileAddress},
	{"connect-to-closed", 0, connectToClosed},
	{"connect-now", ConnectNow, connectNow},
	{"introducer", Introducer, introducer},
	{"refused", Refused, refused},
	{"via", Via, namesTheDevice},
	{"down-after-packets", 0, downAfterPackets},
	{"down-wakes", 0, downWakes},
	{"dead-link-drops", 0, deadLinkDrops},
	{"cut", 0, cut},
	{"cut-ends-gets", Get, func(f *fixture) { cutEnds(f, get) }},
	{"cut-ends-puts", Put, func(f *fixture) { cutEnds(f, put) }},
	{"closed-device", 0, closedDevice},
	{"close-leaves-nothing", 0, closeLeavesNothing},
	{"no-allocations", allocations, noAllocations},
}

// Run runs the suite. open is called once or more for each rule.
func Run(t *testing.T, open func(t *testing.T) Pair, opts ...Option) {
	s := &suite{open: open, without: map[string]string{}}
	for _, o := range opts {
		o(s)
	}
	for name := range s.without {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.name == name }) {
			t.Errorf("transporttest.Without(%q): there is no such rule", name)
		}
	}
	s.look(t)
	for _, r := range rules {
		if s.has&r.needs != r.needs {
			continue
		}
		if why := s.without[r.name]; why != "" {
			t.Logf("without %s: %s", r.name, why)
			continue
		}
		t.Run(r.name, func(t *testing.T) { r.test(&fixture{T: t, suite: s}) })
	}
}

// RunFaulty runs the suite over the devices of open in a wrapper that misbehaves, which an engine's tests use too.
func RunFaulty(t *testing.T, open func(t *testing.T) Pair, opts ...Option) {
	faulty.Explain(t, 1, faulty.Mild)
	Run(t, func(t *testing.T) Pair {
		p := open(t)
		third := p.Third
		if third != nil {
			third = func() transport.Device { return faulty.Wrap(p.Third(), 3, faulty.Mild) }
		}
		return Pair{faulty.Wrap(p.A, 1, faulty.Mild), faulty.Wrap(p.B, 2, faulty.Mild), third}
	}, append(opts, Unreliable(), Brief())...)
}

// look finds out what a pair can do: an ability counts if both ends have it.
func (s *suite) look(t *testing.T) {
	t.Helper()
	f := &fixture{T: t, suite: s}
	a, b := f.linked()
	has := abilitiesOf(a.dev.Facts(), a.link.Caps()) & abilitiesOf(b.dev.Facts(), b.link.Caps())
	if has != s.stated {
		t.Errorf("the abilities are %v, and transporttest.Has states %v", has, s.stated)
	}
	s.has = has | s.circumstances() | third.given(f.third != nil)
	f.close(a)
	f.close(b)
}

// patience is how long anything may take before the suite says that it will not happen. Where there are many steps each
// has that time: a machine that is slow is no failure.
const patience = time.Minute

// fixture is one rule being tested.
type fixture struct {
	*testing.T
	*suite
	third func() transport.Device // of the last pair
}

// pair opens two ends without links.
func (f *fixture) pair() (a, b *end) {
	f.Helper()
	p := f.open(f.T)
	f.third = p.Third
	a, b = f.end(p.A, 0), f.end(p.B, 1)
	f.Cleanup(func() { f.close(a); f.close(b) })
	return a, b
}

// linked opens two ends with links both ways.
func (f *fixture) linked() (a, b *end) {
	f.Helper()
	a, b = f.pair()
	f.must(a.connect(b))
	f.must(b.connect(a))
	return a, b
}

func (f *fixture) close(e *end) {
	f.Helper()
	if !e.closed {
		e.closed = true
		e.set.Close()
		if err := e.dev.Close(); err != nil {
			f.Errorf("rank %d: Close: %v", e.rank, err)
		}
	}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// drive runs the two sides at once and fails with what either says.
func (f *fixture) drive(a, b func() error) {
	f.Helper()
	done := make(chan error, 1)
	go func() { done <- b() }()
	ea := a()
	f.must(errors.Join(ea, <-done))
}

// clock makes a loop end.
type clock struct{ until time.Time }

func start() clock { return clock{time.Now().Add(patience)} }

func (c clock) late() bool { return time.Now().After(c.until) }

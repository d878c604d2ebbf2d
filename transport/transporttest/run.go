package transporttest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Pair is two fresh devices of one job that have not connected: A is rank 0, B is rank 1. The suite closes them.
type Pair struct{ A, B transport.Device }

// Option adapts the suite to what a transport promises beyond the seam, or does not.
type Option func(*suite)

// NoGet: links are expected to say that they cannot read the peer's memory. Otherwise they must be able to.
func NoGet() Option { return func(s *suite) { s.noGet = true } }

// ChecksKeys: a TryGet with a wrong key or out of bounds is an error, and so is one after Deregister.
func ChecksKeys() Option { return func(s *suite) { s.checksKeys = true } }

// BadKeysEnd: as ChecksKeys, and the connection is over then: Down follows.
func BadKeysEnd() Option { return func(s *suite) { s.badKeysEnd = true } }

// TagHeaders: of Eager, EagerSync and RTS only what their kinds say travels, and a message's ID comes as another number,
// from which an answer gets back to the ID.
func TagHeaders() Option { return func(s *suite) { s.tagHeaders = true } }

// Unreliable: now and then Register refuses, TryGet fails, Arm says that something is there: the suite tries again.
func Unreliable() Option { return func(s *suite) { s.unreliable = true } }

// Leaves: of what was sent before Close so many packets arrive although the peer does not poll meanwhile. Of more, the
// rest is lost if the peer does not take it while Close waits.
func Leaves(packets int) Option { return func(s *suite) { s.leaves = packets } }

// Brief: a tenth of the rounds, for the second and further configurations of one transport.
func Brief() Option { return func(s *suite) { s.brief = true } }

func (s *suite) rounds(n int) int {
	if s.brief {
		return n / 10
	}
	return n
}

// Without leaves out the rule of that name; why appears in the log.
func Without(rule, why string) Option {
	return func(s *suite) { s.without[rule] = why }
}

type suite struct {
	open    func(t *testing.T) Pair
	without map[string]string

	noGet, checksKeys, badKeysEnd, tagHeaders, unreliable, brief bool
	leaves                                                       int // 0: all that the link takes
}

// rules in the order in which a new transport meets them.
var rules = []struct {
	name string
	test func(*fixture)
}{
	{"address", address},
	{"caps", caps},
	{"header", header},
	{"answers-name-their-message", answersNameTheirMessage},
	{"sizes", sizes},
	{"order", order},
	{"peer", peer},
	{"sender-keeps-buffer", senderKeepsBuffer},
	{"payload-until-next-poll", payloadUntilNextPoll},
	{"refusal-takes-nothing", refusalTakesNothing},
	{"flood-both-ways", floodBothWays},
	{"small-poll", smallPoll},
	{"arm-sees-arrived", armSeesArrived},
	{"wake-hold", func(f *fixture) { wake(f, true) }},
	{"wake-no-hold", func(f *fixture) { wake(f, false) }},
	{"wake-both-ways", wakeBothWays},
	{"urgent-not-woken-by-plain", urgentNotWokenByPlain},
	{"urgent-woken-by-urgent", urgentWokenByUrgent},
	{"urgent-plain-is-polled", urgentPlainIsPolled},
	{"wake-flag", wakeFlag},
	{"park-unarmed", parkUnarmed},
	{"interrupt-during-park", interruptDuringPark},
	{"interrupt-after-disarm", interruptAfterDisarm},
	{"interrupt-before-park", interruptBeforePark},
	{"interrupt-not-lost", interruptNotLost},
	{"park-is-idle", parkIsIdle},
	{"get-contents", getContents},
	{"get-many", getMany},
	{"get-nothing", getNothing},
	{"get-deregister", getDeregister},
	{"get-bad-key", getBadKey},
	{"get-peer-closed", getPeerClosed},
	{"memory", memory},
	{"lent-is-placed", lentIsPlaced},
	{"placed-among-others", placedAmongOthers},
	{"displaced-is-left-alone", displacedIsLeftAlone},
	{"place-refuses-outside", placeRefusesOutside},
	{"room-is-told", roomIsTold},
	{"connect-both-ways-at-once", connectBothWaysAtOnce},
	{"connect-twice", connectTwice},
	{"connect-hostile-address", connectHostileAddress},
	{"connect-to-closed", connectToClosed},
	{"down-after-packets", downAfterPackets},
	{"down-wakes", downWakes},
	{"dead-link-drops", deadLinkDrops},
	{"closed-device", closedDevice},
	{"close-leaves-nothing", closeLeavesNothing},
	{"no-allocations", noAllocations},
}

// Run runs the suite. open is called once or more for each rule.
func Run(t *testing.T, open func(t *testing.T) Pair, opts ...Option) {
	s := &suite{open: open, without: map[string]string{}}
	for _, o := range opts {
		o(s)
	}
	for rule := range s.without {
		if !slices.ContainsFunc(rules, func(r struct {
			name string
			test func(*fixture)
		}) bool {
			return r.name == rule
		}) {
			t.Errorf("transporttest.Without(%q): there is no such rule", rule)
		}
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if why, ok := s.without[r.name]; ok {
				t.Skip("left out on purpose: ", why)
			}
			r.test(&fixture{T: t, suite: s})
		})
	}
}

// patience is how long anything may take before the suite says that it will not happen. Where there are many steps each
// has that time: a machine that is slow is no failure.
const patience = 30 * time.Second

// fixture is one rule being tested.
type fixture struct {
	*testing.T
	*suite
}

// end is one device of a pair with what a test needs to drive it. One goroutine at a time.
type end struct {
	dev        transport.Device
	rank, peer int
	link       transport.Link // to the peer; nil until connected
	pkts       []transport.Packet
	inbox      []message // polled and not yet taken by next
	closed     bool
}

// message is a packet whose payload has been copied.
type message struct {
	transport.Packet
	body []byte
}

// pair opens two ends without links.
func (f *fixture) pair() (a, b *end) {
	f.Helper()
	p := f.open(f.T)
	a, b = newEnd(p.A, 0), newEnd(p.B, 1)
	f.Cleanup(func() { f.close(a); f.close(b) })
	return a, b
}

func newEnd(d transport.Device, rank int) *end {
	return &end{dev: d, rank: rank, peer: 1 - rank, pkts: make([]transport.Packet, 16)}
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

func (e *end) connect(to *end) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := e.dev.Connect(ctx, e.peer, to.dev.Address())
	if err != nil {
		return fmt.Errorf("rank %d connects to rank %d: %w", e.rank, e.peer, err)
	}
	e.link = l
	return nil
}

// poll asks the device once and keeps copies of what it gives.
func (e *end) poll() int {
	n := e.dev.Poll(e.pkts)
	for _, p := range e.pkts[:n] {
		if p.Event == transport.Room { // the suite tries again anyhow
			continue
		}
		e.inbox = append(e.inbox, message{p, append([]byte(nil), p.Payload...)})
	}
	return n
}

// clock makes a loop end.
type clock struct{ until time.Time }

func start() clock { return clock{time.Now().Add(patience)} }

func (c clock) late() bool { return time.Now().After(c.until) }

// send keeps trying, and polls in between as an engine does.
func (e *end) send(h wire.Header, payload []byte) error {
	for c := start(); !e.link.TrySend(&h, payload); {
		e.poll()
		if runtime.Gosched(); c.late() {
			return fmt.Errorf("rank %d: TrySend of a %v with %d bytes has been refused for %v", e.rank, h.Kind, len(payload), patience)
		}
	}
	return nil
}

// tryNext returns a message if one is there now.
func (e *end) tryNext() (m message, ok bool) {
	if len(e.inbox) == 0 {
		e.poll()
	}
	if len(e.inbox) == 0 {
		return message{}, false
	}
	m = e.inbox[0]
	e.inbox = e.inbox[1:]
	return m, true
}

// next waits for a message of any event.
func (e *end) next() (message, error) {
	for c := start(); ; runtime.Gosched() {
		if m, ok := e.tryNext(); ok {
			return m, nil
		}
		if c.late() {
			return message{}, fmt.Errorf("rank %d: nothing arrived within %v", e.rank, patience)
		}
	}
}

// nextPacket waits for a packet and accepts nothing else.
func (e *end) nextPacket() (message, error) {
	m, err := e.next()
	switch {
	case err != nil:
		return m, err
	case m.Event != transport.Arrived || m.Err != nil:
		return m, fmt.Errorf("rank %d: got event %d (error %v) where a packet was expected", e.rank, m.Event, m.Err)
	case int(m.Peer) != e.peer:
		return m, fmt.Errorf("rank %d: the packet says it is from rank %d, it is from %d", e.rank, m.Peer, e.peer)
	}
	return m, nil
}

// quiet checks that nothing more comes: after many polls and a while.
func (e *end) quiet() error {
	for until := time.Now().Add(30 * time.Millisecond); time.Now().Before(until); runtime.Gosched() {
		if m, ok := e.tryNext(); ok {
			return fmt.Errorf("rank %d: event %d, %v %+v, %d bytes, arrived and nobody sent it", e.rank, m.Event, m.Header.Kind, m.Header, len(m.body))
		}
	}
	return nil
}

// pattern is n bytes that differ from one seed to another and from one place to another.
func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	fill(b, seed)
	return b
}

func fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	var word [8]byte
	for i := 0; i < len(b); i += len(word) {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(word[:], x)
		copy(b[i:], word[:])
	}
}

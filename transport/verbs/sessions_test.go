//go:build verbs && linux && cgo

package verbs

import (
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A peer that leaves is told of at once although the last sends to it were never confirmed: nothing but the queue's
// end says that they are over.
func TestDownAfterUnconfirmed(t *testing.T) {
	watchdog(t)
	late := 0
	for n := 1; n < 2*signalEvery; n++ {
		a, b, ab, _ := two(t)
		for i := range n {
			send(t, ab, wire.Header{Kind: wire.Eager, Tag: int32(i)}, []byte("last"), b)
		}
		for range n {
			b.take(transport.Arrived)
		}
		b.Close()
		a.down(1)
		if !ab.s.flushBy.After(time.Now()) {
			// Each time, if it is left to the clock; now and then, where the machine stands still.
			if late++; late > 5 {
				t.Fatalf("after %d sends: the device was left %v to give them back", n, flushPatience)
			}
			n--
		}
		if a.inFlight != 0 || len(a.freeSends) != a.send.count-1 {
			t.Errorf("after %d sends: %d requests are under way, %d of %d send buffers free", n, a.inFlight,
				len(a.freeSends), a.send.count-1)
		}
		a.Close()
	}
}

// While a failed queue pair's requests come back, the rank may not go to sleep: after the last there is no arrival that
// would wake it to hear of the end.
func TestNoSleepBeforeDown(t *testing.T) {
	watchdog(t)
	a, b, ab, _ := two(t)
	for i := range 20 {
		send(t, ab, wire.Header{Kind: wire.Eager, Tag: int32(i)}, []byte("hello"), b)
	}
	b.Close()
	set := a.sleep()
	for limit := time.Now().Add(patience); ; {
		if a.poll(); len(a.in) > 0 {
			break
		}
		if set.Arm(transport.Any, true) {
			timer := time.AfterFunc(patience, set.Interrupt)
			set.Park(true)
			if !timer.Stop() {
				t.Fatal("asleep, and the peer's end is not reported")
			}
			set.Disarm()
		}
		if time.Now().After(limit) {
			t.Fatal("no end")
		}
	}
	a.down(1)
}

// A device whose completions Arm has found, and Poll has not handed out, does not wait for them when it is closed; nor
// does one whose peer is gone wait until the device has tried often enough.
func TestCloseIsPrompt(t *testing.T) {
	watchdog(t)
	a, b, ab, ba := two(t)
	for range signalEvery {
		send(t, ab, wire.Header{Kind: wire.Eager}, []byte("hello"), b)
	}
	for a.Arm(transport.Any) { // until a completion is there
		a.Disarm()
	}
	if len(a.stash) == 0 {
		t.Fatal("Arm says that something is there, and has found nothing")
	}
	began := time.Now()
	a.deliver(began.Add(patience))
	if a.inFlight != 0 {
		t.Errorf("%d requests are under way after %v", a.inFlight, time.Since(began))
	}
	a.Close()
	for b.state(0) != stateFailed {
		time.Sleep(time.Millisecond)
	}
	send(t, ba, wire.Header{Kind: wire.Eager}, []byte("too late"))
	retries := ba.s.confirmed(b)
	b.deliver(time.Now().Add(patience))
	if b.inFlight != 0 {
		t.Errorf("%d requests are under way to a peer that is gone", b.inFlight)
	}
	if retries() {
		t.Error("the queue pair was left to try until it gave up, and the peer was known to be gone")
	}
}

// Two that have sent each other more than there are buffers, and close at once: neither waits for the other to poll.
func TestCloseFull(t *testing.T) {
	watchdog(t)
	var x, y time.Duration
	for range 5 { // they wait each time, or the machine stood still
		if x, y = closeFull(t); x < closePatience || y < closePatience {
			return
		}
	}
	t.Errorf("they waited %v and %v for each other", x, y)
}

// closeFull returns how long each has taken.
func closeFull(t *testing.T) (x, y time.Duration) {
	a, b, ab, ba := two(t)
	for _, l := range []*link{ab, ba} {
		stuffed(t, l)
	}
	done := make(chan time.Duration, 2)
	for _, e := range []*end{a, b} {
		go func() {
			began := time.Now()
			e.Close()
			done <- time.Since(began)
		}()
	}
	return <-done, <-done
}

// stuffed sends until the other end has no receive buffer left, and the queue is full. What arrives here meanwhile is
// kept.
func stuffed(t *testing.T, l *link) {
	d := l.s.d
	full := 0 // looks at a full queue
	for limit := time.Now().Add(patience); full < 20; {
		for l.TrySend(&wire.Header{Kind: wire.Eager}, []byte("hello")) {
		}
		time.Sleep(time.Millisecond)
		took := d.take(pollMax)
		if full++; len(took) > 0 {
			full = 0
		}
		for i := range took {
			if took[i].id&ownMask == 0 {
				d.sent(&took[i])
			} else {
				d.recv.lent = append(d.recv.lent, uint32(took[i].id))
				d.recv.posted--
			}
		}
		if time.Now().After(limit) {
			t.Fatal("there is always room")
		}
	}
}

// A queue that is full to the last place when it fails, and whose last request is not confirmed: one more fits, and all
// buffers are there again.
func TestDownWhenFull(t *testing.T) {
	watchdog(t)
	needSoft(t)
	for try := 1; !downWhenFull(t); try++ { // as above
		if try == 5 {
			t.Fatalf("the device was left %v to give them back", flushPatience)
		}
	}
}

// downWhenFull reports whether the end was told before the device's time was over.
func downWhenFull(t *testing.T) (soon bool) {
	a, b, ab, _ := two(t)
	b.injected("pause")
	body := pattern(1000, 1)
	for range 4 {
		send(t, ab, wire.Header{Kind: wire.Eager}, body)
	}
	ab.s.confirm()
	for ab.TrySend(&wire.Header{Kind: wire.Eager}, body) {
	}
	if a.inFlight != depth || !ab.s.unconfirmed() {
		t.Fatalf("%d requests are under way", a.inFlight)
	}
	b.Close()
	a.down(1)
	soon = ab.s.flushBy.After(time.Now())
	if a.inFlight != 0 || len(a.freeSends) != a.send.count-1 {
		t.Errorf("%d requests are under way, %d of %d send buffers free", a.inFlight, len(a.freeSends), a.send.count-1)
	}
	return soon
}

// confirmed says later whether the device has found out by trying.
func (s *session) confirmed(b *end) func() bool {
	if inGuest() {
		return func() bool { return false }
	}
	before := b.counted("retries")
	return func() bool { return b.counted("retries") >= before+ackRetries }
}

// state is that of the session with a peer.
func (e *end) state(peer int) state {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[peer]
	if s == nil {
		return stateFailed + 1
	}
	return s.state
}

// What all peers share runs out: a link that was refused because others hold it is told when there is some again.
func TestRoomOfOthers(t *testing.T) {
	watchdog(t)
	needSoft(t)
	const peers = 12
	hub := newEnd(t, 0, peers+1)
	var ends []*end
	var links []*link
	for i := range peers {
		e := newEnd(t, i+1, peers+1)
		ends, links = append(ends, e), append(links, hub.link(e))
		e.injected("pause") // it takes nothing
	}
	body := pattern(1000, 1)
	full := 0
	for ; full < peers; full++ {
		n := 0
		for links[full].TrySend(&wire.Header{Kind: wire.Eager, Tag: int32(n)}, body) {
			n++
		}
		if n == 0 {
			break // nothing of its own is under way
		}
	}
	if full == peers {
		t.Fatalf("%d peers hold %d buffers, and that was not all", peers, hub.send.count)
	}
	for hub.poll(); len(hub.in) > 0; hub.poll() {
		hub.in = nil
	}
	ends[0].injected("resume")
	var told []int32
	hub.until("room for the link that holds nothing", func() bool {
		for _, p := range hub.in {
			if p.Event != transport.Room {
				t.Fatalf("event %d, %v", p.Event, p.Err)
			}
			told = append(told, p.Peer)
		}
		hub.in = nil
		for _, peer := range told {
			if int(peer) == full+1 {
				return true
			}
		}
		return false
	}, ends[0])
	if !links[full].TrySend(&wire.Header{Kind: wire.Eager}, body) {
		t.Error("told that there is room, and refused")
	}
	for _, e := range ends[1:] {
		e.injected("resume")
	}
	for i, e := range ends { // nothing was lost or doubled meanwhile
		e.until("what was sent", func() bool { return len(e.in) > 0 || i > full }, hub)
		for n := 0; i < full && n < depth; n++ {
			if p := e.take(transport.Arrived); p.Header.Tag != int32(n) {
				t.Fatalf("peer %d: %d, want %d", i, p.Header.Tag, n)
			}
			if n+1 >= hub.send.count-1-i*(depth) {
				break
			}
		}
	}
}

// The completion channel shows an arrival to either sleeper, once Arm has asked for it and until the next Arm.
func TestChannel(t *testing.T) {
	watchdog(t)
	a, b, ab, _ := two(t)
	wakes := b.Facts().Wake
	if len(wakes) != 1 || wakes[0].FD != wakes[0].ThreadFD || wakes[0].Word != nil {
		t.Fatalf("%+v: one channel for both was expected", wakes)
	}
	arm := func(level transport.Level) {
		t.Helper()
		for limit := time.Now().Add(patience); !b.Arm(level); b.noPackets() {
			if time.Now().After(limit) {
				t.Fatal("there is always something to poll")
			}
		}
	}
	for _, level := range []transport.Level{transport.Urgent, transport.Any, transport.Thread} {
		arm(level)
		if readable(wakes[0].FD) {
			t.Errorf("level %d: readable before anything has arrived", level)
		}
		send(t, ab, wire.Header{Kind: wire.Eager, Flags: wire.Urgent}, []byte("hello"), a)
		for limit := time.Now().Add(patience); !readable(wakes[0].FD); time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("level %d: an arrival is not shown", level)
			}
		}
		b.take(transport.Arrived)
		if !readable(wakes[0].ThreadFD) {
			t.Errorf("level %d: Poll has hidden from a sleeper what it was to see", level)
		}
		b.Disarm()
	}
	arm(transport.Any)
	if readable(wakes[0].FD) {
		t.Error("readable after another Arm")
	}
}

// Neither the software HCA nor soft-RoCE is hardware, so a caller that polls must let them work.
func TestHosted(t *testing.T) {
	_, _, ab, _ := two(t)
	if !ab.Caps().Hosted {
		t.Error("the link says that hardware is behind it")
	}
}

package pml

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// preparingNet has two ranks; the registration of a long message of rank 0 to rank 1 is under way, and a short message
// stands behind it.
func preparingNet(t *testing.T) (n *testNet, long, short *Request, msg []byte) {
	t.Helper()
	watchdog(t)
	n = newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20})
	t.Cleanup(n.close)
	n.linkAll()
	n.polls[0] = false // what can be READ is
	n.slowReg = true
	msg = contents(1, 0, 5000)
	long = n.engines[0].Isend(nil, 1, 1, 7, msg, Standard)
	short = n.engines[0].Isend(nil, 1, 1, 7, []byte("short"), Standard)
	if k := n.rmaUnderWay(); k != 1 || len(n.onWire(0, 1)) != 0 {
		t.Fatalf("%d registrations are under way, %d packets have left", k, len(n.onWire(0, 1)))
	}
	return n, long, short, msg
}

// settled ends the test of a net where nothing may be left.
func (n *testNet) settled(t *testing.T) {
	t.Helper()
	n.slowReg = false
	n.check(t)
	if len(n.regions) != 0 || n.ready != 0 {
		t.Errorf("%d registrations are left, and %d that no one has taken", len(n.regions), n.ready)
	}
}

// While a message is registered its rank goes on: it hears of others. What it sends to the same peer keeps the order.
func TestPrepareKeepsOrder(t *testing.T) {
	for _, fails := range []error{nil, errors.New("the test says no")} {
		n, long, short, msg := preparingNet(t)
		back := n.engines[1].Isend(nil, 1, 0, 5, []byte("back"), Standard)
		n.deliver(0, 1)
		here := n.engines[0].Irecv(nil, 1, 1, 5, make([]byte, 10))
		if here.state != stDone || here.status.Bytes != 4 || back.state != stDone {
			t.Errorf("a message of the other rank: states %d and %d, %+v", here.state, back.state, here.status)
		}
		n.check(t)
		n.endRMA(fails)
		sent := n.onWire(0, 1)
		if len(sent) != 2 || sent[0].Header.Kind != wire.RTS || sent[1].Header.Kind != wire.Eager ||
			sent[0].Header.Flags&wire.Readable != 0 != (fails == nil) {
			t.Fatalf("%v: %d packets: %+v", fails, len(sent), sent)
		}
		got := make([]byte, len(msg))
		r := n.engines[1].Irecv(nil, 1, 0, 7, got)
		for range 30 {
			n.deliver(1, 1)
			n.work(1)
			n.deliver(0, 1)
			n.work(0)
		}
		if r.state != stDone || long.state != stDone || short.state != stDone || !bytes.Equal(got, msg) {
			t.Errorf("%v: states %d %d %d", fails, r.state, long.state, short.state)
		}
		n.settled(t)
	}
}

// A send that is cancelled, or whose peer fails, while it is registered ends when the registration has.
func TestPrepareEnds(t *testing.T) {
	for name, end := range map[string]func(n *testNet, long *Request){
		"cancelled": func(n *testNet, long *Request) {
			e := n.engines[0]
			e.lock()
			e.cancel(long, nil)
			e.cancel(long, nil)
			e.unlock()
		},
		"peer gone":              func(n *testNet, _ *Request) { n.sayDown(0, 1) },
		"engine fails":           func(n *testNet, _ *Request) { n.engines[0].Fail(errOver) },
		"cancelled, peer gone":   func(n *testNet, r *Request) { cancelled(n, r); n.sayDown(0, 1) },
		"cancelled, fails":       cancelled,
		"peer gone, fails":       func(n *testNet, _ *Request) { n.sayDown(0, 1) },
		"cancelled, engine ends": func(n *testNet, r *Request) { cancelled(n, r); n.engines[0].Fail(errOver) },
	} {
		t.Run(name, func(t *testing.T) {
			n, long, short, _ := preparingNet(t)
			end(n, long)
			if long.state != stActive {
				t.Fatal("it has ended, and its buffer is being registered")
			}
			var fails error
			if name == "cancelled, fails" || name == "peer gone, fails" {
				fails = transport.ErrNoMemory
			}
			n.endRMA(fails)
			if long.state != stDone || short.state != stDone {
				t.Fatalf("states %d and %d", long.state, short.state)
			}
			alone := name == "cancelled" || name == "cancelled, fails"
			if sent := n.onWire(0, 1); alone && (!long.status.Cancelled || long.err != nil || len(sent) != 1) ||
				!alone && long.err == nil {
				t.Errorf("%+v, %v, %d packets", long.status, long.err, len(sent))
			}
			if n.ready != 0 || len(n.regions) != 0 {
				t.Errorf("%d registrations are left", len(n.regions)+n.ready)
			}
			n.slowReg = false
		})
	}
}

func cancelled(n *testNet, r *Request) {
	e := n.engines[0]
	e.lock()
	e.cancel(r, nil)
	e.unlock()
}

// lendingNet has three ranks; the registration of memory that rank 1 lends rank 0 is under way, since their link has
// been made. said has what rank 0 is told.
func lendingNet(t *testing.T) (n *testNet, w *Window, mem []byte, said chan Lent) {
	t.Helper()
	watchdog(t)
	n = newTestNet(netOptions{ranks: 3, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20, put: true})
	t.Cleanup(n.close)
	n.slowReg = true
	mem = contents(1, 0, 5000)
	w = n.engines[1].OpenWindow(1, 1, make([]byte, 10), lender{})
	said = make(chan Lent, 5)
	n.asksFor(w, 0, mem, said)
	n.linkAll()
	if k := n.rmaUnderWay(); k != 1 || len(said) != 0 {
		t.Fatalf("%d registrations are under way, %d answers", k, len(said))
	}
	return n, w, mem, said
}

// asksFor has a rank ask for the memory of a window.
func (n *testNet) asksFor(w *Window, rank int32, mem []byte, said chan Lent) {
	w.e.lock()
	defer w.e.unlock()
	w.Lend(rank, mem, func(l Lent) { said <- l })
	w.e.exitCall()
}

// told is what a rank has been told.
func told(t *testing.T, said chan Lent) (l Lent) {
	t.Helper()
	select {
	case l = <-said:
	default:
		t.Error("the rank is told nothing")
	}
	return l
}

// While memory is registered that a rank is lent, the lender goes on. The rank is told when the link has the memory, or
// cannot have it; and a rank that asks twice is told at once that it reaches nothing.
func TestLendPrepares(t *testing.T) {
	n, w, mem, said := lendingNet(t)
	n.asksFor(w, 0, mem, said)
	if l := told(t, said); l != (Lent{}) || n.rmaUnderWay() != 1 {
		t.Errorf("the second time %+v is lent, and %d registrations are under way", l, n.rmaUnderWay())
	}
	there := n.engines[0].Isend(nil, 1, 1, 5, []byte("there"), Standard)
	n.deliver(0, 1)
	n.deliver(1, 1)
	here := n.engines[1].Irecv(nil, 1, 0, 5, make([]byte, 10))
	if here.state != stDone || there.state != stDone || len(said) != 0 {
		t.Errorf("a message of the other rank: states %d and %d; %d answers", here.state, there.state, len(said))
	}
	n.asksFor(w, 2, mem, said)
	n.check(t)
	n.endRMA(nil)
	if l := told(t, said); !l.Reads || !l.Writes || len(n.regions) != 1 {
		t.Errorf("%+v is lent; %d registrations", l, len(n.regions))
	}
	n.endRMA(errors.New("the test says no"))
	if l := told(t, said); l != (Lent{}) || len(n.regions) != 1 {
		t.Errorf("what is not registered is lent as %+v; %d registrations", l, len(n.regions))
	}
	w.Withdraw()
	n.settled(t)
	if load := &w.e.load; load.outstanding != load.serving || w.moving != 0 {
		t.Errorf("left: %+v, %d", *load, w.moving)
	}
}

// What the rank that is lent memory says meanwhile, honest or not, does nothing to the registration: that it has
// returned, that a message has come which it has not been sent. Nor does the end of a communicator.
func TestLendHostile(t *testing.T) {
	n, w, _, said := lendingNet(t)
	n.hostile = true
	e := n.engines[1]
	for lending := range e.links.transfers.values() {
		n.speaksOf(t, 1, 0, lending.r)
	}
	n.devices[1].inbox = append(n.devices[1].inbox, transport.Packet{Header: wire.Header{Kind: wire.Returned}})
	n.work(1) // what waits for rank 0 ends
	e.Revoke(0, 1, errOver)
	if n.check(t); len(said) != 0 {
		t.Fatalf("rank 0 is told %+v, and the memory is being registered", <-said)
	}
	n.endRMA(nil)
	if l := told(t, said); !l.Reads {
		t.Errorf("%+v is lent", l)
	}
	w.Withdraw()
	n.settled(t)
}

// Memory that is registered to be lent is the link's until the registration is over, whatever becomes of the window,
// the rank and the lender meanwhile. A window that is over lends it to no rank, and no registration is left of one.
func TestLendEnds(t *testing.T) {
	for name, end := range map[string]func(n *testNet, w *Window){
		"withdrawn":          func(_ *testNet, w *Window) { w.Withdraw() },
		"kept":               func(_ *testNet, w *Window) { w.Keep() },
		"rank gone":          func(n *testNet, _ *Window) { n.sayDown(1, 0) },
		"engine fails":       func(n *testNet, _ *Window) { n.engines[1].Fail(errOver) },
		"withdrawn and gone": func(n *testNet, w *Window) { w.Withdraw(); n.sayDown(1, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			n, w, _, said := lendingNet(t)
			end(n, w)
			idle := make(chan bool)
			w.WhenIdle(func() { close(idle) })
			n.work(1)
			if len(said) != 0 || w.moving != 1 {
				t.Fatalf("%d answers, %d moving, and the memory is being registered", len(said), w.moving)
			}
			n.endRMA(nil)
			if l := told(t, said); l != (Lent{}) && w.over {
				t.Errorf("%+v is lent", l)
			}
			<-idle
			w.Withdraw()
			for left := 1; left > 0; runtime.Gosched() {
				n.mu.Lock()
				left = len(n.regions) + n.ready
				n.mu.Unlock()
			}
			n.slowReg = false
		})
	}
}

// A rank that is closed while memory is registered lends it to no rank, and registers nothing any more.
func TestLendClosed(t *testing.T) {
	n, w, _, said := lendingNet(t)
	idle := make(chan bool)
	w.WhenIdle(func() { close(idle) })
	n.ready++            // the device has registered it, and tells no one any more
	n.devices[1].Close() // or its sleepers would not wake
	if err := n.engines[1].Close(errOver); err != nil {
		t.Error(err)
	}
	w.Withdraw()
	if l := told(t, said); l != (Lent{}) || len(n.regions) != 0 {
		t.Errorf("%+v is lent; %d registrations", l, len(n.regions))
	}
	<-idle
}

// A rank waits while its device registers the memory in which that makes the steps. It waits for no other rank, goes on
// with what others ask, and is not stopped by the end of a communicator.
func TestStepsPrepare(t *testing.T) {
	watchdog(t)
	cpus := runtime.GOMAXPROCS(2) // as in parkedLeader
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	n := newTestNet(netOptions{ranks: 3, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20, put: true})
	defer n.close()
	n.linkAll()
	n.slowReg = true
	own := newTestLink(n.devices[1], 1).caps.RMA
	own.FetchAdd = func(uint64, uint64, uint64, uint64) (transport.State, error) { return transport.Done, nil }
	n.devices[1].own, n.devices[1].wakes = own, true
	e, mem := n.engines[1], make([]byte, 5000)
	w := e.OpenWindow(1, 1, make([]byte, 10), lender{})
	made := make(chan *Reach)
	go func() { made <- w.StepByDevice(mem) }()
	for e.leads() != leaderParked {
		runtime.Gosched()
	}
	e.Snapshot(func(s *Snapshot) {
		if s.Quiet || len(s.Sleepers) != 0 {
			t.Errorf("%+v, and the rank waits for its own device", s)
		}
	})
	said := make(chan Lent, 1)
	n.slowReg = false
	n.asksFor(w, 2, mem[:100], said) // though its rank should not know of the window yet
	n.slowReg = true
	if l := told(t, said); !l.Reads {
		t.Errorf("%+v is lent", l)
	}
	e.Revoke(0, 1, errOver)
	n.endRMA(nil)
	if f := <-made; f == nil || !f.Steps() || len(n.regions) != 2 {
		t.Errorf("the device makes no steps, or %d registrations", len(n.regions))
	}
	n.check(t)
	w.Withdraw()
	n.settled(t)
}

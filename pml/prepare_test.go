package pml

import (
	"bytes"
	"errors"
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

package pml

import (
	"math"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// Each message that was sent counts as taken once it has come, whatever becomes of it. Where the counts differ, gorun
// takes a message for one that is under way, and never says that the job stands.
func TestEachMessageCountsAsTaken(t *testing.T) {
	const ctx, tag = 1, 5
	kinds := map[string]struct {
		size int
		mode Mode
	}{"short": {8, Standard}, "synchronous": {8, Synchronous}, "long": {5000, Standard}}
	for name, test := range map[string]func(n *testNet, send func() *Request, settle func()){
		"received": func(n *testNet, send func() *Request, settle func()) {
			send()
			settle()
			n.engines[1].Irecv(nil, ctx, 0, tag, make([]byte, 5000))
		},
		"dropped when it is here": func(n *testNet, send func() *Request, settle func()) {
			send()
			settle()
			n.engines[1].DropContext(ctx, errOver)
		},
		"dropped when it comes": func(n *testNet, send func() *Request, _ func()) {
			n.engines[1].DropContext(ctx, errOver)
			send()
		},
		"taken back": func(_ *testNet, send func() *Request, settle func()) {
			r := send()
			settle()
			r.Cancel()
		},
		"held by a matched probe": func(n *testNet, send func() *Request, settle func()) {
			for range 2 {
				send()
			}
			settle()
			e := n.engines[1]
			for i := range 2 {
				m, _, found, err := e.Iprobe(ctx, 0, tag, true)
				if !found || err != nil {
					t.Fatal(found, err)
				}
				if i == 0 {
					e.Imrecv(nil, m, make([]byte, 5000))
				}
			}
		},
	} {
		for kind, k := range kinds {
			t.Run(name+", "+kind, func(t *testing.T) {
				watchdog(t)
				n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 64 << 10})
				defer n.close()
				n.linkAll()
				settle := func() {
					for range 20 {
						n.deliver(1, math.MaxInt)
						n.deliver(0, math.MaxInt)
					}
				}
				test(n, func() *Request {
					return n.engines[0].Isend(nil, ctx, 1, tag, make([]byte, k.size), k.mode)
				}, settle)
				settle()
				var sent, taken uint64
				for _, e := range n.engines {
					s := e.Glance()
					sent, taken = sent+s.Sent, taken+s.Taken
				}
				if sent == 0 || sent != taken {
					t.Errorf("%d messages were sent, and %d are taken", sent, taken)
				}
			})
		}
	}
}

// So does a message that is fetched before a receive asks for it, and then for a receive, if that ends meanwhile.
func TestFetchedEarlyCountsAsTaken(t *testing.T) {
	const ctx, tag, size = 1, 5, 200
	for name, ends := range map[string]func(n *testNet){
		"the communicator is revoked": func(n *testNet) { n.engines[1].Revoke(ctx, 1, errOver) },
		"the connection breaks": func(n *testNet) {
			n.sayDown(1, 0)
			n.sayDown(0, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			watchdog(t)
			n := newTestNet(netOptions{ranks: 2, eagerMax: 256, fragMax: 512, unexpectedMax: 1, noGet: true})
			defer n.close()
			n.linkAll()
			a, b := n.engines[0], n.engines[1]
			var sends, receives []*Request
			for announced := false; !announced; { // use up the credit for payloads
				sends = append(sends, a.Isend(nil, ctx, 1, tag, make([]byte, size), Standard))
				for _, pkt := range n.wires[[2]int{0, 1}] {
					announced = announced || pkt.Header.Kind == wire.RTS
				}
			}
			for range 3 * fruitless { // the sender waits for the last one, and the receiver for another message
				sends[len(sends)-1].Test()
			}
			n.deliver(1, math.MaxInt)
			for range 3 * fruitless {
				b.Iprobe(ctx, 0, tag+1, false)
			}
			for range sends {
				receives = append(receives, b.Irecv(nil, ctx, 0, tag, make([]byte, size)))
			}
			last := receives[len(receives)-1]
			if len(b.links.fetches) != 1 || last.state == stDone {
				t.Fatalf("%d messages are being fetched, and the last receive is in state %d", len(b.links.fetches), last.state)
			}
			ends(n)
			for range 20 {
				n.deliver(1, math.MaxInt)
				n.deliver(0, math.MaxInt)
			}
			if last.state != stDone || last.err == nil {
				t.Errorf("the last receive is in state %d: %v", last.state, last.err)
			}
			if sent, taken := a.Glance().Sent, b.Glance().Taken; sent != taken {
				t.Errorf("%d messages were sent, and %d are taken", sent, taken)
			}
		})
	}
}

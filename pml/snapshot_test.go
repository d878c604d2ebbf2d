package pml

import (
	"math"
	"testing"
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

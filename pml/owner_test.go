package pml

import (
	"errors"
	"math"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// fails are the ways in which rank 0 comes to fail rank 1. Whether Down has come with it.
var fails = map[string]func(n *testNet) (down bool){
	"the peer is gone": func(n *testNet) bool { n.sayDown(0, 1); return true },
	"it breaks the protocol": func(n *testNet) bool {
		n.devices[0].inbox = append(n.devices[0].inbox,
			transport.Packet{Peer: 1, Header: wire.Header{Kind: wire.Credit, Len: math.MaxUint64}})
		n.work(0)
		return false
	},
	"the engine fails": func(n *testNet) bool {
		n.engines[0].Fail(errOver)
		n.work(0)
		return false
	},
}

// ownerNet is two ranks whose RMA is late and whose links say Down when the test does.
func ownerNet(t *testing.T) *testNet {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20, put: true})
	n.hostile, n.slowCut, n.lateRMA = true, true, true
	n.linkAll()
	return n
}

// A receive or send whose peer fails ends when nothing can touch its buffer any more, and not before: its own READ and
// WRITE are over, and where the peer can reach the buffer the device has said Down.
func TestBufferUntilUntouched(t *testing.T) {
	const size = 100 << 10
	for _, c := range []struct {
		name    string
		begin   func(n *testNet) *Request // rank 0's
		own     int                       // operations of rank 0 that are under way
		exposed bool                      // rank 1 can reach the buffer
	}{
		{"get, receiver", func(n *testNet) *Request {
			n.polls[1] = false
			return receiving(n, size)
		}, 1, false},
		{"split, receiver", func(n *testNet) *Request {
			n.prefer(0, rendezvous.Split)
			return receiving(n, size)
		}, 1, true},
		{"stream, receiver", func(n *testNet) *Request {
			n.prefer(0, rendezvous.Stream)
			return receiving(n, size)
		}, 0, false},
		{"announced, sender", func(n *testNet) *Request {
			return n.engines[0].Isend(nil, 0, 1, 7, make([]byte, size), Standard)
		},
			0, true},
		{"get, sender", func(n *testNet) *Request { n.polls[0] = false; return sending(n, size) }, 0, true},
		{"split, sender", func(n *testNet) *Request { n.prefer(1, rendezvous.Split); return sending(n, size) }, 1, true},
		{"stream, sender", func(n *testNet) *Request {
			n.rooms[[2]int{0, 1}] = 3
			n.prefer(1, rendezvous.Stream)
			return sending(n, size)
		}, 0, true},
		{"cancelled, sender", func(n *testNet) *Request {
			r := n.engines[0].Isend(nil, 0, 1, 7, make([]byte, size), Standard)
			r.Cancel()
			return r
		}, 0, true},
	} {
		for how, fail := range fails {
			t.Run(c.name+", "+how, func(t *testing.T) {
				n := ownerNet(t)
				defer n.close()
				r := c.begin(n)
				mine := n.rma
				if c.name == "split, sender" { // the receiver's own READ is older
					mine = n.rma[len(n.rma)-1:]
				}
				if c.own > len(mine) {
					t.Fatalf("%d operations are under way", len(mine))
				}
				n.rma = mine
				under := func(want bool, when string) {
					t.Helper()
					n.work(0)
					if under := r.state == stActive; under != want {
						t.Fatalf("%s: under way %v, want %v; its error is %v", when, under, want, r.err)
					}
				}
				under(true, "before")
				down := fail(n)
				under(c.own > 0 || c.exposed && !down, "when the peer has failed")
				if !down && !n.cuts[[2]int{0, 1}] {
					t.Error("the link is not cut")
				}
				if c.exposed && !down {
					n.sayDown(0, 1)
				}
				under(c.own > 0, "when it is down")
				if c.own > 0 {
					n.endRMA(nil)
				}
				under(false, "at the end")
				if done, _, err := r.Test(); !done || err == nil {
					t.Errorf("done %v, %v", done, err)
				}
				n.hostile = true
				n.check(t)
				if left := n.engines[0].Pending(); left != 0 {
					t.Errorf("%d operations are left", left)
				}
			})
		}
	}
}

// receiving is a receive that rank 0 has matched with a message of rank 1.
func receiving(n *testNet, size int) *Request {
	r := n.engines[0].Irecv(nil, 0, 1, 7, make([]byte, size))
	n.engines[1].Isend(nil, 0, 0, 7, make([]byte, size), Standard)
	n.deliver(0, math.MaxInt)
	return r
}

// sending is a send of rank 0 that rank 1 has matched and has begun to fetch.
func sending(n *testNet, size int) *Request {
	n.engines[1].Irecv(nil, 0, 0, 7, make([]byte, size))
	r := n.engines[0].Isend(nil, 0, 1, 7, make([]byte, size), Standard)
	n.deliver(1, math.MaxInt)
	n.deliver(0, math.MaxInt)
	return r
}

// A peer that acknowledges or gives back a message that this rank still moves has it no longer, and the buffer stays
// the library's all the same.
func TestHostileAnswersDoNotFreeBuffers(t *testing.T) {
	for name, h := range map[string]wire.Header{
		"FIN during a WRITE":         {Kind: wire.FIN, ID: 1<<32 | 1},
		"CancelReply during a WRITE": {Kind: wire.CancelReply, ID: 1<<32 | 1, Len: 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := ownerNet(t)
			defer n.close()
			e := n.engines[0]
			r := e.Isend(nil, 0, 1, 7, make([]byte, 100<<10), Standard)
			say := func(h wire.Header) {
				n.devices[0].inbox = append(n.devices[0].inbox, transport.Packet{Peer: 1, Header: h})
				n.work(0)
			}
			n.last++
			n.regions[n.last] = registration{1, make([]byte, 1000), transport.Writable}
			say(wire.Header{Kind: wire.PutReq, ID: 1<<32 | 1, Key: 1<<32 | 1, Len: 1000, Addr: n.last * registeredAt})
			if len(n.rma) != 1 {
				t.Fatal("nothing is written")
			}
			r.Cancel()
			say(h)
			n.sayDown(0, 1)
			if r.state != stActive {
				t.Fatal("the buffer is the caller's, and a WRITE reads it")
			}
			n.endRMA(errors.New("cut"))
			if done, _, err := r.Test(); !done || err == nil {
				t.Errorf("done %v, %v", done, err)
			}
		})
	}
}

// The end of the job ends what a rank has sent to itself at once: only this engine reaches that.
func TestFailEndsSelf(t *testing.T) {
	for n := 1; n <= 2; n++ {
		w := newRanks(t, n, Config{})
		e := w.e[0]
		r := e.Isend(nil, 1, 0, 7, make([]byte, 1<<20), Standard)
		e.Fail(errOver)
		if done, _, err := r.Test(); !done || !errors.Is(err, errOver) {
			t.Errorf("%d ranks: done %v, %v", n, done, err)
		}
	}
}

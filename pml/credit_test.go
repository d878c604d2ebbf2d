package pml

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/transport"
)

// That more is granted than GORUN_UNEXPECTED_MAX is said once, however often; and never where receives take what comes.
// The memory for the records that it takes is not kept.
func TestGrowthIsSaidOnce(t *testing.T) {
	for _, waits := range []bool{true, false} {
		var said []string
		debug := func(msg string, args ...any) {
			if strings.Contains(msg, "GORUN_UNEXPECTED_MAX") {
				said = append(said, fmt.Sprint(msg, args))
			}
		}
		w := newRanks(t, 2, Config{UnexpectedMax: 1, Debug: debug})
		const n = 1000
		var rs []*Request
		for i := range n {
			rs = append(rs, w.e[0].Isend(nil, 0, 1, int32(i), []byte{1}, Standard))
		}
		for i := range n {
			tag := int32(i)
			if waits {
				tag = n - 1 - tag
			}
			if _, err := w.e[1].Recv(nil, 0, 0, tag, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range rs {
			if _, err := r.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		w.e[0].lock()
		w.e[1].lock()
		chained := 0
		for u := w.e[1].links.spare; u != nil; u = u.next {
			chained++
		}
		if chained > 1 {
			t.Errorf("%d records of messages are kept for reuse, where there is room for none but the last", chained)
		}
		if times := len(said); times > 1 || (times == 1) != waits {
			t.Errorf("receives wait behind others: %v; said %d times: %q", waits, times, said)
		}
		w.e[1].unlock()
		w.e[0].unlock()
	}
}

// A sender that has run out of credit for payloads looks once for more before it announces a short message: what its
// receiver has given back is there already.
func TestCreditThatIsHereIsUsed(t *testing.T) {
	for name, send := range map[string]func(n *testNet, e *Engine, buf []byte){
		"Send":         func(_ *testNet, e *Engine, buf []byte) { e.Send(nil, 4, 1, 7, buf, Standard) },
		"Isend":        func(_ *testNet, e *Engine, buf []byte) { e.Isend(nil, 4, 1, 7, buf, Standard).Wait() },
		"SendDetached": func(_ *testNet, e *Engine, buf []byte) { e.SendDetached(4, 1, 7, buf) },
		"Start": func(_ *testNet, e *Engine, buf []byte) {
			r := e.PrepareSend(nil, 4, 1, 7, buf, Standard)
			r.Start()
			r.Wait()
		},
		"Sendrecv": func(n *testNet, e *Engine, buf []byte) {
			n.engines[1].Send(nil, 4, 0, 9, buf, Standard)
			n.arrive(0, math.MaxInt)
			e.Sendrecv(nil, 4, 1, 7, buf, 1, 9, make([]byte, 8))
		},
	} {
		t.Run(name, func(t *testing.T) {
			watchdog(t)
			n := newTestNet(netOptions{ranks: 2, eagerMax: 256, fragMax: 512, unexpectedMax: 1})
			defer n.close()
			n.linkAll()
			e := n.engines[0]
			for books(e.links.peer(1).out.CreditSender, "credit") >= books(e.links.peer(1).out.CreditSender, "envelopes")+eager.Cost(8) {
				n.engines[1].Irecv(nil, 4, 0, 7, make([]byte, 8))
				e.Isend(nil, 4, 1, 7, make([]byte, 8), Standard).Wait()
			}
			before := e.Stats()
			n.deliver(1, math.MaxInt)
			n.arrive(0, math.MaxInt)
			n.engines[1].Irecv(nil, 4, 0, 7, make([]byte, 8))
			send(n, e, make([]byte, 8))
			if got := e.Stats(); got.EagerSent != before.EagerSent+1 || got.RendezvousSent != before.RendezvousSent {
				t.Errorf("%d eager, %d announced; the credit had come", got.EagerSent-before.EagerSent,
					got.RendezvousSent-before.RendezvousSent)
			}
			n.deliver(1, math.MaxInt)
			n.check(t)
		})
	}
}

// The poll by which a buffered send looks for credit brings the end of its receiver, and a message for a receive that
// is posted: the call returns an error, and something goes on with the message.
func TestBufferedSendToGone(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 3, eagerMax: 256, fragMax: 512, unexpectedMax: 1})
	defer n.close()
	n.linkAll()
	n.polls[2] = false // so that its message is read
	e := n.engines[0]
	for e.Stats().RendezvousSent == 0 {
		e.Isend(nil, 4, 1, 7, make([]byte, 8), Standard) // until there is no credit for a payload
	}
	size := 2*readPiece + 1
	in := make([]byte, size)
	r := e.Irecv(nil, 4, 2, 7, in)
	n.engines[2].Isend(nil, 4, 0, 7, contents(2, 7, size), Standard)
	n.arrive(0, math.MaxInt)
	n.devices[0].inbox = append(n.devices[0].inbox,
		transport.Packet{Event: transport.Down, Peer: 1, Err: transport.ErrPeerGone})
	if err := e.SendDetached(4, 1, 7, make([]byte, 8)); err == nil {
		t.Error("a message to a rank that is gone is sent")
	}
	n.check(t)
	for range 3 {
		n.work(0)
	}
	if done, _, err := r.Test(); !done || err != nil || !bytes.Equal(in, contents(2, 7, size)) {
		t.Errorf("done %v, %v", done, err)
	}
}

// What may happen to a message of a blocked sender while its receiver, which waits for something else, fetches it: the
// send ends without a match, as if it was never cancelled, and the receive that it then meets gets all of it.
func TestFetchedBeforeItIsMatched(t *testing.T) {
	for name, meanwhile := range map[string]func(n *testNet, buf []byte) *Request{
		"nothing":        func(*testNet, []byte) *Request { return nil },
		"is matched":     func(n *testNet, buf []byte) *Request { return n.engines[1].Irecv(nil, scriptContext, 0, 7, buf) },
		"is asked back":  func(*testNet, []byte) *Request { return nil },
		"is dropped":     func(n *testNet, buf []byte) *Request { n.engines[1].DropContext(scriptContext, errOver); return nil },
		"loses its rank": func(n *testNet, buf []byte) *Request { n.sayDown(1, 0); return nil },
		"is matched, and loses its rank": func(n *testNet, buf []byte) *Request {
			r := n.engines[1].Irecv(nil, scriptContext, 0, 7, buf)
			n.sayDown(1, 0)
			return r
		},
		"is taken by a probe": func(n *testNet, buf []byte) *Request {
			m, _, found, err := n.engines[1].Iprobe(scriptContext, 0, 7, true)
			if !found || err != nil {
				return nil
			}
			r, _ := n.engines[1].Imrecv(nil, m, buf)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			watchdog(t)
			n := newTestNet(netOptions{ranks: 2, eagerMax: 256, fragMax: 512, unexpectedMax: 1, noGet: true})
			defer n.close()
			n.linkAll()
			e := n.engines[1]
			for n.engines[0].Stats().RendezvousSent == 0 {
				n.engines[0].Isend(nil, scriptContext+1, 1, 9, make([]byte, 8), Standard) // until there is no credit for a payload
			}
			s := n.engines[0].isendBlocked(1, 7, contents(0, 7, 200), Standard)
			n.deliver(1, math.MaxInt)
			if e.links.letSendersGoOn(nil); !slices.Equal(e.links.wanting, nil) {
				t.Error("a sender is still to be heard")
			}
			buf := make([]byte, 200)
			r := meanwhile(n, buf)
			if name == "is asked back" {
				s.Cancel()
			}
			died := strings.HasSuffix(name, "its rank")
			for range 3 {
				if !died {
					n.deliver(0, math.MaxInt)
					n.deliver(1, math.MaxInt)
				}
			}
			if done, st, err := s.Test(); done == died || err != nil || st.Cancelled {
				t.Errorf("the send: %v, %+v, %v", done, st, err)
			}
			if r == nil {
				r = e.Irecv(nil, scriptContext, 0, 7, buf)
			}
			gone := name == "is dropped"
			switch done, st, err := r.Test(); {
			case gone && done, !gone && !done, died != (err != nil), err == nil && done && st.Bytes != 200:
				t.Errorf("the receive: %v, %+v, %v", done, st, err)
			case done && !died && !bytes.Equal(buf, contents(0, 7, 200)):
				t.Error("the message is another one")
			}
			n.check(t)
			e.lock()
			if e.links.early != 0 || len(e.links.fetches) != 0 {
				t.Errorf("%d bytes and %d messages are kept", e.links.early, len(e.links.fetches))
			}
			e.unlock()
		})
	}
}

// A caller that asks for a message in a loop waits for it: blocked senders go on soon, also while a message that is
// matched is on its way, which does not move here.
func TestSendersGoOnBesideAStream(t *testing.T) {
	for name, stream := range map[string]bool{"nothing": false, "a stream": true} {
		t.Run(name, func(t *testing.T) {
			watchdog(t)
			n := newTestNet(netOptions{ranks: 3, eagerMax: 256, fragMax: 512, unexpectedMax: 1, noGet: true})
			defer n.close()
			n.linkAll()
			e := n.engines[0]
			if stream {
				size := 1 << 20
				e.Irecv(nil, scriptContext, 1, 8, make([]byte, size))
				n.engines[1].Isend(nil, scriptContext, 0, 8, make([]byte, size), Standard)
				n.deliver(0, math.MaxInt)
				if e.links.transfers.inbound != 1 {
					t.Fatal("there is no stream")
				}
			}
			calls, r := 0, e.Irecv(nil, scriptContext, 2, 9, nil)
			for range 1000 {
				s := n.engines[2].isendBlocked(0, 7, make([]byte, 8), Standard)
				for n.deliver(0, math.MaxInt); ; n.deliver(0, math.MaxInt) {
					if n.deliver(2, math.MaxInt); s.state == stDone {
						break
					}
					if calls++; calls%2 == 0 {
						e.Iprobe(scriptContext, 1, 9, false)
					} else {
						r.Test()
					}
				}
				s.Wait()
			}
			if calls > 100*fruitless {
				t.Errorf("1000 sends took %d calls of Iprobe and Test", calls)
			}
		})
	}
}

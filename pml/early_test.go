package pml

import (
	"math"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// A persistent send that is started again, and for which no caller waits, is not announced as one of a blocked caller.
func TestPersistentSendIsBlockedOnce(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 256, fragMax: 512, unexpectedMax: 1, noGet: true})
	defer n.close()
	n.linkAll()
	a, b := n.engines[0], n.engines[1]
	p := a.PrepareSend(nil, scriptContext, 1, 7, make([]byte, 200), Standard)
	for round := range 2 {
		var others []*Request
		announced := func() bool {
			for _, pkt := range n.wires[[2]int{0, 1}] {
				if pkt.Header.Kind == wire.RTS {
					return true
				}
			}
			return false
		}
		for !announced() { // use up the credit for payloads
			others = append(others, a.Isend(nil, scriptContext, 1, 8, make([]byte, 200), Standard))
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, pkt := range n.wires[[2]int{0, 1}] {
			if h := pkt.Header; h.Kind == wire.RTS && h.Tag == 7 {
				found = true
				t.Logf("round %d: RTS of the persistent send, flags %#x", round, h.Flags)
				if h.Flags&wire.Blocking != 0 {
					t.Errorf("round %d: the RTS says that a caller waits", round)
				}
			}
		}
		if !found {
			t.Fatal("not announced", len(others))
		}
		if round == 0 {
			for range 3 * fruitless {
				if done, _, err := p.Test(); done || err != nil {
					t.Fatal(done, err)
				}
			}
		}
		for range others {
			r := b.Irecv(nil, scriptContext, 0, 8, make([]byte, 200))
			for r.state != stDone {
				n.deliver(0, math.MaxInt)
				n.deliver(1, math.MaxInt)
			}
			r.Wait()
		}
		r := b.Irecv(nil, scriptContext, 0, 7, make([]byte, 200))
		for r.state != stDone || p.state != stDone {
			n.deliver(0, math.MaxInt)
			n.deliver(1, math.MaxInt)
		}
		r.Wait()
		p.Wait()
		for _, o := range others {
			for o.state != stDone {
				n.deliver(0, math.MaxInt)
				n.deliver(1, math.MaxInt)
			}
			o.Wait()
		}
	}
}

package pml

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A peer that reads nothing and goes on asking does not make this rank keep answers without end.
func TestHostileAsksWithoutEnd(t *testing.T) {
	cancel := func(id uint64) []wire.Header { return []wire.Header{{Kind: wire.Cancel, ID: id}} }
	for name, ask := range map[string]func(i uint64) []wire.Header{
		"cancels what it has not sent": cancel,
		"cancels one message again":    func(uint64) []wire.Header { return cancel(1) },
		"cancels what it announces": func(i uint64) []wire.Header {
			return append([]wire.Header{{Kind: wire.RTS, ID: i, Len: 1}}, cancel(i)...)
		},
		"announces to a communicator that is freed": func(i uint64) []wire.Header {
			return []wire.Header{{Kind: wire.RTS, Ctx: 9, ID: i, Len: 1}}
		},
		"asks for WRITEs": func(uint64) []wire.Header {
			return []wire.Header{{Kind: wire.PutReq, ID: 1<<32 | 1, Len: 1 << 40}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			watchdog(t)
			n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 64 << 10, put: true})
			defer n.close()
			n.hostile = true
			n.linkAll()
			e := n.engines[0]
			e.DropContext(9, errOver)
			e.Isend(nil, 0, 1, 7, make([]byte, 5000), Standard) // as number 1.1
			n.rooms[[2]int{0, 1}] = 1
			e.lock()
			p := e.links.peer(1)
			most := 2 * (p.in.Messages() + p.out.Messages())
			e.unlock()
			for i := range uint64(20 * most) {
				w := [2]int{1, 0}
				for _, h := range ask(i + 1) {
					n.wires[w] = append(n.wires[w], transport.Packet{Peer: 1, Header: h})
				}
				n.deliver(0, math.MaxInt)
				e.lock()
				kept, over := p.control.len(), p.err != nil
				e.unlock()
				if kept > 2*most {
					t.Fatalf("after %d questions %d answers wait, and at most %d may", i, kept, most)
				}
				if over {
					return
				}
			}
			t.Error("it goes on asking, and nothing is done about that")
		})
	}
}

// A peer that asks for credit again and again gets one answer until it takes that, as long as it keeps within what it
// was granted; beyond that it is failed.
func TestHostileWantsCredit(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 64 << 10})
	defer n.close()
	n.hostile = true
	n.linkAll()
	e := n.engines[0]
	e.Irecv(nil, 0, 1, 99, nil) // waits for what might be behind all of that
	n.rooms[[2]int{0, 1}] = 0
	w := [2]int{1, 0}
	p := func() *peer { e.lock(); defer e.unlock(); return e.links.peer(1) }()
	for i := range 10_000 {
		e.lock()
		given, kept, err := reflect.ValueOf(p.in).FieldByName("given").Uint(), p.control.len(), p.err
		e.unlock()
		if kept > 1 {
			t.Fatalf("after %d questions %d answers wait", i, kept)
		}
		if err != nil {
			if i < 50 || !errors.Is(err, transport.ErrPeerGone) {
				t.Errorf("failed after %d messages: %v", i, err)
			}
			return
		}
		for _, h := range []wire.Header{{Kind: wire.RTS, ID: uint64(i + 1), Tag: 1}, {Kind: wire.CreditReq, Len: given}} {
			n.wires[w] = append(n.wires[w], transport.Packet{Peer: 1, Header: h})
		}
		n.deliver(0, math.MaxInt)
	}
	t.Error("it sends more than it was granted")
}

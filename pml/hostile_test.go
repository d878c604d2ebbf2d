package pml

import (
	"errors"
	"math"
	"reflect"
	"slices"
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

// A peer that says that it waits for a message is believed once, for one that it has announced, is short and is not
// matched. Else nothing comes of it.
func TestHostileSaysThatItWaits(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 64 << 10})
	defer n.close()
	n.hostile = true
	n.linkAll()
	e := n.engines[0]
	p := e.links.peer(1)
	get := func(hs ...wire.Header) (blocked int) {
		for _, h := range hs {
			n.wires[[2]int{1, 0}] = append(n.wires[[2]int{1, 0}], transport.Packet{Peer: 1, Header: h})
		}
		n.deliver(0, math.MaxInt)
		e.lock()
		defer e.unlock()
		if p.err != nil {
			t.Fatal(p.err)
		}
		if (p.blocked > 0) != slices.Contains(e.links.wanting, p) {
			t.Errorf("%d are blocked, and wanting is %v", p.blocked, e.links.wanting)
		}
		return p.blocked
	}
	says := func(id uint64) wire.Header {
		return wire.Header{Kind: wire.Blocked, Flags: wire.Blocking | wire.NoCredit, ID: id}
	}
	e.Irecv(nil, 0, 1, 5, make([]byte, 1))
	if got := get(wire.Header{Kind: wire.RTS, ID: 1, Len: 50}, wire.Header{Kind: wire.RTS, ID: 2, Len: 1 << 62},
		wire.Header{Kind: wire.EagerSync, ID: 3}, wire.Header{Kind: wire.RTS, ID: 4, Len: 50, Tag: 5},
		wire.Header{Kind: wire.RTS, ID: 5, Len: 50, Tag: 6},
		says(0), says(2), says(3), says(4), says(99), wire.Header{Kind: wire.Blocked, ID: 1, Flags: wire.NoCredit}); got != 1 {
		t.Errorf("%d messages have blocked senders, want 1", got)
	}
	if _, _, taken, err := e.Iprobe(0, 1, 6, true); !taken || err != nil {
		t.Fatal(taken, err)
	}
	if got := get(says(1), says(1), says(5)); got != 2 { // a probe has taken the second
		t.Errorf("%d messages have blocked senders, want 2", got)
	}
	if got := get(wire.Header{Kind: wire.Cancel, ID: 1}, says(1), wire.Header{Kind: wire.Cancel, ID: 5}); got != 1 {
		t.Errorf("%d messages have blocked senders once that one has been taken back", got)
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

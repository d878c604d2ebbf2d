//go:build verbs && linux && cgo

package verbs

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

const (
	// peerMemory is what each of many peers may take of Go's heap, with its control connection.
	peerMemory = 2 << 10
	// peerResident is what each may take of the resident memory, without what the device takes for its queue pairs.
	peerResident = 16 << 10
)

// echo makes the session with a peer that is not there: its queue pair is connected with itself, so that what is sent to
// the peer comes from it.
func (e *end) echo(peer int) *session {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.makeSession(peer)
	if err != nil {
		e.t.Fatal(err)
	}
	e.sessions[peer] = s
	r := e.here()
	r.qpn, r.psn = s.qpn, s.psn
	if err := e.hca.connectQP(s.qp, e.at.number, e.at.gidIndex, e.at.global, &r, s.psn); err != nil {
		e.t.Fatal(err)
	}
	s.state, s.everOpen = stateOpen, true
	close(s.opened)
	return s
}

// echoes sends a message to each of some peers, and waits until all have come back and the device has nothing more.
func (e *end) echoes(links []*link) {
	e.t.Helper()
	came := 0
	take := func() {
		n := e.Poll(e.pkts[:])
		for _, p := range e.pkts[:n] {
			switch p.Event {
			case transport.Room:
			case transport.Arrived:
				came++
			default:
				e.t.Fatalf("event %d of rank %d, %v", p.Event, p.Peer, p.Err)
			}
		}
	}
	limit := time.Now().Add(patience)
	for _, l := range links {
		for !l.TrySend(&wire.Header{Kind: wire.Eager}, []byte("hello")) {
			take()
		}
		l.s.confirm()
		take()
	}
	for came < len(links) || e.inFlight > 0 {
		if take(); time.Now().After(limit) {
			e.t.Fatalf("%d of %d messages have come back, %d requests are under way", came, len(links), e.inFlight)
		}
	}
}

func silent(o *Options) { o.Debug, o.Log, o.Control.Log = nil, nil, nil }

// Ten thousand peers, with -short two thousand: what a rank keeps for each that it has heard of and that is idle,
// without the control connection. The queue pairs of so many have less room.
func TestMemoryOfSessions(t *testing.T) {
	needSoft(t)
	if proc.Race {
		t.Skip("the race detector's own memory would be counted")
	}
	watchdog(t)
	peers := 10000
	if testing.Short() {
		peers = 2000
	}
	a := newEnd(t, 0, peers+1, silent)
	heap, _, _ := footprint(t)
	links := make([]*link, peers)
	for i := range links {
		links[i] = newLink(a.echo(i + 1))
	}
	a.echoes(links)
	heap2, _, _ := footprint(t)
	each, device := (heap2-heap)/int64(peers), int64(a.counted("qp_memory"))/int64(peers)
	t.Logf("%d peers: %d bytes of Go's heap each, and %d of the software HCA", peers, each, device)
	if each > peerMemory/2 { // the other half is for the control connection
		t.Errorf("%d bytes of Go's heap for each of %d peers, %d are allowed", each, peers, peerMemory/2)
	}
	for i, l := range links {
		if want := map[bool]int{true: depth, false: depthOfMany}[i < deepQueues]; l.s.most != want {
			t.Fatalf("queue pair %d takes %d requests, want %d", i, l.s.most, want)
		}
	}
}

// Queue pairs of little depth move what others do.
func TestShallowQueues(t *testing.T) {
	watchdog(t)
	a, b, ab, ba := two(t, func(o *Options) { o.deepQueues = -1 })
	if ab.s.most != depthOfMany {
		t.Fatalf("a queue pair takes %d requests, want %d", ab.s.most, depthOfMany)
	}
	random(t, 5, 1500, 300_000, a, b, ab, ba)
}

// BenchmarkConnection shows how long a session takes to be made when there are so many.
func BenchmarkConnection(b *testing.B) {
	needSoft(b)
	const some = 50 // sessions before each of which the mean is shown
	for b.Loop() {
		a := newEnd(b, 0, 10001, silent)
		for _, k := range []int{100, 1000, 10000} {
			for len(a.table.Load().all) < k-some {
				a.echo(len(a.table.Load().all) + 1)
			}
			began := time.Now()
			for len(a.table.Load().all) < k {
				a.echo(len(a.table.Load().all) + 1)
			}
			b.ReportMetric(float64(time.Since(began).Microseconds())/some, fmt.Sprintf("µs/connection-%d", k))
		}
		a.Close()
	}
}

// More peers than receive buffers, all of which send at once while the receiver takes nothing. The buffers have become
// more with the peers, so that no message waits. Where they may not become more messages wait, and each arrives.
func TestReceivesFollowPeers(t *testing.T) {
	needSoft(t)
	const first, peers, each = 16, 40, 2
	for name, want := range map[string]int{"more": each * peers, "bounded": first, "refused": first} {
		t.Run(name, func(t *testing.T) {
			watchdog(t)
			var log notes
			memory := int64(1 << 20)
			switch name {
			case "bounded":
				memory = first * slotSize
			case "refused": // a part more may not be locked
				t.Setenv("SOFTHCA_MEMLOCK", strconv.Itoa((first+sends+1+first/2)*slotSize))
			}
			hub := newEnd(t, 0, peers+1, silent, log.option,
				func(o *Options) { o.receives, o.ReceiveMemory = first, memory })
			os.Unsetenv("SOFTHCA_MEMLOCK")
			var ends []*end
			var from []*link
			for i := range peers {
				e := newEnd(t, i+1, peers+1, silent)
				hub.link(e)
				ends, from = append(ends, e), append(from, e.link(hub))
			}
			hub.until("the buffers", func() bool { return hub.recv.posted == want })
			for i, l := range from {
				for k := range each {
					send(t, l, wire.Header{Kind: wire.Eager, Tag: int32(k)}, pattern(500, uint64(i)))
				}
				l.s.confirm()
			}
			waited := uint64(0)
			for limit := time.Now().Add(patience); ; {
				busy := 0
				waited = 0
				for _, e := range ends {
					e.poll()
					busy += e.inFlight
					waited += e.counted("rnr")
				}
				if busy == 0 || waited > 0 {
					break
				}
				if time.Now().After(limit) {
					t.Fatalf("%d requests are under way", busy)
				}
			}
			if want == first != (waited > 0) {
				t.Errorf("with %d buffers, messages have waited %d times", want, waited)
			}
			hub.until("all messages", func() bool { return len(hub.in) == each*peers }, ends...)
			next := map[int32]int32{}
			for _, p := range hub.in {
				if p.Event != transport.Arrived || p.Header.Tag != next[p.Peer] ||
					string(p.Payload) != string(pattern(500, uint64(p.Peer-1))) {
					t.Fatalf("event %d, message %d of rank %d, want %d, %v", p.Event, p.Header.Tag, p.Peer, next[p.Peer], p.Err)
				}
				next[p.Peer]++
			}
			for _, e := range append(ends, hub) {
				e.until("the end of its requests", func() bool { return e.inFlight == 0 })
				if n := e.counted("qp_errors"); n != 0 {
					t.Errorf("rank %d: %d queue pairs have failed", e.rank, n)
				}
			}
			if said := log.with("receive buffers stay few"); (name == "refused") != (len(said) == 1) {
				t.Errorf("logged: %q", said)
			}
		})
	}
}

// As many receive buffers as a job of that size may need, in the memory that the settings give them.
func TestMostReceives(t *testing.T) {
	for _, c := range []struct {
		size   int
		memory int64
		want   int
	}{
		{2, 64 << 20, receives},
		{513, 64 << 20, receives},
		{1001, 64 << 20, 2000},
		{10001, 64 << 20, 64 << 20 / slotSize},
		{10001, 1 << 30, 20000},
		{10001, 0, receives},
	} {
		if got := (&Options{Size: c.size, ReceiveMemory: c.memory}).mostReceives(); got != c.want {
			t.Errorf("%d ranks, %d bytes: %d, want %d", c.size, c.memory, got, c.want)
		}
	}
}

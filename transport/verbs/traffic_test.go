//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// traffic is random messages both ways between two ends: short ones sent, long ones announced and read, or written.
type traffic struct {
	t    *testing.T
	rng  *rand.Rand
	ends [2]*trafficEnd
}

type trafficEnd struct {
	*end
	link      *link
	left      int                // messages to be sent
	next      uint64             // their number
	wanted    uint64             // number of the next that comes
	announced map[uint64][]byte  // announced, by key
	addr      map[uint64]uint64  // by key
	reads     map[uint64]reading // under way, by number
	due       []reading          // not started yet
	seed      uint64
	long      int // bytes of the longest message
}

type reading struct {
	number, addr, key uint64
	dst               []byte
}

func (e *trafficEnd) done() bool {
	return e.left == 0 && len(e.announced)+len(e.reads)+len(e.due) == 0 && e.inFlight == 0
}

// random runs n messages each way, of up to so many bytes.
func random(t *testing.T, seed uint64, n, long int, a, b *end, ab, ba *link) {
	tr := &traffic{t: t, rng: rand.New(rand.NewPCG(seed, 4))}
	for i, e := range []*end{a, b} {
		tr.ends[i] = &trafficEnd{end: e, link: []*link{ab, ba}[i], left: n, announced: map[uint64][]byte{},
			addr:  map[uint64]uint64{},
			reads: map[uint64]reading{}, seed: seed*2 + uint64(i), long: long}
	}
	limit := time.Now().Add(patience)
	for !tr.ends[0].done() || !tr.ends[1].done() || tr.ends[0].wanted != tr.ends[1].next ||
		tr.ends[1].wanted != tr.ends[0].next {
		e := tr.ends[tr.rng.IntN(2)]
		for range tr.rng.IntN(20) {
			tr.send(e)
		}
		e.poll()
		for _, p := range e.in {
			tr.take(e, tr.ends[1-e.rank], p)
		}
		e.in = e.in[:0]
		tr.read(e)
		if e.left == 0 {
			e.link.s.confirm()
		}
		runtime.Gosched()
		if time.Now().After(limit) {
			t.Fatalf("seed %d: %d and %d are left; %d of %d and %d of %d have come", seed, tr.ends[0].left, tr.ends[1].left,
				tr.ends[0].wanted, tr.ends[1].next, tr.ends[1].wanted, tr.ends[0].next)
		}
	}
}

func (tr *traffic) send(e *trafficEnd) {
	if e.left == 0 {
		return
	}
	number := e.next
	if e.long > eagerMax && tr.rng.IntN(8) == 0 {
		mem := pattern(1+tr.rng.IntN(e.long), e.seed+number<<8)
		addr, key, ok := e.link.caps.RMA.Register(transport.HostMem(mem), transport.Readable)
		if !ok {
			tr.t.Fatal("not registered")
		}
		if !e.link.TrySend(&wire.Header{Kind: wire.RTS, Tag: int32(number), Addr: addr, Key: key,
			Len: uint64(len(mem))}, nil) {
			e.link.caps.RMA.Deregister(addr, key)
			return
		}
		e.announced[key], e.addr[key] = mem, addr
	} else {
		size := []int{0, 1, 8, 100, inlineMax, 1000, eagerMax}[tr.rng.IntN(7)]
		if size > 8 && tr.rng.IntN(2) == 0 {
			size = tr.rng.IntN(size)
		}
		if !e.link.TrySend(&wire.Header{Kind: wire.Eager, Tag: int32(number), Ctx: uint32(size)},
			pattern(size, e.seed+number<<8)) {
			return
		}
	}
	e.next++
	e.left--
}

func (tr *traffic) take(e, from *trafficEnd, p transport.Packet) {
	h := &p.Header
	switch {
	case p.Event == transport.Room:
	case p.Event == transport.RMADone:
		r, ok := e.reads[p.Cookie]
		delete(e.reads, p.Cookie)
		if !ok || p.Err != nil || !bytes.Equal(r.dst, pattern(len(r.dst), from.seed+r.number<<8)) {
			tr.t.Fatalf("rank %d: READ %d (%v): %v, or wrong contents", e.rank, p.Cookie, ok, p.Err)
		}
		e.due = append(e.due, reading{number: ^uint64(0), key: r.key})
	case p.Event != transport.Arrived:
		tr.t.Fatalf("rank %d: event %d, %v", e.rank, p.Event, p.Err)
	case h.Kind == wire.FIN:
		if e.announced[h.Key] == nil {
			tr.t.Fatalf("rank %d: the end of %d, which is not announced", e.rank, h.Key)
		}
		e.link.caps.RMA.Deregister(e.addr[h.Key], h.Key)
		delete(e.announced, h.Key)
	case uint64(h.Tag) != e.wanted:
		tr.t.Fatalf("rank %d: message %d, want %d", e.rank, h.Tag, e.wanted)
	case h.Kind == wire.RTS:
		e.wanted++
		e.due = append(e.due, reading{uint64(h.Tag), h.Addr, h.Key, make([]byte, h.Len)})
	default:
		e.wanted++
		if !bytes.Equal(p.Payload, pattern(int(h.Ctx), from.seed+uint64(h.Tag)<<8)) {
			tr.t.Fatalf("rank %d: message %d of %d bytes: wrong contents", e.rank, h.Tag, h.Ctx)
		}
	}
}

// read starts what has been announced, and says what is over.
func (tr *traffic) read(e *trafficEnd) {
	e.due = slices.DeleteFunc(e.due, func(r reading) bool {
		if r.dst == nil {
			return e.link.TrySend(&wire.Header{Kind: wire.FIN, Key: r.key}, nil)
		}
		state, err := e.link.caps.RMA.Get(transport.HostMem(r.dst), r.addr, r.key, r.number)
		if err != nil || state == transport.Done {
			tr.t.Fatalf("rank %d: state %d, %v", e.rank, state, err)
		}
		if state == transport.Started {
			e.reads[r.number] = r
		}
		return state == transport.Started
	})
}

// Random traffic, in orders that the seed gives, over a fabric that loses packets and receivers that are not ready.
func TestTraffic(t *testing.T) {
	watchdog(t)
	if inGuest() {
		a, b, ab, ba := two(t)
		random(t, 1, 60, 300_000, a, b, ab, ba)
		return
	}
	needSoft(t)
	var naks, drops, retries uint64
	seeds := uint64(20)
	if testing.Short() {
		seeds = 8 // each knob both ways
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Setenv("SOFTHCA_SEED", fmt.Sprint(seed))
			t.Setenv("SOFTHCA_RETRY_SCALE", "0.1")
			if seed%2 == 1 {
				t.Setenv("SOFTHCA_RNR", fmt.Sprint(5*seed))
			}
			if seed%4 >= 2 {
				t.Setenv("SOFTHCA_DROP", fmt.Sprint(seed))
			}
			if seed%8 >= 4 {
				t.Setenv("SOFTHCA_WIRE", "1") // as between processes
			}
			if seed%5 == 0 {
				t.Setenv("SOFTHCA_MAX_INLINE", "0")
			}
			if seed%3 == 0 {
				t.Setenv("SOFTHCA_MAX_MSG", "65536")
			}
			a, b, ab, ba := two(t)
			random(t, seed, 200, 300_000, a, b, ab, ba)
			for _, e := range []*end{a, b} {
				e.noPackets()
				naks, drops, retries = naks+e.counted("rnr"), drops+e.counted("dropped"), retries+e.counted("retries")
				if n := e.counted("qp_errors"); n != 0 {
					t.Errorf("%d queue pairs have failed", n)
				}
			}
		})
	}
	if naks == 0 || drops == 0 || retries == 0 {
		t.Errorf("%d times not ready, %d packets dropped, %d retries: nothing was disturbed", naks, drops, retries)
	}
}

// However many peers there are, however full their queues, in both directions: each completion finds room in the queue.
func TestCompletionsHaveRoom(t *testing.T) {
	watchdog(t)
	needSoft(t)
	const peers = 49
	var log notes
	hub := newEnd(t, 0, peers+1, log.option, func(o *Options) { o.entries = 700 })
	var ends []*end
	var to, from []*link
	for i := range peers {
		e := newEnd(t, i+1, peers+1)
		ends, to, from = append(ends, e), append(to, hub.link(e)), append(from, e.link(hub))
	}
	body := pattern(300, 1)
	sent, received := make([]int, peers), make([]int, peers)
	back, arrived := make([]int, peers), make([]int, peers)
	for round := range 20 {
		for i := range peers {
			for to[i].TrySend(&wire.Header{Kind: wire.Eager, Tag: int32(sent[i])}, body) {
				sent[i]++
			}
			for n := 0; n < 40 && from[i].TrySend(&wire.Header{Kind: wire.Eager, Tag: int32(back[i])}, body); n++ {
				back[i]++
			}
		}
		if round%5 == 0 {
			time.Sleep(20 * time.Millisecond) // all that can arrive has, and no end has polled
		}
		drain(t, hub, ends, received, arrived)
	}
	var closing sync.WaitGroup
	for i := 0; i < peers; i += 2 { // and then the end of many at once, with full queues
		for to[i].TrySend(&wire.Header{Kind: wire.Eager, Tag: int32(sent[i])}, body) {
			sent[i]++
		}
		closing.Go(func() { ends[i].Close() })
	}
	defer closing.Wait()
	down := map[int32]bool{}
	hub.until("the end of half", func() bool {
		for _, p := range hub.in {
			switch p.Event {
			case transport.Down:
				down[p.Peer] = true
			case transport.Arrived:
				if int(p.Header.Tag) != arrived[p.Peer-1] {
					t.Fatalf("peer %d: %d, want %d", p.Peer, p.Header.Tag, arrived[p.Peer-1])
				}
				arrived[p.Peer-1]++
			}
		}
		hub.in = hub.in[:0]
		return len(down) == (peers+1)/2
	})
	for i := 1; i < peers; i += 2 {
		for limit := time.Now().Add(patience); received[i] < sent[i] || arrived[i] < back[i]; {
			drain(t, hub, ends, received, arrived)
			if time.Now().After(limit) {
				t.Fatalf("peer %d: %d of %d, %d of %d", i+1, received[i], sent[i], arrived[i], back[i])
			}
		}
		if down[int32(i+1)] {
			t.Errorf("peer %d is down", i+1)
		}
	}
	if said := log.with("failed"); len(said) > 0 {
		t.Error(said)
	}
	if hub.limit > 400 {
		t.Errorf("%d requests at a time, and %d peers with %d each: the bound was never felt", hub.limit, peers, depth)
	}
}

// drain polls all for a while and checks the order.
func drain(t *testing.T, hub *end, ends []*end, received, arrived []int) {
	t.Helper()
	check := func(e *end, count func(peer int32) *int) {
		e.poll()
		for _, p := range e.in {
			switch n := count(p.Peer); {
			case p.Event == transport.Room:
			case p.Event != transport.Arrived || int(p.Header.Tag) != *n:
				t.Fatalf("rank %d: event %d, %d of rank %d, want %d, %v", e.rank, p.Event, p.Header.Tag, p.Peer, *n, p.Err)
			default:
				*n++
			}
		}
		e.in = e.in[:0]
	}
	for range 10 {
		check(hub, func(peer int32) *int { return &arrived[peer-1] })
		for i, e := range ends {
			if !e.closed.Load() {
				check(e, func(int32) *int { return &received[i] })
			}
		}
	}
}

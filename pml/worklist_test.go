package pml

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// Whatever is added and removed, in whatever order and however often: the invariants hold, the leader is woken for each
// thing that becomes pending but for what the rank sends itself, and the streams of a link that has room again go on
// oldest first.
func TestWorklist(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		woken, was := 0, 0
		w := &worklist{load: &load{}, wake: func() { woken++ }}
		peers := []*peer{{rank: 0}, nil, {rank: 2}, {rank: 3}}
		var requests []*transfer
		for i := range 12 {
			requests = append(requests, &transfer{peer: peers[[]int{0, 2, 3}[i%3]]})
		}
		for step := range 300 {
			r := requests[rng.IntN(len(requests))]
			k := jobKind(rng.IntN(int(jobKinds)))
			switch rng.IntN(8) {
			case 0, 1:
				w.add(k, r)
			case 2:
				w.remove(k, r)
			case 3:
				w.stall(r.peer)
			case 4: // the link refuses a READ or WRITE, whether it has refused something before or not
				if k := []jobKind{jobRead, jobWrite}[rng.IntN(2)]; slices.Contains(w.jobs[k].items(), r) {
					w.park(k, r)
				}
			case 5:
				parked := slices.DeleteFunc(slices.Clone(w.parked), func(j job) bool { return j.t.peer != r.peer })
				w.resume(r.peer)
				for k, list := range w.jobs {
					was := slices.DeleteFunc(slices.Clone(parked), func(j job) bool { return j.kind != jobKind(k) })
					now := list.items()[list.len()-len(was):]
					if !slices.EqualFunc(was, now, func(j job, t *transfer) bool { return j.t == t }) {
						t.Fatalf("seed %d, step %d: the jobs of a link that has room again have changed places", seed, step)
					}
				}
			case 6:
				if !w.self {
					was++ // the call that does it goes on with it, or wakes the leader
				}
				w.addSelf()
			case 7:
				if w.self {
					w.removeSelf()
				}
			}
			if err := w.check(peers); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if w.load.pending > was && woken < w.load.pending-was {
				t.Fatalf("seed %d, step %d: %d things more are pending, the leader was woken %d times", seed, step, w.load.pending-was, woken)
			}
			was, woken = w.load.pending, 0
		}
	}
}

// The check can fail.
func TestWorklistCheck(t *testing.T) {
	p := &peer{}
	for name, change := range map[string]func(*worklist, *transfer){
		"a count too many":   func(w *worklist, _ *transfer) { w.load.pending++ },
		"not removed":        func(_ *worklist, r *transfer) { r.jobs = 0 },
		"twice":              func(w *worklist, r *transfer) { w.jobs[jobRead].push(r); w.load.pending++ },
		"stalled behind":     func(*worklist, *transfer) { p.stalled = true },
		"parked, not listed": func(w *worklist, r *transfer) { w.parked = append(w.parked, job{jobWrite, r}) },
		"in both lists":      func(w *worklist, r *transfer) { w.stall(p); w.parked = append(w.parked, job{jobRead, r}) },
	} {
		*p = peer{}
		r := &transfer{peer: p}
		w := &worklist{load: &load{}, wake: func() {}}
		w.add(jobRead, r)
		w.add(jobStream, r)
		if err := w.check([]*peer{p}); err != nil {
			t.Fatal(err)
		}
		if change(w, r); w.check([]*peer{p}) == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// What waits for a link, or for a device, is not work: this rank does nothing for it before it hears of room, or of the
// end of what is under way, and then goes on.
func TestWhatWaitsIsNotPending(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20, put: true})
	defer n.close()
	n.linkAll()
	quiet := func(rank int, what string) {
		t.Helper()
		e := n.engines[rank]
		e.lock()
		defer e.unlock()
		if done := e.progress(); done != 0 || e.load.pending != 0 || e.load.none() {
			t.Errorf("%s: a look does %d things and leaves %d to do; waiting: %+v", what, done, e.load.pending, e.load)
		}
	}
	way := [2]int{0, 1}
	n.rooms[way] = 1
	for range 3 {
		n.engines[0].Isend(nil, 1, 1, 7, make([]byte, 10), Standard)
	}
	quiet(0, "a message waits for room")
	n.engines[0].lock()
	n.engines[0].links.peer(1).sendControl(wire.Header{Kind: wire.FIN})
	n.engines[0].unlock()
	quiet(0, "and a control packet")
	n.rooms[way] = 10
	n.deliver(1, 10)
	n.work(0)
	n.deliver(1, 10)
	if e := n.engines[0]; e.Pending() != 0 || !e.load.none() {
		t.Errorf("there was room, and of rank 0 this is under way: %+v", e.load)
	}
	for _, c := range []struct {
		scheme *rendezvous.Scheme
		rank   int // whose device moves memory
	}{{rendezvous.Get, 1}, {rendezvous.Split, 0}} {
		out, in := make([]byte, 3<<20), make([]byte, 3<<20)
		out[1], out[len(out)-1] = 1, 2
		n.prefer(1, c.scheme)
		n.noRoom[c.rank], n.lateRMA = 1, true
		r := n.engines[1].Irecv(nil, 1, 0, 8, in)
		s := n.engines[0].Isend(nil, 1, 1, 8, out, Standard)
		for turn := 0; n.engines[0].Pending()+n.engines[1].Pending() > 0; turn++ {
			if turn == 100 {
				t.Fatalf("%v: it does not end: %+v, %+v", c.scheme, n.engines[0].load, n.engines[1].load)
			}
			for rank := range 2 {
				n.deliver(rank, 10)
				n.deliver(rank, 10)
			}
			if n.engines[c.rank].Pending() > 0 && len(n.rma) > 0 && n.empty() {
				quiet(c.rank, "memory is moved")
			}
			for len(n.rma) > 0 {
				n.endRMA(nil)
			}
		}
		for _, r := range []*Request{s, r} {
			if _, err := r.Wait(); err != nil {
				t.Error(err)
			}
		}
		if !bytes.Equal(out, in) {
			t.Errorf("%v: other bytes have arrived", c.scheme)
		}
		if n.noRoom[c.rank] != 0 {
			t.Errorf("%v: rank %d has moved no memory", c.scheme, c.rank)
		}
	}
}

// A stream that a full link has refused, and that the receiver has fetched by READ meanwhile, waits for nothing: the
// receiver is done, and may never look at what fills the link.
func TestNothingWaitsForRoom(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20})
	defer n.close()
	n.linkAll()
	n.prefer(1, rendezvous.Stream)
	out, in := bytes.Repeat([]byte{7}, 100_000), make([]byte, 100_000)
	e0, e1 := n.engines[0], n.engines[1]
	r := e1.Irecv(nil, 1, 0, 8, in)
	s := e0.Isend(nil, 1, 1, 8, out, Standard)
	n.deliver(1, 10)
	n.rooms[[2]int{0, 1}] = 3
	n.deliver(0, 10) // the CTS
	if e0.load.stalled != 1 {
		t.Fatalf("no stream waits for room: %+v", e0.load)
	}
	e1.lock()
	e1.path.stalled()
	e1.unlock()
	for e1.Pending() > 0 {
		n.work(1)
	}
	n.deliver(0, 10) // the FIN
	if e0.lock(); !e0.load.none() {
		t.Errorf("the message has arrived, and this is under way: %+v", e0.load)
	}
	e0.unlock()
	delete(n.rooms, [2]int{0, 1})
	n.deliver(1, 10)
	n.work(0)
	for _, r := range []*Request{s, r} {
		if _, err := r.Wait(); err != nil {
			t.Error(err)
		}
	}
	if !bytes.Equal(out, in) {
		t.Error("other bytes have arrived")
	}
	n.check(t)
}

// A message that a link has been lent is its sender's again when the link has let go of it, and not before: it gets no
// FIN, and one that comes all the same is refused.
func TestLentUntilReleased(t *testing.T) {
	for _, hostile := range []bool{false, true} {
		watchdog(t)
		n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20, noGet: true, lends: true})
		defer n.close()
		n.linkAll()
		fins := 0
		n.log = func(_ string, args ...any) { fins += strings.Count(fmt.Sprint(args...), wire.FIN.String()) }
		way := [2]int{0, 1}
		out, in := bytes.Repeat([]byte{7}, 5000), make([]byte, 5000)
		e0, e1 := n.engines[0], n.engines[1]
		r := e1.Irecv(nil, 1, 0, 8, in)
		s := e0.Isend(nil, 1, 1, 8, out, Standard)
		n.deliver(1, 10)
		n.rooms[way] = 5
		n.arrive(0, 10) // the CTS
		e0.lock()
		e0.links.peer(1).zcopy.Send = func(h *wire.Header, payload transport.Mem) bool {
			taken := e0.links.peer(1).link.TrySend(h, payload.Bytes())
			n.lent[way] = n.lent[way] || len(n.wires[way]) == 5
			return taken
		}
		e0.unlock()
		n.work(0)
		n.deliver(1, 10)
		if done, st, err := r.Test(); !done || err != nil || st.Bytes != 5000 || !bytes.Equal(in, out) {
			t.Fatalf("the receive: done %v, %+v, %v", done, st, err)
		}
		n.deliver(0, 10)
		if done, _, err := s.Test(); done || e0.load.pending != 0 || e0.load.stalled != 1 {
			t.Fatalf("the link reads the message: done %v, %v, %+v", done, err, e0.load)
		}
		if hostile {
			n.hostile = true
			n.devices[0].inbox = append(n.devices[0].inbox,
				transport.Packet{Peer: 1, Header: wire.Header{Kind: wire.FIN, ID: 1<<32 | 1}})
			n.work(0)
			if done, _, err := s.Test(); !done || err == nil {
				t.Errorf("a FIN that is not due: done %v, %v", done, err)
			}
			continue
		}
		n.lent[way] = false
		n.work(0)
		if done, _, err := s.Test(); !done || err != nil {
			t.Errorf("the link has let go of the message: done %v, %v", done, err)
		}
		if fins != 0 {
			t.Errorf("%d FIN", fins)
		}
		n.check(t)
	}
}

// READs of several messages are done in one call of the link. Where it does only some, the others are done one by one,
// and where these fail too their messages come as streams: each receive gets its own message, whatever it is.
func TestReadsTogether(t *testing.T) {
	watchdog(t)
	sizes := []int{1000, 20_000, 1 << 20, 300, 70_000, 60_000, 200_000, 101, 30_000}
	for limit := -1; limit <= len(sizes); limit++ {
		n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20, put: true})
		n.linkAll()
		n.prefer(0, rendezvous.Get)
		if limit >= 0 {
			n.reads[0] = limit
		}
		var out, in [][]byte
		var requests [2]Set
		for i, size := range sizes {
			out, in = append(out, contents(i, size, size)), append(in, make([]byte, size))
			requests[0] = append(requests[0], n.engines[0].Irecv(nil, 1, 1, int32(i), in[i]))
		}
		for i, b := range out {
			requests[1] = append(requests[1], n.engines[1].Isend(nil, 1, 0, int32(i), b, Standard))
		}
		for turn := 0; n.engines[0].Pending()+n.engines[1].Pending() > 0; turn++ {
			if turn == 10_000 {
				t.Fatalf("%d READs succeed: it does not end", limit)
			}
			for rank := range 2 {
				n.deliver(rank, 100)
				n.check(t)
			}
		}
		for rank, e := range n.engines {
			if i, err := e.WaitAll(requests[rank], false, func(i int, _ Status, err error) {
				t.Errorf("%d READs succeed: rank %d, message %d: %v", limit, rank, i, err)
			}); err != nil {
				t.Errorf("rank %d, message %d: %v", rank, i, err)
			}
		}
		for i := range sizes {
			if !bytes.Equal(in[i], out[i]) {
				t.Errorf("%d READs succeed: message %d has other bytes", limit, i)
			}
		}
		if limit < 0 && n.most < 3 {
			t.Errorf("%d READs at most have been done in one call", n.most)
		}
		n.close()
	}
}

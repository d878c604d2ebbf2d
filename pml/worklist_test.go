package pml

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// Whatever is added and removed, in whatever order and however often: the invariants hold, the leader is woken for each
// thing that becomes pending but for what the rank sends itself, and the streams of a link that has room again go on oldest first.
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
			switch rng.IntN(9) {
			case 0, 1:
				w.add(k, r)
			case 2:
				w.remove(k, r)
			case 3:
				w.markBlocked(r.peer)
			case 4:
				w.unblock(r.peer)
			case 5:
				w.stall(r.peer)
			case 6:
				parked := slices.DeleteFunc(slices.Clone(w.parked), func(o *transfer) bool { return o.peer != r.peer })
				w.resume(r.peer)
				if streams := w.jobs[jobStream].all(); !slices.Equal(parked, streams[len(streams)-len(parked):]) {
					t.Fatalf("seed %d, step %d: the streams of a link that has room again have changed places", seed, step)
				}
			case 7:
				if !w.self {
					was++ // the call that does it goes on with it, or wakes the leader
				}
				w.addSelf()
			case 8:
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
		"blocked, no entry":  func(*worklist, *transfer) { p.blocked = true },
		"parked, not listed": func(w *worklist, r *transfer) { w.parked = append(w.parked, r) },
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

// What is sent because a link has room again is progress: so the next sleep, if the link is full once more, is short.
func TestSendingWhatWaitedIsProgress(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20})
	defer n.close()
	n.linkAll()
	e, way := n.engines[0], [2]int{0, 1}
	n.rooms[way] = 1
	for range 10 {
		e.Isend(nil, 1, 1, 7, make([]byte, 10), Standard)
	}
	e.lock()
	defer e.unlock()
	if done := e.progress(); done != 0 {
		t.Errorf("the link is full, and a poll says that it has done %d", done)
	}
	n.rooms[way] = 2
	if done := e.progress(); done == 0 {
		t.Errorf("%d packets are on the wire, and the poll that has sent one says that it has done nothing",
			len(n.wires[way]))
	}
	e.links.peer(1).sendControl(wire.Header{Kind: wire.FIN})
	n.rooms[way] = 3
	if done := e.progress(); done == 0 {
		t.Error("a control packet was sent, and the poll says that it has done nothing")
	}
}

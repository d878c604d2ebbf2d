package mpi

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
)

// In steady state no operation allocates: Send and Recv, Isend and Irecv with Wait, Start with Wait, of short and long
// messages. Counted over thousands of turns of a ping-pong, so that an allocation that is spread over many turns shows;
// both ranks are in the count.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	turns := map[string]func(w *Comm, out, in []byte) func(){
		"Send, Recv": func(w *Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			if w.Rank() == 0 {
				return func() { must(Send(w, out, peer, 1)); ok(Recv(w, in, peer, 1)) }
			}
			return func() { ok(Recv(w, in, peer, 1)); must(Send(w, out, peer, 1)) }
		},
		"Recv from any": func(w *Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			if w.Rank() == 0 {
				return func() { must(Send(w, out, peer, 1)); ok(Recv(w, in, AnySource, AnyTag)) }
			}
			return func() { ok(Recv(w, in, AnySource, AnyTag)); must(Send(w, out, peer, 1)) }
		},
		"Ssend": func(w *Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			if w.Rank() == 0 {
				return func() { must(Ssend(w, out, peer, 1)); ok(Recv(w, in, peer, 1)) }
			}
			return func() { ok(Recv(w, in, peer, 1)); must(Ssend(w, out, peer, 1)) }
		},
		"Isend, Irecv, Wait": func(w *Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			return func() {
				r := ok(Irecv(w, in, peer, 1))
				s := ok(Isend(w, out, peer, 1))
				ok(s.Wait())
				ok(r.Wait())
			}
		},
		"unexpected": func(w *Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			return func() {
				s := ok(Isend(w, out, peer, 1))
				tell(w, peer)
				hear(w, peer)
				ok(Recv(w, in, peer, 1))
				ok(s.Wait())
			}
		},
		"Start, Wait": func(w *Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			r, s := ok(RecvInit(w, in, peer, 1)), ok(SendInit(w, out, peer, 1))
			return func() {
				must(r.Start())
				must(s.Start())
				ok(s.Wait())
				ok(r.Wait())
			}
		},
		"Sendrecv": func(w *Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			return func() { ok(Sendrecv(w, out, peer, 1, in, peer, 1)) }
		},
		"to self": func(w *Comm, out, in []byte) func() {
			return func() {
				r := ok(Irecv(w, in, w.Rank(), 1))
				must(Send(w, out, w.Rank(), 1))
				ok(r.Wait())
			}
		},
		"Barrier": func(w *Comm, out, in []byte) func() { return func() { must(Barrier(w)) } },
	}
	for name, turn := range turns {
		for _, size := range []int{0, 8, 4096, 64 << 10} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				over(t)(2, func(w *Comm) { countAllocations(t, w, turn(w, make([]byte, size), make([]byte, size))) })
			})
		}
	}
}

func countAllocations(t *testing.T, w *Comm, turn func()) {
	const warm, counted = 2500, 4000
	for range warm { // pools, queues and the first few hundred requests
		turn()
	}
	if w.Rank() == 0 {
		defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector empties what the runtime keeps for reuse
	}
	for tries := 1; ; tries++ {
		var before, after runtime.MemStats
		must(Barrier(w))
		runtime.ReadMemStats(&before)
		for range counted {
			turn()
		}
		runtime.ReadMemStats(&after)
		must(Barrier(w))
		// The runtime itself allocates what goroutines sleep on, up to 128 for a processor, and its threads; one in
		// twenty turns would be ours, and is so each time.
		n := after.Mallocs - before.Mallocs
		again := []bool{n > counted/20 && tries < 3}
		if w.Rank() == 0 && n > counted/20 && !again[0] {
			t.Errorf("%d allocations of %d bytes in %d turns", n, after.TotalAlloc-before.TotalAlloc, counted)
		}
		if w.Rank() == 0 { // whose count it is
			must(Send(w, again, 1, tagGo))
		} else {
			ok(Recv(w, again, 0, tagGo))
		}
		if !again[0] {
			return
		}
	}
}

package guard

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// In steady state no operation allocates: Send and Recv, Isend and Irecv with Wait, Start with Wait, of short and long
// messages. Counted over thousands of turns of a ping-pong, so that an allocation that is spread over many turns shows;
// both ranks are in the count.
func TestNoAllocations(t *testing.T) {
	if proc.Race {
		t.Skip("the race detector allocates")
	}
	turns := map[string]func(w *mpi.Comm, out, in []byte) func(){
		"Send, Recv": func(w *mpi.Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			if w.Rank() == 0 {
				return func() { must(mpi.Send(w, out, peer, 1)); ok(mpi.Recv(w, in, peer, 1)) }
			}
			return func() { ok(mpi.Recv(w, in, peer, 1)); must(mpi.Send(w, out, peer, 1)) }
		},
		"Recv from any": func(w *mpi.Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			if w.Rank() == 0 {
				return func() { must(mpi.Send(w, out, peer, 1)); ok(mpi.Recv(w, in, mpi.AnySource, mpi.AnyTag)) }
			}
			return func() { ok(mpi.Recv(w, in, mpi.AnySource, mpi.AnyTag)); must(mpi.Send(w, out, peer, 1)) }
		},
		"Ssend": func(w *mpi.Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			if w.Rank() == 0 {
				return func() { must(mpi.Ssend(w, out, peer, 1)); ok(mpi.Recv(w, in, peer, 1)) }
			}
			return func() { ok(mpi.Recv(w, in, peer, 1)); must(mpi.Ssend(w, out, peer, 1)) }
		},
		"Isend, Irecv, Wait": func(w *mpi.Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			return func() {
				r := ok(mpi.Irecv(w, in, peer, 1))
				s := ok(mpi.Isend(w, out, peer, 1))
				ok(s.Wait())
				ok(r.Wait())
			}
		},
		"unexpected": func(w *mpi.Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			return func() {
				s := ok(mpi.Isend(w, out, peer, 1))
				sendSignal(w, peer)
				awaitSignal(w, peer)
				ok(mpi.Recv(w, in, peer, 1))
				ok(s.Wait())
			}
		},
		"Start, Wait": func(w *mpi.Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			r, s := ok(mpi.RecvInit(w, in, peer, 1)), ok(mpi.SendInit(w, out, peer, 1))
			return func() {
				must(r.Start())
				must(s.Start())
				ok(s.Wait())
				ok(r.Wait())
			}
		},
		"Sendrecv": func(w *mpi.Comm, out, in []byte) func() {
			peer := 1 - w.Rank()
			return func() { ok(mpi.Sendrecv(w, out, peer, 1, in, peer, 1)) }
		},
		"to self": func(w *mpi.Comm, out, in []byte) func() {
			return func() {
				r := ok(mpi.Irecv(w, in, w.Rank(), 1))
				must(mpi.Send(w, out, w.Rank(), 1))
				ok(r.Wait())
			}
		},
		"Barrier": func(w *mpi.Comm, out, in []byte) func() { return func() { must(mpi.Barrier(w)) } },
		"Bcast, Reduce, Allreduce, Scan": func(w *mpi.Comm, out, in []byte) func() {
			return func() {
				must(mpi.Bcast(w, out, 1))
				must(mpi.Reduce(w, out, in, mpi.Sum, 0))
				must(mpi.Allreduce(w, out, in, mpi.Max))
				must(mpi.Allreduce(w, nil, in, mpi.BitOr, mpi.Ordered))
				must(mpi.Scan(w, out, in, mpi.Sum))
			}
		},
		"Gather, Allgatherv, Alltoall, Alltoallv": func(w *mpi.Comm, out, in []byte) func() {
			all := make([]byte, 2*len(in))
			blocks, more := [][]byte{in, slices.Clone(in)}, [][]byte{all[:len(in)], all[len(in):]}
			return func() {
				must(mpi.Gather(w, out, all, 0))
				must(mpi.Allgatherv(w, out, more))
				must(mpi.Alltoall(w, nil, all))
				must(mpi.Alltoallv(w, more, blocks))
			}
		},
	}
	sizes := []int{0, 8, 4096, 64 << 10}
	if testing.Short() {
		sizes = []int{8, 64 << 10} // one that goes eagerly, one by rendezvous
	}
	for name, turn := range turns {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				runRanks(t, 2, func(w *mpi.Comm) { countAllocations(t, w, turn(w, make([]byte, size), make([]byte, size))) },
					mpi.WithEnviron([]string{"GORUN_COLL_CHECK=0"}))
			})
		}
	}
}

func countAllocations(t *testing.T, w *mpi.Comm, turn func()) {
	const warm, counted = 2500, 4000
	const most = 20  // tries: with many processors it takes long until the runtime has what it keeps for each of them
	for range warm { // pools, queues and the first few hundred requests
		turn()
	}
	if w.Rank() == 0 {
		defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector empties what the runtime keeps for reuse
	}
	for tries := 1; ; tries++ {
		var before, after runtime.MemStats
		must(mpi.Barrier(w))
		runtime.ReadMemStats(&before)
		for range counted {
			turn()
		}
		runtime.ReadMemStats(&after)
		must(mpi.Barrier(w))
		// The runtime itself allocates what goroutines sleep on, up to 128 for a processor, and its threads; one in
		// twenty turns would be ours, and is so each time.
		n := after.Mallocs - before.Mallocs
		again := []bool{n > counted/20 && tries < most}
		if w.Rank() == 0 && n > counted/20 && !again[0] {
			t.Errorf("%d allocations of %d bytes in %d turns", n, after.TotalAlloc-before.TotalAlloc, counted)
		}
		if w.Rank() == 0 { // which has counted
			must(mpi.Send(w, again, 1, mpi.MaxTag))
		} else {
			ok(mpi.Recv(w, again, 0, mpi.MaxTag))
		}
		if !again[0] {
			return
		}
	}
}

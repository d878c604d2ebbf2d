//go:build (ucx || ofi) && linux && cgo

package mpi

import (
	"fmt"
	"testing"
)

// libraries match messages by themselves: UCX, libfabric.
var libraries = map[string]func(testing.TB) Option{}

func eachLibrary(t *testing.T, test func(t *testing.T, run runner)) {
	for name, option := range libraries {
		t.Run(name, func(t *testing.T) { test(t, over(t, option(t))) })
	}
}

// In steady state no call allocates, whatever the length: short ones are copied, long ones pinned.
func TestAllocatesNothing(t *testing.T) {
	eachLibrary(t, func(t *testing.T, run runner) {
		for _, size := range []int{0, 8, 1000, 1 << 20} {
			run(2, func(w *Comm) {
				peer := 1 - w.Rank()
				out, in := make([]byte, size), make([]byte, size)
				requests := make([]*Request, 32)
				neverAllocates(w, func() {
					for range 4 {
						if w.Rank() == 0 {
							must(Send(w, out, peer, 1))
							ok(Recv(w, in, AnySource, 1))
							must(Ssend(w, out, peer, 1))
						} else {
							ok(Recv(w, in, peer, AnyTag))
							must(Send(w, out, peer, 1))
							ok(Recv(w, in, peer, 1))
						}
					}
					for i := range len(requests) / 2 {
						requests[2*i] = ok(Irecv(w, in, peer, 2))
						requests[2*i+1] = ok(Isend(w, out, peer, 2))
					}
					must(WaitAll(requests...))
				})
			})
		}
	})
}

// What a rank has begun goes on though the rank makes no call: bursts of short sends leave, and receives take what
// comes.
func TestComputingRank(t *testing.T) {
	const n = 200
	eachLibrary(t, func(t *testing.T, run runner) {
		for _, what := range []string{"sends", "receives"} {
			done := make(chan bool)
			run(2, func(w *Comm) {
				requests := make([]*Request, n)
				in := make([]int, n)
				if w.Rank() == 1 {
					for i := range in {
						if what == "receives" {
							must(Ssend(w, []int{i}, 0, 1))
						} else if ok(Recv(w, in[i:i+1], 0, 1)); in[i] != i {
							panic(fmt.Sprintf("message %d is %d", i, in[i]))
						}
					}
					close(done)
					return
				}
				for i := range requests {
					if what == "receives" {
						requests[i] = ok(Irecv(w, in[i:i+1], 1, 1))
					} else {
						requests[i] = ok(Isend(w, []int{i}, 1, 1))
					}
				}
				<-done
				must(WaitAll(requests...))
			})
		}
	})
}

//go:build ucx && linux && cgo

package mpi

import (
	"fmt"
	"os"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/ucx"
)

// everywhere runs over UCX too, with what UCX_TLS leaves to it. GORUN_TEST_BENEATH=ucx has the tests go over UCX that
// say nothing of it, too.
func init() {
	further = append(further, fabric{"ucx", overUCX})
	if os.Getenv("GORUN_TEST_BENEATH") == "ucx" {
		Beneath = func() []Option { return []Option{overUCX(nil)} }
	}
}

func overUCX(testing.TB) Option {
	return withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		return ok(ucx.New(ucx.Options{Rank: rank, Size: 1 << 10}))
	})
}

// In steady state no call allocates, whatever the length: short ones are copied, long ones pinned.
func TestAllocatesNothing(t *testing.T) {
	t.Run("ucx", func(t *testing.T) {
		for _, size := range []int{0, 8, 1000, 1 << 20} {
			over(t, overUCX(t))(2, func(w *Comm) {
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
	for _, what := range []string{"sends", "receives"} {
		done := make(chan bool)
		over(t, overUCX(t))(2, func(w *Comm) {
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
}

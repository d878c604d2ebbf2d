//go:build verbs && linux && cgo

package mpi

import (
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/multi"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// Of three ranks 0 and 1 do not reach each other over the fabric: what 1 sends to 0 is lost. Their messages go by tcp,
// at both ends, the messages of the other pairs by verbs, and a job that does not know is right.
func TestPairWithoutPath(t *testing.T) {
	if inGuest() {
		t.Skip("needs the software HCA, which can be told what to lose")
	}
	for _, tags := range []string{"off", "on"} {
		t.Run(tags, func(t *testing.T) {
			rdma := newVerbs(t, tags, 1)
			t.Setenv("SOFTHCA_RETRY_SCALE", "0.05")
			var devs [3]*multi.Device
			pairWithoutPath(t, devs[:], withDevices(func(rank int, d transport.Device) transport.Device {
				d.Close()
				t.Setenv("SOFTHCA_SUBNET", fmt.Sprint(rank+1))
				t.Setenv("SOFTHCA_DROP_FROM", []string{"2", "999", "999"}[rank])
				beside := ok(tcp.New(tcp.Options{Rank: rank, Size: len(devs), Job: "beside", PeerTimeout: time.Minute,
					Secret: testSecret}))
				devs[rank] = ok(multi.New(nil, rdma(rank), beside))
				return devs[rank]
			}))
			for rank, d := range devs {
				for peer := range devs {
					want := "verbs"
					if rank+peer == 1 {
						want = "tcp"
					}
					if via := d.Facts().Via(peer); peer != rank && via != want {
						t.Errorf("rank %d reaches rank %d by %q, want %s", rank, peer, via, want)
					}
				}
			}
		})
	}
}

func pairWithoutPath(t *testing.T, devs []*multi.Device, job Option) {
	over(t, job)(len(devs), func(w *Comm) {
		const each = 20
		var reqs []*Request
		var in [][]byte
		for i := range each { // all begin at once, and every third message is a long one
			size := 10 + i
			if i%3 == 2 {
				size = 300_000
			}
			for peer := range devs {
				if peer == w.Rank() {
					continue
				}
				in = append(in, make([]byte, size))
				reqs = append(reqs, ok(Isend(w, message(size, i), peer, 4)), ok(Irecv(w, in[len(in)-1], peer, 4)))
			}
		}
		must(WaitAll(reqs...))
		for i, b := range in {
			whole(b, i/(len(devs)-1))
		}
		sum := []int{w.Rank() + 1}
		must(Allreduce(w, nil, sum, Sum))
		check(sum[0] == 6, "the sum is %d", sum[0])
	})
}

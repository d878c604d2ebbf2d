package gpu

import (
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// Hooks see the calls of this package, also with a window and a message of theirs.
func TestHooksSeeDevices(t *testing.T) {
	d := useMachine(t, acceltest.Options{Devices: 1})
	var mu sync.Mutex
	var ops []string
	hooks := mpi.Hooks{After: func(k *mpi.Call) {
		mu.Lock()
		defer mu.Unlock()
		if k.Rank == 0 && k.Err == nil {
			ops = append(ops, k.Op)
		}
	}}
	run(t, 2, func(c *mpi.Comm) {
		r, peer := rank{c, d, 0}, 1-c.Rank()
		s, in := of(r, []int32{1, 2}), alloc[int32](r, 2)
		defer free(s, in)
		must(waited(Isend(c, s, peer, 7)))
		ok(Recv(c, in, peer, 7))
		ok(Sendrecv(c, s, peer, 7, in, peer, 7))
		must(waited(Isend(c, s, peer, 7)))
		m, _, err := mpi.Mprobe(c, peer, 7)
		must(err)
		ok(Mrecv(m, in))
		p := ok(SendInit(c, s, peer, 7))
		must(p.Start())
		ok(mpi.Recv(c, make([]int32, 2), peer, 7))
		ok(p.Wait())
		must(p.Free())
		must(Bcast(c, s, 0))
		w := ok(WinCreate(c, in))
		must(w.Fence())
		must(Put(w, s, peer, 0))
		must(w.Fence())
		must(w.Free())
	}, mpi.WithHooks(hooks))
	got := strings.Join(ops, " ")
	for _, want := range []string{"gpu.Isend Wait gpu.Recv Wait", "gpu.Sendrecv gpu.Sendrecv Wait Wait",
		"Mprobe gpu.Mrecv Wait", "gpu.SendInit Start Recv Wait Free Bcast", "gpu.WinCreate Fence gpu.Put Fence Free"} {
		if !strings.Contains(got, want) {
			t.Errorf("hooks have seen %s, and not %s", got, want)
		}
	}
}

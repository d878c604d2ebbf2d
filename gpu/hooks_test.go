package gpu

import (
	"errors"
	"fmt"
	"slices"
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
		"Mprobe gpu.Mrecv Wait", "gpu.SendInit Start Recv Wait Free gpu.Bcast", "gpu.WinCreate Fence gpu.Put Fence Free"} {
		if !strings.Contains(got, want) {
			t.Errorf("hooks have seen %s, and not %s", got, want)
		}
	}
}

// Hooks see a collective call on device memory with its copies: also one in which the rank's device fails before the
// ranks exchange anything, or after that, and one with a buffer that cannot be used.
func TestHooksSeeFailedCollectives(t *testing.T) {
	for _, compared := range []string{"0", "1"} {
		t.Setenv("GORUN_COLL_CHECK", compared)
		m := newMachine(t, acceltest.Options{})
		drivers := []*acceltest.Process{m.Process(), m.Process()}
		useDriver(t, drivers[0])
		var seen []string // rank 1 alone writes it
		hooks := mpi.Hooks{After: func(k *mpi.Call) {
			if k.Rank != 1 || k.Kind != mpi.CallCollective && len(k.Done) == 0 || k.Op == "Barrier" {
				return
			}
			what := fmt.Sprintf("%s %d %d %s", k.Op, k.Peer, k.Bytes, classOf(k.Err))
			for _, d := range k.Done {
				what += fmt.Sprintf(" of %s %d %s", d.Op, d.Bytes, classOf(d.Err))
			}
			seen = append(seen, what)
		}}
		run(t, 2, func(c *mpi.Comm) {
			r := rank{c, drivers[c.Rank()], 0}
			s, in := of(r, vector(8, c.Rank())), InPlace[float64]()
			for _, call := range []struct {
				fails int // this copy; 0: none
				do    func() error
			}{
				{0, func() error { return Bcast(c, s, 0) }},
				{1, func() error { return Bcast(c, s, 0) }},
				{1, func() error { return Allreduce(c, in, s, mpi.Max) }},
				{1, func() error { return waited(Iallreduce(c, in, s, mpi.Max)) }},
				{2, func() error { return waited(Iallreduce(c, in, s, mpi.Max)) }},
				{0, func() error { return Bcast(c, s.Slice(0, 9), 0) }},
				{0, func() error { return waited(Iallreduce(c, s, s.Slice(1, 9), mpi.Max)) }},
			} {
				must(mpi.Barrier(c))
				if call.fails > 0 && c.Rank() == 1 {
					r.d.Fail("Copy", call.fails)
				}
				_ = call.do()
			}
			must(mpi.Barrier(c))
			free(s)
		}, mpi.WithHooks(hooks))
		want := []string{"gpu.Bcast 0 64 none", "gpu.Bcast 0 64 device", "gpu.Allreduce -1 64 device",
			"gpu.Iallreduce -1 64 none", "Wait -1 0 device of gpu.Iallreduce 64 device",
			"gpu.Iallreduce -1 64 none", "Wait -1 0 device of gpu.Iallreduce 64 device",
			"gpu.Bcast 0 0 count", "gpu.Iallreduce -1 64 count"}
		if compared == "1" { // then the ranks do not begin the call
			want = slices.Replace(want, 3, 5, "gpu.Iallreduce -1 64 device")
		}
		for i := range max(len(seen), len(want)) {
			if i >= len(seen) || i >= len(want) || strings.ReplaceAll(want[i], "-1", fmt.Sprint(mpi.Undefined)) != seen[i] {
				t.Fatalf("compared %s: hooks have seen %q, want %q", compared, seen, want)
			}
		}
	}
}

// classOf is a word for the class of an error.
func classOf(err error) string {
	for word, class := range map[string]error{"device": mpi.ErrDevice, "count": mpi.ErrCount, "peer": mpi.ErrPeerFailed} {
		if errors.Is(err, class) {
			return word
		}
	}
	return map[bool]string{true: "none", false: "other"}[err == nil]
}

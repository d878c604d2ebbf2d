package guard

import (
	"context"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport/loop"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// A rank with a TCP device that belongs to a job of 2,000 and talks to no peer takes less than 200 bytes for each
// peer. With -short, and with the race detector, 200 of the 2,000 ranks are made.
func TestIdlePeersCostLittle(t *testing.T) {
	const size, limit = 2000, 200
	ranks := size
	if testing.Short() || proc.Race {
		ranks /= 10
	}
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		ranks = min(ranks, int(files.Cur/10)) // each has eight descriptors
	}
	before := inUse()
	engines := make([]*pml.Engine, ranks)
	for rank := range engines {
		d, err := tcp.New(tcp.Options{Rank: rank, Size: size, Job: "idle", PeerTimeout: time.Minute,
			Secret: func() ([]byte, error) { return make([]byte, 32), nil }})
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
		engines[rank], err = pml.New(pml.Config{Rank: rank, Size: size, Net: d, Self: loop.New(1)[0],
			Lookup: func(_ context.Context, peer int) ([]byte, error) { return engines[peer].Address(), nil }})
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	each := float64(inUse()-before) / float64(ranks)
	t.Logf("%d ranks: %.0f bytes each, %.1f for each peer", ranks, each, each/(size-1))
	if !proc.Race && each/(size-1) > limit {
		t.Errorf("%.0f bytes for each idle peer, want at most %d", each/(size-1), limit)
	}
	for _, e := range engines {
		if err := e.Close(context.Canceled); err != nil {
			t.Error(err)
		}
	}
}

// inUse is the memory of heap and stacks.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

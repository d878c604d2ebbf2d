package mpi

import (
	"context"
	"testing"

	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport/loop"
	"github.com/gorun-mpi/mpi/transport/shm"
)

// pairOverShm is two ranks over shared memory that one goroutine drives by turns, so that what they do is the same in
// every run: to count instructions, and to see what a call costs when no cache line has to come from another core.
func pairOverShm(tb testing.TB) (a, b *Comm) {
	tb.Helper()
	engines := make([]*pml.Engine, 2)
	for rank := range engines {
		dev, err := shm.New(shm.Options{Rank: rank, Size: 2})
		if err != nil {
			tb.Fatal(err)
		}
		engines[rank] = newEngine(pml.Config{Rank: rank, Size: 2, Net: dev, Self: loop.New(1)[0], Spin: -1, UnexpectedMax: 64 << 20,
			Lookup: func(_ context.Context, peer int) ([]byte, error) { return engines[peer].Address(), nil }}, options{})
	}
	tb.Cleanup(func() {
		for _, e := range engines {
			e.Close(opError("", ErrInit, "the test is over"))
		}
	})
	a, b = worldOf(engines[0], 0, 2), worldOf(engines[1], 1, 2)
	for range 2 { // connect both ways
		var one [1]byte
		must(Send(a, one[:], 1, 0))
		ok(Recv(b, one[:], 0, 0))
		must(Send(b, one[:], 0, 0))
		ok(Recv(a, one[:], 1, 0))
	}
	return a, b
}

// hotWindow is what bw does: receives posted, sends, all waited for.
func hotWindow(a, b *Comm, out, in []byte, sends, recvs []*Request) {
	for i := range recvs {
		recvs[i], _ = Irecv(b, in, 0, 1)
	}
	for i := range sends {
		sends[i], _ = Isend(a, out, 1, 1)
	}
	must(WaitAll(sends...))
	must(WaitAll(recvs...))
}

func BenchmarkWindow(bm *testing.B) {
	a, b := pairOverShm(bm)
	out, in := make([]byte, 8), make([]byte, 8)
	sends, recvs := make([]*Request, 64), make([]*Request, 64)
	bm.Run("all", func(bm *testing.B) {
		for i := 0; i < bm.N; i += 64 {
			hotWindow(a, b, out, in, sends, recvs)
		}
	})
}

func BenchmarkPingPong(bm *testing.B) {
	a, b := pairOverShm(bm)
	out, in := make([]byte, 8), make([]byte, 8)
	for bm.Loop() {
		must(Send(a, out, 1, 1))
		ok(Recv(b, in, 0, 1))
		must(Send(b, out, 0, 1))
		ok(Recv(a, in, 1, 1))
	}
}

package guard

import (
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/shm"
)

// ranksOverShm is n ranks over shared memory that one goroutine drives by turns, so that what they do is the same in
// every run: to count instructions, and to see what a call costs when no cache line has to come from another core.
// Rank 0 is connected with each of the others, both ways.
func ranksOverShm(n int) (ranks []*mpi.Comm, end func()) {
	ranks = make([]*mpi.Comm, n)
	var joined, ended sync.WaitGroup
	joined.Add(n)
	over := make(chan bool)
	ended.Go(func() {
		// The error at the end counts the receives that a path leaves posted.
		mpi.RunLocal(n, func(w *mpi.Comm) error {
			ranks[w.Rank()] = w
			joined.Done()
			<-over
			return nil
		}, mpi.WithEnviron([]string{"GORUN_SPIN=0"}), overDevices(func(rank int) (transport.Device, error) {
			return shm.New(shm.Options{Rank: rank, Size: n, Secret: func() ([]byte, error) { return make([]byte, 32), nil }})
		}))
	})
	joined.Wait()
	for peer := 1; peer < n; peer++ {
		for range 2 {
			roundTrip(ranks[0], ranks[peer], make([]byte, 1), make([]byte, 1), peer)
		}
	}
	return ranks, func() { close(over); ended.Wait() }
}

// roundTrip is what latency does: a, which is rank 0, sends to rank peer and gets it back.
func roundTrip(a, b *mpi.Comm, out, in []byte, peer int) {
	must(mpi.Send(a, out, peer, 1))
	ok(mpi.Recv(b, in, 0, 1))
	must(mpi.Send(b, out, 0, 1))
	ok(mpi.Recv(a, in, peer, 1))
}

// hotWindow is what bw does: receives posted, sends, all waited for.
func hotWindow(a, b *mpi.Comm, out, in []byte, sends, recvs []*mpi.Request) {
	for i := range recvs {
		recvs[i], _ = mpi.Irecv(b, in, a.Rank(), 1)
	}
	for i := range sends {
		sends[i], _ = mpi.Isend(a, out, b.Rank(), 1)
	}
	must(mpi.WaitAll(sends...))
	must(mpi.WaitAll(recvs...))
}

// hotPath is something that users do by the million. What it costs must not grow by accident.
type hotPath struct {
	name     string
	ranks    int
	messages int // in a turn
	// begin prepares and returns one turn, after which everything is as it was before.
	begin func(ranks []*mpi.Comm) (turn func())
}

const (
	inTheWay = 10_000 // entries that a message does not match
	window   = 64
)

var hotPaths = []hotPath{
	{"round-trip-8", 2, 2, roundTrips(8)},
	{"round-trip-1024", 2, 2, roundTrips(1 << 10)},
	{"round-trip-8192", 2, 2, roundTrips(8 << 10)},
	{"round-trip-8-of-16-ranks", 16, 2, roundTrips(8)},
	{"round-trip-8-wildcards", 2, 2, wildcards},
	{"round-trip-8-many-posted", 2, 2, manyPosted},
	{"round-trip-8-many-unexpected", 2, 2, manyUnexpected},
	{"round-trip-8-persistent", 2, 2, persistentTrips},
	{"window-64-of-8", 2, 2 * window, windows(8)},
	{"ahead-64-of-8", 2, 2 * window, ahead},
	{"unexpected-8", 2, 2, unexpectedTrips},
}

func roundTrips(size int) func([]*mpi.Comm) func() {
	return func(ranks []*mpi.Comm) func() {
		out, in := make([]byte, size), make([]byte, size)
		return func() { roundTrip(ranks[0], ranks[1], out, in, 1) }
	}
}

func wildcards(ranks []*mpi.Comm) func() {
	a, b, out, in := ranks[0], ranks[1], make([]byte, 8), make([]byte, 8)
	return func() {
		must(mpi.Send(a, out, 1, 1))
		ok(mpi.Recv(b, in, mpi.AnySource, mpi.AnyTag))
		must(mpi.Send(b, out, 0, 1))
		ok(mpi.Recv(a, in, mpi.AnySource, mpi.AnyTag))
	}
}

// manyPosted: both ranks have receives posted that no message matches, of as many tags.
func manyPosted(ranks []*mpi.Comm) func() {
	for me, w := range ranks {
		for i := range inTheWay {
			ok(mpi.Irecv(w, make([]byte, 8), 1-me, 10+i))
		}
	}
	return roundTrips(8)(ranks)
}

// manyUnexpected: both ranks have messages that no receive matches, of as many tags.
func manyUnexpected(ranks []*mpi.Comm) func() {
	out := make([]byte, 8)
	for i := range inTheWay {
		for me, w := range ranks {
			must(mpi.Send(w, out, 1-me, 10+i))
		}
		for _, w := range ranks {
			takeIn(w)
		}
	}
	return roundTrips(8)(ranks)
}

// takeIn makes a rank look at what has come, as a probe does that finds nothing for it.
func takeIn(w *mpi.Comm) {
	_, found, err := mpi.Iprobe(w, mpi.AnySource, mpi.MaxTag)
	must(err)
	check(!found, "a message with a tag that was not sent")
}

func persistentTrips(ranks []*mpi.Comm) func() {
	a, b, out, in := ranks[0], ranks[1], make([]byte, 8), make([]byte, 8)
	there, arrives := ok(mpi.SendInit(a, out, 1, 1)), ok(mpi.RecvInit(b, in, 0, 1))
	back, returns := ok(mpi.SendInit(b, out, 0, 1)), ok(mpi.RecvInit(a, in, 1, 1))
	startWait := func(requests ...*mpi.Request) {
		for _, r := range requests {
			must(r.Start())
		}
		for _, r := range requests {
			ok(r.Wait())
		}
	}
	return func() {
		startWait(arrives, there)
		startWait(returns, back)
	}
}

// windows goes both ways, or credit would be spent one day: it comes back with what the other side sends.
func windows(size int) func([]*mpi.Comm) func() {
	return func(ranks []*mpi.Comm) func() {
		out, in := make([]byte, size), make([]byte, size)
		sends, recvs := make([]*mpi.Request, window), make([]*mpi.Request, window)
		return func() {
			hotWindow(ranks[0], ranks[1], out, in, sends, recvs)
			hotWindow(ranks[1], ranks[0], out, in, sends, recvs)
		}
	}
}

// ahead: a window of messages is in the link before the first of its receives.
func ahead(ranks []*mpi.Comm) func() {
	out, in := make([]byte, 8), make([]byte, 8)
	sends, recvs := make([]*mpi.Request, window), make([]*mpi.Request, window)
	oneWay := func(a, b *mpi.Comm) {
		for i := range sends {
			sends[i], _ = mpi.Isend(a, out, b.Rank(), 1)
		}
		for i := range recvs {
			recvs[i], _ = mpi.Irecv(b, in, a.Rank(), 1)
		}
		must(mpi.WaitAll(sends...))
		must(mpi.WaitAll(recvs...))
	}
	return func() {
		oneWay(ranks[0], ranks[1])
		oneWay(ranks[1], ranks[0])
	}
}

// unexpectedTrips: each message is there before its receive.
func unexpectedTrips(ranks []*mpi.Comm) func() {
	out, in := make([]byte, 8), make([]byte, 8)
	return func() {
		for me, w := range ranks {
			must(mpi.Send(w, out, 1-me, 1))
		}
		for _, w := range ranks {
			takeIn(w)
		}
		for me, w := range ranks {
			ok(mpi.Recv(w, in, 1-me, 1))
		}
	}
}

// BenchmarkHotPath times what the guard counts; perf and the profiler show where it goes.
func BenchmarkHotPath(bm *testing.B) {
	for _, p := range hotPaths {
		bm.Run(p.name, func(bm *testing.B) {
			ranks, end := ranksOverShm(p.ranks)
			defer end()
			turn := p.begin(ranks)
			for bm.Loop() {
				turn()
			}
			bm.ReportMetric(float64(bm.Elapsed().Nanoseconds())/float64(bm.N*p.messages), "ns/message")
		})
	}
}

// First measures the time of the first messages between ranks.
//
//	gorun -n N ./benchmarks/first [--json]
//
// All ranks join the job and sleep until the same instant, the next whole second that is at least 0.2 s away; no rank
// has sent a message to another until then. With two ranks rank 0 then sends 8 bytes to rank 1, which sends them back.
// With more, every rank sends 8 bytes to every other: it posts all receives, starts all sends, and waits for all. The
// program prints the time from the instant until the last rank has finished, and then the time of the same exchange
// after a barrier. There is no warm-up: the cold start is the subject.
//
// The clock is the time of day, which all ranks share: they must be on one host.
//
// Owns: the instant and the exchange.
// May call: mpi, benchmarks/harness, benchmarks/internal/bench.
// Never: reach into the runtime.
package main

import (
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

var program = harness.Program{
	Name: "first", Title: "OSU MPI First Message Test", MinRanks: 2,
	About: "Measures the first round trip of two ranks, or the first exchange of all ranks with all others.",
}

const (
	dataTag   = 1
	reportTag = 2

	joined = 200 * time.Millisecond // all ranks have joined the job within this time of each other
)

// span is when a rank began, and when it had finished, in nanoseconds of the clock of the day.
type span struct{ Began, Finished int64 }

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	table := program.Table(j.Output, "MPI_CHAR", "Ranks", harness.Column{Head: "First(us)"},
		harness.Column{Head: "Second(us)"})
	return table.Run([]int64{int64(j.Ranks)}, func(int64) ([]any, error) {
		e := newExchange(j.World)
		time.Sleep(time.Until(instant(time.Now())))
		first, err := e.timed()
		if err != nil {
			return nil, err
		}
		if err := mpi.Barrier(j.World); err != nil {
			return nil, err
		}
		second, err := e.timed()
		if err != nil {
			return nil, err
		}
		us1, err := e.collect(first)
		if err != nil {
			return nil, err
		}
		us2, err := e.collect(second)
		return []any{us1, us2}, err
	})
}

// instant is when all ranks begin.
func instant(now time.Time) time.Time {
	return now.Add(joined).Truncate(time.Second).Add(time.Second)
}

// exchange is one rank's part.
type exchange struct {
	world       *mpi.Comm
	rank, ranks int
	in          []uint64 // from each rank
	out         [1]uint64
	requests    []*mpi.Request
}

func newExchange(world *mpi.Comm) *exchange {
	n := world.Size()
	return &exchange{world: world, rank: world.Rank(), ranks: n, in: make([]uint64, n),
		requests: make([]*mpi.Request, 0, 2*n)}
}

func (e *exchange) timed() (s span, err error) {
	s.Began = time.Now().UnixNano()
	if e.ranks == 2 {
		err = e.roundTrip()
	} else {
		err = e.withAll()
	}
	s.Finished = time.Now().UnixNano()
	return s, err
}

func (e *exchange) roundTrip() error {
	if e.rank == 0 {
		if err := mpi.Send(e.world, e.out[:], 1, dataTag); err != nil {
			return err
		}
		_, err := mpi.Recv(e.world, e.in[:1], 1, dataTag)
		return err
	}
	if _, err := mpi.Recv(e.world, e.in[:1], 0, dataTag); err != nil {
		return err
	}
	return mpi.Send(e.world, e.out[:], 0, dataTag)
}

func (e *exchange) withAll() error {
	e.requests = e.requests[:0]
	for d := 1; d < e.ranks; d++ {
		from := (e.rank + e.ranks - d) % e.ranks
		r, err := mpi.Irecv(e.world, e.in[from:from+1], from, dataTag)
		if err != nil {
			return err
		}
		e.requests = append(e.requests, r)
	}
	for d := 1; d < e.ranks; d++ {
		r, err := mpi.Isend(e.world, e.out[:], (e.rank+d)%e.ranks, dataTag)
		if err != nil {
			return err
		}
		e.requests = append(e.requests, r)
	}
	return mpi.WaitAll(e.requests...)
}

// collect brings the spans to rank 0, which gets the time from when all had begun to when all had finished.
func (e *exchange) collect(own span) (us float64, err error) {
	if e.rank != 0 {
		return 0, mpi.SendValue(e.world, own, 0, reportTag)
	}
	for other := 1; other < e.ranks; other++ {
		s, _, err := mpi.RecvValue[span](e.world, other, reportTag)
		if err != nil {
			return 0, err
		}
		own.Began, own.Finished = max(own.Began, s.Began), max(own.Finished, s.Finished)
	}
	return float64(own.Finished-own.Began) / 1e3, nil
}

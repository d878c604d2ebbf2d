// Flood sends far more messages than the receiver receives, and shows the cost for the receiver.
//
//	gorun -n 2 ./benchmarks/flood [-n MESSAGES] [-s BYTES]
//
// Rank 0 sends as fast as Send lets it: 10 million messages of 1 KiB by default. Rank 1 receives nothing until no more
// messages come in, that is, until the runtime holds the sender back; then it receives half of what is queued, and
// waits again. So nearly every message is unexpected. Rank 1 checks the contents of each message, and that they come in
// the order in which they were sent.
//
// Printed: the messages received, the greatest number of bytes that unexpected messages took on rank 1 (from
// Comm.Stats), the limit GORUN_UNEXPECTED_MAX if it is set, the greatest resident size of rank 1, and the rate.
//
// Owns: how fast rank 0 sends and rank 1 receives.
// May call: mpi, benchmarks/harness, benchmarks/internal/bench.
// Never: reach into the runtime.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

var (
	count = flag.Int("n", 10_000_000, "messages")
	size  = harness.Size(1024)
)

func init() { flag.Var(&size, "s", "bytes of each") }

const (
	dataTag = 1

	quiet = time.Millisecond // so long nothing came in: the sender is held back, or has sent everything
	few   = 1000             // messages that are not worth another wait
)

func main() { bench.MainWithFlags(run) }

func run(_ context.Context, world *mpi.Comm) error {
	if world.Size() != 2 || *count < 1 || int(size) < 8 {
		if world.Rank() != 0 {
			return nil
		}
		return fmt.Errorf("flood: -n %d -s %d on %d ranks: needs exactly 2 ranks, a message, and 8 bytes in each",
			*count, int(size), world.Size())
	}
	if world.Rank() == 0 {
		return send(world)
	}
	return receive(world)
}

// send is rank 0: it sends everything, one message after the other.
func send(world *mpi.Comm) error {
	buf := make([]byte, int(size))
	for i := range *count {
		harness.Fill(buf, i, 0)
		if err := mpi.Send(world, buf, 1, dataTag); err != nil {
			return fmt.Errorf("flood: message %d: %w", i, err)
		}
	}
	return nil
}

// receive is rank 1: it receives half of what is queued whenever nothing more comes in.
func receive(world *mpi.Comm) error {
	buf := make([]byte, int(size))
	start := time.Now()
	for received := 0; received < *count; {
		queued, err := awaitQuiet(world)
		if err != nil {
			return err
		}
		take := queued / 2
		if queued < few {
			take = max(1, queued)
		}
		for range min(take, *count-received) {
			status, err := mpi.Recv(world, buf, 0, dataTag)
			if err != nil {
				return fmt.Errorf("flood: message %d: %w", received, err)
			}
			if int(status.Bytes) != int(size) || !harness.Check(buf, received, 0) {
				return fmt.Errorf("flood: message %d (%d bytes) has wrong contents or came out of order",
					received, status.Bytes)
			}
			received++
		}
	}
	took := time.Since(start)
	s := world.Stats()
	limit := os.Getenv("GORUN_UNEXPECTED_MAX")
	if limit == "" {
		limit = "not set, so the default of gorun info"
	}
	fmt.Printf("received %d messages of %d bytes in %.1f s (%.0f a second), in order, every byte was right\n",
		*count, int(size), took.Seconds(), float64(*count)/took.Seconds())
	fmt.Printf("unexpected: %d messages; they took at most %d bytes (%.1f MiB) here; GORUN_UNEXPECTED_MAX: %s\n",
		s.Matched, s.UnexpectedPeak, float64(s.UnexpectedPeak)/(1<<20), limit)
	fmt.Printf("resident: at most %.1f MiB\n", float64(harness.PeakKiB())/1024)
	return nil
}

// awaitQuiet waits until no more messages come in, and returns how many are queued. The probe makes
// progress. It finds what is queued: a rank that probes in vain waits for what its senders hold back, and lets in more.
func awaitQuiet(world *mpi.Comm) (int, error) {
	queued, since := -1, time.Now()
	for time.Since(since) < quiet {
		if _, _, err := mpi.Iprobe(world, 0, dataTag); err != nil {
			return 0, err
		}
		if n := world.Stats().Unexpected; n != queued {
			queued, since = n, time.Now()
		}
		runtime.Gosched()
	}
	return queued, nil
}

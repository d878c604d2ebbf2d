package pml

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/mpi/eager"
)

// The threshold is what the user wants, within what the link can do.
func TestEagerMax(t *testing.T) {
	for _, c := range []struct{ limit, longest int }{{0, 8 << 10}, {1, 1}, {100, 100}, {1 << 30, 8 << 10}} {
		w := newRanks(t, 2, Config{EagerMax: c.limit})
		done := make(chan struct{})
		sizes := []int{0, 1, 2, 100, 101, 8 << 10, 8<<10 + 1, 50_000}
		go func() {
			defer close(done)
			for _, n := range sizes {
				in := make([]byte, n)
				if st, err := w.e[1].Recv(nil, 1, 0, int32(n), in); err != nil || int(st.Bytes) != n || !bytes.Equal(in, contents(0, n, n)) {
					t.Errorf("%d bytes: %+v, %v", n, st, err)
				}
			}
		}()
		want := uint64(0)
		for _, n := range sizes {
			if err := w.e[0].Send(nil, 1, 1, int32(n), contents(0, n, n), Standard); err != nil {
				t.Error(err)
			}
			if n <= c.longest {
				want++
			}
			if got := w.e[0].Stats().EagerSent; got != want {
				t.Errorf("limit %d: after %d bytes %d messages went eager, want %d", c.limit, n, got, want)
			}
		}
		<-done
	}
}

// A flood from several senders, while the receiver takes one message after another in every way: at no time does it
// hold more than its limit, no message is lost, and those of one sender come in order.
func TestFloodStaysUnderLimit(t *testing.T) {
	for _, limit := range []int64{1, 50_000, 1 << 20} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			const senders = 3
			messages := inShort(1000, 200)
			w := newRanks(t, senders+1, Config{UnexpectedMax: limit})
			// The least that can be granted to every rank, its own included, may be more than the limit.
			most := max(limit, (senders+1)*eager.MinGrant)
			var wg sync.WaitGroup
			taken := make(chan struct{})
			for rank := range senders + 1 { // rank 0 floods itself as well, and does not wait: it would let more in
				wg.Add(1)
				go func() {
					defer wg.Done()
					rng := rand.New(rand.NewPCG(uint64(rank), 5))
					var open []*Request
					for i := range messages {
						r := w.e[rank].Isend(nil, 1, 0, int32(i%3), contents(rank, i, 4+rng.IntN(2000)), Mode(rng.IntN(10)/9))
						if open = append(open, r); rank != 0 && rng.IntN(500) == 0 {
							for _, r := range open {
								if _, err := r.Wait(); err != nil {
									t.Error(err)
								}
							}
							open = open[:0]
						}
					}
					if rank == 0 {
						<-taken
					}
					for _, r := range open {
						if _, err := r.Wait(); err != nil {
							t.Error(err)
						}
					}
				}()
			}
			var stop atomic.Bool
			watched := make(chan int64, 1)
			go func() {
				peak := int64(0)
				for !stop.Load() {
					peak = max(peak, w.e[0].Stats().UnexpectedBytes)
					runtime.Gosched() // else each turn of this loop takes the others a time slice on one processor
				}
				watched <- peak
			}()
			next := make([]int, senders+1)
			for range (senders + 1) * messages {
				in := make([]byte, 3000)
				st, err := w.e[0].Recv(nil, 1, AnySource, AnyTag, in)
				if err != nil {
					t.Fatal(err)
				}
				i := next[st.Source]
				if int(st.Tag) != i%3 || !bytes.Equal(in[:st.Bytes], contents(int(st.Source), i, int(st.Bytes))) {
					t.Fatalf("message %d of rank %d: tag %d, %d bytes, not the one that was sent", i, st.Source, st.Tag, st.Bytes)
				}
				next[st.Source]++
			}
			close(taken)
			wg.Wait()
			stop.Store(true)
			peak := <-watched
			if st := w.e[0].Stats(); st.UnexpectedPeak > most || peak > most || st.UnexpectedBytes != 0 || st.Unexpected != 0 {
				t.Errorf("limit %d: seen %d, %+v", most, peak, st)
			}
		})
	}
}

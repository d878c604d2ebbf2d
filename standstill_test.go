package mpi

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/standstill"
)

// LookOften makes RunLocal look for ranks that cannot move every so often.
func LookOften(t *testing.T, every time.Duration) {
	look, pause := standstill.Look, standstill.Pause
	standstill.Look, standstill.Pause = every, 4*every
	t.Cleanup(func() { standstill.Look, standstill.Pause = look, pause })
}

// RunLocal ends when all ranks wait for each other, whatever the calls are. Its error says once which rank is in which
// call, and for what.
func TestNoRankCanMove(t *testing.T) {
	buf := func(n int) []byte { return make([]byte, n) }
	for _, c := range []struct {
		name string
		n    int
		body func(w *Comm) error
		want []string // of each rank's line
	}{
		{"Recv against Recv", 2, func(w *Comm) error {
			_, err := Recv(w, buf(8), 1-w.Rank(), 7+w.Rank())
			return err
		}, []string{"rank 0: Recv from 1, tag 7, 8 B, world, at standstill_test.go:",
			"rank 1: Recv from 0, tag 8, 8 B, world, at standstill_test.go:", "\n  0 waits for 1 waits for 0"}},
		{"itself", 1, func(w *Comm) error {
			_, err := Recv(w, buf(8), 0, AnyTag)
			return err
		}, []string{"rank 0: Recv from 0, tag any, 8 B, world, "}},
		{"Ssend against Ssend", 2, func(w *Comm) error {
			return Ssend(w, buf(short), 1-w.Rank(), 3)
		}, []string{"rank 0: Ssend to 1, tag 3, ", " B, world, ", "rank 1: Ssend to 0, tag 3, "}},
		{"long Send against Send", 2, func(w *Comm) error {
			return Send(w, buf(long), 1-w.Rank(), 3)
		}, []string{"rank 0: Send to 1, tag 3, ", " KiB, world, ", "rank 1: Send to 0, tag 3, "}},
		{"Sends without credit", 2, func(w *Comm) error {
			if w.Rank() == 1 {
				_, err := Recv(w, buf(8), 0, 9)
				return err
			}
			for range 100 {
				if err := Send(w, buf(long), 1, 3); err != nil {
					return err
				}
			}
			return nil
		}, []string{"rank 0: Send to 1, tag 3, ", "rank 1: Recv from 0, tag 9, ",
			"from 0, tag 3, world: did the receive ask for tag 9?"}},
		{"Barrier against Recv", 3, func(w *Comm) error {
			if w.Rank() == 1 {
				_, err := Recv(w, buf(8), AnySource, 0)
				return err
			}
			return Barrier(w)
		}, []string{"ranks 0, 2: Barrier number 1 on world: waits for 1, ", "rank 1: Recv from any rank, tag 0, 8 B, world, "}},
		{"Barrier by the board against Recv", 3, func(w *Comm) error {
			for range 5 {
				if err := Barrier(w); err != nil {
					return err
				}
			}
			if w.Rank() == 1 {
				_, err := Recv(w, buf(8), AnySource, 0)
				return err
			}
			return Barrier(w)
		}, []string{"ranks 0, 2: Barrier number 6 on world: waits for 1, ", "rank 1: Recv from any rank, "}},
		{"Wait of Iallreduce", 3, func(w *Comm) error {
			if w.Rank() == 1 {
				_, err := Probe(w, 0, 0)
				return err
			}
			r, err := Iallreduce(w, nil, []int{1}, Sum)
			if err == nil {
				_, err = r.Wait()
			}
			return err
		}, []string{"ranks 0, 2: Request.Wait", " number 1 on world: waits for 1", "rank 1: Probe from 0, tag 0, world, "}},
		{"WaitAll against WaitAny", 2, func(w *Comm) error {
			var rs []*Request
			for tag := range 5 {
				rs = append(rs, ok(Irecv(w, buf(8), 1-w.Rank(), tag)))
			}
			if w.Rank() == 0 {
				return WaitAll(rs...)
			}
			_, _, err := WaitAny(rs...)
			return err
		}, []string{"rank 0: WaitAll from 1, tag 0, 8 B, world, ", "rank 1: WaitAny: from 0, tag 0, ", "; 2 more, "}},
		{"a ring of three, on a Dup", 3, func(w *Comm) error {
			c, err := w.Dup()
			if err == nil {
				_, err = Recv(c, buf(8), (w.Rank()+1)%3, 0)
			}
			return err
		}, []string{"rank 0: Recv from 1, tag 0, 8 B, world.dup", "rank 2: Recv from 0, ",
			"0 waits for 1 waits for 2 waits for 0"}},
		{"a rank has returned", 3, func(w *Comm) error {
			if w.Rank() == 2 {
				return nil
			}
			_, err := Recv(w, buf(8), 1-w.Rank(), 0)
			return err
		}, []string{"rank 0: Recv from 1, ", "rank 2: has returned"}},
		{"Lock of what another rank has locked", 3, func(w *Comm) error {
			win := ok(WinAlloc[int64](w, 1))
			if w.Rank() == 2 {
				must(win.Lock(1, Exclusive))
			}
			must(Barrier(w))
			if w.Rank() == 0 {
				return win.Lock(1, Shared)
			}
			return second(Recv(w, buf(8), 0, 9))
		}, []string{"rank 0: Win.Lock of 1, world.win1, held by 2, ", "ranks 1, 2: Recv from 0, tag 9, ",
			"0 waits for 2 waits for 0"}},
		{"Lock behind LockAll, and LockAll behind Lock", 3, func(w *Comm) error {
			free, locked := ok(WinAlloc[int64](w, 1)), ok(WinAlloc[int64](w, 1))
			switch w.Rank() {
			case 1:
				must(free.LockAll())
			case 2:
				must(locked.Lock(0, Exclusive))
				must(locked.Lock(2, Exclusive))
			}
			must(Barrier(w))
			switch w.Rank() {
			case 0:
				return free.Lock(2, Exclusive)
			case 1:
				return locked.LockAll()
			}
			return second(Recv(w, buf(8), 0, 9))
		}, []string{"rank 0: Win.Lock of 2, world.win1, held by 1, ",
			"rank 1: Win.LockAll of 0, world.win2, held by 2, ", "0 waits for 1 waits for 2 waits for 0"}},
		{"Lock next to LockAll of other ranks", 4, func(w *Comm) error {
			win := ok(WinAlloc[int64](ok(w.Split(w.Rank()/2, 0)), 1)) // both windows have one number
			switch w.Rank() {
			case 0:
				must(win.LockAll())
			case 2:
				must(win.Lock(0, Exclusive))
			}
			must(Barrier(w))
			if w.Rank() == 3 {
				return win.Lock(0, Exclusive)
			}
			return second(Recv(w, buf(8), 3, 9))
		}, []string{"rank 3: Win.Lock of 2, world.split1.win1, held by 2, "}},
		{"Fence", 3, func(w *Comm) error {
			win := ok(WinAlloc[int64](w, 1))
			if w.Rank() == 1 {
				return second(Recv(w, buf(8), 0, 9))
			}
			return win.Fence()
		}, []string{"Win.Fence on world.win1: waits for 1", "rank 1: Recv from 0, tag 9, "}},
		{"goroutines of a rank", 2, func(w *Comm) error {
			if w.Rank() == 0 {
				_, err := Recv(w, buf(8), 1, 0)
				return err
			}
			var wg sync.WaitGroup
			wg.Go(func() { Recv(w, buf(8), 0, 1) })
			defer wg.Wait()
			_, err := Recv(w, buf(8), 0, 0)
			return err
		}, []string{"rank 1: Recv from 0, tag ", "rank 1: Recv from 0, tag "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := local(t, c.n, func(w *Comm) { must(c.body(w)) }, loopBeneath)
			if !errors.Is(err, ErrAborted) {
				t.Fatal(err)
			}
			said := err.Error()
			rest := said
			for _, want := range append([]string{"mpi: RunLocal: no rank can move: "}, c.want...) {
				_, after, is := strings.Cut(rest, want)
				if !is {
					t.Fatalf("%q is not there, or not in that order:\n%s", want, said)
				}
				rest = after
			}
			if n := strings.Count(said, "  rank 0: "); n > 1 {
				t.Errorf("rank 0 has %d lines:\n%s", n, said)
			}
		})
	}
}

// RunLocal goes on while a rank, or another goroutine of the process, is outside the library, whatever it does there,
// or while a context can end a call.
func TestSomeRankCanMove(t *testing.T) {
	LookOften(t, time.Millisecond)
	const outside = 30 * time.Millisecond // dozens of looks
	r, w, err := os.Pipe()
	must(err)
	defer r.Close()
	defer w.Close()
	for name, leave := range map[string]func(){
		"sleeps": func() { time.Sleep(outside) },
		"computes": func() {
			for begun, n := time.Now(), 0; time.Since(begun) < outside; n++ {
			}
		},
		"waits for a timer": func() { <-time.After(outside) },
		"waits for a goroutine": func() {
			over := make(chan bool)
			go func() {
				time.Sleep(outside)
				over <- true
			}()
			<-over
		},
		"waits for a lock": func() {
			var mu sync.Mutex
			mu.Lock()
			go func() {
				time.Sleep(outside)
				mu.Unlock()
			}()
			mu.Lock()
		},
		"reads": func() {
			time.AfterFunc(outside, func() { w.Write([]byte{1}) })
			r.Read(make([]byte, 1))
		},
		"runs a command": func() { must(exec.Command("sleep", "0.03").Run()) },
	} {
		t.Run(name, func(t *testing.T) {
			over(t, loopBeneath)(3, func(w *Comm) {
				for turn := range 2 {
					switch w.Rank() {
					case 0: // the rank is there
						leave()
						must(Send(w, []byte{1}, 1, 0))
					case 1:
						ok(Recv(w, make([]byte, 1), 0, 0))
					}
					must(Barrier(w))
					switch w.Rank() {
					case 0: // in a call, and a goroutine of it is not
						done := make(chan bool)
						go func() {
							leave()
							must(Send(w, []byte{1}, 1, turn))
							close(done)
						}()
						ok(Recv(w, make([]byte, 1), 1, turn))
						<-done
					case 1:
						ok(Recv(w, make([]byte, 1), 0, turn))
						must(Send(w, []byte{1}, 0, turn))
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), outside)
				defer cancel()
				_, err := Recv(w.WithContext(ctx), make([]byte, 1), (w.Rank()+1)%3, 9)
				check(errors.Is(err, context.DeadlineExceeded), "%v", err)
			})
		})
	}
}

// RunLocal goes on while ranks work, however often they are looked at: with long and short messages, collective calls,
// and senders without credit.
func TestRanksThatWorkMove(t *testing.T) {
	LookOften(t, 100*time.Microsecond)
	everywhere(t, func(t *testing.T, run runner) {
		run(4, func(w *Comm) {
			right, left := (w.Rank()+1)%4, (w.Rank()+3)%4
			in, sum := make([]byte, 4*long), []int{0}
			for i := range inShort(100, 20) {
				ok(Sendrecv(w, message(4*long, i), right, 0, in, left, 0))
				whole(in, i)
				must(Allreduce(w, []int{i}, sum, Sum))
				same(sum[0], 4*i)
				ok(Sendrecv(w, message(short, i), right, 0, in[:short], left, 0))
				whole(in[:short], i)
				if w.Rank()%2 == 0 {
					must(Ssend(w, message(long, i), right, 1))
				} else {
					ok(Recv(w, in[:long], left, 1))
				}
			}
		})
	})
}

// Two jobs of one process in which no rank can move both end; but not while a rank of another job can move, which might
// call them.
func TestJobsBesideEachOther(t *testing.T) {
	LookOften(t, time.Millisecond)
	var moved atomic.Bool
	begun, other := make(chan bool), make(chan error, 1)
	go over(t, loopBeneath)(2, func(w *Comm) {
		if w.Rank() == 0 {
			close(begun)
			time.Sleep(100 * time.Millisecond) // dozens of looks
			moved.Store(true)
		}
		must(Barrier(w))
	})
	<-begun
	stuck := func() error {
		return local(t, 2, func(w *Comm) { ok(Recv(w, make([]byte, 1), 1-w.Rank(), 0)) }, loopBeneath)
	}
	go func() { other <- stuck() }()
	for _, err := range []error{stuck(), <-other} {
		if !errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), "0 waits for 1 waits for 0") {
			t.Error(err)
		}
	}
	if !moved.Load() {
		t.Error("a job has ended while a rank of another one could call")
	}
}

// A rank whose call another goroutine of the process will end is not stuck: the request of one rank is waited for by a
// goroutine, and the rank waits for that.
func TestRequestOfAnotherGoroutine(t *testing.T) {
	LookOften(t, time.Millisecond)
	over(t, loopBeneath)(2, func(w *Comm) {
		r := ok(Irecv(w, make([]byte, 1), 1-w.Rank(), 0))
		done := make(chan error)
		go func() {
			_, err := r.Wait()
			done <- err
		}()
		if w.Rank() == 0 {
			time.Sleep(20 * time.Millisecond)
		}
		must(Send(w, []byte{1}, 1-w.Rank(), 0))
		must(<-done)
	})
}

//go:build (ucx || ofi) && linux && cgo

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("left alone", leftAlone)
	role("exchanges", exchanges)
	role("sends and returns", sendsAndReturns)
	roles["unavailable"] = func() error {
		_, err := mpi.Init()
		fmt.Printf("unavailable %v: %v\n", errors.Is(err, mpi.ErrUnavailable), err)
		os.Exit(3)
		return nil
	}
}

// taggedWays are the settings under which a library that matches messages by itself moves them on one host.
var taggedWays = map[string][]string{}

// eachTagged runs test for each of them, at the same time.
func eachTagged(t *testing.T, test func(t *testing.T, env []string)) {
	t.Parallel()
	for name, env := range taggedWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, env)
		})
	}
}

// silent expects that the library has printed nothing.
func (j *job) silent() *job {
	j.t.Helper()
	lines := regexp.MustCompile(`.*(\bUCX +[A-Z]+ |\blibfabric:\d+:).*`)
	if line := lines.FindString(j.err.String() + j.out.String()); line != "" {
		j.t.Errorf("the library prints: %s", line)
	}
	return j
}

func TestTaggedPeerDies(t *testing.T) {
	eachTagged(t, func(t *testing.T, env []string) {
		for name := range ways {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if name == "receiver before it receives" && slices.Contains(env, "GORUN_OFI_PROVIDER=sockets") {
					t.Skip("this provider takes a long message before its receive: its case ends in \"then Ssend\"")
				}
				dies(t, "peer dies", name, env...).silent()
			})
		}
	})
}

func TestTaggedStopped(t *testing.T) {
	eachTagged(t, func(t *testing.T, env []string) { stoppedAtFirstContact(t, env...) })
}

func TestTaggedIdle(t *testing.T) {
	eachTagged(t, func(t *testing.T, env []string) {
		waits := []string{"recv", "probe", "barrier"}
		// The provider sockets sends a message whether or not it is received: its sender has 64 MiB to move.
		if !slices.Contains(env, "GORUN_OFI_PROVIDER=sockets") {
			waits = append(waits, "large send")
		}
		idles(t, 2, waits, env...)
	})
}

// exchanges: 10,000 messages each way, ten at a time, and collective calls.
func exchanges(_ context.Context, w *mpi.Comm) error {
	peer, out, in := 1-w.Rank(), make([]int, 10*2000), make([]int, 2000)
	requests := make([]*mpi.Request, 10)
	for i := range 1000 {
		size := []int{1, 1, 100, 2000}[i%4]
		for k := range requests {
			out[k*size] = i*len(requests) + k
			r, err := mpi.Isend(w, out[k*size:][:size], peer, tagGo)
			if err != nil {
				return err
			}
			requests[k] = r
		}
		for k := range requests {
			if _, err := mpi.Recv(w, in[:size], peer, tagGo); err != nil {
				return err
			}
			if want := i*len(requests) + k; in[0] != want {
				return fmt.Errorf("message %d has %d", want, in[0])
			}
		}
		if err := mpi.WaitAll(requests...); err != nil {
			return err
		}
	}
	sum := make([]int, 1)
	for i := range 50 {
		if err := mpi.Allreduce(w, []int{i}, sum, mpi.Sum); err != nil {
			return err
		}
		if sum[0] != 2*i {
			return fmt.Errorf("sum %d is %d", i, sum[0])
		}
		if err := mpi.Bcast(w, in, i%2); err != nil {
			return err
		}
	}
	return mpi.Barrier(w)
}

// Ranks with one processor each get on, whether they wait in turns of the library or asleep.
func TestTaggedOneProcessor(t *testing.T) {
	eachTagged(t, func(t *testing.T, env []string) {
		for _, spin := range []string{"0s", "1s"} {
			t.Run(spin, func(t *testing.T) {
				t.Parallel()
				one := slices.Concat(env, []string{"GOMAXPROCS=1", "GORUN_SPIN=" + spin})
				run(t, spec{n: 2, role: "exchanges", env: one}, 0).silent()
			})
		}
	})
}

// sendsAndReturns: rank 0 sends more than the kernel's buffers hold, and is in Finalize when rank 1 receives that.
func sendsAndReturns(_ context.Context, w *mpi.Comm) error {
	const n, size = 6000, 1000
	b := make([]byte, size)
	for i := range n {
		b[0], b[size-1] = byte(i), byte(i>>8)
		if w.Rank() == 0 {
			if err := mpi.Send(w, b, 1, tagGo); err != nil {
				return err
			}
			continue
		}
		if i == 0 {
			time.Sleep(300 * time.Millisecond) // rank 0 is in Finalize; if not, less is tested
		}
		if _, err := mpi.Recv(w, b, 0, tagGo); err != nil {
			return err
		}
		if b[0] != byte(i) || b[size-1] != byte(i>>8) {
			return fmt.Errorf("message %d has %d and %d", i, b[0], b[size-1])
		}
	}
	return nil
}

// Short messages are received though their sender has called Finalize meanwhile; §11.2.2.
func TestTaggedSenderReturns(t *testing.T) {
	eachTagged(t, func(t *testing.T, env []string) {
		run(t, spec{n: 2, role: "sends and returns", env: env}, 0).silent()
	})
}

// How rank 1 is while rank 0, which has sends to it under way, ends.
var absent = map[string]func(w *mpi.Comm) error{
	"stopped":    func(*mpi.Comm) error { return syscall.Kill(os.Getpid(), syscall.SIGSTOP) },
	"computing":  func(*mpi.Comm) error { time.Sleep(time.Hour); return nil },
	"in a call":  func(w *mpi.Comm) error { return recvByte(w, 0) },
	"in a probe": func(w *mpi.Comm) error { _, err := mpi.Probe(w, 0, tagSmall); return err },
}

// leftAlone: rank 1 receives nothing of what rank 0 sends, and rank 0 ends as the argument says.
func leftAlone(_ context.Context, w *mpi.Comm) error {
	if err := connectAll(w); err != nil {
		return err
	}
	if w.Rank() == 1 {
		return absent[os.Args[1]](w)
	}
	for _, size := range []int{8, 8 << 10, large} {
		if _, err := mpi.Issend(w, make([]byte, size), 1, tagGo); err != nil {
			return err
		}
		if _, err := mpi.Isend(w, make([]byte, size), 1, tagGo); err != nil {
			return err
		}
	}
	time.Sleep(100 * time.Millisecond) // rank 1 is there, and the transfers have begun; if not, less is tested
	switch os.Args[2] {
	case "abort":
		mpi.Abort(7)
	case "panic":
		panic("it ends")
	}
	return errors.New("it ends")
}

// A job ends though sends are under way to a rank that is stopped or never receives them.
func TestTaggedLeftAlone(t *testing.T) {
	eachTagged(t, func(t *testing.T, env []string) {
		for how := range absent {
			for end, code := range map[string]int{"abort": 7, "panic": 1, "error": 1} {
				t.Run(how+"/"+end, func(t *testing.T) {
					t.Parallel()
					run(t, spec{n: 2, role: "left alone", args: []string{how, end}, env: env}, code).silent()
				})
			}
		}
	})
}

// Ranks whose messages a library matches say what they wait for, and never that they stand.
func TestTaggedWaits(t *testing.T) {
	eachTagged(t, func(t *testing.T, env []string) {
		j := run(t, spec{n: 2, role: "waits cross", env: env, flags: []string{"--stall", "500ms", "--timeout", "6s"}}, 124)
		j.silent().says(`^  rank 0: Ssend to 1, tag 0, 8 B, world, .*at waits_linux_test\.go:\d+$`,
			`^  0 waits for 1 waits for 0$`)
		if j.count("can move") > 0 {
			t.Errorf("gorun said\n%s", j.err.String())
		}
	})
}

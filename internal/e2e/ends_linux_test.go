package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	role("abort", func(_ context.Context, w *mpi.Comm) error {
		if w.Rank() == 1 {
			fmt.Println("rank 1 aborts")
			mpi.Abort(7)
		}
		return mpi.Barrier(w)
	})
	// Hydra takes the code of the Abort that it reads first, so only one rank may call it.
	role("abort, others away", func(_ context.Context, w *mpi.Comm) error {
		if w.Rank() == 1 {
			mpi.Abort(7)
		}
		time.Sleep(time.Hour)
		return nil
	})
	role("panic", func(_ context.Context, w *mpi.Comm) error {
		if w.Rank() == 1 {
			var none []int
			none[w.Size()] = 1
		}
		return mpi.Barrier(w)
	})
	role("error", func(_ context.Context, w *mpi.Comm) error {
		if w.Rank() == 1 {
			return errors.New("the input makes no sense")
		}
		return mpi.Barrier(w)
	})
	role("until interrupted", func(ctx context.Context, w *mpi.Comm) error {
		fmt.Println("ready")
		if w.Rank() == 0 {
			<-ctx.Done()
			fmt.Println("ended by", ctx.Err())
			return nil
		}
		_, err := mpi.Recv(w.WithContext(ctx), []byte{0}, 0, 0)
		fmt.Println("ended by", errors.Is(err, context.Canceled))
		return nil
	})
	roles["no finalize"] = func() error {
		w, err := mpi.Init()
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			os.Exit(0)
		}
		mpi.Recv(w, []byte{0}, 1, 0)
		return proc.AwaitEnd() // gorun ends this process
	}
	roles["open requests"] = openRequests
	role("open request in main", func(_ context.Context, w *mpi.Comm) error {
		_, err := mpi.Irecv(w, []byte{0}, 0, 0)
		return err
	})
	role("sleep", func(_ context.Context, w *mpi.Comm) error {
		if err := mpi.Barrier(w); err != nil {
			return err
		}
		fmt.Println("ready")
		_, err := mpi.Recv(w, []byte{0}, w.Rank(), 0)
		return err
	})
}

func TestAbort(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 3, role: "abort"}, 7).says(`^gorun: rank 1 .* called Abort with code 7`)
}

func TestPanic(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 3, role: "panic"}, 1)
	j.says(`^rank 1: panic: runtime error: index out of range \[3\]`, `ends_linux_test.go:\d+`, `^gorun: rank 1 `)
}

func TestErrorOfBody(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 3, role: "error"}, 1).says(`^rank 1: the input makes no sense$`, `^gorun: rank 1 `)
}

func TestExitWithoutFinalize(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 2, role: "no finalize"}, 1).says(`^gorun: rank 1 .* exited with code 0 without calling Finalize`)
}

// openRequests calls Finalize with operations under way: it is refused, and nothing is lost by it.
func openRequests() error {
	w, err := mpi.Init()
	if err != nil {
		return err
	}
	peer := 1 - w.Rank()
	got := make([]byte, large)
	r, err := mpi.Irecv(w, got, peer, 1)
	if err != nil {
		return err
	}
	if err := mpi.Finalize(); !errors.Is(err, mpi.ErrRequest) || !strings.Contains(err.Error(), "under way: 1") {
		return fmt.Errorf("finalize with a receive open: %w", err)
	}
	out := make([]byte, large)
	pattern(out, w.Rank())
	s, err := mpi.Isend(w, out, peer, 1)
	if err != nil {
		return err
	}
	if err := mpi.WaitAll(s, r); err != nil {
		return err
	}
	if err := verify(got, peer); err != nil {
		return err
	}
	if err := mpi.Finalize(); err != nil {
		return err
	}
	if err := mpi.Send(w, out, peer, 1); !errors.Is(err, mpi.ErrComm) && !errors.Is(err, mpi.ErrInit) {
		return fmt.Errorf("send after finalize: %w", err)
	}
	if _, err := mpi.Init(); !errors.Is(err, mpi.ErrInit) {
		return fmt.Errorf("init after finalize: %w", err)
	}
	if err := mpi.Finalize(); !errors.Is(err, mpi.ErrInit) {
		return fmt.Errorf("second finalize: %w", err)
	}
	if _, err := mpi.Alloc[byte](8); !errors.Is(err, mpi.ErrInit) {
		return fmt.Errorf("alloc after finalize: %w", err)
	}
	fmt.Println("all as it should be")
	return nil
}

func TestFinalizeWithOpenRequests(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 2, role: "open requests"}, 0)
	if got := j.count(`^all as it should be`); got != 2 {
		t.Errorf("%d of 2 ranks are content", got)
	}
	run(t, spec{n: 2, role: "open request in main"}, 1).says(`^rank \d: mpi: Finalize: operations are under way: 1`)
}

// Ctrl-C once: the context of Main's body ends, and so does a call on a communicator with that context.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	j := start(t, spec{n: 3, role: "until interrupted", flags: []string{"--kill-delay", "1m"}})
	proc.Eventually(t, "the ranks", func() bool { return strings.Count(j.out.String(), "ready\n") == 3 })
	j.cmd.Process.Signal(syscall.SIGINT)
	j.wait(130)
	if j.count(`^ended by context canceled`) != 1 || j.count(`^ended by true`) != 2 {
		t.Errorf("the bodies end so:\n%s", j.out.String())
	}
}

// kill -9 of gorun: ranks that are connected to each other and wait in the library end as well.
func TestKillGorun(t *testing.T) {
	t.Parallel()
	j := start(t, spec{n: 3, role: "sleep"})
	proc.Eventually(t, "the ranks", func() bool { return strings.Count(j.out.String(), "ready\n") == 3 })
	j.cmd.Process.Kill()
	at := time.Now()
	proc.Eventually(t, "all to be gone", func() bool { return len(j.processes()) == 0 })
	t.Logf("the ranks were gone after %v", time.Since(at))
	j.wait(-1)
}

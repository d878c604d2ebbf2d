package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
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
	j.says(`^rank 1: panic: runtime error: index out of range \[3\]`, `ends_linux_test.go:\d+`)
	j.lastLine(`rank 1 on \S+: panic: runtime error: index out of range \[3\] with length 0`)
}

func TestErrorOfBody(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 3, role: "error"}, 1).lastLine(`rank 1 on \S+: the input makes no sense`)
}

// lastLine expects a line, as a regular expression, after all others on the standard error.
func (j *job) lastLine(want string) {
	j.t.Helper()
	lines := strings.Split(strings.TrimSpace(j.err.String()), "\n")
	if last := lines[len(lines)-1]; !regexp.MustCompile(`^` + want + `$`).MatchString(last) {
		j.t.Errorf("the last line is %q, want %s", last, want)
	}
}

func init() {
	role("one ends", func(_ context.Context, w *mpi.Comm) error {
		if err := mpi.Barrier(w); err != nil {
			return err
		}
		if fmt.Sprint(w.Rank()) == os.Args[2] {
			switch os.Args[1] {
			case "exit3":
				os.Exit(3)
			case "exit0":
				os.Exit(0)
			case "error":
				return errors.New("the solver diverged")
			}
		}
		_, err := mpi.Recv(w, []int{1}, mpi.AnySource, 99)
		if os.Args[1] == "exit3" && w.Rank()%2 == 0 && errors.Is(err, mpi.ErrPeerFailed) {
			mpi.Abort(9) // a consequence too
		}
		return err
	})
}

func init() {
	roles["one exits without Main"] = func() error { // log.Fatal ends the others
		w, err := mpi.Init()
		if err != nil {
			return err
		}
		if err := mpi.Barrier(w); err == nil && fmt.Sprint(w.Rank()) == os.Args[2] {
			os.Exit(3)
		}
		_, err = mpi.Recv(w, []int{1}, mpi.AnySource, 99)
		if errors.Is(err, mpi.ErrPeerFailed) {
			os.Exit(1)
		}
		return fmt.Errorf("a receive that ends with %w", err)
	}
}

// The rank that ends first is blamed, in the last line, and no other line says anything: the other ranks fail since they
// hear of that end, often before gorun does.
func TestBlame(t *testing.T) {
	t.Parallel()
	rounds := 200
	if testing.Short() {
		rounds = 4
	}
	const stopped = "; the job is stopped"
	for _, c := range []struct {
		how  string
		n    int
		code int
		last string
	}{
		{"exit3, no Main", 6, 3, `gorun: rank %d \(pid \d+ on host \S+\) exited with code 3` + stopped},
		{"exit3", 6, 3, `gorun: rank %d \(pid \d+ on host \S+\) exited with code 3` + stopped},
		{"exit0", 6, 1, `gorun: rank %d \(pid \d+ on host \S+\) exited with code 0 without calling Finalize` + stopped},
		{"error", 12, 1, `rank %d on \S+: the solver diverged`},
	} {
		for way, flags := range map[string][]string{
			"here": nil, "hosts": {"-H", "a,b", "--allow-unused-hosts", "--launcher", "exec", "--map-by", "node"},
		} {
			t.Run(c.how+" "+way, func(t *testing.T) {
				t.Parallel()
				role := "one ends"
				if strings.HasSuffix(c.how, "no Main") {
					role = "one exits without Main"
				}
				for round := range rounds {
					rank := round % c.n
					j := run(t, spec{n: c.n, role: role, args: []string{c.how, fmt.Sprint(rank)},
						flags: append([]string{"--bind-to", "none"}, flags...)}, c.code)
					j.lastLine(fmt.Sprintf(c.last, rank))
					for l := range strings.Lines(j.err.String()) {
						if strings.Contains(l, "peer") || strings.Contains(l, "Abort") {
							t.Errorf("a consequence is printed: %s", l)
						}
					}
					if t.Failed() {
						t.Fatalf("round %d:\n%s", round, j.err.String())
					}
				}
			})
		}
	}
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
	run(t, spec{n: 2, role: "open request in main"}, 1).says(`^rank \d on \S+: mpi: Finalize: operations are under way: 1`)
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

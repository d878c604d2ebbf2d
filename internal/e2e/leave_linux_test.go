package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	// Rank 1 works for longer than GORUN_TIMEOUT while the others are in Finalize.
	role("finalize early", func(_ context.Context, w *mpi.Comm) error {
		limit, err := time.ParseDuration(os.Getenv("GORUN_TIMEOUT"))
		if w.Rank() == 1 {
			time.Sleep(2 * limit)
		}
		return err
	})
	// Rank 0 leaves a barrier that it has begun, and that rank 1 never makes.
	role("finalize with a call left", func(ctx context.Context, w *mpi.Comm) error {
		if w.Rank() == 0 {
			ctx, cancel := context.WithCancel(ctx)
			r, err := mpi.Ibarrier(w.WithContext(ctx))
			if cancel(); err != nil {
				return err
			}
			if _, err := r.Wait(); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("the barrier gives %w", err)
			}
		}
		return nil
	})
	roles["abort in finalize"] = func() error { return abortInside("(*Client).Fence", false) }
	roles["abort in flush"] = func() error { return abortInside("(*Engine).Flush", true) }
	roles["abort in init"] = func() error {
		if os.Getenv("PMI_RANK") == "1" {
			return proc.AwaitEnd() // gorun ends this process
		}
		go abortWhenIn("(*Client).Fence")
		_, err := mpi.Init()
		return err
	}
	roles["in finalize"] = inFinalize
}

// abortInside: rank 0 calls Abort while its Finalize is in a function. buffered: it has a message that is not received.
func abortInside(function string, buffered bool) error {
	w, err := mpi.Init()
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		return proc.AwaitEnd() // gorun ends this process
	}
	if buffered {
		if err := mpi.Bsend(w, make([]byte, large), 0, 1); err != nil {
			return err
		}
	}
	go abortWhenIn(function)
	return mpi.Finalize()
}

// whenIn returns when a goroutine of this process is in a function.
func whenIn(function string) {
	stacks := make([]byte, 1<<20)
	for !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function) {
		time.Sleep(time.Millisecond)
	}
}

func abortWhenIn(function string) {
	whenIn(function)
	mpi.Abort(7)
}

// inFinalize: rank 0 says that it is in Finalize, and rank 1 does what its argument says.
func inFinalize() error {
	w, err := mpi.Init()
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		if len(os.Args) > 1 && os.Args[1] == "exit" {
			if _, err := mpi.Recv(w, []byte{0}, 0, 0); err != nil {
				return err
			}
			os.Exit(5)
		}
		return proc.AwaitEnd() // gorun or its cleaner ends this process
	}
	if len(os.Args) > 1 {
		if err := mpi.Send(w, []byte{0}, 1, 0); err != nil {
			return err
		}
	}
	go func() {
		whenIn("(*Client).Fence")
		fmt.Println("ready")
	}()
	return mpi.Finalize()
}

// Finalize waits for as long as other ranks work, whatever GORUN_TIMEOUT says; §11.2.2.
func TestFinalizeWaits(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"500ms", "5s", "30s"} { // which may be too short for Init on a slow machine
		j := start(t, spec{n: 3, role: "finalize early", env: []string{"GORUN_TIMEOUT=" + limit}})
		if j.end(); j.count(`mpi: Init: .*not within `+limit) == 0 {
			j.wait(0)
			return
		}
	}
	t.Error("Init takes longer than 30 s")
}

// Main prints the error of a Finalize that has left the job: gorun does not hear of it.
func TestFinalizeSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 2, role: "finalize with a call left"}, 1)
	const cause = `^rank 0: mpi: Finalize: a context has ended this rank's Ibarrier of world, ` +
		`which other ranks have not`
	if j.count(cause) != 1 {
		t.Error("the cause is not there once")
	}
}

// Abort ends the rank at once, whatever another goroutine waits for.
func TestAbortWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"abort in finalize", "abort in flush", "abort in init"} {
		t.Run(role, func(t *testing.T) {
			run(t, spec{n: 2, role: role, env: []string{"GORUN_TIMEOUT=10m"}}, 7)
		})
	}
}

// A death is noticed in Finalize.
func TestDeathInFinalize(t *testing.T) {
	t.Parallel()
	t.Run("another rank's", func(t *testing.T) {
		run(t, spec{n: 2, role: "in finalize", args: []string{"exit"}}, 5).says(`^gorun: rank 1 .* exited with code 5`)
	})
	t.Run("another rank's under hydra", func(t *testing.T) {
		j := start(t, spec{n: 2, role: "in finalize", args: []string{"exit"}, hydra: true})
		j.end()
		code := 5
		if j.cmd.ProcessState.ExitCode() == 9 { // rank 0's, which hydra kills: it returns the one or the other
			code = 9
		}
		j.wait(code)
	})
	t.Run("gorun's", func(t *testing.T) {
		j := start(t, spec{n: 2, role: "in finalize"})
		proc.Eventually(t, "rank 0 to be in Finalize", func() bool { return strings.Contains(j.out.String(), "ready\n") })
		j.cmd.Process.Signal(syscall.SIGKILL)
		proc.Eventually(t, "all to be gone", func() bool { return len(j.processes()) == 0 })
		j.wait(-1)
	})
}

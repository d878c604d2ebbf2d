package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	// Rank 1 is stopped, for longer than GORUN_PEER_TIMEOUT is, when rank 0 sends to it for the first time.
	role("stopped", func(_ context.Context, w *mpi.Comm) error {
		b := make([]byte, large)
		if w.Rank() == 1 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
				return err
			}
			if _, err := mpi.Recv(w, b, 0, 0); err != nil {
				return err
			}
			return verify(b, 0)
		}
		mark := markVar + "=" + os.Getenv(markVar)
		var stopped []proc.Info
		for len(stopped) == 0 {
			time.Sleep(time.Millisecond)
			stopped = proc.List(func(p proc.Info) bool { return p.State == "T" && slices.Contains(p.Env(), mark) })
		}
		wake := fmt.Sprintf("sleep 2; kill -CONT %d", stopped[0].PID)
		if err := exec.Command("sh", "-c", wake).Start(); err != nil {
			return err
		}
		pattern(b, 0)
		return mpi.Send(w, b, 1, 0)
	})
}

// stoppedAtFirstContact runs a job with these settings in which a rank is stopped.
func stoppedAtFirstContact(t *testing.T, env ...string) {
	run(t, spec{n: 2, role: "stopped", env: append(env, "GORUN_PEER_TIMEOUT=1s")}, 0)
}

// A rank that is stopped at first contact, in a debugger for example, gets its messages when it goes on.
func TestStopped(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"shm", "tcp", "shm,tcp"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			stoppedAtFirstContact(t, "GORUN_TRANSPORTS="+transport)
		})
	}
	t.Run("tcp TLS", func(t *testing.T) {
		t.Parallel()
		stoppedAtFirstContact(t, "GORUN_TRANSPORTS=tcp", "GORUN_TCP_TLS=1")
	})
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() { role("recovery", recovery) }

// recovery is a job whose rank 1 dies. The others see it as failed, speak with each other, and finalize.
func recovery(_ context.Context, w *mpi.Comm) error {
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	if w.Rank() == 1 {
		if os.Args[1] == "exit" {
			os.Exit(4)
		}
		die()
	}
	_, err := mpi.Recv(w, []byte{0}, 1, tagData)
	if failed := errors.Is(err, mpi.ErrPeerFailed); !failed {
		return fmt.Errorf("the receive from the rank that died: %w", err)
	}
	// 0 → 2 → 3 → 0
	next := map[int]int{0: 2, 2: 3, 3: 0}[w.Rank()]
	last := map[int]int{2: 0, 3: 2, 0: 3}[w.Rank()]
	r, err := mpi.Irecv(w, []byte{0}, last, tagGo)
	if err != nil {
		return err
	}
	if err := mpi.Send(w, []byte{1}, next, tagGo); err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	fmt.Printf("rank %d goes on\n", w.Rank())
	return nil
}

// With --enable-recovery the ranks go on that are left, on one host and on several, and end well.
func TestRecovery(t *testing.T) {
	t.Parallel()
	for how, code := range map[string]int{"exit": 4, "die": 137} {
		for _, flags := range [][]string{nil, {"--launcher", "exec", "-H", "a:2,b:2"}} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				flags := append([]string{"--enable-recovery"}, flags...)
				j := run(t, spec{n: 4, role: "recovery", args: []string{how}, flags: flags}, code)
				if n := j.count(`^rank [023] goes on$`); n != 3 {
					t.Errorf("%d ranks go on:\n%s\n%s", n, j.out.String(), j.err.String())
				}
				j.says(`rank 1 .*; the job goes on without it`)
				if n := j.count(`; the job goes on without it`); n != 1 {
					t.Errorf("%d ranks have failed:\n%s", n, j.err.String())
				}
			})
		}
	}
}

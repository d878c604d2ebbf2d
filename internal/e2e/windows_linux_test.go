package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() { role("lock-holder", lockHolder) }

// lockHolder is a job whose rank 2 dies with the exclusive lock of rank 0. The others wait for that lock, and then ask
// for it again.
func lockHolder(_ context.Context, w *mpi.Comm) error {
	win, err := mpi.WinCreate(w, make([]int64, 4))
	if os.Args[1] == "alloc" {
		win, err = mpi.WinAlloc[int64](w, 4)
	}
	if err != nil {
		return err
	}
	if w.Rank() == 2 {
		if err := win.Lock(0, mpi.Exclusive); err != nil {
			return err
		}
		for other := range 2 {
			if err := meet(w, other); err != nil {
				return err
			}
		}
		die()
	}
	if err := meet(w, 2); err != nil {
		return err
	}
	for range 2 {
		if err := win.Lock(0, mpi.Shared); !errors.Is(err, mpi.ErrPeerFailed) {
			return fmt.Errorf("the lock of a rank that has died: %w", err)
		}
	}
	fmt.Printf("rank %d goes on\n", w.Rank())
	return nil
}

// meet returns when the other rank calls it too.
func meet(w *mpi.Comm, other int) error {
	_, err := mpi.Sendrecv(w, []byte{1}, other, tagGo, make([]byte, 1), other, tagGo)
	return err
}

// A rank that dies with a lock gives ErrPeerFailed to the ranks that wait for it, in every kind of window.
func TestDeathOfLockHolder(t *testing.T) {
	t.Parallel()
	for _, transports := range []string{"shm", "tcp"} {
		for _, kind := range []string{"alloc", "create"} {
			t.Run(transports+"/"+kind, func(t *testing.T) {
				t.Parallel()
				j := run(t, spec{n: 3, role: "lock-holder", args: []string{kind}, flags: []string{"--enable-recovery"},
					env: []string{"GORUN_TRANSPORTS=" + transports}}, 137)
				if n := j.count(`^rank [01] goes on$`); n != 2 {
					t.Errorf("%d ranks go on:\n%s\n%s", n, j.out.String(), j.err.String())
				}
			})
		}
	}
}

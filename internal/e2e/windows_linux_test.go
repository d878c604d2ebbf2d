package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
)

func init() {
	role("lock-holder", lockHolder)
	role("window-update", windowUpdate)
}

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
		} else if !strings.HasSuffix(err.Error(), ": rank 2 has failed, and may have had the lock; no rank waits for it "+
			"any more") {
			return err
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

// windowUpdate is a job whose rank 1 is killed by rank 0 in an update of many elements of rank 0, which it makes alone:
// it makes one after the other, and each takes milliseconds. The others have elements of rank 0 updated then.
func windowUpdate(_ context.Context, w *mpi.Comm) error {
	const n = 1 << 22
	win, err := mpi.WinAlloc[int64](w, n)
	if err != nil {
		return err
	}
	if err := win.Lock(0, mpi.Shared); err != nil {
		return err
	}
	pid := []int{os.Getpid()}
	switch w.Rank() {
	case 1:
		ones := slices.Repeat([]int64{1}, n)
		for i := 0; ; i++ {
			if err := win.Accumulate(mpi.Sum, ones, 0, 0); err != nil {
				return err
			}
			if i == 0 {
				if err := mpi.Send(w, pid, 0, tagGo); err != nil {
					return err
				}
			}
		}
	case 0:
		if _, err := mpi.Recv(w, pid, 1, tagGo); err != nil {
			return err
		}
		if err := killIn(win, n, pid[0]); err != nil {
			return err
		}
		if err := mpi.Send(w, pid, 2, tagGo); err != nil {
			return err
		}
	default:
		if _, err := mpi.Recv(w, pid, 0, tagGo); err != nil {
			return err
		}
	}
	_, err = win.FetchOp(mpi.Sum, 1, 0, 0)
	if !errors.Is(err, mpi.ErrPeerFailed) || !strings.Contains(err.Error(), "rank 1 has failed while it updated") {
		return fmt.Errorf("FetchOp of what a rank has left behind: %w", err)
	}
	if err := win.Accumulate(mpi.Sum, []int64{1}, 0, 0); err == nil {
		err = win.Flush(0)
		if w.Rank() == 0 || !errors.Is(err, mpi.ErrPeerFailed) {
			return fmt.Errorf("Accumulate likewise: %w", err)
		}
	} else if !errors.Is(err, mpi.ErrPeerFailed) {
		return err
	}
	if err := meet(w, 2-w.Rank()); err != nil {
		return err
	}
	fmt.Printf("rank %d goes on\n", w.Rank())
	return nil
}

// killIn kills a process when it has added to the first of n elements of rank 0, and not to the last one yet.
func killIn(win *mpi.Win[int64], n int64, pid int) error {
	for {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		for stopped := false; !stopped; {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				return err
			}
			stopped = strings.Contains(string(stat), ") T ")
		}
		v := make([]int64, 2)
		if err := errors.Join(win.Get(v[:1], 0, 0), win.Get(v[1:], 0, n-1), win.Flush(0)); err != nil {
			return err
		}
		if v[0] != v[1] {
			return syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			return err
		}
		runtime.Gosched()
	}
}

// A rank that is killed while it updates elements alone is named to the ranks that want to update them, by
// ErrPeerFailed: to the ranks of its host, which map the elements, and to a rank of another host, which asks for it.
func TestDeathInUpdate(t *testing.T) {
	t.Parallel()
	t.Run("one host", func(t *testing.T) {
		t.Parallel()
		j := run(t, spec{n: 3, role: "window-update", flags: []string{"--enable-recovery"}}, 137)
		if n := j.count(`^rank [02] goes on$`); n != 2 {
			t.Errorf("%d ranks go on:\n%s\n%s", n, j.out.String(), j.err.String())
		}
	})
	t.Run("two hosts", func(t *testing.T) {
		t.Parallel()
		j := runOn(t, netns.Up(t, 2), spread{perHost: []int{2, 1}, role: "window-update"})
		for _, rank := range []int{0, 2} {
			j.awaits(rank, fmt.Sprintf(`^rank %d goes on$`, rank))
		}
		j.Stop() // the job has no --enable-recovery: its ranks would wait for each other in Finalize
		j.finish(-1)
	})
}

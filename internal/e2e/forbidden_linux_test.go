package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("exchange", exchangeAndReport)
	withoutReadv("exchange", exchangeAndReport)
	withoutWritev("exchange", exchangeAndReport)
	withoutWritev("long calls", longCalls)
}

// longCalls makes calls of the lengths from which on two ranks move parts of them for each other.
func longCalls(_ context.Context, w *mpi.Comm) error {
	for range 2 { // the board is made in the second call
		if err := mpi.Allreduce(w, make([]byte, 1024), make([]byte, 1024), mpi.Sum); err != nil {
			return err
		}
	}
	for n := 32 << 10; n <= 1<<20; n *= 2 {
		for root := range w.Size() {
			mine, sum := bytes.Repeat([]byte{byte(w.Rank() + 1)}, n), make([]byte, n)
			if err := mpi.Reduce(w, mine, sum, mpi.Sum, root); err != nil {
				return err
			}
			if w.Rank() != root {
				clear(sum)
			}
			if err := mpi.Bcast(w, sum, root); err != nil {
				return err
			}
			want := byte(w.Size() * (w.Size() + 1) / 2)
			if i := slices.IndexFunc(sum, func(b byte) bool { return b != want }); i >= 0 {
				return fmt.Errorf("%d bytes, root %d: %d at %d; want %d", n, root, sum[i], i, want)
			}
		}
	}
	fmt.Printf("rank %d is through\n", w.Rank())
	return nil
}

// Where process_vm_writev alone is forbidden, messages and collective calls of every length go as they do elsewhere.
func TestWritevForbidden(t *testing.T) {
	j := run(t, spec{n: 2, role: "exchange without writev"}, 0)
	if got := j.count(`^rank \d of 2 exchanged; gets \d+ streams \d+ failed 0`); got != 2 {
		t.Errorf("%d of 2 ranks have exchanged\n%s", got, j.out.String())
	}
	for _, n := range []int{2, 3} {
		j = run(t, spec{n: n, role: "long calls without writev"}, 0)
		if got := j.count(`^rank \d is through`); got != n {
			t.Errorf("%d of %d ranks are through\n%s", got, n, j.out.String())
		}
	}
}

func exchangeAndReport(_ context.Context, w *mpi.Comm) error {
	if err := exchange(w, heap, heap); err != nil {
		return err
	}
	s := w.Stats()
	fmt.Printf("rank %d of %d exchanged; gets %d streams %d failed %d\n", w.Rank(), w.Size(), s.Gets, s.Streams,
		s.GetsFailed)
	return nil
}

// Every size, with as many ranks as CPUs and with more.
func TestExchange(t *testing.T) {
	for _, n := range []int{2, 3} {
		j := run(t, spec{n: n, role: "exchange"}, 0)
		if got := j.count(`^rank \d of \d exchanged`); got != n {
			t.Errorf("%d of %d ranks report\n%s", got, n, j.out.String())
		}
		if j.err.String() != "" && n == 2 {
			t.Errorf("a job without a fault is not silent:\n%s", j.err.String())
		}
	}
}

// With GORUN_SHM_CMA=0 the results are the same, and no READ is tried.
func TestReadSwitchedOff(t *testing.T) {
	j := run(t, spec{n: 2, role: "exchange", env: []string{"GORUN_SHM_CMA=0", "GORUN_LOG=debug"}}, 0)
	if got := j.count(`^rank \d of 2 exchanged; gets 0 streams [1-9]\d* failed 0`); got != 2 {
		t.Errorf("%d of 2 ranks report streams and no gets\n%s", got, j.out.String())
	}
	const noRead = `peer connected:.*transport=shm .*rendezvous=stream .*process_vm_readv is switched off`
	if got := j.count(noRead); got != 2 {
		t.Errorf("%d ranks log why there is no READ; want 2:\n%s", got, j.err.String())
	}
}

// Where process_vm_readv is forbidden the results are the same, nothing is logged, and no READ is even tried.
func TestReadvForbidden(t *testing.T) {
	j := run(t, spec{n: 2, role: "exchange without readv"}, 0)
	if got := j.count(`^rank \d of 2 exchanged; gets 0 streams [1-9]\d* failed 0`); got != 2 {
		t.Errorf("%d of 2 ranks report streams and no gets\n%s", got, j.out.String())
	}
	if j.err.String() != "" {
		t.Errorf("the fallback is not silent:\n%s", j.err.String())
	}
	j = run(t, spec{n: 2, role: "exchange without readv", env: []string{"GORUN_LOG=debug"}}, 0)
	const noRead = `peer connected:.*rank=\d.* peer=\d transport=shm .*rendezvous=stream ` +
		`.*process_vm_readv.*operation not permitted.*seccomp`
	if got := j.count(noRead); got != 2 {
		t.Errorf("%d ranks log why there is no READ; want 2:\n%s", got, j.err.String())
	}
}

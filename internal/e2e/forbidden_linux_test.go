package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("exchange", exchangeAndReport)
	withoutReadv("exchange", exchangeAndReport)
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

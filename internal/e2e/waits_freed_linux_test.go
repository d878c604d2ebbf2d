package e2e

import (
	"context"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("waits freed", func(_ context.Context, w *mpi.Comm) error {
		b := []int64{1}
		c, err := w.Dup()
		if err == nil {
			err = mpi.Send(c, b, 1-w.Rank(), 0)
		}
		if err == nil {
			err = c.Free()
		}
		if err != nil {
			return err
		}
		return mpi.Ssend(w, b, 1-w.Rank(), 0)
	})
}

// Messages that no receive gets, since their communicator is freed, are not under way: a job that stands after them is
// found all the same.
func TestJobThatStandsAfterFree(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			j := run(t, spec{n: 2, role: "waits freed", flags: []string{"--stall", "1s", "--timeout", "8s"},
				env: []string{"GORUN_TRANSPORTS=" + transport}}, 124)
			j.says("no rank of the job can move")
		})
	}
}

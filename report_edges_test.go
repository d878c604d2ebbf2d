package mpi

import (
	"testing"
	"time"
)

// In collective calls on the communicators of a Split, a rank waits for ranks of its own communicator.
func TestReportOfSplit(t *testing.T) {
	dir := t.TempDir()
	overLoop(t)(4, func(w *Comm) {
		half := ok(w.Split(w.Rank()/2, 0))
		time.Sleep(time.Duration(w.Rank()) * 5 * time.Millisecond)
		must(Barrier(half))
	}, WithEnviron([]string{"GORUN_REPORT=" + dir}))
	r := readReport(t, dir)
	if len(r.Waits) == 0 {
		t.Error("no rank has waited")
	}
	for _, row := range r.Waits {
		if row.Rank/2 != row.For/2 {
			t.Errorf("rank %d has waited for rank %d in %s", row.Rank, row.For, r.Sites[row.Site].Op)
		}
	}
}

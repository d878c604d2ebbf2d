package mpi

import (
	"errors"
	"sync"
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

// A rank that cannot compare its clock with rank 0's, which has died, keeps no other rank of its host.
func TestReportWithoutRank0(t *testing.T) {
	var ending sync.WaitGroup
	ending.Add(3)
	hooks := Hooks{Before: func(k *Call) {
		if k.Op == "Finalize" { // after the report
			ending.Done()
		}
	}}
	defer watchdog(t)()
	err := RunLocal(4, func(w *Comm) error {
		if w.Rank() != 0 {
			return nil
		}
		w.group.Engine.Close(errors.New("the rank has died"))
		ended := make(chan bool)
		go func() {
			ending.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("the others wait for each other")
		}
		return errors.New("the rank has died") // ends the others
	}, loopBeneath, WithEnviron([]string{"GORUN_REPORT=" + t.TempDir()}), WithHooks(hooks),
		onHosts(func(rank int) int { return rank / 2 }))
	if err == nil {
		t.Error("rank 0 has not died")
	}
}

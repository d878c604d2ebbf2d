package mpi

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/report"
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

// A report has the calls of all goroutines of a rank, also where one is in a call while others make theirs.
func TestReportOfGoroutines(t *testing.T) {
	dir := t.TempDir()
	const goroutines, each = 3, 200
	overLoop(t)(2, func(w *Comm) {
		turn := func(tag int) {
			for i := range each {
				if buf := make([]byte, 1+i%7); w.Rank() == 0 {
					must(Send(w, buf, 1, tag))
				} else {
					ok(Recv(w, buf, 0, tag))
				}
			}
		}
		var all sync.WaitGroup
		for tag := range goroutines {
			all.Go(func() { turn(tag + 1) })
		}
		turn(0)
		if w.Rank() == 0 { // rank 1 is in Recv now
			all.Wait()
			must(Send(w, []byte{1}, 1, 0))
			return
		}
		ok(Recv(w, make([]byte, 1), 0, 0))
		all.Wait()
	}, WithEnviron([]string{"GORUN_REPORT=" + dir}))
	r := readReport(t, dir)
	const messages = (goroutines+1)*each + 1
	var bytes int64
	for i := range each {
		bytes += int64(1 + i%7)
	}
	bytes = bytes*(goroutines+1) + 1
	got := map[string][2]int64{}
	for _, s := range r.Sites {
		got[s.Op] = [2]int64{got[s.Op][0] + s.Calls, got[s.Op][1] + s.Bytes}
	}
	for _, op := range []string{"Send", "Recv"} {
		if got[op] != [2]int64{messages, bytes} {
			t.Errorf("%s: %d calls and bytes, want %d and %d", op, got[op], messages, bytes)
		}
	}
	cell := report.Cell{From: 0, To: 1, Messages: messages, Bytes: bytes}
	if len(r.Sites) != 4 || len(r.Matrix) != 1 || r.Matrix[0] != cell {
		t.Errorf("lines %+v, matrix %+v", r.Sites, r.Matrix)
	}
	if l := r.Timeline; l.Arrows != messages || l.Strange != 0 || l.Kept != 2*messages {
		t.Errorf("the timeline has %+v", l)
	}
	checkTrace(t, dir, messages)
}

// Finalize makes the report while a goroutine of each rank makes calls, until they fail. What is in it agrees with
// itself: each call is in the sums of its line and of its rank, and is on the timeline or counts as left out.
func TestReportWhileAGoroutineCalls(t *testing.T) {
	dir := t.TempDir()
	const least = 100
	var all sync.WaitGroup
	overLoop(t)(2, func(w *Comm) {
		going := make(chan bool)
		all.Go(func() {
			for n := 1; ; n++ {
				if _, _, err := Iprobe(w, AnySource, 1); err != nil {
					return
				}
				if n == least {
					close(going)
				}
				runtime.Gosched()
			}
		})
		<-going
		must(Barrier(w))
	}, WithEnviron([]string{"GORUN_REPORT=" + dir}))
	all.Wait()
	r := readReport(t, dir)
	var sum, ranks int64
	for _, s := range r.Sites {
		if sum += s.Calls; s.Op == "Iprobe" && s.Calls < 2*least || s.Op == "Barrier" && s.Calls != 2 {
			t.Errorf("%s has %d calls", s.Op, s.Calls)
		}
	}
	for _, row := range r.Ranks {
		ranks += row.Calls
	}
	if l := r.Timeline; len(r.Sites) != 2 || ranks != sum || l.Kept+l.Unkept != sum {
		t.Errorf("%d calls by line, %d by rank; lines %+v, timeline %+v", sum, ranks, r.Sites, l)
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	role("hosts pause", func(_ context.Context, w *mpi.Comm) error {
		if err := connectAll(w); err != nil {
			return err
		}
		for k := range drops {
			if err := errors.Join(pairs(w, k), idleOnce(w, k)); err != nil {
				return reportFailure(w, fmt.Errorf("after %d drops: %w", k, err))
			}
		}
		fmt.Printf("rank %d is content\n", w.Rank())
		return nil
	})
	role("hosts compute", compute)
}

const drops = 6

// idleOnce prints that nothing is under way, and keeps it so until the test signals: once with receives posted, once
// without.
func idleOnce(w *mpi.Comm, k int) error {
	var rs []*mpi.Request
	var others []int
	for rank := range w.Size() {
		if k%2 == 0 || rank == w.Rank() {
			continue
		}
		others = append(others, rank)
		r, err := mpi.Irecv(w, []byte{0}, rank, tagGo)
		if err != nil {
			return err
		}
		rs = append(rs, r)
	}
	fmt.Printf("idle %d\n", k)
	if k%2 == 1 && w.Rank() > 0 {
		<-rs[0].Done() // rank 0 sends when it is signalled
	} else {
		waitSignal(fmt.Sprint("go ", k))
	}
	for _, rank := range others {
		if err := mpi.Send(w, []byte{1}, rank, tagGo); err != nil {
			return err
		}
	}
	if err := mpi.WaitAll(rs...); err != nil {
		return err
	}
	return mpi.Barrier(w)
}

// quiet waits until nothing is under way between hosts: the ranks have printed so, the kernels have delivered all, and
// the ranks have read it.
func quiet(t *testing.T, h *netns.Hosts) {
	t.Helper()
	still := 0
	proc.Eventually(t, "the connections to be quiet", func() bool {
		still++
		for host := range h.Count() {
			for _, line := range between(t, h, host+1) {
				if f := strings.Fields(line); len(f) < 2 || f[0] != "0" || f[1] != "0" { // Recv-Q, Send-Q
					still = 0
				}
			}
		}
		return still >= 3 // what has been read may have to be answered
	})
}

// Connections that are dropped while nothing is under way are made again by the rank that needs them.
func TestHostsIdleDrops(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 3)
	j := runOn(t, h, spread{role: "hosts pause", timeout: 10 * time.Second, env: []string{"GORUN_LOG=warn"}})
	for k := range drops {
		for rank := range j.size {
			j.awaits(rank, fmt.Sprintf(`^idle %d$`, k))
		}
		quiet(t, h)
		must(t, h.KillConnections(1+k%3))
		if k%3 == 2 { // not noticed before it is needed, or noticed by both sides long before
			time.Sleep(300 * time.Millisecond)
		}
		j.signal(fmt.Sprint("go ", k))
	}
	j.finish(0)
	for rank := range j.size {
		j.says(rank, fmt.Sprintf(`^rank %d is content`, rank))
	}
	j.says(0, "connection lost while idle, dialling again")
}

// Connections that are dropped with something under way are an error, or the job goes on; nothing hangs and no byte is
// wrong.
func TestHostsBusyDrops(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 2)
	for _, how := range []string{"flow", "traffic"} {
		t.Run(how, func(t *testing.T) {
			var j *hostJob
			if how == "flow" {
				j = runBlocked(t, h, how, 10*time.Second)
			} else {
				j = runOn(t, h, spread{role: "hosts traffic", timeout: 10 * time.Second})
				j.progresses()
			}
			dropped := time.Now()
			for ended := false; !ended; {
				must(t, h.KillConnections(2))
				select {
				case <-j.Ended(0):
					ended = true
				case <-time.After(20 * time.Millisecond):
				}
				if time.Since(dropped) > patience {
					t.Fatalf("connections are dropped for %v and no rank fails:\n%s", patience, j.all())
				}
			}
			j.finish(-1)
			failed := 0
			for rank := range 2 {
				if strings.Contains(j.Output(rank), "peer failed true") {
					failed++
				}
			}
			if failed == 0 {
				t.Error("no rank has got ErrPeerFailed")
			}
		})
	}
}

// compute: rank 1 does not call the library for twice the peer timeout, while rank 0 floods it with small messages and
// has a large one under way.
func compute(_ context.Context, w *mpi.Comm) error {
	const count = 20000
	if err := connectAll(w); err != nil {
		return err
	}
	fmt.Println("ready")
	b := make([]byte, 4000)
	big := make([]byte, huge)
	if w.Rank() == 0 {
		pattern(big, 5)
		s, err := mpi.Isend(w, big, 1, tagGo)
		if err != nil {
			return reportFailure(w, err)
		}
		for i := range count {
			pattern(b, i)
			if err := mpi.Send(w, b, 1, tagData); err != nil {
				return reportFailure(w, err)
			}
		}
		if _, err := s.Wait(); err != nil {
			return reportFailure(w, err)
		}
	} else {
		for end := time.Now().Add(2 * soonDead); time.Now().Before(end); {
			pattern(b, 0)
		}
		if _, err := mpi.Recv(w, big, 0, tagGo); err != nil {
			return reportFailure(w, err)
		}
		if err := verify(big, 5); err != nil {
			return err
		}
		for i := range count {
			if _, err := mpi.Recv(w, b, 0, tagData); err != nil {
				return reportFailure(w, err)
			}
			if err := verify(b, i); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
	}
	fmt.Printf("rank %d is content\n", w.Rank())
	return nil
}

// A rank that computes for longer than the peer timeout, with its window closed, has not failed. Frozen it does not
// even read what comes.
func TestHostsComputing(t *testing.T) {
	t.Parallel()
	for _, freeze := range []bool{false, true} {
		t.Run(fmt.Sprintf("frozen=%v", freeze), func(t *testing.T) {
			t.Parallel()
			h := netns.Up(t, 2)
			j := runOn(t, h, spread{role: "hosts compute", timeout: soonDead, env: []string{"GORUN_UNEXPECTED_MAX=1MiB"}})
			if freeze {
				j.allReady()
				time.Sleep(100 * time.Millisecond)
				must(t, h.Freeze(2))
				time.Sleep(2 * soonDead)
				must(t, h.Thaw(2))
			}
			j.finish(0)
			for rank := range 2 {
				j.says(rank, fmt.Sprintf(`^rank %d is content`, rank))
			}
		})
	}
}

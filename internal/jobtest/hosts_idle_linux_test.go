package jobtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testenv/hosts"
)

func init() {
	role("hosts pause", func(_ context.Context, w *mpi.Comm) error {
		if err := acquaint(w); err != nil {
			return err
		}
		for k := range drops {
			if err := pairs(w, k); err != nil {
				return fate(w, fmt.Errorf("after %d drops: %w", k, err))
			}
			fmt.Printf("idle %d\n", k)
			// Once with receives waiting, once without.
			if k%2 == 0 || w.Rank() == 0 {
				untilTold(fmt.Sprint("go ", k))
			}
			if err := mpi.Barrier(w); err != nil {
				return fate(w, fmt.Errorf("after %d drops: %w", k, err))
			}
		}
		fmt.Printf("rank %d is content\n", w.Rank())
		return nil
	})
	role("hosts compute", compute)
}

const drops = 6

// Connections that are dropped while nothing is under way are made again by whoever needs them.
func TestHostsIdleDrops(t *testing.T) {
	t.Parallel()
	h := hosts.Up(t, 3)
	j := runOn(t, h, spread{role: "hosts pause", timeout: 10 * time.Second, env: []string{"GORUN_LOG=warn"}})
	for k := range drops {
		for rank := range j.size {
			j.awaits(rank, fmt.Sprintf(`^idle %d$`, k))
		}
		if k%2 == 1 {
			time.Sleep(200 * time.Millisecond) // until the others are in Barrier and what they have sent has come
		}
		must(t, h.KillConnections(1+k%3))
		if k%3 == 2 { // not noticed before it is needed, or noticed by both sides long before
			time.Sleep(300 * time.Millisecond)
		}
		j.tell(fmt.Sprint("go ", k))
	}
	j.finish(0)
	for rank := range j.size {
		j.says(rank, fmt.Sprintf(`^rank %d is content`, rank))
	}
	j.says(0, "connection lost while idle, dialling again")
}

// Dropped with something under way: an error that says so, or all is well, but no hang and nothing wrong.
func TestHostsBusyDrops(t *testing.T) {
	h := hosts.Up(t, 2)
	for _, how := range []string{"flow", "traffic"} {
		t.Run(how, func(t *testing.T) {
			s := spread{role: "hosts traffic", timeout: 10 * time.Second}
			if how == "flow" {
				s.role, s.args = "hosts block", []string{how}
			}
			j := runOn(t, h, s)
			j.allReady()
			if how == "flow" {
				j.awaits(1, `^flowing$`)
			} else {
				j.goesOn()
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
					t.Fatalf("connections are dropped for %v and nobody minds:\n%s", patience, j.all())
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
				t.Error("nobody has got ErrPeerFailed")
			}
		})
	}
}

// compute: rank 1 does not call the library for twice the peer timeout, while rank 0 floods it with small messages and
// has a large one under way.
func compute(_ context.Context, w *mpi.Comm) error {
	const count = 20000
	if err := acquaint(w); err != nil {
		return err
	}
	b := make([]byte, 4000)
	big := make([]byte, huge)
	if w.Rank() == 0 {
		pattern(big, 5)
		s, err := mpi.Isend(w, big, 1, tagGo)
		if err != nil {
			return fate(w, err)
		}
		for i := range count {
			pattern(b, i)
			if err := mpi.Send(w, b, 1, tagData); err != nil {
				return fate(w, err)
			}
		}
		if _, err := s.Wait(); err != nil {
			return fate(w, err)
		}
	} else {
		for end := time.Now().Add(2 * soonDead); time.Now().Before(end); {
			pattern(b, 0)
		}
		if _, err := mpi.Recv(w, big, 0, tagGo); err != nil {
			return fate(w, err)
		}
		if err := verify(big, 5); err != nil {
			return err
		}
		for i := range count {
			if _, err := mpi.Recv(w, b, 0, tagData); err != nil {
				return fate(w, err)
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
			h := hosts.Up(t, 2)
			j := runOn(t, h, spread{role: "hosts compute", timeout: soonDead, env: []string{"GORUN_UNEXPECTED_MAX=1MiB"}})
			if freeze {
				eventually(t, "a connection", func() bool { return connections(t, h, 2) > 0 })
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

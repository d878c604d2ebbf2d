package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/truth"
)

func init() {
	role("truth", func(_ context.Context, w *mpi.Comm) error {
		counts := truth.Counts
		if brief {
			counts = []int{0, 1, 7, 129}
		}
		if err := truth.Catalogue(w, counts, !brief); err != nil {
			return err
		}
		fmt.Printf("rank %d finds the truth over %s\n", w.Rank(), w.Transport())
		return nil
	})
	role("random programs", func(_ context.Context, w *mpi.Comm) error {
		seed, _ := strconv.ParseUint(os.Args[1], 10, 64)
		last, _ := time.ParseDuration(os.Args[2])
		if err := randomPrograms(w, seed, last, len(os.Args) > 3); err != nil {
			return err
		}
		fmt.Printf("rank %d is content over %s\n", w.Rank(), w.Transport())
		return nil
	})
}

// randomPrograms runs one after the other, until rank 0 finds that it was long enough.
func randomPrograms(w *mpi.Comm, seed uint64, last time.Duration, mistakes bool) error {
	for more, begun := []byte{1}, time.Now(); more[0] == 1; seed++ {
		program := &truth.Random{Seed: seed, Steps: 150, Threads: 1 + int(seed%3), Mistakes: mistakes}
		if err := program.Run(w); err != nil {
			return err
		}
		if w.Rank() == 0 && time.Since(begun) > last {
			more[0] = 0
			fmt.Printf("the last seed is %d\n", seed)
		}
		if err := mpi.Bcast(w, more, 0); err != nil {
			return err
		}
	}
	return nil
}

// Every call, by every algorithm, gives what plain loops give between processes that share memory.
func TestTruth(t *testing.T) {
	t.Parallel()
	for i, choice := range truth.Choices() {
		for _, n := range []int{4, 7, 9} {
			if testing.Short() && (i > 0 || n > 4) {
				continue
			}
			j := run(t, spec{n: n, role: "truth", env: []string{"GORUN_COLL=" + choice}}, 0)
			if got := j.count(`^rank \d finds the truth over shm`); got != n {
				t.Errorf("GORUN_COLL=%s: %d of %d ranks report\n%s", choice, got, n, j.out.String())
			}
		}
	}
}

// So it does between three hosts with unequal numbers of ranks, and of one rank each.
func TestHostsTruth(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 3)
	for i, choice := range truth.Choices() {
		for k, perHost := range [][]int{{3, 1, 2}, {1, 1, 1}, {1, 4, 2}} {
			if testing.Short() && (i > 0 || k > 0) {
				continue
			}
			// A rank that is alone on its host would spin, and has not this machine for itself.
			env := []string{"GORUN_COLL=" + choice, "GORUN_SPIN=0"}
			if testing.Short() || k > 0 {
				env = append(env, briefVar+"=1")
			}
			j := runOn(t, h, spread{perHost: perHost, role: "truth", env: env}).finish(0)
			for rank := range j.size {
				j.says(rank, fmt.Sprintf(`^rank %d finds the truth over \S*tcp`, rank))
			}
		}
	}
}

// seedOf is that of a test's random programs, and how long they run.
func seedOf(t *testing.T) []string {
	seed, last := fmt.Sprint(rand.Uint64()%1_000_000), 30*time.Second
	if testing.Short() {
		last = time.Second
	}
	if v := os.Getenv(seedVar); v != "" {
		seed, last = v, 0
	}
	t.Logf("to see it again: %s=%s", seedVar, seed)
	return []string{seed, last.String()}
}

// Random programs of collective calls, messages and splits between processes that share memory.
func TestRandomPrograms(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 5, role: "random programs", args: seedOf(t)}, 0).says(`^rank 4 is content over shm`)
}

// So with calls that one rank makes wrongly, also over TCP.
func TestRandomMistakes(t *testing.T) {
	t.Parallel()
	for _, transports := range []string{"shm", "tcp"} {
		args := []string{"1", "0s"}
		if !testing.Short() {
			args = seedOf(t)
		}
		j := run(t, spec{n: 5, role: "random programs", args: append(args, "mistakes"),
			env: []string{"GORUN_COLL_CHECK=1", "GORUN_TRANSPORTS=" + transports}}, 0)
		j.says(`^rank 4 is content over ` + transports)
	}
}

// So between hosts.
func TestHostsRandomPrograms(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 3)
	j := runOn(t, h, spread{perHost: []int{1, 3, 2}, role: "random programs", args: seedOf(t),
		env: []string{"GORUN_SPIN=0"}}).finish(0)
	j.says(5, `^rank 5 is content over \S*tcp`)
}

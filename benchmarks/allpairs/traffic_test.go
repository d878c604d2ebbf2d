package main

import (
	"fmt"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

func TestTargets(t *testing.T) {
	const ranks, draws = 5, 5000
	for rank := range ranks {
		x, again := seed(rank), seed(rank)
		var seen [ranks]int
		for range draws {
			to := x.target(rank, ranks)
			if to != again.target(rank, ranks) {
				t.Fatal("two generators of one rank differ")
			}
			seen[to]++
		}
		for to, n := range seen {
			if to == rank && n != 0 || to != rank && (n < draws/ranks/2 || n > draws/2) {
				t.Errorf("rank %d sends %d of %d messages to rank %d", rank, n, draws, to)
			}
		}
	}
	if x := seed(1); x.target(1, 2) != 0 {
		t.Error("of two ranks, one has another target than the other rank")
	}
}

// Windows so small and messages so large that every send waits for its receive.
func TestTrafficDoesNotStandStill(t *testing.T) {
	for _, c := range []struct{ ranks, window, size, messages int }{
		{2, 1, 8, 200}, {2, 1, 1 << 18, 20}, {5, 1, 1 << 17, 20}, {5, 2, 1 << 17, 30}, {8, 64, 8, 300}, {3, 4, 0, 50},
		{4, 3, 64, 0},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			o := harness.Options{MaxSize: int64(c.size), Window: c.window, Validate: true}
			err := mpi.RunLocal(c.ranks, func(world *mpi.Comm) error {
				tr, err := newTraffic(&bench.Job{World: world, Rank: world.Rank(), Ranks: c.ranks, Options: o})
				if err != nil {
					return err
				}
				_, err = tr.flow(c.size, c.messages)
				if err == nil && (tr.wrong != 0 || tr.sends.finished != c.messages) {
					err = fmt.Errorf("%d wrong, %d sent", tr.wrong, tr.sends.finished)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWrongMessageIsSeen(t *testing.T) {
	o := harness.Options{MaxSize: 64, Window: 2, Validate: true}
	err := mpi.RunLocal(2, func(world *mpi.Comm) error {
		tr, err := newTraffic(&bench.Job{World: world, Rank: world.Rank(), Ranks: 2, Options: o})
		if err != nil {
			return err
		}
		tr.resize(64)
		if tr.rank == 1 {
			tr.out[63] ^= 1
		}
		if err := tr.pass(10, 10); err != nil {
			return err
		}
		if want := int64(10 * (1 - tr.rank)); tr.wrong != want {
			return fmt.Errorf("rank %d saw %d wrong messages, want %d", tr.rank, tr.wrong, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

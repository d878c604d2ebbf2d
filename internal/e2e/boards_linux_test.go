package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("boards given back", boardsGivenBack)
}

// onBoards makes so many calls that go through the board of c.
func onBoards(c *mpi.Comm, times int) error {
	for i := range times {
		sum := make([]int, []int{1, 1000}[i%2])
		err := errors.Join(mpi.Allreduce(c, nil, sum, mpi.Sum), mpi.Bcast(c, sum, i%c.Size()), mpi.Barrier(c))
		if err != nil {
			return err
		}
	}
	return nil
}

// boards counts those that this process has mapped.
func boards() int {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	return strings.Count(string(maps), "memfd:gorun-board")
}

func boardsGivenBack(_ context.Context, w *mpi.Comm) error {
	for range 3 {
		half, err := w.Split(w.Rank()%2, 0)
		if err != nil {
			return err
		}
		dup, err := w.Dup()
		if err != nil {
			return err
		}
		if err := errors.Join(onBoards(half, 3), onBoards(dup, 3)); err != nil {
			return err
		}
		before := boards()
		if err := errors.Join(half.Free(), dup.Free()); err != nil {
			return err
		}
		if after := boards(); before != 2 || after != 0 {
			return fmt.Errorf("%d boards are mapped, and %d when their communicators are freed; want 2 and 0", before, after)
		}
	}
	fmt.Printf("rank %d done\n", w.Rank())
	return nil
}

func TestBoardsGivenBack(t *testing.T) {
	if j := run(t, spec{n: 6, role: "boards given back"}, 0); j.count(`^rank \d done`) != 6 {
		t.Errorf("not all ranks report\n%s", j.out.String())
	}
}

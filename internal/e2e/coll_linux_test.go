package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("collectives", collective)
}

// collective makes calls of many sizes, whose results follow from the ranks.
func collective(_ context.Context, w *mpi.Comm) error {
	me, size := w.Rank(), w.Size()
	for _, n := range []int{0, 1, 100, 5000, 300_000} {
		mine, sum, all := make([]int64, n), make([]int64, n), make([]int64, n*size)
		for i := range mine {
			mine[i] = int64(me*1000 + i)
		}
		if err := errors.Join(mpi.Barrier(w), mpi.Allreduce(w, mine, sum, mpi.Sum), mpi.Allgather(w, mine, all)); err != nil {
			return err
		}
		for i := range sum {
			if want := int64(1000*size*(size-1)/2 + size*i); sum[i] != want {
				return fmt.Errorf("Allreduce of %d: element %d is %d, want %d", n, i, sum[i], want)
			}
		}
		for i := range all {
			if want := int64(i/n*1000 + i%n); all[i] != want {
				return fmt.Errorf("Allgather of %d: element %d is %d, want %d", n, i, all[i], want)
			}
		}
		to := make([]int64, n*size)
		for i := range to {
			to[i] = int64(me*1000 + i/n)
		}
		if err := mpi.Alltoall(w, nil, to); err != nil {
			return err
		}
		for i := range to {
			if want := int64(i/n*1000 + me); to[i] != want {
				return fmt.Errorf("Alltoall of %d: element %d is %d, want %d", n, i, to[i], want)
			}
		}
		for root := range size {
			buf := make([]int64, n)
			if me == root {
				copy(buf, mine)
			}
			if err := errors.Join(mpi.Bcast(w, buf, root), mpi.Reduce(w, buf, sum, mpi.Max, root)); err != nil {
				return err
			}
			for i := range buf {
				if want := int64(root*1000 + i); buf[i] != want || me == root && sum[i] != want {
					return fmt.Errorf("Bcast and Reduce of %d, root %d: element %d is %d, want %d", n, root, i, buf[i], want)
				}
			}
		}
	}
	fmt.Printf("rank %d done over %s\n", me, w.Transport())
	return nil
}

// Collective calls between processes that share memory, on any number of ranks.
func TestCollectives(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		j := run(t, spec{n: n, role: "collectives"}, 0)
		if got := j.count(`^rank \d done over shm`); got != n {
			t.Errorf("%d of %d ranks report\n%s", got, n, j.out.String())
		}
	}
	run(t, spec{n: 4, role: "collectives", env: []string{"GORUN_COLL_CHECK=1"}}, 0)
}

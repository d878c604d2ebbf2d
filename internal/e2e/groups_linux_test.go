package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("collectives across groups", func(_ context.Context, w *mpi.Comm) error {
		if err := amongNeighbours(w); err != nil {
			return err
		}
		return acrossGroups(w, 3, 9000)
	})
}

// amongNeighbours sends along the edges of a ring, rank+1 elements to the next rank and none to the one before.
func amongNeighbours(w *mpi.Comm) error {
	me, size := w.Rank(), w.Size()
	next, before := (me+1)%size, (me+size-1)%size
	c, err := w.DistGraphAdjacent([]int{before, next}, []int{next, before})
	if err != nil {
		return err
	}
	send := [][]int32{make([]int32, me+1), nil}
	for i := range send[0] {
		send[0][i] = int32(me*100 + i)
	}
	recv := [][]int32{make([]int32, before+1), nil}
	if err := mpi.NeighborAlltoallv(c, send, recv); err != nil {
		return err
	}
	for i, got := range recv[0] {
		if want := int32(before*100 + i); got != want {
			return fmt.Errorf("NeighborAlltoallv: element %d is %d, want %d", i, got, want)
		}
	}
	return c.Free()
}

// acrossGroups makes calls between the even ranks and the odd ones, of these sizes. Rank 0 is the root.
func acrossGroups(w *mpi.Comm, sizes ...int) error {
	me, odd := w.Rank(), w.Rank()%2
	half, err := w.Split(odd, 0)
	if err != nil {
		return err
	}
	inter, err := half.Intercomm(0, w, 1-odd, 1)
	if err != nil {
		return err
	}
	root := 0
	if odd == 0 {
		if root = mpi.ProcNull; me == 0 {
			root = mpi.Root
		}
	}
	far := inter.RemoteSize()
	for _, n := range sizes {
		mine, all, sum := make([]int64, n), make([]int64, n*far), make([]int64, n)
		for i := range mine {
			mine[i] = int64(me*10_000 + i)
		}
		if err := errors.Join(mpi.Barrier(inter), mpi.Gather(inter, mine, all, root),
			mpi.Allreduce(inter, mine, sum, mpi.Sum)); err != nil {
			return err
		}
		others := 0 // the sum of the other group's ranks
		for r := range far {
			others += 2*r + 1 - odd
		}
		for i, got := range sum {
			if want := int64(others*10_000 + far*i); got != want {
				return fmt.Errorf("Allreduce of %d: element %d is %d, want %d", n, i, got, want)
			}
		}
		for i, got := range all {
			if want := int64((i/n*2+1)*10_000 + i%n); me == 0 && got != want {
				return fmt.Errorf("Gather of %d: element %d is %d, want %d", n, i, got, want)
			}
		}
		if err := broadcasts(inter, n, root); err != nil {
			return err
		}
	}
	fmt.Printf("rank %d done over %s\n", me, w.Transport())
	return inter.Free()
}

// broadcasts makes a Bcast in each way.
func broadcasts(inter *mpi.Comm, n, root int) error {
	word := make([]int64, n)
	starts := map[string]func() (*mpi.Request, error){
		"Bcast":     func() (*mpi.Request, error) { return nil, mpi.Bcast(inter, word, root) },
		"Ibcast":    func() (*mpi.Request, error) { return mpi.Ibcast(inter, word, root) },
		"BcastInit": func() (*mpi.Request, error) { return mpi.BcastInit(inter, word, root) },
	}
	for k, name := range []string{"Bcast", "Ibcast", "BcastInit"} {
		for i := range word {
			word[i] = 0
			if root == mpi.Root {
				word[i] = int64(k*10_000 + i)
			}
		}
		r, err := starts[name]()
		if err == nil && name == "BcastInit" {
			err = r.Start()
		}
		if err == nil && r != nil {
			_, err = r.Wait()
		}
		if err == nil && name == "BcastInit" {
			err = r.Free()
		}
		if err != nil {
			return err
		}
		for i, got := range word {
			if want := int64(k*10_000 + i); root != mpi.ProcNull && got != want {
				return fmt.Errorf("%s of %d: element %d is %d, want %d", name, n, i, got, want)
			}
		}
	}
	return nil
}

// Calls among neighbours and on intercommunicators between processes that share memory.
func TestCollectivesAcrossGroups(t *testing.T) {
	for _, check := range []string{"GORUN_COLL_CHECK=0", "GORUN_COLL_CHECK=1"} {
		const n = 5
		j := run(t, spec{n: n, role: "collectives across groups", env: []string{check}}, 0)
		if got := j.count(`^rank \d done over shm`); got != n {
			t.Errorf("%d of %d ranks report\n%s", got, n, j.out.String())
		}
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
)

func init() {
	role("collectives across groups", func(_ context.Context, w *mpi.Comm) error {
		for _, calls := range []func(*mpi.Comm) error{amongNeighbours, inAStar, inAGrid} {
			if err := calls(w); err != nil {
				return err
			}
		}
		five, err := w.Split(w.Rank()/5, 0) // so groups of unequal size
		if err != nil {
			return err
		}
		if five.Size() == 1 {
			fmt.Printf("rank %d done over %s\n", w.Rank(), w.Transport())
			return nil
		}
		return acrossGroups(five, 3, 9000)
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

// inAStar sends from rank 0 to all others, along edges that the last rank knows alone.
func inAStar(w *mpi.Comm) error {
	var edges []mpi.Edge
	for r := 1; r < w.Size() && w.Rank() == w.Size()-1; r++ {
		edges = append(edges, mpi.Edge{From: 0, To: r})
	}
	c, err := w.DistGraph(edges...)
	if err != nil {
		return err
	}
	got := make([]int32, min(w.Rank(), 1))
	if err := mpi.NeighborAllgather(c, []int32{int32(7 + w.Rank())}, got); err != nil {
		return err
	}
	if len(got) > 0 && got[0] != 7 {
		return fmt.Errorf("NeighborAllgather in a star: %d, want 7", got[0])
	}
	return c.Free()
}

// inAGrid makes persistent calls among neighbours, in a grid that is closed along its rows, and a sum along each row.
func inAGrid(w *mpi.Comm) error {
	dims := []int{0, 2}
	if err := mpi.Dims(w.Size(), dims); err != nil {
		return err
	}
	c, err := w.Cart(dims, []bool{false, true}, true)
	if err != nil {
		return err
	}
	at, err := c.Coords(c.Rank())
	if err != nil {
		return err
	}
	row, err := c.CartSub(false, true)
	if err != nil {
		return err
	}
	sum := []int64{0}
	if err := mpi.Allreduce(row, []int64{int64(c.Rank())}, sum, mpi.Sum); err != nil {
		return err
	}
	if want := int64(4*at[0] + 1); sum[0] != want || row.Rank() != at[1] {
		return fmt.Errorf("row %d: the sum is %d at %d, want %d at %d", at[0], sum[0], row.Rank(), want, at[1])
	}
	const n = 3000
	mine, got := make([]int32, n), make([]int32, 4*n)
	r, err := mpi.NeighborAllgatherInit(c, mine, got)
	if err != nil {
		return err
	}
	for turn := range 3 {
		for i := range mine {
			mine[i] = int32(c.Rank()*100 + turn)
		}
		for i := range got {
			got[i] = -1
		}
		if err := r.Start(); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
		other := c.Rank() ^ 1 // in the row, on both sides
		for i, from := range []int{c.Rank() - 2, c.Rank() + 2, other, other} {
			want := int32(from*100 + turn)
			if from < 0 || from >= c.Size() {
				want = -1
			}
			if got[i*n] != want || got[i*n+n-1] != want {
				return fmt.Errorf("neighbour %d: %d and %d, want %d", i, got[i*n], got[i*n+n-1], want)
			}
		}
	}
	return errors.Join(r.Free(), row.Free(), c.Free())
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

// Calls among neighbours and on intercommunicators between processes that share memory, or speak over TCP.
func TestCollectivesAcrossGroups(t *testing.T) {
	t.Parallel()
	for env, way := range map[string]string{"GORUN_COLL_CHECK=0": "shm", "GORUN_COLL_CHECK=1": "shm",
		"GORUN_TRANSPORTS=tcp": "tcp"} {
		const n = 6
		j := run(t, spec{n: n, role: "collectives across groups", env: []string{env}}, 0)
		if got := j.count(`^rank \d done over ` + way); got != n {
			t.Errorf("%s: %d of %d ranks report\n%s", env, got, n, j.out.String())
		}
	}
}

// So between hosts.
func TestHostsCollectivesAcrossGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("TestCollectivesAcrossGroups goes over TCP as well")
	}
	t.Parallel()
	j := runOn(t, netns.Up(t, 3), spread{perHost: []int{1, 3, 2}, role: "collectives across groups",
		env: []string{"GORUN_SPIN=0"}}).finish(0)
	for rank := range j.size {
		j.says(rank, fmt.Sprintf(`^rank %d done over \S*tcp`, rank))
	}
}

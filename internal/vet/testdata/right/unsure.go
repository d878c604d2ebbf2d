package right

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
)

// Started looks at its buffer if the operation has not been started, and waits in a function.
func Started(c *mpi.Comm, in []int) error {
	r, err := mpi.Irecv(c, in, 0, 0)
	if err != nil {
		fmt.Println("cannot receive into", in)
		return err
	}
	wait := func() error { _, err := r.Wait(); return err }
	if err := wait(); err != nil {
		return err
	}
	in[0]++
	var s mpi.Set
	all := func() error { return s.Wait() }
	s.Add(mpi.Irecv(c, in, 0, 0))
	if err := all(); err != nil {
		return err
	}
	in[0]++
	return nil
}

type transfer struct {
	in, half []int
	r        *mpi.Request
}

// Slices stores, cuts and compares the slice of a buffer, and uses no element of it.
func Slices(c *mpi.Comm, in, out []int, t *transfer) error {
	r, err := mpi.Irecv(c, in, 0, 0)
	if err != nil {
		return err
	}
	t.in, t.half = in, in[:1]
	both := append([][]int{}, in)
	for i := range in {
		fmt.Println(i, in == nil, len(both))
	}
	defer fmt.Println(in)
	t.r = r
	s, err := mpi.Isend(c, out, 0, 0)
	if err != nil {
		return err
	}
	for i := range 3 {
		out = make([]int, 3)
		out[i] = 1
	}
	_, err = s.Wait()
	return err
}

func worker(c *mpi.Comm) error { return mpi.Bcast(c, make([]int, 1), 0) }

func sum(c *mpi.Comm, v int) int {
	v, err := mpi.AllreduceValue(c, v, mpi.Sum)
	if err != nil {
		panic(err)
	}
	return v
}

// Elsewhere makes the calls of the other ranks in a function, under the opposite condition, or behind a condition.
func Elsewhere(c *mpi.Comm, x []int, verbose bool) error {
	me := c.Rank()
	if me == 0 {
		if err := mpi.Bcast(c, x, 0); err != nil {
			return err
		}
	} else if err := worker(c); err != nil {
		return err
	}
	var err error
	if me == 0 {
		err = mpi.Reduce(c, x, nil, mpi.Sum, 1)
	}
	if me != 0 {
		err = mpi.Reduce(c, x, x, mpi.Sum, 1)
	}
	if err != nil {
		return err
	}
	if verbose {
		if me == 0 {
			return mpi.Bcast(c, x, 0)
		}
	}
	return mpi.Bcast(c, x, 0)
}

// Same has conditions that are the same at all ranks, though a rank is in them.
func Same(c *mpi.Comm, m map[string]int) error {
	lowest := c.Rank()
	lowest, err := mpi.AllreduceValue(c, lowest, mpi.Min)
	if err != nil {
		return err
	}
	if lowest == 0 {
		if err := mpi.Barrier(c); err != nil {
			return err
		}
	}
	if sum(c, c.Rank()) > 3 {
		if _, err := mpi.AllgatherValues(c, 0); err != nil {
			return err
		}
	}
	for k := range m {
		if k == "x" {
			return mpi.Barrier(c)
		}
	}
	return nil
}

// Part makes a communicator of some ranks in the variable of the old one.
func Part(c *mpi.Comm) error {
	me := c.Rank()
	c, err := c.Split(me%2, 0)
	if err != nil {
		return err
	}
	if me%2 == 0 {
		return mpi.Barrier(c)
	}
	return nil
}

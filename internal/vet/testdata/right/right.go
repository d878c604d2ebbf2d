// Package right is right, though it looks like what the checks report.
package right

import (
	"slices"

	"github.com/gorun-mpi/mpi"
)

// Roots have the calls of one operation in both branches, and in other forms.
func Roots(c *mpi.Comm, buf []float64, names map[string]int) error {
	rank, size := c.Rank(), c.Size()
	if rank == 0 {
		if err := mpi.Bcast(c, buf, 0); err != nil {
			return err
		}
	} else if err := mpi.Bcast(c, make([]float64, len(buf)), 0); err != nil {
		return err
	}
	if c.Rank() != 0 {
		_, err := mpi.BcastValue(c, 0, 0)
		return err
	}
	if _, err := mpi.BcastValue(c, size, 0); err != nil {
		return err
	}
	if rank == 0 && size > 1 {
		return mpi.Send(c, buf, 1, 0)
	}
	for _, name := range slices.Sorted(slices.Values([]string{"a", "b"})) {
		if err := mpi.Allreduce(c, nil, buf[:names[name]], mpi.Sum); err != nil {
			return err
		}
	}
	for range names {
		if err := mpi.Barrier(c); err != nil {
			return err
		}
	}
	return nil
}

// Leaders is a collective call of a communicator that has some of the ranks only.
func Leaders(c, leaders *mpi.Comm, buf []int) error {
	if c.Rank()%2 == 0 {
		if err := mpi.Barrier(leaders); err != nil {
			return err
		}
	}
	return mpi.Barrier(c)
}

// Waits uses its buffers after Wait, or only reads what is sent, or asks for a length, or has another buffer by then.
func Waits(c *mpi.Comm, in, out []int) (int, error) {
	r, err := mpi.Irecv(c, in, 0, 0)
	if err != nil {
		return 0, err
	}
	n := len(in) + cap(in)
	s, err := mpi.Isend(c, out, 0, 0)
	if err != nil {
		return 0, err
	}
	n += out[0]
	defer func() { in[0] = 0 }()
	if err := mpi.WaitAll(r, s); err != nil {
		return 0, err
	}
	out[0] = in[0]
	var set mpi.Set
	set.Add(mpi.Irecv(c, in, 0, 0))
	set.Add(mpi.Isend(c, out, 0, 0))
	out = make([]int, 1)
	out[0] = 1
	if err := set.Wait(); err != nil {
		return 0, err
	}
	defer c.Free()
	return n + in[0], nil
}

// Package right is right, though it looks like what the checks report.
package right

import (
	"context"
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

// Timed makes one call of both sides, where one of them has another context.
func Timed(ctx context.Context, w *mpi.Comm, buf []float64) error {
	t := w.WithContext(ctx)
	if w.Rank() == 0 {
		return mpi.Allreduce(w.WithContext(ctx), nil, buf, mpi.Sum)
	}
	if w.Rank() == 1 {
		return mpi.Allreduce(t, nil, buf, mpi.Sum)
	}
	return mpi.Allreduce(w, nil, buf, mpi.Sum)
}

type part struct{ comm *mpi.Comm }

// Held makes the call of the other side on a communicator that may be the same.
func Held(p part, c *mpi.Comm) error {
	if c.Rank() == 0 {
		return mpi.Barrier(c)
	}
	return mpi.Barrier(p.comm)
}

// Cases has the call in every case, or cases for all ranks that there are, or makes it after the switch.
func Cases(c *mpi.Comm, buf []float64) error {
	var me = c.Rank()
	switch me {
	case 0:
		buf[0] = 1
		if err := mpi.Bcast(c, buf, 0); err != nil {
			return err
		}
	default:
		if err := mpi.Bcast(c, buf, 0); err != nil {
			return err
		}
	}
	switch me {
	case 0:
		return mpi.Barrier(c)
	case 1:
		return mpi.Barrier(c)
	}
	switch {
	case me == 2:
		return mpi.Reduce(c, buf, nil, mpi.Sum, 0)
	case buf[0] > 1:
		return mpi.Reduce(c, nil, buf, mpi.Sum, 0)
	}
	return mpi.Reduce(c, buf, buf, mpi.Sum, 0)
}

// Parts uses other parts of a slice than the operations have, or parts of which it is not sure.
func Parts(c *mpi.Comm, grid []float64, n, m int) (float64, error) {
	var s mpi.Set
	s.Add(mpi.Irecv(c, grid[:4], 0, 0))
	s.Add(mpi.Irecv(c, grid[4:8], 0, 1))
	s.Add(mpi.Isend(c, grid[8:12], 0, 0))
	grid[12] = grid[8] + inner(grid)
	if err := s.Wait(); err != nil {
		return 0, err
	}
	s.Add(mpi.Irecv(c, grid[:n], 0, 0))
	grid[n] = grid[m]
	for i := range m {
		s.Add(mpi.Irecv(c, grid[i:i+1], 0, 0))
		m += int(grid[n])
	}
	return grid[n+1], s.Wait()
}

func inner(grid []float64) float64 { return grid[13] }

// Rows receives into elements, into parts that a loop's slices share with them, and into a copy that is used.
func Rows(c *mpi.Comm, arrays [][4]float64, slices [][]float64) (sum float64, err error) {
	var s mpi.Set
	for i, slice := range slices {
		s.Add(mpi.Irecv(c, slice[:1], 0, i))
		s.Add(mpi.Irecv(c, arrays[i][:], 0, i))
	}
	for i, row := range arrays {
		if _, err := mpi.Recv(c, row[:], 0, i); err != nil {
			return 0, err
		}
		sum += row[0]
		s.Add(mpi.Isend(c, row[:], 1, i))
	}
	return sum, s.Wait()
}

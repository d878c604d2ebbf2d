// Package wrong has the mistakes that the checks report, each with the text behind "want".
package wrong

import (
	"context"

	"github.com/gorun-mpi/mpi"
)

func dropped(c *mpi.Comm, buf []int) error {
	mpi.Isend(c, buf, 1, 0)           // want "the request of mpi.Isend is dropped"
	_, err := mpi.Irecv(c, buf, 1, 0) // want "the request of mpi.Irecv is dropped"
	mpi.Send(c, buf, 1, 0)            // want "the error of mpi.Send is dropped"
	mpi.Recv(c, buf, 1, 0)            // want "the error of mpi.Recv is dropped"
	return err
}

func early(c *mpi.Comm, in, out []int) error {
	r, err := mpi.Irecv(c, in, 0, 0)
	if err != nil {
		return err
	}
	first := in[0] // want "in is used while mpi.Irecv has it"
	s, err := mpi.Isend(c, out[:], 0, first)
	if err != nil {
		return err
	}
	if first > 0 {
		out[first] = 1 // want "out is written while mpi.Isend has it"
	}
	if err := mpi.WaitAll(r, s); err != nil {
		return err
	}
	b, err := mpi.Ibcast(c, in, 0)
	if err != nil {
		return err
	}
	clear(in) // want "in is used while mpi.Ibcast has it"
	if _, err := b.Wait(); err != nil {
		return err
	}
	var set mpi.Set
	set.Add(mpi.Isend(c, out, 0, 0))
	set.Add(mpi.Irecv(c, in, 0, 0))
	copy(out, in) // want "out is written while mpi.Isend has it" "in is used while mpi.Irecv has it"
	return set.Wait()
}

func forgotten(c *mpi.Comm, in []int) int {
	var s mpi.Set
	s.Add(mpi.Irecv(c, in, 0, 0)) // want "nothing waits for the requests of s"
	s.Add(mpi.Irecv(c, in, 0, 1)) // want "in is used while mpi.Irecv has it"
	return s.Len()
}

func apart(c *mpi.Comm, buf []float64, parts map[string]int) error {
	rank := c.Rank()
	if rank == 0 {
		if err := mpi.Bcast(c, buf, 0); err != nil { // want "mpi.Bcast depends on the rank in c: the other ranks make no Bcast here"
			return err
		}
	}
	if c.Rank() > 0 {
		return mpi.Barrier(c) // want "mpi.Barrier depends on the rank in c"
	}
	if rank == 0 {
		if _, err := mpi.GatherValues(c, rank, 0); err != nil { // want "mpi.GatherValues depends on the rank in c: the other ranks make no Gather here"
			return err
		}
	} else {
		if _, err := c.Dup(); err != nil { // want "Comm.Dup depends on the rank in c"
			return err
		}
	}
	if rank == 0 {
		if _, err := mpi.Spawn(c, 1, "", nil); err != nil { // want "mpi.Spawn depends on the rank in c"
			return err
		}
		if _, err := mpi.WinAlloc[int](c, 1); err != nil { // want "mpi.WinAlloc depends on the rank in c"
			return err
		}
	}
	for _, n := range parts {
		if err := mpi.Allreduce(c, nil, buf[:n], mpi.Sum); err != nil { // want "mpi.Allreduce in a loop over a map"
			return err
		}
	}
	return nil
}

func cases(ctx context.Context, c *mpi.Comm, buf []float64) error {
	var me = c.Rank()
	switch me {
	case 0:
		if err := mpi.Barrier(c); err != nil { // want "mpi.Barrier depends on the rank in c: ranks of another case make no Barrier here"
			return err
		}
	default:
		buf[0] = 1
	}
	switch {
	case c.Rank() == 0:
		return mpi.Bcast(c, buf, 0) // want "mpi.Bcast depends on the rank in c"
	case c.Rank() == 1:
		return mpi.Bcast(c, buf, 0) // want "mpi.Bcast depends on the rank in c"
	default:
		return mpi.Reduce(c, buf, buf, mpi.Sum, 0) // want "mpi.Reduce depends on the rank in c"
	}
}

func first(c *mpi.Comm) error {
	switch c.Rank() {
	case 0:
		return mpi.Barrier(c) // want "mpi.Barrier depends on the rank in c"
	}
	return nil
}

func timed(ctx context.Context, c *mpi.Comm) error {
	var me = c.Rank()
	t := c.WithContext(ctx)
	if me == 0 {
		return mpi.Barrier(t) // want "mpi.Barrier depends on the rank in c"
	}
	return nil
}

func parts(c *mpi.Comm, buf []int, n int) error {
	var s mpi.Set
	sum := 0
	s.Add(mpi.Irecv(c, buf[:4], 0, 0))
	buf[3] = 1 // want "buf is used while mpi.Irecv has it"
	if err := s.Wait(); err != nil {
		return err
	}
	s.Add(mpi.Irecv(c, buf[:4], 0, 0))  // and a part of it once more
	s.Add(mpi.Irecv(c, buf[2:6], 0, 0)) // want "buf is used while mpi.Irecv has it"
	if err := s.Wait(); err != nil {
		return err
	}
	s.Add(mpi.Irecv(c, buf[n:2*n], 0, 0))
	clear(buf[n : 2*n]) // want "buf is used while mpi.Irecv has it"
	if err := s.Wait(); err != nil {
		return err
	}
	s.Add(mpi.Isend(c, buf[n:], 0, 0))
	buf[n]++ // want "buf is written while mpi.Isend has it"
	if err := s.Wait(); err != nil {
		return err
	}
	s.Add(mpi.Irecv(c, buf[:n], 0, 0))
	for _, x := range buf { // want "buf is used while mpi.Irecv has it"
		sum += x
	}
	return s.Wait()
}

// Copies receives into the copies that loops make of arrays.
func Copies(c *mpi.Comm, rows [][4]float64) error {
	for i, row := range rows {
		if _, err := mpi.Recv(c, row[:], 0, i); err != nil { // want "mpi.Recv receives into row, a copy of the element"
			return err
		}
	}
	var s mpi.Set
	for i, row := range rows {
		s.Add(mpi.Irecv(c, row[1:3], 0, i)) // want "mpi.Irecv receives into row, a copy of the element"
	}
	return s.Wait()
}

package mpi_test

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi"
)

// Rank 1 attaches memory when it knows how much it needs, and sends its number to rank 0, which reads a part of it.
func ExampleWinDynamic() {
	run(2, func(world *mpi.Comm) error {
		w, err := mpi.WinDynamic[float64](world)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			at, err := w.Attach([]float64{1, 2.5, 4})
			if err != nil {
				return err
			}
			return errors.Join(mpi.SendValue(world, at, 0, 0), w.Free())
		}
		at, _, err := mpi.RecvValue[int64](world, 1, 0)
		if err != nil {
			return err
		}
		got := make([]float64, 2)
		err = errors.Join(w.Lock(1, mpi.Shared), w.Get(got, 1, at+1), w.Unlock(1))
		fmt.Println(got)
		return errors.Join(err, w.Free())
	})
	// Output: [2.5 4]
}

// Rank 0 writes the last column of rank 1's matrix, 3 × 4 in rows.
func ExampleWin_PutLayout() {
	run(2, func(world *mpi.Comm) error {
		w, err := mpi.WinAlloc[int](world, 3*4)
		if err != nil {
			return err
		}
		err = w.Fence()
		if world.Rank() == 0 {
			one := mpi.Of[int]()
			err = errors.Join(err, w.PutLayout([]int{7, 8, 9}, mpi.Contiguous(3, one), 1, 3, mpi.Vector(3, 1, 4, one)))
		}
		if err = errors.Join(err, w.Fence()); world.Rank() == 1 {
			fmt.Println(w.Local())
		}
		return errors.Join(err, w.Free())
	})
	// Output: [0 0 0 7 0 0 0 8 0 0 0 9]
}

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

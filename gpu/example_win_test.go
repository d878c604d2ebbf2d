package gpu_test

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/gpu"
)

// Each rank writes its number into the memory of the next one.
func ExampleWinCreate() {
	err := mpi.RunLocal(3, func(world *mpi.Comm) error {
		x, err := gpu.Alloc[int64](0, 1)
		if err != nil {
			return err
		}
		w, err := gpu.WinCreate(world, x)
		if err != nil {
			return err
		}
		if err := w.Fence(); err != nil {
			return err
		}
		if err := gpu.Put(w, []int64{int64(world.Rank())}, (world.Rank()+1)%world.Size(), 0); err != nil {
			return err
		}
		if err := w.Fence(); err != nil {
			return err
		}
		got := make([]int64, 1)
		if err := x.CopyTo(got); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println("rank 2 has written", got[0])
		}
		if err := w.Free(); err != nil {
			return err
		}
		return x.Free()
	})
	fmt.Println(err)
	// Output:
	// rank 2 has written 2
	// <nil>
}

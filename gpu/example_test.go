package gpu_test

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/gpu"
)

// Two ranks add vectors on their devices, and one sends a part of the result to the other one.
func Example() {
	err := mpi.RunLocal(2, func(world *mpi.Comm) error {
		device, err := gpu.Local(world)
		if err != nil {
			return err
		}
		x, err := gpu.Alloc[float64](device, 4)
		if err != nil {
			return err
		}
		defer x.Free()
		r := float64(world.Rank())
		if err := x.CopyFrom([]float64{1, 2 + r, 3, 4 * r}); err != nil {
			return err
		}
		if err := gpu.Allreduce(world, gpu.InPlace[float64](), x, mpi.Sum); err != nil {
			return err
		}
		if world.Rank() == 0 {
			return gpu.Send(world, x.Slice(1, 4), 1, 0)
		}
		st, err := gpu.Recv(world, x, 0, 0)
		if err != nil {
			return err
		}
		host := make([]float64, mpi.Count[float64](st))
		if err := x.Slice(0, len(host)).CopyTo(host); err != nil {
			return err
		}
		fmt.Println(host)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [5 6 4]
}

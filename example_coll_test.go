package mpi_test

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
)

func ExampleBcast() {
	run(3, func(world *mpi.Comm) error {
		parameters := make([]float64, 2)
		if world.Rank() == 0 {
			parameters = []float64{0.5, 100}
		}
		if err := mpi.Bcast(world, parameters, 0); err != nil {
			return err
		}
		if world.Rank() == 2 {
			fmt.Println(parameters)
		}
		return nil
	})
	// Output: [0.5 100]
}

func ExampleReduce() {
	run(4, func(world *mpi.Comm) error {
		most := make([]int, 1)
		err := mpi.Reduce(world, []int{10 * world.Rank()}, most, mpi.Max, 0)
		if world.Rank() == 0 {
			fmt.Println(most)
		}
		return err
	})
	// Output: [30]
}

func ExampleAllreduce() {
	run(4, func(world *mpi.Comm) error {
		sum := []float64{float64(world.Rank()), 1}
		err := mpi.Allreduce(world, nil, sum, mpi.Sum) // nil: what this rank has is in sum
		if world.Rank() == 3 {
			fmt.Println(sum)
		}
		return err
	})
	// Output: [6 4]
}

// An operator that does not commute: the product of 2×2 matrices, in the order of ranks.
func ExampleAllreduce_ordered() {
	type matrix [2][2]int
	multiply := func(inout, in []matrix) {
		for k, a := range in {
			b := inout[k]
			for i := range 2 {
				for j := range 2 {
					inout[k][i][j] = a[i][0]*b[0][j] + a[i][1]*b[1][j]
				}
			}
		}
	}
	run(3, func(world *mpi.Comm) error {
		mine := []matrix{{{1, world.Rank()}, {0, 2}}}
		product := make([]matrix, 1)
		err := mpi.Allreduce(world, mine, product, multiply, mpi.Ordered)
		if world.Rank() == 0 {
			fmt.Println(product[0])
		}
		return err
	})
	// Output: [[1 4] [0 8]]
}

func ExampleGather() {
	run(3, func(world *mpi.Comm) error {
		var all []int
		if world.Rank() == 0 {
			all = make([]int, 2*world.Size())
		}
		err := mpi.Gather(world, []int{world.Rank(), 10 * world.Rank()}, all, 0)
		if world.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [0 0 1 10 2 20]
}

func ExampleGatherv() {
	run(3, func(world *mpi.Comm) error {
		mine := make([]int, world.Rank()) // rank 0 has none, rank 2 has two
		for i := range mine {
			mine[i] = world.Rank()
		}
		var all [][]int
		if world.Rank() == 0 {
			all = [][]int{nil, make([]int, 1), make([]int, 2)}
			mine = []int{}
		}
		err := mpi.Gatherv(world, mine, all, 0)
		if world.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [[] [1] [2 2]]
}

func ExampleScatter() {
	run(3, func(world *mpi.Comm) error {
		var all []int
		if world.Rank() == 0 {
			all = []int{0, 1, 10, 11, 20, 21}
		}
		mine := make([]int, 2)
		err := mpi.Scatter(world, all, mine, 0)
		if world.Rank() == 1 {
			fmt.Println(mine)
		}
		return err
	})
	// Output: [10 11]
}

func ExampleScatterv() {
	run(2, func(world *mpi.Comm) error {
		var all [][]int
		if world.Rank() == 0 {
			all = [][]int{{1}, {2, 3, 4}}
		}
		mine := make([]int, 1+2*world.Rank())
		err := mpi.Scatterv(world, all, mine, 0)
		if world.Rank() == 1 {
			fmt.Println(mine)
		}
		return err
	})
	// Output: [2 3 4]
}

func ExampleAllgather() {
	run(3, func(world *mpi.Comm) error {
		all := make([]int, world.Size())
		err := mpi.Allgather(world, []int{world.Rank() * world.Rank()}, all)
		if world.Rank() == 1 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [0 1 4]
}

func ExampleAllgatherv() {
	run(2, func(world *mpi.Comm) error {
		mine := [][]int{{1}, {2, 3}}[world.Rank()]
		all := [][]int{make([]int, 1), make([]int, 2)}
		err := mpi.Allgatherv(world, mine, all)
		if world.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [[1] [2 3]]
}

// Each rank has a number for each other one.
func ExampleAlltoall() {
	run(3, func(world *mpi.Comm) error {
		r := 10 * world.Rank()
		from := make([]int, 3)
		err := mpi.Alltoall(world, []int{r, r + 1, r + 2}, from)
		if world.Rank() == 1 {
			fmt.Println(from)
		}
		return err
	})
	// Output: [1 11 21]
}

func ExampleAlltoallv() {
	run(2, func(world *mpi.Comm) error {
		to := [][][]int{{{1}, {2, 3}}, {{4}, {}}}[world.Rank()]
		from := [][][]int{{make([]int, 1), make([]int, 1)}, {make([]int, 2), {}}}[world.Rank()]
		err := mpi.Alltoallv(world, to, from)
		if world.Rank() == 0 {
			fmt.Println(from)
		}
		return err
	})
	// Output: [[1] [4]]
}

func ExampleReduceScatter() {
	run(2, func(world *mpi.Comm) error {
		mine := make([]int, 1+world.Rank())
		err := mpi.ReduceScatter(world, []int{1, 2, 3}, mine, []int{1, 2}, mpi.Sum)
		if world.Rank() == 1 {
			fmt.Println(mine)
		}
		return err
	})
	// Output: [4 6]
}

func ExampleReduceScatterBlock() {
	run(2, func(world *mpi.Comm) error {
		mine := make([]int, 1)
		err := mpi.ReduceScatterBlock(world, []int{1, 2}, mine, mpi.Sum)
		if world.Rank() == 1 {
			fmt.Println(mine)
		}
		return err
	})
	// Output: [4]
}

func ExampleScan() {
	run(4, func(world *mpi.Comm) error {
		sum := make([]int, 1)
		err := mpi.Scan(world, []int{world.Rank()}, sum, mpi.Sum)
		if world.Rank() == 3 {
			fmt.Println(sum)
		}
		return err
	})
	// Output: [6]
}

// Where the part of each rank begins, when each has another number of elements.
func ExampleExscan() {
	run(4, func(world *mpi.Comm) error {
		begin := make([]int, 1) // rank 0's is left as it is
		err := mpi.Exscan(world, []int{10 + world.Rank()}, begin, mpi.Sum)
		if world.Rank() == 2 {
			fmt.Println(begin)
		}
		return err
	})
	// Output: [21]
}

// A sum that is made while its rank computes.
func ExampleIallreduce() {
	run(4, func(world *mpi.Comm) error {
		sum := make([]float64, 1)
		request, err := mpi.Iallreduce(world, []float64{1.5}, sum, mpi.Sum)
		if err != nil {
			return err
		}
		// … computes …
		_, err = request.Wait()
		if world.Rank() == 0 {
			fmt.Println(sum)
		}
		return err
	})
	// Output: [6]
}

// The same call in each step of a computation.
func ExampleAllreduceInit() {
	run(2, func(world *mpi.Comm) error {
		value, most := make([]int, 1), make([]int, 1)
		request, err := mpi.AllreduceInit(world, value, most, mpi.Max)
		if err != nil {
			return err
		}
		defer request.Free()
		for step := range 3 {
			value[0] = step * (1 + world.Rank())
			if err := request.Start(); err != nil {
				return err
			}
			if _, err := request.Wait(); err != nil {
				return err
			}
			if world.Rank() == 0 {
				fmt.Print(most[0], " ")
			}
		}
		return nil
	})
	// Output: 0 2 4
}

// A barrier while messages come: each rank serves the others until all are done.
func ExampleIbarrier() {
	run(3, func(world *mpi.Comm) error {
		if world.Rank() > 0 {
			if err := mpi.Send(world, []int{world.Rank()}, 0, 1); err != nil {
				return err
			}
		}
		over, err := mpi.Ibarrier(world)
		if err != nil {
			return err
		}
		sum, got := 0, make([]int, 1)
		for world.Rank() == 0 && sum < 3 {
			message, err := mpi.Irecv(world, got, mpi.AnySource, 1)
			if err != nil {
				return err
			}
			if _, err := message.Wait(); err != nil {
				return err
			}
			sum += got[0]
		}
		if _, err := over.Wait(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(sum)
		}
		return nil
	})
	// Output: 3
}

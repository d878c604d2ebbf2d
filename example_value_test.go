package mpi_test

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
)

func ExampleBcastValue() {
	run(3, func(world *mpi.Comm) error {
		steps := 0
		if world.Rank() == 0 {
			steps = 100
		}
		steps, err := mpi.BcastValue(world, steps, 0)
		if world.Rank() == 2 {
			fmt.Println(steps)
		}
		return err
	})
	// Output: 100
}

func ExampleAllreduceValue() {
	run(4, func(world *mpi.Comm) error {
		most, err := mpi.AllreduceValue(world, 10*world.Rank(), mpi.Max)
		if world.Rank() == 1 {
			fmt.Println(most)
		}
		return err
	})
	// Output: 30
}

// A configuration that rank 0 has read reaches every rank in one line.
func ExampleBcastObject() {
	type config struct {
		Name  string
		Sizes []int
		Limit map[string]float64
	}
	run(3, func(world *mpi.Comm) error {
		var c config
		if world.Rank() == 0 {
			c = config{Name: "heat", Sizes: []int{64, 64}, Limit: map[string]float64{"residual": 1e-6}}
		}
		c, err := mpi.BcastObject(world, c, 0)
		if world.Rank() == 2 {
			fmt.Println(c)
		}
		return err
	})
	// Output: {heat [64 64] map[residual:1e-06]}
}

func ExampleGatherObjects() {
	run(3, func(world *mpi.Comm) error {
		names, err := mpi.GatherObjects(world, fmt.Sprintf("I am %v", world), 0)
		if world.Rank() == 0 {
			fmt.Printf("%q\n", names)
		}
		return err
	})
	// Output: ["I am world (rank 0 of 3)" "I am world (rank 1 of 3)" "I am world (rank 2 of 3)"]
}

func ExampleAllgatherAlloc() {
	run(3, func(world *mpi.Comm) error {
		mine := make([]int, world.Rank()) // rank 0 has none, rank 2 has two
		for i := range mine {
			mine[i] = world.Rank()
		}
		all, err := mpi.AllgatherAlloc(world, mine)
		if world.Rank() == 1 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [[] [1] [2 2]]
}

func ExampleSet() {
	run(3, func(world *mpi.Comm) error {
		left, right := (world.Rank()+2)%3, (world.Rank()+1)%3
		in := make([]int, 1)
		var s mpi.Set
		s.Add(mpi.Irecv(world, in, left, 0))
		s.Add(mpi.Isend(world, []int{world.Rank()}, right, 0))
		err := s.Wait()
		if world.Rank() == 0 {
			fmt.Println(in)
		}
		return err
	})
	// Output: [2]
}

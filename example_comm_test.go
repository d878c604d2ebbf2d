package mpi_test

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
)

// Rows of a 2×3 grid of ranks.
func ExampleComm_Split() {
	run(6, func(world *mpi.Comm) error {
		row, err := world.Split(world.Rank()/3, world.Rank())
		if err != nil {
			return err
		}
		sum := []int{world.Rank()}
		if err := mpi.Allreduce(row, nil, sum, mpi.Sum); err != nil {
			return err
		}
		if world.Rank() == 5 {
			fmt.Println("rank", row.Rank(), "of", row.Size(), "sum", sum)
		}
		return row.Free()
	})
	// Output: rank 2 of 3 sum [12]
}

// The ranks with even numbers, by sets of ranks instead of colors.
func ExampleComm_Create() {
	run(5, func(world *mpi.Comm) error {
		even, err := world.Group().RangeIncl(mpi.Range{First: 0, Last: 4, Stride: 2})
		if err != nil {
			return err
		}
		c, err := world.Create(even)
		if err != nil || c == nil { // nil: this rank is not in the group
			return err
		}
		if world.Rank() == 4 {
			fmt.Println("rank", c.Rank(), "of", c.Size(), even)
		}
		return c.Free()
	})
	// Output: rank 2 of 3 [0-4/2]
}

// Each rank passes a number on to the right, round a ring.
func ExampleComm_Cart() {
	run(4, func(world *mpi.Comm) error {
		ring, err := world.Cart([]int{4}, []bool{true}, false)
		if err != nil {
			return err
		}
		from, to, err := ring.Shift(0, 1)
		if err != nil {
			return err
		}
		got := make([]int, 1)
		if _, err := mpi.Sendrecv(ring, []int{10 * ring.Rank()}, to, 0, got, from, 0); err != nil {
			return err
		}
		if ring.Rank() == 0 {
			fmt.Println(got, "from rank", from)
		}
		return ring.Free()
	})
	// Output: [30] from rank 3
}

func ExampleDims() {
	dims := []int{0, 0, 2} // the last dimension is given
	err := mpi.Dims(24, dims)
	fmt.Println(dims, err)
	// Output: [4 3 2] <nil>
}

// The halo of a line of cells: what stands at the ends of both neighbours.
func ExampleNeighborAllgather() {
	run(3, func(world *mpi.Comm) error {
		line, err := world.Cart([]int{3}, []bool{false}, false)
		if err != nil {
			return err
		}
		halo := []int{-1, -1} // of below and above; at the ends of the line nothing comes
		if err := mpi.NeighborAllgather(line, []int{line.Rank()}, halo); err != nil {
			return err
		}
		if line.Rank() == 2 {
			fmt.Println(halo)
		}
		return line.Free()
	})
	// Output: [1 -1]
}

// Rank 0 sends to 1 and 2, which send to 3; each edge is named by the rank that it leads from.
func ExampleComm_DistGraph() {
	run(4, func(world *mpi.Comm) error {
		var edges []mpi.Edge
		switch me := world.Rank(); me {
		case 0:
			edges = []mpi.Edge{{From: 0, To: 1}, {From: 0, To: 2}}
		case 1, 2:
			edges = []mpi.Edge{{From: me, To: 3}}
		}
		graph, err := world.DistGraph(edges...)
		if err != nil {
			return err
		}
		sources, destinations, err := graph.Neighbors()
		if graph.Rank() == 3 {
			fmt.Println(sources, destinations)
		}
		if err != nil {
			return err
		}
		return graph.Free()
	})
	// Output: [1 2] []
}

// Two masters have three workers. On the intercommunicator a rank names those of the other group.
func ExampleComm_Intercomm() {
	run(5, func(world *mpi.Comm) error {
		master := world.Rank() < 2
		color, other := 1, 0 // the other group's leader, in world
		if master {
			color, other = 0, 2
		}
		group, err := world.Split(color, world.Rank())
		if err != nil {
			return err
		}
		inter, err := group.Intercomm(0, world, other, 0)
		if err != nil {
			return err
		}
		switch {
		case master && group.Rank() == 0:
			return mpi.Send(inter, []int{42}, 2, 0)
		case !master && group.Rank() == 2:
			work := make([]int, 1)
			st, err := mpi.Recv(inter, work, 0, 0)
			fmt.Println(work, "from master", st.Source, "of", inter.RemoteSize())
			return err
		}
		return nil
	})
	// Output: [42] from master 0 of 2
}

// The root gathers two numbers from each rank into a column of a matrix.
func ExampleGatherw() {
	run(2, func(world *mpi.Comm) error {
		matrix := make([]int, 4)
		blocks := []mpi.Layout{
			mpi.Vector(2, 1, 2, mpi.Of[int]()),                   // elements 0 and 2
			mpi.Indexed([]int{1, 1}, []int{1, 3}, mpi.Of[int]()), // elements 1 and 3
		}
		send := []int{10 * world.Rank(), 10*world.Rank() + 1}
		if err := mpi.Gatherw(world, send, mpi.Contiguous(2, mpi.Of[int]()), matrix, blocks, 0); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(matrix[:2], matrix[2:])
		}
		return nil
	})
	// Output: [0 10] [1 11]
}

func ExamplePack() {
	column := mpi.Vector(2, 1, 3, mpi.Of[int16]())
	packed, err := mpi.Pack(nil, []int16{1, 2, 3, 4, 5, 6}, column)
	if err != nil {
		fmt.Println(err)
		return
	}
	back := make([]int16, 6)
	rest, err := mpi.Unpack(packed, back, column)
	fmt.Println(packed, back, len(rest), err)
	// Output: [1 0 4 0] [1 0 0 4 0 0] 0 <nil>
}

// Where the largest value is.
func ExampleMaxLoc() {
	run(3, func(world *mpi.Comm) error {
		loads := []float64{0.5, 0.9, 0.7}
		most := []mpi.Loc[float64]{{Value: loads[world.Rank()], Index: world.Rank()}}
		err := mpi.Allreduce(world, nil, most, mpi.MaxLoc)
		if world.Rank() == 0 {
			fmt.Println(most[0].Value, "on rank", most[0].Index)
		}
		return err
	})
	// Output: 0.9 on rank 1
}

// Completes messages as they come, without an allocation for each wait.
func ExampleAppendSome() {
	run(3, func(world *mpi.Comm) error {
		if world.Rank() > 0 {
			return mpi.Send(world, []int{world.Rank()}, 0, 0)
		}
		var rs []*mpi.Request
		in := make([][1]int, 2)
		for i := range in {
			r, err := mpi.Irecv(world, in[i][:], i+1, 0)
			if err != nil {
				return err
			}
			rs = append(rs, r)
		}
		sum := 0
		var done []mpi.Completion
		for left := len(rs); left > 0; left -= len(done) {
			var err error
			if done, err = mpi.AppendSome(done[:0], rs...); err != nil {
				return err
			}
			for _, c := range done {
				sum += in[c.Index][0]
				rs[c.Index] = nil
			}
		}
		fmt.Println(sum)
		return nil
	})
	// Output: 3
}

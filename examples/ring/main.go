// Ring passes a token round all ranks; each adds its rank to it. It is the smallest program with a neighbour.
//
//	gorun -n 4 ./examples/ring
package main

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi"
)

const tokenTag = 1

func main() { mpi.Main(run) }

func run(_ context.Context, world *mpi.Comm) error {
	rank, size := world.Rank(), world.Size()
	left, right := (rank+size-1)%size, (rank+1)%size

	// The receive is posted first, so that no Send waits for a receive that comes later: a world of one rank sends to
	// itself.
	token := make([]int64, 1)
	incoming, err := mpi.Irecv(world, token, left, tokenTag)
	if err != nil {
		return err
	}
	if rank == 0 {
		if err := mpi.Send(world, []int64{0}, right, tokenTag); err != nil {
			return err
		}
		if _, err := incoming.Wait(); err != nil {
			return err
		}
		fmt.Printf("the token went round %d ranks and is now %d\n", size, token[0])
		return nil
	}
	if _, err := incoming.Wait(); err != nil {
		return err
	}
	token[0] += int64(rank)
	return mpi.Send(world, token, right, tokenTag)
}

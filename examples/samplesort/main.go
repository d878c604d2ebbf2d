// Samplesort sorts keys that are spread over all ranks. Each rank sorts its own keys and takes some at equal distances
// as samples. From the samples of all ranks follow the splitters: one less than there are ranks. Each rank cuts its
// keys at the splitters and sends piece i to rank i, by Alltoallv. Then each rank merges what it has got, and the
// ranks, in their order, have all keys in order.
//
//	gorun -n 4 ./examples/samplesort -keys 5000000
//
// In the end the program checks that the keys of neighbours are in order, and that no key has changed.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi"
)

var keys = flag.Int("keys", 500_000, "keys on each rank")

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(_ context.Context, world *mpi.Comm) error {
	if *keys < 0 {
		return fmt.Errorf("samplesort: -keys %d: a rank has none or more", *keys)
	}
	random := rand.New(rand.NewPCG(1, uint64(world.Rank())))
	mine := make([]uint64, *keys)
	for i := range mine {
		mine[i] = random.Uint64()
	}
	before := fingerprint(mine)

	start := time.Now()
	sorted, err := sample(world, mine)
	if err != nil {
		return err
	}
	took := time.Since(start)

	if err := check(world, sorted, before); err != nil {
		return err
	}
	most := []int{len(sorted)}
	if err := mpi.Reduce(world, slices.Clone(most), most, mpi.Max, 0); err != nil {
		return err
	}
	if all := *keys * world.Size(); world.Rank() == 0 {
		fmt.Printf("%d keys on %d ranks sorted in %v; no rank has more than %.1f %% of them\n",
			all, world.Size(), took.Round(time.Millisecond), 100*float64(most[0])/float64(max(1, all)))
	}
	return nil
}

const samplesEach = 64 // on each rank: the more, the more equal are the pieces

// sample sorts the keys of all ranks, and returns this rank's part.
func sample(world *mpi.Comm, mine []uint64) ([]uint64, error) {
	size := world.Size()
	slices.Sort(mine)
	samples := make([]uint64, samplesEach)
	for i := range samples {
		if len(mine) > 0 {
			samples[i] = mine[i*len(mine)/samplesEach]
		}
	}
	all := make([]uint64, samplesEach*size)
	if err := mpi.Allgather(world, samples, all); err != nil {
		return nil, err
	}
	slices.Sort(all)

	send, lengths := make([][]uint64, size), make([]int, size)
	rest := mine
	for i := range send {
		n := len(rest)
		if i < size-1 {
			n, _ = slices.BinarySearch(rest, all[(i+1)*samplesEach])
		}
		send[i], rest = rest[:n], rest[n:]
		lengths[i] = n
	}
	if err := mpi.Alltoall(world, nil, lengths); err != nil { // nil: in place. Now they are those of what comes.
		return nil, err
	}
	recv, sum := make([][]uint64, size), 0
	for i, n := range lengths {
		recv[i] = make([]uint64, n)
		sum += n
	}
	if err := mpi.Alltoallv(world, send, recv); err != nil {
		return nil, err
	}
	return merge(recv, make([]uint64, 0, sum)), nil
}

// merge appends to out what is in the lists, each of which is in order.
func merge(lists [][]uint64, out []uint64) []uint64 {
	for {
		var least *[]uint64
		for i := range lists {
			if l := &lists[i]; len(*l) > 0 && (least == nil || (*l)[0] < (*least)[0]) {
				least = l
			}
		}
		if least == nil {
			return out
		}
		out = append(out, (*least)[0])
		*least = (*least)[1:]
	}
}

// fingerprint is what does not change when keys change their places: their number, their sum and that of their squares.
func fingerprint(keys []uint64) []uint64 {
	f := []uint64{uint64(len(keys)), 0, 0}
	for _, k := range keys {
		f[1] += k
		f[2] += k * k
	}
	return f
}

// check reports that the keys of all ranks are not in order, or not those that there were.
func check(world *mpi.Comm, sorted, before []uint64) error {
	// What this rank's keys must not be less than: the greatest of the ranks below.
	greatest, below := make([]uint64, 1), make([]uint64, 1)
	if len(sorted) > 0 {
		greatest[0] = sorted[len(sorted)-1]
	}
	if err := mpi.Exscan(world, greatest, below, mpi.Max); err != nil {
		return err
	}
	if !slices.IsSorted(sorted) || len(sorted) > 0 && sorted[0] < below[0] {
		return fmt.Errorf("samplesort: the keys of rank %d are not in order", world.Rank())
	}
	sums := append(fingerprint(sorted), before...)
	if err := mpi.Allreduce(world, nil, sums, mpi.Sum); err != nil {
		return err
	}
	if !slices.Equal(sums[:3], sums[3:]) {
		return fmt.Errorf("samplesort: %d keys (sums %x) have become %d (sums %x)", sums[3], sums[4:], sums[0], sums[1:3])
	}
	return nil
}

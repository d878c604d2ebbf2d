// Hashtable counts words in a hash table that is spread over all ranks. Each rank has a part of the slots in its
// window. A rank that looks for a key claims an empty slot by CompareAndSwap, so no two ranks put one key into two
// slots, and counts it by Accumulate. No rank waits for the owner of a slot.
//
//	gorun -n 4 ./examples/hashtable -keys 100000
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/gorun-mpi/mpi"
)

var (
	keys     = flag.Int("keys", 20_000, "keys that each rank counts")
	distinct = flag.Int("distinct", 1000, "different keys")
)

func main() {
	flag.Parse()
	mpi.Main(run)
}

// table is a hash table of which each rank has as many slots: a key, which is 0 in an empty slot, and its count.
type table struct {
	win   *mpi.Win[int64]
	slots int64 // of all ranks
	ranks int64
}

// add counts key, which is not 0.
func (t *table) add(key int64) error {
	for probe := range t.slots {
		slot := (hash(key) + probe) % t.slots
		rank, at := int(slot%t.ranks), slot/t.ranks*2
		was, err := t.win.CompareAndSwap(rank, at, 0, key)
		if err != nil {
			return err
		}
		if was == 0 || was == key {
			return t.win.Accumulate(mpi.Sum, []int64{1}, rank, at+1)
		}
	}
	return fmt.Errorf("hashtable: all %d slots are taken", t.slots)
}

func hash(key int64) int64 { return int64(uint64(key) * 0x9e3779b97f4a7c15 >> 1) }

func run(ctx context.Context, world *mpi.Comm) error {
	if *distinct < 1 || *keys < 0 {
		return fmt.Errorf("hashtable: -keys %d -distinct %d: at least 0 and 1", *keys, *distinct)
	}
	each := 2**distinct/world.Size() + 1
	win, err := mpi.WinAlloc[int64](world, 2*each)
	if err != nil {
		return err
	}
	t := &table{win: win, slots: int64(each * world.Size()), ranks: int64(world.Size())}
	if err := win.LockAll(); err != nil {
		return err
	}
	for i := range *keys {
		if err := t.add(int64((i*31+world.Rank())%*distinct) + 1); err != nil {
			return err
		}
	}
	if err := win.UnlockAll(); err != nil { // all that this rank has counted is there
		return err
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	sums := make([]int64, 2) // different keys, and all
	for i := 0; i < len(win.Local()); i += 2 {
		if key, n := win.Local()[i], win.Local()[i+1]; key != 0 {
			sums[0]++
			sums[1] += n
		}
	}
	if err := mpi.Allreduce(world, nil, sums, mpi.Sum); err != nil {
		return err
	}
	if all := int64(*keys * world.Size()); sums[1] != all || sums[0] > int64(*distinct) {
		return fmt.Errorf("hashtable: %d keys were counted, %d different ones; want %d, at most %d", sums[1], sums[0],
			all,
			*distinct)
	}
	if world.Rank() == 0 {
		fmt.Printf("%d keys, %d different ones, counted on %d ranks\n", sums[1], sums[0], world.Size())
	}
	return win.Free()
}

package mpi_test

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
)

// A counter that all ranks add to: rank 0 has it, and takes no part.
func ExampleWin_FetchOp() {
	run(3, func(world *mpi.Comm) error {
		counter, err := mpi.WinAlloc[int64](world, 1)
		if err != nil {
			return err
		}
		if err := counter.LockAll(); err != nil {
			return err
		}
		if _, err := counter.FetchOp(mpi.Sum, 10, 0, 0); err != nil { // element 0 of rank 0
			return err
		}
		if err := counter.UnlockAll(); err != nil {
			return err
		}
		if err := mpi.Barrier(world); err != nil { // all have added
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(counter.Local()[0])
		}
		return counter.Free()
	})
	// Output: 30
}

// Each rank writes its number to the rank on its right, between two fences.
func ExampleWin_Fence() {
	run(3, func(world *mpi.Comm) error {
		win, err := mpi.WinAlloc[int](world, 1)
		if err != nil {
			return err
		}
		if err := win.Fence(); err != nil {
			return err
		}
		if err := win.Put([]int{world.Rank()}, (world.Rank()+1)%world.Size(), 0); err != nil {
			return err
		}
		if err := win.Fence(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println("from the left:", win.Local()[0])
		}
		return win.Free()
	})
	// Output: from the left: 2
}

// A rank takes the exclusive lock to change several elements together.
func ExampleWin_Lock() {
	run(4, func(world *mpi.Comm) error {
		win, err := mpi.WinAlloc[int](world, 2)
		if err != nil {
			return err
		}
		if err := win.Lock(0, mpi.Exclusive); err != nil {
			return err
		}
		pair := make([]int, 2)
		if err := win.Get(pair, 0, 0); err != nil {
			return err
		}
		if err := win.Flush(0); err != nil { // pair has the elements from here on
			return err
		}
		if err := win.Put([]int{pair[0] + 1, pair[1] - 1}, 0, 0); err != nil {
			return err
		}
		if err := win.Unlock(0); err != nil {
			return err
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(win.Local())
		}
		return win.Free()
	})
	// Output: [4 -4]
}

// A note tells the target which data are there. Each PutNotify needs an open epoch, and WaitNote none.
func ExampleWin_PutNotify() {
	run(2, func(world *mpi.Comm) error {
		win, err := mpi.WinAlloc[float64](world, 3)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			if err := win.Lock(0, mpi.Shared); err != nil {
				return err
			}
			if err := win.PutNotify([]float64{1, 2, 3}, 0, 0, 42); err != nil {
				return err
			}
			if err := win.Unlock(0); err != nil {
				return err
			}
		} else {
			source, note, err := win.WaitNote(nil)
			if err != nil {
				return err
			}
			fmt.Println("note", note, "from rank", source, win.Local())
		}
		return win.Free()
	})
	// Output: note 42 from rank 1 [1 2 3]
}

// Halo lets heat flow round a ring of cells that is divided over the ranks. Each rank writes its outermost cells into
// its neighbours' windows with PutNotify, computes its inner cells, and waits for two notes: no rank sends or receives.
// Two sets of halos take turns, so that a fast rank does not overwrite what its neighbour still reads.
//
//	gorun -n 4 ./examples/halo -steps 1000
package main

import (
	"context"
	"flag"
	"fmt"
	"math"

	"github.com/gorun-mpi/mpi"
)

var (
	cells = flag.Int("cells", 1000, "cells of each rank")
	steps = flag.Int("steps", 500, "steps")
)

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(ctx context.Context, world *mpi.Comm) error {
	n := *cells
	if n < 2 || *steps < 0 {
		return fmt.Errorf("halo: -cells %d -steps %d: at least 2 and 0", n, *steps)
	}
	halos, err := mpi.WinAlloc[float64](world, 4) // of even and of odd steps: the left cell, and the right one
	if err != nil {
		return err
	}
	me, ranks := world.Rank(), world.Size()
	left, right := (me+ranks-1)%ranks, (me+1)%ranks
	now, next := make([]float64, n), make([]float64, n)
	for i := range now {
		now[i] = math.Sin(2 * math.Pi * float64(me*n+i) / float64(ranks*n))
	}
	now[0] += 1 // and all that is added to it stays
	before := sum(now)
	if err := halos.LockAll(); err != nil {
		return err
	}
	var notes [2]int // that have come, of even and of odd steps
	for step := range *steps {
		turn := step % 2
		if err := halos.PutNotify(now[:1], left, int64(2*turn+1), uint32(turn)); err != nil {
			return err
		}
		if err := halos.PutNotify(now[n-1:], right, int64(2*turn), uint32(turn)); err != nil {
			return err
		}
		for i := 1; i < n-1; i++ {
			next[i] = flow(now[i-1], now[i], now[i+1])
		}
		for notes[turn] < 2 {
			_, note, err := halos.WaitNote(ctx)
			if err != nil {
				return err
			}
			notes[note%2]++ // it may be one of the next step
		}
		// Both neighbours have come to this step, so they have had the cells of the step before, which next overwrites.
		notes[turn] = 0
		h := halos.Local()[2*turn:]
		next[0] = flow(h[0], now[0], now[1])
		next[n-1] = flow(now[n-2], now[n-1], h[1])
		now, next = next, now
	}
	if err := halos.UnlockAll(); err != nil {
		return err
	}
	totals := []float64{before, sum(now)}
	if err := mpi.Allreduce(world, nil, totals, mpi.Sum); err != nil {
		return err
	}
	if math.Abs(totals[0]-totals[1]) > 1e-9*float64(n*ranks) {
		return fmt.Errorf("halo: there is heat of %g at the end; there was %g", totals[1], totals[0])
	}
	if me == 0 {
		fmt.Printf("%d cells on %d ranks after %d steps: the heat is the same\n", n*ranks, ranks, *steps)
	}
	return halos.Free()
}

func flow(left, here, right float64) float64 { return here + 0.25*(left-2*here+right) }

func sum(cells []float64) (s float64) {
	for _, c := range cells {
		s += c
	}
	return s
}

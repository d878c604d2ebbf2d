// Survive solves a heat equation although ranks of it die: spare ranks take the places of the dead, and the computation
// goes on from the last checkpoint, which is in the memory of other ranks.
//
//	gorun --enable-recovery -n 10 ./examples/survive -spares 2 -deaths 2
//
// Eight ranks have a strip of rows each. The first -deaths ranks kill themselves, one each -after. The last line has
// the sum of the result, which is the same to the bit whatever dies.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/checkpoint"
)

var (
	spares = flag.Int("spares", 0, "ranks that compute only in the place of one that died")
	deaths = flag.Int("deaths", 0, "ranks that kill themselves")
	after  = flag.Duration("after", 200*time.Millisecond, "time between two deaths")
	size   = flag.Int("size", 240, "rows and columns of the plate")
	steps  = flag.Int("steps", 2000, "time steps")
	every  = flag.Int("every", 50, "time steps between two checkpoints")
)

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(_ context.Context, world *mpi.Comm) error {
	ranks := world.Size() - *spares
	if *spares < 0 || ranks < 1 || *every < 1 || *size < ranks {
		return fmt.Errorf("survive: %d ranks, -spares %d, -every %d, -size %d: at least one rank computes, has a row, and "+
			"saves after one step or more", world.Size(), *spares, *every, *size)
	}
	place := world.Rank()
	if place >= ranks {
		place = -1 // a spare
	}
	if world.Rank() < *deaths {
		time.AfterFunc(time.Duration(world.Rank()+1)**after, die)
	}
	p := &plate{store: checkpoint.New()}
	for all := world; ; {
		err := attempt(all, ranks, &place, p)
		if !errors.Is(err, mpi.ErrPeerFailed) && !errors.Is(err, mpi.ErrRevoked) {
			return err
		}
		// A rank has died. The ranks that have not noticed leave their calls; then the living ones begin again.
		if err := all.Revoke(); err != nil {
			return err
		}
		living, err := all.Shrink()
		if err != nil {
			return err
		}
		all = living
	}
}

// die ends the process as a crash does.
func die() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	panic(err)
}

// attempt computes until the end, or until a rank dies. place is where in the plate this rank computes, and -1 for a
// spare rank, which gets a place when one is free.
func attempt(all *mpi.Comm, ranks int, place *int, p *plate) error {
	if err := choosePlace(all, ranks, place); err != nil {
		return err
	}
	color := mpi.Undefined
	if *place >= 0 {
		color = 0
	}
	working, err := all.Split(color, *place) // the ranks at the places, in their order
	if err == nil && working != nil {
		if err = p.compute(working); err != nil {
			err = errors.Join(err, working.Revoke()) // the others leave their calls too
		}
	}
	if err != nil {
		return err
	}
	return mpi.Barrier(all) // where the spares wait
}

func choosePlace(all *mpi.Comm, ranks int, place *int) error {
	places, err := mpi.AllgatherValues(all, *place)
	if err != nil {
		return err
	}
	taken := make([]bool, ranks)
	before := 0 // spare ranks before this one
	for rank, p := range places {
		if p >= 0 {
			taken[p] = true
		} else if rank < all.Rank() {
			before++
		}
	}
	var free []int
	for p := range taken {
		if !taken[p] {
			free = append(free, p)
		}
	}
	if *place < 0 && before < len(free) {
		*place = free[before]
	}
	if spare := len(places) + len(free) - ranks; spare < len(free) {
		return fmt.Errorf("survive: %d places are free and %d spare ranks are left", len(free), spare)
	}
	return nil
}

// plate has the rows of one rank, and one row more at either end, which the neighbours have.
type plate struct {
	store    *checkpoint.Store
	now, old []float64
}

func (p *plate) compute(c *mpi.Comm) error {
	n := *size
	first, end := n*c.Rank()/c.Size(), n*(c.Rank()+1)/c.Size()
	rows := end - first
	if p.now == nil {
		p.now, p.old = make([]float64, (rows+2)*n), make([]float64, (rows+2)*n)
		if err := checkpoint.Add(p.store, p.now); err != nil {
			return err
		}
	}
	step, found, err := p.store.Restore(c)
	if err != nil {
		return err
	}
	if !found { // the job begins, or a rank has died before the first Save
		clear(p.now)
		for r := range rows {
			for x := range n {
				p.now[(r+1)*n+x] = math.Sin(float64((first+r)*x) / float64(n))
			}
		}
	}
	for ; step < int64(*steps); step++ {
		if err := p.exchange(c, rows); err != nil {
			return err
		}
		p.step(rows)
		if (step+1)%int64(*every) == 0 {
			if err := p.store.Save(step + 1); err != nil {
				return err
			}
		}
	}
	return p.print(c, rows)
}

// exchange gives the neighbours the outer rows, and takes theirs.
func (p *plate) exchange(c *mpi.Comm, rows int) error {
	n := *size
	up, down := c.Rank()-1, c.Rank()+1
	if up < 0 {
		up = mpi.ProcNull
	}
	if down == c.Size() {
		down = mpi.ProcNull
	}
	row := func(r int) []float64 { return p.now[r*n : (r+1)*n] }
	var s mpi.Set
	s.Add(mpi.Irecv(c, row(0), up, 0))
	s.Add(mpi.Irecv(c, row(rows+1), down, 0))
	s.Add(mpi.Isend(c, row(1), up, 0))
	s.Add(mpi.Isend(c, row(rows), down, 0))
	return s.Wait()
}

// step is one time step. The plate's edge is held at its first heat on two sides, and at 0 beyond the other two.
func (p *plate) step(rows int) {
	n := *size
	copy(p.old, p.now)
	for r := 1; r <= rows; r++ {
		for x := 1; x < n-1; x++ {
			at := r*n + x
			p.now[at] = p.old[at] + 0.2*(p.old[at-1]+p.old[at+1]+p.old[at-n]+p.old[at+n]-4*p.old[at])
		}
	}
}

func (p *plate) print(c *mpi.Comm, rows int) error {
	all, err := mpi.GatherAlloc(c, p.now[*size:(rows+1)**size], 0)
	if err != nil || c.Rank() != 0 {
		return err
	}
	sum := sha256.New()
	for _, strip := range all {
		if err := binary.Write(sum, binary.LittleEndian, strip); err != nil {
			return err
		}
	}
	fmt.Printf("%d × %d points, %d steps, %d ranks: %x\n", *size, *size, *steps, c.Size(), sum.Sum(nil)[:8])
	return nil
}

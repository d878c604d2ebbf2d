// Survive solves a heat equation although ranks of it die: new ranks take the places of the dead, and the computation
// goes on from the last checkpoint, which is in the memory of other ranks.
//
//	gorun --respawn 2 -n 8 ./examples/survive -deaths 2
//
// The ranks have a strip of rows each. One of them kills itself -after the computation has begun, and another one after
// it has gone on, as often as -deaths says. The line of output has the sum of the result, which is the same to the bit
// whatever dies. The exit code is 0 as long as --respawn allows for a new rank in the place of each dead one.
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
	deaths = flag.Int("deaths", 0, "ranks that kill themselves, one after the other")
	after  = flag.Duration("after", 200*time.Millisecond, "how long a rank computes that kills itself")
	size   = flag.Int("size", 240, "rows and columns of the plate")
	steps  = flag.Int("steps", 2000, "time steps")
	every  = flag.Int("every", 50, "time steps between two checkpoints")
)

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(_ context.Context, world *mpi.Comm) error {
	if *every < 1 || *size < world.Size() {
		return fmt.Errorf("survive: %d ranks, -every %d, -size %d: a rank has a row at least, and saves after one step or "+
			"more", world.Size(), *every, *size)
	}
	p := &plate{store: checkpoint.New()}
	for c := world; ; p.begun++ {
		flags := uint32(1)
		result, err := p.compute(c)
		if err != nil {
			if !errors.Is(err, mpi.ErrPeerFailed) && !errors.Is(err, mpi.ErrRevoked) {
				return err
			}
			if err := c.Revoke(); err != nil { // the ranks that have not noticed leave their calls
				return err
			}
			flags = 0
		}
		agreed, err := c.Agree(flags)
		if err == nil && agreed == 1 {
			if c.Rank() == 0 {
				fmt.Println(result)
			}
			return nil
		}
		if err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
			return err
		}
		// New ranks begin with run, and the others go on, with a communicator of the old size.
		whole, err := c.Replace()
		for errors.Is(err, mpi.ErrPeerFailed) { // one more rank has died
			whole, err = c.Replace()
		}
		if err != nil {
			return err
		}
		c = whole
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

// plate has the rows of one rank, and one row more at either end, which the neighbours have.
type plate struct {
	begun    int // how often the computation has begun again, as far as this rank has seen
	store    *checkpoint.Store
	now, old []float64
}

// compute computes until the end, or until a rank dies. It returns the line for the user, at rank 0.
func (p *plate) compute(c *mpi.Comm) (string, error) {
	begun, err := mpi.AllreduceValue(c, p.begun, mpi.Max[int]) // a new rank has seen nothing
	if err != nil {
		return "", err
	}
	if p.begun = begun; begun < *deaths && c.Rank() == begun%c.Size() {
		defer time.AfterFunc(*after, die).Stop()
	}
	n := *size
	first, end := n*c.Rank()/c.Size(), n*(c.Rank()+1)/c.Size()
	rows := end - first
	if p.now == nil {
		p.now, p.old = make([]float64, (rows+2)*n), make([]float64, (rows+2)*n)
		if err := checkpoint.Add(p.store, p.now); err != nil {
			return "", err
		}
	}
	step, found, err := p.store.Restore(c)
	if err != nil {
		return "", err
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
			return "", err
		}
		p.step(rows)
		if (step+1)%int64(*every) == 0 {
			if err := p.store.Save(step + 1); err != nil {
				return "", err
			}
		}
	}
	return p.result(c, rows)
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

func (p *plate) result(c *mpi.Comm, rows int) (string, error) {
	all, err := mpi.GatherAlloc(c, p.now[*size:(rows+1)**size], 0)
	if err != nil || c.Rank() != 0 {
		return "", err
	}
	sum := sha256.New()
	for _, strip := range all {
		if err := binary.Write(sum, binary.LittleEndian, strip); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d × %d points, %d steps, %d ranks: %x", *size, *size, *steps, c.Size(), sum.Sum(nil)[:8]), nil
}

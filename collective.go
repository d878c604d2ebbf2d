package mpi

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/gorun-mpi/mpi/pml"
)

// Tags of the library's own messages, on context cid+1. Collective calls are made in the same order by all ranks and
// messages of a pair keep their order, so one tag for each kind is enough.
const (
	tagBarrier = iota
	tagAgree
)

// Barrier returns when every rank of c has called it; MPI 4.1 §6.3. Every rank calls it.
//
// If c's context ends first, Barrier returns its error. This rank has entered all the same: the barrier is finished
// in the background when the others come, and the next collective call on c waits for that.
func Barrier(c *Comm) error {
	if err := c.usable("Barrier"); err != nil {
		return err
	}
	if c.size == 1 {
		return nil
	}
	if c.ctx == nil {
		c.coll.Lock()
		defer c.coll.Unlock()
		return c.wrap("Barrier", Undefined, Undefined, c.barrier())
	}
	return c.wrap("Barrier", Undefined, Undefined, c.barrierUntil(c.ctx))
}

// barrierUntil runs the barrier aside, so that ctx can end the waiting without ending the barrier.
func (c *Comm) barrierUntil(ctx context.Context) error {
	done := make(chan error, 1)
	c.coll.Lock()
	go func() {
		defer c.coll.Unlock()
		done <- c.barrier()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// barrier is the dissemination algorithm: in round k every rank tells the one 2^k above it and hears from the one 2^k
// below; after ⌈log2 n⌉ rounds it has heard, through others, from everybody.
func (c *Comm) barrier() error {
	for step := 1; step < c.size; step *= 2 {
		to, from := (c.rank+step)%c.size, (c.rank-step+c.size)%c.size
		if err := c.eng.Send(nil, c.cid+1, c.toWorld(to), tagBarrier, nil, pml.Standard); err != nil {
			return err
		}
		if _, err := c.eng.Recv(nil, c.cid+1, c.toWorld(from), tagBarrier, nil); err != nil {
			return err
		}
	}
	return nil
}

// agreeContext finds a context number that is free at every rank of c: the largest proposal, if everybody can claim
// it. Goroutines that make other communicators at the same time may have taken it; then once more.
func (c *Comm) agreeContext() (uint32, error) {
	for range 100 {
		id, err := c.agreeMax(c.ids.propose())
		if err != nil {
			return 0, err
		}
		mine := c.ids.claim(id)
		refused := uint32(0)
		if !mine {
			refused = 1
		}
		refused, err = c.agreeMax(refused)
		if err == nil && refused == 0 {
			return id, nil
		}
		if mine {
			c.ids.release(id)
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%d ranks could not agree on a number for a new communicator", c.size)
}

// agreeMax returns the largest v of all ranks: up a binomial tree to rank 0, and down again.
func (c *Comm) agreeMax(v uint32) (uint32, error) {
	b := make([]byte, 4)
	step := 1
	for ; step < c.size && c.rank&step == 0; step *= 2 {
		if c.rank+step >= c.size {
			continue
		}
		if _, err := c.eng.Recv(c.ctx, c.cid+1, c.toWorld(c.rank+step), tagAgree, b); err != nil {
			return 0, err
		}
		v = max(v, binary.LittleEndian.Uint32(b))
	}
	if c.rank != 0 {
		up := c.toWorld(c.rank - step)
		if err := c.eng.Send(c.ctx, c.cid+1, up, tagAgree, binary.LittleEndian.AppendUint32(nil, v), pml.Standard); err != nil {
			return 0, err
		}
		if _, err := c.eng.Recv(c.ctx, c.cid+1, up, tagAgree, b); err != nil {
			return 0, err
		}
		v = binary.LittleEndian.Uint32(b)
	}
	for step /= 2; step > 0; step /= 2 {
		if c.rank+step >= c.size {
			continue
		}
		if err := c.eng.Send(c.ctx, c.cid+1, c.toWorld(c.rank+step), tagAgree, binary.LittleEndian.AppendUint32(nil, v), pml.Standard); err != nil {
			return 0, err
		}
	}
	return v, nil
}

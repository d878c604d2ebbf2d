package mpi

import (
	"encoding/binary"
	"fmt"
	"sync"

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
// If c's context ends first, or has ended before the call, Barrier returns its error. This rank has entered all the
// same: the barrier is finished in the background when the others come, and the next collective call on c waits for
// that. So the ranks agree which calls belong together, whatever deadline has passed at whose call.
func Barrier(c *Comm) error {
	if err := c.valid("Barrier"); err != nil {
		return err
	}
	if c.size == 1 {
		if err := c.usable("Barrier"); err != nil {
			return err
		}
		return c.wrap("Barrier", Undefined, Undefined, c.eng.Closed())
	}
	if c.ctx == nil {
		c.coll.await(c.coll.take())
		defer c.coll.leave()
		return c.wrap("Barrier", Undefined, Undefined, c.barrier())
	}
	return c.wrap("Barrier", Undefined, Undefined, c.collective(c.barrier))
}

// collective runs body when the collective calls made before it on c are over. If c's context ends meanwhile, or has
// ended, its error; then body is finished in the background, since the other ranks count on this one.
func (c *Comm) collective(body func() error) error {
	ticket := c.coll.take()
	run := func() error {
		c.coll.await(ticket)
		defer c.coll.leave()
		return body()
	}
	if c.ctx == nil {
		return run()
	}
	done := make(chan error, 1)
	go func() { done <- run() }()
	if err := c.ctx.Err(); err != nil {
		return err // also if body is done by now: select would toss a coin
	}
	select {
	case err := <-done:
		return err
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// turns lets collective calls in one at a time, in the order in which they were made.
type turns struct {
	mu            sync.Mutex
	next, serving uint64 // serving <= next: the ticket to be given out, and the one whose turn it is
	changed       sync.Cond
}

func (t *turns) take() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed.L = &t.mu
	t.next++
	return t.next - 1
}

func (t *turns) await(ticket uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.serving != ticket {
		t.changed.Wait()
	}
}

func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serving++
	t.changed.Broadcast()
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

// agreeContext finds a context number that is free at every rank of c. Each try is a number that all ranks compute
// alike and that hardly anybody else computes, from c's own number and how many have been made of c. So goroutines that
// make communicators at the same time do not stand in each other's way, in whatever order their ranks come to them.
// Only one collective call on c is under way (see turns).
func (c *Comm) agreeContext() (uint32, error) {
	const tries = 100
	for range tries {
		id := nextContext(c.cid, c.tried)
		c.tried++
		mine := c.ids.claim(id)
		refused := uint32(0)
		if !mine {
			refused = 1
		}
		refused, err := c.agreeMax(refused)
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
	return 0, fmt.Errorf("%d ranks could not agree on a number for a new communicator in %d tries; free some of those you have", c.size, tries)
}

// nextContext scatters its arguments over the even numbers.
func nextContext(parent, n uint32) uint32 {
	x := uint64(parent)<<32 | uint64(n)
	x += 0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return uint32(x^x>>31) &^ 1
}

// agreeMax returns the largest v of all ranks: up a binomial tree to rank 0, and down again.
func (c *Comm) agreeMax(v uint32) (uint32, error) {
	b := make([]byte, 4)
	step := 1
	for ; step < c.size && c.rank&step == 0; step *= 2 {
		if c.rank+step >= c.size {
			continue
		}
		if _, err := c.eng.Recv(nil, c.cid+1, c.toWorld(c.rank+step), tagAgree, b); err != nil {
			return 0, err
		}
		v = max(v, binary.LittleEndian.Uint32(b))
	}
	if c.rank != 0 {
		up := c.toWorld(c.rank - step)
		if err := c.eng.Send(nil, c.cid+1, up, tagAgree, binary.LittleEndian.AppendUint32(nil, v), pml.Standard); err != nil {
			return 0, err
		}
		if _, err := c.eng.Recv(nil, c.cid+1, up, tagAgree, b); err != nil {
			return 0, err
		}
		v = binary.LittleEndian.Uint32(b)
	}
	for step /= 2; step > 0; step /= 2 {
		if c.rank+step >= c.size {
			continue
		}
		if err := c.eng.Send(nil, c.cid+1, c.toWorld(c.rank+step), tagAgree, binary.LittleEndian.AppendUint32(nil, v), pml.Standard); err != nil {
			return 0, err
		}
	}
	return v, nil
}

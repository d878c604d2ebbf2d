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

// Barrier returns when every rank of c has called it; §6.3. Every rank calls it.
//
// If c's context ends first, or has ended before the call, Barrier returns its error. This rank has entered all the
// same: the barrier is finished in the background when the other ranks enter, and the next collective call on c waits
// for that. So all ranks agree which calls belong together, at whichever rank a deadline has passed.
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
		c.coll.lock(c.coll.ticket())
		defer c.coll.unlock()
		return c.wrap("Barrier", Undefined, Undefined, c.barrier())
	}
	return c.wrap("Barrier", Undefined, Undefined, c.collective(c.barrier))
}

// collective runs body when the collective calls made before it on c are over. If c's context ends before that, it
// returns the context's error and body is finished in the background, since the other ranks count on this one.
func (c *Comm) collective(body func() error) error {
	ticket := c.coll.ticket()
	run := func() error {
		c.coll.lock(ticket)
		defer c.coll.unlock()
		return body()
	}
	if c.ctx == nil {
		return run()
	}
	done := make(chan error, 1)
	go func() { done <- run() }()
	if err := c.ctx.Err(); err != nil {
		return err // also if body is done by now, where select would choose at random
	}
	select {
	case err := <-done:
		return err
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// ticketLock is held by one collective call at a time, in the order in which the calls took their tickets.
type ticketLock struct {
	mu            sync.Mutex
	next, serving uint64 // serving <= next: the next ticket, and the ticket that holds the lock or may take it
	changed       sync.Cond
}

func (l *ticketLock) ticket() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed.L = &l.mu
	l.next++
	return l.next - 1
}

func (l *ticketLock) lock(ticket uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.serving != ticket {
		l.changed.Wait()
	}
}

func (l *ticketLock) unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serving++
	l.changed.Broadcast()
}

// barrier is the dissemination algorithm: in round k every rank sends to the rank 2^k above it and receives from the
// rank 2^k below. After ⌈log2 n⌉ rounds a message of every rank has reached it, through others.
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

// agreeContext finds a context number that is free at every rank of c. Each try is a number that all ranks of c compute
// alike, from c's own number and how many have been tried for c, and that another communicator hardly ever computes. So
// goroutines that make communicators at the same time rarely collide, in whatever order their ranks call. Only one
// collective call on c is under way (ticketLock).
func (c *Comm) agreeContext() (uint32, error) {
	const tries = 100
	for range tries {
		id := nextContext(c.cid, c.tried)
		c.tried++
		mine := !c.eng.Dropped(id) && c.ids.claim(id)
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
	return 0, fmt.Errorf("%d ranks could not agree on a number for a new communicator in %d tries; "+
		"free some of those you have", c.size, tries)
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
		if err := c.agreeSend(up, v); err != nil {
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
		if err := c.agreeSend(c.toWorld(c.rank+step), v); err != nil {
			return 0, err
		}
	}
	return v, nil
}

func (c *Comm) agreeSend(world int, v uint32) error {
	return c.eng.Send(nil, c.cid+1, world, tagAgree, binary.LittleEndian.AppendUint32(nil, v), pml.Standard)
}

package mpi

import (
	"sync"

	"github.com/gorun-mpi/mpi/pml"
)

// Tags of the library's own messages, on context cid+1. Collective calls are made in the same order by all ranks and
// messages of a pair keep their order, so one tag for each kind is enough.
const (
	tagBarrier = iota
	tagAgree
	tagFlush   // on ctxFlush: the sender's last message
	tagFlushed // on ctxFlush, to itself: there are no more
)

// Barrier returns when every rank of c has called it; §6.3. Every rank calls it.
//
// If c's context ends first, or has ended before the call, Barrier returns its error. This rank has entered all the
// same: the barrier is finished in the background when the other ranks enter, and the next collective call on c waits
// for that. So all ranks agree which calls belong together, at whichever rank a deadline has passed.
func Barrier(c *Comm) error {
	if err := c.intra("Barrier"); err != nil {
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
	return c.outliving(func() error {
		c.coll.lock(ticket)
		defer c.coll.unlock()
		return body()
	})
}

// outliving runs what other ranks count on: if c's context ends, it is finished in the background.
func (c *Comm) outliving(run func() error) error {
	if c.ctx == nil {
		return run()
	}
	done := make(chan error, 1)
	c.left.begin()
	go func() {
		err := run()
		c.left.end()
		done <- err
	}()
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

// leftBehind are the calls on a communicator that go on without their callers if the context ends.
type leftBehind struct {
	mu   sync.Mutex // guards what follows
	n    int
	over func() // what is to be done when n is 0; nil: nothing
}

func (l *leftBehind) begin() {
	l.mu.Lock()
	l.n++
	l.mu.Unlock()
}

func (l *leftBehind) end() {
	var over func()
	l.mu.Lock()
	if l.n--; l.n == 0 {
		over, l.over = l.over, nil
	}
	l.mu.Unlock()
	if over != nil {
		over()
	}
}

// whenOver does f when none goes on: now or later.
func (l *leftBehind) whenOver(f func()) {
	l.mu.Lock()
	if l.n > 0 {
		l.over, f = f, nil
	}
	l.mu.Unlock()
	if f != nil {
		f()
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

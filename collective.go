package mpi

import (
	"sync"

	"github.com/gorun-mpi/mpi/internal/agree"
)

// collective runs body, which makes a communicator, when those that were begun before it on c are over. If c's context
// ends before that, it returns the context's error and body is finished in the background, since the other ranks count
// on this one. ticket is the call's number, the same at all ranks, and tag that by which it is compared.
func (c *Comm) collective(kind agree.Creation, body func(ticket uint64, tag int32) error) error {
	ticket, tag := c.coll.ticket(c)
	return c.outliving(kind.String(), func() error {
		c.coll.lock(ticket)
		defer c.coll.unlock()
		return body(ticket, tag)
	})
}

// outliving runs what other ranks count on: if c's context ends, it is finished in the background. op is the call.
func (c *Comm) outliving(op string, run func() error) error {
	if c.ctx == nil {
		return run()
	}
	done := c.group.InBackground(op, run)
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

// ticketLock is held by one such call at a time, in the order in which the calls took their tickets.
type ticketLock struct {
	mu            sync.Mutex
	next, serving uint64 // serving <= next: the next ticket, and the ticket that holds the lock or may take it
	changed       sync.Cond
}

// ticket returns also the tag by which the call is compared, if it is. So calls compare in the order of their tickets.
func (l *ticketLock) ticket(c *Comm) (ticket uint64, tag int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed.L = &l.mu
	l.next++
	if c.setup.Check {
		tag = c.colls.nextTag(blocking)
	}
	return l.next - 1, tag
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

package mpi

import (
	"sync"

	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Tags of the messages by which ranks make communicators, on context cid+1. All ranks make them in the same order and
// messages of a pair keep their order, so one tag for each kind is enough. Those of other collective calls are above
// (kindTag).
const (
	tagAgree   = iota
	tagFlush   // on ctxFlush: the sender's last message
	tagFlushed // on ctxFlush, to itself: there are no more
	tagLeaders // what leaders of two groups say, in any order: see desk

	tagAsk       = tagAnswers - 1        // in the world: see settle.go
	tagAnswers   = 1 << (numberBits - 1) // in the world, and so many tags, up to those of calls
	numbersAsked = 1 << (numberBits - 1)
)

// collective runs body, which makes a communicator, when those that were begun before it on c are over. If c's context
// ends before that, it returns the context's error and body is finished in the background, since the other ranks count
// on this one. ticket is the call's number, the same at all ranks, and tag that by which it is compared.
func (c *Comm) collective(kind creation, body func(ticket uint64, tag int32) error) error {
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
	done := c.inBackground(op, run)
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

// inBackground runs, on a goroutine of the library, what other ranks count on.
func (c *Comm) inBackground(op string, run func() error) (done <-chan error) {
	ended := make(chan error, 1)
	c.left.begin()
	c.setup.left.begin()
	c.setup.unended.begin(ended, op, c.Name())
	go func() {
		err := error(mpierr.New("", ErrOp, goexit))
		defer func() {
			c.setup.unended.end(ended, err)
			c.left.over()
			c.setup.left.over()
			ended <- err
		}()
		err = run()
	}()
	return ended
}

// leftBehind are the calls on a communicator that go on without their callers: if the context ends, or since they have
// returned a request.
type leftBehind struct {
	mu   sync.Mutex // guards what follows
	n    int
	then func() // what is to be done when n is 0; nil: nothing
}

func (l *leftBehind) begin() {
	l.mu.Lock()
	l.n++
	l.mu.Unlock()
}

// end returns what is to be done now, or nil.
func (l *leftBehind) end() (then func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n--; l.n == 0 {
		then, l.then = l.then, nil
	}
	return then
}

// over is end, and does it.
func (l *leftBehind) over() {
	if then := l.end(); then != nil {
		then()
	}
}

// whenOver does f when none goes on: now or later.
func (l *leftBehind) whenOver(f func()) {
	l.mu.Lock()
	if l.n > 0 {
		l.then, f = f, nil
	}
	l.mu.Unlock()
	if f != nil {
		f()
	}
}

// wait returns when none goes on.
func (l *leftBehind) wait() {
	over := make(chan struct{})
	l.whenOver(func() { close(over) })
	<-over
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

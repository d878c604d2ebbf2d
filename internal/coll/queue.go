package coll

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/agree"
)

// callQueue lets one call go on at a time, in the order in which the calls have joined.
type callQueue struct {
	state   atomic.Uint32 // queueTaken: a call has its turn; queueLook: there is more to do when it is over
	mu      sync.Mutex    // guards what follows, and is held by the caller that sets queueLook
	waiting []chan struct{}
	stop    func() // ends the call whose turn it is; nil: nothing can
	after   func() // is to be done when no call has its turn
}

const (
	queueTaken = 1 << iota
	queueLook
)

// join returns a channel that is closed when the caller has its turn; nil: the caller has it.
func (q *callQueue) join() <-chan struct{} {
	if q.state.CompareAndSwap(0, queueTaken) {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state.Or(queueTaken|queueLook)&queueTaken == 0 {
		return nil
	}
	turn := make(chan struct{})
	q.waiting = append(q.waiting, turn)
	return turn
}

// leave ends the caller's turn.
func (q *callQueue) leave() {
	if q.state.CompareAndSwap(queueTaken, 0) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		close(q.waiting[0])
		q.waiting = q.waiting[1:]
		return
	}
	if after := q.after; after != nil {
		q.after = nil
		after()
	}
	q.state.Store(0) // nothing else is to be done
}

// whenIdle does f when no call has its turn.
func (q *callQueue) whenIdle(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stop != nil {
		q.stop()
	}
	if q.after = f; q.state.Or(queueTaken|queueLook)&queueTaken == 0 {
		q.after = nil
		f()
		q.state.Store(0)
	}
}

// creations are the calls of a rank that make a communicator of this one. They follow each other.
type creations struct {
	callQueue
	order sync.Mutex // makes the calls compare in the order in which they have joined
	count uint64     // guarded by order
}

// Create runs body, which makes a communicator, when the creations that were begun before it on g are over. If ctx ends
// before that, Create returns its error and body is finished in the background, since the other ranks count on this
// one. number is the same at all ranks, and the call is compared by tag.
func (g *Group) Create(ctx context.Context, kind agree.Creation, body func(number uint64, tag int32) error) error {
	q := &g.creations
	turn, number, tag := q.enter(g)
	return g.RunDetached(ctx, kind.String(), func() error {
		if turn != nil {
			<-turn
		}
		defer q.leave()
		return body(number, tag)
	})
}

// InOrder runs body, which agrees with the other ranks, when the calls of InOrder that were begun before it on g are
// over. If ctx ends before that, it is as with Create.
func (g *Group) InOrder(ctx context.Context, op string, body func() error) error {
	turn := g.agreements.join()
	return g.RunDetached(ctx, op, func() error {
		if turn != nil {
			<-turn
		}
		defer g.agreements.leave()
		return body()
	})
}

// enter joins the queue. tag is 0 if calls are not compared.
func (q *creations) enter(g *Group) (turn <-chan struct{}, number uint64, tag int32) {
	q.order.Lock()
	defer q.order.Unlock()
	if q.count++; g.Setup.Check {
		tag = g.numbers.nextTag(Blocking)
	}
	return q.join(), q.count - 1, tag
}

// RunDetached runs what other ranks count on: if ctx ends, it is finished in the background. op is the call. A nil ctx
// does not end.
func (g *Group) RunDetached(ctx context.Context, op string, run func() error) error {
	if ctx == nil {
		return run()
	}
	done := g.InBackground(op, run)
	if err := ctx.Err(); err != nil {
		return err // also if run is done by now, where select would choose at random
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CallsBegun returns how many collective calls this rank has begun on g.
func (g *Group) CallsBegun() uint64 {
	g.creations.order.Lock()
	defer g.creations.order.Unlock()
	return g.creations.count + uint64(g.numbers.count.Load())
}

// SkipCalls counts n calls that are not made. All ranks do the same.
func (g *Group) SkipCalls(n uint32) { g.numbers.count.Add(n) }

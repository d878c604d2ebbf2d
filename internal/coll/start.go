package coll

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// A call that is not blocking hands its plan to the engine as a request of several rounds (pml.Rounds). The engine
// posts each round when the one before it is complete, whether or not a caller is in the library. The goroutine that
// waits for the request does the local steps, the operator included, or a goroutine that the library starts.
//
// With a context the rounds work on memory of the library: the first round copies the caller's buffers there, and the
// last one copies the result back. When the context ends the request does, but not within these two rounds.

// runningCall is the part of a plan that belongs to a call which is not blocking.
type runningCall struct {
	rounds        pml.Rounds
	ctx           context.Context // nil: no context ends the call
	way           Way
	phase         phase
	round         int                // the next one
	messages      []collectives.Step // of the round under way
	local         []collectives.Step
	inUse         atomic.Bool // from Begin to End: longer than the request is under way, if its context ends
	callerBuffers [][][]byte  // with a context, also of a blocking call: the caller's In and Out
	// hollow: this rank takes part without its elements, so what it receives is dropped, and the call takes no memory.
	hollow bool

	compared bool  // the ranks compare the call; what they have found is in the next two
	refused  error // the call is not made
	alone    error // a rank has failed, so other ranks may make the call or not; no caller waits for this one
}

// phase is what a call that is not blocking does next.
type phase uint8

const (
	phaseIn     phase = iota // the caller's buffers are copied or packed to the library's
	phaseRounds              // the schedule
	phaseOut                 // the result is copied or unpacked to the caller's buffers
	phaseEnd
)

// Perform makes a blocking call, whose buffers are in p, and gives p back. If ctx ends, the call is finished in the
// background on copies of the buffers, since the other ranks count on this one. A nil ctx does not end.
func (p *Plan) Perform(ctx context.Context) error {
	g, o := p.group, p.Operation
	var turn <-chan struct{}
	if p.ways != 0 {
		turn = g.Board.join() // before the number: see mismatchDetector.look
	}
	g.numbers.next(p, Blocking)
	var err error
	if ctx == nil {
		p.copyIn()
		if err = p.runBlocking(turn); err == nil {
			p.copyOut()
		}
		p.giveBack()
	} else {
		err = p.performDetached(ctx, turn)
	}
	if err != nil {
		return g.Wrap(Blocking.Call(o), ranks.Undefined, ranks.Undefined, err)
	}
	return nil
}

// Unable is the context of a call that this rank cannot make as its caller wants: a device that has the buffers has
// failed. Other ranks count on the call, so the rank makes it as one that has given up. It fails here with Why, and
// with an error at the ranks that need the elements of this one. The call takes no memory as long as its buffers. A
// call through a board changes them, also after its context has ended; they have the right lengths.
type Unable struct {
	context.Context // of the caller, or one that does not end
	Why             error
}

// unable returns why the rank cannot make a call with a context; nil: it can.
func unable(ctx context.Context) error {
	if u, ok := ctx.(*Unable); ok {
		return u.Why
	}
	return nil
}

// performDetached makes a call that ctx may end. Then p is not given back.
func (p *Plan) performDetached(ctx context.Context, turn <-chan struct{}) error {
	p.failed = unable(ctx)
	p.hollow = p.failed != nil
	p.useCopies()
	p.copyIn()
	err := p.group.RunDetached(ctx, Blocking.Call(p.Operation), func() error { return p.runBlocking(turn) })
	if err == nil {
		p.copyOut()
		p.giveBack()
	}
	return err
}

// runBlocking makes the call, through the board if it can and has its turn there, else by messages.
func (p *Plan) runBlocking(turn <-chan struct{}) error {
	if p.ways != 0 {
		return p.runQueued(turn)
	}
	return p.run()
}

// Start starts a nonblocking call, whose buffers are in p. If ctx ends the request does. The end of the call, which may
// be now, gives p back.
func (p *Plan) Start(ctx context.Context) *pml.Request {
	g := p.group
	p.prepare(ctx, Nonblocking)
	compared := p.compared // p may be another call's after the start
	r := p.rounds.Start(ctx, g.Engine)
	if compared {
		p.startComparing()
	}
	return r
}

// Prepare makes the request of a persistent call, whose buffers are in p.
func (p *Plan) Prepare(ctx context.Context) *pml.Request {
	p.prepare(ctx, Persistent)
	r := p.rounds.Prepare(ctx, p.group.Engine)
	if p.compared {
		p.startComparing()
	}
	return r
}

// Abandoned reports whether the call goes on without its caller. Then a persistent request cannot be started again.
func (p *Plan) Abandoned() bool {
	return p.inUse.Load() && (p.alone != nil || p.ctx != nil && p.ctx.Err() != nil)
}

// Release gives the plan of a persistent request back that is freed, unless something may still use it.
func (p *Plan) Release() {
	if !p.compared && !p.inUse.Load() {
		p.giveBack()
	}
}

// prepare readies p for calls.
func (p *Plan) prepare(ctx context.Context, w Way) {
	g := p.group
	p.hollow = unable(ctx) != nil
	p.build(p.algorithm)
	g.numbers.next(p, w)
	p.ctx, p.way = ctx, w
	p.compared, p.refused, p.alone = g.Setup.Check && g.Size > 1, nil, nil
	p.rounds.Set(p, g.context(), p.messageTag, p.compared)
	if ctx != nil {
		p.useCopies()
	}
}

// useCopies puts memory of the library in the place of the caller's buffers.
func (p *Plan) useCopies() {
	if p.hollow {
		return
	}
	for _, s := range []collectives.Space{collectives.In, collectives.Out} {
		p.callerBuffers = append(p.callerBuffers, slices.Clone(p.spaces[s]))
		for i, b := range p.spaces[s] {
			p.spaces[s][i] = aligned(len(b))
		}
	}
}

// copyIn copies the caller's data to where the schedule reads it.
func (p *Plan) copyIn() {
	p.pack()
	for s, blocks := range p.callerBuffers {
		for i, b := range blocks {
			copy(p.spaces[s][i], b)
		}
	}
}

// copyOut copies the result to the caller's buffers.
func (p *Plan) copyOut() {
	if p.Operation == collectives.Bcast && p.Root == p.params.Rank {
		return // it was only read, and others may read it at the same time
	}
	if p.callerBuffers != nil {
		for i, b := range p.callerBuffers[collectives.Out] {
			copy(b, p.spaces[collectives.Out][i])
		}
	}
	p.unpack()
}

// startComparing compares the ranks' calls before the first round, on a goroutine of the library. The context of the
// call may end, and a persistent call may never be started: then no caller waits for the comparison, and the end of the
// rank does.
func (p *Plan) startComparing() {
	if p.ctx != nil || p.way == Persistent {
		p.group.InBackground("", func() error {
			p.compareAndRelease()
			return nil
		})
		return
	}
	go p.compareAndRelease()
}

func (p *Plan) compareAndRelease() {
	p.refused, p.alone = p.compareCalls(p.way)
	p.rounds.Release(p.group.Engine)
}

// moved reports whether the schedule works on copies of the caller's buffers, or of some.
func (p *Plan) moved() bool { return p.callerBuffers != nil || len(p.scattered) > 0 }

// Begin implements pml.Script.
func (p *Plan) Begin() {
	p.round, p.failed = 0, nil
	if p.phase = phaseRounds; p.moved() {
		p.phase = phaseIn
	}
	p.inUse.Store(true)
	p.group.Background.Begin()
	if p.ctx != nil {
		p.failed = unable(p.ctx)
		p.group.Process.Open.Begin(p, p.way.Call(p.Operation), p.group.Name())
	}
}

// Next implements pml.Script.
func (p *Plan) Next(r *pml.Rounds) pml.RoundKind {
	switch {
	case p.phase == phaseIn:
		return pml.RoundMemory
	case r.Held():
		return pml.RoundHeld
	case p.phase == phaseEnd:
		return pml.RoundOver
	case p.alone != nil && p.failed == nil:
		p.failed = p.alone
		p.group.Process.Open.Begin(p, "", p.group.Name())
		r.Lose(p.group.Engine, p.alone)
	}
	if p.refused != nil || p.round == p.schedule.Rounds || callEnded(p.failed) {
		if p.phase = phaseEnd; !p.moved() || p.refused != nil || p.failed != nil || r.Lost() {
			return pml.RoundOver
		}
		p.phase = phaseOut
		return pml.RoundMemory
	}
	p.messages, p.local = p.schedule.Round(p.round)
	p.round++
	e := p.group.Engine
	for i := range p.messages {
		if m := &p.messages[i]; m.Kind == collectives.Recv {
			r.Recv(e, i, p.peer(m), p.into(m))
		}
	}
	if p.failed != nil && callEnded(p.failed) { // by a receive: what this rank would send says less than others hear
		return pml.RoundMessages
	}
	for i := range p.messages {
		if m := &p.messages[i]; m.Kind == collectives.Send {
			r.Send(e, i, p.peer(m), p.payload(m))
		}
	}
	if len(p.local) == 0 || p.failed != nil {
		return pml.RoundMessages
	}
	return pml.RoundWork
}

// Got implements pml.Script.
func (p *Plan) Got(i int, st pml.Status, err error) {
	if i >= 0 && p.messages[i].Kind == collectives.Recv {
		p.received(&p.messages[i], st, err)
	} else {
		p.sent(err)
	}
}

// Work implements pml.Script.
func (p *Plan) Work() {
	switch p.phase {
	case phaseIn:
		p.copyIn()
		p.phase = phaseRounds
	case phaseOut:
		p.phase = phaseEnd
		p.copyOut()
	default:
		if p.failed == nil {
			p.compute(p.local)
		}
	}
}

// End implements pml.Script.
func (p *Plan) End(lost bool) error {
	g, err := p.group, p.failed
	if p.refused != nil {
		err = p.refused
	}
	if p.ctx != nil || p.alone != nil {
		g.Process.Open.End(p, err)
	}
	own := p.way != Persistent
	if p.inUse.Store(false); own { // a persistent plan may belong to another call now: see Release
		p.giveBack()
	}
	if then := g.Background.End(); then != nil {
		go then() // it calls the engine
	}
	return err
}

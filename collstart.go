package mpi

import (
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/pml"
)

// A call that is not blocking hands its plan to the engine as a request of several rounds (pml.Rounds). The engine
// posts each round as the one before completes, whether or not a caller is in the library; local steps, the operator
// included, are done by the goroutine that waits for the request, or by one that the library starts.
//
// With a context the rounds work on memory of the library's own: the caller's buffers are copied there in the first
// round, and back in the last. When the context ends the request does, but not within these two.

// started is what a plan has of a call that is not blocking.
type started struct {
	rounds   pml.Rounds
	comm     *Comm
	way      way
	phase    phase
	round    int                // the next one
	messages []collectives.Step // of the one under way
	local    []collectives.Step
	goesOn   atomic.Bool // from Begin to End: longer than the request is under way, if its context ends
	theirs   [][][]byte  // with a context, also of a blocking call: the caller's In and Out

	// What the comparison of the ranks' calls has found.
	compared bool  // there is one
	refused  error // the call is not made
	alone    error // it is not known whether others make the call: a rank has failed. No caller waits for this one
}

// phase is what a call that is not blocking does next.
type phase uint8

const (
	phaseIn     phase = iota // the caller's buffers are copied or packed to the library's
	phaseRounds              // the schedule
	phaseOut                 // the result is copied or unpacked to the caller's buffers
	phaseOver
)

// start makes a nonblocking call, whose buffers are in p.
func (c *Comm) start(p *collPlan, err error) (*Request, error) {
	if err != nil {
		return nil, c.mistaken(nonblocking, err)
	}
	c = p.of(c)
	op := nonblocking.code(p.operation)
	return c.request(op, Undefined, Undefined, c.launch(p, nonblocking)), nil
}

// keep makes a request for a persistent call, whose buffers are in p.
func (c *Comm) keep(p *collPlan, err error) (*Request, error) {
	if err != nil {
		return nil, c.mistaken(persistent, err)
	}
	c = p.of(c)
	p.prepare(c, persistent)
	r := c.request(persistent.code(p.operation), Undefined, Undefined, p.rounds.Prepare(c.ctx, c.group.Engine))
	if r.plan = p; p.compared {
		p.startComparing()
	}
	return r, nil
}

// performApart makes a blocking call that a context may end: it is finished in the background then, since the other
// ranks count on this one. An operator that ends this goroutine leaves the call to its end too.
func (c *Comm) performApart(p *collPlan) error {
	over := c.ctx.Err()
	r, returned := c.launch(p, blocking), false
	defer func() {
		if !returned {
			r.Wait()
		}
	}()
	_, err := r.Wait()
	if returned = true; over == nil {
		return err
	}
	return over
}

// launch starts a call that is not persistent. It gives p back when it is over, which may be now.
func (c *Comm) launch(p *collPlan, w way) *pml.Request {
	p.prepare(c, w)
	compared := p.compared // p may be another call's after the start
	r := p.rounds.Start(c.ctx, c.group.Engine)
	if compared {
		p.startComparing()
	}
	return r
}

// prepare readies p for calls on c.
func (p *collPlan) prepare(c *Comm, w way) {
	p.build()
	c.colls.next(p, w)
	p.comm, p.way = c, w
	p.compared, p.refused, p.alone = c.setup.Check && c.group.Size > 1, nil, nil
	p.rounds.Set(p, c.group.Context+agree.CtxCollective, p.messageTag, p.compared)
	if c.ctx != nil {
		p.setApart()
	}
}

// setApart puts memory of the library's own in the place of the caller's buffers.
func (p *collPlan) setApart() {
	for _, s := range []collectives.Space{collectives.In, collectives.Out} {
		p.theirs = append(p.theirs, slices.Clone(p.spaces[s]))
		for i, b := range p.spaces[s] {
			p.spaces[s][i] = aligned(len(b))
		}
	}
}

// takeIn brings what the caller has to where the schedule has it, and takeOut the result back.
func (p *collPlan) takeIn() {
	p.pack()
	for s, blocks := range p.theirs {
		for i, b := range blocks {
			copy(p.spaces[s][i], b)
		}
	}
}

func (p *collPlan) takeOut() {
	if p.operation == collectives.Bcast && p.root == p.params.Rank {
		return // it was only read, and others may read it at the same time
	}
	if p.theirs != nil {
		for i, b := range p.theirs[collectives.Out] {
			copy(b, p.spaces[collectives.Out][i])
		}
	}
	p.unpack()
}

// startComparing compares the ranks' calls before the first round, on a goroutine of the library. If that may go on
// when no caller waits for the call, since its context ends or it is persistent and never started, it is none of the
// operations of callers that are under way at the end of the rank: that waits for it.
func (p *collPlan) startComparing() {
	if c := p.comm; c.ctx != nil || p.way == persistent {
		c.group.InBackground("", func() error {
			p.compare()
			return nil
		})
		return
	}
	go p.compare()
}

func (p *collPlan) compare() {
	c := p.comm
	p.refused, p.alone = c.compare(p, p.way)
	p.rounds.Release(c.group.Engine)
}

// startAgain is Start of a persistent call.
func (r *Request) startAgain() error {
	if err := r.comm.valid("Start"); err != nil {
		return err
	}
	if c := r.comm; r.plan.goesOn.Load() && (r.plan.alone != nil || c.ctx != nil && c.ctx.Err() != nil) {
		return c.collError("Start", ErrRequest, "the call before goes on without its caller, since a rank has failed "+
			"or the context has ended; make another request")
	}
	if err := r.request.Start(); err != nil {
		return r.misuse("Start", err)
	}
	return nil
}

// moved: the schedule has not the caller's buffers, or not all of them.
func (p *collPlan) moved() bool { return p.theirs != nil || len(p.scattered) > 0 }

// Begin implements pml.Script.
func (p *collPlan) Begin() {
	p.round, p.failed = 0, nil
	if p.phase = phaseRounds; p.moved() {
		p.phase = phaseIn
	}
	p.goesOn.Store(true)
	p.comm.group.Background.Begin()
	if c := p.comm; c.ctx != nil {
		c.group.Process.Open.Begin(p, p.way.call(p.operation), c.Name())
	}
}

// Next implements pml.Script.
func (p *collPlan) Next(r *pml.Rounds) pml.RoundKind {
	switch {
	case p.phase == phaseIn:
		return pml.RoundMemory
	case r.Held():
		return pml.RoundHeld
	case p.phase == phaseOver:
		return pml.RoundOver
	case p.alone != nil && p.failed == nil:
		p.failed = p.alone
		p.comm.group.Process.Open.Begin(p, "", p.comm.Name())
		r.Lose(p.comm.group.Engine, p.alone)
	}
	if p.refused != nil || p.round == p.schedule.Rounds || callOver(p.failed) {
		if p.phase = phaseOver; !p.moved() || p.refused != nil || p.failed != nil || r.Lost() {
			return pml.RoundOver
		}
		p.phase = phaseOut
		return pml.RoundMemory
	}
	p.messages, p.local = p.schedule.Round(p.round)
	p.round++
	e := p.comm.group.Engine
	for i := range p.messages {
		if m := &p.messages[i]; m.Kind == collectives.Recv {
			r.Recv(e, i, p.comm.group.ToWorld(int(m.Peer)), p.into(m))
		}
	}
	for i := range p.messages {
		if m := &p.messages[i]; m.Kind == collectives.Send {
			r.Send(e, i, p.comm.group.ToWorld(int(m.Peer)), p.payload(m))
		}
	}
	if len(p.local) == 0 || p.failed != nil {
		return pml.RoundMessages
	}
	return pml.RoundWork
}

// Got implements pml.Script.
func (p *collPlan) Got(i int, st pml.Status, err error) {
	if i >= 0 && p.messages[i].Kind == collectives.Recv {
		p.received(&p.messages[i], st, err)
	} else {
		p.sent(err)
	}
}

// Work implements pml.Script.
func (p *collPlan) Work() {
	switch p.phase {
	case phaseIn:
		p.takeIn()
		p.phase = phaseRounds
	case phaseOut:
		p.phase = phaseOver
		p.takeOut()
	default:
		if p.failed == nil {
			p.compute(p.local)
		}
	}
}

// End implements pml.Script.
func (p *collPlan) End(lost bool) error {
	c, err := p.comm, p.failed
	if p.refused != nil {
		err = p.refused
	}
	if c.ctx != nil || p.alone != nil {
		c.group.Process.Open.End(p, err)
	}
	mine := p.way != persistent
	if p.goesOn.Store(false); mine { // else Request.Free may give it to another call now
		c.colls.give(p)
	}
	if over := c.group.Background.End(); over != nil {
		go over() // it calls the engine
	}
	return err
}

package mpi

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/background"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
)

// planKey is what two calls that can use one plan have in common, but for the counts of the v forms.
type planKey struct {
	operation            collectives.Operation
	root                 int
	count, elemSize      int64
	element              *byte // typeOf the elements of a reduction; nil: only their size matters
	inPlace, commutative bool
	unattended           bool // the call is not blocking: ranks may compute meanwhile
}

// collPlan is a rank's schedule for one kind of call, and what running it needs. One call at a time owns it.
type collPlan struct {
	planKey
	params    collectives.Params
	algorithm *collectives.Algorithm
	builder   collectives.Builder
	schedule  *collectives.Schedule // the builder's; nil: no call has needed messages yet
	operator  combiner              // of a reduction
	ways      boardWays             // how a blocking call goes through the board

	// Of the call that owns the plan.
	over       *Comm                         // not nil: it runs on this one in the place of the caller's
	claimed    []claim                       // of a call with a root on an intercommunicator: what is compared
	tag        int32                         // by its number
	messageTag int32                         // by its number and its operation
	spaces     [collectives.Tmp + 1][][]byte // In and Out are the caller's buffers, or copies; Tmp is of scratch
	scratch    *scratch
	scattered  []scattered    // blocks that the schedule sees packed
	requests   []*pml.Request // of a round; nil between rounds
	failed     error          // why this rank has given up; nil: it has not

	typeName, operatorName string // with GORUN_COLL_CHECK: what the elements are, and how they are combined

	started // if it is not blocking
}

func newCollPlan(c *Comm, key *planKey, in, out []int64) *collPlan {
	p := &collPlan{planKey: *key, scratch: &c.setup.scratch}
	p.params = collectives.Params{Rank: c.group.Rank, Size: c.group.Size, Root: key.root, Count: key.count,
		ElemSize: key.elemSize,
		InPlace:  key.inPlace, Unattended: key.unattended, Commutative: key.commutative, InCounts: in, OutCounts: out,
		Hosts: c.hosts()}
	if c.groups != nil {
		p.params.Low = c.groups.low
	}
	if key.operation.Neighborhood() {
		p.params.Sources, p.params.Destinations = c.topo.neighbours(c.group.Rank)
		_, p.params.Cartesian = c.topo.(*cart)
	}
	p.params.Board = c.mayShare() && key.goesThroughSlots(c.group.Size)
	p.params.Reads = p.params.Board
	choose := func() { p.algorithm = c.setup.Choice.Algorithm(key.operation, &p.params, c.via()) }
	choose()
	// What stands in for the board combines in the same order.
	if p.ways.direct = p.algorithm.Needs&collectives.ReadsBuffers != 0; p.ways.direct {
		p.params.Reads, p.params.ByPairs = false, true
		choose()
	}
	if p.ways.shared = p.algorithm.Needs&collectives.OnBoard != 0; p.ways.shared {
		p.params.Board, p.params.ByPairs = false, true
		choose()
	}
	return p
}

// build readies p for messages: it makes the schedule, the first time, and takes what that combines in. A call through
// the board needs neither.
func (p *collPlan) build() {
	if p.schedule == nil {
		p.schedule = p.builder.Build(p.algorithm, &p.params)
		p.spaces[collectives.Tmp] = [][]byte{nil}
	}
	if tmp := p.spaces[collectives.Tmp]; int64(len(tmp[0])) != p.schedule.Tmp*p.elemSize {
		tmp[0] = p.scratch.take(int(p.schedule.Tmp * p.elemSize))
	}
}

// giveScratch gives back what build has taken, if it is long.
func (p *collPlan) giveScratch() {
	if tmp := p.spaces[collectives.Tmp]; len(tmp) > 0 && len(tmp[0]) > scratchLeast {
		p.scratch.give(tmp[0])
		tmp[0] = nil
	}
}

// of is the communicator that a call on c runs on.
func (p *collPlan) of(c *Comm) *Comm {
	if p.over != nil {
		return p.over
	}
	return c
}

// memory is about how many bytes the plan takes. No call uses it.
func (p *collPlan) memory() int64 {
	const step = 128
	if p.schedule == nil {
		return 0
	}
	return int64(len(p.spaces[collectives.Tmp][0])) + int64(p.schedule.Messages)*step
}

// at is the memory of n elements.
func (p *collPlan) at(r collectives.Ref, n int64) []byte {
	if n == 0 {
		return nil
	}
	return p.spaces[r.Space][r.Block][r.Off*p.elemSize : (r.Off+n)*p.elemSize]
}

// run makes the call. It returns when no message of it is under way here.
func (p *collPlan) run(c *Comm) error {
	if c.group.Size == 1 {
		p.failed = c.group.Engine.Closed() // there are no messages that would notice
	}
	if refused, alone := p.check(c); refused != nil {
		if alone {
			c.goOnAlone(p, refused)
		}
		return refused
	}
	return p.runByMessages(c)
}

// runByMessages is run without a comparison. Other ranks count on it, so it goes on to its end also where an operator
// ends the goroutine.
func (p *collPlan) runByMessages(c *Comm) error {
	p.build()
	p.round = 0
	defer p.runRest(c)
	p.runRounds(c)
	return p.failed
}

// runRest does what is left of the rounds if the operator has failed.
func (p *collPlan) runRest(c *Comm) {
	if p.round < p.schedule.Rounds && errors.Is(p.failed, ErrOp) {
		p.runRounds(c)
	}
}

func (p *collPlan) runRounds(c *Comm) {
	for p.round < p.schedule.Rounds {
		if callOver(p.failed) {
			break
		}
		messages, local := p.schedule.Round(p.round)
		p.round++
		p.exchange(c, messages)
		if p.failed == nil && len(local) > 0 {
			p.compute(local)
		}
	}
}

// check reports why the call is not made, if the ranks are to compare what they call. alone: others may make it all the
// same.
func (p *collPlan) check(c *Comm) (refused error, alone bool) {
	if !c.setup.Check || c.group.Size == 1 {
		return nil, false
	}
	refused, unknown := c.compare(p, blocking)
	if unknown != nil {
		return unknown, true
	}
	return refused, false
}

// into is where a message is received. What a rank that goes on alone receives is of no use.
func (p *collPlan) into(m *collectives.Step) []byte {
	if p.alone != nil {
		return nil
	}
	return p.at(m.Dst, m.Len)
}

// exchange does the messages of a round.
func (p *collPlan) exchange(c *Comm, messages []collectives.Step) {
	switch {
	case len(messages) == 0: // a round of local steps
	case len(messages) == 1 && messages[0].Kind == collectives.Send:
		m := &messages[0]
		p.sent(c.group.Engine.Send(nil, c.group.Context+agree.CtxCollective, c.group.ToWorld(int(m.Peer)), p.messageTag,
			p.payload(m), pml.Standard))
	case len(messages) == 1:
		m := &messages[0]
		st, err := c.group.Engine.Recv(nil, c.group.Context+agree.CtxCollective, c.group.ToWorld(int(m.Peer)),
			p.messageTag, p.into(m))
		p.received(m, st, err)
	case len(messages) == 2 && messages[0].Kind != messages[1].Kind:
		send, recv := &messages[0], &messages[1]
		if send.Kind == collectives.Recv {
			send, recv = recv, send
		}
		st, err := c.group.Engine.Sendrecv(nil, c.group.Context+agree.CtxCollective, c.group.ToWorld(int(send.Peer)),
			p.messageTag, p.payload(send),
			c.group.ToWorld(int(recv.Peer)), p.messageTag, p.into(recv))
		p.received(recv, st, err)
	default:
		p.exchangeAll(c, messages)
	}
}

// exchangeAll is exchange of any number of messages ≥ 1: first the receives are posted. The last send waits, as the
// caller would after it; so one of medium length may go the way that is quicker for a caller who waits.
func (p *collPlan) exchangeAll(c *Comm, messages []collectives.Step) {
	for i := range messages {
		if m := &messages[i]; m.Kind == collectives.Recv {
			p.requests = append(p.requests, c.group.Engine.Irecv(nil, c.group.Context+agree.CtxCollective,
				c.group.ToWorld(int(m.Peer)), p.messageTag,
				p.into(m)))
		}
	}
	last := len(messages) - 1
	for i := range messages[:last] {
		if m := &messages[i]; m.Kind == collectives.Send {
			p.requests = append(p.requests, c.group.Engine.Isend(nil, c.group.Context+agree.CtxCollective,
				c.group.ToWorld(int(m.Peer)), p.messageTag,
				p.payload(m), pml.Standard))
		}
	}
	var lastErr error
	if m := &messages[last]; m.Kind == collectives.Send {
		lastErr = c.group.Engine.Send(nil, c.group.Context+agree.CtxCollective, c.group.ToWorld(int(m.Peer)), p.messageTag,
			p.payload(m), pml.Standard)
	}
	next := 0
	for i := range messages {
		if m := &messages[i]; m.Kind == collectives.Recv {
			st, err := p.requests[next].Wait()
			p.received(m, st, err)
			next++
		}
	}
	for _, r := range p.requests[next:] {
		_, err := r.Wait()
		p.sent(err)
	}
	p.sent(lastErr)
	clear(p.requests)
	p.requests = p.requests[:0]
}

// gaveUp is what a rank that has given up sends where a signal is due. Where elements are due it sends none.
var gaveUp = []byte{0}

// giveUp sends what tells the others that this rank has given up. It waits for none of them.
func (p *collPlan) giveUp(c *Comm) {
	p.build()
	for i := range p.schedule.Rounds {
		messages, _ := p.schedule.Round(i)
		for k := range messages {
			if m := &messages[k]; m.Kind == collectives.Send {
				c.group.Engine.Send(nil, c.group.Context+agree.CtxCollective, c.group.ToWorld(int(m.Peer)), p.messageTag,
					p.payload(m), pml.Standard)
			}
		}
	}
}

// payload is what is sent for m.
func (p *collPlan) payload(m *collectives.Step) []byte {
	switch {
	case p.failed == nil:
		return p.at(m.Src, m.Len)
	case m.Len == 0:
		return gaveUp
	}
	return nil
}

func (p *collPlan) sent(err error) {
	if err != nil && p.failed == nil {
		p.failed = err
	}
}

func (p *collPlan) received(m *collectives.Step, st pml.Status, err error) {
	want := m.Len * p.elemSize
	if p.failed != nil || err == nil && st.Bytes == want {
		return
	}
	long := errors.Is(err, pml.ErrTruncate)
	switch {
	case err == nil && st.Bytes == 0, long && want == 0:
		p.failed = gaveUpError(p.named(m))
	case long:
		p.failed = mpierr.New("", ErrCount, "%s sends more than the %d bytes that are due here; %s", p.named(m), want,
			counts)
	case err == nil:
		p.failed = mpierr.New("", ErrCount, "%s sends %d bytes where %d are due; %s", p.named(m), st.Bytes, want, counts)
	default:
		p.failed = err
	}
}

// named is what the caller calls the other rank of a message. The ranks of an intercommunicator's calls are not seen.
func (p *collPlan) named(m *collectives.Step) string {
	if p.over != nil {
		return fmt.Sprintf("rank %d of the world", p.over.group.ToWorld(int(m.Peer)))
	}
	return fmt.Sprintf("rank %d", m.Peer)
}

const counts = "the counts of all ranks must go together; GORUN_COLL_CHECK=1 says what each calls"

// compute does the local steps of a round. An operator that panics ends the call, not the program.
func (p *collPlan) compute(local []collectives.Step) {
	returned := false
	defer p.operated(&returned)
	for i := range local {
		s := &local[i]
		dst, src := p.at(s.Dst, s.Len), p.at(s.Src, s.Len)
		if s.Kind == collectives.Copy {
			copy(dst, src)
			continue
		}
		with := p.at(s.With, s.Len)
		switch s.Dst {
		case s.With:
			p.operator.combine(with, src)
		case s.Src: // the operator commutes
			p.operator.combine(src, with)
		default:
			copy(dst, with)
			p.operator.combine(dst, src)
		}
	}
	returned = true
}

// operated is deferred where operators are called: the call fails if one has not returned.
func (p *collPlan) operated(returned *bool) {
	if *returned {
		return
	}
	if r := recover(); r != nil {
		p.failed = mpierr.New("", ErrOp, "the operator has panicked: %v\n%s", r, debug.Stack())
		return
	}
	p.failed = mpierr.New("", ErrOp, background.Goexit)
}

// combiner is an operator on memory.
type combiner interface {
	combine(inout, in []byte)
	forget()
}

// operatorOf is the operator of the call that owns the plan.
type operatorOf[T any] struct{ op Op[T] }

func (o *operatorOf[T]) forget() { o.op = nil }

func (o *operatorOf[T]) combine(inout, in []byte) {
	n := len(in) / sizeOf[T]()
	o.op(sliceOf[T](inout, n), sliceOf[T](in, n))
}

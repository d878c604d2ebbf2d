package coll

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
)

// run makes the call. It returns when no message of it is under way here.
func (p *Plan) run() error {
	if p.group.Size == 1 && p.failed == nil {
		p.failed = p.group.Engine.Closed() // there are no messages that would notice
	}
	if refused, alone := p.check(); refused != nil {
		if alone {
			p.continueAlone(p.algorithm, refused)
		}
		return refused
	}
	return p.runByMessages(p.algorithm)
}

// runByMessages is run without a comparison. Other ranks count on it, so it goes on to its end also where an operator
// ends the goroutine.
func (p *Plan) runByMessages(a *collectives.Algorithm) error {
	p.build(a)
	p.round = 0
	defer p.runRest()
	p.runRounds()
	return p.failed
}

// runRest does what is left of the rounds if the operator has failed.
func (p *Plan) runRest() {
	if p.round < p.schedule.Rounds && errors.Is(p.failed, mpierr.ErrOp) {
		p.runRounds()
	}
}

func (p *Plan) runRounds() {
	for p.round < p.schedule.Rounds {
		if callEnded(p.failed) {
			break
		}
		messages, local := p.schedule.Round(p.round)
		p.round++
		p.exchange(messages)
		if p.failed == nil && len(local) > 0 {
			p.compute(local)
		}
	}
}

// check reports why the call is not made, if the ranks are to compare what they call. alone: others may make it all the
// same.
func (p *Plan) check() (refused error, alone bool) {
	if !p.group.Setup.Check || p.group.Size == 1 {
		return nil, false
	}
	refused, unknown := p.compareCalls(Blocking)
	if unknown != nil {
		return unknown, true
	}
	return refused, false
}

// peer returns the other rank of a message in the world.
func (p *Plan) peer(m *collectives.Step) int { return p.group.ToWorld(int(m.Peer)) }

// into returns where a message is received. A rank that goes on alone drops what it receives, and so does one whose
// call is hollow.
func (p *Plan) into(m *collectives.Step) []byte {
	if p.alone != nil || p.hollow {
		return nil
	}
	return p.at(m.Dst, m.Len)
}

// exchange does the messages of a round.
func (p *Plan) exchange(messages []collectives.Step) {
	switch {
	case len(messages) == 0: // a round of local steps
	case len(messages) == 1 && messages[0].Kind == collectives.Send:
		m := &messages[0]
		p.sent(p.group.Engine.Send(nil, p.group.context(), p.peer(m), p.messageTag, p.payload(m), pml.Standard))
	case len(messages) == 1:
		m := &messages[0]
		st, err := p.group.Engine.Recv(nil, p.group.context(), p.peer(m), p.messageTag, p.into(m))
		p.received(m, st, err)
	case len(messages) == 2 && messages[0].Kind != messages[1].Kind:
		send, recv := &messages[0], &messages[1]
		if send.Kind == collectives.Recv {
			send, recv = recv, send
		}
		st, err := p.group.Engine.Sendrecv(nil, p.group.context(), p.peer(send), p.messageTag, p.payload(send),
			p.peer(recv), p.messageTag, p.into(recv))
		p.received(recv, st, err)
	default:
		p.exchangeAll(messages)
	}
}

// exchangeAll is exchange of any number of messages ≥ 1: first the receives are posted. The last send waits, as the
// caller would after it; so one of medium length may go the way that is quicker for a caller who waits.
func (p *Plan) exchangeAll(messages []collectives.Step) {
	for i := range messages {
		if m := &messages[i]; m.Kind == collectives.Recv {
			p.requests = append(p.requests, p.group.Engine.Irecv(nil, p.group.context(), p.peer(m), p.messageTag,
				p.into(m)))
		}
	}
	last := len(messages) - 1
	for i := range messages[:last] {
		if m := &messages[i]; m.Kind == collectives.Send {
			p.requests = append(p.requests, p.group.Engine.Isend(nil, p.group.context(), p.peer(m), p.messageTag,
				p.payload(m), pml.Standard))
		}
	}
	var lastErr error
	if m := &messages[last]; m.Kind == collectives.Send {
		lastErr = p.group.Engine.Send(nil, p.group.context(), p.peer(m), p.messageTag, p.payload(m), pml.Standard)
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

// gaveUp is sent by a rank that has given up where a signal is due. Where elements are due it sends none.
var gaveUp = []byte{0}

// giveUp tells the others in a call by messages that this rank has given up. It waits for none of them.
func (p *Plan) giveUp(a *collectives.Algorithm) {
	p.build(a)
	for i := range p.schedule.Rounds {
		messages, _ := p.schedule.Round(i)
		for k := range messages {
			if m := &messages[k]; m.Kind == collectives.Send {
				p.group.Engine.Send(nil, p.group.context(), p.peer(m), p.messageTag, p.payload(m), pml.Standard)
			}
		}
	}
}

// payload returns what is sent for m.
func (p *Plan) payload(m *collectives.Step) []byte {
	switch {
	case p.failed == nil:
		return p.at(m.Src, m.Len)
	case m.Len == 0:
		return gaveUp
	}
	return nil
}

func (p *Plan) sent(err error) {
	if err != nil && p.failed == nil {
		p.failed = err
	}
}

func (p *Plan) received(m *collectives.Step, st pml.Status, err error) {
	want := m.Len * p.ElemSize
	if p.failed != nil || err == nil && st.Bytes == want {
		return
	}
	long := errors.Is(err, pml.ErrTruncate)
	switch {
	case err == nil && st.Bytes == 0, long && want == 0:
		p.failed = gaveUpError(p.named(m))
	case long:
		p.failed = mpierr.New("", mpierr.ErrCount, "%s sends more than the %d bytes that are due here; %s", p.named(m),
			want, counts)
	case err == nil:
		p.failed = mpierr.New("", mpierr.ErrCount, "%s sends %d bytes where %d are due; %s", p.named(m), st.Bytes, want,
			counts)
	default:
		p.failed = err
	}
}

// named returns the caller's name of the other rank of a message. The caller does not see the ranks of the group on
// which a call on an intercommunicator runs.
func (p *Plan) named(m *collectives.Step) string {
	if p.group.Both != nil {
		return fmt.Sprintf("rank %d of the world", p.peer(m))
	}
	return fmt.Sprintf("rank %d", m.Peer)
}

const counts = "the counts of all ranks must go together; GORUN_COLL_CHECK=1 says what each calls"

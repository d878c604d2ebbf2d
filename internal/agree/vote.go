package agree

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// All ranks that make a communicator and live on come to one result: it is made at all of them, or at none.
//
// When they have agreed on a number, and each has all that it needs, they vote in a last round: Exchange.Vote. A rank
// that hears that all have voted yes has the communicator, and goes on. A rank whose way to the first one breaks, since
// a rank has died, does not know what others have heard. It asks the living rank that is lowest in the world, which
// asks all others. One that has heard a result says it. One that has not is bound: from now on it takes the word of
// the rank that has asked, or of a higher one, and no longer that of the round, which may still be on its way from a
// rank that has died. If no living rank has heard a result, no communicator is made.
//
// Ranks that have left the call answer all the same: a goroutine does that, from the first death on that a rank hears
// of, or the first ask. Until then a communicator costs a last round and a verdict. One result relies on this: a rank
// that is taken for dead is dead, and every rank hears of a death. With gorun that is so (see Engine.EnsureLink). Where
// it is not, each rank has some result all the same.

// outcome is what a rank knows about the communicator of a number.
type outcome struct {
	result Result
	bound  int32 // without a result: only the word of a rank with this ballot or a higher one counts
	why    error // the class of what has ended the round at the rank that has asked first; nil: none has
}

// Result is what has become of a communicator that ranks vote about.
type Result uint8

const (
	undecided Result = iota
	IsMade
	isRefused
	resultEnd
)

// The ballots of the round, of a rank of the world, and of a rank that knows that only its own result is possible.
const (
	BallotRound = 0
	ballotSure  = math.MaxInt32
)

// BallotOf is the ballot of a rank of the world.
func BallotOf(world int32) int32 { return world + 1 }

// Decide notes a result that has this ballot, and returns what holds: undecided if the ballot is too low.
func (x *ContextIDs) Decide(id uint32, ballot int32, r Result) Result {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	v := x.outcomes[id]
	if v.result == undecided && ballot >= v.bound {
		v.result = r
	}
	x.outcomes[id] = v
	return v.result
}

// bind returns the result. Without a result it binds this rank. why is the class of what has ended the round at the
// rank that asks.
func (x *ContextIDs) bind(id uint32, ballot int32, why error) Result {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	v := x.outcomes[id]
	v.bound, v.why = max(v.bound, ballot), cmp.Or(v.why, why)
	x.outcomes[id] = v
	return v.result
}

// boundBy is the class of what has ended the round elsewhere.
func (x *ContextIDs) boundBy(id uint32) error {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	return cmp.Or(x.outcomes[id].why, mpierr.ErrPeerFailed)
}

// Vote is the last round of the ranks that make a communicator with a number, or several that have it and no rank in
// common. no is why this rank votes against it.
func (m *Exchange) Vote(id uint32, no *Veto) *Veto {
	_, told := m.Round(0, nil, no, nil)
	if no != nil && told == nil {
		told = no
	}
	return m.conclude(id, no == nil && (told == nil || told.Alone), told, m.members)
}

// conclude is what follows from what this rank has been told. open: it has voted yes, and others may have heard that
// all have. voters are all ranks that vote.
func (m *Exchange) conclude(id uint32, open bool, told *Veto, voters *ranks.Set) *Veto {
	if !open {
		m.Group.Numbers.Decide(id, ballotSure, isRefused)
		return told
	}
	if told == nil && m.Group.Numbers.Decide(id, BallotRound, IsMade) == IsMade {
		return nil
	}
	why := m.Group.Numbers.boundBy(id)
	if told != nil {
		why = told.Class
	}
	if m.Group.resolve(id, voters, why) == IsMade {
		return nil
	}
	if told == nil {
		told = &Veto{Class: why, Text: fmt.Sprintf("not all ranks have heard that it is made: %v", why)}
	}
	return told
}

// Abandon refuses a number that this rank has claimed and others may use, with it as a member: what they send is
// dropped.
func (g *Group) Abandon(id uint32, senders *ranks.Set) {
	g.Numbers.Decide(id, ballotSure, isRefused)
	for ctx := range uint32(ContextsEach) {
		g.Engine.DropContext(id*ContextsEach+ctx, FreedError("communicator"))
	}
	g.Numbers.Release(id, senders)
}

// resolve finds the result by asking others. It returns when there is one at this rank. why is the class of what has
// ended the round.
func (g *Group) resolve(id uint32, voters *ranks.Set, why error) Result {
	var all []int32
	voters.All(func(world int32) bool {
		all = append(all, world)
		return true
	})
	slices.Sort(all)
	for _, world := range all {
		var r Result
		if world == g.WorldRank {
			r = g.poll(id, all, why)
		} else {
			r = g.Ask(world, id, 0, why, voters).AnswerOf(g, world, id)
		}
		if r != undecided {
			if r = g.Numbers.Decide(id, BallotOf(world), r); r != undecided {
				return r
			}
		}
	}
	return g.Numbers.Decide(id, ballotSure, isRefused)
}

// poll asks all others what they have heard, and binds them.
func (g *Group) poll(id uint32, all []int32, why error) Result {
	ballot := BallotOf(g.WorldRank)
	found := g.Numbers.bind(id, ballot, why)
	asked := map[int32]*question{}
	for _, world := range all {
		if world != g.WorldRank {
			asked[world] = g.Ask(world, id, ballot, why, ranks.Of())
		}
	}
	for world, q := range asked {
		if r := q.AnswerOf(g, world, id); found == undecided || r == IsMade {
			found = r
		}
	}
	if found == undecided {
		return isRefused
	}
	return found
}

// Asks go by the control context, and so do answers, whose tags tell of which number they are. An ask has the number,
// and the ballot to which a rank is bound; or 0, and who votes, for a rank that is to find the result. It has the class
// of what has ended the round at the rank that asked first: that need not be a failure.

// answerTag is the tag of answers to the asks of a number. A rank also tells itself by it that the communicator of the
// number has decided an agreement.
func answerTag(id uint32) int32 { return tagAnswers + int32(id%numbersAsked) }

// question is an ask that is under way.
type question struct {
	sent *pml.Request
	ctx  context.Context
	stop func()
}

// AnswerWithin is how long a rank is waited for that lives. One that computes answers if it has heard of a death. Where
// the launcher does not tell of them it may not have, and answers when it calls the library.
var AnswerWithin = 30 * time.Second

// Ask is synchronous: that starts what answers it.
func (g *Group) Ask(world int32, id uint32, ballot int32, why error, voters *ranks.Set) *question {
	ctx, stop := context.WithTimeout(context.Background(), AnswerWithin)
	b := AppendRanks(AppendInts(nil, askVote, int64(id), int64(ballot), int64(numberOf(why))), voters)
	return &question{g.Engine.Isend(ctx, control, int(world), tagAsk, b, pml.Synchronous), ctx, stop}
}

// AnswerOf is what a rank answers: undecided also if it dies.
func (q *question) AnswerOf(g *Group, world int32, id uint32) Result {
	defer q.stop()
	b := []byte{0}
	st, err := g.Engine.Recv(q.ctx, control, int(world), answerTag(id), b)
	if err != nil {
		q.stop() // else the ask is not taken back: what has come may be the answer to another one of this rank
	}
	q.sent.Wait()
	if err != nil || st.Bytes != 1 || Result(b[0]) >= resultEnd {
		return undecided
	}
	return Result(b[0])
}

// Serve starts what answers other ranks. g is the world.
func (g *Group) Serve() {
	g.Engine.SetConcern(g.Recovery.concern)
	g.Engine.StartServer(control, tagAsk, tagAnswers+numbersAsked-1, g.answer)
}

// answer answers what ranks ask, and hears of failures, until the engine is closed. g is the world.
func (g *Group) answer() {
	r := g.Recovery
	for {
		r.mu.Lock()
		out := r.learn()
		heard := len(r.losses)
		r.mu.Unlock()
		r.dispatch(out)
		if g.Engine.Serve(control, tagAsk, heard) != nil {
			return
		}
		if found, st, is, _ := g.Engine.Iprobe(control, pml.AnySource, tagAsk, true); is {
			g.receive(found, st)
		}
	}
}

// receive receives a message of the control context, and takes it. A goroutine is made only for one that is not here
// yet: a sender can keep back the rest of it. g is the world.
func (g *Group) receive(found *pml.Message, st pml.Status) {
	calls := &g.Process.Calls // else Finalize could take the receive for a caller's
	calls.Begin()
	defer func() {
		if then := calls.End(); then != nil {
			then()
		}
	}()
	b := make([]byte, min(st.Bytes, mostAsked(g.Size)))
	r, err := g.Engine.Imrecv(nil, found, b)
	if err != nil {
		return
	}
	done, _, err := r.Test()
	switch {
	case !done:
		g.InBackground("", func() error {
			if _, err := r.Wait(); err == nil {
				g.take(st.Source, b)
			}
			return nil
		})
	case err == nil:
		g.take(st.Source, b)
	}
}

// mostAsked is how many bytes a message of the control context has at most in a world of so many ranks. What is longer
// is received in part, and ignored.
func mostAsked(size int) int64 { return 128 + 16*int64(size) }

// take takes a message of the control context. g is the world.
func (g *Group) take(world int32, b []byte) {
	d := Decoder{B: b}
	if d.Int() == askVote && !d.Bad {
		g.InBackground("", func() error { // it may ask others
			g.answerTo(world, d.B)
			return nil
		})
	} else {
		g.Recovery.hear(world, b)
	}
}

func (g *Group) answerTo(world int32, ask []byte) {
	d := Decoder{B: ask}
	id, ballot := uint32(d.Within(0, math.MaxUint32)), int32(d.Within(0, int64(g.Size)))
	why := refused[d.Within(0, int64(len(refused)-1))]
	voters := d.Ranks(g.Size)
	if !d.Over() {
		return
	}
	var r Result
	if ballot != 0 {
		r = g.Numbers.bind(id, ballot, why)
	} else if r = g.Numbers.bind(id, 0, why); r == undecided && voters.Find(g.WorldRank) != ranks.Undefined {
		r = g.resolve(id, voters, why)
	}
	g.Engine.SendDetached(control, int(world), answerTag(id), []byte{byte(r)})
}

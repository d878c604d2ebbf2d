package mpi

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi/pml"
)

// All ranks that make a communicator and live on come to one result: it is made at all of them, or at none.
//
// When they have agreed on a number, and each has all that it needs, they vote in a last round: meeting.settle. A rank
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

// verdict is what a rank knows about the communicator of a number.
type verdict struct {
	result result
	bound  int32 // without a result: only the word of a rank with this ballot or a higher one counts
}

type result uint8

const (
	undecided result = iota
	isMade
	isRefused
	resultEnd
)

// Ballots: that of the round, of a rank of the world, and of one that knows that no result but its own can be.
const (
	ballotRound = 0
	ballotSure  = math.MaxInt32
)

func ballotOf(world int32) int32 { return world + 1 }

// decide notes a result that has this ballot, and returns what holds: undecided if the ballot is too low.
func (x *contextIDs) decide(id uint32, ballot int32, r result) result {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.verdict(id)
	if v.result == undecided && ballot >= v.bound {
		v.result = r
	}
	return v.result
}

// bind returns the result. If there is none it binds this rank.
func (x *contextIDs) bind(id uint32, ballot int32) result {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.verdict(id)
	v.bound = max(v.bound, ballot)
	return v.result
}

func (x *contextIDs) verdict(id uint32) *verdict {
	v := x.verdicts[id]
	if v == nil {
		v = &verdict{}
		x.verdicts[id] = v
	}
	return v
}

// settle is the last round of the ranks that make a communicator with a number, or several that have it and no rank in
// common. no is why this rank votes against it.
func (m *meeting) settle(id uint32, no *refusal) *refusal {
	_, told := m.round(0, nil, no, nil)
	if no != nil && told == nil {
		told = no
	}
	return m.conclude(id, no == nil && (told == nil || told.alone), told, m.members)
}

// conclude is what follows from what this rank has been told. open: it has voted yes, and others may have heard that
// all have. voters are all ranks that vote.
func (m *meeting) conclude(id uint32, open bool, told *refusal, voters *ranks) *refusal {
	if !open {
		m.c.ids.decide(id, ballotSure, isRefused)
		return told
	}
	if told == nil && m.c.ids.decide(id, ballotRound, isMade) == isMade {
		return nil
	}
	if m.c.resolve(id, voters) == isMade {
		return nil
	}
	if told == nil {
		told = &refusal{class: ErrPeerFailed, text: "a rank has failed before all ranks had heard that it is made"}
	}
	return told
}

// abandon refuses a number that this rank has claimed and others may use, with it as a member: what they send is
// dropped.
func (c *Comm) abandon(id uint32, senders *ranks) {
	c.ids.decide(id, ballotSure, isRefused)
	for ctx := range uint32(contextsEach) {
		c.eng.DropContext(id*contextsEach+ctx, freedError())
	}
	c.ids.release(id, senders)
}

// resolve finds the result by asking others. It returns when there is one at this rank.
func (c *Comm) resolve(id uint32, voters *ranks) result {
	var all []int32
	voters.all(func(world int32) bool {
		all = append(all, world)
		return true
	})
	slices.Sort(all)
	for _, world := range all {
		var r result
		if world == c.me {
			r = c.poll(id, all)
		} else {
			r = c.ask(world, id, 0, voters).answerOf(c, world, id)
		}
		if r != undecided {
			if r = c.ids.decide(id, ballotOf(world), r); r != undecided {
				return r
			}
		}
	}
	return c.ids.decide(id, ballotSure, isRefused)
}

// poll asks all others what they have heard, and binds them.
func (c *Comm) poll(id uint32, all []int32) result {
	ballot := ballotOf(c.me)
	found := c.ids.bind(id, ballot)
	asked := map[int32]*question{}
	for _, world := range all {
		if world != c.me {
			asked[world] = c.ask(world, id, ballot, ranksOf())
		}
	}
	for world, q := range asked {
		if r := q.answerOf(c, world, id); found == undecided || r == isMade {
			found = r
		}
	}
	if found == undecided {
		return isRefused
	}
	return found
}

// Asks go by the world's context of the library's own messages, and so do answers, whose tags tell of which number they
// are. An ask has the number, and the ballot to which a rank is bound; or 0, and who votes, for a rank that is to find
// the result.

func answerTag(id uint32) int32 { return tagAnswers + int32(id%numbersAsked) }

// question is an ask that is under way.
type question struct {
	sent *pml.Request
	ctx  context.Context
	stop func()
}

// answerWithin is how long a rank is waited for that lives. One that computes answers if it has heard of a death. Where
// the launcher does not tell of them it may not have, and answers when it calls the library.
var answerWithin = 30 * time.Second

// ask is synchronous: that starts what answers it.
func (c *Comm) ask(world int32, id uint32, ballot int32, voters *ranks) *question {
	ctx, stop := context.WithTimeout(context.Background(), answerWithin)
	b := appendRanks(appendInts(nil, int64(id), int64(ballot)), voters)
	return &question{c.eng.Isend(ctx, ctxCollective, int(world), tagAsk, b, pml.Synchronous), ctx, stop}
}

// answerOf is what a rank answers: undecided also if it dies.
func (q *question) answerOf(c *Comm, world int32, id uint32) result {
	defer q.stop()
	b := []byte{0}
	st, err := c.eng.Recv(q.ctx, ctxCollective, int(world), answerTag(id), b)
	if err != nil {
		q.stop() // else the ask is not taken back: what has come may be the answer to another one of this rank
	}
	q.sent.Wait()
	if err != nil || st.Bytes != 1 || result(b[0]) >= resultEnd {
		return undecided
	}
	return result(b[0])
}

// answer answers what ranks ask, until the engine is closed. c is the world.
func (c *Comm) answer() {
	for c.eng.Serve(ctxCollective, tagAsk) == nil {
		found, st, is, _ := c.eng.Iprobe(ctxCollective, pml.AnySource, tagAsk, true)
		if !is {
			continue
		}
		c.inBackground("", func() error {
			if b, err := receiveFound(c.eng, found, st.Bytes); err == nil {
				c.answerTo(st.Source, b)
			}
			return nil
		})
	}
}

func (c *Comm) answerTo(world int32, ask []byte) {
	d := decoder{b: ask}
	id, ballot := uint32(d.within(0, math.MaxUint32)), int32(d.within(0, int64(c.size)))
	voters := d.ranks(c.size)
	if !d.over() {
		return
	}
	var r result
	if ballot != 0 {
		r = c.ids.bind(id, ballot)
	} else if r = c.ids.bind(id, 0); r == undecided && voters.find(c.me) != Undefined {
		r = c.resolve(id, voters)
	}
	c.eng.SendDetached(ctxCollective, int(world), answerTag(id), []byte{byte(r)})
}

package mpi

import (
	"fmt"
	"strings"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/consensus"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Calls for programs that outlive ranks, in the manner of User-Level Failure Mitigation (ULFM) of the MPI Forum:
// docs/recovery.md.

const whyRevoked = "the communicator has been revoked, by Revoke at one of its ranks; " +
	"Shrink makes one of the ranks that live"

const whyRevokedWin = "the window has been revoked: a rank has failed, and another one has freed it; free it here too"

// publish lets other ranks reach c, which is complete, by what they say of failures.
func (c *commState) publish() {
	c.group.OnRevoke = c.revoke
	c.group.Publish()
}

// revoke ends all calls on c, now and later.
func (c *commState) revoke() {
	err := mpierr.New("", ErrRevoked, "%s", whyRevoked)
	if c.isWin {
		err = mpierr.New("", ErrRevoked, "%s", whyRevokedWin)
	}
	c.ended.Or(isRevoked)
	c.group.Engine.Revoke(c.group.Context, agree.ContextsEach, err)
	c.group.Revoke(err)
}

// Failed returns the ranks of c that have failed, as far as this rank has heard, in the order in which it has heard of
// them (ULFM: MPI_Comm_get_failed). A later result has the ranks of an earlier one first. Of an intercommunicator it
// has ranks of both groups. A rank that has returned or freed c counts as failed once an Agree or a Shrink has waited
// for it. Failed returns nil if c is nil.
func (c *Comm) Failed() *Group {
	if c == nil || c.commState == nil {
		return nil
	}
	var b ranks.Builder
	for _, world := range c.group.Failed() {
		b.AddRank(world)
	}
	return c.groupOf(b.Done())
}

// AckFailed acknowledges the first n ranks of Failed, or all if there are fewer, and returns how many are acknowledged
// (ULFM: MPI_Comm_ack_failed). A receive or a probe from AnySource then waits for the ranks that live: an acknowledged
// failure does not end it. Agree does not report failures that all ranks have acknowledged. A negative n is ErrCount.
func (c *Comm) AckFailed(n int) (int, error) {
	const op = "AckFailed"
	if h := c.hook(); h != nil {
		acked := 0
		err := h.observe(callOf(op, CallOther), func(c *Comm) (err error) {
			acked, err = c.AckFailed(n)
			return err
		})
		return acked, err
	}
	if err := c.exists(op); err != nil {
		return 0, err
	}
	if n < 0 {
		return 0, c.opError(op, ErrCount, "the number is %d; acknowledge 0 or more failures", n)
	}
	return c.group.AckFailed(n), nil
}

// Revoke ends all calls on c at all its ranks with ErrRevoked: calls and requests that are under way, and later ones
// (ULFM: MPI_Comm_revoke). One rank calls it, when its part of the program cannot go on and the other ranks may wait
// for it. Revoke returns when c is revoked here and another rank has heard of it; then all living ranks hear of it,
// also if the caller dies. If none hears of it within a second, it goes on in the background. A message that is being
// moved arrives, and its request ends with ErrRevoked.
//
// Agree, Shrink, Failed, AckFailed, Revoke, Free, and calls that need no other rank, such as Rank and Group, work on a
// revoked communicator. Windows, and communicators made from c, are not revoked with it.
func (c *Comm) Revoke() error {
	const op = "Revoke"
	if h := c.hook(); h != nil {
		return h.observe(callOf(op, CallOther), func(c *Comm) error { return c.Revoke() })
	}
	if err := c.exists(op); err != nil {
		return err
	}
	c.group.Group.Revoke()
	return nil
}

// Agree returns the bits that all living ranks of c give in flags (ULFM: MPI_Comm_agree). All of them call it, and get
// the same flags and an error or none alike, although ranks die during the call. The error is ErrPeerFailed, with the
// flags, if a rank has failed and a rank that lives has not acknowledged that (AckFailed). Agree works on a revoked
// communicator. Of an intercommunicator the ranks of both groups call it. If c's context ends first, Agree returns the
// context's error, and the call counts as in Barrier.
func (c *Comm) Agree(flags uint32) (uint32, error) {
	const op = "Agree"
	if h := c.hook(); h != nil {
		err := h.observe(callOf(op, CallCollective), func(c *Comm) (err error) {
			flags, err = c.Agree(flags)
			return err
		})
		return flags, err
	}
	if err := c.exists(op); err != nil {
		return 0, err
	}
	var result struct { // not used if a context ends the call
		consensus.Value
		err error
	}
	if err := c.group.InOrder(c.ctx, op, func() error {
		result.Value, result.err = c.group.Agree(consensus.Value{Flags: flags, Calls: agree.CallAgree})
		return nil
	}); err != nil {
		return 0, c.group.Wrap(op, Undefined, Undefined, err)
	}
	err := result.err
	switch {
	case err != nil:
		return 0, c.group.Wrap(op, Undefined, Undefined, err)
	case result.Calls != agree.CallAgree:
		err = agree.MixedCalls(result.Calls)
	case !result.Dead.Within(result.Acked):
		err = mpierr.New("", ErrPeerFailed, "%s failed, and not all ranks that live have acknowledged that; call AckFailed "+
			"and Agree again, or Shrink", theyHave(result.Dead))
	}
	return result.Flags, c.group.Wrap(op, Undefined, Undefined, err)
}

// theyHave names some of these ranks, as the beginning of a sentence.
func theyHave(set consensus.Set) string {
	const most = 8
	var names []string
	for rank := range set.All {
		if len(names) == most {
			names = append(names, "…")
			break
		}
		names = append(names, fmt.Sprint(rank))
	}
	if set.Len() == 1 {
		return "rank " + names[0] + " has"
	}
	return "ranks " + strings.Join(names, ", ") + " have"
}

// Shrink makes a communicator of the ranks of c that live, in the order of c (ULFM: MPI_Comm_shrink). All of them call
// it, and all get the communicator, although ranks die during the call. A rank that dies at the end of the call may
// still be in it. Shrink works on a revoked communicator, and that is its usual place. Of an intercommunicator it makes
// an intercommunicator, and is ErrPeerFailed if a group has no living rank. If c's context ends first, Shrink returns
// the context's error, and the call counts as in Barrier.
func (c *Comm) Shrink() (*Comm, error) {
	const op = "Shrink"
	if h := c.hook(); h != nil {
		return h.creates(op, func(c *Comm) (*Comm, error) { return c.Shrink() })
	}
	if err := c.exists(op); err != nil {
		return nil, err
	}
	var made handover
	fail := c.group.InOrder(c.ctx, op, func() error {
		v, err := c.renew(agree.CallShrink)
		if err != nil {
			return err
		}
		made.give(c.living(agree.MakeShrink, v))
		return nil
	})
	d, err := made.take(c, agree.MakeShrink, fail)
	if err == nil && d == nil {
		dead := mpierr.New("", ErrPeerFailed, "no rank of one of the two groups lives")
		err = c.group.Wrap(op, Undefined, Undefined, dead)
	}
	return d, err
}

// renew has the living ranks agree on who has died, and on a number and a name for a communicator in the place of c.
func (c *Comm) renew(call uint32) (consensus.Value, error) {
	v, err := c.group.Shrink(call, c.self.renewed.Load()+1)
	if err == nil {
		c.self.hasRenewed(v.Count)
	}
	return v, err
}

// hasRenewed notes how many calls of Shrink and Replace there have been.
func (s *selfComm) hasRenewed(count uint32) {
	for before := s.renewed.Load(); before < count && !s.renewed.CompareAndSwap(before, count); {
		before = s.renewed.Load()
	}
}

// living makes the communicator of the ranks of c that are not dead; nil: one of two groups has none.
func (c *Comm) living(kind agree.Creation, v consensus.Value) *Comm {
	alive := func(s *ranks.Set) *ranks.Set {
		var b ranks.Builder
		s.All(func(world int32) bool {
			if !v.Dead.Has(c.group.PlaceOf(world)) {
				b.AddRank(world)
			}
			return true
		})
		return b.Done()
	}
	local, remote := alive(c.group.Members()), (*ranks.Set)(nil)
	if c.IsInter() {
		if remote = alive(c.group.Peers); local.N == 0 || remote.N == 0 {
			c.group.Numbers.Release(v.Low, nil)
			return nil
		}
	}
	s := &commState{self: c.self}
	c.group.Derive(&s.group, local, v.Low)
	s.group.SetName(c.renewedName(kind, v.Count))
	if remote != nil {
		s.group.Join(local, remote)
	}
	return newComm(s, c.ctx)
}

package mpi

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Replace makes a communicator of the size and order of c, in which the ranks of c that live have their numbers, and
// new processes have the numbers of dead ranks. All living ranks of c call it, as Shrink, also on a revoked c. Replace
// starts the programs of the dead ranks again, with their arguments: in a new process the world of Main and of Init is
// the result of Replace, and Parent is nil. If no rank of c has failed, Replace starts none. When Replace succeeds it
// frees c, unless c is the world that Finalize frees. If a rank has returned, or has freed c, Replace starts none and
// is ErrUnavailable at all ranks: a new rank would do again what that one has done.
//
// The user of gorun allows N starts for the whole job by --respawn N; without it Replace is ErrUnavailable if a rank
// has failed. Where ranks cannot be started, or no more, it is ErrUnavailable or ErrSpawn, as Spawn is. If a rank dies
// during the call, an old one or a new one, it is ErrPeerFailed at all ranks, and the processes that were started end:
// call Replace on c again. Or the rank is in the new communicator, which then has a failed rank. If c's context ends
// first, Replace returns the context's error, and the call counts as in Barrier.
//
// Messages on the new communicator go as on the result of Spawn, and it goes together with the world in no call.
func (c *Comm) Replace() (*Comm, error) {
	const op = "Replace"
	if h := c.hook(); h != nil {
		return h.creates(op, func(c *Comm) (*Comm, error) { return c.Replace() })
	}
	if err := c.exists(op); err != nil {
		return nil, err
	}
	if c.IsInter() {
		return nil, c.opError(op, ErrComm, "this is an intercommunicator; call Replace on a communicator of one group")
	}
	var made handover
	err := c.group.InOrder(c.ctx, op, func() error {
		d, err := c.replace()
		if err == nil {
			made.give(d)
		}
		return err
	})
	d, err := made.take(c, agree.MakeReplace, err)
	if err == nil && c.group.Context != 0 && !c.alone {
		c.free()
	}
	return d, err
}

// replace has the living ranks agree on who has died, start as many processes, meet them, and agree on whether all
// have.
func (c *Comm) replace() (*Comm, error) {
	v, err := c.renew(agree.CallReplace)
	if err != nil {
		return nil, err
	}
	if v.Gone.Len() > 0 {
		c.group.Numbers.Release(v.Low, nil)
		return nil, mpierr.New("", ErrUnavailable, "%s returned or freed the communicator, and a new rank would do its part "+
			"again; have all ranks leave the loop alike, by an Agree behind the last step, or call Shrink", theyHave(v.Gone))
	}
	living := c.living(agree.MakeReplace, v)
	if v.Dead.Len() == 0 {
		return living, nil
	}
	name := living.Name()
	living.group.SetName(c.Name()) // errors name what the caller knows
	living.publish()
	defer living.free()
	s := &spawning{kind: agree.MakeReplace, n: v.Dead.Len(), args: os.Args[1:], origins: c.origins(),
		places: &join.Places{Ranks: slices.Collect(v.Dead.All), Name: name, Count: v.Count}}
	m := living.group.Exchange(s.kind)
	m.Name = func(i int) int { return c.group.RankOf(int32(living.group.ToWorld(i))) }
	d, err := s.runAlike(living, m)
	if err != nil {
		return nil, err
	}
	d.group.SetName(name)
	return d, nil
}

// takePlace is the part of a rank that Replace has started, in the world of both sides.
func takePlace(w *Comm, p *join.Port) (*Comm, error) {
	d := inPlaces(w, p, nil)
	if err := awaitParents(w, p); err != nil {
		return nil, fmt.Errorf("this rank does not take the place of rank %d, which has failed: %w", d.group.Rank, err)
	}
	d.group.SetName(p.Places.Name)
	d.self.hasRenewed(p.Places.Count)
	d.publish()
	return d, nil
}

// inPlaces is the communicator of a world in which the ranks that were started have places of others.
func inPlaces(w *Comm, p *join.Port, ctx context.Context) *Comm {
	var b ranks.Builder
	started := 0
	numbers := make([]int, p.Size)
	for place := range p.Size {
		number := p.Number(place - started)
		if started < len(p.Places.Ranks) && p.Places.Ranks[started] == place {
			number = p.Parents + started
			started++
		}
		b.AddRank(int32(number))
		numbers[place] = number
	}
	keepOrigins(w, p, numbers)
	s := &commState{self: w.self}
	w.group.Derive(&s.group, b.Done(), w.group.Numbers.Reserve(1)) // nothing else has been made of it
	return newComm(s, ctx)
}

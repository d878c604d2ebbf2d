package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/consensus"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Replace makes a communicator of the size and order of c, in which the ranks of c that live have their numbers, and
// new processes have the numbers of dead ranks. All living ranks of c call it, as Shrink, also on a revoked c. Replace
// starts the program of the lowest living rank again, with its arguments: in a new process the world of Main and of
// Init is the result of Replace, and Parent is nil. If no rank of c has failed, Replace starts none. When Replace
// succeeds it frees c, unless c is the world that Finalize frees.
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
	id, dead, err := c.group.Shrink(agree.CallReplace)
	if err != nil {
		return nil, err
	}
	living := c.living(id, dead)
	if dead.Len() == 0 {
		return living, nil
	}
	living.publish()
	defer living.free()
	s := &spawning{kind: agree.MakeReplace, n: dead.Len(), args: os.Args[1:], places: slices.Collect(dead.All),
		origins: c.origins()}
	m := living.group.Exchange(s.kind)
	d, no := s.run(living, m)
	if no != nil && no.Alone { // others may be in a round without this rank
		living.group.Group.Revoke()
	}
	all := consensus.Value{Calls: agree.CallReplace}
	if no == nil {
		all.Flags = 1
	}
	all, err = living.group.Agree(all)
	switch {
	case err != nil:
	case no != nil && no.Class != ErrRevoked:
		err = m.Failed(no)
	case no != nil || all.Flags == 0:
		err = mpierr.New("", ErrPeerFailed, "a rank has failed before all had met the ranks that were started; call "+
			"Replace again")
	default:
		_, err = s.world.group.Agree(consensus.Value{}) // the ranks that were started wait for this: takePlace
	}
	if err != nil {
		process.bridges.drop(s.world)
		return nil, err
	}
	d.group.SetName(fmt.Sprintf("%s.replaced%d", c.Name(), c.made.Add(1)))
	return d, nil
}

// takePlace is the part of a rank that Replace has started, in the world of both sides. It fails if no rank that has
// started it is left: all have given up, or have died.
func takePlace(w *Comm, p *join.Port) (*Comm, error) {
	d := inPlaces(w, p, nil)
	all, err := w.group.Agree(consensus.Value{})
	left := p.Parents
	for number := range all.Dead.All {
		if number < p.Parents {
			left--
		}
	}
	if err == nil && left == 0 {
		err = errors.New("the ranks that have started it have given up, or have failed")
	}
	if err != nil {
		process.bridges.drop(w)
		return nil, fmt.Errorf("this rank does not take the place of rank %d, which has failed: %w", d.group.Rank, err)
	}
	d.group.SetName("world")
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
		if started < len(p.Places) && p.Places[started] == place {
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

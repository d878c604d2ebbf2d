package mpi

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Intercomm makes an intercommunicator of c's group and a second group that has no rank in common with it; §7.6.2
// (MPI_Intercomm_create). In calls on it, ranks are ranks of the other group, as a master addresses workers. Every rank
// of both groups calls Intercomm: with its own group's communicator, and with the rank of its leader there. Each leader
// also gives peer, a communicator that contains both leaders, the rank of the other leader in peer, and a tag for their
// messages on peer. Other ranks may give a nil peer. Calls on peer at the same time that have a rank in common need
// different tags.
//
// A mistake of one caller is an error at both groups if a leader can detect it: the ranks of a group name different
// leaders, or a leader that does not exist; a leader names a rank that is not the leader of the other group, while that
// leader names it; or the groups have ranks in common. The tag must not be used again after such an error. Leaders
// cannot detect that neither names the other, that their tags differ, or that a leader never calls: a message to a rank
// may be for a later call of that rank. Such calls wait until a context ends or the named rank ends, as in other MPI
// libraries. After 64 calls on one peer that name a rank which cannot be a leader, the other group is no longer told.
//
// Point-to-point calls, WithContext, Free, Dup, Split and Merge work on an intercommunicator, and so do the collective
// calls except Scan, Exscan and those among neighbours, which are ErrComm; §6.2.3. Barrier waits for both groups. Calls
// with a root move data between one rank and the other group: root is mpi.Root at that rank, ProcNull at the other
// ranks of its group, whose buffers are not used, and that rank's number in the other group. In the other calls each
// group gets what the other group gives, and there is a block for each remote rank; lengths may differ between the two
// directions. ReduceScatter and ReduceScatterBlock combine the vectors of one group, and divide the result among the
// ranks of the other group: send is as long as the parts of the own group together. No call is in place.
func (c *Comm) Intercomm(leader int, peer *Comm, remote, tag int) (*Comm, error) {
	const op = "Intercomm"
	if h := c.hook(); h != nil {
		return h.creates(op, func(c *Comm) (*Comm, error) { return c.Intercomm(leader, peer.withoutHooks(), remote, tag) })
	}
	if err := c.intra(op); err != nil {
		return nil, err
	}
	var bad *Error
	if leader < 0 || leader >= c.group.Size {
		bad, leader = c.rankError(op, leader, false).(*Error), 0
	}
	b := &agree.Bridge{C: &c.group.Group, Tag: int32(tag)}
	wrong := peer.intra(op) // why this rank cannot reach the other group
	heard := false          // the other group can reach this rank all the same
	if wrong == nil {
		wrong = peer.checkBridge(op, remote, tag, c)
		heard = tag >= 0 && tag <= MaxTag
	}
	if bad == nil && leader == c.group.Rank {
		bad = wrong
	}
	return c.createOfBoth(b, agree.MakeIntercomm, nil, func(m *agree.Exchange, _ uint64, no *agree.Veto) *agree.Veto {
		if no == nil {
			no = m.SameLeader(leader, bad)
		}
		if !heard || (no == nil || wrong != nil || no.MaybeMade()) && leader != c.group.Rank {
			return no
		}
		b.Over, b.Remote = &peer.group.Group, Undefined
		if wrong == nil {
			b.Remote = peer.group.ToWorld(remote)
		}
		if no != nil {
			b.Refuse(m, no) // after a mistake also if it is not the leader here: that may be what they differ about
		}
		return no
	}, func(id uint32) *Comm {
		d := c.child(agree.MakeIntercomm, id, c.group.Members(), nil)
		d.group.Join(c.group.Members(), b.Far)
		return d
	})
}

// checkBridge is what is wrong with the leader that a rank of local names; a wrong tag goes first.
func (c *Comm) checkBridge(op string, remote, tag int, local *Comm) *Error {
	switch {
	case tag < 0 || tag > MaxTag:
		return mpierr.New(op, ErrTag, "the tag is %d; tags are 0 to %d", tag, MaxTag)
	case c.group.Engine != local.group.Engine:
		return mpierr.New(op, ErrComm, "%s, the communicator of both leaders, has ranks that Spawn has started, and the "+
			"other communicator was not made of it, or the other way round; use what Merge returns, or its parts", c.Name())
	case remote < 0 || remote >= c.group.Size:
		return c.rankError(op, remote, false).(*Error)
	case local.group.Members().Find(int32(c.group.ToWorld(remote))) != Undefined:
		return mpierr.New(op, ErrRank, "rank %d of %s, which is given as the leader of the other group, is in "+
			"the caller's own group; the groups have no rank in common", remote, c.Name())
	}
	return nil
}

// Merge makes a communicator of both groups of an intercommunicator; §7.6.2. Every rank of both groups calls it. The
// ranks of the group that gives high = false come first. If both groups give the same value, the group whose first rank
// is lower in the world comes first.
func (c *Comm) Merge(high bool) (*Comm, error) {
	const op = "Merge"
	if h := c.hook(); h != nil {
		return h.creates(op, func(c *Comm) (*Comm, error) { return c.Merge(high) })
	}
	if err := c.valid(op); err != nil {
		return nil, err
	}
	if c.group.Local == nil {
		return nil, c.opError(op, ErrComm, "this is no intercommunicator; its ranks are in one group already")
	}
	b := c.bridge()
	b.High = high
	return c.createOfBoth(b, agree.MakeMerge, fmt.Append(nil, high), func(m *agree.Exchange, number uint64,
		no *agree.Veto) *agree.Veto {
		return compareKinds(b, m, number, no, nil)
	}, func(id uint32) *Comm {
		first, second := c.group.Local, c.group.Peers
		if b.High && !b.FarHigh || b.High == b.FarHigh && first.At(0) > second.At(0) {
			first, second = second, first
		}
		return c.child(agree.MakeMerge, id, ranks.Of(slices.Concat(first.Runs, second.Runs)...), nil)
	})
}

// bridge is between the groups of the intercommunicator c, whose first ranks are the leaders.
func (c *Comm) bridge() *agree.Bridge {
	b := &agree.Bridge{C: &c.group.Group, Remote: c.group.Peers.At(0)}
	if c.group.Rank == 0 {
		b.Over = &c.group.Group
	}
	return b
}

// compareKinds is the first round of each call that makes a communicator of an intercommunicator, in which ranks of one
// group that call different ones hear of that. payload is Split's.
func compareKinds(b *agree.Bridge, m *agree.Exchange, number uint64, no *agree.Veto,
	payload agree.Payload,
) *agree.Veto {
	b.Tag = int32(number % MaxTag) // what a call has left behind that failed is not for the next one
	_, no = m.Round(0, nil, no, payload)
	return no
}

// dupInter is Dup of an intercommunicator.
func (c *Comm) dupInter() (*Comm, error) {
	if err := c.valid("Dup"); err != nil {
		return nil, err
	}
	b := c.bridge()
	return c.createOfBoth(b, agree.MakeDup, nil, func(m *agree.Exchange, number uint64, no *agree.Veto) *agree.Veto {
		return compareKinds(b, m, number, no, nil)
	}, func(id uint32) *Comm {
		d := c.child(agree.MakeDup, id, c.group.Local, nil)
		d.group.Join(c.group.Local, c.group.Peers)
		return d
	})
}

// splitInter is Split of an intercommunicator. Each group finds out which of its ranks have one color, and the leaders
// tell each other. All new communicators have one number, since they have no rank in common.
func (c *Comm) splitInter(bad *Error, color, key int) (*Comm, error) {
	if err := c.valid("Split"); err != nil {
		return nil, err
	}
	b, s := c.bridge(), agree.NewSplit(&c.group.Group, color, key)
	var far *ranks.Set // the ranks of the other group that give this rank's color
	b.TakeNote = func(table []byte) (ok bool) {
		far, ok = agree.ReadTable(table, int64(color), c.group.Peers, c.group.Engine.Size())
		return ok
	}
	return c.createOfBoth(b, agree.MakeSplit, nil, func(m *agree.Exchange, number uint64, no *agree.Veto) *agree.Veto {
		if no == nil {
			no = m.Refuse(bad)
		}
		if no = compareKinds(b, m, number, no, s); no == nil && c.group.Rank == 0 {
			b.Note = s.Table()
		}
		return no
	}, func(id uint32) *Comm {
		if color == Undefined || far == nil {
			c.group.Numbers.Release(id, nil) // other ranks have the number
			return nil
		}
		d := c.child(agree.MakeSplit, id, s.Members, nil)
		d.group.Join(s.Members, far)
		return d
	})
}

// RemoteSize returns the number of ranks in the remote group of an intercommunicator, otherwise 0; §7.6.1.
func (c *Comm) RemoteSize() int {
	if !c.IsInter() {
		return 0
	}
	return c.group.Size
}

// RemoteGroup returns the remote group of an intercommunicator, otherwise nil; §7.6.1.
func (c *Comm) RemoteGroup() *Group {
	if !c.IsInter() {
		return nil
	}
	return c.groupOf(c.group.Peers)
}

// createOfBoth makes a communicator of both groups of b. before is what the own group agrees upon first, unless its
// ranks do not call the same; it opens the way to the other group, or tells that why there will be nothing. It is given
// the call's number, which all ranks of both groups have on an intercommunicator.
// Each try is a round of each group, an exchange of the leaders, and a round in which each leader tells its group. So is
// the last vote.
func (c *Comm) createOfBoth(b *agree.Bridge, kind agree.Creation, args []byte, before func(m *agree.Exchange,
	number uint64, no *agree.Veto) *agree.Veto,
	child func(uint32) *Comm) (*Comm, error) {
	var made handover
	err := c.group.Create(c.ctx, kind, func(number uint64, tag int32) error {
		m := c.group.Exchange(kind)
		unlike := c.group.CompareCreation(kind, tag)
		no := before(m, number, unlike)
		if unlike != nil {
			return m.Failed(no)
		}
		id, no := b.Number(m, args, no)
		if no == nil {
			no = b.Vote(m, id)
		}
		if no != nil {
			return m.Failed(no)
		}
		made.give(child(id))
		return nil
	})
	return made.take(c, kind, err)
}

package mpi

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Intercomm makes an intercommunicator of c's group and another one that has no rank in common with it: ranks of calls
// on it are those of the other group, as a master has workers; §7.6.2 (MPI_Intercomm_create). Every rank of both groups
// calls it: each group with a communicator of its own and the rank of its leader there, and the leaders with a
// communicator peer in which both are, the rank of the other leader there, and a tag for what they say on it; other
// ranks may give a nil peer. Calls at one time on peer that have a rank in common have different tags.
//
// A mistake of one caller is an error at both groups where a leader can see it: the ranks of a group name different
// leaders, or one that cannot be; or one of the leaders names another rank than the other group's leader, which names
// it; or the groups have ranks in common. The tag is not to be used again then. Leaders neither of which names the
// other one, or that give different tags, are not seen, nor is a leader that never calls: what is said to a rank may be
// for a later call of it. Such calls wait until a context ends, or the rank that is named does, as they do in other
// MPI libraries. After 64 calls on one peer that name no rank which can be a leader the other group is told no more.
//
// Point-to-point calls, WithContext, Free and Merge work on it, and of the collective calls Barrier, Bcast, Gather and
// Allreduce; §6.2.3. Barrier waits for both groups. Bcast and Gather go from one rank to the other group, or to it from
// there: root is mpi.Root at that rank, ProcNull at the other ranks of its group, whose buffers are not used, and in
// the other group its rank. Allreduce gives each group what the ranks of the other have, combined. Other collective
// calls are ErrComm.
func (c *Comm) Intercomm(leader int, peer *Comm, remote, tag int) (*Comm, error) {
	const op = "Intercomm"
	if err := c.intra(op); err != nil {
		return nil, err
	}
	var bad *Error
	if leader < 0 || leader >= c.size {
		bad, leader = c.rankError(op, leader, false).(*Error), 0
	}
	b := &bridge{c: c, tag: int32(tag)}
	wrong := peer.intra(op) // why this rank cannot reach the other group
	heard := false          // the other group can reach this rank all the same
	if wrong == nil {
		wrong = peer.checkBridge(op, remote, tag, c.members())
		heard = tag >= 0 && tag <= MaxTag
	}
	if bad == nil && leader == c.rank {
		bad = wrong
	}
	return b.make(makeIntercomm, nil, func(m *meeting, _ uint64, no *refusal) *refusal {
		if no == nil {
			no = m.sameLeader(leader, bad)
		}
		if !heard || (no == nil || wrong != nil || no.maybeMade()) && leader != c.rank {
			return no
		}
		b.over, b.remote = peer, Undefined
		if wrong == nil {
			b.remote = peer.toWorld(remote)
		}
		if no != nil {
			b.refuse(m, no) // after a mistake also if it is not the leader here: that may be what they differ about
		}
		return no
	}, func(id uint32) *Comm {
		d := c.child(makeIntercomm, id, c.members(), nil)
		d.local, d.group, d.size = c.members(), b.far, int(b.far.N)
		d.groups = d.newGroups()
		return d
	})
}

// sameLeader sees that all ranks of a group give the same leader. bad is what is wrong with this rank's arguments.
func (m *meeting) sameLeader(leader int, bad *Error) *refusal {
	lead, no := m.round(uint32(leader), nil, m.refuse(bad), nil)
	if no == nil && int(lead) != leader {
		no = &refusal{class: ErrComm, text: fmt.Sprintf("rank %d gives %d as the leader, and another rank %d; all "+
			"give the same", m.c.rank, leader, lead)}
	}
	_, no = m.round(0, nil, no, nil)
	return no
}

// checkBridge is what is wrong with the leader that a rank of local names; a wrong tag goes first.
func (c *Comm) checkBridge(op string, remote, tag int, local *ranks.Set) *Error {
	switch {
	case tag < 0 || tag > MaxTag:
		return mpierr.New(op, ErrTag, "the tag is %d; tags are 0 to %d", tag, MaxTag)
	case remote < 0 || remote >= c.size:
		return c.rankError(op, remote, false).(*Error)
	case local.Find(int32(c.toWorld(remote))) != Undefined:
		return mpierr.New(op, ErrRank, "rank %d of %s, which is given as the leader of the other group, is in "+
			"the caller's own group; the groups have no rank in common", remote, c.Name())
	}
	return nil
}

// Merge makes a communicator of both groups of an intercommunicator; §7.6.2. Every rank of both groups calls it. The
// ranks of the group that gives high = false come first; if both give the same, those of the group whose first rank is
// lower in the world.
func (c *Comm) Merge(high bool) (*Comm, error) {
	const op = "Merge"
	if err := c.valid(op); err != nil {
		return nil, err
	}
	if c.local == nil {
		return nil, c.opError(op, ErrComm, "this is no intercommunicator; its ranks are in one group already")
	}
	b := &bridge{c: c, remote: c.group.At(0), high: high}
	if c.rank == 0 {
		b.over = c
	}
	return b.make(makeMerge, fmt.Append(nil, high), func(_ *meeting, ticket uint64, no *refusal) *refusal {
		b.tag = int32(ticket % MaxTag) // what a call has left behind that failed is not for the next one
		return no
	}, func(id uint32) *Comm {
		first, second := c.local, c.group
		if b.high && !b.farHigh || b.high == b.farHigh && first.At(0) > second.At(0) {
			first, second = second, first
		}
		return c.child(makeMerge, id, ranks.Of(slices.Concat(first.Runs, second.Runs)...), nil)
	})
}

// IsInter reports whether c is an intercommunicator; §7.6.1.
func (c *Comm) IsInter() bool { return c != nil && c.shared != nil && c.local != nil }

// RemoteSize is the number of ranks in the remote group, 0 if there is none; §7.6.1.
func (c *Comm) RemoteSize() int {
	if !c.IsInter() {
		return 0
	}
	return c.size
}

// RemoteGroup is the remote group of an intercommunicator, else nil; §7.6.1.
func (c *Comm) RemoteGroup() *Group {
	if !c.IsInter() {
		return nil
	}
	return c.groupOf(c.group)
}

// bridge is how two groups agree: each has a meeting of its own, and the leaders tell each other what has come of it.
type bridge struct {
	c             *Comm
	over          *Comm // where the leaders are; nil: this rank is none, or its caller has made a mistake
	remote        int   // the other leader, in the world
	tag           int32 // of what the leaders say
	high, farHigh bool
	far           *ranks.Set // the other group
}

// make makes a communicator of both groups. before is what the own group agrees upon first, unless its ranks do not
// call the same; it opens the way to the other group, or tells that why there will be nothing. It is given the call's
// number, which all ranks of both groups have on an intercommunicator.
// Each try is a round of each group, an exchange of the leaders, and a round in which each leader tells its group. So is
// the last vote.
func (b *bridge) make(kind creation, args []byte, before func(m *meeting, ticket uint64, no *refusal) *refusal,
	child func(uint32) *Comm) (*Comm, error) {
	c := b.c
	var made handover
	err := c.collective(kind, func(ticket uint64, tag int32) error {
		m := c.meet(kind)
		unlike := c.compareCreation(kind, tag)
		no := before(m, ticket, unlike)
		if unlike != nil {
			return m.failed(no)
		}
		id, no := b.number(m, args, no)
		if no == nil {
			no = b.settle(m, id)
		}
		if no != nil {
			return m.failed(no)
		}
		made.give(child(id))
		return nil
	})
	return made.take(c, kind, err)
}

func (b *bridge) number(m *meeting, args []byte, no *refusal) (uint32, *refusal) {
	a := agreement{meeting: m, want: 1, wrapped: true}
	return a.find(func(mine uint32) (uint32, *refusal) {
		free, other := m.round(mine, args, no, nil)
		args = nil // they are known
		if free, other = b.cross(m, free, other, true); other == nil {
			a.seed = uint32(m.members.At(0) ^ b.far.At(0)) // the same on both sides
		}
		return free, other
	}, func() *ranks.Set { return b.both(m) })
}

// both is the ranks of both groups, as far as they are known.
func (b *bridge) both(m *meeting) *ranks.Set {
	if b.far == nil {
		return m.members
	}
	return ranks.Of(slices.Concat(m.members.Runs, b.far.Runs)...)
}

// settle is meeting.settle of both groups: each votes in a round of its own, and the leaders tell each other.
func (b *bridge) settle(m *meeting, id uint32) *refusal {
	_, no := m.round(0, nil, nil, nil)
	_, told := b.cross(m, id, no, false)
	no = m.conclude(id, true, told, b.both(m)) // what this group has been told may not be what the other one has
	if no != nil {
		m.c.abandon(id, b.both(m))
	}
	return no
}

// cross lets both groups know the larger value of both, and which ranks are there. What the own group refuses the
// leader tells the other one: also after the exchange, if that will go on.
func (b *bridge) cross(m *meeting, value uint32, no *refusal, goesOn bool) (uint32, *refusal) {
	if b.over == nil {
		return m.round(0, nil, no, &leadersWord{b: b})
	}
	word, both, before := b.talk(m, value, no)
	value, no = m.round(both, nil, before, &leadersWord{b, word})
	if before == nil && no != nil && goesOn {
		b.leave(m, b.remote, no)
	}
	return value, no
}

// word is what a leader says to the other one.
func (b *bridge) word(m *meeting, value uint32, no *refusal) *word {
	high := int64(0)
	if b.high {
		high = 1
	}
	return &word{tag: b.tag, kind: m.kind, value: value, no: no, told: appendRanks(appendInts(nil, high), m.members)}
}

// talk exchanges with the other leader. told is what the group has to know of the other one.
func (b *bridge) talk(m *meeting, value uint32, no *refusal) (told []byte, _ uint32, _ *refusal) {
	w, other := b.exchange(m, b.word(m, value, no))
	if w != nil {
		told, value, b.far = w.told, max(value, w.value), w.far
	}
	if no == nil {
		no = other
	}
	if no == nil && overlap(m.members, b.far) {
		no = overlapping()
	}
	return told, value, no
}

func overlap(s, t *ranks.Set) (common bool) {
	s.All(func(w int32) bool {
		common = t.Find(w) != Undefined
		return !common
	})
	return common
}

// leadersWord is the gathering by which a leader tells its group who the other one is.
type leadersWord struct {
	b    *bridge
	word []byte // nil: not known here yet
}

func (l *leadersWord) take(_ int, d *decoder) *refusal {
	if b := d.bytes(); len(b) > 0 {
		l.word = b
	}
	return nil
}

func (l *leadersWord) up() []byte      { return appendBytes(nil, l.word) }
func (l *leadersWord) down(int) []byte { return l.up() }

func (l *leadersWord) decide() *refusal {
	if !l.read() {
		return &refusal{class: ErrAborted, text: "no rank has said who is in the other group"}
	}
	return nil
}

func (l *leadersWord) told(d *decoder) {
	l.word = d.bytes()
	d.bad = d.bad || !l.read()
}

// read reports whether the word is one.
func (l *leadersWord) read() bool {
	d := decoder{b: l.word}
	high, far := readTold(&d, l.b.c.eng.Size())
	if !d.over() || far.N == 0 {
		return false
	}
	l.b.farHigh, l.b.far = high, far
	return true
}

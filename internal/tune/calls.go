package tune

import (
	"fmt"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// operations are those that are measured.
var operations = []collectives.Operation{collectives.Barrier, collectives.Bcast, collectives.Reduce,
	collectives.Allreduce, collectives.Allgather, collectives.Alltoall}

const (
	leastBytes = 1 << 10
	mostBytes  = 1 << 20
	mostBuffer = 64 << 20 // of one rank, for each of what it sends and receives
	mostMemory = 4 << 30  // of all ranks, for each: -n 1000 would take the host's
)

// sizes are what one rank contributes, or has for each other rank, from 1 KiB to 1 MiB as far as the buffers allow; of
// a Barrier nothing.
func sizes(o collectives.Operation, ranks int, step int64) (all []int64) {
	if o == collectives.Barrier {
		return []int64{0}
	}
	for n := int64(leastBytes); n <= mostBytes; n *= step {
		if buffer(o, ranks, n) <= min(mostBuffer, mostMemory/int64(ranks)) {
			all = append(all, n)
		}
	}
	return all
}

// buffer is the length of the longest buffer of a call.
func buffer(o collectives.Operation, ranks int, n int64) int64 {
	if o == collectives.Allgather || o == collectives.Alltoall {
		return n * int64(ranks)
	}
	return n
}

// newGroup returns a communicator of all ranks with a choice of its own. It has its own boards and plans, so that no
// call of one group meets what another one keeps. number is another one for each group, and the same at all ranks.
func newGroup(m *join.Member, number int, choice collectives.Choice) *coll.Group {
	settings := coll.Settings(m.Collectives)
	settings.Choice, settings.Check = choice, false
	var world coll.Group
	world.InitWorld(m.Engine, m.Rank, m.Size, coll.NewSetup(m.Engine, settings), func(error) {})
	g := &coll.Group{}
	world.Derive(g, ranks.Of(ranks.Strided(0, 1, int32(m.Size))), uint32(number))
	g.SetName(fmt.Sprint("tune ", number))
	return g
}

// newControl returns the group for what the ranks agree on. Its barrier goes through a board if there can be one.
func newControl(m *join.Member) (*coll.Group, error) {
	choice, err := collectives.ParseChoice(collectives.Barrier.String() + ":shared")
	return newGroup(m, 1, choice), err
}

// newGroups returns the groups that are measured: two that choose by the table, and one for each place in the longest
// list of algorithms, for which the algorithm at that place of each operation has a line, as the file will have it.
func newGroups(m *join.Member, via, cpus string) (all []*coll.Group, err error) {
	longest := 0
	for _, o := range operations {
		longest = max(longest, len(collectives.Algorithms(o)))
	}
	for i := range tables + longest {
		var lines []collectives.Line
		for _, o := range operations {
			if list := collectives.Algorithms(o); i >= tables && i-tables < len(list) {
				lines = append(lines, collectives.Line{Operation: o.String(), Via: via, CPUs: cpus,
					Algorithm: list[i-tables].Name})
			}
		}
		var choice collectives.Choice
		if err := choice.Tune(lines); err != nil {
			return nil, err
		}
		all = append(all, newGroup(m, i+2, choice))
	}
	return all, nil
}

// call is one rank's part of a collective call, which it makes again and again.
type call struct {
	key        coll.Key
	send, recv []byte
}

// newCall returns the call of a rank. Rank 0 is the root.
func newCall(o collectives.Operation, n int64, rank, size int, send, recv []byte) call {
	c := call{key: coll.Key{Operation: o, Count: n, ElemSize: 1, Commutative: true}}
	all := n * int64(size)
	switch o {
	case collectives.Bcast:
		c.recv = recv[:n]
	case collectives.Reduce, collectives.Allreduce:
		c.key.Count, c.key.ElemSize = n/8, 8
		c.send, c.recv = send[:n], recv[:n]
		if o == collectives.Reduce && rank != 0 {
			c.recv = nil
		}
	case collectives.Allgather:
		c.send, c.recv = send[:n], recv[:all]
	case collectives.Alltoall:
		c.send, c.recv = send[:all], recv[:all]
	}
	return c
}

// perform makes the call on a group.
func (c *call) perform(g *coll.Group) error {
	key := c.key
	p := g.Plan(coll.Blocking, &key, nil, nil)
	if key.Operation == collectives.Reduce || key.Operation == collectives.Allreduce {
		p.Operator = sum{}
	}
	if key.Operation != collectives.Barrier {
		if key.Operation != collectives.Bcast {
			p.SetBuffer(collectives.In, c.send)
		}
		p.SetBuffer(collectives.Out, c.recv)
	}
	return p.Perform(nil)
}

// candidates are the places in the operation's list of algorithms that do the call, apart from the one that the table
// chooses. It is the same at all ranks.
func candidates(groups []*coll.Group, key *coll.Key, roomy bool) (places []int, chosen string) {
	for i, a := range collectives.Algorithms(key.Operation) {
		switch {
		case groups[0].Tries(key, roomy, a):
			chosen = a.Name
		case groups[tables+i].Tries(key, roomy, a):
			places = append(places, i)
		}
	}
	return places, chosen
}

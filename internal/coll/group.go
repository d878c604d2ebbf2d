package coll

import (
	"sync"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// Setup is how the ranks of a process make collective calls. All communicators of a rank share it.
type Setup struct {
	Settings
	via     collectives.Via
	scratch scratch
	choices choices
	Boards  BoardRoom
}

// Settings are the part of a Setup that the way into the job knows. They are the same at all ranks.
type Settings struct {
	Choice collectives.Choice
	Check  bool // ranks compare their calls
	// Hosts says which ranks of the world share a host. SharedMemory says that such ranks use it, if they can.
	Hosts        collectives.Hosts
	SharedMemory bool
}

// NewSetup returns the setup of a rank whose messages go through e.
func NewSetup(e *pml.Engine, s Settings) *Setup {
	setup := &Setup{Settings: s, via: collectives.Network}
	if t := e.Transport(); t == "shm" || t == "loop" && s.Hosts.Len() == 1 {
		setup.via = collectives.SharedMemory
	}
	return setup
}

// Group is a communicator, as its ranks make collective calls on it.
type Group struct {
	agree.Group
	Setup    *Setup
	Topology Topology // nil: none

	placement *placement
	numbers   callNumbers
	plans     planCache
	Board     boardState
	creations creations
	// agreements are the calls of Agree and Shrink, which go on when a creation cannot.
	agreements callQueue
	inter      *interGroups // of an intercommunicator; nil: of another communicator
	low        int          // ranks of the lower one of two groups; 0: there is one group
}

// Topology says which ranks are neighbours.
type Topology interface {
	// Neighbours returns the ranks from which a rank receives, and those to which it sends. A negative number stands
	// for no rank.
	Neighbours(rank int) (sources, destinations []int)
	Degree(rank int) (in, out int) // how many neighbours these are
	IsGrid() bool
}

// InitWorld makes g the world of a rank; e is nil in a test that sends nothing.
func (g *Group) InitWorld(e *pml.Engine, rank, size int, setup *Setup, heard func(error)) {
	g.Group.InitWorld(e, rank, size, heard)
	g.Setup, g.placement = setup, &placement{hosts: setup.Hosts}
	g.MakeKnown(&g.numbers.count)
}

// Derive makes d a communicator of some ranks of g, with a number on which they have agreed. d has no name yet.
func (g *Group) Derive(d *Group, members *ranks.Set, id uint32) {
	g.Group.Derive(&d.Group, members, id)
	d.Setup, d.placement = g.Setup, &placement{}
	d.MakeKnown(&d.numbers.count)
}

// Duplicate gives d, which has the ranks of g, their order, topology and hosts.
func (g *Group) Duplicate(d *Group) {
	d.Peers, d.Topology, d.placement = g.Peers, g.Topology, g.placement
}

// Free gives up the board and the plans when no call uses them.
func (g *Group) Free() {
	g.closeBoard()
	g.plans.close()
}

// placement says which ranks of a communicator share a host. It follows from the world's hosts, which are the same at
// all ranks, and from the group. Communicators with one group have one placement.
type placement struct {
	once  sync.Once
	hosts collectives.Hosts // after once; the world has it from the beginning
}

// Host returns a number that all ranks of this host have, and no others.
func (g *Group) Host() int { return g.Setup.Hosts.Host(int(g.WorldRank)) }

// Hosts says which ranks of the communicator share a host; of an intercommunicator, of the remote group.
func (g *Group) Hosts() collectives.Hosts {
	p := g.placement
	p.once.Do(func() {
		switch {
		case p.hosts != nil:
		case g.Peers == nil:
			p.hosts = g.Setup.Hosts
		default:
			p.hosts = collectives.HostsOf(g.Size, func(rank int) int { return g.Setup.Hosts.Host(g.Peers.At(rank)) })
		}
	})
	return p.hosts
}

// Via returns what most messages of the communicator go over.
func (g *Group) Via() collectives.Via {
	if g.Setup.via == collectives.SharedMemory || g.Setup.SharedMemory && g.Hosts().Len() == 1 {
		return collectives.SharedMemory
	}
	return collectives.Network
}

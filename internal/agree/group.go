package agree

import (
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/background"
	"github.com/gorun-mpi/mpi/internal/consensus"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// Group is a communicator, as its ranks agree on another one: its ranks, how messages go to them, and its name.
type Group struct {
	label     *atomic.Pointer[string] // its name, which SetName changes; an intercommunicator shares it with its parts
	Engine    *pml.Engine
	Rank      int   // of the caller, in the communicator
	WorldRank int32 // and in the world
	// Size is the number of ranks that messages go to and come from: the ranks of the communicator, or the remote ranks
	// of an intercommunicator.
	Size  int
	Peers *ranks.Set // they, in the world; nil: the same numbers
	Local *ranks.Set // of an intercommunicator, the ranks of this side; nil: it is none
	// Both has the ranks of both sides: of an intercommunicator, and of a group of its ranks on which a collective call
	// runs; nil: it is neither.
	Both *Group

	// Context is the context of point-to-point messages, Context+1 the context of the library's own messages; see
	// ContextIDs. No two communicators of this rank have the same Context at the same time.
	Context uint32
	Numbers *ContextIDs

	Recovery *Recovery                     // of the rank
	OnRevoke func()                        // ends all calls on the communicator; nil: there is nothing to end
	acked    atomic.Pointer[consensus.Set] // the ranks whose failures the caller has acknowledged
	gone     atomic.Bool                   // it has been freed

	Background *background.Calls   // the calls on the communicator that go on without their callers
	Process    *background.Process // those on all communicators of the rank
	Heard      func(error)         // is called with each error that a call is about to return

	// The creations of communicators, which follow each other, guard these two. They are the same at all ranks: the
	// number to try for a communicator made of this one, and in how many creations recycle is not worth while.
	Next   uint32
	barren int

	Inbox leaderInbox // what leaders of other groups say here: see bridge
}

// InitWorld makes g the world of a rank, which has one of its own for each rank of RunLocal.
func (g *Group) InitWorld(e *pml.Engine, rank, size int, heard func(error)) {
	g.Engine, g.Rank, g.WorldRank, g.Size, g.Numbers, g.Next = e, rank, int32(rank), size, NewContextIDs(), 1
	g.Background, g.Process, g.Heard = &background.Calls{}, &background.Process{}, heard
	g.label, g.Recovery = &atomic.Pointer[string]{}, newRecovery(g)
	g.SetName("world")
}

// Derive makes d a communicator of some ranks of g, with a number that they have agreed upon. It has no name yet.
func (g *Group) Derive(d *Group, members *ranks.Set, id uint32) {
	d.Engine, d.Rank, d.WorldRank, d.Size = g.Engine, members.Find(g.WorldRank), g.WorldRank, int(members.N)
	d.Context, d.Numbers, d.Next = id*ContextsEach, g.Numbers, id+1
	d.Background, d.Process, d.Heard, d.Recovery = &background.Calls{}, g.Process, g.Heard, g.Recovery
	d.label = &atomic.Pointer[string]{}
	if d.Peers = members; g.Peers == nil && d.Size == g.Size && members.Identity() {
		d.Peers = nil
	}
}

// DerivePart makes d some ranks of the intercommunicator g, with the contexts and the name of that.
func (g *Group) DerivePart(d *Group, members *ranks.Set) {
	d.Engine, d.Rank, d.WorldRank, d.Size, d.Peers = g.Engine, members.Find(g.WorldRank), g.WorldRank, int(members.N),
		members
	d.Context, d.Numbers, d.Background, d.Process, d.Heard = g.Context, g.Numbers, g.Background, g.Process, g.Heard
	d.label, d.Recovery = g.label, g.Recovery
}

// Name is what errors and logs call the communicator.
func (g *Group) Name() string { return *g.label.Load() }

// SetName names it.
func (g *Group) SetName(name string) { g.label.Store(&name) }

// InBackground runs, on a goroutine of the library, what other ranks count on. op is the call.
func (g *Group) InBackground(op string, run func() error) (done <-chan error) {
	return g.Process.Run(g.Background, op, g.Name(), run)
}

// ToWorld translates a rank of this communicator, or a wildcard.
func (g *Group) ToWorld(rank int) int {
	if g.Peers == nil || rank < 0 {
		return rank
	}
	return g.Peers.At(rank)
}

// RankOf translates a rank of the world, or a wildcard, into one of this communicator.
func (g *Group) RankOf(world int32) int {
	if g.Peers == nil || world < 0 {
		return int(world)
	}
	return g.Peers.Find(world)
}

// Members returns the ranks of the communicator, or of an intercommunicator's local group, as ranks of the world.
func (g *Group) Members() *ranks.Set {
	switch {
	case g.Local != nil:
		return g.Local
	case g.Peers == nil:
		return ranks.Of(ranks.Strided(0, 1, int32(g.Size)))
	}
	return g.Peers
}

// Senders are all ranks that can have sent on the communicator.
func (g *Group) Senders() *ranks.Set {
	if g.Local == nil {
		return g.Members()
	}
	return ranks.Of(slices.Concat(g.Local.Runs, g.Peers.Runs)...)
}

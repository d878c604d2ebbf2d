package coll

import (
	"runtime/debug"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/background"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
)

// Key is what two calls that can use one plan have in common, except the counts of the v forms.
type Key struct {
	Operation            collectives.Operation
	Root                 int
	Count, ElemSize      int64
	Element              *byte // the type of the elements of a reduction; nil: only their size matters
	InPlace, Commutative bool
	unattended           bool // the call is not blocking: ranks may compute meanwhile
}

// Plan is a rank's schedule for one kind of call, and what running it needs. One call at a time owns it.
type Plan struct {
	Key
	group     *Group // on which the call runs
	params    collectives.Params
	algorithm *collectives.Algorithm // of calls by messages
	roomy     *collectives.Algorithm // of blocking ones, if the ranks have a board and are roomy
	ways      boardWays              // how a blocking call goes through the board
	builder   collectives.Builder
	built     *collectives.Algorithm // of the schedule; nil: no call has needed messages yet
	schedule  *collectives.Schedule  // the builder's
	Operator  Operator               // of a reduction

	// Of the call that owns the plan.
	attributes []attribute                   // of a call with a root on an intercommunicator: what is compared
	tag        int32                         // by its number
	messageTag int32                         // by its number and its operation
	spaces     [collectives.Tmp + 1][][]byte // In and Out are the caller's buffers, or copies; Tmp is from scratch
	scratch    *scratch
	scattered  []scattered    // blocks that the schedule sees packed
	requests   []*pml.Request // of a round; nil between rounds
	failed     error          // why this rank has given up; nil: it has not

	TypeName, OperatorName string // with GORUN_COLL_CHECK: what the elements are, and how they are combined

	runningCall // if it is not blocking
}

func newPlan(g *Group, key *Key, in, out []int64) *Plan {
	p := &Plan{Key: *key, group: g, scratch: &g.Setup.scratch}
	p.params = collectives.Params{Rank: g.Rank, Size: g.Size, Root: key.Root, Count: key.Count,
		ElemSize: key.ElemSize, InPlace: key.InPlace, Unattended: key.unattended, Commutative: key.Commutative,
		InCounts: in, OutCounts: out, Hosts: g.Hosts(), Low: g.low}
	if key.Operation.Neighborhood() {
		p.params.Sources, p.params.Destinations = g.Topology.Neighbours(g.Rank)
		p.params.Cartesian = g.Topology.IsGrid()
	}
	p.params.Board = g.mayHaveBoard() && key.goesThroughSlots(g.Size)
	p.choose()
	return p
}

// choose chooses how the call is made. Whether ranks are roomy they know when they have a board, and the plan may be
// older. So it has both choices, of which runQueued takes one when the call has its turn. A plan of a call that never
// goes through a board has the choice of crowded ranks alone.
func (p *Plan) choose() {
	p.ways, p.algorithm = p.chosen(false)
	p.roomy = p.algorithm
	if !p.params.Board || p.unattended {
		return
	}
	pairs := p.params.ByPairs
	ways, roomy := p.chosen(true)
	if p.params.ByPairs != pairs {
		_, p.algorithm = p.chosen(false)
	}
	if p.roomy = roomy; roomy != p.algorithm {
		p.ways |= eitherMessages
	}
	p.ways |= ways << roomyShift
}

// chosen returns the ways through a board that the table has for ranks that are roomy or not, and the algorithm that
// takes their place where they are not possible. That one combines in the same order, so all ways do.
func (p *Plan) chosen(roomy bool) (ways boardWays, a *collectives.Algorithm) {
	g, q := p.group, p.params
	q.Reads, q.Roomy = q.Board, roomy
	choose := func() { a = g.Setup.Choice.Algorithm(p.Operation, &q, g.Via()) }
	if choose(); a.Needs&collectives.ReadsBuffers != 0 {
		ways |= direct
		q.Reads, q.ByPairs = false, true
		choose()
	}
	if a.Needs&collectives.OnBoard != 0 {
		ways |= shared
		q.Board, q.ByPairs = false, true
		choose()
	}
	p.params.ByPairs = q.ByPairs
	return ways, a
}

// names returns the names of the algorithms of a call that is made in way w.
func (p *Plan) names(w Way) string {
	if w != Blocking {
		return p.algorithm.Name
	}
	crowded, roomy := p.ways.named(p.algorithm.Name), (p.ways >> roomyShift).named(p.roomy.Name)
	if crowded == roomy {
		return crowded
	}
	return crowded + ", of roomy ranks " + roomy
}

// Algorithm returns the name of the algorithm by which a call is made that goes by messages.
func (g *Group) Algorithm(key *Key) string { return newPlan(g, key, nil, nil).algorithm.Name }

// Roomy reports whether the ranks have a board, and have agreed there that they do not outnumber the CPUs.
func (g *Group) Roomy() bool { return !g.Board.crowded() }

// Tries reports whether a blocking call of ranks that have a board, and are roomy or not, is first tried by an
// algorithm.
func (g *Group) Tries(key *Key, roomy bool, a *collectives.Algorithm) bool {
	p := newPlan(g, key, nil, nil)
	ways, messages := p.ways, p.algorithm
	if roomy {
		ways, messages = p.ways>>roomyShift, p.roomy
	}
	switch {
	case ways&direct != 0:
		return a.Needs&collectives.ReadsBuffers != 0
	case ways&shared != 0:
		return a.Needs&collectives.OnBoard != 0 && a.Needs&collectives.ReadsBuffers == 0
	}
	return a == messages
}

// build readies p for messages: it makes the schedule of a, if p does not have it, and takes the memory in which that
// combines, unless the call is hollow. A call through the board needs neither.
func (p *Plan) build(a *collectives.Algorithm) {
	if p.built != a {
		p.built, p.schedule = a, p.builder.Build(a, &p.params)
		p.spaces[collectives.Tmp] = [][]byte{nil}
	}
	if tmp := p.spaces[collectives.Tmp]; !p.hollow && int64(len(tmp[0])) != p.schedule.Tmp*p.ElemSize {
		tmp[0] = p.scratch.take(int(p.schedule.Tmp * p.ElemSize))
	}
}

// returnScratch gives back the memory that build has taken, if it is long.
func (p *Plan) returnScratch() {
	if tmp := p.spaces[collectives.Tmp]; len(tmp) > 0 && len(tmp[0]) > scratchLeast {
		p.scratch.give(tmp[0])
		tmp[0] = nil
	}
}

// memory returns about how many bytes a plan takes that no call uses.
func (p *Plan) memory() int64 {
	const step = 128
	if p.schedule == nil {
		return 0
	}
	return int64(len(p.spaces[collectives.Tmp][0])) + int64(p.schedule.Messages)*step
}

// at returns the memory of n elements.
func (p *Plan) at(r collectives.Ref, n int64) []byte {
	if n == 0 {
		return nil
	}
	return p.spaces[r.Space][r.Block][r.Off*p.ElemSize : (r.Off+n)*p.ElemSize]
}

// compute does the local steps of a round. An operator that panics ends the call, not the program.
func (p *Plan) compute(local []collectives.Step) {
	returned := false
	defer p.operated(&returned)
	for i := range local {
		s := &local[i]
		dst, src := p.at(s.Dst, s.Len), p.at(s.Src, s.Len)
		if s.Kind == collectives.Copy {
			copy(dst, src)
			continue
		}
		with := p.at(s.With, s.Len)
		switch s.Dst {
		case s.With:
			p.Operator.Combine(with, src)
		case s.Src: // the operator commutes
			p.Operator.Combine(src, with)
		default:
			copy(dst, with)
			p.Operator.Combine(dst, src)
		}
	}
	returned = true
}

// operated is deferred by callers of operators: the call fails if one has not returned.
func (p *Plan) operated(returned *bool) {
	if *returned {
		return
	}
	if r := recover(); r != nil {
		p.failed = mpierr.New("", mpierr.ErrOp, "the operator has panicked: %v\n%s", r, debug.Stack())
		return
	}
	p.failed = mpierr.New("", mpierr.ErrOp, background.Goexit)
}

// Operator combines memory.
type Operator interface {
	Combine(inout, in []byte)
	Forget() // is called when the call is over: the operator may hold memory
}

package collectives

// Operation is a collective operation; each has one algorithm or more.
type Operation uint8

// The operations, and what In and Out hold in each. In place, what would be in In is in Out, at the place that the
// comment names, and In is not used.
const (
	// Barrier uses neither space.
	Barrier Operation = iota
	// Bcast has Count elements in Out at each rank; In is not used.
	Bcast
	// Gather has Count in In, and at the root Size × Count in Out. In place (at the root only): the root's block in
	// Out.
	Gather
	// Gatherv has Count in In, and at the root OutCounts[i] in block i of Out. In place: as Gather.
	Gatherv
	// Scatter has at the root Size × Count in In, and Count in Out. In place (at the root only): the root's block stays
	// in In, and Out is not used there.
	Scatter
	// Scatterv has at the root InCounts[i] in block i of In, and Count in Out. In place: as Scatter.
	Scatterv
	// Allgather has Count in In and Size × Count in Out. In place: this rank's block of Out.
	Allgather
	// Allgatherv has OutCounts[Rank] in In and OutCounts[i] in block i of Out. In place: this rank's block of Out.
	Allgatherv
	// Alltoall has Size × Count in In and in Out. In place: all of Out.
	Alltoall
	// Alltoallv has InCounts[i] in block i of In and OutCounts[i] in block i of Out. In place: all of Out, and
	// OutCounts[i] here is OutCounts[Rank] at rank i.
	Alltoallv
	// Alltoallw is as Alltoallv, with elements of one byte: the bytes of a block's packed layout.
	Alltoallw
	// Reduce has Count in In, and at the root Count in Out. In place (at the root only): Out.
	Reduce
	// Allreduce has Count in In and in Out. In place: Out.
	Allreduce
	// ReduceScatter has the sum of InCounts in In, in one piece, and InCounts[Rank] in Out. In place: Out, which has
	// the sum of InCounts, and keeps what is behind the result.
	ReduceScatter
	// ReduceScatterBlock has Size × Count in In and Count in Out. In place: as ReduceScatter.
	ReduceScatterBlock
	// Scan has Count in In and in Out. In place: Out.
	Scan
	// Exscan is as Scan; Out of rank 0 is not written.
	Exscan
	// NeighborAllgather has Count in In and len(Sources) × Count in Out. No neighbourhood operation is in place.
	NeighborAllgather
	// NeighborAllgatherv has Count in In and OutCounts[i] in block i of Out, from Sources[i].
	NeighborAllgatherv
	// NeighborAlltoall has len(Destinations) × Count in In and len(Sources) × Count in Out.
	NeighborAlltoall
	// NeighborAlltoallv has InCounts[i] in block i of In, for Destinations[i], and Out as NeighborAllgatherv.
	NeighborAlltoallv
	// NeighborAlltoallw is as NeighborAlltoallv, with elements of one byte.
	NeighborAlltoallw
	// InterAllreduce has Count in In and in Out: what the ranks of the other group have, combined. The ranks below Low
	// are one group, the others the other. No operation between groups is in place.
	InterAllreduce
	// InterReduce has Count in In at all ranks but the last, and Count in Out at the last rank: what the others have,
	// combined.
	InterReduce
	// InterReduceScatter has Count in In and InCounts[i] in Out, at the rank whose number in its group is i. The sum of
	// InCounts is Count in both groups.
	InterReduceScatter
	// InterReduceScatterBlock is the same.
	InterReduceScatterBlock
	// InterAllgather, InterAllgatherv, InterAlltoall, InterAlltoallv and InterAlltoallw have the spaces of Alltoallv.
	// The counts for ranks of the own group are 0.
	InterAllgather
	InterAllgatherv
	InterAlltoall
	InterAlltoallv
	InterAlltoallw

	operations
)

// Operations is how many there are.
const Operations = int(operations)

// Shape says what each rank contributes and gets; Facts.
type Shape uint8

// The shapes.
const (
	Nothing   Shape = iota // no data
	Vector                 // Count elements, as many at all ranks
	Equal                  // a block of Count elements for each rank, at one rank or at all
	Unequal                // likewise, and the blocks have lengths of their own
	Neighbors              // a block for each neighbour
)

// Facts are what there is to know of an operation without its algorithms.
type Facts struct {
	Name    string // in settings and of commands
	Call    string // of the blocking function of package mpi
	Shape   Shape
	Rooted  bool // one rank is the root
	Reduces bool // it has an operator
	InPlace bool // it has a form in place
}

// facts is the one list of operations. A new one needs a constant above, a line here, its algorithms (catalogue.go), a
// choice among them (choose.go), and its functions in package mpi.
var facts = [operations]Facts{
	Barrier:            {"barrier", "Barrier", Nothing, false, false, false},
	Bcast:              {"bcast", "Bcast", Vector, true, false, false},
	Gather:             {"gather", "Gather", Equal, true, false, true},
	Gatherv:            {"gatherv", "Gatherv", Unequal, true, false, true},
	Scatter:            {"scatter", "Scatter", Equal, true, false, true},
	Scatterv:           {"scatterv", "Scatterv", Unequal, true, false, true},
	Allgather:          {"allgather", "Allgather", Equal, false, false, true},
	Allgatherv:         {"allgatherv", "Allgatherv", Unequal, false, false, true},
	Alltoall:           {"alltoall", "Alltoall", Equal, false, false, true},
	Alltoallv:          {"alltoallv", "Alltoallv", Unequal, false, false, true},
	Alltoallw:          {"alltoallw", "Alltoallw", Unequal, false, false, true},
	Reduce:             {"reduce", "Reduce", Vector, true, true, true},
	Allreduce:          {"allreduce", "Allreduce", Vector, false, true, true},
	ReduceScatter:      {"reduce_scatter", "ReduceScatter", Unequal, false, true, true},
	ReduceScatterBlock: {"reduce_scatter_block", "ReduceScatterBlock", Equal, false, true, true},
	Scan:               {"scan", "Scan", Vector, false, true, true},
	Exscan:             {"exscan", "Exscan", Vector, false, true, true},
	NeighborAllgather:  {"neighbor_allgather", "NeighborAllgather", Neighbors, false, false, false},
	NeighborAllgatherv: {"neighbor_allgatherv", "NeighborAllgatherv", Neighbors, false, false, false},
	NeighborAlltoall:   {"neighbor_alltoall", "NeighborAlltoall", Neighbors, false, false, false},
	NeighborAlltoallv:  {"neighbor_alltoallv", "NeighborAlltoallv", Neighbors, false, false, false},
	NeighborAlltoallw:  {"neighbor_alltoallw", "NeighborAlltoallw", Neighbors, false, false, false},
	InterAllreduce:     {"inter_allreduce", "Allreduce", Vector, false, true, false},

	InterReduce:             {"inter_reduce", "Reduce", Vector, true, true, false},
	InterReduceScatter:      {"inter_reduce_scatter", "ReduceScatter", Vector, false, true, false},
	InterReduceScatterBlock: {"inter_reduce_scatter_block", "ReduceScatterBlock", Vector, false, true, false},
	InterAllgather:          {"inter_allgather", "Allgather", Unequal, false, false, false},
	InterAllgatherv:         {"inter_allgatherv", "Allgatherv", Unequal, false, false, false},
	InterAlltoall:           {"inter_alltoall", "Alltoall", Unequal, false, false, false},
	InterAlltoallv:          {"inter_alltoallv", "Alltoallv", Unequal, false, false, false},
	InterAlltoallw:          {"inter_alltoallw", "Alltoallw", Unequal, false, false, false},
}

// Facts returns what there is to know of an operation without its algorithms.
func (o Operation) Facts() Facts { return facts[o] }

// Neighborhood reports whether an operation is among neighbours.
func (o Operation) Neighborhood() bool { return facts[o].Shape == Neighbors }

// BetweenGroups reports whether an operation is between the two groups of an intercommunicator.
func (o Operation) BetweenGroups() bool { return o >= InterAllreduce }

// String returns the name that users write: allreduce, reduce_scatter_block.
func (o Operation) String() string { return facts[o].Name }

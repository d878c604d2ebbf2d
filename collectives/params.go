package collectives

// Operation is what is to be done; each has one algorithm or more.
type Operation uint8

// The operations, and what In and Out hold in each. In place, what would be in In is in Out, at the place that the
// comment names, and In is not used.
const (
	// Barrier uses neither space.
	Barrier Operation = iota
	// Bcast has Count elements in Out at each rank; In is not used.
	Bcast
	// Gather has Count in In, and at the root Size × Count in Out. In place (at the root only): the root's block in Out.
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
	// Alltoallw is as Alltoallv, with elements of one byte: a block's are those of its packed layout.
	Alltoallw
	// Reduce has Count in In, and at the root Count in Out. In place (at the root only): Out.
	Reduce
	// Allreduce has Count in In and in Out. In place: Out.
	Allreduce
	// ReduceScatter has the sum of InCounts in In, in one piece, and InCounts[Rank] in Out. In place: Out, which has the
	// sum of InCounts, and keeps what is behind the result.
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
	// are one group, the others the other. It is not in place.
	InterAllreduce

	operations
)

var operationNames = [operations]string{
	"barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv",
	"alltoall", "alltoallv", "alltoallw", "reduce", "allreduce", "reduce_scatter", "reduce_scatter_block",
	"scan", "exscan", "neighbor_allgather", "neighbor_allgatherv",
	"neighbor_alltoall", "neighbor_alltoallv", "neighbor_alltoallw", "inter_allreduce",
}

// Neighborhood reports whether an operation is among neighbours.
func (o Operation) Neighborhood() bool { return NeighborAllgather <= o && o <= NeighborAlltoallw }

// String is the name that users write: allreduce, reduce_scatter_block.
func (o Operation) String() string { return operationNames[o] }

// Params is what an algorithm may know of a call. What Rank, InPlace, InCounts, OutCounts, Sources and Destinations do
// not say is the same at all ranks of the call, Count of Gatherv and Scatterv apart.
type Params struct {
	Rank, Size int
	Root       int
	Low        int     // of InterAllreduce: ranks of the first group
	Count      int64   // elements; of what, is said at Operation
	InCounts   []int64 // of the v and w forms and ReduceScatter; kept, never changed
	OutCounts  []int64
	ElemSize   int64 // bytes of an element; ≥ 1
	Segment    int64 // elements of a pipeline's segment; 0: the algorithm's own choice
	InPlace    bool
	// Unattended says that ranks may compute while the call is under way. A round may wait for each of them to come by,
	// so no vector is cut into segments, and Segment does not count.
	Unattended bool
	// Commutative says that the operator may be applied in any order of ranks. Associative it always is.
	Commutative bool
	// ByPairs says that contributions are combined by pairs (see byPairs).
	ByPairs bool
	// Board says that the ranks have memory in common.
	Board bool
	// Reads says that on a board they can read each other's buffers.
	Reads bool
	// Hosts says which ranks share a host; nil: not known.
	Hosts Hosts
	// Sources and Destinations are the neighbours that this rank receives from and sends to. One that is negative is
	// none: its blocks are not touched.
	Sources, Destinations []int
	// Cartesian says that neighbours come in pairs, one for each dimension: the lower one, then the upper. Where both
	// are one rank, what it sends to its upper neighbour is received as from the lower one.
	Cartesian bool
}

// in is block i of In, and its length.
func (p *Params) in(i int) (Ref, int64) {
	if p.InCounts != nil {
		return Ref{Space: In, Block: int32(i)}, p.InCounts[i]
	}
	return Ref{Space: In, Off: int64(i) * p.Count}, p.Count
}

// out is block i of Out, and its length.
func (p *Params) out(i int) (Ref, int64) {
	if p.OutCounts != nil {
		return Ref{Space: Out, Block: int32(i)}, p.OutCounts[i]
	}
	return Ref{Space: Out, Off: int64(i) * p.Count}, p.Count
}

// source is where the operations that take one vector at each rank, and give one, have it.
func (p *Params) source() Ref {
	if p.InPlace {
		return Ref{Space: Out}
	}
	return Ref{Space: In}
}

// segment is the length ≥ 1 of a pipeline's segments, of Count elements: about 64 KiB, if the caller has not chosen.
func (p *Params) segment() int64 {
	n := (64 << 10) / max(1, p.ElemSize)
	if p.Segment > 0 {
		n = p.Segment
	}
	if p.Unattended {
		n = p.Count
	}
	return max(1, min(n, p.Count))
}

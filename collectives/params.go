package collectives

// Params is what an algorithm may know of a call. What Rank, InPlace, InCounts, OutCounts, Sources and Destinations do
// not say is the same at all ranks of the call, Count of Gatherv and Scatterv apart.
type Params struct {
	Rank, Size int
	Root       int
	Low        int     // between two groups: ranks of the first one
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
	// Roomy says that the ranks have a board, on which they have agreed that they do not outnumber the CPUs of their
	// host.
	Roomy bool
	// Reads says that on a board they can read each other's buffers.
	Reads bool
	// Hosts says which ranks share a host; nil: not known.
	Hosts Hosts
	// Sources and Destinations are the neighbours that this rank receives from and sends to. A negative one is no
	// neighbour: its blocks are not touched.
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

package collectives

import (
	"errors"
	"fmt"
)

// Algorithm is one way to do an operation.
type Algorithm struct {
	Operation Operation
	Name      string
	Needs     Need
	build     func(*Builder, *Params)
}

// String is operation:name, as users write it.
func (a *Algorithm) String() string { return a.Operation.String() + ":" + a.Name }

// Need is a condition for an algorithm to work.
type Need uint16

// The needs, of which an algorithm has any number.
const (
	// Commutes requires that the operator commutes.
	Commutes Need = 1 << iota
	// PowerOfTwo requires that the number of ranks is a power of two.
	PowerOfTwo
	// KnownHosts requires that the ranks know which of them share a host.
	KnownHosts
	// ConsecutiveHosts requires KnownHosts, and that each host's ranks are consecutive.
	ConsecutiveHosts
	// OrCommutes: where ConsecutiveHosts is not so it does if the operator commutes and the hosts are known.
	OrCommutes
	// OnBoard: the ranks have memory in common. Such an algorithm has no schedule: its executor knows it.
	OnBoard
	// ReadsBuffers means that the algorithm has no schedule either, and each rank reads the others' buffers.
	ReadsBuffers
	// Apart: it is not done in place.
	Apart
	// OwnOrder: it does not combine by pairs, as the algorithms on boards do and those that stand in for them.
	OwnOrder
	// Attended: no rank computes meanwhile, since each takes part in a round for each segment or each rank.
	Attended
)

// Fits says why an algorithm cannot do a call; nil: it can.
func (a *Algorithm) Fits(p *Params) error {
	needs := a.Needs
	if needs&OrCommutes != 0 && p.Commutative {
		needs = needs&^ConsecutiveHosts | KnownHosts
	}
	switch {
	case needs&OnBoard != 0 && !p.Board:
		return fmt.Errorf("%v needs ranks that have memory in common", a)
	case needs&ReadsBuffers != 0 && !p.Reads:
		return fmt.Errorf("%v needs ranks that can read each other's memory", a)
	case needs&Apart != 0 && p.InPlace:
		return fmt.Errorf("%v is not done in place", a)
	case needs&OwnOrder != 0 && p.ByPairs:
		return fmt.Errorf("%v combines in another order than a board", a)
	case needs&Attended != 0 && p.Unattended:
		return fmt.Errorf("%v needs ranks that wait, and do not compute, while the call is under way", a)
	case needs&Commutes != 0 && !p.Commutative:
		return fmt.Errorf("%v needs an operator that commutes", a)
	case needs&PowerOfTwo != 0 && p.Size&(p.Size-1) != 0:
		return fmt.Errorf("%v needs a power of two of ranks, not %d", a, p.Size)
	case needs&(KnownHosts|ConsecutiveHosts) != 0 && p.Hosts == nil:
		return fmt.Errorf("%v needs to know which ranks share a host", a)
	case needs&ConsecutiveHosts != 0 && !p.Hosts.Consecutive():
		return fmt.Errorf("%v needs consecutive ranks on each host", a)
	}
	return nil
}

// catalogue has every algorithm. For each operation one of them has no needs.
var catalogue = []Algorithm{
	{Barrier, "dissemination", 0, barrierDissemination},
	{Barrier, "tree", 0, barrierTree},
	{Barrier, "two_level", KnownHosts, barrierTwoLevel},
	{Barrier, "shared", OnBoard, nil},

	{Bcast, "binomial", 0, bcastBinomial},
	{Bcast, "knomial", 0, bcastKnomial},
	{Bcast, "chain", Attended, bcastChain},
	{Bcast, "scatter_ring", Attended, bcastScatterRing},
	{Bcast, "scatter_doubling", PowerOfTwo, bcastScatterDoubling},
	{Bcast, "two_level", KnownHosts, bcastTwoLevel},
	{Bcast, "shared", OnBoard, nil},
	{Bcast, "direct", OnBoard | ReadsBuffers, nil},

	{Gather, "binomial", 0, gatherBinomial},
	{Gather, "linear", 0, gatherLinear},
	{Gatherv, "linear", 0, gatherLinear},
	{Scatter, "binomial", 0, scatterBinomial},
	{Scatter, "linear", 0, scatterLinear},
	{Scatterv, "linear", 0, scatterLinear},

	{Allgather, "bruck", 0, allgatherBruck},
	{Allgather, "doubling", PowerOfTwo, allgatherDoubling},
	{Allgather, "ring", 0, allgatherRing},
	{Allgather, "two_level", ConsecutiveHosts, allgatherTwoLevel},
	{Allgather, "shared", OnBoard, nil},
	{Allgather, "direct", OnBoard | ReadsBuffers, nil},
	{Allgatherv, "bruck", 0, allgatherBruck},
	{Allgatherv, "ring", 0, allgatherRing},

	{Alltoall, "bruck", 0, alltoallBruck},
	{Alltoall, "linear", 0, alltoallLinear},
	{Alltoall, "pairwise", 0, alltoallPairwise},
	{Alltoall, "shared", OnBoard, nil},
	{Alltoall, "direct", OnBoard | ReadsBuffers | Apart, nil},
	{Alltoallv, "linear", 0, alltoallLinear},
	{Alltoallv, "pairwise", 0, alltoallPairwise},
	{Alltoallw, "linear", 0, alltoallLinear},
	{Alltoallw, "pairwise", 0, alltoallPairwise},

	{Reduce, "binomial", 0, reduceBinomial},
	{Reduce, "knomial", OwnOrder, reduceKnomial},
	{Reduce, "chain", Commutes | OwnOrder, reduceChain},
	{Reduce, "rabenseifner", 0, reduceRabenseifner},
	{Reduce, "two_level", KnownHosts | Commutes | OwnOrder, reduceTwoLevel},
	{Reduce, "shared", OnBoard, nil},
	{Reduce, "direct", OnBoard | ReadsBuffers, nil},

	{Allreduce, "doubling", 0, allreduceDoubling},
	{Allreduce, "tree", OwnOrder, allreduceTree},
	{Allreduce, "rabenseifner", 0, allreduceRabenseifner},
	{Allreduce, "ring", Commutes | OwnOrder, allreduceRing},
	{Allreduce, "two_level", ConsecutiveHosts | OrCommutes | OwnOrder, allreduceTwoLevel},
	{Allreduce, "two_level_rabenseifner", ConsecutiveHosts | OrCommutes | OwnOrder, allreduceTwoLevelRabenseifner},
	{Allreduce, "shared", OnBoard, nil},
	{Allreduce, "direct", OnBoard | ReadsBuffers, nil},

	{ReduceScatter, "halving", 0, reduceScatterHalving},
	{ReduceScatter, "pairwise", 0, reduceScatterPairwise},
	{ReduceScatter, "ring", Commutes, reduceScatterRing},
	{ReduceScatterBlock, "halving", 0, reduceScatterHalving},
	{ReduceScatterBlock, "pairwise", 0, reduceScatterPairwise},
	{ReduceScatterBlock, "ring", Commutes, reduceScatterRing},

	{Scan, "doubling", 0, scanDoubling},
	{Scan, "chain", 0, scanChain},
	{Exscan, "doubling", 0, exscanDoubling},
	{Exscan, "chain", 0, exscanChain},

	{NeighborAllgather, "linear", 0, neighborAllgather},
	{NeighborAllgatherv, "linear", 0, neighborAllgather},
	{NeighborAlltoall, "linear", 0, neighborAlltoall},
	{NeighborAlltoallv, "linear", 0, neighborAlltoall},
	{NeighborAlltoallw, "linear", 0, neighborAlltoall},

	{InterAllreduce, "leaders", 0, interAllreduce},
	{InterReduce, "leaders", 0, interReduce},
	{InterReduceScatter, "leaders", 0, interReduceScatter},
	{InterReduceScatterBlock, "leaders", 0, interReduceScatter},
	{InterAllgather, "linear", 0, alltoallLinear},
	{InterAllgatherv, "linear", 0, alltoallLinear},
	{InterAlltoall, "linear", 0, alltoallLinear},
	{InterAlltoallv, "linear", 0, alltoallLinear},
	{InterAlltoallw, "linear", 0, alltoallLinear},
}

// Algorithms returns the algorithms of an operation, in the order of the catalogue.
func Algorithms(o Operation) (all []*Algorithm) {
	for i := range catalogue {
		if catalogue[i].Operation == o {
			all = append(all, &catalogue[i])
		}
	}
	return all
}

// Find returns an algorithm by its name.
func Find(o Operation, name string) (*Algorithm, error) {
	if a := find(o, name); a != nil {
		return a, nil
	}
	text := fmt.Sprintf("%v has no algorithm %q; it has", o, name)
	for i, a := range Algorithms(o) {
		if i > 0 {
			text += ","
		}
		text += " " + a.Name
	}
	return nil, errors.New(text)
}

func find(o Operation, name string) *Algorithm {
	for i := range catalogue {
		if a := &catalogue[i]; a.Operation == o && a.Name == name {
			return a
		}
	}
	return nil
}

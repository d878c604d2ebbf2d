package collectives

import (
	"fmt"
	"testing"
)

// unattended is a call of an operation at one rank while ranks compute, with count elements of 8 bytes in each block.
func unattended(o Operation, rank, size, root int, count int64, hosts Hosts) Params {
	p := Params{Rank: rank, Size: size, Root: root, Low: (size + 1) / 2, Count: count, ElemSize: 8, Commutative: true,
		Hosts: hosts, Unattended: true}
	blocks := func(n int) (counts []int64) {
		for range n {
			counts = append(counts, count)
		}
		return counts
	}
	switch o {
	case Gatherv, Allgatherv:
		p.OutCounts = blocks(size)
	case Scatterv, ReduceScatter:
		p.InCounts = blocks(size)
	case Alltoallv, Alltoallw:
		p.InCounts, p.OutCounts = blocks(size), blocks(size)
	case InterReduceScatter, InterReduceScatterBlock:
		n := p.Low
		if rank >= n {
			n = size - n
		}
		p.InCounts = make([]int64, n)
		p.InCounts[n-1] = count
	}
	if o.Neighborhood() {
		p.Sources, p.Destinations, p.Cartesian = neighboursOf(2, rank, size)
		switch o {
		case NeighborAllgatherv:
			p.OutCounts = blocks(len(p.Sources))
		case NeighborAlltoallv, NeighborAlltoallw:
			p.InCounts, p.OutCounts = blocks(len(p.Destinations)), blocks(len(p.Sources))
		}
	}
	return p
}

// In a call that is not blocking, a rank's rounds are not more for longer vectors: each round may wait for ranks that
// compute. A long Bcast, where no order of ranks is to be kept, takes at most three rounds of each rank.
func TestRoundsWhileRanksCompute(t *testing.T) {
	choices := []string{""}
	for i := range catalogue {
		if a := &catalogue[i]; a.Needs&OnBoard == 0 {
			choices = append(choices, a.String())
		}
	}
	sizes := []int{2, 3, 8, 17}
	if !testing.Short() {
		sizes = []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 64}
	}
	var b Builder
	for _, text := range choices {
		choice, err := ParseChoice(text)
		if err != nil {
			t.Fatal(err)
		}
		for o := range operations {
			if text != "" && choice.Named(o) == nil {
				continue
			}
			for _, size := range sizes {
				for _, hosts := range []Hosts{nil, Blocks{size, 1}, Blocks{size, 4}} {
					for _, via := range []Via{SharedMemory, Network} {
						for _, rank := range []int{0, 1, size / 2, size - 1} {
							if bad := moreRounds(&b, &choice, o, via, rank, size, hosts); bad != "" {
								t.Fatalf("GORUN_COLL=%s over %v, hosts %v: %s", text, via, hosts, bad)
							}
						}
					}
				}
			}
		}
	}
}

func moreRounds(b *Builder, choice *Choice, o Operation, via Via, rank, size int, hosts Hosts) string {
	for _, root := range []int{0, size - 1} {
		for bytes := int64(8); bytes <= 64*mib; bytes *= 2 {
			p := unattended(o, rank, size, root, bytes/8, hosts)
			a := choice.Algorithm(o, &p, via)
			rounds := b.Window(a, &p, 0, 0).Rounds
			if a.Operation == Bcast && choice.Named(Bcast) == nil && bytes > 128*kib && rounds > 3 && size <= 1024 {
				return fmt.Sprintf("%v of %d B on %d ranks: %d rounds of rank %d", a, bytes, size, rounds, rank)
			}
			p = unattended(o, rank, size, root, mib/8, hosts)
			if most := b.Window(a, &p, 0, 0).Rounds; rounds > most {
				return fmt.Sprintf("%v on %d ranks: %d rounds of rank %d for %d B, %d for 1 MiB", a, size, rounds, rank, bytes,
					most)
			}
		}
	}
	return ""
}

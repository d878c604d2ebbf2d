package checkpoint

import (
	"cmp"
	"slices"
)

// partners chooses k partners for each of the ranks of hosts, which has the host of each rank. A rank's partners are on
// as many hosts as can be, and on its own host only when the other hosts have no rank left. Where all hosts have as
// many ranks, each rank is the partner of k others.
func partners(hosts []int, k int) [][]int {
	row := make([]int, len(hosts)) // the ranks, the first of each host before the second of any
	local := make([]int, len(hosts))
	count := map[int]int{}
	for r, h := range hosts {
		row[r], local[r] = r, count[h]
		count[h]++
	}
	slices.SortStableFunc(row, func(a, b int) int { return local[a] - local[b] })
	all := make([][]int, len(hosts))
	for at, r := range row {
		used := map[int]int{hosts[r]: len(hosts)} // how often a host has been taken: the own one last
		for len(all[r]) < min(k, len(hosts)-1) {
			best := -1
			for i := 1; i < len(row); i++ { // the nearest in the row on a host that was taken least
				p := row[(at+i)%len(row)]
				if slices.Contains(all[r], p) {
					continue
				}
				if best < 0 || used[hosts[p]] < used[hosts[best]] {
					best = p
				}
			}
			all[r] = append(all[r], best)
			used[hosts[best]]++
		}
	}
	return all
}

// holding is what a rank says of a copy that it has.
type holding struct {
	Header header
	Holder int
}

// choice is what all ranks decide alike from the holdings of all.
type choice struct {
	header           // of the checkpoint, without owner and length; zero: no checkpoint has been whole yet
	from    []int    // for each rank the one that has its slices: itself where it has them
	lengths []uint64 // for each rank
	lost    []int    // ranks without whose slices there is no checkpoint
}

// choose finds the newest checkpoint of the newest row of which somewhere every rank's slices are. If no such
// checkpoint is left, although one was whole once, the choice says whose slices are lost. whole are checkpoints that
// were, as some rank knows.
func choose(n int, all []holding, whole ...header) (c choice) {
	var newest header
	for _, h := range all {
		newest.Lineage = max(newest.Lineage, h.Header.Lineage)
	}
	had := slices.ContainsFunc(whole, func(h header) bool { return h.Lineage == newest.Lineage && h.Number > 0 })
	versions := map[uint64][]holding{}
	for _, h := range all {
		if h.Header.Lineage != newest.Lineage || h.Header.Size != uint32(n) || int(h.Header.Owner) >= n {
			continue
		}
		versions[h.Header.Number] = append(versions[h.Header.Number], h)
		had = had || h.Header.Before > 0
	}
	numbers := make([]uint64, 0, len(versions))
	for number := range versions {
		numbers = append(numbers, number)
	}
	slices.SortFunc(numbers, func(a, b uint64) int { return cmp.Compare(b, a) })
	for _, number := range numbers {
		from, lengths, lacks := cover(n, versions[number])
		if len(lacks) == 0 {
			first := versions[number][0].Header
			first.Owner, first.Length = 0, 0
			return choice{header: first, from: from, lengths: lengths}
		}
		if c.lost == nil || len(lacks) < len(c.lost) {
			c.lost = lacks
		}
	}
	if !had {
		c.lost = nil // the first Save has not ended anywhere
	}
	return c
}

// cover finds for each rank who has its slices, the rank itself first, then the lowest. lacks has the ranks without.
func cover(n int, all []holding) (from []int, lengths []uint64, lacks []int) {
	from, lengths = make([]int, n), make([]uint64, n)
	for r := range from {
		from[r] = -1
	}
	for _, h := range all {
		r := int(h.Header.Owner)
		if from[r] < 0 || from[r] != r && (h.Holder == r || h.Holder < from[r]) {
			from[r], lengths[r] = h.Holder, h.Header.Length
		}
	}
	for r := range from {
		if from[r] < 0 {
			lacks = append(lacks, r)
		}
	}
	return from, lengths, lacks
}

package collectives

import (
	"math/rand/v2"
	"testing"
)

// uneven is where ranks are on hosts of 1, 3, 0, 2, 5, 1, 3 … ranks in blocks.
func uneven(rank int) int {
	for host := 0; ; host++ {
		if rank -= []int{1, 3, 0, 2, 5}[host%5]; rank < 0 {
			return host
		}
	}
}

// entangled hosts have ranks that are as far apart as those of the next one, which begins among them.
func entangled(rank int) int {
	switch rank {
	case 10, 12, 14:
		return 1
	case 13, 15, 17:
		return 2
	}
	return 3 + rank/40
}

func inTurn(hosts int) func(int) int { return func(rank int) int { return rank % hosts } }

func inBlocks(n int) func(int) int { return func(rank int) int { return rank / n } }

// checkHosts compares h with lists.
func checkHosts(t *testing.T, h Hosts, n int, at func(int) int) {
	t.Helper()
	numbers, lists := map[int]int{}, [][]int{}
	for rank := range n {
		host, known := numbers[at(rank)]
		if !known {
			host = len(lists)
			numbers[at(rank)] = host
			lists = append(lists, nil)
		}
		lists[host] = append(lists[host], rank)
	}
	consecutive := true
	for host, ranks := range lists {
		if got := h.Size(host); got != len(ranks) {
			t.Fatalf("host %d has %d ranks, want %v", host, got, ranks)
		}
		consecutive = consecutive && ranks[len(ranks)-1]-ranks[0] == len(ranks)-1
		for i, rank := range ranks {
			if h.Rank(host, i) != rank || h.Host(rank) != host || h.Index(rank) != i {
				t.Fatalf("rank %d of host %d is %d, and rank %d is number %d of host %d; want number %d of %v",
					i, host, h.Rank(host, i), rank, h.Index(rank), h.Host(rank), i, ranks)
			}
		}
	}
	if h.Len() != len(lists) || h.Consecutive() != consecutive {
		t.Fatalf("%d hosts, consecutive %v; want %d, %v", h.Len(), h.Consecutive(), len(lists), consecutive)
	}
}

func TestHostsOf(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 5, 8, 16, 17, 60, 64, 200} {
		shuffled := random.Perm(n)
		for _, at := range []func(int) int{
			inBlocks(1), inBlocks(3), inBlocks(8), inBlocks(n), inTurn(2), inTurn(7), uneven, entangled,
			func(r int) int { return r / 2 % 3 },        // two ranks for each of 3 hosts in turn
			func(r int) int { return r*r - 2*r },        // numbers that may be negative
			func(r int) int { return min(r%5, 3) },      // in turn, two of them for one host
			func(r int) int { return uneven(r) % 3 },    // hosts of several series
			func(r int) int { return shuffled[r] / 4 },  // no rule
			func(r int) int { return shuffled[r] % 2 },  // two hosts without a rule
			func(r int) int { return (r + r/10) % 5 },   // each turn begins elsewhere
			func(r int) int { return (r * r * 7) % 11 }, // a rule that families do not see
			func(r int) int { return r/16*8&r ^ 3 },     // bits
		} {
			h := HostsOf(n, at)
			checkHosts(t, h, n, at)
			half := func(r int) int { return at(2 * r) } // of a communicator of every second rank
			checkHosts(t, HostsOf((n+1)/2, func(r int) int { return h.Host(2 * r) }), (n+1)/2, half)
		}
	}
}

// What follows a rule takes a family for each part of it, whatever the number of ranks.
func TestFamiliesOfHosts(t *testing.T) {
	const n = 1 << 17
	for name, c := range map[string]struct {
		at               func(int) int
		families, series int // at most
	}{
		"blocks":               {inBlocks(64), 1, 1},
		"blocks, one shorter":  {inBlocks(48), 2, 1},
		"in turn":              {inTurn(1000), 2, 1},
		"two each in turn":     {func(r int) int { return r / 2 % 1000 }, 3, n/2000 + 1},
		"two kinds of machine": {func(r int) int { return []int{r / 32, n + r/64}[r/(n/2)] }, 2, 1},
	} {
		h := HostsOf(n, c.at).(*grouped)
		if got := len(h.families); got > c.families || len(h.families[0].ranks) > c.series {
			t.Errorf("%s: %d families, the first of %d series; want %d and %d", name, got, len(h.families[0].ranks),
				c.families, c.series)
		}
	}
}

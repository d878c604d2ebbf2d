package collectives

import "sort"

// Hosts says which ranks share a host. Hosts are numbered by their lowest ranks: the lowest rank of host 0 is rank 0.
type Hosts interface {
	Len() int             // how many hosts
	Host(rank int) int    // where rank is
	Index(rank int) int   // its place among the ranks of its host, which are in ascending order
	Size(host int) int    // ranks of a host
	Rank(host, i int) int // the i-th rank of a host
	Consecutive() bool    // each host's ranks are consecutive
}

// Blocks are hosts with PerHost consecutive ranks each, the last with what is left.
type Blocks struct{ Ranks, PerHost int }

// Len implements Hosts.
func (h Blocks) Len() int { return (h.Ranks + h.PerHost - 1) / h.PerHost }

// Host implements Hosts.
func (h Blocks) Host(rank int) int { return rank / h.PerHost }

// Index implements Hosts.
func (h Blocks) Index(rank int) int { return rank % h.PerHost }

// Size implements Hosts.
func (h Blocks) Size(host int) int { return min(h.PerHost, h.Ranks-host*h.PerHost) }

// Rank implements Hosts.
func (h Blocks) Rank(host, i int) int { return host*h.PerHost + i }

// Consecutive implements Hosts.
func (h Blocks) Consecutive() bool { return true }

// HostsOf are the hosts of ranks 0 … n-1, n ≥ 1, where at says for each rank where it is, by any numbers. While it runs
// it takes memory for each host. The result takes little if the hosts follow a rule: the same number of ranks on each
// of them, in blocks or in turn.
func HostsOf(n int, at func(rank int) int) Hosts {
	numbers := map[int]int{}
	var all []host
	last, h := 0, 0
	for rank := range n {
		if where := at(rank); rank == 0 || where != last {
			known := false
			if h, known = numbers[where]; !known {
				h, numbers[where] = len(all), len(all)
				all = append(all, nil)
			}
			last = where
		}
		all[h] = all[h].add(int32(rank))
	}
	g := &grouped{consecutive: true}
	for i, h := range all {
		g.add(i, h)
	}
	return g
}

// series is n ranks, each a stride from the one before. The stride is 1 if there is one rank.
type series struct{ first, stride, n int32 }

// host is the ranks of one, in ascending order.
type host []series

func (h host) add(rank int32) host {
	if len(h) > 0 {
		s := &h[len(h)-1]
		if s.n == 1 {
			s.stride, s.n = rank-s.first, 2
			return h
		}
		if rank == s.first+s.n*s.stride {
			s.n++
			return h
		}
	}
	return append(h, series{rank, 1, 1})
}

// family is hosts with successive numbers, each with the ranks of the one before moved up by shift.
type family struct {
	first        int // the number of its first host
	hosts, shift int32
	ranks        host // of its first host
	size         int  // ranks of each host
}

// grouped are hosts as families, in the order of their numbers.
type grouped struct {
	families    []family
	hosts       int
	consecutive bool
}

func (g *grouped) add(number int, h host) {
	g.hosts++
	g.consecutive = g.consecutive && len(h) == 1 && h[0].stride == 1
	if k := len(g.families); k > 0 && g.families[k-1].takes(h) {
		g.families[k-1].hosts++
		return
	}
	f := family{first: number, hosts: 1, ranks: h}
	for _, s := range h {
		f.size += int(s.n)
	}
	g.families = append(g.families, f)
}

// takes reports whether h can be the family's next host, and sets the shift if it is the second. The ranks of all hosts
// in each series must be told apart by one division: the hosts' lie behind each other, or all within one stride.
func (f *family) takes(h host) bool {
	if len(h) != len(f.ranks) {
		return false
	}
	shift := f.shift
	if f.hosts == 1 {
		shift = h[0].first - f.ranks[0].first
	}
	for i, s := range f.ranks {
		moved := series{s.first + f.hosts*shift, s.stride, s.n}
		if h[i] != moved || shift <= (s.n-1)*s.stride && s.stride <= f.hosts*shift {
			return false
		}
	}
	f.shift = shift
	return true
}

// find is which of the family's hosts rank is on, and its place there.
func (f *family) find(rank int32) (host, index int, ok bool) {
	for _, s := range f.ranks {
		if k, i, ok := f.among(s, rank-s.first); ok {
			return f.first + int(k), index + int(i), true
		}
		index += int(s.n)
	}
	return 0, 0, false
}

// among solves k·shift + i·stride = d.
func (f *family) among(s series, d int32) (k, i int32, ok bool) {
	switch {
	case d < 0:
		return 0, 0, false
	case f.hosts == 1:
		i = d / s.stride
		return 0, i, i < s.n && d%s.stride == 0
	case f.shift > (s.n-1)*s.stride:
		k, d = d/f.shift, d%f.shift
		i = d / s.stride
		return k, i, k < f.hosts && i < s.n && d%s.stride == 0
	}
	i, d = d/s.stride, d%s.stride
	k = d / f.shift
	return k, i, k < f.hosts && i < s.n && d%f.shift == 0
}

func (g *grouped) find(rank int) (host, index int) {
	for i := range g.families {
		if host, index, ok := g.families[i].find(int32(rank)); ok {
			return host, index
		}
	}
	panic("collectives: a rank is on no host")
}

// family has a host.
func (g *grouped) family(host int) *family {
	i := sort.Search(len(g.families), func(i int) bool { return g.families[i].first > host })
	return &g.families[i-1]
}

func (g *grouped) Len() int { return g.hosts }

func (g *grouped) Host(rank int) int {
	host, _ := g.find(rank)
	return host
}

func (g *grouped) Index(rank int) int {
	_, index := g.find(rank)
	return index
}

func (g *grouped) Size(host int) int { return g.family(host).size }

func (g *grouped) Rank(host, i int) int {
	f := g.family(host)
	moved, n := int32(host-f.first)*f.shift, int32(i)
	for _, s := range f.ranks {
		if n < s.n {
			return int(s.first + moved + n*s.stride)
		}
		n -= s.n
	}
	panic("collectives: a host has fewer ranks")
}

func (g *grouped) Consecutive() bool { return g.consecutive }

package collectives

// team is the ranks that a part of an algorithm runs on, numbered from 0: all of a communicator, those of one host, or
// one of each host.
type team struct {
	rank, size int // rank is this one's number in the team
	kind       teamKind
	hosts      Hosts
	host       int // of ranksOfHost
	first      int // of ranksOfGroup, which are consecutive
	// Of leaders: root leads its host in place of the host's lowest rank, if there is a root (≥ 0).
	root int
}

type teamKind uint8

const (
	everyRank teamKind = iota
	ranksOfHost
	leaders
	ranksOfGroup
)

// everyone is the team of all ranks.
func (p *Params) everyone() team { return team{rank: p.Rank, size: p.Size} }

// neighbours is the team of the ranks on this rank's host.
func (p *Params) neighbours() team {
	h := p.Hosts.Host(p.Rank)
	return team{rank: p.Hosts.Index(p.Rank), size: p.Hosts.Size(h), kind: ranksOfHost, hosts: p.Hosts, host: h}
}

// leaders is the team of one rank of each host; it is meaningful at those ranks only.
func (p *Params) leaders(root int) team {
	return team{rank: p.Hosts.Host(p.Rank), size: p.Hosts.Len(), kind: leaders, hosts: p.Hosts, root: root}
}

// group is the team of the ranks of this rank's group, and other the first rank of the other one.
func (p *Params) group() (t team, other int) {
	if p.Rank < p.Low {
		return team{rank: p.Rank, size: p.Low, kind: ranksOfGroup}, p.Low
	}
	return team{rank: p.Rank - p.Low, size: p.Size - p.Low, kind: ranksOfGroup, first: p.Low}, 0
}

// leader is the number in its host of the rank that leads this rank's host.
func (p *Params) leader(root int) int {
	if root >= 0 && p.Hosts.Host(root) == p.Hosts.Host(p.Rank) {
		return p.Hosts.Index(root)
	}
	return 0
}

// peer is the communicator's rank of a member.
func (t *team) peer(i int) int {
	switch t.kind {
	case ranksOfGroup:
		return t.first + i
	case ranksOfHost:
		return t.hosts.Rank(t.host, i)
	case leaders:
		if t.root >= 0 && t.hosts.Host(t.root) == i {
			return t.root
		}
		return t.hosts.Rank(i, 0)
	}
	return i
}

// fold is how recursive halving and doubling treat a team that is no power of two: each of the lowest 2 × rest ranks
// that is even gives its part to the one above it, and what is left is pof2 ranks, in the same order.
type fold struct {
	pof2, rest int
	rank       int // among the pof2; -1: given to the rank above
}

func (t *team) fold() fold {
	f := fold{pof2: 1}
	for f.pof2*2 <= t.size {
		f.pof2 *= 2
	}
	f.rest = t.size - f.pof2
	f.rank = f.number(t.rank)
	return f
}

// number is the number among the pof2 of a member; -1: none.
func (f *fold) number(member int) int {
	switch {
	case member >= 2*f.rest:
		return member - f.rest
	case member%2 == 1:
		return member / 2
	}
	return -1
}

// member is the inverse of number.
func (f *fold) member(number int) int {
	if number < f.rest {
		return 2*number + 1
	}
	return number + f.rest
}

// part is where part i begins when total elements are split into n nearly equal parts; part n begins at total.
func part(total int64, n, i int) int64 {
	q, r := total/int64(n), total%int64(n)
	return int64(i)*q + min(int64(i), r)
}
